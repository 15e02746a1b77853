"""The pages that are open, each kept on disk as it was last put.

A page is never changed in place: every edit makes a new one, so that a run goes on with the page it began with. A document
is written to `.poolgrad-studio/` in the folder before an edit is acknowledged, and found there by the next studio.
"""

from __future__ import annotations

import json
import math
import re
import secrets
import time
from dataclasses import asdict, dataclass, field
from dataclasses import replace as replace_fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from poolgrad.enuspace import Page
from poolgrad.errors import PoolGradError

from .decode import decode
from .failure import Failure
from .folder import replace
from .light import LightPage, keep, kept, lighten, restore
from .limits import MOST_DOCUMENTS
from .vault import Vault

if TYPE_CHECKING:
    from .runs import Run

__all__ = ["Document", "Documents", "Stamp"]

MOST_AUTOSAVE = 256 << 20
NAME = re.compile("[0-9a-f]{16}")
Stamp = str
"""When a file was written and how long it is: what tells that somebody else wrote it since."""


@dataclass
class Document:
    """An open page. `light` is the page as it travels, `around` the name of the drawing it stands in, `stamp` its file as
    we last read or wrote it."""

    id: str
    page: Page
    light: dict[str, Any]
    around: str
    file: str | None = None
    stamp: Stamp | None = None
    dirty: bool = False
    edited: float = field(default_factory=time.time)
    revision: int = 1
    example: str = ""
    run: Run | None = None
    runs: int = 0

    def info(self) -> dict[str, Any]:
        name, blocks = self.page.name, len(self.page.blocks)
        return {"doc": self.id, "name": name, "file": self.file, "dirty": self.dirty, "blocks": blocks, "edited": self.edited}


@dataclass
class _Kept:
    """A document on disk."""

    page: Any
    around: str
    file: str | None
    stamp: Stamp | None
    dirty: bool
    edited: float
    revision: int
    example: str


class Documents:
    """All of them, by id; `state` is the folder they are kept in, or None where it cannot be written."""

    def __init__(self, state: Path | None) -> None:
        self._folder = _made(state, "pages")
        self.vault = Vault(_made(state, "values"))
        self._all: dict[str, Document] = {}
        self.broken: list[str] = []
        self._recover()

    def get(self, id: str) -> Document:
        if id not in self._all:
            raise Failure("value", f"no document {id[:40]!r} is open")
        return self._all[id]

    def list(self) -> list[dict[str, Any]]:
        return [document.info() for document in sorted(self._all.values(), key=lambda d: -d.edited)]

    def add(self, page: Page, *, file: str | None = None, stamp: Stamp | None = None, example: str = "") -> Document:
        """Open a page. A file that is open and unchanged already is the same document."""
        if len(self._all) >= MOST_DOCUMENTS:
            raise Failure("limit", f"{MOST_DOCUMENTS} pages are open; close some first")
        if not all(math.isfinite(block.x) and math.isfinite(block.y) for block in page.blocks):
            raise Failure("file", f"page {page.name!r} has a block whose place is not a number")
        around = keep(replace_fields(page, blocks=[], wires=[]), self.vault)
        light = asdict(lighten(page, self.vault))
        document = Document(secrets.token_hex(8), page, light, around, file, stamp, example=example)
        self._all[document.id] = document
        self.keep(document)
        return document

    def of_file(self, file: str) -> Document | None:
        return next((document for document in self._all.values() if document.file == file), None)

    def put(self, document: Document, light: dict[str, Any]) -> bool:
        """Take an edited page, and say whether it is on disk."""
        page = restore(decode(LightPage, light, "page"), document.page, self.vault)
        document.page, document.light = page, light
        document.dirty, document.edited = True, time.time()
        document.revision += 1
        return self.keep(document)

    def remove(self, document: Document) -> None:
        del self._all[document.id]
        if self._folder is not None:
            (self._folder / f"{document.id}.json").unlink(missing_ok=True)

    def keep(self, document: Document) -> bool:
        """Write the document where a restart finds it; a full disk must not stop the work."""
        if self._folder is None:
            return False
        head = (document.file, document.stamp, document.dirty, document.edited, document.revision, document.example)
        record = vars(_Kept(document.light, document.around, *head))
        try:
            replace(self._folder / f"{document.id}.json", json.dumps(record).encode())
        except OSError:
            return False
        return self.vault.safe

    def _recover(self) -> None:
        if self._folder is None:
            return
        used: set[str] = set()
        for place in sorted(self._folder.glob("*.json")):
            try:
                document = self._read(place)
            except (PoolGradError, OSError, ValueError, TypeError, RecursionError):
                self.broken.append(place.rename(place.with_suffix(".broken")).name)
                continue
            if not document.dirty:  # its file has it all, or it is an example that nobody touched
                place.unlink()
                continue
            self._all[document.id] = document
            used |= _used(document)
        if not list(self._folder.glob("*.broken")):  # somebody may still mend one, and its values with it
            self.vault.sweep(used)

    def _read(self, place: Path) -> Document:
        if place.is_symlink() or place.stat().st_size > MOST_AUTOSAVE or not NAME.fullmatch(place.stem):
            raise Failure("file", f"{place.name} is not a page that a studio kept")
        head = decode(_Kept, json.loads(place.read_bytes()))
        page = restore(decode(LightPage, head.page, "page"), kept(head.around, self.vault), self.vault)
        rest = (head.around, head.file, head.stamp, head.dirty, head.edited, head.revision, head.example)
        return Document(place.stem, page, head.page, *rest)


def _used(document: Document) -> set[str]:
    """Everything in the vault that the document needs."""
    light = decode(LightPage, document.light)
    values = {pin.data.ref for block in light.blocks for pin in block.pins if pin.data}
    parts = [block.keep for block in light.blocks] + [wire.keep for wire in light.wires]
    return values | {name for name in parts if name} | {document.around}


def _made(state: Path | None, name: str) -> Path | None:
    if state is None:
        return None
    place = state / name
    place.mkdir(parents=True, exist_ok=True)
    if place.is_symlink():
        raise Failure("file", f"{place} is a link; remove it, so that nothing is written elsewhere")
    return place
