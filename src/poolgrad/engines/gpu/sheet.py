"""Two or three axes whose windows slide by one, in one pass through shared memory: the constants of `sheet.cu`.

`tile` reads and divides a cell once for every thread that needs it, and `line` writes the sums of each axis down; here a block
does both once. That pays where windows are long, where arithmetic is the limit (16-bit numbers), and where the last axis is
the contiguous one. Whether the order of additions at the edges is the contract's is checked, not assumed.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from ...tables import BLOCK, Table
from .general import prelude
from .kernel import Array, Kernel, Loop

__all__ = ["Form", "SheetAxis", "Slide", "fits", "form", "sheet_kernel", "slide"]

MOST_STREAM = 16
"""The longest window along the first axis: what a thread must remember lies in its registers."""

SPREAD, ENOUGH, LONGEST = 132 * 6, 1 << 16, 4096
"""Blocks from which on the first axis need not be cut; threads below which short windows are better off with tiles, which have
more of them; positions of an uncut first axis, whose counts lie in shared memory."""


class Slide(NamedTuple):
    """Position i sums cells i + offset … i + offset + window - 1, as far as they exist."""

    offset: int
    window: int

    @property
    def is_long(self) -> bool:
        return self.window > BLOCK


class SheetAxis(NamedTuple):
    """An axis of a sheet: its table, its steps in source and result, and what its cells or positions divide by."""

    slide: Slide
    rows: int
    positions: int
    totals: int
    source: int
    out: int
    counts: Array | None


def slide(table: Table) -> Slide | None:
    """How the table slides, or None if it does not."""
    lo, hi, rows = table.lo, table.hi, table.rows
    if table.base or not (lo < hi).all():
        return None
    window, middle = table.reach[0], int((hi - lo).argmax())
    offset = int(lo[middle]) - middle
    i = np.arange(table.positions)
    if (lo != np.maximum(i + offset, 0)).any() or (hi != np.minimum(i + offset + window, rows)).any():
        return None
    return Slide(offset, window)


Constants = dict[str, Any]
Tree = Any
"""Which cells are added in which order: a cell's number, or a pair of trees; None is nothing."""


def _plus(a: Tree, b: Tree) -> Tree:
    if a is None or b is None:
        return a if b is None else b
    return (a, b) if repr(a) < repr(b) else (b, a)


def _run(cells: Any, rows: int) -> Tree:
    tree = None
    for cell in cells:
        tree = _plus(tree, cell if 0 <= cell < rows else None)
    return tree


def is_steady(slide: Slide, rows: int, positions: int) -> bool:
    """Whether adding in blocks of eight rows as if the axis had no ends is the contract's order at its ends too."""
    near = slide.window + 2 * BLOCK
    for i in {*range(min(near, positions)), *range(max(0, positions - near), positions)}:
        lo, hi = i + slide.offset, i + slide.offset + slide.window
        if _order(max(lo, 0), min(hi, rows), rows) != _order(lo, hi, rows):
            return False
    return True


def _order(lo: int, hi: int, rows: int) -> Tree:
    """The contract's order for an interval of up to eight whole blocks, cells that do not exist left out."""
    first, last = -(-lo // BLOCK), hi // BLOCK
    if first > last:
        return _run(range(lo, hi), rows)
    totals = None
    for block in range(first, last):
        totals = _plus(totals, _run(range(BLOCK * block, BLOCK * block + BLOCK), rows))
    tail, head = _run(range(BLOCK * first - 1, lo - 1, -1), rows), _run(range(BLOCK * last, hi), rows)
    return _plus(_plus(tail, totals), head)


def _fits(axis: SheetAxis, streamed: bool) -> bool:
    """Whether the kernel's order of additions along this axis is the contract's."""
    offset, window = axis.slide
    if not axis.slide.is_long:
        return True
    if streamed:
        return window <= MOST_STREAM and is_steady(axis.slide, axis.rows, axis.positions)
    i = np.arange(axis.positions)
    lo, hi = np.maximum(i + offset, 0), np.minimum(i + offset + window, axis.rows)
    return axis.totals <= BLOCK and bool(((-(-lo // BLOCK) <= hi // BLOCK) | (hi - lo <= 2)).all())


def fits(axes: list[SheetAxis]) -> bool:
    """Whether a sheet can take these axes: any two, or three whose windows are short."""
    if len(axes) == 3 and any(axis.slide.is_long for axis in axes):
        return False
    return len(axes) in (2, 3) and _fits(axes[0], True) and _fits(axes[-1], False)


class Form(NamedTuple):
    """How a block is cut: its lanes, elements of a vector, positions of the middle axis that a thread makes, groups of threads
    along that axis; how many blocks a multiprocessor should hold; rows of a chunk; whether the chunk after next is asked for."""

    lanes: int
    vector: int
    tile: int
    groups: int
    resident: int
    chunk: int
    ahead: bool


class Measured(NamedTuple):
    """What was fastest: elements of a vector, threads of a block, threads that a multiprocessor should hold."""

    vector: int
    threads: int
    resident: int


MEASURED = {
    (True, "deep"): Measured(4, 512, 512),
    (True, "short"): Measured(4, 288, 864),
    (True, "nine"): Measured(2, 512, 1024),
    (True, "long"): Measured(4, 512, 512),
    (False, "deep"): Measured(2, 128, 1024),
    (False, "short"): Measured(2, 160, 960),
    (False, "nine"): Measured(2, 64, 512),
    (False, "long"): Measured(2, 64, 512),
}
"""By whether lanes are channels, and the kind of the axes (on an H200). Small blocks, many at a time, hide each other's waits."""


def form(axes: list[SheetAxis], lanes: int, widest: int, channels: bool, size: int) -> Form | None:
    """How a block is cut; None where too few lanes would fit. `size` is that of an element in bytes."""
    deep, window = len(axes) == 3, axes[0].slide.window
    kind = "deep" if deep else "short" if window <= BLOCK else "nine" if window == BLOCK + 1 else "long"
    vector, threads, resident = MEASURED[channels, kind]
    if size == 8 or (deep and window > 3):
        vector //= 2
    if channels:
        vector = min(vector, widest)
    line = max(axes[-1].rows, axes[-1].positions)
    tile, groups = (min(4, axes[1].positions), min(2, -(-axes[1].positions // 4))) if deep else (1, 1)
    count = max(threads * vector // (line * groups) // vector * vector, vector)
    if channels:
        count = max(1 << (count.bit_length() - 1), 32 // size)  # memory is read in pieces of 32 bytes
    count = min(count, -(-lanes // vector) * vector)
    taken = line * count // vector * groups
    if taken > 1024:
        return None
    is_long = any(axis.slide.is_long for axis in axes)
    chunk = BLOCK if is_long else 4 if channels else 6
    return Form(count, vector, tile, groups, max(1, resident // taken), chunk, channels != is_long)


def sheet_kernel(
    kernel: Kernel, loops: list[Loop], axes: list[SheetAxis], width: int, channels: bool, form: Form, most_shared: int
) -> tuple[str, int, int, int] | None:
    """Text, blocks, threads and shared bytes; None where it does not fit. `loops[0]` are the lanes; the axes go first to last."""
    first, last = axes[0], axes[-1]
    middle = axes[1] if len(axes) == 3 else SheetAxis(Slide(0, 1), 1, 1, 0, 0, 0, None)
    size = 8 if kernel.wide == "double" else 4
    kernel.vector = form.vector
    named = _layout(first, middle, last, form, channels, width)
    threads = -(-named["LINE"] * form.lanes // form.vector * form.groups // 32) * 32
    tiles = -(-middle.positions // (form.tile * form.groups))
    lanes = Loop(-(-loops[0].n // form.lanes), loops[0].source * form.lanes, loops[0].out * form.lanes)
    blocks = lanes.n * tiles * prod(loop.n for loop in loops[1:])
    pieces = _pieces(first, blocks)
    length = -(-first.positions // pieces)
    pieces = -(-first.positions // length)
    named["COUNTS0"] = length + first.slide.window + 3 * BLOCK
    shared = (named["CHUNK"] * named["HIGH"] * named["ROW_STEP"] + named["COUNTS0"] + named["HIGH"] + named["LINE"]) * size
    is_long = any(axis.slide.is_long for axis in axes)
    if shared > most_shared or threads > 1024 or not (is_long or blocks * pieces * threads >= ENOUGH):
        return None
    order = [("g", lanes), ("q1", Loop(tiles, 0, 0)), ("q0", Loop(pieces, 0, 0))]
    order += [(f"b{k}", loop) for k, loop in enumerate(loops[1:])]
    kernel.locate(order)
    for way, step in (("FROM", "source"), ("TO", "out")):
        parts = {"LANE": loops[0], "STREAM": first, "MIDDLE": middle, "ACROSS": last}
        named |= {f"{way}_{name}": f"{getattr(part, step)}ll" for name, part in parts.items()}
    _fill(kernel, first, middle, last, loops[0], form, length)
    return _text(kernel, named | {"THREADS": threads}, blocks * pieces * threads, form.resident), blocks * pieces, threads, shared


def _pieces(axis: SheetAxis, blocks: int) -> int:
    """Into how many pieces the first axis is cut, so that there are blocks enough."""
    pieces = 1
    while axis.positions > pieces * LONGEST or (
        blocks * pieces < SPREAD and axis.positions // (2 * pieces) >= 3 * (axis.slide.window + 5)
    ):
        pieces *= 2
    return pieces


def _layout(first: SheetAxis, middle: SheetAxis, last: SheetAxis, form: Form, channels: bool, width: int) -> Constants:
    """The constants of a text: sizes of windows, and where cells lie in shared memory."""
    long_across, long_stream = last.slide.is_long, first.slide.is_long
    high = form.groups * form.tile + middle.slide.window - 1
    blocks = -(-last.rows // BLOCK)
    line = max(last.positions, BLOCK * blocks) if long_across else max(last.positions, last.rows)
    line = -(-line // BLOCK) * BLOCK if long_across else line
    before = max(0, -last.slide.offset)
    if long_across:
        groups = line // BLOCK
        j_step = (groups + 1) * form.lanes if channels else (groups + (4 - groups) % 8) * form.vector
        row = 16 * j_step + (form.lanes if channels else form.vector)
        steps = {"X_STEP": form.lanes if channels else form.vector, "L_STEP": 1 if channels else row // form.vector}
        steps |= {"J_STEP": j_step, "DOWN": 8 * j_step, "NOTHING": 16 * j_step}
        steps["ROW_STEP"] = row if channels else row * form.lanes // form.vector
    else:
        cells = before + max(last.rows, last.positions + last.slide.offset + last.slide.window - 1)
        steps = {"X_STEP": form.lanes if channels else form.vector, "L_STEP": 1 if channels else cells, "J_STEP": 0}
        steps |= {"DOWN": 0, "NOTHING": 0, "ROW_STEP": cells * form.lanes}
    return steps | {
        "LANES": form.lanes, "LINE": line, "CELLS": last.rows, "POSITIONS": last.positions, "BEFORE": before, "WIDTH": width,
        "ACROSS": last.slide.window, "OFFSET": last.slide.offset, "LONG_ACROSS": int(long_across), "TOTALS": last.totals,
        "STREAM": first.slide.window, "STREAM_OFFSET": first.slide.offset, "LONG_STREAM": int(long_stream),
        "DEPTH": -(-(first.slide.window - 1) // BLOCK) or 1, "MIDDLE": middle.slide.window, "MIDDLE_OFFSET": middle.slide.offset,
        "TILE": form.tile, "GROUPS": form.groups, "HIGH": high, "CHUNK": 1 if high > 1 else form.chunk,
        "CHANNELS": int(channels), "AHEAD": int(form.ahead),
    }


def _fill(kernel: Kernel, first: SheetAxis, middle: SheetAxis, last: SheetAxis, lanes: Loop, form: Form, length: int) -> None:
    """The struct Sheet of a block."""
    sizes = {"n_lanes": lanes.n, "length": length, "rows0": first.rows, "positions0": first.positions}
    for name, value in (sizes | {"rows1": middle.rows, "positions1": middle.positions}).items():
        kernel.argument("i64", name, value)
    kernel.say("sheet.rows0 = (int)rows0; sheet.rows1 = (int)rows1; sheet.positions1 = (int)positions1;")
    kernel.say(f"sheet.lanes = (int)min((i64){form.lanes}, n_lanes - (i64)g * {form.lanes});")
    kernel.say("sheet.begin0 = (int)q0 * (int)length; sheet.end0 = min(sheet.begin0 + (int)length, (int)positions0);")
    kernel.say(f"sheet.begin1 = (int)q1 * {form.tile * form.groups} + ({middle.slide.offset});")
    kernel.say("sheet.common = sheet.one = sheet.r = (A)1; sheet.counts0 = sheet.counts1 = sheet.counts2 = nullptr;")
    if kernel.division.kind == "counts":
        kernel.say("sheet.common = common;")
        for k, axis in enumerate((first, middle, last)):
            if axis.counts is not None:
                kernel.say(f"sheet.counts{k} = {kernel.argument('const A*', f'counts{k}', axis.counts)};")
    elif kernel.division.kind != "none":
        kernel.say("sheet.one = one; sheet.r = r;")


def _text(kernel: Kernel, named: Constants, total: int, resident: int) -> str:
    named = named | {"NO": 0, "SCALE": 1, "ONE": 2, "COUNTS": 3, "FIRST": int(kernel.division.first)}
    named |= {"DIVIDE": ("none", "scale", "one", "counts").index(kernel.division.kind), "ACCUMULATE": int(kernel.accumulate)}
    constants = "".join(f"#define {name} {f'({value})'}\n" for name, value in named.items())
    taken = ", ".join(["const SRC* __restrict__ source", "DST* __restrict__ out", "i64 total", *kernel.parameters])
    return (
        f"{kernel.types(total)}{constants}{prelude('sheet')}"
        f'extern "C" __global__ void __launch_bounds__({named["THREADS"]}, {resident}) sheet({taken}) {{\n'
        "    SHARED(cells, A);\n    Sheet sheet;\n    INDEX index = (INDEX)blockIdx.x;\n"
        + "\n".join(kernel.lines)
        + "\n    sheet_work(cells, s, d, sheet);\n}\n"
    )
