"""A pooling or its gradient from file to file, one box of the result after the other: the same bits as one call.

A box is a run of consecutive elements of the result, so that it is written by appending. It is made from exactly the part of
the source that it needs (`Pool.cells_for`, `Pool.inputs_for`). Memory holds one box and its source, whatever the sizes.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from ..errors import PoolGradMemoryError
from ..geometry import Pool
from ..layout import spatial_positions
from ..ops import forward, gradient
from .files import writer
from .guard import say_json

__all__ = ["boxes", "check_room", "needed", "placed", "stream"]

Array = npt.NDArray[Any]
Box = tuple[slice, ...]

BOX_BYTES = 64 << 20
"""Large enough to keep every core busy, small enough to see progress."""


def placed(shape: tuple[int, ...], layout: str, sizes: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with these spatial extents.

    >>> placed((2, 3, 9, 8), "NCHW", (5, 4))
    (2, 3, 5, 4)
    """
    result = list(shape)
    for position, n in zip(spatial_positions(layout, len(shape)), sizes, strict=True):
        result[position] = n
    return tuple(result)


def check_room(output: Path, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse a result that its disk cannot hold, before anything is computed."""
    size, free = prod(shape) * dtype.itemsize, shutil.disk_usage(output.parent).free
    if size > free:
        raise PoolGradMemoryError(f"the result {shape} of {dtype} takes {size:,} bytes; {free:,} are free where {output} goes")


def boxes(shape: tuple[int, ...], most: int) -> Iterator[Box]:
    """An array of this shape in runs of at most `most` elements, in C order.

    >>> [[(part.start, part.stop) for part in box] for box in boxes((2, 3), 2)]
    [[(0, 1), (0, 2)], [(0, 1), (2, 3)], [(1, 2), (0, 2)], [(1, 2), (2, 3)]]
    """
    inner = prod(shape[1:])
    if inner > most:
        for k in range(shape[0]):
            yield from ((slice(k, k + 1), *rest) for rest in boxes(shape[1:], most))
        return
    rows = most // max(inner, 1)
    for first in range(0, shape[0], rows):
        yield (slice(first, min(first + rows, shape[0])), *(slice(0, n) for n in shape[1:]))


def needed(pool: Pool, layout: str, box: Box, *, forwards: bool) -> tuple[Box, Box]:
    """For a box of the result: its region of the spatial axes, and the box of the source it is made from."""
    spatial = spatial_positions(layout, len(box))
    region = tuple(box[p] for p in spatial)
    source = list(box)
    for position, part in zip(spatial, (pool.inputs_for if forwards else pool.cells_for)(region), strict=True):
        source[position] = part
    return region, tuple(source)


def stream(
    pool: Pool,
    layout: str,
    source: Array,
    shape: tuple[int, ...],
    output: Path,
    *,
    forwards: bool,
    threads: int | None,
    as_json: bool,
) -> None:
    """Compute the result of this shape from `source` into the file `output`, and say what was written."""
    begin = time.perf_counter()
    native = source.dtype.newbyteorder("=")
    size = prod(shape) * native.itemsize
    run = forward if forwards else gradient
    with _progress(output, size) as progress, writer(output, "y" if forwards else "dx", shape, native) as put:
        task = progress.add_task(output.name, total=size)
        for box in boxes(shape, BOX_BYTES // native.itemsize):
            region, part = needed(pool, layout, box, forwards=forwards)
            made = run(pool, source[part].astype(native, copy=False), layout=layout, region=region, num_threads=threads)
            put(made)
            progress.advance(task, made.nbytes)
    said = {"output": str(output), "shape": list(shape), "dtype": np.dtype(native).name, "bytes": size}
    if as_json:
        say_json({**said, "seconds": round(time.perf_counter() - begin, 6)})
    else:
        print(f"{output}: {said['dtype']} {'×'.join(map(str, shape))}, {size:,} bytes")


def _progress(output: Path, size: int) -> Progress:
    """A bar on the terminal when there is more than one box to wait for."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=console, transient=True, disable=size <= BOX_BYTES or not console.is_terminal)
