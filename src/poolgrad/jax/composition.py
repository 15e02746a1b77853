"""The same sums in JAX's own operations, for devices without a kernel of ours.

The order is the contract's (blocks of eight, no subtraction), so a call costs about five additions per element whatever
the window. What XLA makes of them is its own affair: the promise here is a few units of the last place, not bits.

Tables are NumPy arrays with a row for each part of a cut axis; `pick` takes the row of the device that asks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from ..geometry import Axis, Pool
from ..tables import BLOCK, Ints
from .parts import Cut, classes

__all__ = ["composed"]

Pick = Callable[[npt.NDArray[Any]], Any]


class _Rows(NamedTuple):
    """An axis: the order in which rows are taken (None: as they lie), intervals in that order, counts; a row per part."""

    order: Ints | None
    lo: Ints
    hi: Ints
    counts: Ints


def composed(x: Any, places: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool, cuts: tuple[Cut, ...]) -> Any:
    """The pooling of `x`, or the gradient of one; `places` says which part of each cut axis this is."""
    wide = jnp.float64 if x.dtype == jnp.float64 else jnp.float32
    axes = [_rows(axis, forwards, cut) for axis, cut in zip(pool.axes, cuts, strict=True)]
    picks: list[Pick] = [partial(_pick, places, k) for k in range(len(axes))]
    t = x.astype(wide)
    if not forwards:
        t = t / _divisor(pool, axes, picks, spatial, t)
    for rows, pick, position in reversed(list(zip(axes, picks, spatial, strict=True))):
        if rows.order is not None:
            t = jnp.take(t, pick(rows.order), axis=position, mode="clip")
        t = _sums(t, position, rows.lo, rows.hi, pick)
    if forwards:
        t = t / _divisor(pool, axes, picks, spatial, t)
    return t.astype(x.dtype)


def _pick(places: Any, axis: int, table: npt.NDArray[Any]) -> Any:
    return table[0] if len(table) == 1 else jnp.asarray(table)[places[axis]]


def _divisor(pool: Pool, axes: list[_Rows], picks: list[Pick], spatial: tuple[int, ...], t: Any) -> Any:
    if pool.divisor is not None:
        return jnp.asarray(pool.divisor, dtype=t.dtype)
    divisor = jnp.ones((), dtype=t.dtype)
    for rows, pick, position in zip(axes, picks, spatial, strict=True):
        counts = rows.counts
        same = counts.size and (counts == counts.flat[0]).all()
        column = counts.flat[0] if same else _along(pick(counts.astype(t.dtype)), position, t.ndim)
        divisor = divisor * jnp.asarray(column, dtype=t.dtype)
    return divisor


def _along(column: Any, position: int, rank: int) -> Any:
    return column.reshape([-1 if d == position else 1 for d in range(rank)])


def _rows(axis: Axis, forwards: bool, cut: Cut) -> _Rows:
    length = (axis.cells if forwards else axis.size) // cut.parts
    lo, hi = np.zeros((2, cut.parts, length), dtype=np.int64)
    counts = np.ones((cut.parts, length if forwards else cut.rows), dtype=np.int64)
    order = None if axis.step == 1 else np.zeros((cut.parts, cut.rows), dtype=np.int64)
    for part, found in enumerate(classes(axis, forwards, cut)):
        taken = 0
        for take, put, table in found:
            to = slice(put.start, put.stop, put.step)
            first = take.start if order is None else taken
            filled = table.lo < table.hi
            lo[part, to] = np.where(filled, table.lo - table.base + first, 0)
            hi[part, to] = np.where(filled, table.hi - table.base + first, 0)
            if order is not None:
                order[part, taken : taken + len(take)] = np.arange(take.start, take.stop, take.step)
                taken += len(take)
            counts[part, to if forwards else slice(take.start, take.stop, take.step)] = table.counts
    return _Rows(order, lo, hi, counts)


def _sums(t: Any, position: int, lo: Ints, hi: Ints, pick: Pick) -> Any:
    """`Σ t[lo[i]:hi[i]]` along one axis."""
    longest = int(np.max(hi - lo, initial=0))
    terms = _ascending(t, position, lo, hi, longest, pick) if longest <= BLOCK else _blocks(t, position, lo, hi, pick)
    found = None
    for term in terms:
        found = term if found is None else found + term
    if found is None:
        return jnp.zeros([lo.shape[1] if d == position else n for d, n in enumerate(t.shape)], dtype=t.dtype)
    return found


def _ascending(t: Any, position: int, lo: Ints, hi: Ints, longest: int, pick: Pick) -> Iterator[Any]:
    for k in range(longest):
        yield _taken(t, position, lo + k, lo + k < hi, pick)


def _taken(t: Any, position: int, index: Ints, needed: npt.NDArray[np.bool_], pick: Pick) -> Any:
    """Rows of `t`, and nothing where none is needed."""
    rows = jnp.take(t, pick(np.where(needed, index, 0)), axis=position, mode="clip")
    return rows if needed.all() else jnp.where(_along(pick(needed), position, t.ndim), rows, 0)


def _blocks(t: Any, position: int, lo: Ints, hi: Ints, pick: Pick) -> Iterator[Any]:
    """Tail, whole blocks and head of every interval; an interval that meets no edge of a block is added as it is."""
    heads, tails, totals = _running(t, position)
    first, last = -(-lo // BLOCK), hi // BLOCK
    edged = (first <= last) & (lo < hi)
    if (tail := edged & (lo < first * BLOCK)).any():
        yield _taken(tails, position, lo, tail, pick)
    if (run := edged & (first < last)).any():
        yield _sums(totals, position, np.where(run, first, 0), np.where(run, last, 0), pick)
    if (head := edged & (last * BLOCK < hi)).any():
        yield _taken(heads, position, hi - 1, head, pick)
    if (inner := ~edged & (lo < hi)).any():
        yield _sums(t, position, np.where(inner, lo, 0), np.where(inner, hi, 0), pick)


def _running(t: Any, position: int) -> tuple[Any, Any, Any]:
    """Sums up and down each block of eight rows, and the blocks' totals."""
    blocks = -(-t.shape[position] // BLOCK)
    pad = [(0, blocks * BLOCK - t.shape[position] if d == position else 0, 0) for d in range(t.ndim)]
    padded = jax.lax.pad(t, jnp.zeros((), dtype=t.dtype), pad)
    shape = (*t.shape[:position], blocks, BLOCK, *t.shape[position + 1 :])
    rows = [jax.lax.index_in_dim(padded.reshape(shape), k, position + 1, keepdims=False) for k in range(BLOCK)]
    up, down = [rows[0]], [rows[-1]]
    for k in range(1, BLOCK):
        up.append(up[-1] + rows[k])
        down.append(down[-1] + rows[BLOCK - 1 - k])
    flat = padded.shape
    heads = jnp.stack(up, axis=position + 1).reshape(flat)
    tails = jnp.stack(down[::-1], axis=position + 1).reshape(flat)
    return heads, tails, up[-1]
