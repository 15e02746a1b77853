"""The model of docs/scaling.md: fitted to real runs on this machine, and what it says of larger ones.

    python -m poolgrad.bench.scaling              time a volume in many chunk sizes, fit, predict
    python -m poolgrad.bench.scaling --from FILE  predict from numbers that were fitted before

A machine takes so long per chunk, per byte read and per byte written; many machines share the chunks evenly, and a store that
they share lets so many bytes a second pass in all.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import time
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..volumes import as_bytes
from .volumes import ENVIRONMENT, chunk_files, flush, gradient_command, in_folder, make_volume, shape_of

__all__ = ["FITTED", "fit", "main", "predict"]

FITTED: list[tuple[str, int, tuple[str, ...]]] = [
    (f"{window}, chunks {edge}³", edge, options)
    for edge in (64, 128, 256)
    for window, options in (
        ("2×2×2 s2", ("--window", "2")),
        ("3×3×3 s2", ("--window", "3", "--stride", "2", "--padding", "same")),
    )
]
"""Chunks of the result, from 1 to 64 MiB; without a halo and with one."""


def fit(folder: Path, shape: Sequence[int], memory: str, rounds: int) -> dict[str, Any]:
    """Seconds of each way, and the model's three numbers: per chunk, per byte read, per byte written."""
    rows: list[dict[str, Any]] = []
    best = [float("inf")] * len(FITTED)
    facts: list[dict[str, Any]] = [{} for _ in FITTED]
    for _ in range(rounds):
        for k, (_, edge, options) in enumerate(FITTED):
            make_volume(folder / "dy.zarr", [n // 2 for n in shape], [edge // 2] * 3)
            chunks = ("--chunks", f"{edge},{edge},{edge}")
            done = subprocess.run(
                gradient_command(shape, memory, *options, *chunks),
                cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, check=True,
            )  # fmt: skip
            facts[k] = json.loads(done.stdout)
            begin = time.perf_counter()
            flush(chunk_files(folder / "dx.zarr"))
            best[k] = min(best[k], facts[k]["seconds"] + time.perf_counter() - begin)
            shutil.rmtree(folder / "dx.zarr")
            shutil.rmtree(folder / "dy.zarr")
    written = prod(shape) * 4
    for (name, edge, _), seconds, fact in zip(FITTED, best, facts, strict=True):
        chunks_made = prod(-(-n // edge) for n in shape)
        rows.append({"way": name, "chunks": chunks_made, "read": fact["reread"] * written / 8, "written": written, "s": seconds})
    table = np.array([[row["chunks"], row["read"], row["written"]] for row in rows])
    seconds_seen = np.array([row["s"] for row in rows])
    numbers = _least(table, seconds_seen)
    for row, predicted in zip(rows, table @ numbers, strict=True):
        row["model s"] = float(predicted)
    return {"per chunk s": numbers[0], "per byte read s": numbers[1], "per byte written s": numbers[2], "rows": rows}


def _least(table: Any, seen: Any) -> Any:
    """Least squares of the relative errors, with no number below zero."""
    scaled, used = table / seen[:, None], list(range(table.shape[1]))
    while True:
        found, *_ = np.linalg.lstsq(scaled[:, used], np.ones(len(seen)), rcond=None)
        if (found >= 0).all():
            numbers = np.zeros(table.shape[1])
            numbers[used] = found
            return numbers
        used.pop(int(found.argmin()))


SCALES = (("1 TiB", 2**40, 16), ("1 PiB", 2**50, 1000))
CHUNKS = (8 << 20, 64 << 20, 512 << 20)
STORES = (("disks of their own", None), ("a store of 20 GiB/s", 20 * 2**30), ("a store of 200 GiB/s", 200 * 2**30))


def predict(numbers: dict[str, Any], size: int, machines: int, chunk: int, store: int | None, halo: float = 1.0) -> float:
    """Seconds of a 2×2×2 stride 2 gradient of this size; `halo` is how often a source byte is read.

    >>> predict({"per chunk s": 0.0, "per byte read s": 1e-9, "per byte written s": 1e-9}, 8 * 10**9, 2, 10**6, None)
    4.5
    """
    read, chunks = halo * size / 8, -(-size // chunk)
    each = numbers["per chunk s"] * chunks + numbers["per byte read s"] * read + numbers["per byte written s"] * size
    alone = float(each / machines)
    return alone if store is None else max(alone, (read + size) / store)


def predictions(numbers: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, size, machines in SCALES:
        for where, store in STORES:
            minutes = {f"{chunk >> 20} MiB": round(predict(numbers, size, machines, chunk, store) / 60, 1) for chunk in CHUNKS}
            rows.append({"result": name, "machines": machines, "on": where, "minutes, by chunk": minutes})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the fit and what it predicts, as JSON."""
    parser = argparse.ArgumentParser(prog="python -m poolgrad.bench.scaling")
    parser.add_argument("--size", default="512MiB", help="bytes of the result")
    parser.add_argument("--memory", default="1GiB", help="the ceiling")
    parser.add_argument("--folder", type=Path, default=Path(), help="on which disk")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many")
    parser.add_argument("--from", type=Path, dest="known", help="numbers that were fitted before")
    given = parser.parse_args(arguments)
    if given.known:
        numbers = json.loads(given.known.read_text())
    else:
        shape = shape_of(as_bytes("--size", given.size))
        numbers = in_folder(given.folder, lambda folder: fit(folder, shape, given.memory, given.rounds))
    print(json.dumps({**numbers, "predictions": predictions(numbers)}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
