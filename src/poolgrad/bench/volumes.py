"""Volumes through `poolgrad grad` beside plain copies of the same bytes: `python -m poolgrad.bench.volumes`.

The volume is random float32 in uncompressed Zarr chunks; `--size` is that of the result, a 2×2×2 stride 2 gradient, made by one
real command under `--memory`. Every few chunks its process is stopped and two copies of as many chunks are made, each by as many
threads: `traffic` reads the bytes that the gradient reads and writes as many as it writes; `copy` reads the chunks just made
and writes them again. All three are timed until their files have reached the disk. Peak memory is the kernel's.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from ..volumes import as_bytes

__all__ = ["in_folder", "main", "make_volume", "shape_of"]

GIB = 2**30
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
COMMAND = """
import sys
from poolgrad.cli import main
code = main(sys.argv[1:])
for line in open("/proc/self/status"):
    if line.startswith("VmHWM"):
        print(line.split()[1], file=sys.stderr)
sys.exit(code)
"""


def shape_of(size: int) -> tuple[int, ...]:
    """A volume of this many bytes of float32, its edges as alike as powers of two can be.

    >>> shape_of(16 * GIB), shape_of(GIB)
    ((2048, 2048, 1024), (1024, 512, 512))
    """
    edges = [1, 1, 1]
    while prod(edges) * 8 <= size:
        edges[edges.index(min(edges))] *= 2
    return tuple(edges)


def make_volume(path: Path, shape: Sequence[int], chunk: Sequence[int]) -> None:
    """Random numbers in raw chunks: nothing that a disk or a codec could shorten."""
    import zarr

    array = zarr.create_array(path, shape=tuple(shape), chunks=tuple(chunk), dtype="float32", compressors=None)
    rng = np.random.default_rng(0)
    for k in range(0, shape[0], chunk[0]):
        part = rng.standard_normal((min(chunk[0], shape[0] - k), *shape[1:]), dtype=np.float32)
        array[k : k + chunk[0]] = part
    flush(chunk_files(path))


def chunk_files(folder: Path) -> list[Path]:
    return sorted(path for path in (folder / "c").rglob("*") if path.is_file() and path.suffix != ".partial")


def flush(files: Sequence[Path]) -> None:
    for path in files:
        with open(path, "rb") as file:
            os.fsync(file.fileno())


def gradient_command(shape: Sequence[int], memory: str, *more: str) -> list[str]:
    said = ["grad", "dy.zarr", "-o", "dx.zarr", "--input-shape", ",".join(map(str, shape)), "--layout", "DHW"]
    return [sys.executable, "-c", COMMAND, *said, "--memory", memory, "--json", *more]


def copied(pairs: Sequence[tuple[Path, int]], target: Path, workers: int) -> float:
    """Seconds to read each file and write so many bytes in its place."""
    target.mkdir()
    most = max(size for _, size in pairs)
    noise = np.random.default_rng(1).bytes(most)

    def one(number: int) -> Path:
        source, size = pairs[number]
        data = source.read_bytes()
        made = target / str(number)
        made.write_bytes(data if len(data) == size else memoryview(noise)[:size])
        return made

    begin = time.perf_counter()
    with ThreadPoolExecutor(workers) as pool:
        flush(list(pool.map(one, range(len(pairs)))))
    seconds = time.perf_counter() - begin
    shutil.rmtree(target)
    return seconds


@dataclass
class Legs:
    """Seconds of the three, leg by leg."""

    gradient: list[float]
    traffic: list[float]
    copy: list[float]
    bytes: list[int]


def run_beside(folder: Path, shape: Sequence[int], edge: int, memory: str, legs: int, workers: int) -> dict[str, Any]:
    """One gradient of the volume in `folder`, with the copies between its legs."""
    size = edge**3 * 4
    whole = prod(-(-n // edge) for n in shape)
    part = folder / ".dx.zarr.part"
    command = gradient_command(shape, memory, "--window", "2", "--chunks", f"{edge},{edge},{edge}", "--threads", str(workers))
    times = Legs([], [], [], [])
    seen: set[Path] = set()
    begin = time.perf_counter()
    running = subprocess.Popen(command, cwd=folder, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        for leg in range(1, legs + 1):
            wait_for(running, part, whole * leg // legs if leg < legs else None)
            if leg < legs:
                running.send_signal(signal.SIGSTOP)
            made = part if leg < legs else folder / "dx.zarr"
            new = sorted({path.relative_to(made) for path in chunk_files(made)} - seen)
            if not new:
                raise RuntimeError(running.communicate()[1])
            flush([made / name for name in new])
            times.gradient.append(time.perf_counter() - begin)
            times.bytes.append(len(new) * size)
            seen.update(new)
            times.traffic.append(copied([(folder / "dy.zarr" / name, size) for name in new], folder / "copy", workers))
            times.copy.append(copied([(made / name, size) for name in new], folder / "copy", workers))
            begin = time.perf_counter()
            if leg < legs:
                running.send_signal(signal.SIGCONT)
    finally:
        if running.poll() is None:
            running.kill()
    said, peak = running.communicate()
    if running.returncode:
        raise RuntimeError(peak)
    return _report(times, json.loads(said), int(peak.split()[-1]) * 1024)


def wait_for(running: subprocess.Popen[str], part: Path, count: int | None) -> None:
    """Until so many chunks are there, or the process is done."""
    while running.poll() is None:
        if count is not None and part.exists() and len(chunk_files(part)) >= count:
            return
        time.sleep(0.02)


def _report(times: Legs, said: dict[str, Any], peak: int) -> dict[str, Any]:
    total = sum(times.bytes) / GIB
    rates = {name: total / sum(getattr(times, name)) for name in ("gradient", "traffic", "copy")}
    return {
        "GiB": total,
        "GiB/s": {name: round(rate, 3) for name, rate in rates.items()},
        "of traffic": round(rates["gradient"] / rates["traffic"], 3),
        "of copy": round(rates["gradient"] / rates["copy"], 3),
        "peak MiB": round(peak / 2**20, 1),
        "boxes": said["boxes"],
        "reread": said["reread"],
        "legs": {name: [round(t, 2) for t in getattr(times, name)] for name in ("gradient", "traffic", "copy")},
    }


def in_folder(parent: Path, work: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="poolgrad-volumes-", dir=parent))
    try:
        return work(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser(prog="python -m poolgrad.bench.volumes")
    parser.add_argument("--size", default="1GiB", help="bytes of the result")
    parser.add_argument("--memory", default="1GiB", help="the ceiling")
    parser.add_argument("--edge", type=int, default=256, help="edge of the result's chunks, even")
    parser.add_argument("--legs", type=int, default=8, help="how often the copies take their turn")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--folder", type=Path, default=Path(), help="on which disk")
    given = parser.parse_args(arguments)
    shape = shape_of(as_bytes("--size", given.size))

    def work(folder: Path) -> dict[str, Any]:
        make_volume(folder / "dy.zarr", [n // 2 for n in shape], [given.edge // 2] * 3)
        return run_beside(folder, shape, given.edge, given.memory, given.legs, given.threads)

    print(json.dumps({"shape": shape, "memory": given.memory, **in_folder(given.folder, work)}, indent=1))


if __name__ == "__main__":
    main()
