"""The C++ engine: what `numpy.py` defines, at the speed of memory.

An `Operation` is a set of tables bound to the shapes of its arrays. It is validated once, keeps its plans, and
releases the GIL while it runs.
"""

from __future__ import annotations

import multiprocessing.process
import os
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..errors import PoolGradValueError
from ..tables import Sums
from . import _native

__all__ = ["Operation", "default_threads", "operation", "run"]

Array = npt.NDArray[Any]
Operation = _native.Operation

_native.set_bfloat16(np.dtype(ml_dtypes.bfloat16))
if _asked := os.environ.get("POOLGRAD_ISA"):
    if _asked not in _native.isas():
        raise PoolGradValueError(f"POOLGRAD_ISA must be one of {', '.join(_native.isas())} on this machine, got {_asked!r}")
    _native.set_isa(_asked)


def _from_environment() -> int | None:
    asked = os.environ.get("POOLGRAD_NUM_THREADS")
    if asked is None:
        return None
    if not asked.isdecimal() or not 1 <= int(asked) <= 1024:
        raise PoolGradValueError(f"POOLGRAD_NUM_THREADS must be a number from 1 to 1024, got {asked!r}")
    return int(asked)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


_asked_threads = _from_environment()
_threads = _asked_threads or (1 if multiprocessing.process.parent_process() else _cores())


def _after_fork() -> None:
    """A forked child is one of several: unless told otherwise it keeps to one thread."""
    global _threads
    _threads = _asked_threads or 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def default_threads() -> int:
    """Threads used when a call names none: POOLGRAD_NUM_THREADS, or all cores; one in a worker of a process pool."""
    return _threads


def operation(
    sums: Sums, spatial: tuple[int, ...], source_shape: tuple[int, ...], result_shape: tuple[int, ...]
) -> _native.Operation:
    """`sums` bound to arrays of these shapes."""
    return Operation(list(sums.tables), sums.divide_first, sums.divisor, list(spatial), list(source_shape), list(result_shape))


def run(sums: Sums, source: Array, out: Array, spatial: tuple[int, ...], *, accumulate: bool, threads: int | None) -> None:
    """Sum `source` over the tables into `out`; `spatial` are the positions of the axes, in the order of the tables."""
    operation(sums, spatial, source.shape, out.shape).run(source, out, accumulate, threads or _threads)
