"""XML that cannot hurt: a small tree, read by the standard library's expat with every declaration refused.

A page has no document type, so one is refused outright: no entity is ever declared, expanded or fetched. Size, depth and
the number of elements are bounded before anything is built. Everything else (comments, processing instructions, blanks
between elements) is kept, so that a file that is read and written says the same.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape

from ...errors import PoolGradValueError

__all__ = ["FileError", "Node", "decode", "encode", "parse_xml", "render_xml"]

MOST_BYTES = 64 << 20
MOST_NODES = 500_000
MOST_DEPTH = 64
COMMENT, INSTRUCTION, DOCUMENT = "#comment", "#instruction", "#document"


class FileError(PoolGradValueError):
    """A file that is not what its name promises."""


@dataclass
class Node:
    """An element, or, under a name that no element can have (`#comment`, `#block`), something that stands for one."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list[Node | str] = field(default_factory=list)

    def to_plain(self) -> dict[str, Any]:
        children = [child if isinstance(child, str) else child.to_plain() for child in self.children]
        return {"tag": self.tag, "attributes": self.attributes, "children": children}

    @classmethod
    def from_plain(cls, plain: Any, depth: int = 0) -> Node:
        if depth > MOST_DEPTH:
            raise FileError(f"the drawing is deeper than {MOST_DEPTH} elements")
        children = [child if isinstance(child, str) else cls.from_plain(child, depth + 1) for child in plain["children"]]
        return cls(str(plain["tag"]), {str(k): str(v) for k, v in plain["attributes"].items()}, children)


def decode(data: bytes, what: str) -> str:
    """The text of a file in UTF-16 (as enuSpace writes) or UTF-8, with or without a byte order mark."""
    if len(data) > MOST_BYTES:
        raise FileError(f"{what} has {len(data)} bytes; at most {MOST_BYTES} are read")
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        encoding = "utf-16"
    elif data[:1] == b"\0":
        encoding = "utf-16-be"
    else:
        encoding = "utf-16-le" if data[1:2] == b"\0" else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise FileError(f"{what} is not text in {encoding}: {error.reason} at byte {error.start}") from None


def encode(text: str) -> bytes:
    """UTF-16, little-endian, with its mark: what enuSpace reads and writes."""
    try:
        return b"\xff\xfe" + text.encode("utf-16-le")
    except UnicodeEncodeError as error:
        raise FileError(f"a text holds half a character ({text[error.start]!r}) and cannot be written") from None


class _Builder:
    """Expat's events, made into a tree."""

    def __init__(self, what: str) -> None:
        self.what = what
        self.open = [Node(DOCUMENT)]
        self.nodes = 0

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self.nodes += 1
        if self.nodes > MOST_NODES or len(self.open) > MOST_DEPTH:
            raise FileError(f"{self.what} has more than {MOST_NODES} elements or is deeper than {MOST_DEPTH}")
        node = Node(tag, attributes)
        self.open[-1].children.append(node)
        self.open.append(node)

    def end(self, tag: str) -> None:
        self.open.pop()

    def text(self, text: str) -> None:
        self.open[-1].children.append(text)

    def comment(self, text: str) -> None:
        self.start(COMMENT, {"text": text})
        self.end(COMMENT)

    def instruction(self, target: str, text: str) -> None:
        self.start(INSTRUCTION, {"target": target, "text": text})
        self.end(INSTRUCTION)

    def refuse(self, *_: Any) -> int:
        raise FileError(f"{self.what} declares a document type; a page has none, so remove the DOCTYPE")


def parse_xml(data: bytes, what: str) -> Node:
    """The document as a tree whose root is `#document`.

    >>> parse_xml(b"<svg a='1'><!-- c --></svg>", "page").children[0].attributes
    {'a': '1'}
    """
    builder = _Builder(what)
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler, parser.EndElementHandler = builder.start, builder.end
    parser.CharacterDataHandler, parser.CommentHandler = builder.text, builder.comment
    parser.ProcessingInstructionHandler = builder.instruction
    parser.StartDoctypeDeclHandler = parser.EntityDeclHandler = parser.ExternalEntityRefHandler = builder.refuse
    try:
        parser.Parse(_bare(decode(data, what)), True)
    except expat.ExpatError as error:
        raise FileError(f"{what} is not well-formed XML: {expat.ErrorString(error.code)} in line {error.lineno}") from None
    return builder.open[0]


def _bare(text: str) -> str:
    # The declaration names the encoding of the bytes, which are text by now.
    return re.sub(r"\A\s*<\?xml\s[^>]*\?>", "", text, count=1).lstrip("\ufeff")


def render_xml(document: Node) -> str:
    """The document as text, with its declaration."""
    parts = ['<?xml version="1.0" encoding="UTF-16"?>\n']
    for child in document.children:
        _render(child, parts)
    return "".join(parts)


NAME = re.compile(r"[^\W\d][\w.:-]*")
UNFIT = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")


def _render(item: Node | str, parts: list[str]) -> None:
    if isinstance(item, str):
        parts.append(_fit(escape(item, {"\r": "&#13;"})))
    elif item.tag == COMMENT:
        parts.append(f"<!--{_fit(item.attributes.get('text', ''), '--')}-->")
    elif item.tag == INSTRUCTION:
        parts.append(f"<?{_name(item.attributes.get('target', ''))} {_fit(item.attributes.get('text', ''), '?>')}?>")
    else:
        shown = "".join(f" {_name(name)}={_quoted(value)}" for name, value in item.attributes.items())
        parts.append(f"<{_name(item.tag)}{shown}{'>' if item.children else '/>'}")
        for child in item.children:
            _render(child, parts)
        if item.children:
            parts.append(f"</{item.tag}>")


def _quoted(value: str) -> str:
    return '"' + _fit(escape(value, {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"})) + '"'


def _fit(text: str, never: str = "\0") -> str:
    if UNFIT.search(text) or never in text:
        raise FileError(f"{text[:40]!r} holds a character that XML cannot carry there")
    return text


def _name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise FileError(f"{name[:40]!r} is not the name of an element or attribute")
    return name
