"""`poolgrad pool`: an average pooling, from file to file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .files import check_output, load
from .options import Arguments, PoolingOptions, expanded, pooling
from .stream import check_room, placed, stream

__all__ = ["pool"]


@expanded
def pool(
    x: Annotated[Path, typer.Argument(exists=True, dir_okay=False, help="The input: .npy or .npz.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Where the result goes: .npy or .npz.")],
    options: PoolingOptions,
    arguments: Arguments = None,
    key: Annotated[str | None, typer.Option(help="Which array of an .npz file.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="How many threads; the result never depends on it.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Say what was written as JSON.")] = False,
) -> None:
    """An average pooling.

    poolgrad pool x.npy --window 3 --stride 2 --padding same -o y.npy
    """
    check_output(output, x)
    source = load(x, key)

    def fits(layout: str, cells: tuple[int, ...]) -> None:
        check_room(output, placed(source.shape, layout, cells), source.dtype)

    made, layout = pooling(options, arguments, source.shape, fits)
    shape = placed(source.shape, layout, made.output_size)
    stream(made, layout, source, shape, output, forwards=True, threads=threads, as_json=as_json)
