"""Files of the folder: listed, written, and read as inputs."""

from __future__ import annotations

import copy
import json
from dataclasses import dataclass
from pathlib import Path as FilePath
from pathlib import PurePosixPath
from typing import Any, Literal

from poolgrad.enuspace import Page, write_json, write_svg

from .answers import answers
from .documents import Document
from .failure import Failure
from .folder import replace
from .inputs import as_const, from_image, from_npy, random_values
from .limits import LIMITS
from .studio import Session, stamp_of

__all__ = ["whole_page"]

ENDINGS = {"svg": ".svg", "export": ".json", "own": ".json"}


@dataclass
class Files:
    path: str


@dataclass
class Save:
    doc: str
    path: str
    form: Literal["svg", "export", "own"]
    results: bool = False
    overwrite: bool = False


@dataclass
class Input:
    kind: Literal["random", "file"]
    path: str | None = None
    layout: Literal["HWC", "NHWC", "NCHW", "NDHWC"] = "NHWC"
    shape: list[int] | None = None
    type: Literal["float", "double", "int", "half", "bfloat16", "int64"] = "float"
    seed: int = 0
    distribution: Literal["normal", "uniform", "integers", "ramp"] = "normal"
    low: float = 0.0
    high: float = 1.0


@answers(Files)
def files(session: Session, request: Files) -> dict[str, Any]:
    return {"path": request.path, "entries": session.studio.folder.entries(request.path)}


def whole_page(document: Document, *, results: bool) -> Page:
    """The page, with the last results on its result pins if asked for."""
    if not results or document.run is None:
        return document.page
    page = copy.deepcopy(document.page)
    arrays = document.run.arrays()
    for block in page.blocks:
        for pin in block.pins:
            if (block.id, pin.name) in arrays:
                pin.set(arrays[block.id, pin.name])
    return page


@answers(Save)
def save(session: Session, request: Save) -> dict[str, Any]:
    studio = session.studio
    document = studio.documents.get(request.doc)
    if PurePosixPath(request.path).suffix.lower() != ENDINGS[request.form]:
        raise Failure("file", f"{request.path[:60]!r} should end in {ENDINGS[request.form]}")
    place = studio.folder.path(request.path)
    if not place.parent.is_dir():
        raise Failure("file", f"there is no folder {PurePosixPath(request.path).parent.as_posix()[:60]!r}")
    if place.is_dir():
        raise Failure("file", f"{request.path[:60]!r} is a folder")
    data, dat = _written(whole_page(document, results=request.results), request.form)
    beside = studio.folder.path(PurePosixPath(request.path).with_suffix(".dat").as_posix())
    if not request.overwrite:
        _check_free(document, request.path, place, beside if dat is not None else None)
    if dat is not None:
        replace(beside, dat)
    replace(place, data)
    if request.form != "export" or document.file == request.path:  # an export loses positions: the page is not saved by it
        document.file, document.stamp, document.dirty = request.path, stamp_of(place), False
        studio.documents.keep(document)
    said = {"file": document.file, "dirty": document.dirty, "revision": document.revision}
    studio.tell(document, "saved", session, **said)
    return said


def _check_free(document: Document, path: str, place: FilePath, beside: FilePath | None) -> None:
    """Refuse to write over what is not this document as we know it."""
    ours = document.file == path and document.stamp is not None
    if place.exists() and not (ours and stamp_of(place) == document.stamp):
        changed = "has changed since it was opened" if ours else "is there already"
        raise Failure("exists", f"{path[:60]!r} {changed}: save under another name, or overwrite it")
    if beside is not None and beside.exists() and not ours:
        raise Failure(
            "exists", f"{beside.name!r}, where big values go, is there already: save under another name, or overwrite it"
        )


def _written(page: Page, form: str) -> tuple[bytes, bytes | None]:
    if form == "own":
        return json.dumps(page.to_dict(), indent=1).encode("utf-8"), None
    return write_svg(page) if form == "svg" else write_json(page)


@answers(Input, slow=True)
def input_(session: Session, request: Input) -> dict[str, Any]:
    studio = session.studio
    if request.kind == "random":
        if request.shape is None:
            raise Failure("protocol", "shape is missing")
        values = (request.shape, request.type, request.seed, request.distribution, request.low, request.high)
        return as_const(random_values(*values), studio.documents.vault)
    if request.path is None:
        raise Failure("protocol", "path is missing")
    place = studio.folder.existing(request.path, LIMITS["upload"])
    data, ending = place.read_bytes(), place.suffix.lower()
    if ending not in (".npy", ".png", ".jpg", ".jpeg"):
        raise Failure("file", f"{place.name!r} is no input", "a .npy, .png or .jpg file")
    array = from_npy(data) if ending == ".npy" else from_image(data, request.layout)
    return as_const(array, studio.documents.vault)
