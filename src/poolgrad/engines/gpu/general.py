"""Launches of the general kernels (general.cu): any table, read at run time."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from ...errors import PoolGradValueError
from ...tables import BLOCK, Sums, Table
from .view import Launch, Plan, Pointer, View, dense

__all__ = ["plan", "prelude"]

MOST, LEVELS = 12, 11
THREADS, MOST_THREADS = 256, 1 << 26

Argument = Any


@cache
def prelude(name: str = "prelude") -> str:
    return Path(__file__).with_name(f"{name}.cu").read_text(encoding="utf-8")


def plan(sums: Sums, source: View, out: View, spatial: tuple[int, ...], wide: np.dtype[Any], accumulate: bool) -> Plan:
    if len(spatial) <= 3 and all(table.reach[0] <= BLOCK for table in sums.tables):
        return Plan((_gather(sums, source, out, spatial, wide, accumulate),), ())
    return _ladder(sums, source, out, spatial, wide, accumulate)


def _text(source: View, out: View, wide: np.dtype[Any], vector: int) -> str:
    accumulator = "double" if wide == np.float64 else "float"
    types = f"typedef {source.storage} SRC; typedef {out.storage} DST; typedef {accumulator} A; enum {{ V = {vector} }};\n"
    return prelude() + types + prelude("general")


def _dims(source: View, out: View, slots: dict[int, int], summed: bool) -> tuple[int, int, list[Argument]]:
    """Elements of the vector, threads, the struct Dims; dimensions in `slots` are reported and, if summed, not in the source."""
    order = sorted(range(len(out.shape)), key=lambda k: (abs(out.strides[k]), -k))
    if len(order) > MOST:
        raise PoolGradValueError(f"arrays may have at most {MOST} dimensions on a GPU, got {len(order)}")
    vector = _vector(source, out, order[0] if order else -1, slots)
    rows = []
    for k in order:
        lanes = vector if k == order[0] else 1
        step = 0 if summed and k in slots else source.strides[k] * lanes
        rows.append((out.shape[k] // lanes, step, out.strides[k] * lanes, slots.get(k, -1)))
    columns = list(zip(*rows, strict=True)) or [(), (), (), ()]
    packed = [len(rows)]
    for column in columns:
        packed += [*column, *[0] * (MOST - len(rows))]
    return vector, out.size // vector, packed


def _vector(source: View, out: View, inner: int, slots: dict[int, int]) -> int:
    """How many elements of dimension `inner` a thread can take at once."""
    if inner < 0 or inner in slots or source.strides[inner] != 1 or out.strides[inner] != 1:
        return 1
    vector = 16 // max(source.dtype.itemsize, out.dtype.itemsize)
    others = [s for v in (source, out) for k, s in enumerate(v.strides) if k != inner and v.shape[k] > 1]
    while vector > 1 and (
        out.shape[inner] % vector
        or any(s % vector for s in others)
        or any(v.aligned % (vector * v.dtype.itemsize) for v in (source, out))
    ):
        vector //= 2
    return vector


def _rows(table: Table, step: int, counts: Argument) -> list[Argument]:
    lo, hi = (table.lo - table.base).astype(np.int32), (table.hi - table.base).astype(np.int32)
    return [lo, hi, counts, step]


def _launch(text: str, name: str, threads: int, *arguments: Argument) -> Launch:
    return Launch(text, name, min(threads, MOST_THREADS), THREADS, 0, tuple(arguments))


def _gather(sums: Sums, source: View, out: View, spatial: tuple[int, ...], wide: np.dtype[Any], accumulate: bool) -> Launch:
    vector, threads, dims = _dims(source, out, {p: k for k, p in enumerate(spatial)}, True)
    arguments: list[Argument] = []
    for k in range(3):
        if k < len(spatial):
            arguments += _rows(sums.tables[k], source.strides[spatial[k]], sums.tables[k].counts)
        else:
            one = np.ones(1, dtype=np.int64)
            arguments += [one.astype(np.int32) * 0, one.astype(np.int32), one, 0]
    flags = [sums.divisor or 0, int(sums.divide_first), int(accumulate)]
    return _launch(
        _text(source, out, wide, vector), "gather", threads, source.pointer, out.pointer, threads, *dims, *arguments, *flags
    )


def _each(
    sums: Sums, source: View, out: View, spatial: tuple[int, ...], wide: np.dtype[Any], divide: bool, accumulate: bool
) -> Launch:
    vector, threads, dims = _dims(source, out, {p: k for k, p in enumerate(spatial)}, False)
    counts: list[Argument] = [table.counts for table in sums.tables]
    counts += [0] * (MOST - len(counts))
    flags = [len(spatial), sums.divisor or 0, int(divide), int(accumulate)]
    text = _text(source, out, wide, vector)
    return _launch(text, "each", threads, source.pointer, out.pointer, threads, *dims, *counts, *flags)


def _ladder(sums: Sums, source: View, out: View, spatial: tuple[int, ...], wide: np.dtype[Any], accumulate: bool) -> Plan:
    """Widen (and divide); along each axis, totals of blocks level by level, then the sums; (divide and) round."""
    scratch: list[int] = []

    def fresh(shape: tuple[int, ...]) -> View:
        made = dense(2 + len(scratch), wide, shape, out)
        scratch.append(made.size * wide.itemsize)
        return made

    now = fresh(source.shape)
    launches = [_each(sums, source, now, spatial, wide, sums.divide_first, False)]
    for position, table in zip(reversed(spatial), reversed(sums.tables), strict=True):
        after = fresh((*now.shape[:position], table.positions, *now.shape[position + 1 :]))
        inner = now.strides[position]
        outer = now.size // max(inner * table.rows, 1)
        if table.rows == 0:
            outer = after.size // max(inner * table.positions, 1)
        launches += _axis(table, now, after, outer, inner, wide, scratch)
        now = after
    launches.append(_each(sums, now, out, spatial, wide, not sums.divide_first, accumulate))
    return Plan(tuple(launch for launch in launches if launch.threads), tuple(scratch))


def _axis(table: Table, now: View, after: View, outer: int, inner: int, wide: np.dtype[Any], scratch: list[int]) -> list[Launch]:
    text = _text(now, after, wide, 1)
    levels: list[tuple[Pointer, int, int]] = [(now.pointer, table.rows, table.base)]
    launches = []
    for _ in table.reach[1:]:
        below, held, base = levels[-1]
        first, end = -(-base // BLOCK), (base + held) // BLOCK
        blocks = max(end - first, 0)
        pointer = Pointer(2 + len(scratch))
        scratch.append(outer * blocks * inner * wide.itemsize)
        skip = BLOCK * first - base
        launches.append(_launch(text, "totals", outer * blocks * inner, below, pointer, outer, held, inner, skip, blocks))
        levels.append((pointer, blocks, first))
    columns: list[list[Argument]] = [list(column) + [0] * (LEVELS - len(levels)) for column in zip(*levels, strict=True)]
    lo, hi = table.lo.astype(np.int32), table.hi.astype(np.int32)
    packed = [len(levels), *columns[0], *columns[1], *columns[2]]
    launches.append(
        _launch(text, "ladder", outer * table.positions * inner, after.pointer, *packed, lo, hi, outer, table.positions, inner)
    )
    return launches
