"""The tasks of one call on a Dask array.

A result chunk is computed at its *home*, the source chunk that holds most of what it needs. What it needs beyond that is
cut out where it lies, by a task of its own, so that only the cut travels. A neighbour along one axis hands on
what lies beyond *it* along the axes before: in three dimensions a chunk talks to six neighbours, never to twenty-six, and
each cell still travels once. A cut that is handed on in this way is landed at home first: what a worker has made itself it
keeps for all who need it, what it has fetched for one task it forgets.

Where the source's chunks are arrays in this process already, the cuts are views of them, made with the graph: one task for each
result chunk, and nothing else to run.

What one result chunk needs from elsewhere may not exceed `poolgrad.gather-limit` of Dask's configuration (1 GiB): beyond that
the call is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from math import prod
from typing import Any

import numpy as np
from dask import config
from dask._task_spec import Task, TaskRef
from dask.array.core import Array
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from dask.utils import format_bytes, parse_bytes

from ..errors import PoolGradMemoryError, PoolGradValueError
from .cuts import Box, Cuts, meet, volume
from .tasks import Job, halo, landing, pooled, view

__all__ = ["Graph", "Halo"]

SPREAD = 64
"""Elements of a gradient for each of its source, beyond which moving that to another worker costs next to nothing."""

Key = tuple[Any, ...]
Place = tuple[int, ...]
Held = tuple[Any, Box]  # a key or an array, and where it lies


class Apart(Task):  # type: ignore[misc]  # Dask is not typed here
    """A task that Dask does not fuse with those around it."""

    __slots__ = ()

    @property
    def block_fusion(self) -> bool:
        return True


class Halo(Apart):
    """A cut of a source chunk: fused with its consumer it would move the whole chunk there."""

    __slots__ = ()


def _given(source: Any) -> Mapping[Key, Any] | None:
    """The chunks of a Dask array, if they are arrays that can be cut, and not tasks that make them."""
    layer = source.dask.layers.get(source.name)
    if not isinstance(layer, MaterializedLayer):
        return None
    chunks = dict(layer)
    return chunks if all(isinstance(chunk, np.ndarray) and chunk.ndim == source.ndim for chunk in chunks.values()) else None


def _gather_limit() -> int:
    said = config.get("poolgrad.gather-limit", "1 GiB")
    try:
        return int(parse_bytes(said))
    except (ValueError, TypeError, AttributeError):
        raise PoolGradValueError(f"poolgrad.gather-limit must be a size such as '1 GiB', got {said!r}") from None


def _is_little(part: Box, chunk: Box) -> bool:
    """Whether so little of a chunk is needed that it had better not be moved whole."""
    return 2 * volume(part) < volume(chunk)


def _kind(job: Job) -> str:
    """What the result's keys begin with: a gradient with far more elements than its source may be made where that is not."""
    if job.forwards:
        return "forward"
    return "spread" if prod(job.pool.input_size) > SPREAD * prod(job.pool.output_size) else "gradient"


class Graph:
    """One task for every result chunk, and one for every cut that travels."""

    def __init__(self, source: Any, job: Job, axes: list[Cuts]):
        self.source, self.job, self.axes, self.spatial = source, job, axes, job.spatial
        token = tokenize(source.name, job.token, [cuts.made for cuts in axes])
        self.result = f"poolgrad-{_kind(job)}-{token}"
        self.cut = f"poolgrad-halo-{token}"
        self.given = _given(source)
        # Fused with the array it is made of, a task would get another name, and Dask would run a second one for the first name.
        self.kind = Task if self.given is None else Apart
        self.halos: dict[Key, Task] = {}
        self.limit = _gather_limit()

    def array(self) -> Any:
        sizes = list(self.source.chunks)
        for cuts, p in zip(self.axes, self.spatial, strict=True):
            sizes[p] = tuple(b - a for a, b in cuts.made)
        chunks = tuple(sizes)
        results = {(self.result, *at): self._task(at, chunks) for at in product(*(range(len(row)) for row in chunks))}
        graph = self.source.dask
        layers = {**graph.layers, self.result: results, self.cut: self.halos}
        needs = {**graph.dependencies, self.result: {self.source.name, self.cut}, self.cut: {self.source.name}}
        return Array(HighLevelGraph(layers, needs), self.result, chunks, meta=self.source._meta)

    def _task(self, at: Place, chunks: tuple[tuple[int, ...], ...]) -> Task:
        """The result chunk `at`."""
        shape = tuple(row[i] for row, i in zip(chunks, at, strict=True))
        here = [(cuts, at[p]) for cuts, p in zip(self.axes, self.spatial, strict=True)]
        need = tuple(cuts.need[i] for cuts, i in here)
        home = list(at)
        for (cuts, i), p in zip(here, self.spatial, strict=True):
            home[p] = cuts.home[i]
        pieces = self._own_and_beyond(tuple(home), need) if volume(need) else []
        if pieces:
            own = tuple(map(meet, need, pieces[0][1]))
            self._check_gather(home, volume(need) - volume(own), len(pieces) - 1)
            if _is_little(own, pieces[0][1]):
                pieces[0] = self._cut((self.cut, -1, 0, *at), own, pieces[:1])
        made, boxes = tuple(cuts.made[i] for cuts, i in here), tuple(box for _, box in pieces)
        arrays = (TaskRef(held) if isinstance(held, tuple) else held for held, _ in pieces)
        return self.kind((self.result, *at), pooled, self.job, made, shape, need, boxes, *arrays)

    def _own_and_beyond(self, home: Place, need: Box) -> list[Held]:
        """What holds `need` between them, the home chunk first."""
        if self.given is None:
            return self._pieces(home, need, len(self.axes))
        pieces: list[Held] = []
        for places in product(*(cuts.chunks(span) for cuts, span in zip(self.axes, need, strict=True))):
            at, chunk = list(home), tuple(cuts.chunk(s) for cuts, s in zip(self.axes, places, strict=True))
            for p, s in zip(self.spatial, places, strict=True):
                at[p] = s
            key, part = (self.source.name, *at), tuple(map(meet, need, chunk))
            cut = view(self.given[key], self.spatial, chunk, part), part
            if tuple(at) != home:
                pieces.append(cut)
            else:
                pieces.insert(0, cut if _is_little(part, chunk) else (key, chunk))
        return pieces

    def _pieces(self, at: Place, box: Box, axes: int) -> list[Held]:
        """What holds `box` between them: the source chunk `at`, and what lies beyond it along the first `axes` axes."""
        places = [at[p] for p in self.spatial]
        own = tuple(cuts.chunk(s) for cuts, s in zip(self.axes, places, strict=True))
        beyond = [(k, s) for k in range(axes) for s in self.axes[k].chunks(box[k]) if s != places[k]]
        return [((self.source.name, *at), own), *(self._halo(k, s, at) for k, s in beyond)]

    def _halo(self, k: int, s: int, at: Place) -> Held:
        """What the chunk `at` needs of chunk `s` along axis `k`, with what lies beyond that along the axes before."""
        place = self.spatial[k]
        spans = []
        for m, (cuts, p) in enumerate(zip(self.axes, self.spatial, strict=True)):
            reach = cuts.reach[at[p]] if m <= k else cuts.used[at[p]]
            spans.append(meet(reach, cuts.chunk(s)) if m == k else reach)
        shared = any(len(cuts.held) > 2 for cuts in self.axes[k + 1 :])
        box, key, landed = tuple(spans), (self.cut, k, s, *at), (self.cut, len(self.axes) + k, s, *at)
        if key not in self.halos:
            pieces = self._pieces((*at[:place], s, *at[place + 1 :]), box, k)
            if [held for _, held in pieces] == [box]:
                return pieces[0]
            self._cut(key, box, pieces)
            if shared:
                self.halos[landed] = Halo(landed, landing, TaskRef(key), TaskRef((self.source.name, *at)))
        return landed if shared else key, box

    def _cut(self, key: Key, box: Box, pieces: list[Held]) -> Held:
        boxes = tuple(held for _, held in pieces)
        self.halos[key] = Halo(key, halo, self.job, box, boxes, *(TaskRef(k) for k, _ in pieces))
        return key, box

    def _check_gather(self, home: list[int], cells: int, cuts: int) -> None:
        across = prod(self.source.chunks[p][i] for p, i in enumerate(home) if p not in self.spatial)
        size = cells * across * self.source.dtype.itemsize
        if size > self.limit:
            name = self.job.name
            raise PoolGradMemoryError(
                f"a result chunk needs {format_bytes(size)} of {name} from {cuts} cuts of other chunks; poolgrad.gather-limit "
                f"is {format_bytes(self.limit)}. Give {name} longer chunks along the pooled axes and shorter ones along the "
                "others, or raise the limit with dask.config.set"
            )
