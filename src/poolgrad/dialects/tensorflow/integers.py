"""Fractional pooling of integers, in TensorFlow's own order.

    forward   the sum wraps around in the type, then one division, truncated toward zero
    gradient  out_backprop / count in float64, added cell by cell (rows, then columns), truncated toward zero once

Where TensorFlow's cast of the float64 sum is undefined, ours gives the nearest integer of the type.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...arrays import check_fits
from ...geometry import Pool
from ...tables import Table
from .arguments import Array

__all__ = ["forward", "gradient"]

Floats = npt.NDArray[np.float64]


def forward(pool: Pool, x: Array) -> Array:
    """The averages of an NHWC array of int32 or int64; an empty cell is 0."""
    tables = pool.forward_pieces()[0].sums.tables
    sums = x.view(f"u{x.itemsize}")
    for position, table in zip((1, 2), tables, strict=True):
        sums = _interval_sums(sums, table, position)
    total, divisor = sums.view(x.dtype), _divisor(tables)
    quotient = total // divisor
    return np.asarray(quotient + ((total < 0) & (quotient * divisor != total))).astype(x.dtype)


def gradient(pool: Pool, dy: Array) -> Array:
    """The gradient of an NHWC array of int32 or int64."""
    rows, cols = tables = pool.gradient_pieces()[0].sums.tables
    shape = (dy.shape[0], *pool.input_size, dy.shape[3])
    check_fits("the float64 sums of a gradient of shape", shape, np.dtype(np.float64))
    shares = np.pad(dy / _divisor(tables).astype(np.float64), [(0, 0), (0, 1), (0, 1), (0, 0)])
    total = np.zeros(shape, dtype=np.float64)
    for a in range(rows.reach[0]):
        across = shares.take(_covering(rows, a), axis=1)
        for b in range(cols.reach[0]):
            total += across.take(_covering(cols, b), axis=2)
    return _truncated(total, dy.dtype)


def _interval_sums(values: Array, table: Table, position: int) -> Array:
    """Differences of running sums: exact, for unsigned integers wrap around."""
    running = np.zeros([n + (d == position) for d, n in enumerate(values.shape)], dtype=values.dtype)
    inner = tuple(slice(d == position, None) for d in range(values.ndim))
    np.cumsum(values, axis=position, dtype=values.dtype, out=running[inner])
    return np.asarray(running.take(table.hi, axis=position) - running.take(table.lo, axis=position))


def _divisor(tables: tuple[Table, ...]) -> npt.NDArray[np.int64]:
    rows, cols = (table.counts for table in tables)
    return np.multiply.outer(rows, cols)[np.newaxis, :, :, np.newaxis]


def _covering(table: Table, k: int) -> npt.NDArray[np.int64]:
    """The `k`-th cell over every input, or the row of zeros after the last cell."""
    cell = table.lo + k
    return np.where(cell < table.hi, cell, table.rows)


def _truncated(total: Floats, dtype: np.dtype[np.signedinteger]) -> Array:
    limits = np.iinfo(dtype)
    edge = float(limits.max) + (dtype.itemsize == 4)  # 2^31 or 2^63: both are float64 numbers, as is their negative
    inside = np.clip(total, -edge, np.nextafter(edge, 0))
    return np.where(total >= edge, limits.max, inside.astype(dtype))
