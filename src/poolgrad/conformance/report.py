"""What a check found, for people and for programs: per group the verdicts, the worst error and the times; then reproducers."""

from __future__ import annotations

import platform
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import TYPE_CHECKING, Any

from .case import Case
from .judge import OUTCOMES, Verdict, allowed
from .suite import GROUPS

if TYPE_CHECKING:
    from rich.console import Console

__all__ = ["SCHEMA", "Group", "Report", "Reproducer", "Result", "figure", "pace"]

SCHEMA = 1
"""The version of the JSON that `Report.to_json` makes; docs/conformance.md describes it."""


@dataclass(frozen=True)
class Result:
    """One case: the verdict, and the seconds of a call beside ours where there was an answer to compare."""

    case: Case
    verdict: Verdict
    seconds: float | None = None
    ours: float | None = None


@dataclass(frozen=True)
class Group:
    """A row of the report."""

    group: str
    right: int
    wrong: int
    unsupported: int
    crashed: int
    worst: float | None
    seconds: float
    ours: float


@dataclass(frozen=True)
class Reproducer:
    """The smallest failing case that was found from one group, as a script."""

    group: str
    outcome: str
    case: Case
    note: str
    script: str


@dataclass(frozen=True)
class Report:
    """The outcome of a check; `ok` if something was right, nothing wrong and nothing crashed."""

    target: str
    version: str
    python: str
    seed: int
    results: tuple[Result, ...]
    reproducers: tuple[Reproducer, ...] = ()
    seconds: float = 0.0
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return self.verdict == "nothing wrong"

    @property
    def verdict(self) -> str:
        """ "not right", "nothing tested" (a target that served no case has shown nothing) or "nothing wrong"."""
        outcomes = {result.verdict.outcome for result in self.results}
        if outcomes & {"wrong", "crashed"}:
            return "not right"
        return "nothing wrong" if "right" in outcomes else "nothing tested"

    @cached_property
    def groups(self) -> tuple[Group, ...]:
        names = dict.fromkeys(result.case.group for result in self.results)
        return tuple(_group(name, [r for r in self.results if r.case.group == name]) for name in names)

    @property
    def total(self) -> Group:
        return _group("all", list(self.results))

    def print(self, console: Console | None = None) -> None:
        """The table, what is wrong or not supported and why, and the smallest reproducer, on a Rich console."""
        from .terminal import show

        show(self, console)

    def to_html(self) -> str:
        """A page that needs nothing else."""
        from .html import page

        return page(self)

    def to_json(self) -> dict[str, Any]:
        from .. import __version__

        return {
            "schema": SCHEMA,
            "poolgrad": __version__,
            "target": self.target,
            "version": self.version,
            "python": self.python,
            "machine": f"{platform.system()} {platform.machine()}",
            "seed": self.seed,
            "seconds": round(self.seconds, 3),
            "ok": self.ok,
            "groups": [_row(group) for group in (*self.groups, self.total)],
            "notes": list(self.notes),
            "results": [_result(result) for result in self.results],
            "reproducers": [
                {"group": r.group, "outcome": r.outcome, "note": r.note, "case": r.case.to_json(), "script": r.script}
                for r in self.reproducers
            ],
        }


def _group(name: str, results: list[Result]) -> Group:
    many = Counter(result.verdict.outcome for result in results)
    errors = [result.verdict.ulps for result in results if result.verdict.ulps is not None]
    timed = [(r.seconds, r.ours) for r in results if r.seconds is not None and r.ours is not None]
    counts = {outcome: many[outcome] for outcome in OUTCOMES}
    seconds, ours = (sum(column) for column in zip(*timed, strict=True)) if timed else (0.0, 0.0)
    return Group(name, **counts, worst=max(errors, default=None), seconds=seconds, ours=ours)


def _row(group: Group) -> dict[str, Any]:
    return {
        "group": group.group,
        "about": GROUPS[group.group][0] if group.group in GROUPS else "",
        **{outcome: getattr(group, outcome) for outcome in OUTCOMES},
        "worst_ulps": _plain(group.worst),
        "seconds": group.seconds,
        "our_seconds": group.ours,
    }


def _result(result: Result) -> dict[str, Any]:
    verdict = result.verdict
    return {
        "case": result.case.to_json(),
        "outcome": verdict.outcome,
        "ulps": _plain(verdict.ulps),
        "allowed_ulps": allowed(result.case) if result.case.pool is not None else None,
        "note": verdict.note,
        "seconds": result.seconds,
        "our_seconds": result.ours,
    }


def _plain(ulps: float | None) -> float | str | None:
    """JSON has no infinity."""
    return ulps if ulps is None or isfinite(ulps) else "inf"


def figure(ulps: float | None) -> str:
    """
    >>> figure(0.4812), figure(3.2e7), figure(float("inf")), figure(None)
    ('0.48', '3.2e+07', 'inf', '–')
    """
    return "–" if ulps is None else f"{ulps:.2g}"


def pace(seconds: float) -> str:
    """
    >>> pace(0.0), pace(0.0000265), pace(0.00123), pace(2.5)
    ('–', '26 µs', '1.2 ms', '2.5 s')
    """
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if seconds >= unit:
            return f"{seconds / unit:.0f} {name}" if seconds >= 10 * unit else f"{seconds / unit:.1f} {name}"
    return "–"
