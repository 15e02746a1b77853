"""Intervals too long for an engine's scratch: the same sums, in stretches of bounded size.

The contract's order is recursive: an interval is its tail, its whole blocks, its head; the run of block totals is an
interval again, eight times shorter. So the totals of one high level are made once, by engine calls on a few rows at a
time, and the tails and heads of the levels below it from just the rows they need. No more than a few times
`STRETCH` elements exist at once, however long the axis.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from .engines import engine
from .tables import BLOCK, Ints, Sums, Table, reach_of

__all__ = ["FAR", "is_far", "run"]

Array = npt.NDArray[Any]

FAR = 1 << 14
"""Longest interval that an engine adds on its own."""

STRETCH = 1 << 16
"""Elements taken at a time."""


def is_far(sums: Sums) -> bool:
    return any(table.reach[0] > FAR for table in sums.tables)


def run(sums: Sums, source: Array, out: Array, spatial: tuple[int, ...], *, accumulate: bool, threads: int | None) -> None:
    """What an engine's `run` does, for any length of interval."""
    if not is_far(sums):
        engine().run(sums, source, out, spatial, accumulate=accumulate, threads=threads)
        return
    f = max(k for k, table in enumerate(sums.tables) if table.reach[0] > FAR)
    for part, place in _split(source, out, spatial, spatial[f]):
        _Far(sums, part, place, spatial, f, accumulate, threads).run()


def _split(source: Array, out: Array, spatial: tuple[int, ...], far: int) -> Iterator[tuple[Array, Array]]:
    """Halves of the batch and channels, until a few positions of everything else fit a stretch."""
    plain = [p for p in range(out.ndim) if p not in spatial]
    widest = max(plain, key=lambda p: out.shape[p], default=None)
    across = max(source.size // max(source.shape[far], 1), out.size // max(out.shape[far], 1))
    if widest is None or out.shape[widest] < 2 or across <= BLOCK * BLOCK:
        yield source, out
        return
    middle = out.shape[widest] // 2
    for part in (slice(0, middle), slice(middle, None)):
        index = tuple(part if p == widest else slice(None) for p in range(out.ndim))
        yield from _split(source[index], out[index], spatial, far)


def _uncounted(table: Table) -> Table:
    """The sums of `table` with nothing to divide by."""
    return table._replace(counts=np.ones(table.rows, dtype=np.int64))


def _identity(n: int) -> Table:
    """Every row stays where it is."""
    i = np.arange(n, dtype=np.int64)
    return Table(i, i + 1, 0, n, i, (1,))


class _Far:
    """One call: axis `f` is far; the axes after it are summed as its rows are fetched, those before it at the end."""

    def __init__(
        self, sums: Sums, source: Array, out: Array, spatial: tuple[int, ...], f: int, accumulate: bool, threads: int | None
    ):
        self.sums, self.source, self.out, self.spatial, self.f = sums, source, out, spatial, f
        self.accumulate, self.threads = accumulate, threads
        self.table, self.at = sums.tables[f], spatial[f]
        self.wide = np.dtype(np.float64 if source.dtype == np.float64 else np.float32)
        shape = [table.rows if k < f else table.positions for k, table in enumerate(sums.tables)]
        self.across = max(1, source.size // max(source.shape[self.at], 1), prod(shape[:f] + shape[f + 1 :]))

    def run(self) -> None:
        table, top = self.table, 1
        while top + 1 < len(table.reach) and table.rows * self.across > STRETCH * BLOCK**top:
            top += 1
        base = -(-table.base // BLOCK**top)
        end = (table.base + table.rows) // BLOCK**top
        self.top, self.top_base = top, base
        self.totals = self._totals(top, np.arange(base, max(base, end), dtype=np.int64))
        step = max(1, STRETCH // self.across // 2)
        for a in range(0, table.positions, step):
            self._finish(a, self._sums(0, table.lo[a : a + step], table.hi[a : a + step]))

    def _fetch(self, rows: Ints) -> Array:
        """These rows of the far axis, divided if that comes first, and summed along the axes after it; far axis first."""
        source = np.take(self.source, rows - self.table.base, axis=self.at).astype(self.wide, copy=False)
        if self.sums.divide_first:
            source = self._divided(source, rows - self.table.base)
        if self.f + 1 < len(self.spatial):
            kept = [_identity(source.shape[p]) for p in self.spatial[: self.f + 1]]
            source = self._engine(source, kept, self.sums.tables[self.f + 1 :])
        return np.moveaxis(source, self.at, 0)

    def _engine(self, source: Array, *tables: Sequence[Table]) -> Array:
        """Sums along every spatial axis, nothing divided."""
        plain = [_uncounted(table) for part in tables for table in part]
        shape = list(source.shape)
        for p, table in zip(self.spatial, plain, strict=True):
            shape[p] = table.positions
        out = np.empty(shape, dtype=self.wide)
        run(Sums(tuple(plain), True, 1), source, out, self.spatial, accumulate=False, threads=self.threads)
        return out

    def _totals(self, k: int, which: Ints) -> Array:
        """Totals of level `k`: each the sum of eight of the level below."""
        size = BLOCK**k
        if k == 0 or not len(which):
            return self._fetch(which)
        if k > 1 and size * self.across > STRETCH:
            return _add([self._totals(k - 1, BLOCK * which + j) for j in range(BLOCK)])
        step = max(1, STRETCH // (size * self.across))
        return np.concatenate([self._blocks(size, which[a : a + step]) for a in range(0, len(which), step)])

    def _blocks(self, size: int, which: Ints) -> Array:
        """The sums of these blocks of `size` rows, a power of eight."""
        rows = self._fetch((which[:, None] * size + np.arange(size)).ravel())
        lines = np.moveaxis(rows.reshape(len(which), size, -1), 1, 0)
        zero, whole = np.zeros(1, dtype=np.int64), np.full(1, size, dtype=np.int64)
        total = _along(Table(zero, whole, 0, size, whole, reach_of(zero, whole)), lines, self.threads)
        return total.reshape(len(which), *rows.shape[1:])

    def _sums(self, k: int, lo: Ints, hi: Ints) -> Array:
        """Sums over intervals of the rows of level `k`."""
        if k == self.top:
            return self._top_sums(lo, hi)
        first, last = -(-lo // BLOCK), hi // BLOCK
        met = (first <= last) & (lo < hi)
        tail = self._steps(k, np.where(met, first * BLOCK - 1, hi - 1), np.where(met, first * BLOCK - lo, 0), -1)
        run = self._runs(k + 1, first, np.where(met, last, first))
        head = self._steps(k, np.where(met, last * BLOCK, lo), np.where(met, hi - last * BLOCK, hi - lo), +1)
        return _join(_join(tail, run), head)[1]

    def _runs(self, k: int, lo: Ints, hi: Ints) -> tuple[npt.NDArray[np.bool_], Array]:
        """Sums of whole blocks; neighbours that share theirs are summed once."""
        new = np.ones(len(lo), dtype=bool)
        new[1:] = (np.diff(lo) != 0) | (np.diff(hi) != 0)
        return lo < hi, self._sums(k, lo[new], hi[new])[np.cumsum(new) - 1]

    def _steps(self, k: int, begin: Ints, count: Ints, step: int) -> tuple[npt.NDArray[np.bool_], Array]:
        """`count` rows of level `k`, fewer than eight, from `begin` upwards or downwards."""
        present = count > 0
        wanted = np.unique(np.concatenate([(begin + step * j)[count > j] for j in range(BLOCK)]))
        rows = self._totals(k, wanted)
        if not len(wanted):
            return present, np.zeros((len(begin), *rows.shape[1:]), dtype=self.wide)
        place = np.searchsorted(wanted, np.where(present, begin, wanted[0]))
        t = rows[place]
        with np.errstate(all="ignore"):
            for j in range(1, BLOCK):
                more = count > j
                t[more] += rows[place[more] + step * j]
        t[~present] = 0
        return present, t

    def _top_sums(self, lo: Ints, hi: Ints) -> Array:
        full = lo < hi
        t = np.zeros((len(lo), *self.totals.shape[1:]), dtype=self.wide)
        table = Table(lo[full], hi[full], self.top_base, len(self.totals), lo, self.table.reach[self.top :])
        t[full] = _along(table, self.totals, self.threads)
        return t

    def _finish(self, a: int, t: Array) -> None:
        """The axes before the far one, the division if it comes last, and the rounding, into positions from `a` on."""
        n = len(t)
        t = np.moveaxis(t, 0, self.at)
        place = np.moveaxis(np.moveaxis(self.out, self.at, 0)[a : a + n], 0, self.at)
        if self.f > 0:
            t = self._engine(t, self.sums.tables[: self.f], [_identity(t.shape[p]) for p in self.spatial[self.f :]])
        if not self.sums.divide_first:
            t = self._divided(t, slice(a, a + n))
        with np.errstate(all="ignore"):
            place[...] = (place.astype(self.wide) + t if self.accumulate else t).astype(place.dtype)

    def _divided(self, t: Array, here: Ints | slice) -> Array:
        """`t` divided by the counts; `here` picks those of the far axis."""
        if self.sums.divisor is not None:
            divisor = np.array(self.sums.divisor)
        else:
            counts = [table.counts[here] if k == self.f else table.counts for k, table in enumerate(self.sums.tables)]
            shaped = [c.reshape([-1 if q == p else 1 for q in range(t.ndim)]) for p, c in zip(self.spatial, counts, strict=True)]
            divisor = reduce(np.multiply, shaped)
        with np.errstate(all="ignore"):
            return t / divisor.astype(self.wide)


def _along(table: Table, rows: Array, threads: int | None) -> Array:
    """Sums along the first axis of `rows`."""
    t = np.empty((1, table.positions, prod(rows.shape[1:])), dtype=rows.dtype)
    run(Sums((_uncounted(table),), True, 1), rows.reshape(1, len(rows), -1), t, (1,), accumulate=False, threads=threads)
    return t.reshape(table.positions, *rows.shape[1:])


def _add(terms: list[Array]) -> Array:
    with np.errstate(all="ignore"):
        return reduce(np.add, terms)


def _join(a: tuple[npt.NDArray[np.bool_], Array], b: tuple[npt.NDArray[np.bool_], Array]) -> tuple[npt.NDArray[np.bool_], Array]:
    """The sum of two parts; one that is absent is skipped."""
    shape = (-1, *(1,) * (a[1].ndim - 1))
    both, only_a = (a[0] & b[0]).reshape(shape), (a[0] & ~b[0]).reshape(shape)
    with np.errstate(all="ignore"):
        t = np.where(both, a[1] + b[1], np.where(only_a, a[1], b[1]))
    return a[0] | b[0], t
