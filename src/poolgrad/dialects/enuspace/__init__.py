"""enuSpace's pages of TensorFlow blocks: read, checked, run and written, on any system.

`docs/enuspace.md` says what is the same and what is better.
"""

from __future__ import annotations

from pathlib import Path

from ...errors import PoolGradValueError
from .blocks import BLOCKS, BlockDef, PinDef
from .check import Verdict, check_page, check_property
from .examples import corrected_page, documented_page
from .export import read_json, write_json
from .files import open_page, open_pages, save_page
from .grammar import PropertyError
from .graph import Graph
from .page import Block, LogEntry, Page, Pin, Wire
from .project import Project, read_project, write_project
from .rules import refusal
from .run import BlockState, Report, Runner
from .svg import read_svg, write_svg
from .translation import read, write
from .watch import Row, block_rows, element_rows, watch
from .xml import FileError

__all__ = [
    "BLOCKS",
    "Block",
    "BlockDef",
    "BlockState",
    "FileError",
    "Graph",
    "LogEntry",
    "Page",
    "Pin",
    "PinDef",
    "Project",
    "PropertyError",
    "Report",
    "Row",
    "Runner",
    "Verdict",
    "Wire",
    "block_rows",
    "check_page",
    "check_property",
    "corrected_page",
    "documented_page",
    "element_rows",
    "open_page",
    "open_pages",
    "read",
    "read_json",
    "read_project",
    "read_svg",
    "refusal",
    "run_file",
    "save_page",
    "watch",
    "write",
    "write_json",
    "write_project",
    "write_svg",
]


def run_file(path: str | Path, *, cycles: int = 1, elements: int = 100) -> Report:
    """Run a page (`.svg` or `.json`), or every page of a project (`.enup`), and report.

    A session with INFINITE_LOOP runs for `cycles` cycles, any other once. An array unfolds into at most `elements` rows of
    the watch table. A file that cannot be read raises `FileError`; whatever goes wrong on a page is in the report's log.
    """
    reports = [Runner(page, cycles=cycles).run(elements=elements) for page in open_pages(path)]
    if not reports:
        raise PoolGradValueError(f"{Path(path).name} has no page to run")
    return reports[0] if len(reports) == 1 else _joined(Path(path).stem, reports)


def _joined(name: str, reports: list[Report]) -> Report:
    """The reports of several pages as one; ids are prefixed with their page, since each page has its own."""
    joined = Report(name, all(r.ok for r in reports), max(r.cycles for r in reports))
    for r in reports:
        at = f"{r.page}/"
        joined.watch += [Row(at + row.block, row.type, row.name, row.value) for row in r.watch]
        joined.log += [LogEntry(e.severity, at + e.block, e.message, e.pin) for e in r.log]
        joined.blocks += [BlockState(at + b.block, b.state, b.seconds, b.error, b.cycle) for b in r.blocks]
    return joined
