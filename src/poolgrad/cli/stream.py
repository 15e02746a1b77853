"""What `grad` and `pool` share: the options about files and memory, the progress bar, and what is said at the end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from math import prod
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from .. import volumes
from ..arguments import as_sizes
from ..errors import PoolGradValueError
from ..geometry import Pool
from ..volumes.plan import BOX_BYTES
from ..volumes.run import DEFAULT_MEMORY
from ..volumes.run import Progress as Told
from ..volumes.store import Source, Target
from .guard import say_json
from .options import as_value

__all__ = ["KINDS", "Chunks", "Json", "Key", "Memory", "Restart", "Threads", "chunk_sizes", "stream"]

KINDS = ".npy, .npz, .zarr, .h5 or .hdf5"

Key = Annotated[str | None, typer.Option(help="Which array of a file or Zarr group that holds several.")]
Memory = Annotated[str | None, typer.Option(help="The most memory to take, such as 512MiB; 1GiB by default.", show_default=False)]
Chunks = Annotated[
    str | None,
    typer.Option(help="Chunks of a Zarr or HDF5 result, such as 64,128,128; by default over the space of the source's."),
]
Threads = Annotated[int | None, typer.Option(min=1, help="How many threads; the result never depends on it.")]
Restart = Annotated[bool, typer.Option("--restart", help="Throw away what an earlier, unfinished run made.")]
Json = Annotated[bool, typer.Option("--json", help="Say what was written as JSON.")]


def stream(
    pool: Pool,
    layout: str,
    source: Source,
    target: Target,
    output: Path,
    *,
    forwards: bool,
    memory: str | None,
    threads: int | None,
    restart: bool,
    as_json: bool,
) -> None:
    """Compute `target` from `source`, and say what was written; `output` is its name as it was typed."""
    base = 0 if memory is None else _resident()
    ceiling = DEFAULT_MEMORY if memory is None else volumes.as_bytes("--memory", memory)
    try:
        with _progress(output, prod(target.shape) * source.dtype.itemsize) as told:
            report = volumes.stream(
                pool, layout, source, target,
                forwards=forwards, memory=ceiling, base=base, threads=threads, restart=restart, progress=told,
            )  # fmt: skip
    except KeyboardInterrupt:
        if target.place.journal.exists():
            print("poolgrad: interrupted; the same command goes on from here", file=sys.stderr)
        raise
    if as_json:
        say_json({**asdict(report), "output": str(output)})
        return
    went_on = f"; {report.resumed} of {report.boxes} parts were there already" if report.resumed else ""
    print(f"{output}: {report.dtype} {'×'.join(map(str, report.shape))}, {report.bytes:,} bytes{went_on}")


def chunk_sizes(chunks: str | None) -> Sequence[int] | None:
    if chunks is None:
        return None
    value = as_value(chunks)
    sizes = as_sizes("--chunks", value if isinstance(value, (tuple, list)) else (value,))
    if 0 in sizes:
        raise PoolGradValueError(f"--chunks must be at least 1 along every axis, got {chunks}")
    return sizes


def _resident() -> int:
    """Bytes of memory that this process holds now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, AttributeError):
        return 128 << 20  # an interpreter with NumPy and a store's library


@contextmanager
def _progress(output: Path, size: int) -> Iterator[Told]:
    """A bar on the terminal when there is something to wait for; its rate counts from where an earlier run ended."""
    console = Console(stderr=True)
    name = TextColumn("{task.description}", markup=False)  # brackets in it are its own
    columns = (name, BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True, disable=size <= BOX_BYTES or not console.is_terminal) as bar:
        task, begun = bar.add_task(output.name, total=size), False

        def told(done: int, size: int) -> None:
            nonlocal begun
            (bar.update if begun else bar.reset)(task, completed=done)
            begun = True

        yield told
