"""What a target is: a way to say a case in somebody's own words, as Python source that defines `grad(dy)`.

The worker runs that source and the reproducer prints it, so what is shown is what was run. The arguments come from the
dialect (`poolgrad.dialects`), so a call that the target cannot express is found there, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

from ...dialects import dialect
from ...dialects.pooling import NoTranslation
from ..case import Case

__all__ = ["Target", "keywords", "moved", "written"]


@dataclass(frozen=True)
class Target:
    """An implementation to be tested.

    `source` may raise `NoTranslation`. `imports` and `version` are tried first, to see whether the target is there at all.
    `refusals` names the exceptions by which it says that it does not serve a call; any other exception counts as a crash.
    `limit` and `budget` are for targets that take seconds a case: at most so many cases of a group, none begun after so many
    seconds, and half as many for making failures smaller. They hold unless the caller sets a limit.
    """

    name: str
    source: Callable[[Case], str]
    imports: str
    version: str
    refusals: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    timeout: float = 20.0
    limit: int | None = None
    budget: float = inf


def written(name: str, case: Case) -> dict[str, Any]:
    """The arguments in the dialect `name`; of a call that fits no shape, those of the nearest that does."""
    return dialect(name).write(case.pooling, case.fits or case.input_shape)


def keywords(arguments: Mapping[str, Any]) -> str:
    """
    >>> keywords({"ksize": [1, 2, 2, 1], "padding": "SAME"})
    "ksize=[1, 2, 2, 1], padding='SAME'"
    """
    return ", ".join(f"{name}={value!r}" for name, value in arguments.items())


def moved(case: Case, order: str) -> tuple[Case, tuple[int, ...]]:
    """The same case with its axes in another order (such as "NCDHW"), and the permutation that takes `dy` there."""
    layout = "".join(letter for letter in order if letter in case.pooling.layout)
    if sorted(layout) != sorted(case.pooling.layout):
        raise NoTranslation(f"an array of layout {case.pooling.layout} cannot be given to it")
    permutation = tuple(case.pooling.layout.index(letter) for letter in layout)

    def turn(shape: Sequence[int]) -> tuple[int, ...]:
        return tuple(shape[p] for p in permutation)

    pooling = replace(case.pooling, layout=layout)
    shapes = {"input_shape": turn(case.input_shape), "dy_shape": turn(case.dy_shape), "fits": case.fits and turn(case.fits)}
    return replace(case, pooling=pooling, **shapes), permutation  # type: ignore[arg-type]
