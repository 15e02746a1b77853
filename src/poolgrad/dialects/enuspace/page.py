"""A page: blocks with pins and properties, wires between pins, and everything else its file held.

Properties stay texts, exactly as typed or read, so that a page with mistakes can be opened, shown, mended and saved. What a
file says beyond blocks and wires (drawings, attributes we have no use for) is kept beside them and written back.
Everything here is plain data: `page.to_dict()` is ready for JSON and `Page.from_dict` reads it back.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from ...errors import PoolGradError, PoolGradValueError
from .blocks import BLOCKS, BlockDef
from .grammar import PIN_TYPES, Array, as_text, format_shape, format_values
from .rules import refusal
from .xml import Node

__all__ = ["MOST_BLOCKS", "MOST_PINS", "Block", "LogEntry", "Page", "Pin", "Wire"]

# A page is drawn by hand. These bounds keep a hostile file from costing more than it should.
MOST_BLOCKS, MOST_WIRES, MOST_PINS = 10_000, 100_000, 1_000


@dataclass(frozen=True)
class LogEntry:
    """One line of the message pane. `severity` is info, warning or error; `block` is empty for the page itself."""

    severity: str
    block: str
    message: str
    pin: str = ""


@dataclass
class Pin:
    """A pin of a block on a page. `data` holds the bytes of a pin that is saved as binary; then `value` is empty."""

    name: str
    kind: str
    interface: str = ""
    type: str = "string"
    shape: str = ""
    value: str = ""
    data: bytes | None = None
    svg: dict[str, str] = field(default_factory=dict)
    json: dict[str, Any] = field(default_factory=dict)

    def set(self, array: Array, *, binary_from: int = 10_000) -> None:
        """Take type, shape and value from an array; from `binary_from` elements on they are kept as bytes."""
        self.type = _pin_type(array)
        self.shape = format_shape(array.shape)
        self.value, self.data = "", None
        if array.size >= binary_from and self.type != "string":
            stored = np.ascontiguousarray(array, PIN_TYPES[self.type])
            self.data = stored.tobytes() if stored.dtype.kind != "i" or np.array_equal(stored, array) else None
        if self.data is None:
            self.value = format_values(array)


def _pin_type(array: Array) -> str:
    kinds = {"b": "bool", "i": "int", "u": "int", "T": "string", "U": "string"}
    return kinds.get(array.dtype.kind, "double" if array.dtype == np.float64 else "float")


@dataclass
class Block:
    """A block on a page. `symbol` is its name in the library; `content` what else its element held, with pins as slots."""

    id: str
    symbol: str
    x: float = 0.0
    y: float = 0.0
    pins: list[Pin] = field(default_factory=list)
    svg: dict[str, str] = field(default_factory=dict)
    content: list[Node | str] = field(default_factory=list)
    json: dict[str, Any] = field(default_factory=dict)

    @property
    def definition(self) -> BlockDef | None:
        """What we know about this kind of block; nothing if we cannot run it."""
        return BLOCKS.get(self.symbol)

    def pin(self, name: str) -> Pin | None:
        return next((pin for pin in self.pins if pin.name == name), None)

    def text(self, name: str) -> str:
        """The text of a property; where the page does not mention the pin, the block's default."""
        pin = self.pin(name)
        if pin is not None:
            return pin.value
        defined = self.definition.pin(name) if self.definition else None
        return defined.default if defined else ""


@dataclass
class Wire:
    """A wire from an output pin to an input pin; `svg` and `link` are the rest of its line's and its link's attributes."""

    source: str
    source_pin: str
    target: str
    target_pin: str
    id: str = ""
    svg: dict[str, str] = field(default_factory=dict)
    link: dict[str, str] = field(default_factory=dict)
    content: list[Node | str] = field(default_factory=list)

    @property
    def ends(self) -> tuple[str, str, str, str]:
        return self.source, self.source_pin, self.target, self.target_pin

    def __str__(self) -> str:
        return f"{self.source}.{self.source_pin} -> {self.target}.{self.target_pin}"


@dataclass
class Page:
    """Blocks and wires in file order; `svg` is the rest of the drawing and `json` the rest of an export.

    >>> page = Page("demo")
    >>> grad = page.add("Const", val=np.array([[1.5, 2.5]], np.float32))
    >>> grad.pin("val").shape, grad.pin("val").value
    ('[1][2]', '1.5;2.5')
    """

    name: str = "page"
    blocks: list[Block] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    svg: Node | None = None
    json: dict[str, Any] = field(default_factory=dict)
    notes: list[LogEntry] = field(default_factory=list)

    def block(self, id: str) -> Block:
        for block in self.blocks:
            if block.id == id:
                return block
        known = ", ".join(b.id for b in self.blocks[:20]) or "none"
        raise PoolGradValueError(f"no block {id!r} on page {self.name!r}; it has {known}")

    def add(self, symbol: str, id: str = "", *, at: tuple[float, float] = (0, 0), **properties: Any) -> Block:
        """Place a block with its default properties; an array as a property sets type, shape and value."""
        definition = BLOCKS.get(symbol)
        if definition is None:
            raise PoolGradValueError(f"no block {symbol!r}; known: {', '.join(BLOCKS)}")
        taken = {block.id for block in self.blocks}
        if id in taken:
            raise PoolGradValueError(f"the id {id!r} is taken on page {self.name!r}; leave it out to get a free one")
        block = Block(id or next(k for k in map("ID_{}".format, range(1, len(taken) + 2)) if k not in taken), symbol, *at)
        block.pins = [Pin(pin.name, pin.kind, pin.interface, pin.type, "", pin.default) for pin in definition.pins]
        for name, value in properties.items():
            self._set(block, name, value)
        self.blocks.append(block)
        return block

    def _set(self, block: Block, name: str, value: Any) -> None:
        pin = block.pin(name)
        if pin is None or pin.kind != "const":
            known = ", ".join(pin.name for pin in block.pins if pin.kind == "const")
            raise PoolGradValueError(f"{block.symbol} has no property {name!r}; it has {known}")
        if isinstance(value, np.ndarray):
            pin.set(value)
        else:
            pin.value = as_text(value)

    def connect(self, source: Block | str, source_pin: str, target: Block | str, target_pin: str) -> Wire:
        """Draw a wire; refused, with the reason, where the two pins may not be connected."""
        ids = [end.id if isinstance(end, Block) else end for end in (source, target)]
        why = refusal(self, ids[0], source_pin, ids[1], target_pin)
        if why:
            raise PoolGradValueError(f"{ids[0]}.{source_pin} cannot be wired to {ids[1]}.{target_pin}: {why}")
        wire = Wire(ids[0], source_pin, ids[1], target_pin)
        self.wires.append(wire)
        return wire

    def move(self, id: str, x: float, y: float) -> None:
        """Put a block elsewhere; the lines of its wires are drawn anew when the page is written."""
        block = self.block(id)
        if not np.isfinite([x, y]).all():
            raise PoolGradValueError(f"a block's place must be finite, got {x!r}, {y!r}")
        block.x, block.y = float(x), float(y)
        for wire in self.wires:
            if id in (wire.source, wire.target):
                wire.svg = {name: value for name, value in wire.svg.items() if name not in ("transform", "points")}

    def remove(self, id: str) -> None:
        """Take a block and its wires off the page."""
        self.blocks.remove(self.block(id))
        self.wires = [wire for wire in self.wires if id not in (wire.source, wire.target)]

    def check_size(self) -> None:
        """Refuse a page beyond any that could be drawn, or one on which two blocks have one id."""
        most = max((len(block.pins) for block in self.blocks), default=0)
        if len(self.blocks) > MOST_BLOCKS or len(self.wires) > MOST_WIRES or most > MOST_PINS:
            limits = f"{MOST_BLOCKS} blocks, {MOST_WIRES} wires and {MOST_PINS} pins a block"
            raise PoolGradValueError(f"page {self.name!r} has more than {limits}")
        if len({block.id for block in self.blocks}) < len(self.blocks):
            raise PoolGradValueError(f"two blocks of page {self.name!r} have one id; every block needs its own")

    def to_dict(self) -> dict[str, Any]:
        """The page as plain data for JSON, nothing left out."""
        plain: dict[str, Any] = _plain(self)
        return plain

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Page:
        """A page from what `to_dict` gave."""
        try:
            page = cls(
                name=str(plain["name"]),
                blocks=[_block_from(block) for block in plain["blocks"]],
                wires=[_make(Wire, wire, content=_content_from(wire["content"])) for wire in plain["wires"]],
                svg=None if plain["svg"] is None else Node.from_plain(plain["svg"]),
                json=dict(plain["json"]),
                notes=[_make(LogEntry, note) for note in plain["notes"]],
            )
            page.check_size()
            return page
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, PoolGradError):
                raise
            raise PoolGradValueError(f"this is not a page: {type(error).__name__}: {error}") from None


def _plain(value: Any) -> Any:
    if isinstance(value, Node):
        return value.to_plain()
    if dataclasses.is_dataclass(value):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value


def _content_from(plain: list[Any]) -> list[Node | str]:
    return [item if isinstance(item, str) else Node.from_plain(item) for item in plain]


def _block_from(plain: Mapping[str, Any]) -> Block:
    datas = (pin["data"] if pin["data"] is None else base64.b64decode(pin["data"], validate=True) for pin in plain["pins"])
    pins = [_make(Pin, pin, data=data) for pin, data in zip(plain["pins"], datas, strict=True)]
    return _make(Block, plain, pins=pins, content=_content_from(plain["content"]))


Made = TypeVar("Made", Pin, Block, Wire, LogEntry)
KINDS: dict[Any, tuple[type, ...]] = {"str": (str,), "float": (int, float), "dict[str, str]": (dict,), "dict[str, Any]": (dict,)}


def _make(cls: type[Made], plain: Mapping[str, Any], **special: Any) -> Made:
    """A record from plain data whose every field has the kind it should have."""
    made = {**plain, **special}
    for f in dataclasses.fields(cls):
        value = made[f.name]
        fits = f.type not in KINDS or isinstance(value, KINDS[f.type])
        if not fits or (f.type == "dict[str, str]" and not all(isinstance(text, str) for text in value.values())):
            raise PoolGradValueError(f"this is not a page: {f.name} of a {cls.__name__} is {value!r}")
    return cls(**made)
