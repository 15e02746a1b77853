"""The tables of an axis as a compiled program holds them: for the whole axis, or for each device that has a part of it.

Every device runs the same program, so a program holds the tables of all parts and picks its own by number. A part is one
of equal boxes of the result; `Cut` says which source rows lie in a device's memory beside it. Rows keep their numbers on
the whole axis, so a part is added in the order of the whole, to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..far import FAR
from ..geometry import Axis, Pool
from ..tables import Ints, Table

__all__ = ["VERSION", "Class", "Cut", "classes", "encode", "has_far", "result_shape", "uncut"]

VERSION = 1


class Cut(NamedTuple):
    """How an axis is shared out: part `p` holds the source rows from `p * step - before` on, `rows` of them."""

    parts: int
    step: int
    before: int
    rows: int


class Class(NamedTuple):
    """One residue class of a part: which of its rows are taken, which of its positions are made, and from which rows."""

    take: range
    put: range
    table: Table


def uncut(pool: Pool, forwards: bool) -> tuple[Cut, ...]:
    """The whole pooling on one device."""
    return tuple(Cut(1, 0, 0, axis.size if forwards else axis.cells) for axis in pool.axes)


def result_shape(
    shape: Sequence[Any], pool: Pool, spatial: tuple[int, ...], forwards: bool, cuts: tuple[Cut, ...]
) -> tuple[Any, ...]:
    made = list(shape)
    for axis, position, cut in zip(pool.axes, spatial, cuts, strict=True):
        made[position] = (axis.cells if forwards else axis.size) // cut.parts
    return tuple(made)


def classes(axis: Axis, forwards: bool, cut: Cut) -> Iterator[tuple[Class, ...]]:
    """The classes of each part of an axis, part after part."""
    alone = Pool((axis,))
    length = (axis.cells if forwards else axis.size) // cut.parts
    for part in range(cut.parts):
        region = [slice(part * length, (part + 1) * length)]
        (span,) = (alone.inputs_for if forwards else alone.cells_for)(region)
        pieces = (alone.forward_pieces if forwards else alone.gradient_pieces)(region)
        shift = span.start - (part * cut.step - cut.before)
        yield tuple(_class(piece.take[0], piece.put[0], piece.sums.tables[0], shift) for piece in pieces)


def _class(take: slice, put: slice, table: Table, shift: int) -> Class:
    first = take.start + shift if table.rows else 0
    return Class(_range(first, take.step, table.rows), _range(put.start, put.step, table.positions), table)


def _range(first: int, step: int | None, count: int) -> range:
    step = step or 1
    return range(first, first + count * step, step)


def has_far(pool: Pool, forwards: bool) -> bool:
    """Whether an interval is too long for the engine's scratch."""
    whole = zip(pool.axes, uncut(pool, forwards), strict=True)
    return any(c.table.reach[0] > FAR for axis, cut in whole for part in classes(axis, forwards, cut) for c in part)


@lru_cache(maxsize=64)
def encode(
    pool: Pool, spatial: tuple[int, ...], forwards: bool, cuts: tuple[Cut, ...], chosen: tuple[int, ...] | None = None
) -> npt.NDArray[np.int64]:
    """All of it as the numbers that `native/xla.cpp` and `decode` read; or one part of each axis, as if there were no other."""
    numbers = [VERSION, int(not forwards), int(pool.divisor is not None), pool.divisor or 0, len(spatial)]
    for k, (axis, position, cut) in enumerate(zip(pool.axes, spatial, cuts, strict=True)):
        parts = tuple(classes(axis, forwards, cut))
        if chosen is not None:
            parts = parts[chosen[k] : chosen[k] + 1]
        numbers += [position, len(parts)]
        for part in parts:
            numbers.append(len(part))
            for take, put, table in part:
                numbers += [take.start, take.step, len(take), put.start, put.step, len(put), table.base]
                numbers += [len(table.reach), *table.reach]
                for column in (table.lo, table.hi, table.counts):
                    numbers += _runs(column)
    return np.array(numbers, dtype=np.int64)


def _runs(column: Ints) -> list[int]:
    """Numbers as runs of (first, step, count, repeat): a regular pooling is a few runs however long its axis.

    >>> _runs(np.array([0, 0, 1, 2, 2, 3, 3, 4, 4]))
    [3, 0, 0, 1, 2, 1, 0, 1, 1, 2, 1, 3, 2]
    """
    if not len(column):
        return [0]
    edges = np.flatnonzero(np.diff(column, prepend=column[0] - 1))
    values: list[int] = column[edges].tolist()
    repeats: list[int] = np.diff(edges, append=len(column)).tolist()
    runs: list[list[Any]] = []
    for value, repeat in zip(values, repeats, strict=True):
        first, step, count, each = runs[-1] if runs else (0, 0, 0, 0)
        if each == repeat and (count == 1 or value == first + count * step):
            runs[-1] = [first, value - first if count == 1 else step, count + 1, each]
        else:
            runs.append([value, 0, 1, repeat])
    return [len(runs), *(number for run in runs for number in run)]
