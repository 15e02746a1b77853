"""Dask arrays: a lazy result, each chunk of it made of exactly the source cells it needs.

Requirements. The same bits as one call on the whole array. No rechunk, no overlap to trim: a result chunk is computed where
most of its cells lie already, its *home* chunk, and only the cells beyond the home chunk travel. They are cut out
where they lie, by a task of their own for each neighbour. A neighbour along one axis hands on what lies beyond *it* along the axes before,
so a chunk in three dimensions talks to six neighbours, never to twenty-six, and each cell still travels once. Nothing larger
than `poolgrad.gather-limit` (Dask's configuration, 1 GiB) is brought together for one result chunk: it is refused instead.

All positions are those of the whole axis, so a box means the same in the graph, in a halo and in the tables.
"""

from __future__ import annotations

import sys
import zlib
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from dask import config
from dask._task_spec import Task, TaskRef
from dask.array.core import Array as DaskArray
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph
from dask.utils import format_bytes, parse_bytes

from . import ops
from .arrays import DTYPES
from .errors import PoolGradMemoryError, PoolGradTypeError, PoolGradValueError
from .geometry import Axis, Pool
from .layout import spatial_positions

__all__ = ["lazily", "shape_of"]

Array = npt.NDArray[Any]
Span = tuple[int, int]
Box = tuple[Span, ...]
Piece = tuple[Array, Box]
Key = tuple[Any, ...]


def shape_of(name: str, array: Any) -> tuple[int, ...]:
    """The shape of a Dask array that can be served, or an error that says what is wrong with it."""
    kind = f"{type(array).__module__}.{type(array).__qualname__}"
    if type(array) is not DaskArray:
        raise PoolGradTypeError(f"{name} must be a dask.array.Array, got {kind}")
    if type(array._meta) is not np.ndarray:
        held = f"{type(array._meta).__module__}.{type(array._meta).__qualname__}"
        raise PoolGradTypeError(f"{name} must be a Dask array of NumPy arrays, got one of {held}; convert it with map_blocks first")
    if array.dtype not in DTYPES:
        raise PoolGradTypeError(f"{name} must have dtype {', '.join(DTYPES.values())}, got {array.dtype}")
    if any(size != size for size in array.shape):
        raise PoolGradValueError(
            f"{name} must have known chunk sizes, got shape {array.shape}; call compute_chunk_sizes() on it first"
        )
    shape: tuple[int, ...] = array.shape
    return shape


def lazily(source: Any, pool: Pool, layout: str, region: Sequence[slice] | None, *, forwards: bool, threads: int | None) -> Any:
    """The forward pass or the gradient of `pool` as a Dask array; with `region`, that part of it."""
    name = "x" if forwards else "dy"
    spatial = spatial_positions(layout, source.ndim)
    wholes = pool.output_size if forwards else pool.input_size
    parts = [(part.start, part.stop) for part in region or [slice(0, n) for n in wholes]]
    origins = [0] * len(parts)
    if region is not None:
        origins = [part.start for part in (pool.inputs_for if forwards else pool.cells_for)(region)]
    needs = [(axis.start, axis.stop) if forwards else axis.over for axis in pool.axes]
    held = [_edges(origin, source.chunks[p]) for origin, p in zip(origins, spatial, strict=True)]
    made = [_owned(*need, part, edges) for need, part, edges in zip(needs, parts, held, strict=True)]
    across = prod(max(source.chunks[p]) for p in range(source.ndim) if p not in spatial) * source.dtype.itemsize
    most = max(parse_bytes(config.get("array.chunk-size")), across * prod(max(source.chunks[p]) for p in spatial))
    made = _shortened(made, most // max(across, 1))
    axes = [_Along.of(*row) for row in zip(needs, held, made, strict=True)]
    job = _Job(pool, layout, forwards, source.dtype.name, threads or 1)
    return _Graph(name, source, job, axes, spatial).array()


def _edges(origin: int, chunks: Sequence[int]) -> list[int]:
    return [origin, *(origin + np.cumsum(chunks)).tolist()]


def _owned(first: Any, last: Any, part: Span, held: list[int]) -> list[int]:
    """Edges of the result chunks: a position belongs to the source chunk that holds the middle of what it needs."""
    a, b = part
    if a >= b:
        return [a, a]
    middle = np.maximum.accumulate((first[a:b] + np.maximum(first, last)[a:b] - 1) // 2)
    return sorted({a, b, *(a + np.searchsorted(middle, held[1:-1])).tolist()})


def _shortened(made: list[list[int]], most: int) -> list[list[int]]:
    """Result chunks cut along their longest axes, where the result has far more elements than the source."""
    longest = [max(b - a for a, b in zip(edges, edges[1:], strict=False)) for edges in made]
    while prod(longest) > most and max(longest) > 1:
        k = longest.index(max(longest))
        longest[k] = -(-longest[k] // 2)
    return [_evenly(edges, most_of) for edges, most_of in zip(made, longest, strict=True)]


def _evenly(edges: list[int], most: int) -> list[int]:
    cut = edges[:1]
    for a, b in zip(edges, edges[1:], strict=False):
        n = max(1, -(-(b - a) // max(most, 1)))
        cut += [a + (b - a) * k // n for k in range(1, n + 1)]
    return cut


def _meet(a: Span, b: Span) -> Span:
    return max(a[0], b[0]), max(min(a[1], b[1]), a[0], b[0])


def _hull(spans: Sequence[Span]) -> Span:
    return min(a for a, _ in spans), max(b for _, b in spans)


def _volume(box: Box) -> int:
    return prod(b - a for a, b in box)


class _Along(NamedTuple):
    """One spatial axis: where the source and the result are cut, and who needs what."""

    held: list[int]
    """Edges of the source chunks."""
    made: list[Span]
    """The result chunks."""
    need: list[Span]
    """The source positions that each result chunk is made of."""
    home: list[int]
    """The source chunk that holds most of them."""
    reach: dict[int, Span]
    """Per home chunk, all that its result chunks need."""
    used: dict[int, Span]
    """Per source chunk, all of it that anybody needs."""

    @classmethod
    def of(cls, need: tuple[Any, Any], held: list[int], edges: list[int]) -> _Along:
        made = list(zip(edges, edges[1:], strict=False))
        needs = [_needed(*need, span) for span in made]
        self = cls(held, made, needs, [], {}, {})
        for span in needs:
            home = max(self.chunks(span), key=lambda s: _length(_meet(span, self.chunk(s))), default=0)
            self.home.append(home)
            self.reach[home] = _hull([span, self.reach[home]]) if home in self.reach else span
        for span in self.reach.values():
            for s in self.chunks(span):
                part = _meet(span, self.chunk(s))
                self.used[s] = _hull([part, self.used[s]]) if s in self.used else part
        return self

    def chunk(self, s: int) -> Span:
        return self.held[s], self.held[s + 1]

    def chunks(self, span: Span) -> list[int]:
        """The source chunks that hold anything of `span`."""
        near = range(bisect_right(self.held, span[0]) - 1, bisect_left(self.held, span[1]))
        return [s for s in near if _length(_meet(span, self.chunk(s))) > 0]


def _length(span: Span) -> int:
    return span[1] - span[0]


def _needed(first: Any, last: Any, span: Span) -> Span:
    lo, hi = first[slice(*span)], last[slice(*span)]
    full = lo < hi
    return (int(lo[full].min()), int(hi[full].max())) if full.any() else (0, 0)


class _Halo(Task):  # type: ignore[misc]  # dask is not typed here
    """A cut of a source chunk. Fused with its consumer it would move the whole chunk there, so it is never fused."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True


class _Graph:
    """The tasks of one call: a halo for every cut that travels, and one task for every result chunk."""

    def __init__(self, name: str, source: Any, job: _Job, axes: list[_Along], spatial: tuple[int, ...]):
        self.name, self.source, self.job, self.axes, self.spatial = name, source, job, axes, spatial
        token = tokenize(source.name, job.__reduce__(), [along.made for along in axes])
        self.result = f"poolgrad-{'forward' if job.forwards else 'gradient'}-{token}"
        # Dask's schedulers know tasks of this name as too quick to be worth moving: a cut stays with its chunk.
        self.cuts = f"rechunk-split-{token}"
        self.halos: dict[Key, Task] = {}
        self.limit = parse_bytes(config.get("poolgrad.gather-limit", "1 GiB"))

    def array(self) -> Any:
        made = [[along.made for along in self.axes][self.spatial.index(p)] if p in self.spatial else list(enumerate(chunks))
                for p, chunks in enumerate(self.source.chunks)]
        chunks = tuple(tuple(b - a for a, b in row) if p in self.spatial else self.source.chunks[p] for p, row in enumerate(made))
        results = {(self.result, *at): self._task(at, chunks) for at in product(*(range(len(row)) for row in chunks))}
        layers = {**self.source.dask.layers, self.result: results}
        needs = {**self.source.dask.dependencies, self.result: {self.source.name}}
        if self.halos:
            layers[self.cuts] = self.halos
            needs[self.cuts], needs[self.result] = {self.source.name}, {self.source.name, self.cuts}
        return DaskArray(HighLevelGraph(layers, needs), self.result, chunks, meta=self.source._meta)

    def _task(self, at: tuple[int, ...], chunks: tuple[tuple[int, ...], ...]) -> Task:
        """The result chunk `at`."""
        shape = tuple(row[i] for row, i in zip(chunks, at, strict=True))
        here = [(along, at[p]) for along, p in zip(self.axes, self.spatial, strict=True)]
        made, need = tuple(along.made[i] for along, i in here), tuple(along.need[i] for along, i in here)
        home = self._moved(at, [along.home[i] for along, i in here])
        pieces = self._pieces(home, need, len(self.axes)) if _volume(need) else []
        if pieces:
            own = tuple(map(_meet, need, pieces[0][1]))
            self._check_gather(home, need, own, len(pieces))
            if 2 * _volume(own) < _volume(pieces[0][1]):
                pieces[0] = self._cut((self.cuts, -1, 0, *at), own, pieces[:1])
        key = (self.result, *at)
        return Task(key, _pooled, self.job, made, shape, tuple(box for _, box in pieces), *(TaskRef(k) for k, _ in pieces))

    def _pieces(self, at: tuple[int, ...], box: Box, axes: int) -> list[tuple[Key, Box]]:
        """What holds `box` between them: the source chunk `at`, and what lies beyond it along the first `axes` axes."""
        places = [at[p] for p in self.spatial]
        found = [((self.source.name, *at), tuple(along.chunk(s) for along, s in zip(self.axes, places, strict=True)))]
        for k in range(axes):
            found += [self._halo(k, s, at) for s in self.axes[k].chunks(box[k]) if s != places[k]]
        return found

    def _halo(self, k: int, s: int, at: tuple[int, ...]) -> tuple[Key, Box]:
        """What the chunk `at` needs of chunk `s` along axis `k`, with what lies beyond along the axes before."""
        there = at[: self.spatial[k]] + (s,) + at[self.spatial[k] + 1 :]
        box = []
        for m, (along, p) in enumerate(zip(self.axes, self.spatial, strict=True)):
            reach = along.reach[at[p]] if m <= k else along.used[at[p]]
            box.append(_meet(reach, along.chunk(s)) if m == k else reach)
        key = (self.cuts, k, s, *at)
        if key in self.halos:
            return key, tuple(box)
        pieces = self._pieces(there, tuple(box), k)
        return pieces[0] if pieces == [(pieces[0][0], tuple(box))] else self._cut(key, tuple(box), pieces)

    def _cut(self, key: Key, box: Box, pieces: list[tuple[Key, Box]]) -> tuple[Key, Box]:
        boxes = tuple(held for _, held in pieces)
        self.halos[key] = _Halo(key, _halo, self.job, box, boxes, *(TaskRef(k) for k, _ in pieces))
        return key, box

    def _moved(self, at: tuple[int, ...], places: list[int]) -> tuple[int, ...]:
        moved = list(at)
        for p, s in zip(self.spatial, places, strict=True):
            moved[p] = s
        return tuple(moved)

    def _check_gather(self, home: tuple[int, ...], need: Box, own: Box, pieces: int) -> None:
        across = prod(self.source.chunks[p][i] for p, i in enumerate(home) if p not in self.spatial)
        size = (_volume(need) - _volume(own)) * across * self.source.dtype.itemsize
        if size > self.limit:
            raise PoolGradMemoryError(
                f"one result chunk needs {format_bytes(size)} of {self.name} from beyond its own chunk, in {pieces - 1} cuts; "
                f"poolgrad.gather-limit is {format_bytes(self.limit)}. Give {self.name} larger chunks along the pooled axes and "
                "smaller ones along the others, or raise the limit with dask.config.set"
            )


class _Job:
    """A pooling in one direction, as it travels: packed small, and unpacked once in each process."""

    def __init__(self, pool: Pool, layout: str, forwards: bool, dtype: str, threads: int):
        self.pool, self.layout, self.forwards, self.dtype, self.threads = pool, layout, forwards, dtype, threads
        self.packed = (pool.divisor, *((axis.size, axis.step, *map(_packed, (axis.start, axis.stop, axis.count))) for axis in pool.axes))

    def __reduce__(self) -> tuple[Any, ...]:
        return _job, (self.packed, self.layout, self.forwards, self.dtype, self.threads)


def _packed(column: Any) -> tuple[str, bytes]:
    """Differences in the smallest type that holds them; those of a regular table are all alike."""
    steps = np.diff(column, prepend=0)
    kind = np.result_type(np.min_scalar_type(steps.min(initial=0)), np.min_scalar_type(steps.max(initial=0)))
    return kind.str, zlib.compress(steps.astype(kind).tobytes())


def _unpacked(column: tuple[str, bytes]) -> Any:
    return np.cumsum(np.frombuffer(zlib.decompress(column[1]), dtype=column[0]), dtype=np.int64)


@lru_cache(maxsize=64)
def _job(packed: tuple[Any, ...], layout: str, forwards: bool, dtype: str, threads: int) -> _Job:
    axes = tuple(Axis(size, *map(_unpacked, columns), step, allow_empty=True) for size, step, *columns in packed[1:])
    return _Job(Pool(axes, packed[0]), layout, forwards, dtype, threads)


def _halo(job: _Job, box: Box, boxes: tuple[Box, ...], *arrays: Array) -> Array:
    """A copy of `box`, so that the chunk it is cut from can be let go."""
    spatial = spatial_positions(job.layout, arrays[0].ndim)
    part = _gathered(spatial, box, _checked(job, spatial, boxes, arrays))
    return part.copy() if part.base is not None else part


def _pooled(job: _Job, made: Box, shape: tuple[int, ...], boxes: tuple[Box, ...], *arrays: Array) -> Array:
    """The result over `made`: from the first array alone as far as it goes, the rims from all of them."""
    spatial = spatial_positions(job.layout, len(shape))
    pieces = _checked(job, spatial, boxes, arrays)
    dtype = np.dtype(job.dtype)
    _check_memory(shape, dtype, arrays)
    run = ops.forward if job.forwards else ops.gradient
    needs = job.pool.inputs_for if job.forwards else job.pool.cells_for
    rims = list(_rims(job, made, boxes))
    result = np.empty(shape, dtype) if len(rims) > 1 else None
    for rim in rims:
        region = [slice(*span) for span in rim]
        need = tuple((part.start, part.stop) for part in needs(region))
        if not pieces:
            pieces = [(np.empty(_placed(shape, spatial, need), dtype), need)]
        part = _gathered(spatial, need, pieces)
        place = None if result is None else _view(result, spatial, made, rim)
        answer = run(job.pool, part, layout=job.layout, region=region, out=place, num_threads=job.threads)
        result = answer if result is None else result
    assert result is not None
    return result


def _rims(job: _Job, made: Box, boxes: tuple[Box, ...]) -> Iterator[Box]:
    """`made` in boxes: on each axis what reaches before and beyond the first piece, and at last what does not."""
    left = list(made)
    if len(boxes) > 1:
        for k, (axis, home) in enumerate(zip(job.pool.axes, boxes[0], strict=True)):
            first, last = (axis.start, axis.stop) if job.forwards else axis.over
            a, b = left[k]
            lo, hi = first[a:b], last[a:b]
            before, beyond = np.flatnonzero((lo < home[0]) & (lo < hi)), np.flatnonzero((hi > home[1]) & (lo < hi))
            inside = a + int(before[-1]) + 1 if len(before) else a, a + int(beyond[0]) if len(beyond) else b
            if inside[0] >= inside[1]:
                break
            yield from (tuple([*left[:k], rim, *left[k + 1 :]]) for rim in ((a, inside[0]), (inside[1], b)) if rim[0] < rim[1])
            left[k] = inside
    yield tuple(left)


def _gathered(spatial: tuple[int, ...], box: Box, pieces: Sequence[Piece]) -> Array:
    """The cells of `box`: a view where one piece holds them all."""
    for array, held in pieces:
        if tuple(map(_meet, box, held)) == box:
            return _view(array, spatial, held, box)
    array = pieces[0][0]
    whole = np.empty(_placed(array.shape, spatial, box), array.dtype)
    for array, held in pieces:
        part = tuple(map(_meet, box, held))
        if _volume(part):
            _view(whole, spatial, box, part)[...] = _view(array, spatial, held, part)
    return whole


def _view(array: Array, spatial: tuple[int, ...], held: Box, box: Box) -> Array:
    index = [slice(None)] * array.ndim
    for p, (origin, _), (a, b) in zip(spatial, held, box, strict=True):
        index[p] = slice(a - origin, b - origin)
    return array[tuple(index)]


def _placed(shape: tuple[int, ...], spatial: tuple[int, ...], box: Box) -> tuple[int, ...]:
    placed = list(shape)
    for p, (a, b) in zip(spatial, box, strict=True):
        placed[p] = b - a
    return tuple(placed)


def _checked(job: _Job, spatial: tuple[int, ...], boxes: tuple[Box, ...], arrays: tuple[Array, ...]) -> list[Piece]:
    """The arrays with their places; a chunk that is not what the Dask array promised is refused."""
    name = "x" if job.forwards else "dy"
    for array, box in zip(arrays, boxes, strict=True):
        if not isinstance(array, np.ndarray) or array.dtype.name != job.dtype:
            kind = array.dtype if isinstance(array, np.ndarray) else type(array).__qualname__
            raise PoolGradTypeError(f"a chunk of {name} must be a NumPy array of {job.dtype}, as promised, got {kind}")
        if array.shape != _placed(array.shape, spatial, box):
            raise PoolGradValueError(f"a chunk of {name} must have the sizes promised, {_placed(array.shape, spatial, box)}, got {array.shape}")
    return list(zip(arrays, boxes, strict=True))


def _check_memory(shape: tuple[int, ...], dtype: np.dtype[Any], arrays: tuple[Array, ...]) -> None:
    """Refuse a task that cannot fit its worker: the nanny would end the process, again and again."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return
    try:
        limit = distributed.get_worker().memory_manager.memory_limit
    except ValueError:
        return
    needed = prod(shape) * dtype.itemsize + sum(array.nbytes for array in arrays)
    if limit and needed > limit:
        raise PoolGradMemoryError(
            f"a result chunk {shape} of {dtype} and its source need {format_bytes(needed)}, "
            f"this worker's memory limit is {format_bytes(limit)}; use smaller chunks"
        )
