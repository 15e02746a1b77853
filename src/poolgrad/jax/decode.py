"""The numbers of a compiled program read back: what `parts.encode` wrote for one part of every axis, as engine calls.

A program may come from anywhere. Nothing is believed before it is checked against the shapes of the buffers, so that no table
leads outside of them; `native/xla.cpp` reads the same numbers with the same care.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import NamedTuple

import numpy as np

from ..errors import PoolGradValueError
from ..tables import BLOCK, Ints, Sums, Table
from .parts import VERSION

__all__ = ["Work", "decode"]

MOST = 1 << 40
MOST_ROW = 2**31 - 1
"""Of an axis: the kernels number rows in 32 bits."""

LEVELS = 11

Shape = tuple[int, ...]


class Work(NamedTuple):
    """An engine call: the sums, and which parts of source and result along each spatial axis it is about."""

    sums: Sums
    take: tuple[slice, ...]
    put: tuple[slice, ...]


class _Reader:
    """Numbers from front to back."""

    def __init__(self, numbers: Sequence[int]) -> None:
        self._numbers, self._next = numbers, 0

    def number(self, least: int, most: int) -> int:
        if self.at_end():
            raise PoolGradValueError("the tables end too soon")
        n = self._numbers[self._next]
        self._next += 1
        if not least <= n <= most:
            raise PoolGradValueError(f"a number of the tables must be between {least} and {most}, got {n}")
        return n

    def column(self, length: int) -> Ints:
        runs, left = [], length
        for _ in range(self.number(0, length)):
            first, step = self.number(0, 2**63 - 1), self.number(-(2**63), 2**63 - 1)
            count = self.number(1, left)
            each = self.number(1, left // count)
            left -= count * each
            with np.errstate(over="ignore"):  # whatever it wraps to is looked at before use
                runs.append(np.repeat(np.int64(first) + np.arange(count, dtype=np.int64) * np.int64(step), each))
        if left:
            raise PoolGradValueError(f"a column of the tables must have {length} numbers, got {length - left}")
        return np.concatenate(runs) if runs else np.zeros(0, dtype=np.int64)

    def at_end(self) -> bool:
        return self._next == len(self._numbers)


class _Class(NamedTuple):
    take: slice
    put: slice
    table: Table


def decode(tables: bytes, source: Shape, result: Shape) -> tuple[tuple[int, ...], tuple[Work, ...]]:
    """The spatial axes, and the engine calls that make a result of this shape of a source of that, neither of them empty."""
    if len(source) != len(result):
        raise PoolGradValueError(f"source {source} and result {result} must have as many dimensions")
    read = _Reader(np.frombuffer(tables, dtype=np.int64).tolist())
    read.number(VERSION, VERSION)
    divide_first = read.number(0, 1) == 1
    constant = read.number(0, 1) == 1
    divisor = read.number(-(2**63) + 1, 2**63 - 1)
    if constant and divisor == 0:
        raise PoolGradValueError("the divisor of the tables must not be 0")
    spatial: list[int] = []
    axes: list[list[_Class]] = []
    for _ in range(read.number(1, len(source))):
        spatial.append(read.number(0, len(source) - 1))
        axes.append(_axis(read, source[spatial[-1]], result[spatial[-1]], divide_first))
    if not read.at_end():
        raise PoolGradValueError("the tables do not end where they should")
    if len(set(spatial)) < len(spatial):
        raise PoolGradValueError(f"the tables must name each spatial axis once, got {spatial}")
    if any(source[d] != result[d] for d in range(len(source)) if d not in spatial):
        raise PoolGradValueError(f"source {source} and result {result} must agree but for the axes {spatial}")
    works = []
    for chosen in product(*axes):
        sums = Sums(tuple(c.table for c in chosen), divide_first, divisor if constant else None)
        works.append(Work(sums, tuple(c.take for c in chosen), tuple(c.put for c in chosen)))
    return tuple(spatial), tuple(works)


def _axis(read: _Reader, rows: int, positions: int, divide_first: bool) -> list[_Class]:
    """The classes of an axis. They share no row and no position, which bounds how many there are, and leave no position out."""
    read.number(1, 1)  # parts: a program for this device names its own alone
    taken, made = np.zeros(rows, dtype=bool), np.zeros(positions, dtype=bool)
    found = []
    for _ in range(read.number(0, MOST)):
        one = _class(read, rows, positions, divide_first)
        for named, every in ((taken, one.take), (made, one.put)):
            if named[every].any():
                raise PoolGradValueError("two classes of the tables share a position")
            named[every] = True
        if one.table.positions:
            found.append(one)
    if not made.all():
        raise PoolGradValueError("the tables leave a position out")
    return found


def _class(read: _Reader, rows: int, positions: int, divide_first: bool) -> _Class:
    (take, taken), (put, made) = _every(read, rows), _every(read, positions)
    base = read.number(0, MOST_ROW - rows)
    reach = tuple(read.number(0, MOST_ROW) for _ in range(read.number(1, LEVELS)))
    lo, hi = read.column(made), read.column(made)
    counts = read.column(taken if divide_first else made)
    full = lo < hi
    sound = (
        ((lo >= 0) & (lo <= hi) & (hi <= MOST_ROW)).all()
        and (lo[full] >= base).all()
        and (hi[full] <= base + taken).all()
        and (hi - lo <= reach[0]).all()
        and (np.diff(lo) >= 0).all()
        and (np.diff(hi) >= 0).all()
    )
    if not sound or not _deep_enough(reach):
        raise PoolGradValueError("a table does not fit its arrays")
    # An empty interval may lie anywhere; a kernel is only ever shown places that exist.
    return _Class(take, put, Table(np.clip(lo, base, base + taken), np.clip(hi, base, base + taken), base, taken, counts, reach))


def _every(read: _Reader, extent: int) -> tuple[slice, int]:
    """Every so many positions of an axis, and how many they are."""
    first, step = read.number(0, extent), read.number(1, MOST)
    count = read.number(0, -(-(extent - first) // step))
    return slice(first, first + (count - 1) * step + 1 if count else first, step), count


def _deep_enough(reach: tuple[int, ...]) -> bool:
    """Every level above is marked long while runs of blocks can exceed eight."""
    ends = [k + 1 == len(reach) for k in range(len(reach))]
    if any((longest > BLOCK) == last for longest, last in zip(reach, ends, strict=True)):
        return False
    return all(below // BLOCK - 1 <= above <= below // BLOCK for below, above in pairwise(reach))
