"""`poolgrad.jax` beside JAX's own gradient on the CPU, row by row: `python -m poolgrad.bench.jax`.

Both are jitted functions of the same array, compiled before they are timed, and both allocate their result as XLA does. They
take turns; the best call of each counts. JAX's own is the transpose of `lax.reduce_window`, and for global pooling the
broadcast that a user would write, whichever is quicker.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from . import report
from .cases import CASES, DTYPES, Row
from .measure import TOLERANCE, Timed
from .peers import Jax, Unsupported, limit_threads
from .runs import cores

__all__ = ["main"]

PATIENCE = 3.0
"""Seconds after which a slow contestant has had its turns."""


def ours(peer: Jax, row: Row, given: Any) -> Any:
    """The row through `poolgrad.jax`, compiled."""
    from ..jax import primitive

    pool = row.case.pool()
    spatial = tuple(row.layout.index(letter) for letter in "DHW" if letter in row.layout)
    return peer.jax.jit(lambda source: primitive.linear(source, pool, spatial, row.forward)).lower(given).compile()


def measure(peer: Jax, row: Row, rounds: int) -> dict[str, Any]:
    """Milliseconds of ours and of JAX's own on one row."""
    source = row.source()
    given = peer.jax.numpy.asarray(source)
    compiled = ours(peer, row, given)
    answer = np.asarray(compiled(given), dtype=np.float64)
    contestants = [Timed("ours", lambda: compiled(given).block_until_ready(), float("inf"))]
    try:
        for way in peer.ways(row, source):
            theirs = Timed("JAX", way.call, PATIENCE)
            theirs.turn(1)  # warm, and all there is of a call that takes seconds
            far = np.max(np.abs(way.read(way.call()) - answer)) if theirs.best < PATIENCE else 0.0
            if far > TOLERANCE[row.dtype] * np.max(np.abs(answer)):
                raise AssertionError(f"JAX's {way.name} gives another answer on {row.case.title}")
            contestants.append(theirs)
    except Unsupported:
        pass
    for _ in range(rounds):
        for contestant in contestants:
            contestant.turn(3)
    best = {name: [1e3 * c.best for c in contestants if c.name == name] for name in ("ours", "JAX")}
    return {
        "case": row.case.title,
        "layout": row.layout,
        "dtype": row.dtype,
        "direction": "forward" if row.forward else "gradient",
        "ours_ms": min(best["ours"]),
        "jax_ms": min(best["JAX"], default=None),
    }


HEADS = ("case", "layout", "poolgrad.jax (ms)", "JAX (ms)", "faster by")


def cells(done: dict[str, Any]) -> tuple[str, ...]:
    theirs = done["jax_ms"]
    beside = ("none", "") if theirs is None else (f"{theirs:.2f}", f"{theirs / done['ours_ms']:.1f}×")
    return (done["case"], done["layout"], f"{done['ours_ms']:.2f}", *beside)


def markdown(rows: list[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(HEADS) + " |", "|---|---|--:|--:|--:|"]
    return "\n".join([*lines, *("| " + " | ".join(cells(done)) + " |" for done in rows)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m poolgrad.bench.jax", description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="an eighth of the batch and few rounds")
    parser.add_argument("--cases", default=",".join(CASES), help=f"some of {', '.join(CASES)}")
    parser.add_argument("--dtype", default="float32", choices=list(DTYPES))
    parser.add_argument("--forward", action="store_true", help="the forward pass instead of the gradient")
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--output", type=Path, help="a folder for the numbers")
    parser.add_argument("--docs", action="store_true", help="rewrite the table of docs/jax.md, from where poolgrad's sources lie")
    asked = parser.parse_args()
    threads = cores()
    limit_threads(threads)
    peer = Jax(threads)
    said = " ".join(["python -m poolgrad.bench.jax", *(a for a in sys.argv[1:] if a != "--docs")])
    facts = report.about([peer], threads)
    rows = []
    print(f"{HEADS[0]:<44} {HEADS[1]:<6} " + " ".join(f"{head:>18}" for head in HEADS[2:]))
    for name in asked.cases.split(","):
        case = CASES[name].with_batch(8 if asked.quick else 1)
        for layout in case.layouts():
            rows.append(measure(peer, Row(case, layout, asked.dtype, asked.forward), asked.rounds or (3 if asked.quick else 15)))
            text = cells(rows[-1])
            print(f"{text[0]:<44} {text[1]:<6} " + " ".join(f"{entry:>18}" for entry in text[2:]), flush=True)
    folder = report.MEASURED if asked.docs else asked.output
    report.write_json(folder and folder / "jax.json", facts, rows, said)
    if asked.docs:
        report.put_into_docs("jax", f"{markdown(rows)}\n\n{report.note(said, facts)}")


if __name__ == "__main__":
    main()
