"""The sums of a pooling composed from TensorFlow's basic ops: slices, pads, gathers, additions. Never its pooling ops.

A result position is the sum of a run of rows: `first`, `first + step`, … (`length` of them). Runs are added by doubling:
level `b` holds sums of 2^b rows, each made of two of the level below, and a run is one entry for every bit of its length.
So a sum costs as many passes as its window has bits, no term passes through more than twice that many additions, and
without subtraction a NaN or an infinity reaches exactly the windows that hold it.

Known runs (`Runs`) are planned in NumPy: each level holds only the rows that are asked of it, and rows in an even spacing
are slices. Runs that a graph computes (`Cells`) are gathered.
"""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from ..geometry import Axis, Pool
from .host import Tensor
from .sequences import Cells

__all__ = ["integers_at", "pooled", "pooled_at"]

Ints = npt.NDArray[np.int64]


def pooled(pool: Pool, spatial: tuple[int, ...], forwards: bool, source: Tensor) -> Tensor:
    """The pooling of a tensor of floats, or its gradient; `spatial` are the positions of the axes in logical order."""
    wide = tf.float64 if source.dtype == tf.float64 else tf.float32
    t = tf.cast(source, wide)
    divisor = _divisor(pool, spatial, source.shape.rank, wide)
    if not forwards:
        t = t / divisor
    for axis, position in reversed(list(zip(pool.axes, spatial, strict=True))):
        t = _sums(t, position, _runs(axis, forwards))
    if forwards:
        t = t / divisor
    return tf.cast(t, source.dtype)


def _divisor(pool: Pool, spatial: tuple[int, ...], rank: int, wide: Any) -> Tensor:
    """The product of the counts; one number for every axis on which all cells count alike, else a row of them."""
    if pool.divisor is not None:
        return tf.constant(pool.divisor, wide)
    divisor = tf.constant(1, wide)
    for axis, position in zip(pool.axes, spatial, strict=True):
        if (axis.count[:1] == axis.count).all():
            row = axis.count[:1].reshape(()) if axis.cells else 1
        else:
            row = axis.count.reshape([-1 if p == position else 1 for p in range(rank)])
        divisor = divisor * tf.constant(row, wide)
    return divisor


class Runs(NamedTuple):
    """Which of `rows` rows each result position adds: `first[i]`, `first[i] + step`, … (`length[i]` of them)."""

    first: Ints
    length: Ints
    step: int
    rows: int


def _runs(axis: Axis, forwards: bool) -> Runs:
    """The swapped tables of an axis; with dilation its residue classes, put together again."""
    rows, positions = (axis.size, axis.cells) if forwards else (axis.cells, axis.size)
    first, length, step = np.zeros(positions, np.int64), np.zeros(positions, np.int64), 1
    alone = Pool((axis,))
    for piece in alone.forward_pieces() if forwards else alone.gradient_pieces():
        table, take = piece.sums.tables[0], piece.take[0]
        first[piece.put[0]] = (take.start or 0) + table.lo * (take.step or 1)
        length[piece.put[0]] = table.hi - table.lo
        if table.reach[0] > 1:
            step = take.step or 1
    return Runs(first, length, step, rows)


def _sums(t: Tensor, position: int, runs: Runs) -> Tensor:
    """The sums of known runs along one axis."""
    runs, before, after = _evened(runs)
    t = _padded(t, position, before, after)
    terms = _terms(runs)
    wanted = _wanted(terms, runs.step)
    levels = [_taken(t, wanted[0], position)] if wanted else []
    for b, above in enumerate(wanted[1:]):
        left, right = (_taken(levels[b], np.searchsorted(wanted[b], above + k), position) for k in (0, runs.step << b))
        levels.append(left + right)
    if not terms:
        return _padded(_taken(t, np.arange(0), position), position, 0, len(runs.first))
    return reduce(add, [_term(levels, wanted, term, position) for term in terms])


def _evened(runs: Runs) -> tuple[Runs, int, int]:
    """Runs of one length where rows of zeros before and after the axis allow it: evenly spaced windows stay slices."""
    first, length, step, rows = runs
    longest = int(length.max(initial=0))
    at_end = first + length == rows
    if step > 1 or not (at_end | (first == 0) | (length == longest)).all():
        return runs, 0, 0
    first = np.where(at_end | (length == longest), first, length - longest)
    before = max(0, -int(first.min(initial=0)))
    after = max(0, int(first.max(initial=0)) + longest - rows)
    even = Runs(first + before, np.full_like(length, longest), 1, before + rows + after)
    return even, before, after


class _Term(NamedTuple):
    """One entry for every result position: its level (−1 for nothing) and its first row."""

    level: Ints
    first: Ints


def _terms(runs: Runs) -> list[_Term]:
    """The bits of the lengths, the highest first; as many terms as the length with most bits has."""
    first, left = runs.first, runs.length
    terms = []
    while left.any():
        level = np.frexp(left)[1].astype(np.int64) - 1
        terms.append(_Term(level, first))
        size = np.where(level < 0, 0, 1 << np.maximum(level, 0))
        first, left = first + size * runs.step, left - size
    return terms


def _wanted(terms: list[_Term], step: int) -> list[Ints]:
    """For every level, in ascending order, the rows whose sums are asked for by a term or by the level above."""
    wanted: list[Ints] = []
    above = np.zeros(0, np.int64)
    for b in reversed(range(1 + max((int(term.level.max()) for term in terms), default=-1))):
        own = [term.first[term.level == b] for term in terms]
        above = np.unique(np.concatenate([*own, above, above + (step << b)]))
        wanted.insert(0, above)
    return wanted


def _term(levels: list[Tensor], wanted: list[Ints], term: _Term, position: int) -> Tensor:
    used = np.unique(term.level)
    if len(used) == 1:
        return _taken(levels[used[0]], np.searchsorted(wanted[used[0]], term.first), position)
    index = np.zeros(len(term.first), np.int64)
    parts, base = [], 0
    for b in used[used >= 0]:
        here = term.level == b
        index[here] = base + np.searchsorted(wanted[b], term.first[here])
        parts.append(levels[b])
        base += len(wanted[b])
    index[term.level < 0] = base
    joined = tf.concat(parts, position) if len(parts) > 1 else parts[0]
    return _taken(_padded(joined, position, 0, int((term.level < 0).any())), index, position)


def _taken(t: Tensor, index: Ints, position: int) -> Tensor:
    """The rows `index` of one axis: the tensor itself, a slice of it, or a gather."""
    rows, steps = t.shape[position], np.unique(np.diff(index))
    if len(index) == rows and (index == np.arange(rows)).all():
        return t
    if len(steps) <= 1 and steps.min(initial=1) > 0:
        begin, end = (index[0], index[-1] + 1) if len(index) else (0, 0)
        return t[(slice(None),) * position + (slice(begin, end, steps.max(initial=1)),)]
    times = len(index) // max(rows, 1)
    if position == t.shape.rank - 1 and np.array_equal(index, np.repeat(np.arange(rows), times)):
        return tf.repeat(t, times, axis=position)  # a third of what gathering single numbers takes
    return tf.gather(t, tf.constant(index, tf.int32), axis=position)


def _padded(t: Tensor, position: int, before: int, after: int) -> Tensor:
    if not before and not after:
        return t
    return tf.pad(t, [[before, after] if p == position else [0, 0] for p in range(t.shape.rank)])


def pooled_at(cells: list[Cells], spatial: tuple[int, ...], forwards: bool, source: Tensor) -> Tensor:
    """The same as `pooled`, for cells that the graph computes."""
    wide = tf.float64 if source.dtype == tf.float64 else tf.float32
    t = tf.cast(source, wide)
    divisor = tf.cast(_counts(cells, spatial, source.shape.rank), wide)
    if not forwards:
        t = t / divisor
    for axis, position in reversed(list(zip(cells, spatial, strict=True))):
        t = _sums_at(t, position, *axis.runs(forwards))
    if forwards:
        t = t / divisor
    return tf.cast(t, source.dtype)


def integers_at(cells: list[Cells], forwards: bool, source: Tensor) -> Tensor:
    """Pooling of an NHWC tensor of integers, or its gradient, in the order of `poolgrad.dialects.tensorflow.integers`."""
    divisor = _counts(cells, (1, 2), 4)
    if forwards:
        t = source
        for position, axis in zip((1, 2), cells, strict=True):
            t = _sums_at(t, position, *axis.runs(True))
        return tf.truncatediv(t, tf.cast(divisor, source.dtype))
    wide = tf.cast(source, tf.float64)
    # Compilers divide by constants through their reciprocals, and 49 / 49 would truncate to 0: keep this one unknown.
    divisor = tf.where(tf.reduce_max(wide) > 1e300, 2 * divisor, divisor)
    shares = tf.pad(wide / tf.cast(divisor, tf.float64), [[0, 0], [0, 1], [0, 1], [0, 0]])
    (first, over, _), (second, across, _) = (axis.runs(False) for axis in cells)
    reach = tf.reduce_max(over), tf.reduce_max(across)

    def add_pair(k: Tensor, total: Tensor) -> tuple[Tensor, Tensor]:
        """One more pair of a covering row and a covering column; past the last one there are zeros."""
        a, b = k // reach[1], k % reach[1]
        rows = tf.gather(shares, tf.where(a < over, first + a, source.shape[1]), axis=1)
        return k + 1, total + tf.gather(rows, tf.where(b < across, second + b, source.shape[2]), axis=2)

    extents = tf.shape(source)
    shape = tf.stack([extents[0], cells[0].size, cells[1].size, extents[3]])
    start = tf.zeros(shape, tf.float64)
    start.set_shape((source.shape[0], cells[0].size, cells[1].size, source.shape[3]))
    _, total = tf.while_loop(lambda k, _: k < reach[0] * reach[1], add_pair, (0, start))
    return _truncated(total, source.dtype)


def _truncated(total: Tensor, dtype: Any) -> Tensor:
    edge = float(dtype.max) + (dtype.size == 4)  # 2^31 or 2^63, both float64 numbers
    inside = tf.clip_by_value(total, -edge, np.nextafter(edge, 0))
    return tf.where(total >= edge, tf.constant(dtype.max, dtype), tf.cast(inside, dtype))


def _counts(cells: list[Cells], spatial: tuple[int, ...], rank: int) -> Tensor:
    """What each cell divides by, in 64-bit integers."""
    divisor = tf.constant(1, tf.int64)
    for axis, position in zip(cells, spatial, strict=True):
        divisor = divisor * tf.reshape(tf.cast(axis.count, tf.int64), [-1 if p == position else 1 for p in range(rank)])
    return divisor


def _sums_at(t: Tensor, position: int, first: Tensor, length: Tensor, reach: int) -> Tensor:
    """The sums of runs that the graph computes, none longer than `reach`, along one axis.

    Every level ends in rows of zeros, which stand for the bits that a length does not have.
    """
    rows, bits = t.shape[position], reach.bit_length()
    levels = [_padded(t, position, 0, 1 << (bits - 1))]
    for b in range(bits - 1):
        n = levels[b].shape[position]
        levels.append(_taken(levels[b], np.arange(n - (1 << b)), position) + _taken(levels[b], np.arange(1 << b, n), position))
    parts = []
    for b in reversed(range(bits)):
        has = length // (1 << b) % 2
        parts.append(tf.gather(levels[b], tf.where(has > 0, first, rows), axis=position))
        first = first + has * (1 << b)
    return reduce(add, parts)
