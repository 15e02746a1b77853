"""The gradient on TensorFlow tensors beside TensorFlow's own op, in each of its modes: `python -m poolgrad.bench.tensorflow`.

Both sides get the same tensor and make a new one, eagerly (our engine), inside a `tf.function` and compiled by XLA (our
composition of basic ops). All take turns, round after round, and the best call counts. The table is Markdown.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import report
from .cases import CASES, DTYPES, Row
from .measure import TOLERANCE, Timed
from .peers import TensorFlow, limit_threads

__all__ = ["main"]

MODES = ("eager", "tf.function", "XLA")
SECONDS = 3.0
"""A contestant leaves the rounds once it has used up this time."""


Call = Callable[[Any], Any]


def gradients(row: Row, module: Any) -> Call:
    """The row's gradient by the ops of `module`: `tf.raw_ops`, or ours."""
    case, shape = row.case, list(row.input_shape)
    if case.window is None:
        rows, columns = case.sequences
        return lambda dy: module.FractionalAvgPoolGrad(
            orig_input_tensor_shape=shape,
            out_backprop=dy,
            row_pooling_sequence=rows,
            col_pooling_sequence=columns,
            overlapping=True,
        )
    op = module.AvgPool3DGrad if len(case.size) == 3 else module.AvgPoolGrad
    given: dict[str, Any] = {"ksize": list(row.arrange(1, 1, case.window)), "strides": list(row.arrange(1, 1, case.stride))}
    given |= {"padding": case.padding.upper(), "data_format": row.layout}
    return lambda dy: op(orig_input_shape=shape, grad=dy, **given)


def contestants(tf: Any, row: Row) -> Iterator[Timed]:
    """Everyone who can do the row, warmed up and compared with our eager answer."""
    from .. import tensorflow as ours

    dy = tf.constant(row.source())
    want = np.asarray(gradients(row, ours)(dy)[0], dtype=np.float64)
    for mode in MODES:
        for name, module in (("ours", ours), ("TensorFlow", tf.raw_ops)):
            call = gradients(row, module)
            made = call if mode == "eager" else tf.function(call, jit_compile=mode == "XLA", autograph=False)
            timed = Timed(f"{mode} {name}", lambda made=made: made(dy), SECONDS)  # type: ignore[misc]
            try:
                got = np.asarray(made(dy)[0], dtype=np.float64)
            except tf.errors.OpError:
                continue
            if abs(got - want).max() > TOLERANCE[row.dtype] * abs(want).max():
                print(f"{timed.name} gives another answer", file=sys.stderr)
            yield timed


def measure(tf: Any, row: Row, rounds: int) -> dict[str, float]:
    """The best milliseconds of every contestant."""
    racing = list(contestants(tf, row))
    for _ in range(rounds):
        for timed in racing:
            timed.turn(3)
    return {timed.name: 1e3 * timed.best for timed in racing}


def text(row: Row, best: dict[str, float]) -> str:
    shown = [row.case.title, row.layout]
    for mode in MODES:
        ours, theirs = best[f"{mode} ours"], best.get(f"{mode} TensorFlow")
        shown += [
            f"{ours:.2f}",
            "refused" if theirs is None else f"{theirs:.2f}",
            "" if theirs is None else f"{theirs / ours:.1f}×",
        ]
    return "| " + " | ".join(shown) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m poolgrad.bench.tensorflow", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--cases", default=",".join(CASES), help="which rows: %(default)s")
    parser.add_argument("--dtype", default="float32", choices=list(DTYPES))
    parser.add_argument("--batch-divisor", type=int, default=8, help="divide the batches of poolgrad bench by this: %(default)s")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--quick", action="store_true", help="few rounds: does it work?")
    parser.add_argument("--output", type=Path, help="a folder for tensorflow.json")
    parser.add_argument("--docs", action="store_true", help="rewrite the table of docs/tensorflow-adapter.md")
    asked = parser.parse_args()
    limit_threads(asked.threads)
    peer = TensorFlow(asked.threads)
    facts = report.about([peer], asked.threads)
    heads = [f"{mode}: ours (ms) | TensorFlow | faster by" for mode in MODES]
    lines = [f"| case | layout | {' | '.join(heads)} |", "|---|---|" + "--:|" * (3 * len(MODES))]
    print("\n".join(lines), flush=True)
    records = []
    for name in asked.cases.split(","):
        case = CASES[name].with_batch(asked.batch_divisor)
        for layout in case.layouts()[: 2 if case.window else 1]:
            row = Row(case, layout, asked.dtype)
            best = measure(peer.tf, row, 2 if asked.quick else 10)
            records.append({"case": case.title, "layout": layout, "dtype": asked.dtype, **best})
            lines.append(text(row, best))
            print(lines[-1], flush=True)
    command = " ".join(["python -m poolgrad.bench.tensorflow", *(a for a in sys.argv[1:] if a != "--docs")])
    lines += ["", report.note(command, facts)]
    print("\n".join(lines[-2:]))
    report.write_json(asked.output and asked.output / "tensorflow.json", facts, records, command)
    if asked.docs:
        report.put_into_docs("tensorflow", "\n".join(lines))


if __name__ == "__main__":
    main()
