"""A run of the benchmark: which rows, beside whom, and where the results go."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import PoolGradValueError
from . import report
from .cases import CASES, TINY, Row, sweep_case
from .measure import Measured, Settings, measure, microseconds, public_call
from .peers import PEERS, Peer, limit_threads, load

__all__ = ["Asked", "cores", "run"]

WINDOWS = (3, 5, 7, 9, 15, 31, 63, 127)
MOST_SECONDS = 8.0
"""A peer leaves the window plot where one call is expected to take longer."""

PICTURED = ("gradient-float32", "windows")
"""What the documentation shows as a picture too."""


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Asked:
    """What was asked for; the default is every row of the float32 gradient."""

    threads: int
    cases: tuple[str, ...] = tuple(CASES)
    dtypes: tuple[str, ...] = ("float32",)
    directions: tuple[str, ...] = ("gradient",)
    peers: tuple[str, ...] = tuple(PEERS)
    rounds: int | None = None
    batch_divisor: int = 1
    quick: bool = False
    allocate: bool = False
    tiny: bool = False
    windows: bool = False
    docs: bool = False
    output: Path | None = None

    @property
    def is_default(self) -> bool:
        """The table of float32 gradients comes with the plot against window size."""
        plain = self.dtypes == ("float32",) and self.directions == ("gradient",) and self.cases == tuple(CASES)
        return plain and self.batch_divisor == 1 and not self.allocate

    def record(self, name: str) -> Path | None:
        """Where the numbers of a table go."""
        folder = report.MEASURED if self.docs else self.output
        return folder and folder / f"{name}.json"

    def picture(self, name: str) -> Path | None:
        folder = report.IMAGES if self.docs and name in PICTURED else self.output
        return folder and folder / f"{name}.png"


def run(asked: Asked) -> dict[str, Any]:
    """Measure, print every row as it comes, and return all of it: how, where, and per table its rows."""
    if asked.docs and not all(page.is_file() for page in report.PAGES):
        raise PoolGradValueError(f"--docs rewrites {' and '.join(map(str, report.PAGES))}: run it where poolgrad's sources lie")
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    limit_threads(asked.threads)
    peers = load(list(asked.peers), asked.threads)
    facts = report.about(peers, asked.threads)
    print(report.note(report.command(), facts))
    if busy > 0.5:
        print(f"WARNING: this machine was busy when the run began (load {busy:.1f}); its numbers will not be good ones")
    tables: dict[str, list[dict[str, Any]]] = {}
    if asked.tiny:
        tables["tiny"] = tiny(peers, facts, asked)
    else:
        rounds, seconds = (3, 0.5) if asked.quick else (15, 3.0)
        settings = Settings(asked.threads, asked.rounds or rounds, asked.allocate, seconds)
        if not asked.windows:
            for dtype in asked.dtypes:
                for direction in asked.directions:
                    tables[marker(dtype, direction, asked)] = rows_of(dtype, direction, peers, facts, settings, asked)
        if asked.windows or asked.is_default:
            tables["windows"] = windows(peers, facts, settings, asked)
    return {"command": report.command(), "about": facts, "tables": tables}


def marker(dtype: str, direction: str, asked: Asked) -> str:
    """The name of a table: in the docs, and of its files."""
    parts = [direction, dtype]
    parts += ["allocated"] * asked.allocate + [f"batch-by-{asked.batch_divisor}"] * (asked.batch_divisor > 1)
    return "-".join(parts)


def rows_of(
    dtype: str, direction: str, peers: list[Peer], facts: dict[str, Any], settings: Settings, asked: Asked
) -> list[dict[str, Any]]:
    name = marker(dtype, direction, asked)
    report.print_table_head(name.replace("-", " "))
    divisor = asked.batch_divisor * (8 if asked.quick else 1)
    rows: list[Measured] = []
    for key in asked.cases:
        case = CASES[key].with_batch(divisor)
        for layout in case.layouts():
            rows.append(measure(Row(case, layout, dtype, direction == "forward"), peers, settings))
            report.print_row(rows[-1])
    records = [report.as_record(done) for done in rows]
    report.write_json(asked.record(name), facts, records)
    report.plot_rows(rows, f"Average pooling {direction}, {dtype}, {asked.threads} threads", asked.picture(name))
    if asked.docs:
        report.put_into_docs(name, f"{report.markdown(rows)}\n\n{report.note(report.command(), facts)}")
    return records


def windows(peers: list[Peer], facts: dict[str, Any], settings: Settings, asked: Asked) -> list[dict[str, Any]]:
    """Time against window size on one tensor; a peer that has become too slow drops out."""
    times: dict[str, list[float | None]] = {name: [] for name in ("floor", "poolgrad", *(peer.name for peer in peers))}
    least: dict[str, float] = {}
    limit = 1e3 * MOST_SECONDS * (0.1 if asked.quick else 1)
    for k, window in enumerate(WINDOWS):
        case = sweep_case(window)
        case = case.with_batch(8) if asked.quick else case
        growth = (window / WINDOWS[k - 1]) ** 2 if k else 1.0
        racing = [peer for peer in peers if least.get(peer.name, 0.0) * growth < limit]
        done = measure(Row(case, case.layouts()[0], "float32"), racing, settings)
        print(f"{done.row.case.title:<44}" + "".join(f"   {name} {done.ms(name):.2f} ms" for name in done.rounds), flush=True)
        for name, values in times.items():
            values.append(done.ms(name) if name in done.rounds else None)
            least[name] = done.ms(name) if name in done.rounds else float("inf")
    found = [{"window": w, **{name: values[k] for name, values in times.items()}} for k, w in enumerate(WINDOWS)]
    report.write_json(asked.record("windows"), facts, found)
    title = f"Gradient of {case.batch}×128×128×32, float32, NHWC, {asked.threads} threads"
    report.plot_windows(WINDOWS, times, title, asked.picture("windows"))
    if asked.docs:
        lines = ["| window | " + " | ".join(f"{name} (ms)" for name in times) + " |", "|--:|" + "--:|" * len(times)]
        lines += [f"| {w} | " + " | ".join(_ms(v[k]) for v in times.values()) + " |" for k, w in enumerate(WINDOWS)]
        report.put_into_docs("windows", "\n".join(lines) + f"\n\n{report.note(report.command(), facts)}")
    return found


def _ms(time: float | None) -> str:
    return "" if time is None else f"{time:.1f}"


def tiny(peers: list[Peer], facts: dict[str, Any], asked: Asked) -> list[dict[str, Any]]:
    """What a call costs when there is nothing to compute; every call allocates its result."""
    lines = ["| call | " + " | ".join(["poolgrad", *(peer.name for peer in peers)]) + " |", "|---|" + "--:|" * (1 + len(peers))]
    found: list[dict[str, Any]] = []
    for direction in asked.directions:
        row = Row(TINY, "NHWC", "float32", direction == "forward")
        source = row.source()
        contestants = {"poolgrad": public_call(row, source)}
        for peer in peers:
            contestants[peer.name] = next(way.call for way in peer.ways(row, source) if way.allocates)
        for call in contestants.values():
            call()
        best = microseconds(contestants, rounds=asked.rounds or 30)
        found.append({"direction": direction, **best})
        shown = [f"{best[name]:.2f} µs" for name in contestants]
        lines.append(f"| {direction} of {row.case.title} | " + " | ".join(shown) + " |")
    print("\n".join(lines))
    report.write_json(asked.record("tiny"), facts, found)
    if asked.docs:
        report.put_into_docs("tiny", "\n".join(lines) + f"\n\n{report.note(report.command(), facts)}")
    return found
