"""`poolgrad pool`: an average pooling, from file to file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import volumes
from ..layout import placed, spatial_positions
from .options import Arguments, PoolingOptions, expanded, pooling
from .stream import KINDS, Chunks, Json, Key, Memory, Restart, Threads, chunk_sizes, stream

__all__ = ["pool"]


@expanded
def pool(
    x: Annotated[Path, typer.Argument(help=f"The input: {KINDS}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help=f"Where the result goes: {KINDS}.")],
    options: PoolingOptions,
    arguments: Arguments = None,
    key: Key = None,
    memory: Memory = None,
    chunks: Chunks = None,
    threads: Threads = None,
    restart: Restart = False,
    as_json: Json = False,
) -> None:
    """An average pooling.

    poolgrad pool x.npy --window 3 --stride 2 --padding same -o y.npy
    """
    source, targets = volumes.open_source(x, key), []

    def fits(layout: str, cells: tuple[int, ...]) -> None:
        shape = placed(source.shape, spatial_positions(layout, len(source.shape)), cells)
        targets.append(volumes.open_target(output, source, shape, forwards=True, chunks=chunk_sizes(chunks)))

    made, layout = pooling(options, arguments, source.shape, fits)
    stream(
        made, layout, source, targets[0], output,
        forwards=True, memory=memory, threads=threads, restart=restart, as_json=as_json,
    )  # fmt: skip
