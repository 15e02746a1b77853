"""The array behind a pin: a value that was typed, or one that a run made."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy.typing as npt

from poolgrad.dialects.enuspace.check import property_value
from poolgrad.enuspace import Block, Pin

from .documents import Document
from .failure import Failure

__all__ = ["Array", "array_of", "block_of", "constant"]

Array = npt.NDArray[Any]


def block_of(document: Document, id: str) -> Block:
    for block in document.page.blocks:
        if block.id == id:
            return block
    raise Failure("value", f"there is no block {id[:60]!r} on the page")


def constant(block: Block, name: str) -> Array:
    """The array in a property that holds values."""
    pin = block.pin(name)
    if pin is None:
        raise Failure("value", f"{block.id} has no property {name!r}")
    return _parsed(block.symbol, name, pin.type, pin.shape, pin.value, pin.data, block.text("dtype"))


@lru_cache(maxsize=8)
def _parsed(symbol: str, name: str, type: str, shape: str, value: str, data: bytes | None, dtype: str) -> Array:
    # Scrolling through a long text must not read all of it for every row.
    pins = [Pin(name, "const", "", type, shape, value, data), Pin("dtype", "const", value=dtype)]
    made: Array = property_value(Block("", symbol, pins=pins), name)[0]
    made.flags.writeable = False
    return made


def array_of(document: Document, id: str, pin: str) -> Array:
    """The array of `val`, of an output or of its `result_` twin."""
    block = block_of(document, id)
    defined = block.definition.pin(pin) if block.definition else None
    if defined is None:
        raise Failure("value", f"{id} has no pin {pin[:60]!r} that holds an array")
    if defined.kind == "const":
        if defined.form != "values":
            raise Failure("value", f"{pin} of {id} is a property without elements: its text is all there is")
        return constant(block, pin)
    if defined.kind == "input":
        raise Failure("value", f"{pin} of {id} is an input: watch the block that feeds it")
    if document.run is None:
        raise Failure("value", f"{id}.{pin} has no value: run the page")
    return document.run.value(id, pin)
