"""An array on a device, whoever made it: where it lies and how."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

__all__ = ["STORAGE", "DeviceArray"]

STORAGE = {
    np.dtype(np.float16): "F16",
    np.dtype(ml_dtypes.bfloat16): "B16",
    np.dtype(np.float32): "float",
    np.dtype(np.float64): "double",
}
"""The kernels' names of the dtypes."""


class DeviceArray(NamedTuple):
    """A device pointer with a shape, strides in elements, the number of the device and the caller's current stream."""

    pointer: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    device: int
    stream: int

    def extent(self) -> tuple[int, int]:
        """The first byte and the one after the last; empty for an empty array."""
        if 0 in self.shape:
            return self.pointer, self.pointer
        spans = [(n - 1) * step for n, step in zip(self.shape, self.strides, strict=True)]
        size = self.dtype.itemsize
        first = self.pointer + size * sum(min(span, 0) for span in spans)
        return first, self.pointer + size * (1 + sum(max(span, 0) for span in spans))

    def part(self, spatial: tuple[int, ...], parts: tuple[slice, ...]) -> DeviceArray:
        """The same array cut along its spatial axes."""
        pointer, shape, strides = self.pointer, list(self.shape), list(self.strides)
        for position, part in zip(spatial, parts, strict=True):
            chosen = range(*part.indices(shape[position]))
            pointer += chosen.start * strides[position] * self.dtype.itemsize
            shape[position], strides[position] = len(chosen), strides[position] * chosen.step
        return self._replace(pointer=pointer, shape=tuple(shape), strides=tuple(strides))
