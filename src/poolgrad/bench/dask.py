"""What Dask adds to the bare calls, and what travels between its workers: `python -m poolgrad.bench.dask`.

Overhead: the same result chunks of 64 MiB in several ways, all cores each, in turn, for several rounds. *In place*: a loop of
bare calls, each on an array of its own that holds all it needs, halo included, before the clock starts. *Bare*: the loop of bare
calls on what Dask has to work with, the chunks: where a call needs more than one, its cells are put together first, in memory
that is used again. Then Dask's threaded scheduler, and `dask.distributed`, a worker process for each core. What one way takes
more than another is the median of the rounds' quotients: memory has quicker and slower seconds. Every way hands each result on
as soon as it is made, as a store would, and its memory is used again. *Hollow* is the floor under the workers: the same graph,
every task of which does nothing.

Halo: chunks spread over worker processes, the bytes that these fetched from each other beside the bytes they could not do
without.
"""

from __future__ import annotations

import argparse
import gc
import itertools
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import dask
import dask.array as da
import distributed
import numpy as np
from dask._task_spec import Task, TaskRef
from dask.callbacks import Callback
from dask.highlevelgraph import HighLevelGraph
from distributed import Client, LocalCluster, as_completed, futures_of, wait

from .. import Axis, Pool, __version__, forward, gradient
from ..dask.cuts import Box, length, meet, volume
from ..dask.tasks import view
from .report import processor

__all__ = ["exact_halo", "fetched", "forget_transfers", "main"]

LAYOUT, SPATIAL = "DHW", (0, 1, 2)
WARM = 3  # rounds


class Case(NamedTuple):
    """A pooling of a volume, and how many chunks of 64 MiB its larger side has along each axis."""

    title: str
    window: int
    stride: int
    forwards: bool
    chunks: tuple[int, int, int]
    chunk: tuple[int, int, int]

    @cache  # noqa: B019  # a few cases, each for the whole run
    def pool(self) -> Pool:
        sizes = [n * c for n, c in zip(self.chunks, self.chunk, strict=True)]
        padding = "same" if self.window > self.stride else "valid"
        return Pool(tuple(Axis.regular(n, self.window, stride=self.stride, padding=padding) for n in sizes))

    def source(self, client: Client | None = None) -> Any:
        """Random numbers, in memory here or spread over the workers: as many chunks on each, neighbours together."""
        divide = 1 if self.forwards else self.stride
        chunks = tuple((c // divide,) * n for n, c in zip(self.chunks, self.chunk, strict=True))
        shape, places = [row[0] for row in chunks], list(np.ndindex(*self.chunks))
        workers = sorted(client.nthreads()) if client else []
        graph: dict[Any, Any] = {}
        name = f"random-{uuid4().hex}"  # the chunks of the last case may not be gone yet
        for seed, at in enumerate(places):
            key = (name, *at)
            if client is None:
                graph[key] = random_block(seed, shape)
            else:
                worker = workers[seed * len(workers) // len(places)]
                graph[key] = client.submit(random_block, seed, shape, workers=[worker], pure=False)
        return da.Array(graph, name, chunks, dtype=np.float32)

    def run(self, source: Any, **options: Any) -> Any:
        return (forward if self.forwards else gradient)(self.pool(), source, layout=LAYOUT, **options)


def random_block(seed: int, shape: list[int]) -> Any:
    return np.random.default_rng(seed).random(shape, dtype=np.float32)


ROWS, CUBES = (64, 128, 2048), (256, 256, 256)
CASES = (
    Case("2×2×2 s2 gradient", 2, 2, False, (8, 8, 2), CUBES),
    Case("2×2×2 s2 forward", 2, 2, True, (4, 4, 4), CUBES),
    Case("3×3×3 s2 gradient, last axis whole", 3, 2, False, (16, 8, 1), ROWS),
    Case("3×3×3 s1 gradient, last axis whole", 3, 1, False, (8, 4, 1), ROWS),
    Case("3×3×3 s1 gradient, cut along all axes", 3, 1, False, (4, 4, 2), CUBES),
    Case("3×3×3 s1 forward, cut along all axes", 3, 1, True, (4, 4, 2), CUBES),
)


def first(block: Any) -> Any:
    """What stands for handing a chunk on: a copy of its first element, so that the chunk itself can go."""
    return block[:1, :1, :1].copy()


def nothing(*_: Any) -> None:
    """The work of a hollow task."""


def hollow(lazy: Any) -> Any:
    """The tasks of poolgrad in a Dask array, and what they depend on, with nothing to do."""
    graph = {key: task for key, task in lazy.dask.items() if isinstance(task, Task) and key[0].startswith("poolgrad-")}
    empty = {("hollow-" + key[0], *key[1:]): _emptied(key, task, graph) for key, task in graph.items()}
    layers = {**lazy.dask.layers, "hollow-" + lazy.name: empty}
    needs = {**lazy.dask.dependencies, "hollow-" + lazy.name: set(lazy.dask.layers)}
    return da.Array(HighLevelGraph(layers, needs), "hollow-" + lazy.name, lazy.chunks, dtype=lazy.dtype)


def _emptied(key: Any, task: Any, graph: dict[Any, Any]) -> Any:
    refs = [TaskRef(("hollow-" + k[0], *k[1:]) if k in graph else k) for k in task.dependencies]
    return type(task)(("hollow-" + key[0], *key[1:]), nothing, *refs)


class Bare:
    """The result chunks of a Dask array whose chunks are at hand, each by a bare call."""

    def __init__(self, case: Case, source: Any, threads: int):
        self.case, self.threads, pool = case, threads, case.pool()
        chunks, keys = dict(source.dask), [((source.name, *at), box) for at, box in blocks(source)]
        held = [(chunks[key], box) for key, box in keys]
        self.wanted: list[tuple[list[slice], Box, list[tuple[Any, Box]]]] = []
        for _, made in blocks(case.run(source)):
            region = [slice(*span) for span in made]
            needed = (pool.inputs_for if case.forwards else pool.cells_for)(region)
            need = tuple((part.start, part.stop) for part in needed)
            shared = ((array, box, tuple(map(meet, need, box))) for array, box in held)
            parts = [(view(array, SPATIAL, box, part), part) for array, box, part in shared if volume(part)]
            self.wanted.append((region, need, parts))
        self.room = np.ones(max(volume(need) for _, need, _ in self.wanted), np.float32)
        self.in_place = [np.array(self.gathered(need, parts)) for _, need, parts in self.wanted]

    def gathered(self, need: Box, parts: list[tuple[Any, Box]]) -> Any:
        if len(parts) == 1:
            return parts[0][0]
        whole = self.room[: volume(need)].reshape([length(span) for span in need])
        for array, part in parts:
            view(whole, SPATIAL, need, part)[...] = array
        return whole

    def all_in_place(self) -> list[Any]:
        return [self.made(region, source) for (region, _, _), source in zip(self.wanted, self.in_place, strict=True)]

    def all_from_chunks(self) -> list[Any]:
        return [self.made(region, self.gathered(need, parts)) for region, need, parts in self.wanted]

    def made(self, region: list[slice], source: Any) -> Any:
        return first(self.case.run(source, region=region, num_threads=self.threads))


def handed_on(array: Any, threads: int) -> Any:
    """A Dask array by the threaded scheduler, which lets go of every result chunk as soon as it is made."""

    def done(key: Any, made: Any, graph: Any, state: Any, worker: Any) -> None:
        if key[0] == array.name:
            state["cache"][key] = first(made)

    with Callback(posttask=done):
        return array.persist(scheduler="threads", num_workers=threads)


def handed_on_there(client: Client, array: Any) -> None:
    """The same on a cluster."""
    futures = futures_of(client.persist(array))
    for future in as_completed(futures):
        future.release()


def overhead(case: Case, client: Client, rounds: int, threads: int) -> dict[str, Any]:
    """Milliseconds per result chunk of every way."""
    here, there = case.source(), client.persist(case.source(client))
    wait(there)
    bare = Bare(case, here, threads)
    ways = {
        "in place": bare.all_in_place,
        "bare": bare.all_from_chunks,
        "threads": lambda: handed_on(case.run(here), threads),
        "distributed": lambda: handed_on_there(client, case.run(there)),
        "hollow": lambda: handed_on_there(client, hollow(case.run(there))),
    }
    times, chunks = _timed(ways, rounds), len(bare.wanted)
    return {
        "case": case.title,
        "chunks": chunks,
        "tasks": sum(name.startswith("poolgrad-") for name, *_ in case.run(there).dask) / chunks,
        "ms": {name: float(1e3 * np.median(row)) / chunks for name, row in times.items()},
        "times bare": {name: float(np.median(row / times["bare"])) for name, row in times.items()},
        "times in place": {name: float(np.median(row / times["in place"])) for name, row in times.items()},
    }


def _timed(ways: dict[str, Callable[[], Any]], rounds: int) -> dict[str, Any]:
    """The seconds of each way in every round but the first few, which warm up."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds + WARM):
        for name, way in ways.items():
            gc.collect()
            begin = time.perf_counter()
            kept = way()
            times[name].append(time.perf_counter() - begin)
            del kept
            time.sleep(0.2)  # for the workers to let go of their results
    return {name: np.array(row[WARM:]) for name, row in times.items()}


def blocks(array: Any) -> Iterator[tuple[tuple[int, ...], Box]]:
    """The chunks of a Dask array: their numbers and their places."""
    edges = [np.cumsum([0, *row]).tolist() for row in array.chunks]
    for at in itertools.product(*(range(len(row)) for row in array.chunks)):
        yield at, tuple((row[i], row[i + 1]) for row, i in zip(edges, at, strict=True))


def exact_halo(client: Client, pool: Pool, source: Any, result: Any, *, forwards: bool) -> int:
    """The bytes that result chunks need from other workers than the one that holds most of what they need."""
    sources, whereabouts = list(blocks(source)), {str(key): set(held) for key, held in client.who_has(source).items()}
    needed = pool.inputs_for if forwards else pool.cells_for
    total = 0
    for _, made in blocks(result):
        need = tuple((part.start, part.stop) for part in needed([slice(*span) for span in made]))
        shares = [(volume(tuple(map(meet, need, box))), whereabouts[str((source.name, *at))]) for at, box in sources]
        _, home = max(shares, key=lambda share: share[0])
        total += sum(cells for cells, workers in shares if not workers & home)
    return total * int(source.dtype.itemsize)


def fetched(client: Client) -> int:
    """Bytes that the workers have fetched from each other, by their own logs."""
    return sum(client.run(lambda dask_worker: sum(entry["total"] for entry in dask_worker.transfer_incoming_log)).values())


def forget_transfers(client: Client) -> None:
    client.run(lambda dask_worker: dask_worker.transfer_incoming_log.clear())


def halo(case: Case, workers: int) -> dict[str, Any]:
    """What travels between workers that have as many chunks each."""
    with cluster(workers) as several, Client(several) as client:
        client.wait_for_workers(workers)
        source = client.persist(case.source(client))
        wait(source)
        forget_transfers(client)
        result = client.persist(case.run(source))
        wait(result)
        exact = exact_halo(client, case.pool(), source, result, forwards=case.forwards)
        return {"case": case.title, "array": source.nbytes, "exact": exact, "fetched": fetched(client)}


def text(timed: list[dict[str, Any]], moved: list[dict[str, Any]], workers: int) -> str:
    """Both tables, as Markdown."""
    over = ["over bare", "over in place"]
    heads = ["in place", "bare", "threads", *over, "distributed", *over, "its tasks", "hollow"]
    lines = [f"| ms per chunk | {' | '.join(heads)} |", "|---|" + "--:|" * len(heads)]
    for row in timed:
        shown = [f"{row['ms'][way]:.1f}" for way in ("in place", "bare")]
        for way in ("threads", "distributed"):
            more = [row["times bare"][way], row["times in place"][way]]
            shown += [f"{row['ms'][way]:.1f}", *(f"{100 * (times - 1):+.0f}%" for times in more)]
        lines.append(f"| {row['case']} | {' | '.join(shown)} | {row['tasks']:.2f} | {row['ms']['hollow']:.1f} |")
    lines += [""]
    lines += [f"| {workers} workers, MiB | source | exact halo | fetched |", "|---|--:|--:|--:|"]
    for row in moved:
        mib = [f"{row[name] / 2**20:.2f}" for name in ("array", "exact", "fetched")]
        lines.append(f"| {row['case']} | {' | '.join(mib)} |")
    return "\n".join(lines)


def cluster(workers: int) -> LocalCluster:
    """Worker processes of one thread each, reached through loopback alone."""
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit="12GiB")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m poolgrad.bench.dask", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7, help="rounds of the overhead (default %(default)s)")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1, help="threads of each way (default %(default)s)")
    parser.add_argument("--workers", type=int, default=4, help="worker processes of the halo (default %(default)s)")
    parser.add_argument("--case", default="", help="only the cases whose title holds this")
    parser.add_argument("--output", type=Path, help="folder for dask.json and dask.md")
    options = parser.parse_args()
    for name in ("rounds", "threads", "workers"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    cases = [case for case in CASES if options.case in case.title]
    timed, moved = [], []
    with cluster(options.threads) as local, Client(local) as client:
        client.wait_for_workers(options.threads)
        for case in cases:
            timed.append(overhead(case, client, options.rounds, options.threads))
            print(timed[-1], file=sys.stderr, flush=True)
    for case in cases:
        moved.append(halo(case, options.workers))
        print(moved[-1], file=sys.stderr, flush=True)
    said = text(timed, moved, options.workers)
    print(said)
    about = {"machine": processor(), "python": platform.python_version(), "numpy": np.__version__, "poolgrad": __version__}
    about |= {"dask": dask.__version__, "distributed": distributed.__version__}
    about |= {"rounds": options.rounds, "threads": options.threads}
    if options.output:
        options.output.mkdir(parents=True, exist_ok=True)
        whole = {"about": about, "overhead": timed, "halo": moved}
        (options.output / "dask.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (options.output / "dask.md").write_text(said + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
