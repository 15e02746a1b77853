"""`poolgrad grad`: the gradient of an average pooling, from file to file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import PoolGradValueError
from .files import check_output, load
from .options import Arguments, PoolingOptions, expanded, pooling, shape_of
from .stream import check_room, placed, stream

__all__ = ["grad"]


@expanded
def grad(
    dy: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The gradient of the output: .npy or .npz.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the gradient of the input goes: .npy or .npz.")],
    input_shape: Annotated[str, typer.Option(help="The shape of the pooling's input, such as 8,112,112,64.")],
    options: PoolingOptions,
    arguments: Arguments = None,
    key: Annotated[str | None, typer.Option(help="Which array of an .npz file.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="How many threads; the result never depends on it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say what was written as JSON.")] = False,
) -> None:
    """The gradient of an average pooling, from the gradient of its output.

    poolgrad grad dy.npy --input-shape 8,112,112,64 --window 3 --stride 2 --padding same -o dx.npy
    """
    check_output(output, dy)
    source, shape = load(dy, key), shape_of(input_shape)
    check_room(output, shape, source.dtype)

    def agrees(layout: str, cells: tuple[int, ...]) -> None:
        expected = placed(shape, layout, cells)
        if expected != source.shape:
            raise PoolGradValueError(f"dy must have shape {expected} for --input-shape {shape} ({layout}), got {source.shape}")

    pool, layout = pooling(options, arguments, shape, agrees)
    stream(pool, layout, source, shape, output, forwards=False, threads=threads, as_json=as_json)
