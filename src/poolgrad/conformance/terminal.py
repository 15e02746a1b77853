"""The report on a terminal, with Rich."""

from __future__ import annotations

import re
from collections import Counter

from rich.console import Console
from rich.table import Column, Table
from rich.text import Text

from .report import Group, Report, figure, pace

__all__ = ["show"]

LINES = 10


def show(report: Report, console: Console | None = None) -> None:
    console = console or Console()
    console.print(f"[bold]{report.target}[/] {report.version}, seed {report.seed}, {len(report.results)} cases")
    console.print(_table(report))
    for outcome, heading in (("wrong", "Wrong"), ("crashed", "Crashed"), ("unsupported", "Not supported")):
        _notes(report, outcome, heading, console)
    for note in report.notes:
        console.print(f"• {note}", highlight=False, markup=False)
    _reproducers(report, console)
    console.print(Text(report.verdict, "green" if report.ok else "bold red"), f"in {report.seconds:.0f} s")


def _reproducers(report: Report, console: Console) -> None:
    """The smallest wrong call and the smallest crash; the others by name."""
    shown = [next((r for r in report.reproducers if r.outcome == outcome), None) for outcome in ("wrong", "crashed")]
    for made in filter(None, shown):
        console.print(f"\n[bold]Smallest case: {made.outcome}, {made.group}[/]\n")
        console.print(Text(made.script), soft_wrap=True)  # no indent, no line broken: it is there to be pasted
    others = [made for made in report.reproducers if made not in shown]
    if others:
        places = ", ".join(f"{made.group} ({made.outcome})" for made in others)
        console.print(f"{len(others)} more reproducers in the HTML and JSON reports: {places}")


def _table(report: Report) -> Table:
    table = Table(Column("group", no_wrap=True), box=None, header_style="bold", padding=(0, 1, 0, 0))
    for name in ("right", "wrong", "unsupported", "crashed", "worst ulps", "time", "ours"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in report.groups:
        table.add_row(*_cells(group))
    table.add_section()
    table.add_row(*_cells(report.total), style="bold")
    return table


def _cells(group: Group) -> list[Text]:
    bad = "red" if group.wrong or group.crashed else ("green" if group.right else "dim")
    return [
        Text(group.group, bad),
        Text(str(group.right)),
        Text(str(group.wrong), "red" if group.wrong else "dim"),
        Text(str(group.unsupported), "" if group.unsupported else "dim"),
        Text(str(group.crashed), "red" if group.crashed else "dim"),
        Text(figure(group.worst)),
        Text(pace(group.seconds)),
        Text(pace(group.ours)),
    ]


def _notes(report: Report, outcome: str, heading: str, console: Console) -> None:
    """The most frequent reasons, each in the words of its first case; those that differ in numbers alone are one."""
    many, first = Counter[str](), dict[str, str]()
    for result in report.results:
        if result.verdict.outcome == outcome:
            note = re.sub(r"\{\{.*?\}\} ", "", result.verdict.note).split("\n")[0]
            kind = re.sub(r"[\d\W]+", " ", note)[:40]
            many[kind] += 1
            first.setdefault(kind, f"{result.case.name}: {note}")
    if many:
        console.print(f"\n[bold]{heading}[/]")
    for kind, times in many.most_common(LINES):
        console.print(Text(f"{times:>4} × {first[kind]}"), highlight=False, no_wrap=True, overflow="ellipsis")
    if len(many) > LINES:
        console.print(f"       {len(many) - LINES} other reasons are in the HTML and JSON reports")
