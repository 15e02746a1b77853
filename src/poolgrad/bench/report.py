"""What was measured, as a table on the terminal, as JSON, as Markdown for the docs, and as pictures.

Files are written only where a path is given. The paths of the documentation are those of the project's sources, taken from
the current directory.
"""

from __future__ import annotations

import json
import platform
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__
from ..engines import _native
from .measure import Measured
from .peers import Peer

__all__ = ["about", "markdown", "plot_rows", "plot_windows", "print_row", "print_table_head", "put_into_docs", "write_json"]

MEASURED = Path("docs", "measured")
IMAGES = Path("docs", "images")
PAGES = (Path("README.md"), *(Path("docs", f"{page}.md") for page in ("performance", "jax", "scipy", "tensorflow-adapter")))

COLOURS = {"floor": "#9aa0a6", "poolgrad": "#d1495b", "PyTorch": "#edae49", "TensorFlow": "#00798c", "JAX": "#5e4fa2"}

HEADS = ("case", "layout", "ms", "× floor", "at best", "fastest peer", "peer × floor", "faster by", "error (ulp)", "peer's error")


def about(peers: Sequence[Peer], threads: int) -> dict[str, Any]:
    """The machine and the versions, without which a number says little."""
    return {
        "machine": processor(),
        "threads": threads,
        "instruction set": _native.isa(),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "poolgrad": __version__,
        **{peer.name: peer.version for peer in peers},
    }


def processor() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists() and (found := re.search(r"model name\s*:\s*(.+)", info.read_text())):
        return f"{found[1].strip()}, {platform.system()}"
    return f"{platform.processor() or platform.machine()}, {platform.system()}"


def cells(done: Measured) -> tuple[str, ...]:
    """One row of the table, as text."""
    peer = done.fastest
    multiples = (f"{done.times('poolgrad', 'floor'):.2f}", f"{done.at_best('poolgrad', 'floor'):.2f}")
    first = (done.row.case.title, done.row.layout, f"{done.ms('poolgrad'):.2f}", *multiples)
    if peer is None:
        return (*first, "none", "", "", _ulps(done.ulps), "")
    mark = "†" if peer in done.differs else ""
    error = _ulps(done.peer_ulps.get(peer))
    beside = (f"{done.times(peer, 'floor'):.1f}", f"{done.times(peer, 'poolgrad'):.2f}×")
    return (*first, peer + mark, *beside, _ulps(done.ulps), error)


def _ulps(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


WIDTHS = (44, 7, 8, 8, 8, 12, 13, 10, 12, 12)


def print_table_head(title: str) -> None:
    print(f"\n{title}")
    print(" ".join(f"{head:<{w}}" if k < 2 else f"{head:>{w}}" for k, (head, w) in enumerate(zip(HEADS, WIDTHS, strict=True))))


def print_row(done: Measured) -> None:
    row = zip(cells(done), WIDTHS, strict=True)
    print(" ".join(f"{text:<{w}}" if k < 2 else f"{text:>{w}}" for k, (text, w) in enumerate(row)), flush=True)
    for name in done.differs:
        print(f"    † {name}'s answer is not ours")


def markdown(rows: Sequence[Measured]) -> str:
    lines = ["| " + " | ".join(HEADS) + " |", "|---|---|" + "--:|" * 3 + "---|" + "--:|" * 4]
    lines += ["| " + " | ".join(cells(done)) + " |" for done in rows]
    if any(done.fastest in done.differs for done in rows):
        lines += ["", "† this peer's answer differs from ours by more than rounding."]
    return "\n".join(lines)


def note(command: str, facts: dict[str, Any]) -> str:
    """The line under a table: how it was made, and where."""
    apart = ("machine", "threads", "instruction set")
    versions = ", ".join(f"{name} {value}" for name, value in facts.items() if name not in apart)
    return f"`{command}` on {facts['machine']}, {facts['threads']} threads, {facts['instruction set']}; {versions}."


def put_into_docs(marker: str, text: str) -> None:
    """Replace what stands between the marker and its end in every page that has it."""
    pattern = re.compile(rf"(<!-- measured: {re.escape(marker)} -->\n).*?(<!-- end -->)", re.DOTALL)
    for page in PAGES:
        old = page.read_text(encoding="utf-8")
        new = pattern.sub(lambda found: f"{found[1]}{text}\n{found[2]}", old)
        if new != old:
            page.write_text(new, encoding="utf-8")
            print(f"wrote '{marker}' into {page}")


def write_json(path: Path | None, facts: dict[str, Any], rows: Sequence[dict[str, Any]], said: str | None = None) -> None:
    """The numbers of a table; `said` is how the run was started, if not as `poolgrad`."""
    if path is None:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)  # a row on a line
    head = json.dumps({"command": said or command(), "about": facts}, indent=1, ensure_ascii=False).removesuffix("\n}")
    path.write_text(f'{head},\n "rows": [\n{lines}\n]}}\n', encoding="utf-8")
    print(f"wrote {path}")


def command() -> str:
    """How this run was started."""
    return " ".join(["poolgrad", *(a for a in sys.argv[1:] if a not in ("--docs", "--json"))])


def as_record(done: Measured) -> dict[str, Any]:
    return {
        "case": done.row.case.title,
        "layout": done.row.layout,
        "dtype": done.row.dtype,
        "direction": "forward" if done.row.forward else "gradient",
        "rounds_ms": {name: [round(t, 4) if np.isfinite(t) else None for t in rows] for name, rows in done.rounds.items()},
        "ulps": done.ulps,
        "peers_ulps": done.peer_ulps,
        "differs": done.differs,
        "refused": done.refused,
    }


def plot_rows(rows: Sequence[Measured], title: str, path: Path | None) -> None:
    """One line per row: how many times the floor each contestant takes."""
    if path is None:
        return
    plt = _pyplot()
    figure, ax = plt.subplots(figsize=(9.5, 0.34 * len(rows) + 1.6), constrained_layout=True)
    names = [name for name in COLOURS if name not in ("floor", "poolgrad") and any(name in done.peers for done in rows)]
    for y, done in enumerate(reversed(rows)):
        points = [done.times(name, "floor") for name in ("poolgrad", *done.peers)]
        ax.plot([min(points), max(points)], [y, y], color="#e3e5e8", lw=2, zorder=1)
    for name in ["poolgrad", *names]:
        found = [(y, done) for y, done in enumerate(reversed(rows)) if name == "poolgrad" or name in done.peers]
        values = [done.times(name, "floor") for _, done in found]
        size = 52 if name == "poolgrad" else 34
        ax.scatter(values, [y for y, _ in found], s=size, color=COLOURS[name], label=name, zorder=3 if name == "poolgrad" else 2)
    ax.axvline(1, color=COLOURS["floor"], lw=1.5, zorder=0)
    ax.text(1, len(rows) - 0.35, "floor", color=COLOURS["floor"], ha="center", va="bottom", fontsize=9)
    ax.set_yticks(range(len(rows)), [f"{done.row.case.title}  {done.row.layout}" for done in reversed(rows)], fontsize=9)
    ax.set_ylim(-0.7, len(rows) - 0.3)
    _log_axis(ax.xaxis, ax.set_xscale)
    ax.set_xlabel("time as a multiple of the floor (read dy once, write dx once)")
    figure.suptitle(title, fontsize=11, x=0.01, ha="left")
    ax.grid(axis="x", color="#eef0f2")
    figure.legend(frameon=False, fontsize=9, loc="outside upper right", ncols=len(names) + 1)
    _finish(figure, ax, path)


def plot_windows(windows: Sequence[int], times: dict[str, list[float | None]], title: str, path: Path | None) -> None:
    """Time against window size on one tensor."""
    if path is None:
        return
    plt = _pyplot()
    figure, ax = plt.subplots(figsize=(8, 4.8), constrained_layout=True)
    for name, values in times.items():
        known = [(w, v) for w, v in zip(windows, values, strict=True) if v is not None]
        if not known:
            continue
        style: dict[str, Any] = {"ls": "--", "lw": 1.5} if name == "floor" else {"marker": "o", "ms": 4, "lw": 2}
        ax.plot(*zip(*known, strict=True), color=COLOURS[name], **style)
        ax.annotate(name, known[-1], xytext=(7, 0), textcoords="offset points", va="center", color=COLOURS[name], fontsize=10)
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(windows), [str(w) for w in windows], fontsize=9)
    ax.minorticks_off()
    ax.set_xlim(min(windows) * 0.92, max(windows) * 1.55)
    _log_axis(ax.yaxis, ax.set_yscale)
    ax.set_xlabel("window (cells a side, stride 1, same)")
    ax.set_ylabel("milliseconds")
    ax.set_title(title, fontsize=11)
    ax.grid(color="#eef0f2")
    _finish(figure, ax, path)


def _log_axis(axis: Any, set_scale: Any) -> None:
    set_scale("log")
    axis.set_major_formatter(lambda value, _: f"{value:g}")
    axis.set_minor_formatter(lambda value, _: "")


def _finish(figure: Any, ax: Any, path: Path) -> None:
    for side in ("top", "right", "left"):
        ax.spines[side].set_visible(False)
    ax.tick_params(which="both", length=0)
    ax.set_axisbelow(True)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    _pyplot().close(figure)
    print(f"wrote {path}")


def _pyplot() -> Any:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    return plt
