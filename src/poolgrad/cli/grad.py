"""`poolgrad grad`: the gradient of an average pooling, from file to file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .. import volumes
from ..errors import PoolGradValueError
from ..layout import placed, spatial_positions
from .options import Arguments, PoolingOptions, expanded, pooling, shape_of
from .stream import KINDS, Chunks, Json, Key, Memory, Restart, Threads, chunk_sizes, stream

__all__ = ["grad"]


@expanded
def grad(
    dy: Annotated[Path, typer.Argument(help=f"The gradient of the output: {KINDS}.")],
    output: Annotated[Path, typer.Option("--output", "-o", help=f"Where the gradient of the input goes: {KINDS}.")],
    input_shape: Annotated[str, typer.Option(help="The shape of the pooling's input, such as 8,112,112,64.")],
    options: PoolingOptions,
    arguments: Arguments = None,
    key: Key = None,
    memory: Memory = None,
    chunks: Chunks = None,
    threads: Threads = None,
    restart: Restart = False,
    as_json: Json = False,
) -> None:
    """The gradient of an average pooling, from the gradient of its output.

    poolgrad grad dy.npy --input-shape 8,112,112,64 --window 3 --stride 2 --padding same -o dx.npy
    """
    source, shape, targets = volumes.open_source(dy, key), shape_of(input_shape), []

    def agrees(layout: str, cells: tuple[int, ...]) -> None:
        expected = placed(shape, spatial_positions(layout, len(shape)), cells)
        if expected != source.shape:
            raise PoolGradValueError(f"dy must have shape {expected} for --input-shape {shape} ({layout}), got {source.shape}")
        targets.append(volumes.open_target(output, source, shape, forwards=False, chunks=chunk_sizes(chunks)))

    pool, layout = pooling(options, arguments, shape, agrees)
    stream(
        pool, layout, source, targets[0], output,
        forwards=False, memory=memory, threads=threads, restart=restart, as_json=as_json,
    )  # fmt: skip
