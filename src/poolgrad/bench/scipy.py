"""`AvgPoolOperator` beside what scientists use today, product by product: `python -m poolgrad.bench.scipy`.

The rivals are the sparse matrix of the same map, as long as it has no more weights than `to_sparse()` stores unasked, and NumPy
(`reshape` and `mean`, `repeat`) for windows side by side or `scipy.ndimage.uniform_filter` for sliding ones. All make a new
result from the same vector and agree on it before they are timed. They take turns; the best call of each counts.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..errors import PoolGradMemoryError
from ..scipy import AvgPoolOperator
from . import report
from .measure import Timed
from .peers import limit_threads
from .runs import cores

__all__ = ["main"]

PATIENCE = 3.0
"""Seconds after which a slow contestant has had its turns."""

Array = npt.NDArray[Any]
Call = Callable[[Array], Array]


class Case(NamedTuple):
    """Windows of one size on every axis, side by side or sliding by one."""

    size: tuple[int, ...]
    window: int
    slides: bool

    @property
    def title(self) -> str:
        side = "×".join([str(self.window)] * len(self.size))
        return f"{side} {'sliding' if self.slides else 'side by side'}, {'×'.join(map(str, self.size))}"

    def operator(self, dtype: Any) -> AvgPoolOperator:
        layout = "DHW"[-len(self.size) :]
        return AvgPoolOperator(self.size, self.window, stride=1 if self.slides else self.window, layout=layout, dtype=dtype)


CASES = {
    "2x2": Case((2048, 2048), 2, False),
    "8x8": Case((2048, 2048), 8, False),
    "2x2x2": Case((160, 160, 160), 2, False),
    "3x3": Case((1000, 1000), 3, True),
    "15x15": Case((1000, 1000), 15, True),
    "9x9x9": Case((120, 120, 120), 9, True),
}


def by_hand(case: Case, operator: AvgPoolOperator) -> tuple[str, Call, Call]:
    """What is written without a library for it: its name, the pooling, the adjoint."""
    k = case.window
    if case.slides:
        from scipy.ndimage import uniform_filter

        inner = (slice(k // 2, -(k // 2)),) * len(case.size)

        def slide(x: Array) -> Array:
            return np.ravel(uniform_filter(x.reshape(case.size), k)[inner])

        def back(y: Array) -> Array:
            return np.ravel(uniform_filter(np.pad(y.reshape(operator.dimsd), k // 2), k, mode="constant"))

        return "uniform_filter", slide, back
    split = [n for size in case.size for n in (size // k, k)]

    def pool(x: Array) -> Array:
        return np.ravel(x.reshape(split).mean(axis=tuple(range(1, len(split), 2))))

    def spread(y: Array) -> Array:
        made = y.reshape(operator.dimsd) / k ** len(case.size)
        for axis in range(len(case.size)):
            made = np.repeat(made, k, axis=axis)
        return np.ravel(made)

    return "NumPy", pool, spread


def measure(case: Case, dtype: Any, rounds: int) -> list[dict[str, Any]]:
    """Milliseconds of both products."""
    operator, rng = case.operator(dtype), np.random.default_rng(0)
    name, *hand = by_hand(case, operator)
    try:
        matrix = operator.to_sparse()
        sparse: list[Call | None] = [matrix.__matmul__, matrix.T.tocsr().__matmul__]
    except PoolGradMemoryError:
        sparse = [None, None]
    done = []
    for k, (product, ours) in enumerate((("A @ x", operator.matvec), ("A.H @ y", operator.rmatvec))):
        vector = rng.standard_normal(operator.shape[1 - k]).astype(dtype)
        calls: dict[str, Call | None] = {"ours": ours, "sparse": sparse[k], "by hand": hand[k]}
        contestants = [Timed(who, partial(call, vector), PATIENCE) for who, call in calls.items() if call]
        answer = ours(vector)
        for contestant in contestants:
            far = np.max(np.abs(contestant.call() - answer))
            if far > (1e-3 if dtype == np.float32 else 1e-9) * np.max(np.abs(answer)):
                raise AssertionError(f"{contestant.name} gives another answer on {case.title}, {product}")
        for _ in range(rounds):
            for contestant in contestants:
                contestant.turn(2)
        best = {f"{c.name} ms": 1e3 * c.best for c in contestants}
        done.append({"case": case.title, "product": product, "dtype": np.dtype(dtype).name, "by hand": name, **best})
    return done


def text(done: dict[str, Any]) -> str:
    ours = done["ours ms"]

    def beside(name: str) -> str:
        return f"{done[name]:.2f} ({done[name] / ours:.1f}×)" if name in done else "too large"

    by = f"{beside('by hand ms')}, {done['by hand']}"
    return f"| {done['case']} | `{done['product']}` | {ours:.2f} | {beside('sparse ms')} | {by} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m poolgrad.bench.scipy", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--cases", default=",".join(CASES), help="which rows: %(default)s")
    parser.add_argument("--dtype", default="float64", choices=["float32", "float64"])
    parser.add_argument("--quick", action="store_true", help="few rounds: does it work?")
    parser.add_argument("--output", type=Path, help="a folder for scipy.json")
    parser.add_argument("--docs", action="store_true", help="rewrite the table of docs/scipy.md")
    asked = parser.parse_args()
    threads = cores()
    limit_threads(threads)
    import scipy

    facts = {**report.about([], threads), "SciPy": scipy.__version__}
    lines = ["| map | product | poolgrad (ms) | sparse matrix (ms) | by hand (ms) |", "|---|---|--:|--:|--:|"]
    print("\n".join(lines), flush=True)
    records = []
    for name in asked.cases.split(","):
        for done in measure(CASES[name], np.dtype(asked.dtype), 2 if asked.quick else 15):
            records.append(done)
            lines.append(text(done))
            print(lines[-1], flush=True)
    command = " ".join(["python -m poolgrad.bench.scipy", *(a for a in sys.argv[1:] if a != "--docs")])
    lines += ["", report.note(command, facts)]
    print("\n".join(lines[-2:]))
    report.write_json(asked.output and asked.output / "scipy.json", facts, records, command)
    if asked.docs:
        report.put_into_docs("scipy", "\n".join(lines))


if __name__ == "__main__":
    main()
