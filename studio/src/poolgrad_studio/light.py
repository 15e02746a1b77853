"""The page as it travels, and the whole page again.

`lighten` leaves out what the client has no use for and gives it a name in the vault; `restore` puts it back. Restoring
what was lightened gives the same page. A wire's line is drawn anew once a block at its end has moved, and is the old line
again when it moves back.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from typing import Any

from poolgrad.enuspace import Block, Page, Pin, Wire

from .failure import Failure
from .limits import LIMITS
from .vault import Vault

__all__ = ["LightBlock", "LightData", "LightPage", "LightPin", "LightWire", "lighten", "restore"]


@dataclass
class LightData:
    ref: str
    bytes: int
    text: bool


@dataclass
class LightPin:
    name: str
    kind: str
    interface: str
    type: str
    shape: str
    value: str
    data: LightData | None = None


@dataclass
class LightBlock:
    id: str
    symbol: str
    x: float
    y: float
    pins: list[LightPin]
    keep: str | None = None


@dataclass
class LightWire:
    source: str
    source_pin: str
    target: str
    target_pin: str
    id: str = ""
    keep: str | None = None

    @property
    def ends(self) -> tuple[str, str, str, str]:
        return self.source, self.source_pin, self.target, self.target_pin


@dataclass
class LightPage:
    name: str
    blocks: list[LightBlock]
    wires: list[LightWire]


Place = tuple[float, float]


@dataclass
class _KeptWire:
    wire: Wire
    places: tuple[Place | None, Place | None]


def lighten(page: Page, vault: Vault) -> LightPage:
    """The page without what stays here."""
    places = {block.id: (block.x, block.y) for block in page.blocks}
    return LightPage(
        page.name,
        [_light_block(block, vault) for block in page.blocks],
        [_light_wire(wire, places, vault) for wire in page.wires],
    )


def light_pin(pin: Pin, vault: Vault) -> LightPin:
    """A pin with its value, or with the name of a big one."""
    value, data = pin.value, None
    if pin.data is not None:
        value, data = "", LightData(vault.store(pin.data), len(pin.data), False)
    elif len(pin.value) > LIMITS["text"]:
        value, data = "", LightData(vault.store(pin.value), len(pin.value), True)
    return LightPin(pin.name, pin.kind, pin.interface, pin.type, pin.shape, value, data)


def _light_block(block: Block, vault: Vault) -> LightBlock:
    rest = dataclasses.replace(block, pins=[Pin(p.name, p.kind, svg=p.svg, json=p.json) for p in block.pins])
    bare = not (block.svg or block.content or block.json or any(pin.svg or pin.json for pin in block.pins))
    name = None if bare else vault.keep(_content([rest.id, *_rest(rest), [[p.name, p.svg, p.json] for p in rest.pins]]), rest)
    pins = [light_pin(pin, vault) for pin in block.pins]
    return LightBlock(block.id, block.symbol, block.x, block.y, pins, name)


def _light_wire(wire: Wire, places: dict[str, Place], vault: Vault) -> LightWire:
    name = None
    if wire.svg or wire.link or wire.content:
        ends = (places.get(wire.source), places.get(wire.target))
        content = [*wire.ends, wire.svg, wire.link, _nodes(wire.content), ends]
        name = vault.keep(_content(content), _KeptWire(wire, ends))
    return LightWire(*wire.ends, wire.id, name)


def _rest(block: Block) -> list[Any]:
    return [block.svg, _nodes(block.content), block.json]


def _nodes(content: list[Any]) -> list[Any]:
    return [item if isinstance(item, str) else item.to_plain() for item in content]


def _content(parts: list[Any]) -> str:
    return json.dumps(parts, sort_keys=True)


def restore(light: LightPage, before: Page, vault: Vault) -> Page:
    """The whole page: `before` gives the drawing around the blocks, the vault what each block and wire had."""
    page = Page(light.name, svg=before.svg, json=before.json, notes=before.notes)
    page.blocks = [_block(block, vault) for block in light.blocks]
    places = {block.id: (block.x, block.y) for block in page.blocks}
    page.wires = [_wire(wire, places, vault) for wire in light.wires]
    page.check_size()
    return page


def _block(light: LightBlock, vault: Vault) -> Block:
    if not light.id:
        raise Failure("value", "a block has no id; every block needs its own")
    kept = vault.kept(light.keep)
    kept = kept if isinstance(kept, Block) else Block("", "")
    rest = {pin.name: pin for pin in kept.pins}
    pins = [_pin(pin, rest.get(pin.name), vault) for pin in light.pins]
    return Block(light.id, light.symbol, light.x, light.y, pins, kept.svg, kept.content, kept.json)


def _pin(light: LightPin, kept: Pin | None, vault: Vault) -> Pin:
    svg, rest = (kept.svg, kept.json) if kept is not None else ({}, {})
    pin = Pin(light.name, light.kind, light.interface, light.type, light.shape, light.value, None, svg, rest)
    if light.data is not None:
        blob = vault.fetch(light.data.ref)
        pin.value, pin.data = (blob, None) if isinstance(blob, str) else ("", blob)
    return pin


def _wire(light: LightWire, places: dict[str, Place], vault: Vault) -> Wire:
    kept = vault.kept(light.keep)
    if not isinstance(kept, _KeptWire) or kept.wire.ends != light.ends:
        return Wire(*light.ends, light.id)
    svg = kept.wire.svg
    if (places.get(light.source), places.get(light.target)) != kept.places:
        svg = {name: value for name, value in svg.items() if name not in ("transform", "points")}
    return Wire(*light.ends, light.id, svg, kept.wire.link, kept.wire.content)
