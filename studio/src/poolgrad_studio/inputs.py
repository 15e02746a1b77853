"""Values from outside: a `.npy` file, an image, random numbers. Each becomes a Const, so that the page holds its own data.

What a file promises is checked before anything is made of it: nothing is unpickled, and no header makes us allocate.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np

from poolgrad.enuspace import BLOCKS, Pin
from poolgrad.npy import npy_header

from .arrays import Array
from .failure import Failure
from .light import light_pin
from .limits import LIMITS
from .vault import Vault

__all__ = ["LAYOUTS", "as_const", "from_image", "from_npy", "random_values"]

LAYOUTS = ("HWC", "NHWC", "NCHW", "NDHWC")
TYPES: dict[str, Any] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "int": np.dtype(np.int32),
    "half": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "int64": np.dtype(np.int64),
}
PLAIN = (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32), np.dtype(np.bool_))
LEGAL = "bool, integers, half, bfloat16, float or double"
NAMED = {"float16": "DT_HALF", "bfloat16": "DT_BFLOAT16", "int64": "DT_INT64"}


def as_const(array: Array, vault: Vault, note: str = "") -> dict[str, Any]:
    """The block and the pins that hold an array."""
    check_elements(array.shape)
    if array.dtype not in PLAIN and array.dtype.name not in NAMED:
        array, note = _widened(array), note or f"{array.dtype} became {_widened(array[:0]).dtype}"
    symbol = "Const" if array.dtype in PLAIN else "Const_ex"
    defined = BLOCKS[symbol].pin("val")
    assert defined is not None
    val = Pin("val", "const", defined.interface)
    val.set(array)
    light = light_pin(val, vault)
    pins: dict[str, Any] = {"val": _fields(light)}
    if symbol == "Const_ex":
        pins["dtype"] = {"type": "string", "shape": "", "value": NAMED[array.dtype.name], "data": None}
    return {"symbol": symbol, "pins": pins, "shape": list(array.shape), "dtype": array.dtype.name, "note": note}


def _fields(light: Any) -> dict[str, Any]:
    data = light.data and {"ref": light.data.ref, "bytes": light.data.bytes, "text": light.data.text}
    return {"type": light.type, "shape": light.shape, "value": light.value, "data": data}


def _widened(array: Array) -> Array:
    """Small integers as int, larger ones as 64 bits where they fit."""
    if array.dtype.kind not in "iu":
        raise Failure("value", f"an array of {array.dtype} cannot be put on a page", LEGAL)
    if array.dtype.itemsize < 4:
        return array.astype(np.int32)
    if array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise Failure("value", "the array holds integers that do not fit 64 bits with a sign")
    return array.astype(np.int64)


def check_elements(shape: Sequence[int]) -> None:
    """Refuse an array beyond the limit, by its shape alone."""
    if len(shape) > 32 or any(n < 0 for n in shape) or math.prod(shape) > LIMITS["elements"]:
        shown = "×".join(map(str, list(shape)[:8]))
        raise Failure("limit", f"an array has at most {LIMITS['elements']} elements and 32 axes, got {shown}")


def from_npy(data: bytes) -> Array:
    """The array in the bytes of a `.npy` file."""
    file = io.BytesIO(data)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shape, fortran, dtype = npy_header(file)
    except Exception as error:  # whatever NumPy makes of a header that is none
        raise Failure("file", f"this is not a .npy file: {str(error).splitlines()[0][:120]}") from None
    check_elements(shape)
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None:
        dtype = np.dtype(ml_dtypes.bfloat16)  # this is how NumPy stores a bfloat16
    if dtype.hasobject or (dtype.kind not in "biuf" and dtype != ml_dtypes.bfloat16):
        raise Failure("value", f"an array of {dtype} cannot be put on a page", LEGAL)
    wanted, found = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
    if wanted != found:
        raise Failure("file", f"this .npy file has {found} bytes of data, where {dtype} of shape {shape} makes {wanted}")
    flat = np.frombuffer(data, dtype, offset=file.tell())
    array = flat.reshape(shape, order="F" if fortran else "C")
    if dtype == np.longdouble and dtype != np.float64:
        raise Failure("value", f"an array of {dtype} cannot be put on a page", LEGAL)
    return np.ascontiguousarray(array.astype(dtype.newbyteorder("="), copy=False)).reshape(shape)


def from_image(data: bytes, layout: str) -> Array:
    """The pixels of a PNG or JPEG as float, 0 to 1, one channel for grey, three for colour, four with transparency."""
    from PIL import Image

    try:
        with Image.open(io.BytesIO(data), formats=["PNG", "JPEG"]) as image:
            check_elements((image.width, image.height, 4))
            pixels = _pixels(image)
    except Failure:
        raise
    except Exception as error:  # Pillow raises many kinds for a broken file
        raise Failure("file", f"this is not a readable PNG or JPEG: {str(error)[:120] or type(error).__name__}") from None
    return _laid_out(pixels, layout)


def _pixels(image: Any) -> Array:
    if image.mode.startswith(("I", "F")):  # sixteen bits of grey
        grey: Array = np.asarray(image).astype(np.float32) / np.float32(65535)
        return grey[:, :, None]
    mode = {"1": "L", "L": "L", "LA": "RGBA", "RGBA": "RGBA", "PA": "RGBA"}.get(image.mode, "RGB")
    if image.mode == "P" and "transparency" in image.info:
        mode = "RGBA"
    pixels: Array = np.asarray(image.convert(mode)).astype(np.float32) / np.float32(255)
    return pixels if pixels.ndim == 3 else pixels[:, :, None]


def _laid_out(pixels: Array, layout: str) -> Array:
    if layout == "HWC":
        return pixels
    if layout == "NCHW":
        return np.ascontiguousarray(pixels.transpose(2, 0, 1))[None]
    return pixels[None] if layout == "NHWC" else pixels[None, None]


def random_values(shape: Sequence[int], type: str, seed: int, distribution: str, low: float, high: float) -> Array:
    """Numbers that the seed decides, in the given type.

    >>> random_values([2, 3], "int", 1, "ramp", 0, 0).tolist()
    [[1, 2, 3], [4, 5, 6]]
    """
    check_elements(shape)
    dtype = TYPES[type]
    if distribution == "ramp":
        ramp: Array = np.arange(1, math.prod(shape) + 1, dtype=np.int64).astype(dtype)
        return ramp.reshape(shape)
    if seed < 0:
        raise Failure("value", f"seed must be at least 0, got {seed}")
    rng = np.random.default_rng(seed)
    if distribution == "integers" or dtype.kind == "i":
        return _whole(rng, shape, dtype, low, high)
    if distribution == "uniform":
        if not low <= high:
            raise Failure("value", f"low must not exceed high, got {low} and {high}")
        return np.asarray(low + (high - low) * rng.random(shape), dtype)
    made: Array = rng.standard_normal(shape).astype(dtype)
    return made


def _whole(rng: np.random.Generator, shape: Sequence[int], dtype: Any, low: float, high: float) -> Array:
    first, last = math.ceil(low), math.floor(high)
    most = np.iinfo(dtype).max if dtype.kind == "i" else 2**31
    if not -most <= first <= last <= most:
        raise Failure("value", f"low and high must hold a whole number between {-most} and {most}, got {low} and {high}")
    return np.asarray(rng.integers(first, last, shape, endpoint=True), dtype)
