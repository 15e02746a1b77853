"""What a pooling block does, cell by cell: which inputs a cell is the mean of, and what an input's gradient is made of.

Everything comes from the block's `Pool`, in the forward sense: `input` is what is pooled, `cells` what comes out. A gradient
block has the same windows, read the other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice, product
from math import prod
from typing import Any

import numpy as np

from poolgrad import Axis, Pool
from poolgrad.dialects import tensorflow
from poolgrad.dialects.enuspace.check import property_value
from poolgrad.enuspace import Block, Graph
from poolgrad.layout import spatial_positions

from .arrays import Array, array_of, block_of, constant
from .documents import Document
from .failure import Failure

__all__ = ["Windows", "cell_of", "input_of", "windows_of"]

MOST_CELLS = 4_096
SEQUENCES = ("row_pooling_sequence", "col_pooling_sequence")


@dataclass(frozen=True)
class Side:
    block: str
    pin: str
    shape: tuple[int, ...]


@dataclass(frozen=True)
class Windows:
    """The windows of a block, and the two arrays they lie between."""

    pool: Pool
    layout: str
    input: Side
    cells: Side
    gradient: bool

    def plain(self) -> dict[str, Any]:
        direction = "gradient" if self.gradient else "forward"
        sides = {name: self._side(side) for name, side in (("input", self.input), ("cells", self.cells))}
        return {"direction": direction, "layout": self.layout, **sides, "divisor": self.pool.divisor}

    def _side(self, side: Side) -> dict[str, Any]:
        spatial = list(spatial_positions(self.layout, len(side.shape)))
        return {"block": side.block, "pin": side.pin, "shape": list(side.shape), "spatial": spatial}


def windows_of(document: Document, id: str) -> Windows:
    """The windows of a pooling block, as far as they can be known now."""
    block = block_of(document, id)
    if "Pool" not in block.symbol or block.definition is None:
        raise Failure("value", f"{id} is a {block.symbol}: only pooling blocks have windows")
    graph = Graph(document.page)
    gradient = block.symbol.endswith("Grad")
    arguments = {pin.name: property_value(block, pin.name)[0] for pin in block.definition.of_kind("const")}
    arguments |= arguments.pop("attrs")
    if block.symbol.startswith("Fractional"):
        arguments = _fractional(document, graph, block, arguments, gradient)
    wired = {pin.name: graph.sources.get((id, pin.name), [("", "")])[0] for pin in block.definition.of_kind("input")}
    shape_pin, other = _pins(block)
    if gradient:
        shape = tuple(_value(document, wired[shape_pin], shape_pin).ravel().tolist())
        dy = _value(document, wired[other], other)
        said = tensorflow.read(arguments, shape)
        made = Windows(
            said.pool(shape), said.layout, Side(id, "output", shape), Side(*_shown(document, wired[other]), dy.shape), True
        )
    else:
        shape = _value(document, wired[other], other).shape
        said = tensorflow.read(arguments, shape)
        made = Windows(said.pool(shape), said.layout, Side(*_shown(document, wired[other]), shape), Side(id, "output", ()), False)
    return _fitted(made)


def _pins(block: Block) -> tuple[str, str]:
    """The pin that gives a gradient its shape, and the one that is pooled or spread."""
    assert block.definition is not None
    names = [pin.name for pin in block.definition.of_kind("input") if pin.name != "scope"]
    return names[0], names[1] if len(names) > 1 else names[0]


def _value(document: Document, source: tuple[str, str], pin: str) -> Array:
    id, name = source
    if not id:
        raise Failure("value", f"nothing is wired to {pin}: draw a wire from an output pin to it")
    block = block_of(document, id)
    if block.symbol in ("Const", "Const_ex"):
        return constant(block, "val")
    return array_of(document, id, name)


def _shown(document: Document, source: tuple[str, str]) -> tuple[str, str]:
    """Where a client finds the array that this pin gives: a Const has it without a run."""
    id, pin = source
    return (id, "val") if block_of(document, id).symbol in ("Const", "Const_ex") else (id, pin)


def _fractional(document: Document, graph: Graph, block: Block, arguments: dict[str, Any], gradient: bool) -> dict[str, Any]:
    """A fractional pooling's boundaries: drawn by its own run, or wired in."""
    rows = {}
    for name in SEQUENCES:
        source = graph.sources.get((block.id, name), [("", "")])[0] if gradient else (block.id, name)
        rows[name] = _value(document, source, name).ravel().tolist()
    return {"overlapping": arguments.get("overlapping", False), **rows}


def _fitted(made: Windows) -> Windows:
    """The windows with the shape of their cells; refused where a gradient has another."""
    shape = list(made.input.shape)
    for position, cells in zip(spatial_positions(made.layout, len(shape)), made.pool.output_size, strict=True):
        shape[position] = cells
    if made.gradient and made.cells.shape != tuple(shape):
        raise Failure("value", f"the gradient has the shape {list(made.cells.shape)}, but the pooling has {shape} outputs")
    return Windows(made.pool, made.layout, made.input, Side(made.cells.block, made.cells.pin, tuple(shape)), made.gradient)


def cell_of(pool: Pool, cell: Sequence[int]) -> dict[str, Any]:
    """The inputs that a cell is the mean of, and the weight of each.

    >>> made = cell_of(Pool((Axis.regular(5, 3, stride=2, padding="same"),)), [0])
    >>> made["box"], made["weight"]
    ([{'start': 0, 'stop': 2, 'step': 1}], '1/2')
    """
    _check("cell", cell, pool.output_size)
    parts = list(zip(pool.axes, cell, strict=True))
    box = [_span(int(a.start[o]), max(int(a.stop[o]), int(a.start[o])), a.step) for a, o in parts]
    divisor = pool.divisor or prod(int(a.count[o]) for a, o in parts)
    inputs = prod(len(range(b["start"], b["stop"], b["step"])) for b in box)
    weight = Fraction(1, divisor)
    return {"cell": list(cell), "box": box, "inputs": inputs, "divisor": divisor, "weight": str(weight), "share": float(weight)}


def input_of(pool: Pool, at: Sequence[int]) -> dict[str, Any]:
    """Every cell that an input's gradient comes from, with its share.

    >>> made = input_of(Pool((Axis.regular(5, 3, stride=2, padding="same"),)), [1])
    >>> made["cells"], made["weights"]
    ([[0], [1]], ['1/2', '1/3'])
    """
    _check("input", at, pool.input_size)
    rows = [_cells(axis, i) for axis, i in zip(pool.axes, at, strict=True)]
    counts = [[int(axis.count[o]) for o in row] for axis, row in zip(pool.axes, rows, strict=True)]
    weights = [Fraction(1, pool.divisor or prod(parts)) for parts in islice(product(*counts), MOST_CELLS)]
    cells = [list(cell) for cell in islice(product(*rows), MOST_CELLS)]
    number = prod(len(row) for row in rows)
    total = number / pool.divisor if pool.divisor else prod(sum(1 / n for n in row) for row in counts)
    return {
        "input": list(at),
        "box": [_span(row[0], row[-1] + 1, row[1] - row[0] if len(row) > 1 else 1) if row else _span(0, 0, 1) for row in rows],
        "cells": cells,
        "weights": [str(weight) for weight in weights],
        "shares": [float(weight) for weight in weights],
        "count": number,
        "total": float(total) if number else 0.0,
    }


def _cells(axis: Axis, i: int) -> list[int]:
    covers = (axis.start <= i) & (axis.stop > i) & ((i - axis.start) % axis.step == 0)
    return [int(o) for o in np.flatnonzero(covers)]


def _span(start: int, stop: int, step: int) -> dict[str, int]:
    return {"start": start, "stop": stop, "step": step}


def _check(name: str, given: Sequence[int], sizes: Sequence[int]) -> None:
    if len(given) != len(sizes) or any(not 0 <= k < n for k, n in zip(given, sizes, strict=False)):
        raise Failure("value", f"{name} must be numbers within {list(sizes)}, got {list(given)[:8]}")
