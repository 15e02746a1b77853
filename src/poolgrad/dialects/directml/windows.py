"""The tables of DirectML's windows: fixed by the sizes of both tensors, so that a caller may ask for any number of cells.

A window with no tap inside the input is an empty cell: its mean is +0 and it gives nothing to the gradient.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...arrays import check_fits
from ...geometry import Axis, Pool

__all__ = ["Row", "make_pool"]


class Row(NamedTuple):
    """One spatial axis as DirectML says it, with the extents of both tensors."""

    size: int
    cells: int
    window: int
    stride: int
    start: int
    end: int
    dilation: int

    @property
    def reach(self) -> int:
        return 1 + (self.window - 1) * self.dilation

    @property
    def documented_cells(self) -> int:
        """The output size that DirectML documents; 0 or less where the window exceeds the padded input."""
        return (self.size + self.start + self.end - self.reach) // self.stride + 1


def make_pool(rows: tuple[Row, ...], include_padding: bool) -> Pool:
    """`IncludePadding` counts the whole window, also where it passes the declared padding; otherwise only taps inside count."""
    check_fits("the tables of a pooling with cells", (sum(row.cells + row.size for row in rows), 8), np.dtype(np.int64))
    return Pool(tuple(_axis(row, include_padding) for row in rows))


def _axis(row: Row, include_padding: bool) -> Axis:
    step = row.dilation if row.window > 1 else 1
    begin = np.arange(row.cells, dtype=np.int64) * row.stride - row.start
    first = np.maximum(0, -(begin // step))
    last = np.minimum(row.window - 1, (row.size - 1 - begin) // step)
    taps = np.maximum(last - first + 1, 0)
    start = begin + first * step
    start -= np.maximum((start - row.size) // step, 0) * step  # an empty cell beyond the end begins at the end of its class
    stop = np.where(taps > 0, start + (taps - 1) * step + 1, start)
    count = np.full(row.cells, row.window, dtype=np.int64) if include_padding else np.maximum(taps, 1)
    return Axis(row.size, start, stop, count, step, allow_empty=True)
