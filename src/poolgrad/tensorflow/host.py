"""Tensors in the machine's own memory: seen as arrays, and made of arrays, without a copy.

Invariants: the array that the engine reads is the tensor's own memory, in every dtype; the tensor that comes back is the
engine's own result. TensorFlow ends the process when it is handed memory that does not begin on a cache line, so every
array that becomes a tensor does. Nothing on another device is brought here.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import tensorflow as tf

__all__ = ["is_host", "on_host", "tensor_of"]

Array = npt.NDArray[Any]
Tensor = Any
Compute = Callable[[Array, "Array | None", "int | None"], Array]

LINE = 64
LARGE = 1 << 20
"""Bytes from which the engine's own results lie on cache lines, in memory that it keeps for the next call."""

_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def is_host(tensor: Tensor) -> bool:
    """Whether the tensor has its values now, and here."""
    return not tf.is_symbolic_tensor(tensor) and ":CPU:" in tensor.device


def on_host(compute: Compute, source: Tensor, shape: tuple[int, ...]) -> Tensor:
    """The tensor that `compute(array, out, threads)` makes of a tensor in memory; `shape` is the result's."""
    array = np.asarray(source)
    out = _empty(shape, array.dtype) if prod(shape) * array.itemsize < LARGE else None
    threads = None if out is None or array.nbytes >= LARGE else 1
    # Asking TensorFlow for the limit that its user has set, if any, takes longer than a small pooling.
    return tensor_of(compute(array, out, threads or tf.config.threading.get_intra_op_parallelism_threads() or None))


def tensor_of(array: Array) -> Tensor:
    """The array's memory as a tensor; an array that TensorFlow could not take is copied first."""
    if array.size == 0:
        return tf.zeros(array.shape, array.dtype)
    if array.ctypes.data % LINE or not array.flags.c_contiguous or not array.flags.writeable:
        place = _empty(array.shape, array.dtype)
        place[...] = array
        array = place
    if array.dtype == _BFLOAT16:  # for which NumPy has no DLPack
        return tf.bitcast(tf.experimental.dlpack.from_dlpack(array.view(np.int16).__dlpack__()), tf.bfloat16)
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())


def _empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    size = prod(shape) * dtype.itemsize
    block = np.empty(size + LINE, np.uint8)
    begin = -block.ctypes.data % LINE
    return block[begin : begin + size].view(dtype).reshape(shape)
