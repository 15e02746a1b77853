"""Right or wrong, and by how much: an outcome held against the exact answer.

The error of an element is measured in units of the last place (ulps) at its *weight*, the sum of the absolute values of
its terms `|dy[o] / D[o]|`: cancellation makes a result small, not its rounding errors. Allowed is what any careful
kernel can keep, whatever the order of its additions:

- float32, float64: `terms + 2·rank` ulps, where `terms` is the most cells over one input. Every rounding costs at most one
  ulp at the weight: two per axis for multiplying by a rounded reciprocal, `terms - 1` for the additions, and one in the
  exact answer itself, which is rounded too.
- float16, bfloat16: 2 ulps of the type itself: a quotient rounded to it and a rounded sum, added in float32 or better. Sums
  kept in the 16-bit type lose whole terms, and are wrong.

NaN and infinities must stand exactly where the exact answer has them. The sign of a zero is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any

import ml_dtypes
import numpy as np

from .case import Array, Case, dtype_of
from .runner import Answer, Ended, Outcome, Raised

__all__ = ["OUTCOMES", "Verdict", "allowed", "error", "judge", "unit"]

OUTCOMES = ("right", "wrong", "unsupported", "crashed")


@dataclass(frozen=True)
class Verdict:
    """How a call ended: one of `OUTCOMES`; the error in ulps where there is one; what to say about it."""

    outcome: str
    ulps: float | None = None
    note: str = ""
    got: Array | None = None


def allowed(case: Case) -> float:
    """The error that is still right, in ulps at the weight."""
    if dtype_of(case.dtype).itemsize == 2:
        return 2.0
    return float(case.terms + 2 * len(case.pool.axes if case.pool else ()))


def unit(weight: Array, dtype: np.dtype[Any]) -> Array:
    """One ulp of `dtype` at `weight`, which is in float64."""
    kind = ml_dtypes.finfo(dtype)
    return np.asarray(np.ldexp(1.0, np.frexp(np.maximum(weight, float(kind.smallest_normal)))[1] - (kind.nmant + 1)))


def error(got: Array, want: Array, weight: Array) -> Array:
    """Per element the error in ulps at `weight`; infinite where NaN or infinity is out of place, or anything but 0 is."""
    with np.errstate(all="ignore"):
        a, b = got.astype(np.float64), want.astype(np.float64)
        apart = abs(a - b) / unit(weight, got.dtype)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
    comparable = np.isfinite(a) & np.isfinite(b) & (weight > 0)
    return np.where(same, 0.0, np.where(comparable, apart, inf))


def judge(case: Case, outcome: Outcome, refusals: tuple[str, ...]) -> Verdict:
    """The verdict on one call; an exception named in `refusals` says that the target does not serve such calls."""
    if isinstance(outcome, Raised):
        if case.pool is None:
            return Verdict("right", note=outcome.message)
        refused = any(name in refusals for name in outcome.types)
        return Verdict("unsupported" if refused else "crashed", note=("" if refused else "raised ") + outcome.message)
    if isinstance(outcome, Ended):
        return Verdict("crashed" if outcome.fatal else "wrong", note=outcome.how)
    return _judge_answer(case, outcome)


def _judge_answer(case: Case, answer: Answer) -> Verdict:
    if case.pool is None:
        return _judge_hostile(case, answer)
    if answer.changed_dy:
        return Verdict("wrong", note="changed the array dy")
    want, weight, most = case.want(), case.weight(), allowed(case)
    assert want is not None
    worst = Verdict("right", 0.0)
    for got in answer.arrays:
        verdict = _judge_array(got, want, weight, most)
        if verdict.outcome == "wrong" or (verdict.ulps or 0) > (worst.ulps or 0):
            worst = verdict
        if verdict.outcome == "wrong":
            break
    return worst


def _judge_array(got: Array, want: Array, weight: Array, most: float) -> Verdict:
    if got.shape != want.shape:
        return Verdict("wrong", None, f"returned shape {got.shape}, not {want.shape}", got)
    if got.dtype != want.dtype:
        return Verdict("wrong", None, f"returned dtype {got.dtype}, not {want.dtype}", got)
    errors = error(got, want, weight)
    worst = float(errors.max(initial=0.0))
    if worst <= most:
        return Verdict("right", worst)
    at = tuple(int(k) for k in np.unravel_index(int(errors.argmax()), errors.shape))
    bad = int((errors > most).sum())
    note = f"{bad} of {errors.size} elements are off; at {list(at)}: {got[at]}, not {want[at]}"
    return Verdict("wrong", worst, note, got)


def _judge_hostile(case: Case, answer: Answer) -> Verdict:
    """Without cells there is an answer, all zeros; otherwise anything returned is made up."""
    first = answer.arrays[0]
    if 0 in case.dy_shape and all(a.shape == case.input_shape and not a.any() for a in answer.arrays):
        return Verdict("right", 0.0)
    return Verdict("wrong", None, f"answered a call that has no answer (dy of shape {case.dy_shape})", first)
