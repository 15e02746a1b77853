"""The watch window: Type, Name and Value of a block's pins, arrays unfolded to one row for each element."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import PoolGradError
from .check import property_value
from .grammar import Array, as_text, format_shape
from .page import Block, Page

__all__ = ["Row", "element_rows", "shown", "type_name", "watch"]


@dataclass(frozen=True)
class Row:
    """One row. `name` is the pin, with its sizes (`val[5]`) or an element's place (`val[3]`)."""

    block: str
    type: str
    name: str
    value: str


def type_name(array: Array) -> str:
    """enuSpace's name of a type; the types it has no name for keep their own."""
    names = {"float64": "double", "float32": "float", "int32": "int", "float16": "half"}
    return "string" if array.dtype.kind == "T" else names.get(array.dtype.name, array.dtype.name)


def shown(value: Any) -> str:
    """A value as a cell of the table; a string with control characters in hexadecimal."""
    if isinstance(value, str) and any(ord(c) < 32 and c not in "\t\r\n" for c in value):
        return value.encode("utf-8", "surrogatepass").hex()
    return as_text(value)


def element_rows(block: str, pin: str, array: Array, start: int = 0, stop: int | None = None) -> list[Row]:
    """The rows of the elements `start` to `stop`, row-major: what a window that scrolls needs, however big the array.

    >>> [row.name for row in element_rows("ID_1", "result_output", np.zeros((2, 3)), 2, 4)]
    ['result_output[0][2]', 'result_output[1][0]']
    """
    flat, kind = array.reshape(-1), type_name(array)
    places = range(*slice(start, stop).indices(flat.size))
    return [Row(block, kind, pin + format_shape(map(int, np.unravel_index(k, array.shape))), shown(flat[k])) for k in places]


def _array_rows(block: str, pin: str, array: Array, elements: int) -> list[Row]:
    if array.ndim == 0:
        return [Row(block, type_name(array), pin, shown(array[()]))]
    size = f"{array.size} elements" + (f", the first {elements} shown" if array.size > elements else "")
    head = Row(block, type_name(array), pin + format_shape(array.shape), size)
    return [head, *element_rows(block, pin, array, 0, elements)]


def watch(page: Page, results: Mapping[tuple[str, str], Array], *, elements: int = 100) -> list[Row]:
    """The watch tables of every block of the page, one after another."""
    return [row for block in page.blocks for row in block_rows(block, results, elements=elements)]


def block_rows(block: Block, results: Mapping[tuple[str, str], Array], *, elements: int = 100) -> list[Row]:
    """The watch table of one block: its properties, then its results if it has run."""
    rows: list[Row] = []
    definition = block.definition
    for pin in definition.of_kind("const") if definition else ():
        try:
            value = property_value(block, pin.name)[0]
        except PoolGradError:
            value = None
        if pin.form == "values" and isinstance(value, np.ndarray):
            rows += _array_rows(block.id, pin.name, value, elements)
        else:
            rows.append(Row(block.id, pin.type, pin.name, block.text(pin.name)))
    for pin in definition.of_kind("result") if definition else ():
        if (block.id, pin.name) in results:
            rows += _array_rows(block.id, pin.name, results[block.id, pin.name], elements)
    return rows
