"""Dask arrays: a lazy result, each chunk of it made of exactly the source cells it needs.

Requirements. The same bits as one call on the whole array. No rechunk, no overlap to trim: a result chunk is computed where
most of its cells lie already, and only the cells beyond that chunk travel (`graph.py`). Nothing is gathered in silence. This
module is imported when the first Dask array is seen, and by the schedulers and workers that are sent its tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from dask import config
from dask.array.core import Array

from ..arrays import DTYPES
from ..errors import PoolGradTypeError, PoolGradValueError
from ..geometry import Pool
from ..layout import spatial_positions
from .cuts import cut_axes
from .graph import Graph
from .tasks import job_for

__all__ = ["lazily", "shape_of"]

# A scheduler takes half a second for a task it has not seen before, and would rather move a chunk than let it wait for a few
# of those. It imports this module with its first graph, and so learns in time that these tasks are quick.
QUICK = {"poolgrad-halo": "1us", "poolgrad-forward": "20ms", "poolgrad-gradient": "20ms", "poolgrad-spread": "20ms"}
config.update_defaults({"distributed": {"scheduler": {"default-task-durations": QUICK}}})


def shape_of(name: str, array: Any) -> tuple[int, ...]:
    """The shape of a Dask array that can be served, or an error that says what is wrong with it."""
    if type(array) is not Array:
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        planned = "; set Dask's array.query-planning to False" if "_array_expr" in kind else ""
        raise PoolGradTypeError(f"{name} must be a dask.array.Array, got {kind}{planned}")
    if type(array._meta) is not np.ndarray:
        kind = f"{type(array._meta).__module__}.{type(array._meta).__qualname__}"
        raise PoolGradTypeError(f"{name} must be a Dask array of NumPy arrays, got one of {kind}; convert it with map_blocks")
    if array.dtype not in DTYPES:
        raise PoolGradTypeError(f"{name} must have dtype {', '.join(DTYPES.values())}, got {array.dtype}")
    if any(np.isnan(size) for size in array.shape):
        raise PoolGradValueError(
            f"{name} must have known chunk sizes, got shape {array.shape}; call compute_chunk_sizes() on it first"
        )
    shape: tuple[int, ...] = array.shape
    return shape


def lazily(source: Any, pool: Pool, layout: str, region: Sequence[slice] | None, *, forwards: bool, threads: int | None) -> Any:
    """The forward pass or the gradient of `pool` as a Dask array; with `region`, that part of it.

    Every task keeps to one thread unless told otherwise: Dask runs as many tasks as there are cores.
    """
    axes = cut_axes(pool, source.chunks, source.dtype.itemsize, spatial_positions(layout, source.ndim), region, forwards)
    return Graph(source, job_for(pool, layout, forwards, source.dtype.name, threads or 1), axes).array()
