"""Kernels written for one pooling: straight-line CUDA in which every addition stands in the contract's order.

A thread makes one tile of the result, for `V` elements along an axis that is contiguous and not summed. It reads each
source cell of its tile once, and no thread needs another. Two forms:

    tile   one to three axes with short intervals, which repeat from tile to tile; cells beyond the edge are -0.0; along the
           first axis the thread may roll on, row by row, with the sums that are open
    line   one axis with long intervals: running sums up and down each block of eight, as few additions as the rule allows;
           where the axis itself is contiguous, lines pass through shared memory so that memory is read and written in order

Sizes and strides are arguments; only what shapes the arithmetic is in the text, so that one text serves many shapes.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...tables import BLOCK
from .pattern import Pattern, Variant

__all__ = ["LINES", "THREADS", "Division", "Kernel", "LineAxis", "Loop", "TileAxis", "line_kernel", "spread_kernel", "staged_kernel", "tile_kernel"]

Array = npt.NDArray[Any]

THREADS = 128
LINES = 64
AHEAD = 16
"""Cells of a line that are asked for before they are needed."""


class Loop(NamedTuple):
    """A dimension that the threads are spread over: its length, its steps in source and result, its counts if any."""

    n: int
    source: int
    out: int
    counts: Array | None = None


class Division(NamedTuple):
    """How a pass divides: not at all, by a power of two, by one number, or by the product of the axes' counts."""

    kind: str = "none"
    first: bool = True
    by: float = 1.0

    def of(self, value: str, d: str, exact: str = "EXACT") -> str:
        if self.kind == "scale":
            return f"scaled({value}, r)"
        if self.kind == "one":
            return f"quotient<{exact}>({value}, one, r, rare)"
        return f"quotient<{exact}>({value}, {d}, reciprocal({d}), rare)"


class Kernel:
    """A kernel being written: its text, and the arguments that go with it."""

    def __init__(self, storage: tuple[str, str], wide: str, vector: int, division: Division, accumulate: bool) -> None:
        self.storage, self.wide, self.vector, self.division, self.accumulate = storage, wide, vector, division, accumulate
        self.blocks = 4  # that a multiprocessor should hold at once: bounds the registers of a thread
        self.lines: list[str] = []
        self.parameters: list[str] = []
        self.arguments: list[Any] = []
        self.names: set[str] = set()
        if division.kind in ("scale", "one"):
            self.argument("double", "one_", division.by)
            self.argument("double", "r_", float(1 / np.dtype("f8" if wide == "double" else "f4").type(division.by)))
            self.say("const A one = (A)one_, r = (A)r_;")

    def argument(self, kind: str, name: str, value: Any) -> str:
        self.parameters.append(f"{kind} {name}")
        self.arguments.append(value)
        return name

    def say(self, line: str) -> None:
        self.lines.append("    " + line)

    def let(self, name: str, value: str) -> str:
        """A vector of accumulators called `name`, once."""
        if name not in self.names:
            self.names.add(name)
            self.say(f"const Acc<A, V> {name} = {value};")
        return name

    @property
    def divides_first(self) -> bool:
        return self.division.kind != "none" and self.division.first

    @property
    def divides_last(self) -> bool:
        return self.division.kind != "none" and not self.division.first

    def text(self, name: str, total: int, exact: bool = False) -> str:
        """The kernel: the work in straight lines, and once more with exact division for the thread that met a rare number.

        `exact` divides so from the start: fewer instructions to compile, more to execute.
        """
        names = ["source", "out", "total", *(parameter.split()[-1] for parameter in self.parameters)]
        kinds = ["const SRC* __restrict__ source", "DST* __restrict__ out", "i64 total", *self.parameters]
        taken, given = ", ".join(kinds), ", ".join(names)
        again_given = given.replace("source", "afresh(source)", 1)
        again = self.division.kind in ("one", "counts") and not self.accumulate and self.wide == "float" and not exact
        body = "\n".join(self.lines)
        return (
            f"{self.types(total)}template <bool EXACT> CONST_FN bool work({taken}) {{\n    bool rare = false;\n"
            "    INDEX index = (INDEX)blockIdx.x * blockDim.x + threadIdx.x;\n    if (index >= total) return false;\n"
            f"{body}\n    return rare;\n}}\n"
            + f'extern "C" __global__ void __launch_bounds__({THREADS}, {self.blocks}) {name}({taken}) {{\n'
            + (f"    if (work<false>({given})) work<true>({again_given});\n}}\n" if again else f"    work<true>({given});\n}}\n")
        )

    def types(self, total: int) -> str:
        source, out = self.storage
        index = "u32" if total < 2**31 else "u64"
        return (
            f"typedef {source} SRC; typedef {out} DST; typedef {self.wide} A; typedef {index} INDEX;\n"
            f"enum {{ V = {self.vector} }};\n"
        )

    def locate(self, loops: list[tuple[str, Loop]]) -> None:
        """Split `index` into the loops' own, fastest first, and move `s` and `d` there; `common` is the counts' product so far."""
        self.say("const SRC* s = source; DST* d = out;")
        counted = ["(A)1"]
        for k, (name, loop) in enumerate(loops):
            n = self.argument("i64", f"n_{name}", loop.n)
            if k + 1 < len(loops):
                self.say(f"const INDEX {name} = index % (INDEX){n}; index /= (INDEX){n};")
            else:
                self.say(f"const INDEX {name} = index;")
            if loop.source:
                self.say(f"s += (i64){name} * {self.argument('i64', f'from_{name}', loop.source)};")
            if loop.out:
                self.say(f"d += (i64){name} * {self.argument('i64', f'to_{name}', loop.out)};")
            if loop.counts is not None and self.division.kind == "counts":
                counted.append(f"{self.argument('const A*', f'count_{name}', loop.counts)}[{name}]")
        if self.division.kind == "counts":
            self.say(f"const A common = {' * '.join(counted)};")

    def finish(self, place: str, value: str, d: str) -> None:
        """The forward's division, `accumulate`, the rounding."""
        if self.divides_last:
            value = self.division.of(value, d)
        if self.accumulate:
            value = f"(load<A, V>({place}) + {value})"
        self.say(f"store({place}, {value});")


def tile_kernel(kernel: Kernel, loops: list[Loop], order: list[int], axes: list[TileAxis]) -> str:
    """Sums over up to three axes. `order` lists loops (>= 0) and the tiles of axes (~k), fastest first."""
    tiles = {~k: Loop(-(-axis.pattern.positions // axis.length), 0, 0) for k, axis in enumerate(axes)}
    named = [(f"q{~k}", tiles[k]) if k < 0 else (f"b{k}", loops[k]) for k in order]
    total = 1
    for _, loop in named:
        total *= loop.n
    kernel.locate(named)
    for k, axis in enumerate(axes):
        _tile_axis(kernel, k, axis)
    _Tile(kernel, axes).write()
    return kernel.text("tile", total)


class TileAxis(NamedTuple):
    """An axis of a tile kernel: which cells a tile needs, where they lie, what they divide by."""

    pattern: Pattern
    source: int
    out: int
    counts: Array | None
    together: bool = False
    """The positions of a tile are contiguous in the result and stored at once."""
    rolled: int = 0
    """So many positions one after the other, by a loop; for tiles of one position that advance by one."""

    @property
    def length(self) -> int:
        return self.rolled or self.pattern.tile


def _tile_axis(kernel: Kernel, k: int, axis: TileAxis) -> None:
    """Names for axis k: `m`, its first cell; `z`, its first position; whether cell j is there; offsets; counts."""
    p, say, argument = axis.pattern, kernel.say, kernel.argument
    if axis.rolled:
        length = argument("i64", f"length{k}", axis.rolled)
        say(f"int z{k} = (int)q{k} * (int){length}; const int m{k} = z{k} + ({p.offset});")
    else:
        say(f"const int m{k} = (int)q{k} * {p.advance} + ({p.offset}), z{k} = (int)q{k} * {p.tile};")
    say(f"s += (i64)m{k} * {argument('i64', f'step{k}', axis.source)}; d += (i64)z{k} * {argument('i64', f'jump{k}', axis.out)};")
    argument("i64", f"rows{k}", p.rows)
    argument("i64", f"positions{k}", p.positions)
    if p.covered is not None:
        argument("i64", f"begin{k}", p.covered[0])
        argument("i64", f"end{k}", p.covered[1])
    if kernel.division.kind == "counts":
        argument("const A*", f"count{k}", axis.counts)
    if not axis.rolled:
        for j in range(p.box):
            _tile_cell(kernel, k, p, j, str(j))


def _tile_cell(kernel: Kernel, k: int, pattern: Pattern, j: int, at: str) -> None:
    """Whether cell `at` of axis k is there, and its count, under the names of cell j."""
    there = f"(u32)(m{k} + {at}) < (u32)rows{k}" if pattern.masked else "true"
    kernel.say(f"const bool is{k}_{j} = {there};")
    if kernel.divides_first and kernel.division.kind == "counts":
        kernel.say(f"const A c{k}_{j} = is{k}_{j} ? count{k}[m{k} + {at}] : (A)1;")


class _Tile:
    """The arithmetic of one tile: the last axis inside, the first outside, each in ascending order."""

    def __init__(self, kernel: Kernel, axes: list[TileAxis]) -> None:
        self.kernel, self.axes = kernel, axes
        self.together = axes[-1].together
        self.hoists = False  # divisors that change only from row to row are kept

    def write(self) -> None:
        if self.axes[0].rolled:
            self._roll()
            return
        first = self.axes[0].pattern
        sums: dict[tuple[int, ...], str] = {}
        done: set[int] = set()
        for j in range(first.box):
            self._add(sums, 0, j, self._sums(1, (j,)))
            for t in range(first.tile):
                if t not in done and first.hi[t] <= j + 1:
                    done.add(t)
                    self._put(t, sums)

    def _roll(self) -> None:
        """Row by row along the first axis: `open` sums wait for their next row, the oldest is finished by this one."""
        kernel, window = self.kernel, self.axes[0].pattern.box
        keys = [key for key in product(*(range(axis.pattern.tile) for axis in self.axes[1:])) if self._has_cells(key)]
        name = {(k, key): "_".join(["open", str(k), *map(str, key)]) for k in range(window - 1) for key in keys}
        for each in name.values():
            kernel.say(f"Acc<A, V> {each} = filled<A, V>((A)-0.0);")
        kernel.say(f"const int rows_here = min((int)length0, (int)positions0 - z0) + {window - 1};")
        cells = list(product((0,), *(range(axis.pattern.box) for axis in self.axes[1:])))
        for at in cells:
            kernel.say(f"Pack<SRC, V> {self._ahead(at)} = {self._load(at, '(u32)m0 < (u32)rows0')};")
        self.hoists = kernel.divides_first and kernel.division.kind == "counts" and len(cells) <= 10 and kernel.vector > 1
        if self.hoists:
            kernel.say("A row_count = (A)0; A " + ", ".join(f"d_{self._name(at)}, r_{self._name(at)}" for at in cells) + ";")
        kernel.say('_Pragma("unroll 2")')
        kernel.say("for (int j = 0; j < rows_here; ++j) {")
        _tile_cell(kernel, 0, self.axes[0].pattern, 0, "j")
        if self.hoists:
            kernel.say("if (c0_0 != row_count) { row_count = c0_0; " + " ".join(
                f"d_{self._name(at)} = {self._divisor(at)}; r_{self._name(at)} = reciprocal(d_{self._name(at)});" for at in cells
            ) + " }")
        for at in cells:
            kernel.let(f"x{self._name(at)}", f"widened<A, V>({self._ahead(at)})")
        kernel.say("s += step0; const bool more = j + 1 < rows_here && (u32)(m0 + j + 1) < (u32)rows0;")
        for at in cells:
            kernel.say(f"{self._ahead(at)} = {self._load(at, 'more')};")
        terms = self._sums(1, (0,))
        done = {key: kernel.let("_".join(["done", *map(str, key)]), f"{name[window - 2, key]} + {terms[key]}") for key in keys}
        for k in reversed(range(1, window - 1)):
            for key in keys:
                kernel.say(f"{name[k, key]} = {name[k - 1, key]} + {terms[key]};")
        for key in keys:
            kernel.say(f"{name[0, key]} = {terms[key]};")
        kernel.say(f"if (j >= {window - 1}) {{")
        self._put(0, {(0, *key): value for key, value in done.items()})
        kernel.say("++z0; d += jump0; } }")

    def _has_cells(self, key: tuple[int, ...]) -> bool:
        return all(axis.pattern.lo[t] < axis.pattern.hi[t] for axis, t in zip(self.axes[1:], key, strict=True))

    def _sums(self, a: int, at: tuple[int, ...]) -> dict[tuple[int, ...], str]:
        """The sums over axes a, a+1, … at these cells of the axes before: one per position of the tile."""
        if a == len(self.axes):
            return {(): self._cell(at)}
        sums: dict[tuple[int, ...], str] = {}
        for j in range(self.axes[a].pattern.box):
            self._add(sums, a, j, self._sums(a + 1, (*at, j)))
        return sums

    def _add(self, sums: dict[tuple[int, ...], str], a: int, j: int, terms: dict[tuple[int, ...], str]) -> None:
        pattern = self.axes[a].pattern
        for t in range(pattern.tile):
            if pattern.lo[t] <= j < pattern.hi[t]:
                for inner, term in terms.items():
                    key = (t, *inner)
                    sums[key] = term if j == pattern.lo[t] else self.kernel.let(f"t{len(self.kernel.names)}", f"{sums[key]} + {term}")

    def _name(self, at: tuple[int, ...]) -> str:
        return "e" + "_".join(map(str, at))

    def _ahead(self, at: tuple[int, ...]) -> str:
        return "ahead" + self._name(at)

    def _load(self, at: tuple[int, ...], first: str) -> str:
        there = " && ".join([first, *(f"is{k}_{j}" for k, j in enumerate(at) if k)])
        offset = " + ".join(f"{j} * step{k}" for k, j in enumerate(at))
        return f"raw_if<V>({there}, s + ({offset}))"

    def _cell(self, at: tuple[int, ...]) -> str:
        name = self._name(at)
        raw = self.kernel.let(f"x{name}", f"widened<A, V>({self._load(at, f'is0_{at[0]}')})")
        if not self.kernel.divides_first:
            return raw
        if self.hoists:
            return self.kernel.let(name, f"quotient<EXACT>({raw}, d_{name}, r_{name}, rare)")
        return self.kernel.let(name, self.kernel.division.of(raw, self._divisor(at)))

    def _divisor(self, at: tuple[int, ...]) -> str:
        return "(" + " * ".join(["common", *(f"c{k}_{j}" for k, j in enumerate(at))]) + ")"

    def _put(self, t: int, sums: dict[tuple[int, ...], str]) -> None:
        """Store what is finished: all positions of the tile at position t of its first axis."""
        rest = [range(axis.pattern.tile) for axis in self.axes[1:]]
        if not self.together:
            for inner in product(*rest):
                self._store((t, *inner), [(t, *inner)], sums)
            return
        if len(self.axes) == 1:
            if t + 1 == self.axes[0].pattern.tile:
                self._store((0,), [(k,) for k in range(t + 1)], sums)
            return
        for inner in product(*rest[:-1]):
            self._store((t, *inner, 0), [(t, *inner, k) for k in rest[-1]], sums)

    def _store(self, begin: tuple[int, ...], keys: list[tuple[int, ...]], sums: dict[tuple[int, ...], str]) -> None:
        kernel = self.kernel
        ragged = [f"z{k} + {t} < positions{k}" for k, t in enumerate(begin) if self.axes[k].pattern.ragged]
        kernel.say(f"if ({' && '.join(ragged) or 'true'}) {{")
        place = "d + (" + " + ".join(f"{t} * jump{k}" for k, t in enumerate(begin)) + ")"
        values = []
        for key in keys:
            value = sums.get(key, "filled<A, V>((A)0)")
            covered = [
                f"z{k} + {t} >= begin{k} && z{k} + {t} < end{k}"
                for k, t in enumerate(key)
                if self.axes[k].pattern.covered is not None and key in sums
            ]
            if covered:
                value = f"({' && '.join(covered)} ? {value} : filled<A, V>((A)0))"
            if kernel.divides_last:
                d = "(" + " * ".join(["common", *(f"count{k}[z{k} + {t}]" for k, t in enumerate(key))]) + ")"
                value = kernel.division.of(value, d)
            values.append(value)
        if len(values) == 1:
            old = f"load<A, V>({place}) + " if kernel.accumulate else ""
            kernel.say(f"store({place}, {old}{values[0]}); }}")
            return
        width = len(values)
        kernel.say(f"Acc<A, {width}> w; " + " ".join(f"w.v[{k}] = ({value}).v[0];" for k, value in enumerate(values)))
        old = f"load<A, {width}>({place}) + " if kernel.accumulate else ""
        kernel.say(f"store({place}, {old}w); }}")


def spread_kernel(kernel: Kernel, step: int, positions: int, total: int) -> str:
    """One source cell to each run of `positions` contiguous elements; a thread's vector may reach into the next run."""
    kernel.argument("i64", "step", step)
    kernel.argument("i64", "positions", positions)
    width, kernel.vector = kernel.vector, 1
    kernel.say(f"const i64 begin = (i64)index * {width}; const INDEX run = (INDEX)begin / (INDEX)positions;")
    kernel.say("const int at = (int)(begin - (i64)run * positions);")
    kernel.say("const SRC* s = source + (i64)run * step;")
    for name, place, there in (("here", "s", "true"), ("next", "s + step", f"at + {width} > positions")):
        value = f"load_if<A, 1>({there}, {place})"
        kernel.let(name, kernel.division.of(value, "") if kernel.division.kind != "none" else value)
    kernel.say(f"Acc<A, {width}> w; _Pragma(\"unroll\") for (int k = 0; k < {width}; ++k) w.v[k] = (at + k < positions ? here : next).v[0];")
    old = f"load<A, {width}>(out + begin) + " if kernel.accumulate else ""
    kernel.say(f"store(out + begin, {old}w);")
    return kernel.text("spread", total * width)


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
    return kernel.text("line", total, exact=True)


class LineAxis(NamedTuple):
    """The axis of a line kernel: the tiles (variant, first cell, first position), and the few ways a tile can look."""

    reach: tuple[int, ...]
    variants: tuple[Variant, ...]
    tiles: tuple[tuple[int, int, int], ...]
    source: int
    out: int
    counts: Array | None
    rows: int


def _line(kernel: Kernel, reach: tuple[int, ...], variant: Variant, tag: str, fetch: Any, ahead: int = 0) -> Iterator[tuple[int, str]]:
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
    """Sums along the contiguous axis: lines go through shared memory, `width` elements at a time. Returns text and shared bytes."""
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
    divide = division.of("one_of(x.v[v])", "((A)begins[2 * LINES + k] * count[at + v])", "true")
    divide = "" if division.kind == "none" else f"x.v[v] = ({divide}).v[0];"
    positions = len(variant.lo)
    pitch = (max(axis.rows, positions) if in_place else axis.rows + positions) | 1
    text = STAGED % {
        "types": kernel.types(total),
        "taken": ", ".join(["const SRC* __restrict__ source", "DST* __restrict__ out", "i64 total", *kernel.parameters]),
        "sizes": f"ROWS = {axis.rows}, POSITIONS = {positions}, PITCH = {pitch}, LINES = {LINES}, MADE = {0 if in_place else axis.rows}",
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


STAGED = """%(types)sextern "C" __global__ void __launch_bounds__(64) staged(%(taken)s) {
    enum { %(sizes)s, WIDTH = %(width)d, DEEP = 8, TAKEN = ROWS / WIDTH, GIVEN = POSITIONS / WIDTH };
    SHARED(begins, i64);
    A* const cells = reinterpret_cast<A*>(begins + 3 * LINES);
    const i64 block0 = (i64)blockIdx.x * LINES;
    const int t = threadIdx.x, lines = (int)min((i64)LINES, total - block0);
    bool rare = false;
    %(one)s
    PHASE(0) if (t < lines) {
        INDEX index = (INDEX)(block0 + t);
%(locate)s
        begins[t] = s - source; begins[LINES + t] = d - out; %(common)s
    }
    PHASE(1) for (int e0 = t; e0 < lines * TAKEN; e0 += LINES * DEEP) {
        Pack<SRC, WIDTH> raw[DEEP];
#pragma unroll
        for (int u = 0; u < DEEP; ++u) {
            const int e = e0 + u * LINES, k = e / TAKEN;
            raw[u] = raw_if<WIDTH>(e < lines * TAKEN, source + begins[k < LINES ? k : 0] + e %% TAKEN * WIDTH);
        }
#pragma unroll
        for (int u = 0; u < DEEP; ++u) {
            const int e = e0 + u * LINES, k = e / TAKEN, at = e %% TAKEN * WIDTH;
            if (e >= lines * TAKEN) break;
            Acc<A, WIDTH> x = widened<A, WIDTH>(raw[u]);
#pragma unroll
            for (int v = 0; v < WIDTH; ++v) { %(before)s cells[k * PITCH + at + v] = x.v[v]; }
        }
    }
    PHASE(2) if (t < lines) {
        A* const line = cells + t * PITCH;
%(work)s
    }
    PHASE(3) for (int e = t; e < lines * GIVEN; e += LINES) {
        const int k = e / GIVEN, at = e %% GIVEN * WIDTH;
        DST* const place = out + begins[LINES + k] + at;
        Acc<A, WIDTH> x;
#pragma unroll
        for (int v = 0; v < WIDTH; ++v) { x.v[v] = cells[k * PITCH + MADE + at + v]; %(after)s }
        store(place, %(old)sx);
    }
}
"""
