"""Poolings of volumes larger than memory: from file to file, box by box, under a ceiling, resumed after a kill.

`grad` and `pool` take the paths of two stores (`.npy`, `.npz`, Zarr, HDF5) and the arguments of `poolgrad.avg_pool`, or of its
adaptive or fractional kin, by name. The result has the bits of one call. `poolgrad grad` and `poolgrad pool` are the same on
the command line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..arguments import as_sizes
from ..dialects import dialect
from ..errors import PoolGradTypeError, PoolGradValueError
from ..geometry import Pool, integer
from ..layout import placed, spatial_positions
from .run import DEFAULT_MEMORY, Job, Progress, Report, execute
from .store import Source, StoreError, Target
from .stores import open_source, open_target

__all__ = ["Report", "StoreError", "as_bytes", "grad", "open_source", "open_target", "pool", "stream"]

UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
UNITS |= {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def as_bytes(name: str, value: int | str) -> int:
    """A size as people write it.

    >>> as_bytes("memory", "1GiB"), as_bytes("memory", "1.5 MB"), as_bytes("memory", 4096)
    (1073741824, 1500000, 4096)
    """
    if not isinstance(value, str):
        return integer(name, value, 1)
    said = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", value)
    if said is None or said[2].upper() not in UNITS or float(said[1]) == 0 or float(said[1]) > 2**62:
        raise PoolGradValueError(f"{name} must be a size such as 512MiB, 1GiB or 2GB, got {value!r}")
    return int(float(said[1]) * UNITS[said[2].upper()])


def grad(
    source: str | Path,
    target: str | Path,
    input_shape: Sequence[int],
    *,
    memory: int | str = DEFAULT_MEMORY,
    chunks: Sequence[int] | None = None,
    key: str | None = None,
    threads: int | None = None,
    restart: bool = False,
    progress: Progress | None = None,
    **pooling: Any,
) -> Report:
    """The gradient of an average pooling, from the store of `dy` to a store of `dx`.

    Parameters
    ----------
    source, target
        Paths: `.npy`, `.npz`, `.zarr` (a local folder, or an array inside one), `.h5` or `.hdf5`.
    input_shape
        The shape of the pooling's input, which the result has.
    memory
        What the call may hold besides what the process holds already.
    chunks
        Chunks of a Zarr or HDF5 result; by default they lie over the same space as the source's.
    key
        Which array of a file that holds several.
    threads
        How many work at once; the result never depends on it.
    restart
        Throw away what an earlier, unfinished run made.
    progress
        Called now and then with the bytes done and all of them.
    **pooling
        `window`, `stride`, `padding`, …, `layout` as in `poolgrad.avg_pool`; or `output_size`; or `sequences`.

    >>> import os, tempfile
    >>> import numpy as np, poolgrad
    >>> folder = tempfile.mkdtemp()
    >>> dy, dx = os.path.join(folder, "dy.npy"), os.path.join(folder, "dx.npy")
    >>> np.save(dy, np.array([[1, 2], [3, 4]], dtype=np.float32))
    >>> report = poolgrad.volumes.grad(dy, dx, (3, 3), window=2, stride=1, layout="HW")
    >>> np.load(dx)
    array([[0.25, 0.75, 0.5 ],
           [1.  , 2.5 , 1.5 ],
           [0.75, 1.75, 1.  ]], dtype=float32)
    """
    shape = as_sizes("input_shape", input_shape)
    opened = open_source(source, key)
    try:
        said = dialect("poolgrad").read(pooling, shape)
        made = said.pool(shape)
        expected = placed(shape, spatial_positions(said.layout, len(shape)), made.output_size)
        if expected != opened.shape:
            raise PoolGradValueError(f"dy must have shape {expected} for input_shape {shape} ({said.layout}), got {opened.shape}")
        store = open_target(target, opened, shape, forwards=False, chunks=chunks)
        return stream(
            made, said.layout, opened, store,
            forwards=False, memory=as_bytes("memory", memory), threads=threads, restart=restart, progress=progress,
        )  # fmt: skip
    finally:
        opened.close()


def pool(
    source: str | Path,
    target: str | Path,
    *,
    memory: int | str = DEFAULT_MEMORY,
    chunks: Sequence[int] | None = None,
    key: str | None = None,
    threads: int | None = None,
    restart: bool = False,
    progress: Progress | None = None,
    **pooling: Any,
) -> Report:
    """An average pooling, from store to store; the arguments are those of `grad`.

    >>> import os, tempfile
    >>> import numpy as np, poolgrad
    >>> folder = tempfile.mkdtemp()
    >>> x, y = os.path.join(folder, "x.npy"), os.path.join(folder, "y.npy")
    >>> np.save(x, np.arange(6.0))
    >>> poolgrad.volumes.pool(x, y, window=3, layout="L").shape
    (2,)
    >>> np.load(y)
    array([1., 4.])
    """
    opened = open_source(source, key)
    try:
        said = dialect("poolgrad").read(pooling, opened.shape)
        made = said.pool(opened.shape)
        shape = placed(opened.shape, spatial_positions(said.layout, len(opened.shape)), made.output_size)
        store = open_target(target, opened, shape, forwards=True, chunks=chunks)
        return stream(
            made, said.layout, opened, store,
            forwards=True, memory=as_bytes("memory", memory), threads=threads, restart=restart, progress=progress,
        )  # fmt: skip
    finally:
        opened.close()


def stream(
    pool: Pool,
    layout: str,
    source: Source,
    target: Target,
    *,
    forwards: bool,
    memory: int = DEFAULT_MEMORY,
    base: int = 0,
    threads: int | None = None,
    restart: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Any `Pool`, from one opened store to another; `memory` is the ceiling, of which the process holds `base` already."""
    if threads is not None:
        integer("threads", threads, 1)
    if not isinstance(restart, bool):
        raise PoolGradTypeError(f"restart must be True or False, got {restart!r}")
    job = Job(pool, layout, source, target, forwards)
    return execute(job, memory=memory, base=base, threads=threads, restart=restart, progress=progress)
