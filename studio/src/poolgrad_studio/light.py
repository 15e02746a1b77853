"""The page as it travels, and the whole page again.

`lighten` leaves out what the client has no use for and gives it a name in the vault; `restore` puts it back. Restoring
what was lightened gives the same page. A wire's line is drawn anew once a block at its end has moved, and is the old line
again when it moves back.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import lru_cache

from poolgrad.enuspace import Block, Page, Pin, Wire

from .failure import Failure
from .limits import LIMITS
from .vault import Vault

__all__ = ["LightBlock", "LightData", "LightPage", "LightPin", "LightWire", "keep", "kept", "light_pin", "lighten", "restore"]

Place = tuple[float, float]


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
    data: LightData | None


@dataclass
class LightBlock:
    id: str
    symbol: str
    x: float
    y: float
    pins: list[LightPin]
    keep: str | None


@dataclass
class LightWire:
    source: str
    source_pin: str
    target: str
    target_pin: str
    id: str
    keep: str | None

    @property
    def ends(self) -> tuple[str, str, str, str]:
        return self.source, self.source_pin, self.target, self.target_pin


@dataclass
class LightPage:
    name: str
    blocks: list[LightBlock]
    wires: list[LightWire]


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
    name = None
    if block.svg or block.content or block.json or any(pin.svg or pin.json for pin in block.pins):
        rest = [Pin(pin.name, pin.kind, svg=pin.svg, json=pin.json) for pin in block.pins]
        name = keep(Page("", [replace(block, pins=rest, x=0.0, y=0.0)]), vault)
    pins = [light_pin(pin, vault) for pin in block.pins]
    return LightBlock(block.id, block.symbol, block.x, block.y, pins, name)


def _light_wire(wire: Wire, places: dict[str, Place], vault: Vault) -> LightWire:
    name = None
    if wire.svg or wire.link or wire.content:
        ends = {id: Block(id, "", *places[id]) for id in (wire.source, wire.target) if id in places}
        name = keep(Page("", list(ends.values()), [wire]), vault)
    return LightWire(*wire.ends, wire.id, name)


def keep(part: Page, vault: Vault) -> str:
    """Leave a part of a page on the server: a page that holds nothing but this part."""
    return vault.store(json.dumps(part.to_dict()))


def kept(name: str, vault: Vault) -> Page:
    """The part that `keep` left under this name."""
    text = vault.fetch(name)
    return _part(text if isinstance(text, str) else "")


@lru_cache(maxsize=4096)
def _part(text: str) -> Page:
    try:
        return Page.from_dict(json.loads(text))
    except (ValueError, RecursionError):
        raise Failure("value", "keep does not name a part of a page") from None


def restore(light: LightPage, around: Page, vault: Vault) -> Page:
    """The whole page: `around` is the drawing that the blocks stand in, the vault has what each block and wire had."""
    page = replace(around, name=light.name, blocks=[_block(block, vault) for block in light.blocks], wires=[])
    places = {block.id: (block.x, block.y) for block in page.blocks}
    page.wires = [_wire(wire, places, vault) for wire in light.wires]
    page.check_size()
    return page


def _block(light: LightBlock, vault: Vault) -> Block:
    if not light.id:
        raise Failure("value", "a block has no id; every block needs its own")
    parts = kept(light.keep, vault).blocks if light.keep else []
    rest = parts[0] if parts else Block("", "")
    known = {pin.name: pin for pin in rest.pins}
    pins = [_pin(pin, known.get(pin.name), vault) for pin in light.pins]
    return Block(light.id, light.symbol, light.x, light.y, pins, rest.svg, rest.content, rest.json)


def _pin(light: LightPin, rest: Pin | None, vault: Vault) -> Pin:
    svg, other = (rest.svg, rest.json) if rest is not None else ({}, {})
    pin = Pin(light.name, light.kind, light.interface, light.type, light.shape, light.value, None, svg, other)
    if light.data is not None:
        blob = vault.fetch(light.data.ref)
        pin.value, pin.data = (blob, None) if isinstance(blob, str) else ("", blob)
    return pin


def _wire(light: LightWire, places: dict[str, Place], vault: Vault) -> Wire:
    part = kept(light.keep, vault) if light.keep else Page()
    if not part.wires or part.wires[0].ends != light.ends:
        return Wire(*light.ends, light.id)
    wire = replace(part.wires[0], id=light.id)
    if any(places.get(block.id) != (block.x, block.y) for block in part.blocks):
        wire.svg = {name: value for name, value in wire.svg.items() if name not in ("transform", "points")}
    return wire
