"""`poolgrad check`: somebody else's average-pool gradient against the exact one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from ..conformance import GROUPS, TARGETS, Report, grade
from ..conformance import check as checked
from ..conformance import emit as emitted
from ..errors import PoolGradValueError
from .guard import say_json
from .tables import print_rich

__all__ = ["check"]


def _targets() -> list[str]:
    return list(TARGETS)


def _groups() -> list[str]:
    return list(GROUPS)


def check(
    target: Annotated[
        str | None,
        typer.Argument(help=f"{', '.join(TARGETS)}, or package.module:function of your own.", autocompletion=_targets),
    ] = None,
    python: Annotated[Path | None, typer.Option(help="The interpreter that has the target, if it is not this one.")] = None,
    emit: Annotated[Path | None, typer.Option(help="Write the cases into this folder, for a kernel in any language.")] = None,
    judge: Annotated[Path | None, typer.Option(help="Grade the answers found in such a folder.")] = None,
    group: Annotated[
        list[str] | None, typer.Option(help="Only this group of cases; may be repeated.", autocompletion=_groups)
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed draws other shapes and numbers.")] = 0,
    limit: Annotated[int | None, typer.Option(min=1, help="At most so many cases of each group.")] = None,
    timeout: Annotated[float | None, typer.Option(help="Seconds after which a call counts as hung.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write the report as a page.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The report as JSON.")] = False,
) -> int:
    """Test an average-pool gradient, each call in a worker process; exit code 1 if it is wrong or crashes anywhere.

    poolgrad check torch --html torch.html
    """
    if [target, emit, judge].count(None) != 2:
        raise PoolGradValueError("say one thing to check: a TARGET, --emit FOLDER or --judge FOLDER")
    if emit is not None:
        _no("--emit", {"--python": python, "--timeout": timeout, "--html": html})
        return _emitted(emit, len(emitted(emit, groups=group, seed=seed, limit=limit)), as_json)
    if judge is not None:
        _no("--judge", {"--python": python, "--timeout": timeout, "--group": group, "--limit": limit, "--seed": seed or None})
        return _told(grade(judge), html, as_json)
    assert target is not None
    with _Bar() as bar:
        report = checked(target, python=python, groups=group, seed=seed, limit=limit, timeout=timeout, progress=bar.update)
    return _told(report, html, as_json)


def _no(option: str, others: dict[str, object]) -> None:
    """Refuse options that would be passed over in silence."""
    for other, value in others.items():
        if value:
            raise PoolGradValueError(f"{other} does not go with {option}")


def _emitted(folder: Path, cases: int, as_json: bool) -> int:
    if as_json:
        say_json({"folder": str(folder), "cases": cases})
    else:
        print(f"{cases} cases in {folder}; put the answers beside them, then: poolgrad check --judge {folder}")
    return 0


def _told(report: Report, html: Path | None, as_json: bool) -> int:
    if html is not None:
        html.write_text(report.to_html(), encoding="utf-8")
    if as_json:
        say_json(report.to_json())
    else:
        print_rich(report.print)
        if html is not None:
            print(f"wrote {html}")
    if report.verdict == "nothing tested":
        raise PoolGradValueError("nothing was tested: no case has an answer")
    return 0 if report.ok else 1


class _Bar:
    """Progress on standard error, where that is a terminal."""

    def __init__(self) -> None:
        console = Console(stderr=True)
        columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
        self.progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self.task = self.progress.add_task("starting")

    def __enter__(self) -> _Bar:
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def update(self, done: int, total: int, what: str) -> None:
        self.progress.update(self.task, completed=done, total=total, description=what)
