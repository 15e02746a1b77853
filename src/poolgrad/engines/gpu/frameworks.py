"""PyTorch, CuPy and JAX arrays on a GPU: how to read them, and how to make one of the same kind.

One small class a framework, all of the same shape; none is imported before one of its arrays comes in. `describe` says where
an array lies and which stream the caller is on; `empty` and `scratch` allocate with the framework's own allocator, which knows
that stream; `finish` hands the result over. Nothing waits for the device and nothing is copied.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from ...errors import PoolGradDeviceError, PoolGradMemoryError, PoolGradTypeError, PoolGradValueError
from .record import DeviceArray

__all__ = ["CuPy", "Framework", "Jax", "PyTorch", "Scratch"]


class Scratch(NamedTuple):
    """Device memory that lives as long as `owner`."""

    pointer: int
    owner: Any


def _like(shape: tuple[int, ...], array: DeviceArray) -> tuple[int, ...]:
    """Strides of a new array whose dimensions lie in memory in the order of `array`'s."""
    strides, step = [0] * len(shape), 1
    known = all(step or n < 2 for step, n in zip(array.strides, array.shape, strict=True))  # not a broadcast scalar
    for k in sorted(range(len(shape)), key=lambda k: (abs(array.strides[k]) if known and array.shape[k] > 1 else -1, -k)):
        strides[k], step = step, step * max(shape[k], 1)
    return tuple(strides)


class PyTorch:
    """`torch.Tensor` on CUDA; the result keeps the memory format of the input."""

    name = "PyTorch"

    def __init__(self) -> None:
        import torch

        self.torch: Any = torch
        self.dtypes = {
            torch.float16: np.dtype(np.float16),
            torch.bfloat16: np.dtype(ml_dtypes.bfloat16),
            torch.float32: np.dtype(np.float32),
            torch.float64: np.dtype(np.float64),
        }

    def describe(self, name: str, array: Any) -> DeviceArray:
        torch = self.torch
        if torch.version.hip is not None:
            raise PoolGradDeviceError(f"{name} is on an AMD GPU; poolgrad's GPU engine needs CUDA: move it with .cpu().numpy()")
        dtype = self.dtypes.get(array.dtype)
        if dtype is None:
            raise PoolGradTypeError(f"{name} must have dtype float16, bfloat16, float32 or float64, got {array.dtype}")
        if array.requires_grad and torch.is_grad_enabled():
            raise PoolGradTypeError(
                f"{name} requires grad, which this function does not record: use poolgrad.torch, or give {name}.detach()"
            )
        if array.layout is not torch.strided or array.is_conj() or array.is_neg():
            raise PoolGradTypeError(f"{name} must be a dense tensor, got {array.layout}; use .to_dense() or .resolve_neg()")
        index = array.device.index
        stream = torch._C._cuda_getCurrentRawStream(index)
        return DeviceArray(array.data_ptr(), tuple(array.shape), array.stride(), dtype, index, stream)

    def empty(self, like: Any, source: DeviceArray, shape: tuple[int, ...]) -> Any:
        torch = self.torch
        try:
            return torch.empty_strided(shape, _like(shape, source), dtype=like.dtype, device=like.device)
        except torch.cuda.OutOfMemoryError as short:
            raise PoolGradMemoryError(f"the result {shape} does not fit the device: {short}") from None

    def scratch(self, like: Any, size: int) -> Scratch:
        torch = self.torch
        try:
            made = torch.empty(size, dtype=torch.uint8, device=like.device)
        except torch.cuda.OutOfMemoryError as short:
            raise PoolGradMemoryError(f"{size} bytes of scratch do not fit the device: {short}") from None
        return Scratch(made.data_ptr(), made)

    def finish(self, result: Any, source: DeviceArray, held: list[Any]) -> Any:
        return result


class CuPy:
    """`cupy.ndarray`."""

    name = "CuPy"

    def __init__(self) -> None:
        import cupy

        self.cupy: Any = cupy
        self.dtypes = {np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)}

    def describe(self, name: str, array: Any) -> DeviceArray:
        if array.dtype not in self.dtypes:
            raise PoolGradTypeError(f"{name} must have dtype float16, bfloat16, float32 or float64, got {array.dtype}")
        if any(step % array.itemsize for step in array.strides):
            raise PoolGradValueError(f"{name} must have strides of whole elements, got {array.strides}")
        strides = tuple(step // array.itemsize for step in array.strides)
        index = array.device.id
        stream = self.cupy.cuda.get_current_stream(index).ptr
        return DeviceArray(array.data.ptr, array.shape, strides, array.dtype, index, stream)

    def _memory(self, device: int, size: int) -> Any:
        try:
            with self.cupy.cuda.Device(device):
                return self.cupy.cuda.alloc(size)
        except self.cupy.cuda.memory.OutOfMemoryError as short:
            raise PoolGradMemoryError(f"{size} bytes do not fit the device: {short}") from None

    def empty(self, like: Any, source: DeviceArray, shape: tuple[int, ...]) -> Any:
        strides = tuple(step * like.itemsize for step in _like(shape, source))
        memory = self._memory(source.device, like.itemsize * int(np.prod(shape, dtype=np.int64)))
        return self.cupy.ndarray(shape, dtype=like.dtype, memptr=memory, strides=strides)

    def scratch(self, like: Any, size: int) -> Scratch:
        memory = self._memory(like.device.id, size)
        return Scratch(memory.ptr, memory)

    def finish(self, result: Any, source: DeviceArray, held: list[Any]) -> Any:
        return result


class Jax:
    """`jax.Array` on one CUDA device, outside of `jit`.

    JAX has no current stream. Work is put on the stream on which JAX takes in arrays from outside: it waits for the inputs,
    and JAX waits for it. JAX cannot know when that work has read its inputs, so they are held until it has.
    """

    name = "JAX"

    def __init__(self) -> None:
        import jax

        from .driver import device

        self.jax, self.device = jax, device
        self.held: deque[tuple[ctypes.c_void_p, int, list[Any]]] = deque()

    def describe(self, name: str, array: Any) -> DeviceArray:
        devices = list(array.devices())
        if len(devices) != 1:
            raise PoolGradValueError(f"{name} must lie on one device, got {len(devices)}; take a shard with .addressable_data(k)")
        if str(array.dtype) not in ("float16", "bfloat16", "float32", "float64"):
            raise PoolGradTypeError(f"{name} must have dtype float16, bfloat16, float32 or float64, got {array.dtype}")
        (device,) = devices
        stream = device.get_stream_for_external_ready_events()
        array.__dlpack__(stream=stream)  # makes the stream wait for the array
        strides, step = [], 1
        for n in reversed(array.shape):
            strides.append(step)
            step *= n
        index = array.__dlpack_device__()[1]
        return DeviceArray(array.unsafe_buffer_pointer(), array.shape, tuple(reversed(strides)), array.dtype, index, stream)

    def _new(self, device: Any, shape: tuple[int, ...], dtype: Any) -> Any:
        try:
            with self.jax.default_device(device):
                if hasattr(self.jax.lax, "empty"):
                    return self.jax.lax.empty(shape, dtype)
                return self.jax.numpy.empty(shape, dtype)
        except Exception as refusal:
            if "RESOURCE_EXHAUSTED" in str(refusal):
                raise PoolGradMemoryError(f"an array of shape {shape} does not fit the device: {refusal}") from None
            raise

    def empty(self, like: Any, source: DeviceArray, shape: tuple[int, ...]) -> Any:
        return self._new(next(iter(like.devices())), shape, like.dtype)

    def scratch(self, like: Any, size: int) -> Scratch:
        (device,) = like.devices()
        made = self._new(device, (size,), np.uint8)
        made.__dlpack__(stream=device.get_stream_for_external_ready_events())
        return Scratch(made.unsafe_buffer_pointer(), made)

    def finish(self, result: Any, source: DeviceArray, held: list[Any]) -> Any:
        """The result as an array that JAX knows to be ready only when the stream is."""
        driver = self.device(source.device)
        while self.held and driver.happened(self.held[0][0]):
            self.held.popleft()
        self.held.append((driver.event(source.stream), source.device, [result, *held]))
        return self.jax.dlpack.from_dlpack(_Exported(result))


class _Exported:
    """A JAX array in the clothes of one from elsewhere."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, stream: Any = None, **how: Any) -> Any:
        return self._array.__dlpack__(stream=stream)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


Framework = PyTorch | CuPy | Jax
