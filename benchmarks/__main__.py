"""`python -m benchmarks`: every row of the table, ours beside the peers, in one run."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from . import report
from .cases import CASES, DTYPES, TINY, Row, sweep_case
from .measure import Measured, Settings, measure, microseconds, public_call
from .peers import PEERS, Peer, limit_threads, load

WINDOWS = (3, 5, 7, 9, 15, 31, 63, 127)
MOST_SECONDS = 8.0
"""A peer leaves the window plot where one call is expected to take longer."""


def options() -> argparse.Namespace:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="an eighth of the batch and few rounds: does it work?")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES), metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--dtype", nargs="+", choices=list(DTYPES), default=["float32"])
    parser.add_argument("--direction", nargs="+", choices=["gradient", "forward"], default=["gradient"])
    parser.add_argument("--batch-divisor", type=int, default=1, metavar="N", help="divide the batch: 8 fits the rows into cache")
    parser.add_argument("--allocate", action="store_true", help="every call allocates its result")
    parser.add_argument("--tiny", action="store_true", help="only the cost of a tiny call, in microseconds")
    parser.add_argument("--windows", action="store_true", help="only time against window size")
    parser.add_argument("--threads", type=int, default=cores)
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), default=list(PEERS))
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--docs", action="store_true", help="rewrite the measured tables in README.md and docs/, and the plots")
    return parser.parse_args()


def main() -> None:
    asked = options()
    busy = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    limit_threads(asked.threads)
    peers = [] if asked.no_peers else load(asked.peers, asked.threads)
    facts = report.about(peers, asked.threads)
    print(report.note(report.command(), facts))
    if busy > 0.5:
        print(f"WARNING: this machine was busy when the run began (load {busy:.1f}); its numbers will not be good ones")
    if asked.tiny:
        return tiny(peers, facts, asked)
    settings = Settings(asked.threads, asked.rounds or (3 if asked.quick else 15), asked.allocate, 0.5 if asked.quick else 3.0)
    if not asked.windows:
        for dtype in asked.dtype:
            for direction in asked.direction:
                rows_of(dtype, direction, peers, facts, settings, asked)
    if asked.windows or default_run(asked):
        windows(peers, facts, settings, asked)


def default_run(asked: argparse.Namespace) -> bool:
    """The table of float32 gradients comes with the plot against window size."""
    plain = asked.dtype == ["float32"] and asked.direction == ["gradient"] and asked.cases == list(CASES)
    return plain and asked.batch_divisor == 1 and not asked.allocate


def marker(dtype: str, direction: str, asked: argparse.Namespace) -> str:
    """The name of a table: in the docs, and of its files."""
    parts = [direction, dtype]
    parts += ["allocated"] * asked.allocate + [f"batch-by-{asked.batch_divisor}"] * (asked.batch_divisor > 1)
    return "-".join(parts)


PICTURED = ("gradient-float32", "windows")
"""What the documentation shows as a picture too."""


def place(name: str, asked: argparse.Namespace) -> Path:
    return (report.IMAGES if asked.docs and name in PICTURED else report.RESULTS) / f"{name}.png"


def records(asked: argparse.Namespace) -> Path:
    return report.MEASURED if asked.docs else report.RESULTS


def rows_of(
    dtype: str, direction: str, peers: list[Peer], facts: dict[str, object], settings: Settings, asked: argparse.Namespace
) -> None:
    name = marker(dtype, direction, asked)
    report.print_table_head(name.replace("-", " "))
    divisor = asked.batch_divisor * (8 if asked.quick else 1)
    rows: list[Measured] = []
    for key in asked.cases:
        case = CASES[key].with_batch(divisor)
        for layout in case.layouts():
            rows.append(measure(Row(case, layout, dtype, direction == "forward"), peers, settings))
            report.print_row(rows[-1])
    report.write_json(records(asked) / f"{name}.json", facts, [report.as_record(done) for done in rows])
    title = f"Average pooling {direction}, {dtype}, {asked.threads} threads"
    report.plot_rows(rows, title, place(name, asked))
    if asked.docs:
        report.put_into_docs(name, f"{report.markdown(rows)}\n\n{report.note(report.command(), facts)}")


def windows(peers: list[Peer], facts: dict[str, object], settings: Settings, asked: argparse.Namespace) -> None:
    """Time against window size on one tensor; a peer that has become too slow drops out."""
    times: dict[str, list[float | None]] = {"floor": [], "poolgrad": [], **{peer.name: [] for peer in peers}}
    least: dict[str, float] = {}
    limit = 1e3 * MOST_SECONDS * (0.1 if asked.quick else 1)
    for k, window in enumerate(WINDOWS):
        case = sweep_case(window)
        case = case.with_batch(8) if asked.quick else case
        growth = (window / WINDOWS[k - 1]) ** 2 if k else 1.0
        racing = [peer for peer in peers if least.get(peer.name, 0.0) * growth < limit]
        done = measure(Row(case, case.layouts()[0], "float32"), racing, settings)
        peers_ms = "".join(f"   {name} {time:.1f}" for name, time in done.peers.items())
        print(f"{done.row.case.title:<44} {done.ours:8.2f} ms   floor {done.floor:.2f}{peers_ms}", flush=True)
        times["floor"].append(done.floor)
        times["poolgrad"].append(done.ours)
        for peer in peers:
            times[peer.name].append(done.peers.get(peer.name))
            least[peer.name] = done.peers.get(peer.name, float("inf"))
    found = [{"window": w, **{name: values[k] for name, values in times.items()}} for k, w in enumerate(WINDOWS)]
    report.write_json(records(asked) / "windows.json", facts, found)
    title = f"Gradient of {case.batch}×128×128×32, float32, NHWC, {asked.threads} threads"
    report.plot_windows(WINDOWS, times, title, place("windows", asked))
    if asked.docs:
        lines = ["| window | " + " | ".join(f"{name} (ms)" for name in times) + " |", "|--:|" + "--:|" * len(times)]
        lines += [f"| {w} | " + " | ".join(_ms(v[k]) for v in times.values()) + " |" for k, w in enumerate(WINDOWS)]
        report.put_into_docs("windows", "\n".join(lines) + f"\n\n{report.note(report.command(), facts)}")


def _ms(time: float | None) -> str:
    return "" if time is None else f"{time:.1f}"


def tiny(peers: list[Peer], facts: dict[str, object], asked: argparse.Namespace) -> None:
    """What a call costs when there is nothing to compute; every call allocates its result."""
    lines = ["| call | " + " | ".join(["poolgrad", *(peer.name for peer in peers)]) + " |", "|---|" + "--:|" * (1 + len(peers))]
    found: list[dict[str, object]] = []
    for direction in asked.direction:
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
    report.write_json(records(asked) / "tiny.json", facts, found)
    if asked.docs:
        report.put_into_docs("tiny", "\n".join(lines) + f"\n\n{report.note(report.command(), facts)}")


if __name__ == "__main__":
    main()
