"""Launches of kernels written for one pooling: tables that repeat, results large enough to be worth a compilation."""

from __future__ import annotations

from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...tables import BLOCK, Sums, Table
from .general import prelude
from .kernel import THREADS, Division, Kernel, Loop, spread_kernel
from .line import LINES, LineAxis, line_kernel, staged_kernel
from .pattern import Pattern, Variants, is_regular, pattern, variants
from .sheet import SheetAxis, fits, form, sheet_kernel, slide
from .tile import TileAxis, tile_kernel
from .view import Launch, Plan, View, dense

__all__ = ["plan"]

MOST_BOX = 100
"""Cells of a tile over all its axes."""

REGISTERS, LINE_REGISTERS = 90, 80
"""What the values of a tile or of a line may take of a thread's registers."""


class Work(NamedTuple):
    """What all passes of a call have in common, and how this one divides."""

    sums: Sums
    spatial: tuple[int, ...]
    wide: np.dtype[Any]
    division: Division
    accumulate: bool
    shared: int

    def counts(self, axis: int) -> npt.NDArray[Any] | None:
        return self.sums.tables[axis].counts.astype(self.wide) if self.division.kind == "counts" else None

    def kernel(self, source: View, out: View, vector: int) -> Kernel:
        wide = "double" if self.wide == np.float64 else "float"
        return Kernel((source.storage, out.storage), wide, vector, self.division, self.accumulate)


class Step(NamedTuple):
    """One pass: the axes it sums, by their place in `spatial`, and for a long axis how it is cut."""

    axes: tuple[int, ...]
    cut: Variants | None


def plan(
    sums: Sums, source: View, out: View, spatial: tuple[int, ...], wide: np.dtype[Any], accumulate: bool, shared: int
) -> Plan | None:
    """The launches, or None where the tables do not allow any. A block may have `shared` bytes of shared memory."""
    steps = _steps(sums.tables)
    division = _division(sums, wide)
    if steps is None or division is None:
        return None
    spread = division.first and division.kind != "counts"
    if spread and (made := _spread(Work(sums, spatial, wide, division, accumulate, shared), source, out)):
        return Plan((made,), ())
    launches: list[Launch] = []
    scratch: list[int] = []
    now = source
    while steps:
        for taken, fused in _choices(steps):
            axes = tuple(axis for step in reversed(steps[:taken]) for axis in step.axes)
            last = taken == len(steps)
            shape = list(now.shape)
            for axis in axes:
                shape[spatial[axis]] = sums.tables[axis].positions
            after = out if last else dense(2 + len(scratch), wide, tuple(shape), out)
            divides = not launches if division.first else last
            divided = division if divides else Division(first=division.first)
            work = Work(sums, spatial, wide, divided, accumulate and last, shared)
            made = _pass(work, axes, None if fused else steps[0].cut, fused, now, after)
            if made is not None:
                break
        else:
            return None
        launches.append(made)
        if not last:
            scratch.append(after.size * wide.itemsize)
        now, steps = after, steps[taken:]
    return Plan(tuple(launches), tuple(scratch))


def _choices(steps: list[Step]) -> list[tuple[int, bool]]:
    """What to try next: so many steps in one pass, through shared memory or not."""
    choices = [(1, False)]
    if len(steps[0].axes) > 1:
        choices.insert(0, (1, True))
    elif len(steps) > 1 and len(steps[1].axes) == 1:
        choices.insert(0, (2, True))
    return choices


def _spread(work: Work, source: View, out: View) -> Launch | None:
    """The gradient of global pooling where the pooled axes are contiguous: one cell fills one run of the result."""
    if any(table.rows != 1 or (table.lo != 0).any() or (table.hi != 1).any() for table in work.sums.tables):
        return None
    run, spatial = 1, work.spatial
    for position in sorted(spatial, key=lambda p: out.strides[p]):
        if out.strides[position] != run:
            return None
        run *= out.shape[position]
    loops = _merged([Loop(out.shape[p], source.strides[p], out.strides[p]) for p in range(len(out.shape)) if p not in spatial])
    width = 16 // out.dtype.itemsize
    if len(loops) != 1 or loops[0].out != run or run < width or out.size % width or out.aligned % 16:
        return None
    kernel = work.kernel(source, out, width)
    text = spread_kernel(kernel, loops[0].source, run, out.size // width)
    return _launch(kernel, text, "spread", out.size // width, source, out)


def _steps(tables: tuple[Table, ...]) -> list[Step] | None:
    """Axes from the last to the first: short neighbours together, up to three; a long one alone."""
    steps: list[Step] = []
    for axis in reversed(range(len(tables))):
        table = tables[axis]
        if not is_regular(table):
            return None
        if table.reach[0] > BLOCK:
            cut = variants(table)
            if cut is None:
                return None
            steps.append(Step((axis,), cut))
        elif steps and steps[-1].cut is None and len(steps[-1].axes) < 3:
            steps[-1] = Step((axis, *steps[-1].axes), None)
        else:
            steps.append(Step((axis,), None))
    return steps


def _division(sums: Sums, wide: np.dtype[Any]) -> Division | None:
    """How this pooling divides; None where the kernels here cannot."""
    if sums.divisor is None:
        least = prod(int(t.counts.min(initial=2**62)) for t in sums.tables)
        most = prod(int(t.counts.max(initial=1)) for t in sums.tables)
    else:
        least = most = sums.divisor
    if least == most > 0 and most & (most - 1) == 0:
        return Division("none" if most == 1 else "scale", sums.divide_first, float(most))
    if least < 1 or most >= (2**21 if wide == np.float32 else 2**53):
        return None
    return Division("counts" if least != most else "one", sums.divide_first, float(most))


def _pass(
    work: Work, axes: tuple[int, ...], cut: Variants | None, fused: bool, source: View, out: View
) -> Launch | None:
    """One pass over these axes, by their place in `spatial`."""
    spatial = work.spatial
    summed = [spatial[axis] for axis in axes]
    counts = {p: work.counts(axis) for axis, p in enumerate(spatial)}
    others = [p for p in range(len(out.shape)) if p not in summed]
    loops = _merged([Loop(out.shape[p], source.strides[p], out.strides[p], counts.get(p)) for p in others])
    steps = [(axis, source.strides[p], out.strides[p]) for axis, p in zip(axes, summed, strict=True)]
    widest = _widest(loops, [s for _, *both in steps for s in both], source, out)
    if fused:
        return _sheet(work, steps, loops, widest, source, out)
    if cut is not None:
        return _line(work, cut, steps[0], loops, widest, source, out)
    return _tile(work, steps, loops, widest, source, out)


def _merged(loops: list[Loop]) -> list[Loop]:
    """Fastest first in the result; dimensions that lie one after the other in both arrays become one."""
    merged: list[Loop] = []
    for loop in sorted(loops, key=lambda loop: (abs(loop.out), -loop.n)):
        below = merged[-1] if merged else None
        if loop.n == 1 and loop.counts is None:
            continue
        if below and _follows(loop, below):
            merged[-1] = Loop(below.n * loop.n, below.source, below.out)
        else:
            merged.append(loop)
    return merged


def _follows(loop: Loop, below: Loop) -> bool:
    counted = loop.counts is not None or below.counts is not None
    return not counted and loop.source == below.n * below.source and loop.out == below.n * below.out


def _widest(loops: list[Loop], strides: list[int], source: View, out: View) -> int:
    """How many elements of the first loop a thread can take at once."""
    if not loops or loops[0].source != 1 or loops[0].out != 1 or loops[0].counts is not None:
        return 1
    return _width([*strides, *(s for loop in loops[1:] for s in (loop.source, loop.out)), loops[0].n], source, out)


def _width(steps: list[int], source: View, out: View) -> int:
    """The most contiguous elements, up to 16 bytes, that divide all these steps and lie aligned in both arrays."""
    width = 16 // max(source.dtype.itemsize, out.dtype.itemsize)
    while any(s % width for s in steps) or any(view.aligned % (width * view.dtype.itemsize) for view in (source, out)):
        width //= 2
    return width


def _narrowed(loops: list[Loop], vector: int) -> list[Loop]:
    if vector == 1:
        return loops
    return [Loop(loops[0].n // vector, vector, vector), *loops[1:]]


def _order(loops: list[Loop], axes: list[int]) -> list[int]:
    """Loops and the tiles of axes (given by their step in the result), fastest first in the result."""
    keyed = [(abs(loop.out), k) for k, loop in enumerate(loops)] + [(abs(step), ~k) for k, step in enumerate(axes)]
    return [k for _, k in sorted(keyed)]


def _launch(
    kernel: Kernel, text: str, name: str, threads: int, source: View, out: View, block: int = THREADS, shared: int = 0
) -> Launch:
    arguments = (source.pointer, out.pointer, threads, *kernel.arguments)
    return Launch(prelude() + text, name, threads, block, shared, arguments)


Axis = tuple[int, int, int]
"""An axis by its place in `spatial`, and its steps in source and result."""


def _sheet(work: Work, axes: list[Axis], loops: list[Loop], widest: int, source: View, out: View) -> Launch | None:
    described = []
    for which, step, jump in axes:
        table = work.sums.tables[which]
        moves = slide(table)
        if moves is None:
            return None
        totals = (*table.reach, 0)[1]
        described.append(SheetAxis(moves, table.rows, table.positions, totals, step, jump, work.counts(which)))
    channels = widest > 1
    if not fits(described) or not (channels or axes[-1][1] == axes[-1][2] == 1):
        return None
    lanes = next((loop for loop in loops if loop.counts is None), Loop(1, 0, 0))
    loops = [lanes, *(loop for loop in loops if loop is not lanes)]
    chosen = form(described, loops[0].n, widest, channels, source.dtype.itemsize)
    if chosen is None:
        return None
    others = [loop.source for loop in loops] + [step for _, step, _ in axes[:-1]]
    width = _width([8, described[-1].rows, *others], source, source)
    kernel = work.kernel(source, out, chosen.vector)
    made = sheet_kernel(kernel, loops, described, width, channels, chosen, work.shared)
    if made is None:
        return None
    text, blocks, threads, shared = made
    return _launch(kernel, text, "sheet", blocks * threads, source, out, threads, shared)


def _line(
    work: Work, cut: Variants, axis: Axis, loops: list[Loop], widest: int, source: View, out: View
) -> Launch | None:
    which, step, jump = axis
    table, wide = work.sums.tables[which], work.wide
    shape = LineAxis(table.reach, cut.looks, cut.tiles, step, jump, work.counts(which), table.rows)
    if step == jump == 1 and widest == 1:
        if len(cut.tiles) > 1 or table.rows + table.positions > 640:
            return None
        kernel = work.kernel(source, out, 1)
        width = _width([table.rows, table.positions, *(s for loop in loops for s in (loop.source, loop.out))], source, out)
        text, shared = staged_kernel(kernel, loops, _order(loops, []), shape, width)
        if shared > work.shared:
            return None
        return _launch(kernel, text, "staged", prod(loop.n for loop in loops), source, out, LINES, shared)
    words = wide.itemsize // 4
    vector = widest
    while vector > 1 and vector * words * (cut.open_cells + 12) > LINE_REGISTERS:
        vector //= 2
    loops = _narrowed(loops, vector)
    kernel = work.kernel(source, out, vector)
    text = line_kernel(kernel, loops, _order(loops, [jump]), shape)
    return _launch(kernel, text, "line", prod(loop.n for loop in loops) * len(cut.tiles), source, out)


def _tile(work: Work, axes: list[Axis], loops: list[Loop], widest: int, source: View, out: View) -> Launch | None:
    tables, wide, division = tuple(work.sums.tables[which] for which, _, _ in axes), work.wide, work.division
    outer = prod(loop.n for loop in loops)
    inner_axis = widest == 1 and axes[-1][2] == 1
    best: tuple[float, Lanes, tuple[Pattern, ...], int] | None = None
    if len(axes) == 3 and all(table.reach[0] == 1 for table in tables):  # one cell fills a cube: narrow vectors store in order
        widest = min(widest, max(1, 8 // out.dtype.itemsize))
    for vector in sorted({widest, max(widest // 2, 1), max(widest // 4, 1)}):
        for chosen in product(*(_patterns(table) for table in tables)):
            if inner_axis and chosen[-1].tile > 1 and not _stores_together(chosen[-1].tile, tables[-1], axes, loops, out):
                continue
            for rolled in _rolls(chosen):
                lanes = Lanes(vector, vector * wide.itemsize // 4, source.dtype.itemsize * vector, outer // vector)
                cost = _cost(chosen, rolled, lanes, division)
                if cost is not None and (best is None or cost < best[0]):
                    best = (cost, lanes, chosen, rolled)
    if best is None:
        return None
    _, lanes, chosen, rolled = best
    loops = _narrowed(loops, lanes.vector)
    kernel = work.kernel(source, out, lanes.vector)
    kernel.blocks = _blocks(_registers(chosen, rolled, lanes))
    rows = zip(axes, chosen, strict=True)
    described = [TileAxis(p, step, jump, work.counts(which)) for (which, step, jump), p in rows]
    described[-1] = described[-1]._replace(together=inner_axis and chosen[-1].tile > 1)
    described[0] = described[0]._replace(rolled=rolled)
    text = tile_kernel(kernel, loops, _order(loops, [jump for _, _, jump in axes]), described)
    threads = prod(loop.n for loop in loops) * prod(-(-axis.pattern.positions // axis.length) for axis in described)
    return _launch(kernel, text, "tile", threads, source, out)


def _rolls(chosen: tuple[Pattern, ...]) -> list[int]:
    """Ways to take the first axis: 0, tile by tile; else so many positions row by row, if the windows slide by one row."""
    first, n = chosen[0], chosen[0].positions
    if first.tile > 1 or first.advance != 1 or first.box < 2 or len(chosen) < 2:
        return [0]
    return [0, *sorted({-(-n // parts) for parts in (1, 2, 3, 4, 8) if n >= 4 * first.box * parts or parts == 1})]


def _patterns(table: Table) -> list[Pattern]:
    wanted = {1, 2, 3, 4, 6, 7, 8, 9, 12, 16, table.positions}
    found = [pattern(table, tile) for tile in sorted(wanted) if tile <= min(16, table.positions)]
    return [p for p in found if p is not None]


def _stores_together(tile: int, table: Table, axes: list[Axis], loops: list[Loop], out: View) -> bool:
    steps = [jump for _, _, jump in axes[:-1]] + [loop.out for loop in loops]
    size = tile * out.dtype.itemsize
    fits = size in (4, 8, 16) and table.positions % tile == 0
    return fits and all(step % tile == 0 for step in steps) and out.aligned % size == 0


class Lanes(NamedTuple):
    """A thread's vector: its elements, its registers of accumulators, the bytes of a load; and how many vectors there are."""

    vector: int
    words: int
    load: int
    vectors: int


def _cost(chosen: tuple[Pattern, ...], rolled: int, lanes: Lanes, division: Division) -> float | None:
    """Instructions per element of the result, roughly; None where a tile needs too many registers or too long a text."""
    first, rest = chosen[0], chosen[1:]
    slice_box, slice_tile = prod(p.box for p in rest), prod(p.tile for p in rest)
    rows = rolled + first.box - 1 if rolled else first.box
    box, tile = rows * slice_box, (rolled or first.tile) * slice_tile
    text = slice_box * (2 if rolled else rows)
    registers = _registers(chosen, rolled, lanes)
    if text > MOST_BOX or registers > REGISTERS:
        return None
    divide = {"none": 0, "scale": 1, "one": 6, "counts": 6}[division.kind]
    per_cell = {"counts": 5}.get(division.kind, 0) + 6
    adds = sum(prod(p.tile for p in rest[k:]) * prod(p.box for p in rest[:k]) * 2 for k in range(len(rest))) * rows + 2 * tile
    lane_work = box * (1 + divide if division.first else 1) + adds + tile * (2 if division.first else 2 + divide)
    work = lanes.words * lane_work + per_cell * box + 4 * tile + 40
    threads = lanes.vectors * prod(-(-p.positions // p.tile) for p in rest) * -(-first.positions // (rolled or first.tile))
    waste = prod(-(-p.positions // p.tile) * p.tile / p.positions for p in rest)
    waste *= -(-first.positions // (rolled or first.tile)) * (rolled or first.tile) / first.positions
    crowd = max(1.0, 132 * 1024 / max(threads, 1)) ** 0.5
    large = max(1.0, registers / 48, text / 48) ** 0.5 * (1 if rolled else max(1.0, tile * lanes.words / 16) ** 0.2)
    narrow = max(1.0, 8 / lanes.load) ** 0.5
    return float((work / (tile * lanes.words) + 12 * box / tile) * waste * crowd * large * narrow)


def _registers(chosen: tuple[Pattern, ...], rolled: int, lanes: Lanes) -> int:
    """What the raw cells and the open sums of a thread take; the rest of its work takes some more."""
    first, rest = chosen[0], chosen[1:]
    raw = prod(p.box for p in rest) * max(lanes.load // 4, 1) * (2 if rolled else 1)
    return raw + (first.box if rolled else first.at_once) * prod(p.tile for p in rest) * lanes.words


def _blocks(registers: int) -> int:
    """Blocks that a multiprocessor should hold at once: as many as do not make the compiler spill."""
    return 8 if registers <= 24 else 4 if registers <= 60 else 3
