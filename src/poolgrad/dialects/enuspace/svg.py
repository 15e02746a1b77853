"""A saved page: SVG in UTF-16, blocks as `use` elements, wires as `polyline` elements.

Reading lifts every block and wire out of the drawing and leaves a slot (`#block`, `#wire`, within a block `#pin`) in its
place. Writing fills the slots again, drops those whose block is gone and appends what is new. What has no slot was never
touched. A second block with an id that is taken stays in the drawing as it is: enuSpace loses it without a trace.
"""

from __future__ import annotations

import math
import re

from .binary import cut, positions
from .blocks import BLOCKS
from .grammar import as_text
from .page import MOST_PINS, Block, LogEntry, Page, Pin, Wire
from .xml import FileError, Node, encode, parse_xml, render_xml

__all__ = ["read_svg", "write_svg"]

TRANSLATE = re.compile(r"translate\(\s*([-+.\deE]+)[\s,]+([-+.\deE]+)\s*\)")
# The words enuSpace uses for a big pin in an exported page, with and without their prefix.
SAVE, POSITION = ("save", "pin-save"), ("binary-pos", "pin-binary-pos")
LINK = ("from-id", "param-from", "to-id", "param-to")
WIRE_LINE = {
    "stroke": "rgb(0,119,189)",
    "pg-begin-arrow-type": "circle",
    "pg-begin-arrow-size": "5.00",
    "pg-end-arrow-type": "stealth arrow",
    "pg-end-arrow-size": "5.00",
}
ROOT = {
    "id": "ID_page",
    "style": "background-color:rgb(42,42,42);",
    "xmlns": "http://www.w3.org/2000/svg",
    "xmlns:xlink": "http://www.w3.org/1999/xlink",
    "width": "1920",
    "height": "1080",
}


def read_svg(data: bytes, name: str = "page", dat: bytes = b"") -> Page:
    """The page in an `.svg` file's bytes, `dat` being the bytes of the `.dat` beside it."""
    document = parse_xml(data, f"page {name!r}")
    if not any(isinstance(child, Node) and child.tag == "svg" for child in document.children):
        raise FileError(f"page {name!r} is not an SVG drawing: its root element is not svg")
    page = Page(name, svg=document)
    _lift(document, page, dat, set())
    page.check_size()
    _guess_kinds(page)
    return page


def _lift(node: Node, page: Page, dat: bytes, taken: set[str | tuple[str, ...]]) -> None:
    for k, child in enumerate(node.children):
        if not isinstance(child, Node):
            continue
        if child.tag == "use" and child.attributes.get("type") == "tensorflow":
            id = child.attributes.get("id", "")
            if id in taken or not id:
                said = f"a second block has the id {id!r}: only the first is used; give each block its own id"
                page.notes.append(LogEntry("warning", id, said if id else "a block has no id and is not used; give it one"))
                continue
            taken.add(id)
            page.blocks.append(_block(child, page, dat))
            node.children[k] = Node("#block", {"id": id})
        elif child.tag == "polyline" and (link := _link(child)) is not None:
            wire = _wire(child, link)
            if wire.ends in taken:
                page.notes.append(LogEntry("warning", wire.target, f"the wire {wire} is drawn twice; remove one"))
                continue
            taken.add(wire.ends)
            page.wires.append(wire)
            node.children[k] = Node("#wire", dict(zip("abcd", wire.ends, strict=True)))
        else:
            _lift(child, page, dat, taken)


def _block(node: Node, page: Page, dat: bytes) -> Block:
    if len(node.children) > 4 * MOST_PINS:
        raise FileError(f"block {node.attributes['id']!r} of page {page.name!r} has more than {MOST_PINS} pins")
    href = node.attributes.get("xlink:href", node.attributes.get("href", ""))
    block = Block(node.attributes["id"], href.removeprefix("#"), *_place(node.attributes), svg=node.attributes)
    for child in node.children:
        if isinstance(child, Node) and child.tag == "pg-set-pin":
            pin = _pin(child.attributes, block.symbol)
            if block.pin(pin.name) is None:
                block.pins.append(pin)
                block.content.append(Node("#pin", {"name": pin.name}))
                _binary(pin, block, page, dat)
                continue
        block.content.append(child)
    definition = BLOCKS.get(block.symbol)
    missing = [d for d in definition.pins if block.pin(d.name) is None] if definition else []
    block.pins += [Pin(d.name, d.kind, d.interface, d.type, "", d.default) for d in missing]
    return block


def _place(attributes: dict[str, str]) -> tuple[float, float]:
    found = TRANSLATE.search(attributes.get("transform", ""))
    try:
        x, y = (float(found[1]), float(found[2])) if found else (0.0, 0.0)
    except ValueError:
        return 0.0, 0.0
    return (x, y) if math.isfinite(x) and math.isfinite(y) else (0.0, 0.0)


def _pin(attributes: dict[str, str], symbol: str) -> Pin:
    name = attributes.get("variable", "").removeprefix("#").partition("[")[0]
    definition = BLOCKS[symbol].pin(name) if symbol in BLOCKS else None
    kind = definition.kind if definition else "result" if name.startswith("result_") else ""
    interface = definition.interface if definition else ""
    type = attributes.get("type", attributes.get("var-type", "string"))
    return Pin(name, kind, interface, type, attributes.get("shape", ""), attributes.get("value", ""), svg=attributes)


def _binary(pin: Pin, block: Block, page: Page, dat: bytes) -> None:
    if any(pin.svg.get(word) == "binary" for word in SAVE):
        problem = cut(pin, next((pin.svg[word] for word in POSITION if word in pin.svg), ""), dat)
        if problem:
            page.notes.append(LogEntry("error", block.id, problem, pin.name))


def _link(node: Node) -> Node | None:
    return next((child for child in node.children if isinstance(child, Node) and child.tag == "pg-link"), None)


def _wire(node: Node, link: Node) -> Wire:
    source, source_pin, target, target_pin = (link.attributes.get(key, "") for key in LINK)
    content: list[Node | str] = [Node("#link", {}, link.children) if child is link else child for child in node.children]
    return Wire(source, source_pin, target, target_pin, node.attributes.get("id", ""), node.attributes, link.attributes, content)


def _guess_kinds(page: Page) -> None:
    """Pins of blocks we do not know show their kind by the wires they have."""
    blocks = {block.id: block for block in page.blocks}
    for wire in page.wires:
        for id, name, kind in ((wire.source, wire.source_pin, "output"), (wire.target, wire.target_pin, "input")):
            pin = blocks[id].pin(name) if id in blocks else None
            if pin is not None and pin.kind == "":
                pin.kind = kind


def write_svg(page: Page) -> tuple[bytes, bytes | None]:
    """The page as the bytes of its `.svg` and, if a pin is binary, of its `.dat`."""
    places, dat = positions(page)
    writer = _Writer(page, places)
    document = writer.filled(page.svg or Node("#document", {}, [Node("svg", dict(ROOT), ["\n"])]))
    root = next((child for child in document.children if isinstance(child, Node) and child.tag == "svg"), None)
    if root is None:
        raise FileError(f"page {page.name!r} has a drawing without an svg element")
    for item in writer.new():
        root.children += ["\t", item, "\n"]
    return encode(render_xml(document)), dat


class _Writer:
    def __init__(self, page: Page, places: dict[int, int]) -> None:
        self.blocks = {block.id: block for block in page.blocks}
        self.wires: dict[tuple[str, ...], Wire] = {wire.ends: wire for wire in page.wires}
        self.places = places
        self.done: set[str | tuple[str, ...]] = set()

    def filled(self, node: Node) -> Node:
        """A copy of the drawing with its slots filled."""
        made = Node(node.tag, node.attributes)
        for child in node.children:
            whole = self._item(child) if isinstance(child, Node) else child
            if whole is not None:
                made.children.append(whole)
            elif made.children and isinstance(made.children[-1], str) and not made.children[-1].strip():
                made.children.pop()
        return made

    def _item(self, child: Node) -> Node | None:
        if child.tag == "#block":
            return self._once(child.attributes.get("id", ""))
        if child.tag == "#wire":
            return self._once(tuple(child.attributes.values()))
        return self.filled(child)

    def _once(self, key: str | tuple[str, ...]) -> Node | None:
        if key in self.done:
            return None
        self.done.add(key)
        if isinstance(key, str):
            return self.block(self.blocks[key]) if key in self.blocks else None
        return self.wire(self.wires[key]) if key in self.wires else None

    def new(self) -> list[Node]:
        keys: list[str | tuple[str, ...]] = [*self.blocks, *self.wires]
        made = [self._once(key) for key in keys if key not in self.done]
        return [node for node in made if node is not None]

    def block(self, block: Block) -> Node:
        attributes = {"id": "", "type": "tensorflow", **block.svg} | {"id": block.id}
        if block.symbol:
            attributes["href" if "href" in block.svg else "xlink:href"] = f"#{block.symbol}"
        if _place(attributes) != (block.x, block.y):
            moved = f"translate({as_text(block.x)},{as_text(block.y)})"
            rest = TRANSLATE.sub("", attributes.get("transform", ""), count=1).strip()
            attributes["transform"] = f"{moved} {rest}".strip()
        pins = {pin.name: pin for pin in block.pins}
        node = Node("use", attributes)
        for child in block.content or ["\n\t"]:
            if not isinstance(child, Node) or child.tag != "#pin":
                node.children.append(child)
            elif child.attributes.get("name") in pins:
                node.children.append(self.pin(pins.pop(child.attributes["name"])))
        for pin in pins.values():
            node.children += ["\t", self.pin(pin), "\n\t"]
        return node

    def pin(self, pin: Pin) -> Node:
        attributes = {**pin.svg, "variable": f"#{pin.name}{pin.shape}", "shape": pin.shape}
        attributes["var-type" if "var-type" in pin.svg else "type"] = pin.type
        attributes["value"] = pin.value
        if id(pin) in self.places:
            attributes |= {"save": "binary", "binary-pos": str(self.places[id(pin)])}
            attributes = {name: value for name, value in attributes.items() if name not in (SAVE[1], POSITION[1])}
        elif pin.value:
            attributes = {name: value for name, value in attributes.items() if name not in SAVE + POSITION}
        return Node("pg-set-pin", attributes)

    def wire(self, wire: Wire) -> Node:
        fresh = {"id": wire.id or "_".join(("WIRE", *wire.ends)), **WIRE_LINE}
        line = dict(wire.svg or fresh)
        if "points" not in line:
            line |= self._route(wire)
        ends = dict(zip(LINK, wire.ends, strict=True))
        link = {**(wire.link or {"type": "tensorflow"}), **ends}
        content = wire.content or ["\n\t\t", Node("#link"), "\n\t"]
        children = [Node("pg-link", link, c.children) if isinstance(c, Node) and c.tag == "#link" else c for c in content]
        return Node("polyline", line, children)

    def _route(self, wire: Wire) -> dict[str, str]:
        """A line with right angles from the right edge of one block to the left edge of the other."""
        source, target = self.blocks.get(wire.source), self.blocks.get(wire.target)
        if source is None or target is None:
            return {"points": "0,0 0,0"}
        names = [pin.name for pin in target.pins]
        rank = names.index(wire.target_pin) if wire.target_pin in names else 0
        x, y = source.x + 100, source.y + 30
        dx, dy = target.x - x, target.y + 30 + 12 * rank - y
        return {
            "transform": f"translate({as_text(x)},{as_text(y)}) rotate(0) scale(1, 1)",
            "points": " ".join(f"{as_text(a)},{as_text(b)}" for a, b in ((0, 0), (dx / 2, 0), (dx / 2, dy), (dx, dy))),
        }
