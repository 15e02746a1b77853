"""Where a Dask result is cut along each axis, and which source chunks each part of it needs.

A result position belongs to the source chunk that holds the middle of what it needs, so result chunks follow the source's.
All positions are those of the whole axis: a span means the same in the graph, in a halo and in the tables.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple

import numpy as np
from dask import config
from dask.utils import parse_bytes

from ..geometry import Pool
from ..tables import Ints

__all__ = ["Box", "Cuts", "Span", "cut_axes", "hull", "length", "meet", "volume"]

Span = tuple[int, int]
Box = tuple[Span, ...]


def length(span: Span) -> int:
    return span[1] - span[0]


def volume(box: Box) -> int:
    return prod(b - a for a, b in box)


def meet(a: Span, b: Span) -> Span:
    """What two spans have in common; of length 0 if that is nothing."""
    first = max(a[0], b[0])
    return first, max(first, min(a[1], b[1]))


def hull(a: Span, b: Span) -> Span:
    return min(a[0], b[0]), max(a[1], b[1])


class Cuts(NamedTuple):
    """One spatial axis: the chunks of source and result, and who needs what."""

    held: list[int]
    """Edges of the source chunks."""
    made: list[Span]
    """The result chunks."""
    need: list[Span]
    """The source positions that each result chunk is made of."""
    home: list[int]
    """The source chunk that holds most of them."""
    reach: dict[int, Span]
    """Per home, all that its result chunks need."""
    used: dict[int, Span]
    """Per source chunk, all of it that anybody needs."""

    def chunk(self, s: int) -> Span:
        return self.held[s], self.held[s + 1]

    def chunks(self, span: Span) -> list[int]:
        """The source chunks that hold anything of `span`."""
        near = range(bisect_right(self.held, span[0]) - 1, bisect_left(self.held, span[1]))
        return [s for s in near if length(meet(span, self.chunk(s))) > 0]


def cut_axes(
    pool: Pool,
    chunks: Sequence[Sequence[int]],
    itemsize: int,
    spatial: tuple[int, ...],
    region: Sequence[slice] | None,
    forwards: bool,
) -> list[Cuts]:
    """The cuts of every axis; `chunks` are the source's, which holds just what `region` of the result needs."""
    whole = [slice(0, n) for n in (pool.output_size if forwards else pool.input_size)]
    parts = [(part.start, part.stop) for part in region or whole]
    origins = [0] * len(parts)
    if region is not None:
        origins = [part.start for part in (pool.inputs_for if forwards else pool.cells_for)(region)]
    needs = [(axis.start, axis.stop) if forwards else axis.over for axis in pool.axes]
    held = [[origin, *(origin + np.cumsum(chunks[p])).tolist()] for origin, p in zip(origins, spatial, strict=True)]
    made = [_owned(*need, part, edges) for need, part, edges in zip(needs, parts, held, strict=True)]
    largest = prod(map(max, chunks))
    across = prod(max(row) for p, row in enumerate(chunks) if p not in spatial)
    most = max(parse_bytes(config.get("array.chunk-size")) // itemsize, largest)
    return [_cuts(*row) for row in zip(needs, held, _shortened(made, most // max(across, 1)), strict=True)]


def _owned(first: Ints, last: Ints, part: Span, held: list[int]) -> list[int]:
    """Edges of the result chunks that follow the source's."""
    a, b = part
    if a >= b:
        return [a, a]
    middle = np.maximum.accumulate((first[a:b] + np.maximum(first[a:b], last[a:b]) - 1) // 2)
    return sorted({a, b, *(a + np.searchsorted(middle, held[1:-1])).tolist()})


def _shortened(made: list[list[int]], most: int) -> list[list[int]]:
    """Where a result chunk would have far more elements than its source: cut it further, the longest axes first."""
    longest = [max(map(length, pairwise(edges))) for edges in made]
    while prod(longest) > most and max(longest) > 1:
        k = longest.index(max(longest))
        longest[k] = -(-longest[k] // 2)
    return [_evenly(edges, limit) for edges, limit in zip(made, longest, strict=True)]


def _evenly(edges: list[int], longest: int) -> list[int]:
    cut = edges[:1]
    for a, b in pairwise(edges):
        n = max(1, -(-(b - a) // max(longest, 1)))
        cut += [a + (b - a) * k // n for k in range(1, n + 1)]
    return cut


def _cuts(need: tuple[Ints, Ints], held: list[int], edges: list[int]) -> Cuts:
    made = list(pairwise(edges))
    cuts = Cuts(held, made, [_needed(*need, span) for span in made], [], {}, {})
    for span in cuts.need:
        home = max(cuts.chunks(span), key=lambda s: length(meet(span, cuts.chunk(s))), default=0)
        cuts.home.append(home)
        cuts.reach[home] = hull(span, cuts.reach.get(home, span))
    for span in cuts.reach.values():
        for s in cuts.chunks(span):
            part = meet(span, cuts.chunk(s))
            cuts.used[s] = hull(part, cuts.used.get(s, part))
    return cuts


def _needed(first: Ints, last: Ints, span: Span) -> Span:
    lo, hi = first[slice(*span)], last[slice(*span)]
    full = lo < hi
    return (int(lo[full].min()), int(hi[full].max())) if full.any() else (0, 0)
