"""Poolings on a CUDA device inside a compiled program: the custom call that puts the GPU engine's kernels on XLA's stream.

The handler is Python behind a C function pointer, for all that it does is to look up what was planned for these shapes and to
launch it; nothing waits for the device. The custom call has one operand, the source, and one attribute, `tables`: the numbers
that `parts.encode` writes for one part of every axis. So a saved program runs in another process that has imported
`poolgrad.jax`. A device that holds one of several parts of an axis picks its call among those of all parts.
"""

from __future__ import annotations

import atexit
import threading
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache, lru_cache, partial
from itertools import product
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from ..engines.gpu import DeviceArray, Operation
from ..engines.gpu.driver import has_driver, nvrtc
from ..engines.gpu.driver import holder as holder_of
from ..engines.gpu.general import MOST
from ..errors import PoolGradDeviceError, PoolGradTypeError, PoolGradValueError
from ..geometry import Pool
from . import frame
from .decode import decode
from .parts import Cut, encode, result_shape

__all__ = ["handler", "has_engine", "launched", "serves"]

KEPT_CALLS = 256

_used = threading.Event()
"""Whether a program of this process may hold the custom call."""


class Piece(NamedTuple):
    """One engine call of a pooling; the pointers of the arrays are offsets into those of a call."""

    operation: Operation
    source: DeviceArray
    out: DeviceArray


class Scratch(NamedTuple):
    pointer: int


@lru_cache(KEPT_CALLS)
def _pieces(tables: bytes, dtype: np.dtype[Any], source: tuple[int, ...], result: tuple[int, ...]) -> tuple[Piece, ...]:
    """What the tables mean for arrays of these shapes; kernels and plans are kept with it."""
    spatial, works = decode(tables, source, result)
    whole = [DeviceArray(0, shape, _packed(shape), dtype, 0, 0) for shape in (source, result)]
    return tuple(
        Piece(Operation(work.sums, spatial), whole[0].part(spatial, work.take), whole[1].part(spatial, work.put))
        for work in works
    )


def _packed(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for n in reversed(shape):
        strides.append(step)
        step *= n
    return tuple(reversed(strides))


def handler(holder: Callable[[int], Any] = holder_of) -> Any:
    """The custom call for XLA. `holder` finds the device of a pointer: an object like `engines.gpu.driver.Device`."""
    return frame.handler(partial(_run, holder))


def _run(holder: Callable[[int], Any], call: frame.CallFrame) -> None:
    source, result = frame.array(call.args, 0, 1, "operands"), frame.array(call.rets, 0, 1, "results")
    if source.dtype != result.dtype:
        raise PoolGradTypeError(f"the result of the custom call must be {source.dtype} like its operand, got {result.dtype}")
    _used.set()
    if 0 in result.shape:
        return
    if 0 in source.shape:
        raise PoolGradValueError(f"the operand of the custom call must not be empty, got shape {source.shape}")
    pieces = _pieces(frame.numbers(call.attrs, b"tables"), source.dtype, source.shape, result.shape)
    held, stream = holder(result.pointer), frame.stream(call)
    for piece in pieces:
        given = piece.source._replace(pointer=source.pointer + piece.source.pointer, device=held.index, stream=stream)
        made = piece.out._replace(pointer=result.pointer + piece.out.pointer, device=held.index, stream=stream)
        with frame.memory(call) as allocate:
            piece.operation.run(given, made, accumulate=False, scratch=lambda n: Scratch(allocate(n)), device=held)


@atexit.register
def _settle() -> None:
    """Wait for what is under way: it calls back into Python, which must not be on its way out by then."""
    for array in jax.live_arrays() if _used.is_set() else ():
        with suppress(Exception):  # of a program that failed, which is its caller's affair
            array.block_until_ready()


@cache
def has_engine() -> bool:
    """Whether this machine has what the engine needs. A program made where there is no driver is made for another machine."""
    if not has_driver():
        return False
    try:
        nvrtc()
    except PoolGradDeviceError as missing:
        warnings.warn(f"{missing}; JAX's own operations do the same, slower and within ulps", RuntimeWarning, stacklevel=2)
        return False
    return True


def serves(x: Any) -> bool:
    """Whether the kernels take an array of so many dimensions."""
    return bool(x.ndim <= MOST)


def launched(
    x: Any, places: Any, *, target: str, pool: Pool, spatial: tuple[int, ...], forwards: bool, cuts: tuple[Cut, ...]
) -> Any:
    """The pooling of `x`, or the gradient of one, as the custom call `target`; `places` says which part of each axis this is."""
    _used.set()
    made = jax.ShapeDtypeStruct(result_shape(x.shape, pool, spatial, forwards, cuts), x.dtype)
    if any(x.shape[p] == 0 for p in spatial):  # sums of nothing
        return jnp.zeros(made.shape, made.dtype)

    def on(part: tuple[int, ...]) -> Callable[[Any], Any]:
        tables = encode(pool, spatial, forwards, cuts, part)
        return lambda x: jax.ffi.ffi_call(target, made)(x, tables=tables)

    parts = list(product(*(range(cut.parts) for cut in cuts)))
    if len(parts) == 1:
        return on(parts[0])(x)
    which = jnp.zeros((), dtype=jnp.int32)
    for k, cut in enumerate(cuts):
        which = which * cut.parts + places[k]
    return jax.lax.switch(which, [on(part) for part in parts], x)
