"""One axis with long intervals: running sums up and down each block of eight, as few additions as the rule allows.

`line`: a thread takes a tile of positions; the few ways in which tiles differ (at the edges) are texts of their own.
`staged`: the same where the axis itself is contiguous. Lines pass through shared memory, so that device memory is read and
written in order, sixteen bytes at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from ...tables import BLOCK
from .kernel import Array, Division, Kernel, Loop
from .pattern import Variant

__all__ = ["LINES", "LineAxis", "line_kernel", "staged_kernel"]

LINES = 64
"""Lines, and threads, of a block that stages."""

AHEAD = 16
"""Cells of a line that are asked for before they are needed."""


class Cells:
    """The sums of one line as few additions: prefixes and suffixes of every block, made when first needed."""

    def __init__(self, kernel: Kernel, reach: tuple[int, ...], tag: str) -> None:
        self.kernel, self.reach, self.tag = kernel, reach, tag

    def cell(self, level: int, j: int) -> str:
        if level:
            return self.up(level - 1, BLOCK * j, BLOCK * j + BLOCK)
        return f"c{self.tag}{j}"

    def up(self, level: int, lo: int, hi: int) -> str:
        """Cells lo … hi-1 upwards."""
        name = self.cell(level, lo)
        for j in range(lo + 1, hi):
            name = self.kernel.let(f"u{self.tag}{level}_{lo}_{j}", f"{name} + {self.cell(level, j)}")
        return name

    def down(self, level: int, lo: int, hi: int) -> str:
        """Cells hi-1 … lo downwards."""
        name = self.cell(level, hi - 1)
        for j in reversed(range(lo, hi - 1)):
            name = self.kernel.let(f"v{self.tag}{level}_{hi}_{j}", f"{name} + {self.cell(level, j)}")
        return name

    def interval(self, level: int, lo: int, hi: int) -> str:
        """The contract's sum: (tail + blocks) + head."""
        first, last = -(-lo // BLOCK), hi // BLOCK
        if self.reach[level] <= BLOCK or first > last:
            return self.up(level, lo, hi)
        parts = []
        if lo < first * BLOCK:
            parts.append(self.down(level, lo, first * BLOCK))
        if first < last:
            parts.append(self.interval(level + 1, first, last))
        if last * BLOCK < hi:
            parts.append(self.up(level, last * BLOCK, hi))
        name = parts[0]
        for part in parts[1:]:
            name = self.kernel.let(f"w{name}{part}", f"{name} + {part}")
        return name


def line_kernel(kernel: Kernel, loops: list[Loop], order: list[int], axis: LineAxis) -> str:
    """Sums along one axis, a tile of positions a thread; `order` lists loops (>= 0) and the tiles (-1), fastest first."""
    tiles = axis.tiles
    named = [("q", Loop(len(tiles), 0, 0)) if k < 0 else (f"b{k}", loops[k]) for k in order]
    total = 1
    for _, loop in named:
        total *= loop.n
    kernel.locate(named)
    step, jump = kernel.argument("i64", "step", axis.source), kernel.argument("i64", "jump", axis.out)
    kernel.argument("const int*", "tiles", np.array(tiles, dtype=np.int32))
    kernel.say("const int kind = tiles[3 * q], m = tiles[3 * q + 1], z = tiles[3 * q + 2];")
    kernel.say(f"s += m * {step}; d += z * {jump};")
    if kernel.division.kind == "counts":
        kernel.argument("const A*", "count", axis.counts)
    for k, variant in enumerate(axis.variants):
        kernel.say(f"if (kind == {k}) {{")
        for i, value in _line(kernel, axis.reach, variant, f"k{k}_", lambda j: f"load<A, V>(s + {j} * {step})", AHEAD):
            kernel.finish(f"d + {i} * {jump}", value, f"(common * count[z + {i}])")
        kernel.say("}")
    return kernel.text("line", total)


class LineAxis(NamedTuple):
    """The axis of a line kernel: the tiles (variant, first cell, first position), and the few ways a tile can look."""

    reach: tuple[int, ...]
    variants: tuple[Variant, ...]
    tiles: tuple[tuple[int, int, int], ...]
    source: int
    out: int
    counts: Array | None
    rows: int


def _line(
    kernel: Kernel, reach: tuple[int, ...], variant: Variant, tag: str, fetch: Any, ahead: int = 0
) -> Iterator[tuple[int, str]]:
    """The sums of one line, position by position; cells are fetched a little before they are needed."""
    cells, fetched, end = Cells(kernel, reach, tag), 0, max(variant.hi)
    for i, (lo, hi) in enumerate(zip(variant.lo, variant.hi, strict=True)):
        for j in range(max(fetched, lo), min(hi + ahead, end)):
            value = kernel.let(f"x{tag}{j}", fetch(j))
            if kernel.divides_first:
                value = kernel.division.of(value, f"(common * count[m + {j}])")
            kernel.let(f"c{tag}{j}", value)
        fetched = max(fetched, min(hi + ahead, end))
        yield i, cells.interval(0, lo, hi) if lo < hi else "filled<A, V>((A)0)"


def _in_place(variant: Variant) -> bool:
    """Whether every cell has been read by the time its place is written."""
    return all(max(variant.hi[: i + 1]) > i for i in range(min(len(variant.hi), max(variant.hi))))


def staged_kernel(kernel: Kernel, loops: list[Loop], order: list[int], axis: LineAxis, width: int) -> tuple[str, int]:
    """Sums along the contiguous axis, `width` elements of a line at a time. Returns the text and the shared bytes."""
    (variant,) = axis.variants
    in_place = _in_place(variant)
    total = 1
    for loop in loops:
        total *= loop.n
    kernel.locate([(f"b{k}", loops[k]) for k in order])
    locate, kernel.lines = kernel.lines, []
    division, counted = kernel.division, kernel.division.kind == "counts"
    if counted:
        kernel.argument("const A*", "count", axis.counts)
    kernel.division = Division()
    for i, value in _line(kernel, axis.reach, variant, "", lambda j: f"load<A, V>(line + {j})"):
        kernel.say(f"store(line{'' if in_place else ' + ROWS'} + {i}, {value});")
    divide = _divided(division)
    positions = len(variant.lo)
    pitch = (max(axis.rows, positions) if in_place else axis.rows + positions) | 1
    made = 0 if in_place else axis.rows
    text = STAGED % {
        "types": kernel.types(total),
        "taken": ", ".join(["const SRC* __restrict__ source", "DST* __restrict__ out", "i64 total", *kernel.parameters]),
        "sizes": f"ROWS = {axis.rows}, POSITIONS = {positions}, PITCH = {pitch}, LINES = {LINES}, MADE = {made}",
        "width": width,
        "one": "const A one = (A)one_, r = (A)r_;" if division.kind in ("one", "scale") else "",
        "locate": "\n".join(locate),
        "work": "\n".join(kernel.lines),
        "common": "begins[2 * LINES + t] = (i64)common;" if counted else "",
        "before": divide if division.first else "",
        "after": "" if division.first else divide,
        "old": "load<A, WIDTH>(place) + " if kernel.accumulate else "",
    }
    return text, LINES * pitch * (8 if kernel.wide == "double" else 4) + 24 * LINES


def _divided(division: Division) -> str:
    """The vector y is x, divided."""
    if division.kind == "none":
        return ""
    quotient = division.of("one_of(x.v[v])", "((A)begins[2 * LINES + k] * count[at + v])", "checked")
    return f'_Pragma("unroll") for (int v = 0; v < WIDTH; ++v) y.v[v] = ({quotient}).v[0];'


STAGED = """%(types)sextern "C" __global__ void __launch_bounds__(64) staged(%(taken)s) {
    enum { %(sizes)s, WIDTH = %(width)d, DEEP = 8, TAKEN = ROWS / WIDTH, GIVEN = POSITIONS / WIDTH };
    SHARED(begins, i64);
    A* const cells = reinterpret_cast<A*>(begins + 3 * LINES);
    const i64 block0 = (i64)blockIdx.x * LINES;
    const int t = threadIdx.x, lines = (int)min((i64)LINES, total - block0);
    %(one)s
    if (t < lines) {
        INDEX index = (INDEX)(block0 + t);
%(locate)s
        begins[t] = s - source; begins[LINES + t] = d - out; %(common)s
    }
    __syncthreads();
    for (int e0 = t; e0 < lines * TAKEN; e0 += LINES * DEEP) {
        Pack<SRC, WIDTH> raw[DEEP];
#pragma unroll
        for (int u = 0; u < DEEP; ++u) {
            const int e = e0 + u * LINES, k = e / TAKEN;
            raw[u] = raw_under<WIDTH>(e < lines * TAKEN, source + begins[k < LINES ? k : 0] + e %% TAKEN * WIDTH);
        }
#pragma unroll
        for (int u = 0; u < DEEP; ++u) {
            const int e = e0 + u * LINES, k = e / TAKEN, at = e %% TAKEN * WIDTH;
            if (e >= lines * TAKEN) break;
            const Acc<A, WIDTH> x = widened<A, WIDTH>(raw[u]);
            Acc<A, WIDTH> y = x;
%(before)s
#pragma unroll
            for (int v = 0; v < WIDTH; ++v) cells[k * PITCH + at + v] = y.v[v];
        }
    }
    __syncthreads();
    if (t < lines) {
        A* const line = cells + t * PITCH;
%(work)s
    }
    __syncthreads();
    for (int e = t; e < lines * GIVEN; e += LINES) {
        const int k = e / GIVEN, at = e %% GIVEN * WIDTH;
        DST* const place = out + begins[LINES + k] + at;
        Acc<A, WIDTH> x;
#pragma unroll
        for (int v = 0; v < WIDTH; ++v) x.v[v] = cells[k * PITCH + MADE + at + v];
        Acc<A, WIDTH> y = x;
%(after)s
        store(place, %(old)sy);
    }
}
"""
