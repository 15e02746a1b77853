"""Which arguments make given tables. Every dialect's `write` asks here.

A dialect lists the `Form`s in which its callers may describe evenly spaced windows; `fit` finds one form that makes the
tables of all axes. A table often has several descriptions (SAME without padding is VALID; a ceil overhang is padding at the
end; adaptive windows may be regular), so it is the table that is looked at, not the words it came in.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import isqrt
from typing import NamedTuple

from ..geometry import Axis, Pool
from ..layout import spatial_positions
from .pooling import NoTranslation, Pooling, Regular
from .reason import reason
from .tables import Tables, identity, plain
from .windows import Form, Window, solve

__all__ = ["Fit", "Form", "Placed", "Window", "fit", "is_adaptive", "place"]


class Fit(NamedTuple):
    """The form that was found, the windows per axis in the array's order, and the divisor if the form has one."""

    form: Form
    windows: tuple[Window, ...]
    divisor: int | None

    @property
    def window(self) -> tuple[int, ...]:
        return tuple(w.window for w in self.windows)

    @property
    def stride(self) -> tuple[int, ...]:
        return tuple(w.stride for w in self.windows)

    @property
    def padding(self) -> tuple[tuple[int, int], ...]:
        return tuple(w.padding for w in self.windows)

    @property
    def dilation(self) -> tuple[int, ...]:
        return tuple(w.dilation for w in self.windows)


class Placed(NamedTuple):
    """A pooling's tables on the axes that a dialect pools, with what the caller called them and said about them."""

    axes: tuple[Axis, ...]
    scale: int
    pool: Pool
    names: tuple[str, ...]
    said: tuple[Window | None, ...]


def place(pooling: Pooling, input_shape: Sequence[int], positions: Sequence[int], who: str) -> Placed:
    """The tables on the given axes of the array; refused if another axis is pooled."""
    tables = Tables.of(pooling, input_shape)
    for position, axis in enumerate(tables.axes):
        if position not in positions and axis is not None:
            where = " and ".join(map(str, positions))
            raise NoTranslation(
                f"axis {position} ({pooling.layout[position]} of {pooling.layout!r}) is pooled, but {who} pools axes {where} of "
                f"an array of shape {tuple(input_shape)}; transpose the array first"
            )
    pool, spatial = pooling.pool(input_shape), spatial_positions(pooling.layout, len(input_shape))
    said = {position: _own(pooling, k) for k, position in enumerate(spatial)}
    full = {position: plain(axis) for position, axis in zip(spatial, pool.axes, strict=True)}
    return Placed(
        tuple(tables.axes[p] or identity(input_shape[p]) for p in positions),
        tables.scale,
        Pool(tuple(full.get(p) or identity(input_shape[p]) for p in positions), pool.divisor),
        tuple(pooling.layout[p] for p in positions),
        tuple(said.get(p, Window(1, 1, (0, 0))) for p in positions),
    )


def _own(pooling: Pooling, k: int) -> Window | None:
    if not isinstance(pooling, Regular):
        return None
    dilation = pooling.dilation[k] if pooling.dilation else 1
    return Window(pooling.window[k], pooling.stride[k], pooling.padding[k], dilation)


def is_adaptive(placed: Placed) -> bool:
    """Whether PyTorch's adaptive windows make these tables."""
    if any(axis.cells and not axis.size for axis in placed.axes):
        return False
    adaptive = Tables.from_axes([Axis.adaptive(axis.size, axis.cells) for axis in placed.axes])
    return adaptive == Tables.from_axes(placed.pool.axes, placed.pool.divisor)


def fit(placed: Placed, forms: Sequence[Form], who: str) -> Fit:
    """The first form that makes these tables, with its numbers; if none does, `NoTranslation` says where they part."""
    if placed.pool.divisor is not None:
        forms = sorted(forms, key=lambda form: form.count is not None)  # a divisor is best said as one
    for form in forms:
        if form.count is None:
            found = [solve(axis, None, form, said) for axis, said in zip(placed.axes, placed.said, strict=True)]
            windows = [w for w in found if w is not None]
            if len(windows) == len(found) and all((axis.count == 1).all() for axis in placed.axes):
                return Fit(form, tuple(windows), placed.scale)
        elif (chosen := _shared(placed, form)) is not None:
            return Fit(form, chosen, None)
    raise NoTranslation(reason(placed.pool, placed.names, placed.said, forms, who))


def _shared(placed: Placed, form: Form) -> tuple[Window, ...] | None:
    """Windows whose counts multiply to the divisor: its common factor may belong to any of the axes."""
    partial: list[tuple[int, tuple[Window, ...]]] = [(placed.scale, ())]
    for axis, said in zip(placed.axes, placed.said, strict=True):
        factors = _divisors(placed.scale, said)
        solved = [(f, w) for f in factors if (w := solve(axis, axis.count * f, form, said)) is not None]
        partial = [(left // f, (*chosen, w)) for left, chosen in partial for f, w in solved if left % f == 0]
    return next((chosen for left, chosen in partial if left == 1), None)


def _divisors(scale: int, said: Window | None) -> list[int]:
    """The divisors of `scale`, what the caller said first; of a huge number only those up to 65536 and their partners."""
    if scale < 1:
        return []
    small = [f for f in range(1, min(isqrt(scale) + 1, 1 << 16)) if scale % f == 0]
    return sorted({*small, *(scale // f for f in small)}, key=lambda f: (said is None or f != said.window, f))
