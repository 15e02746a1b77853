"""The files a model reads and writes: .npy, images (through Pillow, if it is there), and raw bytes.

Sizes are compared with the file before anything is allocated.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ....arrays import check_fits
from ....npy import npy_header
from ..enums import NUMPY_TYPES, TensorDataType
from .lenient import ModelError

__all__ = ["IMAGES", "Resample", "read_bytes", "read_image", "read_npy", "write_image", "write_npy"]

Array = npt.NDArray[Any]
IMAGES = (".png", ".jpg")
_KINDS = {dtype: kind for kind, dtype in NUMPY_TYPES.items()}


class Resample(NamedTuple):
    """The tensor that an image becomes: `resampleSize` (N, C, H, W) and the type of its values."""

    sizes: Sequence[int]
    kind: TensorDataType


def read_bytes(path: Path) -> Array:
    try:
        return np.fromfile(path, dtype=np.uint8)
    except (OSError, ValueError) as problem:
        raise ModelError(f"Given filename '{path}' could not be opened: {problem}") from None


def read_npy(path: Path, kind: TensorDataType) -> tuple[Array, TensorDataType]:
    """The values of a .npy file in C order, and their type; numbers in the other byte order are turned."""
    try:
        with path.open("rb") as file:
            shape, fortran, dtype = npy_header(file)
            offset = file.tell()
    except (OSError, ValueError, EOFError, TypeError, SyntaxError, RecursionError, MemoryError) as problem:
        raise ModelError(f"'{path}' could not be read as .npy: {problem}") from None
    if fortran and len(shape) > 1:
        raise ModelError(f"'{path}' is in Fortran order; DxDispatch reads C order (save numpy.ascontiguousarray of it)")
    native = dtype.newbyteorder("=")
    if native == np.bool_:
        native = np.dtype(np.uint8)
    elif native == np.dtype("V2") and kind is TensorDataType.BFLOAT16:
        native = NUMPY_TYPES[kind]  # the .npy format has no bfloat16: NumPy saves it as two bytes without a type
    if native not in _KINDS:
        raise ModelError(f"'{path}' holds {dtype}, which is no tensor data type")
    count = prod(shape)
    if min(shape, default=0) < 0 or count * dtype.itemsize > path.stat().st_size - offset:
        raise ModelError(f"'{path}' is too short for its shape {shape}")
    values = np.fromfile(path, dtype=dtype, count=count, offset=offset)
    same_bits = dtype.itemsize == 1 or native.kind == "V"
    return (values.view(native) if same_bits else values.astype(native, copy=False)), _KINDS[native]


def read_image(path: Path, to: Resample) -> Array:
    """An image as channels first, scaled to the asked size, 0 to 1."""
    if len(to.sizes) != 4 or to.sizes[0] != 1 or to.sizes[1] not in (1, 3, 4):
        raise ModelError(f"Field 'resampleSize' must be [1, C, H, W] with 1, 3 or 4 channels for an image, got {list(to.sizes)}")
    if to.kind not in (TensorDataType.FLOAT32, TensorDataType.FLOAT16):
        raise ModelError(f"An image becomes FLOAT32 or FLOAT16 values, not {to.kind.name}")
    _, channels, height, width = to.sizes
    check_fits("an image", (channels, height, width), np.dtype(np.float32))
    pillow = _pillow(path)
    try:
        with pillow.open(path) as image:
            pixels = image.convert({1: "L", 3: "RGB", 4: "RGBA"}[channels])
            if pixels.size != (width, height):
                pixels = pixels.resize((width, height), pillow.Resampling.BICUBIC)
            values = np.asarray(pixels, dtype=np.float32).reshape(height, width, channels) / np.float32(255)
    except (OSError, ValueError, MemoryError, pillow.DecompressionBombError) as problem:
        raise ModelError(f"'{path}' could not be read as an image: {problem}") from None
    return np.ascontiguousarray(values.transpose(2, 0, 1)).astype(NUMPY_TYPES[to.kind])


def write_npy(path: Path, values: Array, dimensions: Sequence[int]) -> None:
    np.save(path, _shaped(values, dimensions or [len(values)]), allow_pickle=False)


def write_image(path: Path, values: Array, dimensions: Sequence[int]) -> None:
    channels, height, width = [*dimensions, 1, 1, 1, 1][1:4]
    if channels not in (1, 3, 4):
        raise ModelError(f"Unsupported channel count {channels} for image file")
    if values.dtype not in (np.float32, np.float16):
        raise ModelError(f"An image is written of FLOAT32 or FLOAT16 values, not {values.dtype}")
    shares = np.clip(_shaped(values, [channels, height, width]).astype(np.float32), 0, 1).transpose(1, 2, 0)
    pixels = (np.nan_to_num(shares) * np.float32(255)).astype(np.uint8)
    _pillow(path).fromarray(pixels[..., 0] if channels == 1 else pixels).save(path)


def _shaped(values: Array, dimensions: Sequence[int]) -> Array:
    count = prod(dimensions)
    if count > len(values):
        raise ModelError(f"dimensions {list(dimensions)} need {count} values, the resource has {len(values)}")
    return values[:count].reshape(dimensions)


def _pillow(path: Path) -> Any:
    try:
        return import_module("PIL.Image")
    except ImportError:
        raise ModelError(f"'{path}' is an image, which needs Pillow (pip install pillow)") from None
