"""What a plan is made of: views of arrays not yet known, and launches with places for their pointers."""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import PoolGradValueError
from .record import STORAGE, DeviceArray

__all__ = ["Launch", "Plan", "Pointer", "View", "dense", "view_of"]


class Pointer(NamedTuple):
    """A pointer that a call brings: 0 the source, 1 the result, 2 and up scratch."""

    which: int


class View(NamedTuple):
    """An array of a plan: shape and strides in elements; its pointer is a multiple of `aligned` bytes."""

    pointer: Pointer
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    aligned: int

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def storage(self) -> str:
        return STORAGE[self.dtype]


class Launch(NamedTuple):
    """One kernel: 64-bit arguments are integers, floats, `Pointer`s, or arrays that are uploaded once."""

    source: str
    name: str
    threads: int
    block: int
    shared: int
    arguments: tuple[int | float | Pointer | npt.NDArray[Any], ...]


class Plan(NamedTuple):
    """The launches of one call, and the bytes of scratch they need."""

    launches: tuple[Launch, ...]
    scratch: tuple[int, ...]


def view_of(array: DeviceArray, which: int) -> View:
    aligned = 16 if array.pointer % 16 == 0 else array.pointer & -array.pointer
    if aligned < array.dtype.itemsize:
        raise PoolGradValueError(f"arrays on a GPU must lie on multiples of their elements' {array.dtype.itemsize} bytes")
    return View(Pointer(which), array.dtype, array.shape, array.strides, aligned)


def dense(which: int, dtype: np.dtype[Any], shape: tuple[int, ...], like: View) -> View:
    """A scratch array without gaps, its dimensions in memory as those of `like`."""
    order = sorted(range(len(shape)), key=lambda k: (abs(like.strides[k]), k != len(shape) - 1))
    strides, step = [0] * len(shape), 1
    for k in order:
        strides[k], step = step, step * shape[k]
    return View(Pointer(which), dtype, shape, tuple(strides), 16)
