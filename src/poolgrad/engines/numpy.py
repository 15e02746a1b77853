"""The definition. Every other engine must give these bits; this one is written to be read.

    gradient: s = dy / D, then per spatial axis, last to first, t[i] = Σ s[lo[i]:hi[i]], then one rounding
    forward:  per spatial axis, last to first, t[o] = Σ x[lo[o]:hi[o]], then t / D, then one rounding

The order of each sum is part of the contract (docs/numeric-contract.md) and stands in `interval_sum`.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import numpy.typing as npt

from ..tables import BLOCK, Sums, Table

__all__ = ["run"]

Array = npt.NDArray[Any]


def run(sums: Sums, source: Array, out: Array, spatial: tuple[int, ...], *, accumulate: bool, threads: int | None) -> None:
    """Sum `source` over the tables into `out`; `spatial` are the positions of the axes, in the order of the tables."""
    wide = np.dtype(np.float64 if source.dtype == np.float64 else np.float32)
    ends = range(-len(spatial), 0)
    t = np.moveaxis(source, spatial, ends).astype(wide)
    divisor = _divisor(sums, wide)
    with np.errstate(all="ignore"):
        if sums.divide_first:
            t = t / divisor
        for axis, table in zip(reversed(ends), reversed(sums.tables), strict=True):
            t = np.moveaxis(_axis_sums(np.moveaxis(t, axis, 0), table), 0, axis)
        if not sums.divide_first:
            t = t / divisor
        target = np.moveaxis(out, spatial, ends)
        target[...] = (target.astype(wide) + t if accumulate else t).astype(out.dtype)


def _divisor(sums: Sums, wide: np.dtype[Any]) -> Array:
    """The integer product of the counts, rounded once to the accumulator."""
    if sums.divisor is not None:
        return np.array(sums.divisor).astype(wide)
    return reduce(np.multiply.outer, [table.counts for table in sums.tables]).astype(wide)


def _axis_sums(rows: Array, table: Table) -> Array:
    """`t[i] = Σ rows[lo[i]:hi[i]]` along the first axis."""
    t = np.empty((table.positions, *rows.shape[1:]), dtype=rows.dtype)
    levels = _levels(rows, table)
    for i, (lo, hi) in enumerate(zip(table.lo, table.hi, strict=True)):
        t[i] = interval_sum(levels, table.reach, int(lo), int(hi)) if lo < hi else 0
    return t


def _levels(rows: Array, table: Table) -> list[dict[int, Array]]:
    """Rows by their number on the whole axis; then the totals of whole blocks of eight rows; then of eight of those."""
    levels = [{table.base + k: row for k, row in enumerate(rows)}]
    for _ in table.reach[1:]:
        below = levels[-1]
        starts = [c for c in below if c % BLOCK == 0 and all(c + k in below for k in range(BLOCK))]
        levels.append({c // BLOCK: reduce(add, [below[c + k] for k in range(BLOCK)]) for c in starts})
    return levels


def interval_sum(levels: list[dict[int, Array]], reach: tuple[int, ...], lo: int, hi: int) -> Array:
    """The sum of rows lo … hi-1 in the contract's order.

    An axis whose longest interval is at most eight is added in ascending order. Otherwise the interval is its tail
    (cells before its first block edge, from the edge downwards), its whole blocks (by this same rule) and its head
    (cells after its last edge, upwards): (tail + blocks) + head, absent parts skipped.
    """
    rows = levels[0]
    first, last = -(-lo // BLOCK), hi // BLOCK
    if reach[0] <= BLOCK or first > last:
        return reduce(add, [rows[c] for c in range(lo, hi)])
    parts = []
    if lo < first * BLOCK:
        parts.append(reduce(add, [rows[c] for c in reversed(range(lo, first * BLOCK))]))
    if first < last:
        parts.append(interval_sum(levels[1:], reach[1:], first, last))
    if last * BLOCK < hi:
        parts.append(reduce(add, [rows[c] for c in range(last * BLOCK, hi)]))
    return reduce(add, parts)
