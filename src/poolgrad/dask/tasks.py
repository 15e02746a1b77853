"""What Dask's workers compute: a halo, and a result chunk from its home chunk and its halos.

A result chunk is computed from the home chunk where it lies, without a copy; then its rims, which need more than that, from
small boxes put together of all pieces, in memory that each thread keeps: a worker's `malloc` gives freed memory back at once
(its nanny sets MALLOC_TRIM_THRESHOLD_), and the page faults of fresh boxes would cost more than the sums over them. The bits
do not depend on how a result is cut, so these are the bits of one call.
"""

from __future__ import annotations

import sys
import threading
import zlib
from functools import cached_property, lru_cache
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from dask.base import tokenize
from dask.utils import format_bytes

from .. import ops
from ..engines import engine
from ..errors import PoolGradMemoryError, PoolGradTypeError, PoolGradValueError
from ..geometry import Axis, Pool
from ..layout import placed, spatial_positions
from ..tables import Ints, Table
from .cuts import Box, Span, length, meet, volume

__all__ = ["Job", "halo", "job_for", "landing", "pooled", "view"]

Array = npt.NDArray[Any]
Column = tuple[str, bytes]

MOST_KEPT = 8 << 20
"""Bytes of each kind of scratch that a thread keeps; larger boxes get memory of their own."""

_kept = threading.local()


class Job:
    """A pooling in one direction, as it travels: packed small, and unpacked once in each process."""

    def __init__(self, pool: Pool, layout: str, forwards: bool, dtype: str, threads: int):
        self.pool, self.layout, self.forwards, self.dtype, self.threads = pool, layout, forwards, dtype, threads
        self.spatial, self.name = spatial_positions(layout, len(layout)), "x" if forwards else "dy"
        axes = tuple((axis.size, axis.step, *map(_packed, (axis.start, axis.stop, axis.count))) for axis in pool.axes)
        self._state = (axes, pool.divisor, layout, forwards, dtype, threads)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, self._state

    @cached_property
    def token(self) -> str:
        return str(tokenize(self._state))


@lru_cache(maxsize=64)
def job_for(pool: Pool, layout: str, forwards: bool, dtype: str, threads: int) -> Job:
    """The job of these; packed once."""
    return Job(pool, layout, forwards, dtype, threads)


def _packed(column: Ints) -> Column:
    """Differences in the smallest type that holds them; those of a regular table are nearly all alike."""
    steps = np.diff(column, prepend=0)
    kind = np.result_type(np.min_scalar_type(steps.min(initial=0)), np.min_scalar_type(steps.max(initial=0)))
    return kind.str, zlib.compress(steps.astype(kind).tobytes())


def _arrived(*state: Any) -> Job:
    """A job that has come to this process; if that is a scheduler's, our tasks run where their input lies from now on."""
    if "distributed.scheduler" in sys.modules:
        from .locality import stay_home

        stay_home()
    return _unpacked(*state)


@lru_cache(maxsize=64)
def _unpacked(axes: tuple[Any, ...], divisor: int | None, layout: str, forwards: bool, dtype: str, threads: int) -> Job:
    made = []
    for size, step, *columns in axes:
        start, stop, count = (np.cumsum(np.frombuffer(zlib.decompress(data), kind), dtype=np.int64) for kind, data in columns)
        made.append(Axis(size, start, stop, count, step, allow_empty=True))
    return job_for(Pool(tuple(made), divisor), layout, forwards, dtype, threads)


def halo(job: Job, box: Box, boxes: tuple[Box, ...], *arrays: Array) -> Array:
    """A copy of `box`, so that the chunks it is cut from can be let go."""
    _check(job, boxes, arrays)
    part: Array = _gathered(job.spatial, box, boxes, arrays).copy()
    return part


def landing(part: Array, home: Array) -> Array:
    """A halo that has arrived; `home` is there to have the scheduler place this task beside it."""
    return part


def pooled(job: Job, made: Box, shape: tuple[int, ...], need: Box, boxes: tuple[Box, ...], *arrays: Array) -> Array:
    """The result over `made`, made of `need`, from `arrays`, which lie at `boxes`; the first of them is the home chunk."""
    _check(job, boxes, arrays)
    dtype = np.dtype(job.dtype)
    _check_memory(shape, dtype, arrays)
    if not arrays:
        boxes, arrays = (((0, 0),) * len(made),), (np.empty(placed(shape, job.spatial, (0,) * len(made)), dtype),)
    rims = _rims(job, made, boxes[0]) if len(arrays) > 1 else None
    if rims is None:
        return _exactly(job, made, need, boxes, arrays)
    result = _from_home(job, made, shape, boxes[0], arrays[0])
    for rim in rims:
        place = view(result, job.spatial, made, rim)
        needed = (job.pool.inputs_for if job.forwards else job.pool.cells_for)([slice(*span) for span in rim])
        near = tuple((part.start, part.stop) for part in needed)
        place[...] = _exactly(job, rim, near, boxes, arrays, _scratch("made", place.shape, dtype))
    return result


def _exactly(
    job: Job, made: Box, need: Box, boxes: tuple[Box, ...], arrays: tuple[Array, ...], out: Array | None = None
) -> Array:
    """The result over `made`, from just the cells it needs."""
    run, region = ops.forward if job.forwards else ops.gradient, [slice(*span) for span in made]
    source = _gathered(job.spatial, need, boxes, arrays)
    return run(job.pool, source, layout=job.layout, region=region, out=out, num_threads=job.threads)


def _rims(job: Job, made: Box, home: Box) -> list[Box] | None:
    """The boxes of `made` that need more than `home`; None if that is all of it, or if an axis is dilated."""
    rims, left = [], made
    for k, axis in enumerate(job.pool.axes):
        first, last = (axis.start, axis.stop) if job.forwards else axis.over
        a, b = left[k]
        lo, hi = first[a:b], last[a:b]
        before, beyond = np.flatnonzero((lo < home[k][0]) & (lo < hi)), np.flatnonzero((hi > home[k][1]) & (lo < hi))
        inner = (a + int(before[-1]) + 1 if len(before) else a, a + int(beyond[0]) if len(beyond) else b)
        if axis.step > 1 or inner[0] >= inner[1]:
            return None
        rims += [(*left[:k], rim, *left[k + 1 :]) for rim in ((a, inner[0]), (inner[1], b)) if rim[0] < rim[1]]
        left = (*left[:k], inner, *left[k + 1 :])
    return rims


def _from_home(job: Job, made: Box, shape: tuple[int, ...], home: Box, array: Array) -> Array:
    """The result over `made` as if there were nothing but `home`: wrong on the rims, and in one pass without a copy."""
    region = [slice(*span) for span in made]
    ((_, _, sums),) = job.pool.forward_pieces(region) if job.forwards else job.pool.gradient_pieces(region)
    own = tuple(meet(span, (table.base, table.base + table.rows)) for span, table in zip(home, sums.tables, strict=True))
    array = view(array, job.spatial, home, own)
    sums = sums._replace(tables=tuple(_clipped(table, span, job.forwards) for table, span in zip(sums.tables, own, strict=True)))
    if hasattr(engine(), "operation"):
        done: Array = engine().operation(sums, job.spatial, array.shape, shape).run(array, None, False, job.threads)
        return done
    result = np.empty(shape, array.dtype)
    engine().run(sums, array, result, job.spatial, accumulate=False, threads=job.threads)
    return result


def _clipped(table: Table, own: Span, forwards: bool) -> Table:
    counts = table.counts if forwards else table.counts[own[0] - table.base : own[1] - table.base]
    return table._replace(lo=np.clip(table.lo, *own), hi=np.clip(table.hi, *own), base=own[0], rows=length(own), counts=counts)


def _gathered(spatial: tuple[int, ...], box: Box, boxes: tuple[Box, ...], arrays: tuple[Array, ...]) -> Array:
    """The cells of `box`: a view where one array holds them all."""
    parts = [tuple(map(meet, box, held)) for held in boxes]
    if box in parts:
        holder = parts.index(box)
        return view(arrays[holder], spatial, boxes[holder], box)
    whole = _scratch("gathered", placed(arrays[0].shape, spatial, tuple(map(length, box))), arrays[0].dtype)
    for array, held, part in zip(arrays, boxes, parts, strict=True):
        if volume(part):
            view(whole, spatial, box, part)[...] = view(array, spatial, held, part)
    return whole


def _scratch(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array to use until this thread asks for the next under the same name."""
    size = prod(shape) * dtype.itemsize
    if size > MOST_KEPT:
        return np.empty(shape, dtype)
    kept: Array = _kept.__dict__.setdefault(name, np.empty(0, np.uint8))
    if kept.size < size:
        kept = _kept.__dict__[name] = np.empty(size, np.uint8)
    return kept[:size].view(dtype).reshape(shape)


def view(array: Array, spatial: tuple[int, ...], held: Box, box: Box) -> Array:
    """The part `box` of an array that lies at `held`."""
    index = [slice(None)] * array.ndim
    for p, (origin, _), (a, b) in zip(spatial, held, box, strict=True):
        index[p] = slice(a - origin, b - origin)
    return array[tuple(index)]


def _check(job: Job, boxes: tuple[Box, ...], arrays: tuple[Array, ...]) -> None:
    """Refuse a chunk that is not what its Dask array promised."""
    for array, box in zip(arrays, boxes, strict=True):
        if not isinstance(array, np.ndarray) or array.dtype.name != job.dtype:
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__qualname__
            raise PoolGradTypeError(f"a chunk of {job.name} must be a NumPy array of {job.dtype}, as promised, got {kind}")
        sizes = tuple(b - a for a, b in box)
        if array.ndim != len(job.layout) or tuple(array.shape[p] for p in job.spatial) != sizes:
            raise PoolGradValueError(f"a chunk of {job.name} must have the spatial sizes promised, {sizes}, got {array.shape}")


def _check_memory(shape: tuple[int, ...], dtype: np.dtype[Any], arrays: tuple[Array, ...]) -> None:
    """Refuse a task that cannot fit its worker, where Dask would end the process and try again."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return
    try:
        limit = distributed.get_worker().memory_manager.memory_limit
    except ValueError:  # this is no worker
        return
    needed = prod(shape) * dtype.itemsize + sum(array.nbytes for array in arrays)
    if limit and needed > limit:
        raise PoolGradMemoryError(
            f"a result chunk {shape} of {dtype} and its source need {format_bytes(needed)}, more than this worker's "
            f"memory limit of {format_bytes(limit)}; use smaller chunks"
        )
