"""How far an answer is from the truth, in units of the last place of its dtype.

The truth is computed here from the windows alone, in a wider type and by another route than the engines': for every
position the terms are added at once by NumPy. One image and a few of its channels are enough: all are alike.
"""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..geometry import Pool
from .cases import Row

__all__ = ["sample", "truth", "worst_ulps"]

Array = npt.NDArray[Any]

CHANNELS = 4


def sample(row: Row, array: Array, image: int = 0) -> Array:
    """One image of an array in the row's layout: a few channels, channels last."""
    picture: Array = array[image] if row.channels_last else np.moveaxis(array[image], 0, -1)
    few: Array = picture[..., :CHANNELS]
    return few


def truth(pool: Pool, picture: Array, *, forward: bool) -> Array | None:
    """The forward or the gradient of one channels-last picture in a wider type; None where there is no wider type."""
    wide = np.dtype(np.longdouble if picture.dtype == np.float64 else np.float64)
    if wide.itemsize <= picture.dtype.itemsize:
        return None
    t = picture.astype(wide)
    for k, axis in enumerate(pool.axes):
        shape = [1] * t.ndim
        shape[k] = axis.cells
        count = axis.count.astype(wide).reshape(shape)
        rows = np.moveaxis(t if forward else t / count, k, 0)
        summed = np.zeros((axis.cells if forward else axis.size, *rows.shape[1:]), dtype=wide)
        for o, (a, b) in enumerate(zip(axis.start, axis.stop, strict=True)):
            if forward:
                summed[o] = rows[a:b:axis.step].sum(axis=0)
            else:
                summed[a:b:axis.step] += rows[o]
        t = np.moveaxis(summed, 0, k)
        t = t / count if forward else t
    return t


def worst_ulps(got: Array, want: Array, dtype: np.dtype[Any]) -> float:
    """The largest distance in units of the last place of `dtype` at the true value."""
    info = ml_dtypes.finfo(dtype)
    _, exponent = np.frexp(want)
    unit = np.ldexp(np.ones((), dtype=want.dtype), np.maximum(exponent - 1, info.minexp) - info.nmant)
    return float(np.max(np.abs(got.astype(want.dtype) - want) / unit, initial=0.0))
