"""When two poolings say the same: laid over the axes of the array, their tables are equal.

Layout letters do not matter, only which axis of the array is pooled how; an axis that is not pooled is one whose every
cell is its own input. Nor does it matter how a divisor came about, only what each window divides by: 4, or 2 × 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

import numpy as np

from ..errors import PoolGradValueError
from ..geometry import Axis
from ..layout import spatial_positions
from .pooling import Pooling

__all__ = ["LIMIT", "Tables", "cell_text", "difference", "identity", "letters", "plain"]

LIMIT = 1 << 20
"""The longest axis whose tables are compared; a search holds many of them at once."""


class Tables(NamedTuple):
    """One table per axis of the array (None: not pooled), and the divisor: `scale` times the counts, which are coprime.

    Two poolings mean the same exactly when these are equal.
    """

    axes: tuple[Axis | None, ...]
    scale: int

    @classmethod
    def of(cls, pooling: Pooling, input_shape: Sequence[int]) -> Tables:
        pool = pooling.pool(input_shape)
        axes: list[Axis | None] = [None] * len(input_shape)
        for position, axis in zip(spatial_positions(pooling.layout, len(axes)), pool.axes, strict=True):
            axes[position] = axis
        return cls.from_axes(axes, pool.divisor)

    @classmethod
    def from_axes(cls, axes: Sequence[Axis | None], divisor: int | None = None) -> Tables:
        reduced = [(1, None) if axis is None else _reduced(axis, ignore_count=divisor is not None) for axis in axes]
        scale = prod(factor for factor, _ in reduced) if divisor is None else divisor
        return cls(tuple(axis for _, axis in reduced), scale)


def identity(size: int) -> Axis:
    """The table of an axis that is not pooled: every cell is its own input.

    >>> identity(3)
    Axis(size=3, cells=3): [0:1)/1 [1:2)/1 [2:3)/1
    """
    if size > LIMIT:
        raise PoolGradValueError(f"an axis of {size} is too long to be compared with others; at most {LIMIT} will do")
    return Axis.regular(size, 1) if size else Axis.adaptive(0, 0)


def letters(axes: int) -> str:
    """The names of so many spatial axes.

    >>> letters(2), letters(4)
    ('HW', '0123')
    """
    return {1: "L", 2: "HW", 3: "DHW"}.get(axes, "0123456789"[:axes])


def plain(axis: Axis) -> Axis:
    """The same axis without a step that no cell takes."""
    if axis.step > 1 and (axis.stop - axis.start <= 1).all():
        return Axis(axis.size, axis.start, axis.stop, axis.count, 1, axis.allow_empty)
    return axis


def _reduced(axis: Axis, *, ignore_count: bool) -> tuple[int, Axis | None]:
    """The common factor of the counts, and the axis without it. An empty cell divides nothing, so its count is 1."""
    axis, full = plain(axis), axis.start < axis.stop
    factor = 1 if ignore_count else int(np.gcd.reduce(axis.count[full], initial=0)) or 1
    count = np.where(full & (not ignore_count), axis.count // factor, 1)
    reduced = Axis(axis.size, axis.start, axis.stop, count, axis.step, axis.allow_empty)
    return factor, None if axis.cells == axis.size and reduced == identity(axis.size) else reduced


def cell_text(axis: Axis, cell: int) -> str:
    """What a cell covers, for a sentence."""
    if cell >= axis.cells:
        return "does not exist"
    first, last = int(axis.start[cell]), int(axis.stop[cell]) - 1
    if last < first:
        return "covers nothing"
    step = f" in steps of {axis.step}" if axis.step > 1 and last > first else ""
    return f"covers {first}..{last}{step}" if last > first else f"covers {first}"


def difference(ours: Axis, theirs: Axis) -> int:
    """The first cell in which two tables differ; the number of cells if they do not."""
    cells = min(ours.cells, theirs.cells)
    columns = [(ours.start, theirs.start), (ours.stop, theirs.stop), (ours.count, theirs.count)]
    unlike = np.zeros(cells, dtype=bool)
    for mine, other in columns:
        unlike |= mine[:cells] != other[:cells]
    if ours.step != theirs.step:
        unlike |= ours.stop[:cells] - ours.start[:cells] > 1
    return int(np.argmax(unlike)) if unlike.any() else cells
