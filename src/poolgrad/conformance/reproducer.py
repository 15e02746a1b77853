"""A failing case as a script to paste: the target's own call, the numbers, the exact answer, and what came out."""

from __future__ import annotations

import textwrap
from typing import Any

import numpy as np

from .case import Array, Case, dtype_of
from .judge import Verdict, allowed, unit

__all__ = ["reproducer"]


def reproducer(source: str, case: Case, target: str, verdict: Verdict) -> str:
    """A script that needs the target and NumPy, not poolgrad; it fails for as long as the target does."""
    heading = [f"{target}: {verdict.outcome}", verdict.note, f"smaller than {case.name}"]
    needed = ["import ml_dtypes"] * (case.dtype == "bfloat16") + ["import numpy as np"]
    lines = [f"# {line}" for text in heading for line in textwrap.wrap(text, 116)]
    lines += [line for line in needed if line not in source.splitlines()]
    lines += [source.rstrip(), "", "", f"dy = {_literal(case.dy())}", "dx = grad(dy)", "print(dx)"]
    want = case.want()
    if want is None:
        return "\n".join([*lines, 'raise AssertionError("this call has no answer and should be refused")', ""])
    lines += [f"exact = {_literal(want)}", f"allowed = {_margins(case)}"]
    lines += ["print(exact)", "assert (dx.shape, dx.dtype) == (exact.shape, exact.dtype)"]
    lines += ["a, b = dx.astype(float), exact.astype(float)"]
    return "\n".join([*lines, "assert ((a == b) | (np.isnan(a) & np.isnan(b)) | (abs(a - b) <= allowed)).all()", ""])


def _margins(case: Case) -> str:
    """The error allowed at every element, or one number if it is the same for all."""
    margins = allowed(case) * unit(case.weight(), dtype_of(case.dtype))
    if len({float(m) for m in margins.flat}) == 1:
        return f"{float(margins.flat[0]):.2e}"
    return f"np.array({_listed([f'{float(m):.2e}' for m in margins.flat])}).reshape{margins.shape}"


def _literal(array: Array) -> str:
    """`array` as an expression that makes it again to the bit."""
    dtype = "ml_dtypes.bfloat16" if array.dtype.name == "bfloat16" else f"np.{array.dtype.name}"
    return f"np.array({_listed([_number(value) for value in array.ravel()])}, dtype={dtype}).reshape{array.shape}"


def _listed(numbers: list[str]) -> str:
    rows = textwrap.fill(", ".join(numbers), 90, initial_indent="    ", subsequent_indent="    ")
    return f"[\n{rows}\n]" if len(rows) > 60 else f"[{rows.strip()}]"


def _number(value: Any) -> str:
    """As few digits as make it again."""
    if np.isfinite(value):
        return str(value) if value.dtype.type(float(str(value))) == value else repr(float(value))
    return "np.nan" if np.isnan(value) else ("np.inf" if value > 0 else "-np.inf")
