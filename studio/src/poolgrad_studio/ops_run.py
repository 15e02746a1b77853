"""Run, step and stop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from .answers import answers
from .documents import Document
from .failure import Failure
from .limits import MOST_CYCLES
from .runs import Run
from .studio import Session

__all__: list[str] = []


@dataclass
class RunPage:
    doc: str
    cycles: int = 1


@dataclass
class OfPage:
    doc: str


@answers(RunPage)
def run(session: Session, request: RunPage) -> dict[str, Any]:
    if not 0 <= request.cycles <= MOST_CYCLES:
        raise Failure("value", f"cycles must be from 0 (until stopped) to {MOST_CYCLES}, got {request.cycles}")
    return _go(session, session.studio.documents.get(request.doc), request.cycles, stepping=False)


@answers(OfPage)
def step(session: Session, request: OfPage) -> dict[str, Any]:
    return _go(session, session.studio.documents.get(request.doc), 1, stepping=True)


@answers(OfPage)
def stop(session: Session, request: OfPage) -> dict[str, Any]:
    held = session.studio.documents.get(request.doc).run
    return {"stopped": held is not None and held.stop()}


def _go(session: Session, document: Document, cycles: int, *, stepping: bool) -> dict[str, Any]:
    if document.run is not None and document.run.active:
        document.run.go_on(stepping=stepping)
    else:
        document.runs += 1
        wake = session.studio.watch_run(document)
        document.run = Run(document.runs, document.page, cycles, wake, stepping=stepping)
    return {"run": document.run.number}
