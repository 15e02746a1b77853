"""One to three axes with short intervals, which repeat from tile to tile.

A thread makes one tile of positions on every axis, the last axis inside, the first outside, each sum in ascending order. Cells
beyond the edge are -0.0, so that all tiles have one text. Along the first axis the thread may instead roll on row by row, with
the sums that are open in registers and the next row on its way.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

from .kernel import Array, Kernel, Loop
from .pattern import Pattern

__all__ = ["TileAxis", "tile_kernel"]


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
                    begins = j == pattern.lo[t]
                    sums[key] = term if begins else self.kernel.let(f"t{len(self.kernel.names)}", f"{sums[key]} + {term}")

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
            return self.kernel.let(name, f"exact({raw}, d_{name}, r_{name})")
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
