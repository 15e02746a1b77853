"""An exported page: the JSON that enuSpace's plug-in runs.

`object` lists the blocks so that each comes after those that feed it. A pin appears once for each of its wires, with the
other end in `in-symbol-…`. enuSpace writes those words for output pins too; only pins without a wire differ (`out-symbol-…`
and `-pin-type`). Keys that we do not know are kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .binary import cut, positions
from .graph import Graph
from .page import MOST_BLOCKS, MOST_PINS, Block, LogEntry, Page, Pin, Wire
from .xml import FileError, decode, encode

__all__ = ["load", "read_document", "read_json", "write_json"]

PIN_KEYS = ("pin-name", "pin-type", "pin-save", "pin-shape", "pin-interface", "pin-datatype", "pin-initial", "pin-binary-pos")
Wires = dict[tuple[str, str, str, str], Wire]
LINK_WORDS = ("name", "id", "pin-name", "pin-type", "pin-interface")
LINK_KEYS = tuple(f"{way}-symbol-{word}" for way in ("in", "out") for word in LINK_WORDS)


def read_json(data: bytes, name: str = "page", dat: bytes = b"") -> Page:
    """The page in an exported file's bytes. It has no positions: blocks are laid out in columns, sources to the left."""
    return read_document(load(data, name), name, dat)


def load(data: bytes, name: str) -> Any:
    """The JSON in a file's bytes, UTF-16 or UTF-8."""
    text = decode(data, f"page {name!r}")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise FileError(f"page {name!r} is not JSON: {error}") from None


def read_document(document: Any, name: str, dat: bytes) -> Page:
    what = f"page {name!r}"
    objects = document.get("object") if isinstance(document, dict) else None
    if not isinstance(objects, list) or len(objects) > MOST_BLOCKS:
        raise FileError(f"{what} is not an exported page: it needs a list 'object' of at most {MOST_BLOCKS} blocks")
    page = Page(name, json={key: value for key, value in document.items() if key != "object"})
    wires: Wires = {}
    for k, item in enumerate(objects):
        _read_block(page, item, f"block {k + 1} of {what}", wires, dat)
    page.wires = list(wires.values())
    page.check_size()
    _lay_out(page)
    return page


def _read_block(page: Page, item: Any, what: str, wires: Wires, dat: bytes) -> None:
    if not isinstance(item, dict):
        raise FileError(f"{what} is not an object")
    block = Block(_text(item, "id", what), _text(item, "symbol-name", what).removeprefix("#"))
    if not block.id:
        raise FileError(f"{what} has no id; every block needs its own")
    block.json = {key: value for key, value in item.items() if key not in ("id", "symbol-name", "input", "output")}
    for side in ("input", "output"):
        pins = item.get(side, [])
        if not isinstance(pins, list) or len(pins) > 4 * MOST_PINS:
            raise FileError(f"'{side}' of {what} is not a list of at most {MOST_PINS} pins")
        for entry in pins:
            if not isinstance(entry, dict):
                raise FileError(f"a pin of {what} is not an object")
            _read_pin(page, block, entry, side, what, wires, dat)
    page.blocks.append(block)


def _text(item: Mapping[str, Any], key: str, what: str) -> str:
    value = item.get(key, "")
    if isinstance(value, (dict, list)):
        raise FileError(f"'{key}' of {what} is not a text: {str(value)[:40]!r}")
    return str(value)


def _read_pin(page: Page, block: Block, entry: dict[str, Any], side: str, what: str, wires: Wires, dat: bytes) -> None:
    name = _text(entry, "pin-name", what)
    pin = block.pin(name)
    if pin is None:
        interface, type, shape, value = (_text(entry, f"pin-{key}", what) for key in ("interface", "type", "shape", "initial"))
        pin = Pin(name, _kind(block, name, side), interface, type, shape, value)
        pin.json = {key: value for key, value in entry.items() if key not in PIN_KEYS + LINK_KEYS}
        pin.json |= {"pin-datatype": entry["pin-datatype"]} if entry.get("pin-datatype") else {}
        block.pins.append(pin)
        if entry.get("pin-save") == "binary":
            problem = cut(pin, _text(entry, "pin-binary-pos", what), dat)
            if problem:
                pin.json |= {key: entry[key] for key in ("pin-save", "pin-binary-pos") if key in entry}
                page.notes.append(LogEntry("error", block.id, problem, name))
    for way in ("in", "out"):
        other, far = _text(entry, f"{way}-symbol-id", what), _text(entry, f"{way}-symbol-pin-name", what)
        if other:
            ends = (other, far, block.id, name) if side == "input" else (block.id, name, other, far)
            wires.setdefault(ends, Wire(*ends))


def _kind(block: Block, name: str, side: str) -> str:
    defined = block.definition.pin(name) if block.definition else None
    if defined is not None:
        return defined.kind
    return side if side == "input" else "result" if name.startswith("result_") else "output"


def _lay_out(page: Page) -> None:
    graph = Graph(page)
    column = dict.fromkeys(graph.blocks, 0)
    rows: dict[int, int] = {}
    for id in graph.order:
        column[id] = max((column[source] + 1 for source in graph.before[id]), default=0)
    for block in page.blocks:
        row = rows.get(column[block.id], 0)
        block.x, block.y = 100.0 + 240 * column[block.id], 100.0 + 180 * row
        rows[column[block.id]] = row + 1


def write_json(page: Page) -> tuple[bytes, bytes | None]:
    """The page as the bytes of its export and, if a pin is binary, of its `.dat`."""
    graph = Graph(page)
    if graph.looped:
        raise FileError(f"page {page.name!r} cannot be exported: a loop of wires holds {', '.join(graph.looped[:8])}")
    places, dat = positions(page)
    out: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for wire in page.wires:
        out.setdefault((wire.source, wire.source_pin), []).append((wire.target, wire.target_pin))
    objects = []
    for id in graph.order:
        block = graph.blocks[id]
        sides: dict[str, list[dict[str, Any]]] = {"input": [], "output": []}
        for pin in block.pins:
            wired = pin.kind != "result" and bool(out.get((id, pin.name)))
            side = "output" if pin.kind in ("output", "result") or (pin.kind == "" and wired) else "input"
            links = (out if side == "output" else graph.sources).get((id, pin.name), [])
            sides[side] += [_write_pin(pin, places) | _write_link(side, graph, link) for link in links or [("", "")]]
        objects.append({"symbol-name": f"#{block.symbol}", "id": id, **block.json, **sides})
    return encode(json.dumps({**page.json, "object": objects}, indent=1, ensure_ascii=False)), dat


def _write_pin(pin: Pin, places: dict[int, int]) -> dict[str, Any]:
    made: dict[str, Any] = {
        "pin-name": pin.name,
        "pin-type": pin.type,
        "pin-save": "text",
        "pin-shape": pin.shape,
        "pin-interface": pin.interface,
        "pin-datatype": "",
        "pin-initial": pin.value,
        **pin.json,
    }
    return made | ({"pin-save": "binary", "pin-binary-pos": str(places[id(pin)])} if id(pin) in places else {})


def _write_link(side: str, graph: Graph, link: tuple[str, str]) -> dict[str, str]:
    way, last = ("in", "pin-interface") if link[0] else ("in" if side == "input" else "out", "pin-type")
    block = graph.blocks.get(link[0])
    pin = block.pin(link[1]) if block else None
    words = (f"#{block.symbol}" if block else "", *link, pin.interface if pin else "")
    return {f"{way}-symbol-{rest}": word for rest, word in zip(("name", "id", "pin-name", last), words, strict=True)}
