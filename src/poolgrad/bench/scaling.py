"""The model of docs/scaling.md: fitted to real runs on this machine, and what it says of larger ones.

    python -m poolgrad.bench.scaling --folder /dev/shm    time a volume in many chunk sizes, fit, predict
    python -m poolgrad.bench.scaling --from FILE          predict from numbers that were fitted before

A machine takes so long per chunk, per byte read and per byte written; on a file system in memory that is all it takes. Many
machines share the chunks evenly, and a store lets so many bytes a second pass: `--disk` for each machine's own, in GiB/s as
`python -m poolgrad.bench.volumes` measured it (what `traffic` reads and writes).
"""

from __future__ import annotations

import argparse
import json
import shutil
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from .. import volumes
from .volumes import in_folder, make_volume, shape_of

__all__ = ["FITTED", "fit", "main", "predict"]

OVERLAPPING: dict[str, Any] = {"window": 3, "stride": 2, "padding": "same"}
FITTED: dict[str, tuple[int, bool, dict[str, Any]]] = {
    f"{name}, chunks {edge}³": (edge, forwards, pooling)
    for edge in (32, 64, 128, 256)
    for name, forwards, pooling in (
        ("gradient 2×2×2 s2", False, {"window": 2}),
        ("gradient 3×3×3 s2", False, OVERLAPPING),
        ("forward 2×2×2 s2", True, {"window": 2}),
    )
}
"""Chunks of the larger side, from 128 KiB to 64 MiB; mostly writing, with a halo, mostly reading."""


def once(folder: Path, shape: Sequence[int], memory: str, edge: int, forwards: bool, pooling: dict[str, Any]) -> volumes.Report:
    """One run over a fresh volume."""
    source, target, half = folder / "in.zarr", folder / "out.zarr", [n // 2 for n in shape]
    make_volume(source, shape if forwards else half, [edge if forwards else edge // 2] * 3)
    options: Any = {"layout": "DHW", "memory": memory, "chunks": (edge // 2 if forwards else edge,) * 3, **pooling}
    try:
        return volumes.pool(source, target, **options) if forwards else volumes.grad(source, target, shape, **options)
    finally:
        shutil.rmtree(source)
        shutil.rmtree(target, ignore_errors=True)


def fit(folder: Path, shape: Sequence[int], memory: str, rounds: int) -> dict[str, Any]:
    """Seconds of each way, and the model's three numbers: per chunk, per byte read, per byte written."""
    best: dict[str, volumes.Report] = {}
    for _ in range(rounds):
        for name, way in FITTED.items():
            done = once(folder, shape, memory, *way)
            if name not in best or done.seconds < best[name].seconds:
                best[name] = done
    size, rows = prod(shape) * 4, []
    for name, (edge, forwards, _) in FITTED.items():
        read = best[name].reread * (size if forwards else size // 8)
        rows.append((prod(-(-n // edge) for n in shape), read, best[name].bytes))
    seen = np.array([done.seconds for done in best.values()])
    numbers = _least(np.array(rows), seen)
    said = [
        {"way": name, "chunks": row[0], "reread": done.reread, "s": done.seconds, "model s": round(np.array(row) @ numbers, 3)}
        for (name, done), row in zip(best.items(), rows, strict=True)
    ]
    return {"per chunk s": numbers[0], "per byte read s": numbers[1], "per byte written s": numbers[2], "rows": said}


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
CHUNKS = (1 << 20, 64 << 20, 512 << 20)
STORES = (("a store of 20 GiB/s", 20.0), ("a store of 200 GiB/s", 200.0), ("memory", None))


def predict(numbers: dict[str, Any], size: int, machines: int, chunk: int, store: float | None, halo: float = 1.0) -> float:
    """Seconds of a 2×2×2 stride 2 gradient of this size; `store` in GiB/s for all, `halo` is how often a source byte is read.

    >>> predict({"per chunk s": 0.0, "per byte read s": 1e-9, "per byte written s": 1e-9}, 8 * 10**9, 2, 10**6, None)
    4.5
    """
    read, chunks = halo * size / 8, -(-size // chunk)
    each = numbers["per chunk s"] * chunks + numbers["per byte read s"] * read + numbers["per byte written s"] * size
    alone = float(each / machines)
    return alone if store is None else max(alone, (read + size) / 2**30 / store)


def predictions(numbers: dict[str, Any], disk: float) -> list[dict[str, Any]]:
    rows = []
    for name, size, machines in SCALES:
        for where, store in ((f"own disks of {disk:g} GiB/s", disk * machines), *STORES):
            minutes = {f"{chunk >> 20} MiB": round(predict(numbers, size, machines, chunk, store) / 60, 1) for chunk in CHUNKS}
            rows.append({"result": name, "machines": machines, "on": where, "minutes, by chunk": minutes})
    return rows


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the fit and what it predicts, as JSON."""
    parser = argparse.ArgumentParser(prog="python -m poolgrad.bench.scaling")
    parser.add_argument("--size", default="256MiB", help="bytes of the result")
    parser.add_argument("--memory", default="256MiB", help="the ceiling")
    parser.add_argument("--folder", type=Path, default=Path(), help="on which disk")
    parser.add_argument("--rounds", type=int, default=3, help="the best of so many")
    parser.add_argument("--from", type=Path, dest="known", help="numbers that were fitted before")
    parser.add_argument("--disk", type=float, default=1.0, help="what a machine's own disk passes, in GiB/s")
    given = parser.parse_args(arguments)
    if given.known:
        numbers = json.loads(given.known.read_text())
    else:
        shape = shape_of(volumes.as_bytes("--size", given.size))
        numbers = in_folder(given.folder, lambda folder: fit(folder, shape, given.memory, given.rounds))
    print(json.dumps({**numbers, "predictions": predictions(numbers, given.disk)}, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
