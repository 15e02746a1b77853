"""How a result is cut into boxes: whole chunks of it, as few bytes read twice as the memory allows.

Boxes form a grid, so everything about them is a product over the axes: per axis and extent, how much source all boxes together
read (in whole chunks, where it has chunks) and how much the largest one needs. A few extents per axis are compared, all at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from ..engines import engine
from ..errors import PoolGradMemoryError
from ..geometry import Axis, Pool
from ..layout import spatial_positions
from .store import Box, Source, Target

__all__ = ["Plan", "axis_reads", "needed", "plan"]

BOX_BYTES = 64 << 20
"""Result of one box, if nothing is gained by larger ones: enough to keep a core busy, little to do again."""

SHARED_BYTES = 64 << 20
"""A result below this is made by one worker, with all threads inside each call."""

SEEK_BYTES = 4096
"""What beginning another run in a file costs, in bytes read or written in its place."""

MOST_TRAFFIC = 1.5
"""How much more may pass the store, because more workers have less memory each, than with one worker."""

MOST_CANDIDATES = 1 << 17
MOST_BOXES = 1 << 16
"""Along one axis: each has a place in the tables that boxes are compared by."""


@dataclass(frozen=True)
class Plan:
    """Boxes of `extents`, made by `workers` at once, each with `threads`."""

    extents: tuple[int, ...]
    workers: int
    threads: int
    source_bytes: int
    """The most source that one box needs."""
    result_bytes: int
    reads: int
    """Bytes of the source that all boxes together read."""


def needed(pool: Pool, layout: str, box: Box, *, forwards: bool) -> tuple[Box, Box]:
    """For a box of the result: its region of the spatial axes, and the box of the source it is made from."""
    spatial = spatial_positions(layout, len(box))
    region = tuple(box[p] for p in spatial)
    source = list(box)
    for position, part in zip(spatial, (pool.inputs_for if forwards else pool.cells_for)(region), strict=True):
        source[position] = part
    return region, tuple(source)


def axis_reads(axis: Axis | None, size: int, extent: int, chunk: int, *, forwards: bool) -> tuple[int, int]:
    """Along one axis of the result, cut into runs of `extent`: how much source all of them read, and the most that one needs.

    >>> axis_reads(Axis.regular(8, 3, stride=1, padding=1), 8, 4, 1, forwards=False)
    (10, 5)
    """
    a = np.arange(0, size, extent, dtype=np.int64)
    b = np.minimum(a + extent, size)
    first, last = (a, b) if axis is None else _span(axis, a, b, forwards=forwards)
    last = np.maximum(first, last)
    end = size if axis is None else axis.size if forwards else axis.cells
    whole = np.minimum(-(-last // chunk) * chunk, end) - first // chunk * chunk
    return int(np.where(last > first, whole, 0).sum()), int((last - first).max(initial=0))


def _span(axis: Axis, a: npt.NDArray[np.int64], b: npt.NDArray[np.int64], *, forwards: bool) -> tuple[Any, Any]:
    """The source of the runs `a … b-1` of the result; a little more than that where an axis is dilated."""
    if not axis.cells:
        return a * 0, a * 0
    if forwards:
        low, high = np.minimum.accumulate(axis.start[::-1])[::-1], np.maximum.accumulate(axis.stop)
        return low[a], high[b - 1]
    first = np.searchsorted(np.maximum.accumulate(axis.stop), a, side="right")
    last = np.searchsorted(np.minimum.accumulate(axis.start[::-1])[::-1], b, side="left")
    return first, last


def plan(
    pool: Pool,
    layout: str,
    source: Source,
    target: Target,
    shape: tuple[int, ...],
    *,
    forwards: bool,
    memory: int,
    base: int,
    cores: int,
    extents: tuple[int, ...] | None = None,
) -> Plan:
    """Boxes that fit `memory`, of which the process holds `base` already; `extents` are those of an earlier run."""
    found = _Boxes(pool, layout, source, target, shape, forwards, extents)
    budget = memory - base
    smallest = int(found.memory.min())
    if smallest > budget:
        what = "an earlier run cut it into boxes that do" if extents else "one chunk of it and what it is made from do"
        raise PoolGradMemoryError(
            f"{what} not fit {_mib(memory)}: give a memory of at least {_mib(smallest + base)}"
            + ("" if extents else ", or smaller chunks")
        )
    small = prod(shape) * source.dtype.itemsize <= SHARED_BYTES
    workers = 1 if target.in_order or small else max(1, min(cores, budget // smallest))
    while workers > 1 and found.traffic(budget // workers) > MOST_TRAFFIC * found.traffic(budget):
        workers -= -(-workers // 4)
    return found.best(budget // workers, workers, cores)


def _mib(size: int) -> str:
    return f"{max(0, -(-size // 2**20))}MiB"


class _Boxes:
    """Every candidate grid of boxes and what it costs; the arrays have one element per candidate."""

    def __init__(
        self,
        pool: Pool,
        layout: str,
        source: Source,
        target: Target,
        shape: tuple[int, ...],
        forwards: bool,
        extents: tuple[int, ...] | None,
    ) -> None:
        item = source.dtype.itemsize
        axes: list[Axis | None] = [None] * len(shape)
        for position, spatial in zip(spatial_positions(layout, len(shape)), pool.axes, strict=True):
            axes[position] = spatial
        chunks = source.chunks or (1,) * len(shape)
        self.extents = [extents] if extents else list(_candidates(shape, target, item))
        table = np.array(self.extents, dtype=np.int64).reshape(len(self.extents), len(shape))
        reads, most = np.ones((2, len(table)))
        for k, (axis, size, chunk) in enumerate(zip(axes, shape, chunks, strict=True)):
            known = {e: axis_reads(axis, size, e, chunk, forwards=forwards) for e in set(table[:, k].tolist())}
            both = np.array([known[e] for e in table[:, k].tolist()], dtype=float).reshape(-1, 2)
            reads, most = reads * both[:, 0], most * both[:, 1]
        self.reads, self.source = reads * item, most * item
        self.whole = prod(shape) * item
        self.result = np.minimum(table, shape).prod(axis=1, dtype=float) * item
        self.scratch = scratch = (8 << 20) + self.result / 8
        if engine().__name__.endswith(".numpy"):
            scratch = scratch + 4 * (self.source + self.result) * max(1, 4 // item)
        self.memory = self.source * (1 + source.copies) + self.result + scratch + source.extra + target.extra
        self.cost = self.reads + SEEK_BYTES * self._seeks(table, shape, source, target)

    def _seeks(self, table: Any, shape: tuple[int, ...], source: Source, target: Target) -> Any:
        """Runs of bytes in files without chunks; the source's are counted as if it had the result's shape."""
        flat = (source.chunks is None) + (target.chunks is None)
        whole = np.cumprod((table >= np.array(shape))[:, ::-1], axis=1)[:, ::-1].astype(bool)
        inner = np.where(whole, np.maximum(shape, 1), 1).prod(axis=1, dtype=float)
        last = whole.shape[1] - 1 - whole[:, ::-1].argmin(axis=1)
        inner = inner * np.where(whole.all(axis=1), 1, table[np.arange(len(table)), last])
        return flat * prod(shape) / np.maximum(inner, 1)

    def traffic(self, budget: int) -> float:
        """Bytes that pass the store if every box may take this much memory."""
        return float(self.cost[self.memory <= budget].min()) + self.whole

    def best(self, budget: int, workers: int, cores: int) -> Plan:
        fits = self.memory <= budget
        near = fits & (self.cost <= self.cost[fits].min() * 1.02 + 1)
        small = near & (self.result <= BOX_BYTES)
        key = np.where(small, -self.result, np.inf) if small.any() else np.where(near, self.result, np.inf)
        k = int(key.argmin())
        spare = int((budget - self.memory[k]) // self.scratch[k])
        threads = min(cores, 1 + spare) if workers == 1 else 1
        return Plan(self.extents[k], workers, threads, int(self.source[k]), int(self.result[k]), int(self.reads[k]))


def _candidates(shape: tuple[int, ...], target: Target, item: int) -> Iterator[tuple[int, ...]]:
    """Extents worth comparing: powers of two times the result's chunks, and runs of its elements where that is one too."""
    units = target.chunks or (1,) * len(shape)
    units = tuple(unit * max(1, -(-size // (unit * MOST_BOXES))) for unit, size in zip(units, shape, strict=True))
    choices = [_doubled(unit, size) for unit, size in zip(units, shape, strict=True)]
    if target.chunks is None and (target.in_order or prod(map(len, choices)) > MOST_CANDIDATES):
        yield from _in_order(shape, max(1, BOX_BYTES // item))
    elif prod(map(len, choices)) > MOST_CANDIDATES:
        whole = tuple(row[-1] for row in choices)
        yield from ((*units[:k], *whole[k:]) for k in range(len(units) + 1))
    else:
        yield from product(*choices)


def _doubled(unit: int, size: int) -> list[int]:
    steps = [unit]
    while steps[-1] < size:
        steps.append(steps[-1] * 2)
    return steps


def _in_order(shape: tuple[int, ...], most: int) -> Iterator[tuple[int, ...]]:
    """Boxes that are runs of consecutive elements: some leading extents of 1, one of any size, the others whole."""
    whole = tuple(max(n, 1) for n in shape)
    for k in range(len(shape)):
        inner = prod(whole[k + 1 :])
        if inner <= most or k == len(shape) - 1:
            step = max(1, min(most // inner, whole[k]))
            while step:
                yield (1,) * k + (step, *whole[k + 1 :])
                step //= 2
