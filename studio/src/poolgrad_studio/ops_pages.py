"""Pages: opened, edited, checked while they are edited, and closed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from poolgrad.dialects.enuspace.check import property_value
from poolgrad.enuspace import BLOCKS, Block, Page, Pin, check_property, corrected_page, documented_page
from poolgrad.enuspace import refusal as why_not

from .answers import Nothing, answers
from .catalogue import COLOURS, INPUTS, catalogue, palettes, rules
from .documents import Document
from .explanations import EXPLANATIONS
from .failure import Failure, as_failure
from .limits import LIMITS
from .studio import Session, checks

__all__ = ["opened"]


@dataclass
class New:
    name: str = "page"


@dataclass
class Path:
    path: str


@dataclass
class Doc:
    doc: str


@dataclass
class Example:
    which: Literal["documented", "corrected"]


@dataclass
class Put:
    doc: str
    revision: int
    page: Any


@dataclass
class Check:
    symbol: str
    pin: str
    text: str
    type: str = ""
    shape: str = ""
    dtype: str = ""


@dataclass
class Start:
    doc: str
    source: str
    source_pin: str


@dataclass
class Ends(Start):
    target: str
    target_pin: str


@answers(Nothing)
def hello(session: Session, _: Nothing) -> dict[str, Any]:
    from . import __version__

    studio = session.studio
    return {
        "protocol": 1,
        "version": __version__,
        "folder": studio.folder.root.name,
        "start": studio.start,
        "autosave": studio.autosaves,
        "catalogue": catalogue(),
        "inputs": INPUTS,
        "rules": rules(),
        "palettes": palettes(),
        "colours": COLOURS,
        "limits": LIMITS,
        "documents": studio.documents.list(),
    }


@answers(Nothing)
def documents(session: Session, _: Nothing) -> dict[str, Any]:
    return {"documents": session.studio.documents.list()}


@answers(New)
def new(session: Session, request: New) -> dict[str, Any]:
    return opened(session, session.studio.documents.add(Page(request.name[:200])))


@answers(Path)
def open_(session: Session, request: Path) -> dict[str, Any]:
    return opened(session, session.studio.open(request.path))


@answers(Example)
def example(session: Session, request: Example) -> dict[str, Any]:
    page = documented_page() if request.which == "documented" else corrected_page()
    return opened(session, session.studio.documents.add(page, example=request.which))


@answers(Doc)
def attach(session: Session, request: Doc) -> dict[str, Any]:
    return opened(session, session.studio.documents.get(request.doc))


@answers(Doc)
def leave(session: Session, request: Doc) -> dict[str, Any]:
    session.follows.discard(request.doc)
    return {}


@answers(Doc)
def close(session: Session, request: Doc) -> dict[str, Any]:
    studio = session.studio
    document = studio.documents.get(request.doc)
    if document.run is not None:
        document.run.stop()
    studio.documents.remove(document)
    studio.tell(document, "closed", but=session)
    for other in studio.sessions:
        other.follows.discard(document.id)
    return {}


def opened(session: Session, document: Document) -> dict[str, Any]:
    """All that a tab needs to show a document; from now on it hears of changes."""
    session.follows.add(document.id)
    run = document.run
    return {
        "doc": document.id,
        "revision": document.revision,
        "file": document.file,
        "dirty": document.dirty,
        "page": document.light,
        "notes": [asdict(note) for note in document.page.notes],
        "explanation": EXPLANATIONS.get(document.example),
        "log": run.entries() if run else [],
        "states": run.states() if run else [],
        "results": run.results() if run else [],
        "stale": run.stale(document.page) if run else [],
        "run": run.progress() if run else None,
        "checks": checks(document)["log"],
    }


@answers(Put)
def put(session: Session, request: Put) -> dict[str, Any]:
    studio = session.studio
    document = studio.documents.get(request.doc)
    if request.revision != document.revision:
        session.send({"event": "page", "doc": document.id, "revision": document.revision, "page": document.light})
        raise Failure("conflict", f"the page was edited elsewhere: it is at revision {document.revision}, not {request.revision}")
    kept = studio.documents.put(document, request.page)
    studio.tell(document, "page", but=session, revision=document.revision, page=document.light)
    studio.check_soon(document)
    return {"revision": document.revision, "kept": kept}


@answers(Check, slow=True)
def check(session: Session, request: Check) -> dict[str, Any]:
    if request.dtype and request.symbol in BLOCKS and request.pin == "val":
        return _check_typed(request)
    verdict = check_property(request.symbol, request.pin, request.text, type=request.type, shape=request.shape)
    return asdict(verdict) | {"warnings": list(verdict.warnings)}


def _check_typed(request: Check) -> dict[str, Any]:
    """A value whose type another property of the block decides."""
    value = Pin("val", "const", type=request.type or "double", shape=request.shape, value=request.text)
    block = Block("", request.symbol, pins=[value, Pin("dtype", "const", value=request.dtype)])
    try:
        property_value(block, "val")
    except Exception as error:
        failure = as_failure(error)
        if failure.kind == "internal":
            raise
        return {"ok": False, "message": failure.message, "legal": failure.legal, "warnings": []}
    return {"ok": True, "message": "", "legal": "", "warnings": []}


@answers(Ends)
def refusal(session: Session, request: Ends) -> dict[str, Any]:
    page = session.studio.documents.get(request.doc).page
    return {"refusal": why_not(page, request.source, request.source_pin, request.target, request.target_pin)}


@answers(Start, slow=True)
def refusals(session: Session, request: Start) -> dict[str, Any]:
    page = session.studio.documents.get(request.doc).page
    pins = [(block.id, pin.name) for block in page.blocks for pin in block.pins]
    if len(pins) * (len(page.wires) + 1) > MOST_JUDGED:
        raise Failure("limit", "the page is too large to judge every pin at once; ask for one with refusal")
    found = [(id, pin, why_not(page, request.source, request.source_pin, id, pin)) for id, pin in pins]
    return {"refusals": [{"target": id, "target_pin": pin, "refusal": why} for id, pin, why in found]}


MOST_JUDGED = 20_000_000
