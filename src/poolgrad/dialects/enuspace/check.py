"""What is wrong with a property or a page, said so that it can be mended; and what a legal property means.

`check_property` judges one text as it is typed. `check_page` judges everything that can be judged without computing: blocks
we cannot run, wires that may not be, inputs that nothing feeds, loops, sessions without work. What no session needs
cannot spoil a run, so there a mistake is a warning.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import PoolGradError, PoolGradValueError
from .binary import take
from .blocks import BLOCKS, FEED, PinDef
from .grammar import (
    DATATYPES,
    PIN_TYPES,
    PropertyError,
    parse_attrs,
    parse_bool,
    parse_floats,
    parse_ints,
    parse_shape,
    parse_values,
)
from .graph import Graph
from .page import Block, LogEntry, Page, Pin
from .rules import LISTS, pair_refusal

__all__ = ["Verdict", "check_page", "check_property", "property_value"]


@dataclass(frozen=True)
class Verdict:
    """Whether a text is legal; if not, what is wrong and the legal form. Warnings are what enuSpace ignores in silence."""

    ok: bool
    message: str = ""
    legal: str = ""
    warnings: tuple[str, ...] = ()


def check_property(symbol: str, pin: str, text: str, *, type: str = "", shape: str = "") -> Verdict:
    """Judge the text of a property; `type` and `shape` are the pin's own, for a pin that holds a tensor.

    >>> check_property("AvgPool3D", "ksize", "1,2,2,1").message
    "ksize of '1,2,2,1' has 4 items"
    >>> check_property("AvgPool3D", "attrs", "data_format_ = NHWC;").legal
    'data_format_ = NDHWC; or data_format_ = NCDHW;'
    """
    definition = BLOCKS[symbol].pin(pin) if symbol in BLOCKS else None
    if definition is None or definition.kind != "const":
        known = ", ".join(p.name for p in BLOCKS[symbol].of_kind("const")) if symbol in BLOCKS else ""
        raise PoolGradValueError(f"{symbol} has no property {pin!r}" + (f"; it has {known}" if known else ""))
    given = Pin(pin, "const", definition.interface, type or definition.type, shape, text)
    try:
        return Verdict(True, warnings=tuple(_read(definition, given, Block("", symbol, pins=[given]))[1]))
    except PropertyError as error:
        return Verdict(False, error.message, error.legal)


def property_value(block: Block, name: str) -> tuple[Any, list[str]]:
    """What a property of a block means, and warnings: a tuple, an array, a text, or for `attrs` a dict of arguments."""
    definition = BLOCKS[block.symbol].pin(name)
    assert definition is not None
    pin = block.pin(name) or Pin(name, "const", definition.interface, definition.type, "", definition.default)
    return _read(definition, pin, block)


def _read(definition: PinDef, pin: Pin, block: Block) -> tuple[Any, list[str]]:
    text, name = pin.value, pin.name
    if definition.form == "attrs":
        return _attrs(definition, text)
    if definition.form == "values":
        return _values(pin, block), []
    if definition.form == "ints":
        return _ints(definition, text), []
    if definition.form == "floats":
        return _ratios(definition, text), []
    if definition.form == "bool":
        return parse_bool(text or "FALSE", name), []
    if definition.form == "padding":
        return _one_of(name, text, definition.choices), []
    if definition.form == "dtype":
        return _one_of(name, text.strip(), tuple(DATATYPES)), []
    return text, []


def _one_of(name: str, text: str, choices: tuple[str, ...]) -> str:
    if text not in choices:
        raise PropertyError(f"{name} is {text!r}" if text else f"{name} is empty", " or ".join(choices))
    return text


def _count(definition: PinDef, text: str, found: int, legal: str) -> None:
    if found != definition.length:
        said = f"of {text!r} has {found} items" if text.strip() else "is empty"
        raise PropertyError(f"{definition.name} {said}", legal)


def _ints(definition: PinDef, text: str) -> tuple[int, ...]:
    letters, example = ("N,D,H,W,C", "1,2,2,2,1") if definition.length == 5 else ("N,H,W,C", "1,2,2,1")
    legal = f"{definition.length} integers in the order of data_format_ ({letters} by default), such as {example}"
    values = parse_ints(text, legal)
    _count(definition, text, len(values), legal)
    if min(values) < 1 or values[0] != 1:
        raise PropertyError(f"{definition.name} {text!r} must be 1 for the batch and at least 1 elsewhere", legal)
    return values


def _ratios(definition: PinDef, text: str) -> tuple[float, ...]:
    legal = "4 numbers of at least 1 in the order N,H,W,C, the first and the last 1, such as 1.0,1.44,1.73,1.0"
    values = parse_floats(text, legal)
    _count(definition, text, len(values), legal)
    if not all(1 <= value < np.inf for value in values) or values[0] != 1 or values[3] != 1:
        raise PropertyError(f"{definition.name} {text!r} cannot be honoured", legal)
    return values


def _attrs(definition: PinDef, text: str) -> tuple[dict[str, Any], list[str]]:
    given, warnings = parse_attrs(text, definition.keys)
    values: dict[str, Any] = {}
    for key, value in given.items():
        name = key.removesuffix("_")
        if definition.choices:
            legal = " or ".join(f"{key} = {choice};" for choice in definition.choices)
            if value not in definition.choices:
                why = "; enuSpace's own default, NHWC, is for images" if value == "NHWC" else ""
                raise PropertyError(f"{key} is {value!r}{why}", legal)
            values[name] = value
        elif key.startswith("seed"):
            (values[name],) = parse_values(value, np.dtype(np.int64), (1,)).tolist()
        else:
            values[name] = parse_bool(value, key)
    return values, warnings


def _values(pin: Pin, block: Block) -> Any:
    if pin.type not in PIN_TYPES:
        raise PropertyError(f"the type of {pin.name} is {pin.type!r}", " or ".join(PIN_TYPES))
    dtype = DATATYPES[property_value(block, "dtype")[0]] if block.symbol == "Const_ex" else PIN_TYPES[pin.type]
    if pin.data is not None:
        return _retyped(take(pin), dtype, pin)
    return parse_values(pin.value, dtype, parse_shape(pin.shape))


def _retyped(array: Any, dtype: Any, pin: Pin) -> Any:
    """Binary values in the type that dtype asks for, if they survive; enuSpace ignores dtype here."""
    with np.errstate(all="ignore"):
        made = array.astype(dtype)
        kept = dtype.kind != "T" and np.array_equal(made.astype(array.dtype), array, equal_nan=array.dtype.kind == "f")
    if not kept:
        said = f"the binary pin {pin.name} holds {pin.type} values that {dtype} cannot"
        raise PropertyError(said, f"a dtype that fits {pin.type}")
    return made


def check_page(page: Page) -> list[LogEntry]:
    """Everything that is wrong with a page, as far as it shows without a run."""
    graph = Graph(page)
    sessions = [block.id for block in page.blocks if block.symbol == "ClientSession"]
    needed = graph.upstream(sessions)
    found = [*page.notes, *_check_wires(page, graph), *_check_blocks(graph, needed)]
    if not sessions:
        found.append(LogEntry("error", "", "nothing runs: place a ClientSession and wire an output to its fetch_outputs"))
    idle = [id for id in sessions if not any((id, pin) in graph.sources for pin in ("fetch_outputs", "run_outputs"))]
    found += [LogEntry("warning", id, "nothing is wired to it: wire an output to fetch_outputs", "fetch_outputs") for id in idle]
    harmless = set(graph.blocks) - needed
    return [LogEntry("warning", e.block, e.message, e.pin) if e.block in harmless and e.severity == "error" else e for e in found]


def _check_wires(page: Page, graph: Graph) -> Iterator[LogEntry]:
    for wire in page.wires:
        lost = [id for id in (wire.source, wire.target) if id not in graph.blocks]
        if lost:
            yield LogEntry("warning", wire.target, f"the wire {wire} is ignored: there is no block {lost[0]!r}", wire.target_pin)
            continue
        why = pair_refusal(graph.blocks[wire.source], wire.source_pin, graph.blocks[wire.target], wire.target_pin)
        if why:
            yield LogEntry("error", wire.target, f"the wire {wire} is not allowed: {why}", wire.target_pin)
    for (id, name), count in Counter((wire.target, wire.target_pin) for wire in page.wires).items():
        pin = graph.blocks[id].pin(name) if id in graph.blocks else None
        if count > 1 and pin is not None and pin.interface and pin.interface not in LISTS:
            yield LogEntry("error", id, f"{count} wires end at {name}: leave one", name)
    for id in graph.looped:
        yield LogEntry("error", id, "it waits for itself in a loop of wires: remove one of them")


def _check_blocks(graph: Graph, needed: set[str]) -> Iterator[LogEntry]:
    for id, block in graph.blocks.items():
        if block.definition is None:
            known = ", ".join(BLOCKS)
            yield LogEntry("error", id, f"the block {block.symbol or '(no name)'} cannot run here; these can: {known}")
            continue
        for pin in block.definition.pins:
            yield from _check_pin(graph, id, block, pin)
        if id not in needed:
            yield LogEntry("warning", id, "it does not run: no wire leads from it to a ClientSession")
        for given in block.pins:
            if block.definition.pin(given.name) is None:
                yield LogEntry("warning", id, f"{block.symbol} has no pin {given.name!r}: it is ignored", given.name)


def _check_pin(graph: Graph, id: str, block: Block, pin: PinDef) -> Iterator[LogEntry]:
    wired = (id, pin.name) in graph.sources
    if pin.kind == "input" and pin.interface == "Input" and not wired:
        yield LogEntry("error", id, f"nothing is wired to {pin.name}: draw a wire from an output pin to it", pin.name)
    if pin.interface == FEED and wired:
        yield LogEntry("error", id, "feeding values through inputs is not offered: put them into a Const", pin.name)
    if pin.kind == "const":
        try:
            for warning in property_value(block, pin.name)[1]:
                yield LogEntry("warning", id, f"{pin.name}: {warning}", pin.name)
        except PoolGradError as error:
            yield LogEntry("error", id, str(error), pin.name)
