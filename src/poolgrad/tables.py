"""Interval tables: what an engine computes from.

A `Table` says, for every result position `i` along one axis, which run of source rows `lo[i] … hi[i]-1` is added.
Rows are numbered on the whole axis; `base` is the number of the first row that the caller's block holds, so a region
of the axis uses the same numbers, hence the same block edges, hence the same order of additions, as the whole.

`reach` fixes that order (docs/numeric-contract.md): `reach[0]` is the longest interval of the whole axis; above
`BLOCK`, intervals are cut at multiples of eight, and `reach[1]` is the longest run of whole blocks; and so on.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK", "Ints", "Sums", "Table", "reach_of"]

BLOCK = 8

Ints = npt.NDArray[np.int64]


class Table(NamedTuple):
    """Sums over intervals along one axis."""

    lo: Ints
    hi: Ints
    base: int
    rows: int
    counts: Ints
    reach: tuple[int, ...]

    @property
    def positions(self) -> int:
        return len(self.lo)


class Sums(NamedTuple):
    """One pass of sums per spatial axis, and the division that belongs to it.

    `divide_first` is the gradient (every source cell is divided, then spread); otherwise the forward pass (sums, then
    one division). The divisor is the product of the axes' `counts`, or the constant `divisor`.
    """

    tables: tuple[Table, ...]
    divide_first: bool
    divisor: int | None


def reach_of(lo: Ints, hi: Ints) -> tuple[int, ...]:
    """The longest interval at each level of blocks, until one is short enough to add in ascending order.

    >>> import numpy as np
    >>> reach_of(np.array([0, 0]), np.array([3, 8]))
    (8,)
    >>> reach_of(np.array([0]), np.array([20]))
    (20, 2)
    """
    longest = int(np.max(hi - lo, initial=0))
    if longest <= BLOCK:
        return (longest,)
    first, last = -(-lo // BLOCK), hi // BLOCK
    met = (first <= last) & (lo < hi)
    return (longest, *reach_of(first[met], last[met]))
