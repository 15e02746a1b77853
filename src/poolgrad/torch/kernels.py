"""The work on real tensors: one place that picks the engine by the device of the tensor.

Invariants: a CPU tensor and what the engine sees share their memory, in every dtype: a NumPy array (of bfloat16 through a view
as integers of its size), or for small calls a DLPack capsule, which is made in a fraction of the time; a CUDA tensor never
visits the host; the result is a tensor of its own, contiguous or channels_last as asked, so that operations in place may follow.
"""

from __future__ import annotations

from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import torch
from torch import Tensor

from ..arrays import check_fits
from ..call import Array, Call
from ..dialects.tables import letters
from ..errors import PoolGradMemoryError, PoolGradTypeError, PoolGradValueError
from ..ops import KEPT_CALLS, KEPT_ELEMENTS
from .spec import tables

__all__ = ["DTYPES", "Bound", "Kept", "bound", "check", "is_channels_last"]


DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
DEVICES = ("cpu", "cuda", "meta")
MOST_AXES = 10
MOST_LAUNCHES = 64
SMALL = 1 << 14
"""Elements that one thread is always enough for: the number of threads is then not asked for."""
_BFLOAT16, _INT16 = np.dtype(ml_dtypes.bfloat16), np.dtype(np.int16)
_HALF, _BITS = torch.bfloat16, torch.int16
_tensor = torch.from_numpy
_capsule, _taken = torch._C._to_dlpack, torch._C._from_dlpack


def check(name: str, tensor: Any, axes: int) -> None:
    """Refuse what no engine takes."""
    if not isinstance(tensor, Tensor):
        kind = f"{type(tensor).__module__}.{type(tensor).__qualname__}"
        raise PoolGradTypeError(f"{name} must be a torch.Tensor, got {kind}; poolgrad.avg_pool takes NumPy arrays")
    if tensor.layout != torch.strided:
        raise PoolGradTypeError(f"{name} must be a dense tensor (torch.strided), got {tensor.layout}; use {name}.to_dense()")
    if tensor.dtype not in DTYPES:
        allowed = ", ".join([str(dtype) for dtype in DTYPES])
        raise PoolGradTypeError(f"{name} must have dtype {allowed}, got {tensor.dtype}")
    if tensor.device.type not in DEVICES:
        raise PoolGradTypeError(f"{name} must be on a CPU or CUDA device, got {tensor.device}; use {name}.cpu()")
    if axes > MOST_AXES:
        raise PoolGradValueError(f"at most {MOST_AXES} axes can be pooled, got {axes}")
    if tensor.ndim not in (axes + 1, axes + 2):
        ranks = f"{axes + 1} (without batch) or {axes + 2} dimensions"
        raise PoolGradValueError(f"{name} must have {ranks} to pool {axes} of them, got shape {tuple(tensor.shape)}")


def is_channels_last(tensor: Tensor, axes: int) -> bool:
    """Whether PyTorch would keep this batch of images or volumes in channels_last order."""
    if tensor.is_contiguous() or tensor.ndim != axes + 2 or axes not in (2, 3):
        return False
    extents, strides = tensor.shape, tensor.stride()
    least = 0
    for k in (1, *range(axes + 1, 1, -1), 0):  # each axis steps over the one before it, channels first of all
        alone = k == 0 and strides[1] == least  # a lone pixel of a lone channel has no order
        if extents[k] == 0 or strides[k] == 0 or strides[k] < least or alone:
            return False
        least = strides[k] * extents[k]
    return True


class Bound:
    """A pooling, or its gradient, of tensors of one shape; `size` are the spatial sizes of the result."""

    __slots__ = ("_quick", "_transposed", "call", "channels_last", "forwards", "launches", "shape", "size", "small", "spec")

    def __init__(self, spec: str, shape: tuple[int, ...], size: tuple[int, ...], forwards: bool, channels_last: bool):
        self.spec, self.shape, self.size = spec, shape, size
        self.forwards, self.channels_last = forwards, channels_last
        self._quick: Any = None
        self.launches: dict[Any, Any] = {}  # by how a CUDA tensor lies in memory
        self._transposed: Bound | None = None
        axes = len(size)
        lead, own = shape[:-axes], shape[-axes:]
        check_fits("the result", (*lead, *size), np.dtype(np.uint8))
        self.small = prod(lead) * max(prod(own), prod(size)) < SMALL
        pool = tables(spec, own if forwards else size, size if forwards else own)
        if channels_last:
            if len(lead) != 2:
                raise PoolGradValueError(f"channels_last needs a batch and channels before the {axes} axes, got shape {shape}")
            self.call = Call(pool, (lead[0], *own, lead[1]), f"N{letters(axes)}C", forwards)
        else:
            self.call = Call(pool, shape, "NC"[2 - len(lead) :] + letters(axes), forwards)

    @property
    def transposed(self) -> Bound:
        """The gradient of this map, which has the same order in memory."""
        if self._transposed is None:
            axes = len(self.size)
            turned = (*self.shape[:-axes], *self.size), self.shape[-axes:]
            self._transposed = bound(self.spec, *turned, not self.forwards, self.channels_last)
        return self._transposed

    def __call__(self, source: Tensor) -> Tensor:
        if self._quick is None or not source.is_cpu or source.is_neg():  # a mark that DLPack does not carry
            return self._run(source)
        try:  # the same, for a small contiguous result that was asked for before: here every look-up shows
            return _taken(self._quick(_capsule(source)))
        except (TypeError, BufferError, RuntimeError):  # no dtype of ours, or no values in memory
            return self._run(source)

    def _run(self, source: Tensor) -> Tensor:
        if not source.is_cpu:
            return _on_cuda(self, source)
        array = _array(source)
        if self.channels_last:
            array = np.moveaxis(array, 1, -1)
        result = self.call(array, None, False, None if self.small else torch.get_num_threads())
        if self.channels_last:
            result = np.moveaxis(result, -1, 1)
        elif self.small:
            operation: Any = getattr(self.call._quick, "__self__", None)
            self._quick = operation and operation.run_tensor
        return _tensor(result.view(_INT16)).view(_HALF) if source.dtype is _HALF else _tensor(result)


class Kept(dict[Any, Bound]):
    """Bounds by what was asked for, forgotten when they are many or their tables hold too much."""

    def keep(self, key: Any, made: Bound) -> Bound:
        if len(self) >= KEPT_CALLS or sum(kept.call.elements for kept in self.values()) + made.call.elements > KEPT_ELEMENTS:
            self.clear()
        self[key] = made
        return made


_bounds = Kept()


def bound(spec: str, shape: tuple[int, ...], size: tuple[int, ...], forwards: bool, channels_last: bool) -> Bound:
    """The `Bound` of these, kept."""
    key = (spec, shape, size, forwards, channels_last)
    return _bounds.get(key) or _bounds.keep(key, Bound(*key))


def _array(tensor: Tensor) -> Array:
    """The tensor's own memory as an array."""
    try:
        if tensor.dtype is _HALF:  # as integers, which need no detaching
            half: Array = tensor.view(_BITS).numpy().view(_BFLOAT16)
            return half
        array: Array = (tensor.detach() if tensor.requires_grad else tensor).numpy()
        return array
    except RuntimeError:
        return _array(_written(tensor.detach()))


def _written(tensor: Tensor) -> Tensor:
    """The same values in memory: those of a tensor that is negated or zero by a mark alone exist nowhere yet."""
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=tensor.device).copy_(tensor)


def _on_cuda(bound: Bound, source: Tensor) -> Tensor:
    """The result is allocated here: the engine's own would lie in memory as the source does, whatever was asked for.

    The first call of its kind goes through the core, which checks everything and plans; a later one whose tensor lies in memory
    alike is launched at once, for in a small call every look-up shows.
    """
    source = source.detach()
    if source.is_neg() or source._is_zerotensor():
        source = _written(source)
    result = _place(bound, source)
    place = source.data_ptr()
    aligned = place % 16, result.data_ptr() % 16
    kind = (source.dtype, source.device, source.stride(), aligned, torch._C._cuda_isCurrentStreamCapturing())
    launch = bound.launches.get(kind)
    if launch is None:
        last = (source.movedim(1, -1), result.movedim(1, -1)) if bound.channels_last else (source, result)
        bound.call(*last, False, None)
        launch = bound.call.device_launch(*last)
        if launch is not None:
            if len(bound.launches) >= MOST_LAUNCHES:
                bound.launches.clear()
            bound.launches[kind] = launch
        return result
    try:
        scratch = [torch.empty(size, dtype=torch.uint8, device=source.device) for size in launch.scratch]
    except torch.cuda.OutOfMemoryError as short:
        raise PoolGradMemoryError(f"{sum(launch.scratch)} bytes of scratch do not fit the device: {short}") from None
    stream = torch._C._cuda_getCurrentRawStream(source.device.index)
    launch.run([place, result.data_ptr(), *(piece.data_ptr() for piece in scratch)], stream)
    return result


def _place(bound: Bound, source: Tensor) -> Tensor:
    """Memory for the result on the device, in the order that was asked for."""
    axes = len(bound.size)
    order = torch.contiguous_format
    if bound.channels_last:
        order = torch.channels_last if axes == 2 else torch.channels_last_3d
    shape = (*source.shape[:-axes], *bound.size)
    try:
        return torch.empty(shape, dtype=source.dtype, device=source.device, memory_format=order)
    except torch.cuda.OutOfMemoryError as short:
        raise PoolGradMemoryError(f"the result {shape} does not fit the device: {short}") from None
