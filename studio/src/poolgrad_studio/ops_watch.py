"""Looking at values: the watch table, statistics, heat maps, lines, windows; and the page as code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from poolgrad.dialects.enuspace.watch import type_name
from poolgrad.enuspace import Block, block_rows, element_rows
from poolgrad.errors import PoolGradError

from . import code as as_code
from .answers import Binary, answers
from .arrays import Array, array_of, block_of, constant
from .failure import Failure
from .limits import LIMITS
from .studio import Session
from .views import grid, heat, numeric
from .views import line as line_of
from .views import statistics as statistics_of
from .windows import cell_of, input_of, windows_of

__all__: list[str] = []


@dataclass
class OfBlock:
    doc: str
    block: str


@dataclass
class OfPin(OfBlock):
    pin: str


@dataclass
class Rows(OfPin):
    start: int
    stop: int


@dataclass
class Slice(OfPin):
    axes: list[int]
    index: list[int]
    height: int
    width: int
    box: list[int] | None = None


@dataclass
class Line(OfPin):
    axis: int
    index: list[int]
    points: int
    start: int = 0
    stop: int | None = None


@dataclass
class Window(OfBlock):
    cell: list[int] | None = None
    input: list[int] | None = None


@dataclass
class Code:
    doc: str
    kind: Literal["python", "directml"]


def _bounded(name: str, value: int, most: int) -> int:
    if not 1 <= value <= most:
        raise Failure("limit", f"{name} must be from 1 to {most}, got {value}")
    return value


@answers(OfBlock, slow=True)
def watch(session: Session, request: OfBlock) -> dict[str, Any]:
    document = session.studio.documents.get(request.doc)
    block = block_of(document, request.block)
    if block.definition is None:
        return {"rows": [_row(block, pin.type, pin.name + pin.shape, pin.value, {}) for pin in block.pins]}
    results = document.run.arrays() if document.run else {}
    arrays = {pin: array for (id, pin), array in results.items() if id == block.id}
    rows = block_rows(block, results, elements=0)
    return {"rows": [_row(block, row.type, row.name, row.value, arrays) for row in rows]}


def _row(block: Block, type: str, name: str, value: str, arrays: dict[str, Array]) -> dict[str, Any]:
    pin = name.partition("[")[0]
    array = arrays.get(pin)
    defined = block.definition.pin(pin) if block.definition else None
    if array is None and defined is not None and defined.form == "values" and defined.kind == "const":
        try:
            array = constant(block, pin)
        except PoolGradError:
            array = None
    said = value.split(",")[0] if array is not None and array.ndim else value
    about = None if array is None else {"shape": list(array.shape), "size": array.size, "dtype": _dtype(array)}
    return {"type": type, "name": name, "value": said[: LIMITS["text"]], "pin": pin, "array": about}


def _dtype(array: Array) -> str:
    return "string" if array.dtype.kind == "T" else array.dtype.name


@answers(Rows, slow=True)
def rows(session: Session, request: Rows) -> dict[str, Any]:
    array = array_of(session.studio.documents.get(request.doc), request.block, request.pin)
    if not 0 <= request.start <= request.stop <= max(array.size, 1):
        raise Failure("value", f"start and stop must be within 0 and {array.size}, got {request.start} and {request.stop}")
    _bounded("stop - start", max(request.stop - request.start, 1), LIMITS["rows"])
    found = element_rows(request.block, request.pin, array, request.start, request.stop)
    return {"rows": [[row.type, row.name, row.value] for row in found], "size": array.size}


@answers(OfPin, slow=True)
def statistics(session: Session, request: OfPin) -> dict[str, Any]:
    array = array_of(session.studio.documents.get(request.doc), request.block, request.pin)
    return {"type": type_name(array), **statistics_of(array)}


@answers(Slice, slow=True)
def slice_(session: Session, request: Slice) -> Binary:
    height, width = (_bounded(n, v, LIMITS["points"]) for n, v in (("height", request.height), ("width", request.width)))
    array = numeric(array_of(session.studio.documents.get(request.doc), request.block, request.pin))
    return heat(grid(array, request.axes, request.index), height, width, request.box)


@answers(Line, slow=True)
def line(session: Session, request: Line) -> Binary:
    points = _bounded("points", request.points, LIMITS["points"])
    array = numeric(array_of(session.studio.documents.get(request.doc), request.block, request.pin))
    return line_of(array, request.axis, request.index, points, request.start, request.stop)


@answers(OfBlock, slow=True)
def windows(session: Session, request: OfBlock) -> dict[str, Any]:
    return windows_of(session.studio.documents.get(request.doc), request.block).plain()


@answers(Window, slow=True)
def window(session: Session, request: Window) -> dict[str, Any]:
    if (request.cell is None) == (request.input is None):
        raise Failure("protocol", "give either cell or input")
    pool = windows_of(session.studio.documents.get(request.doc), request.block).pool
    return cell_of(pool, request.cell) if request.cell is not None else input_of(pool, request.input or [])


@answers(Code, slow=True)
def code(session: Session, request: Code) -> dict[str, Any]:
    document = session.studio.documents.get(request.doc)
    return as_code.python(document) if request.kind == "python" else as_code.directml(document)
