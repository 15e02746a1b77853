"""Which kind of array came in; the same kind goes out.

Requirements: no framework is imported unless the user's own array comes from it; nothing is copied in silence; a kind
that is not served is refused by name, before anything is allocated. NumPy arrays are served on the CPU; PyTorch, CuPy and
JAX arrays on a CUDA device by the GPU engine, through the adapter that `gpu_framework` finds; Dask arrays lazily, by
`poolgrad.dask`.
"""

from __future__ import annotations

import os
from functools import cache
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .errors import PoolGradMemoryError, PoolGradTypeError, PoolGradValueError

if TYPE_CHECKING:
    from .engines.gpu.frameworks import Framework
    from .engines.gpu.record import DeviceArray

__all__ = [
    "DTYPES",
    "check_addressable",
    "check_device_out",
    "check_fits",
    "check_out",
    "check_source",
    "gpu_framework",
    "is_dask",
]

Array = npt.NDArray[Any]

DTYPES = {np.dtype(t): t.__name__ for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)}


def gpu_framework(array: Any) -> Framework | None:
    """The adapter for `array` if it lies on a CUDA device, whichever framework made it; None for anything else."""
    root = type(array).__module__.partition(".")[0]
    if root == "torch":
        return _adapter("PyTorch") if getattr(array, "is_cuda", False) else None
    if root == "cupy":
        return _adapter("CuPy")
    if root in ("jax", "jaxlib"):
        try:
            platforms = {device.platform for device in array.devices()}
        except Exception:  # not an array, or one that is being traced: refused by name later
            return None
        return _adapter("Jax") if platforms & {"gpu", "cuda"} else None
    return None


def is_dask(array: Any) -> bool:
    """Whether `array` is one of Dask's collections, which `poolgrad.dask` serves or refuses."""
    return type(array).__module__.partition(".")[0] == "dask"


@cache
def _adapter(name: str) -> Framework:
    from .engines.gpu import frameworks

    made: Framework = getattr(frameworks, name)()
    return made


def check_source(name: str, array: object) -> Array:
    """`array` as the engines take it, or an error that says what is wrong with it."""
    if not isinstance(array, np.ndarray):
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        raise PoolGradTypeError(f"{name} must be a NumPy array, got {kind}; convert it first, for instance with numpy.asarray")
    if array.dtype not in DTYPES:
        swapped = " in the machine's byte order" if array.dtype.newbyteorder("=") in DTYPES else ""
        raise PoolGradTypeError(f"{name} must have dtype {', '.join(DTYPES.values())}{swapped}, got {array.dtype}")
    return array.view(np.ndarray)


def check_fits(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Refuse a result that cannot exist here, before anything is allocated."""
    needed = check_addressable(name, shape, dtype)
    if needed > 2**30 and needed > _memory() and 0 not in shape:
        raise PoolGradMemoryError(f"{name} {shape} of {dtype} needs {needed} bytes, this machine has {_memory()}")


def check_addressable(name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """The bytes of such an array, refused where no machine could number them."""
    elements = 1
    for extent in shape:
        elements *= max(extent, 1)  # NumPy's own limit: an empty array's other extents count
    needed = elements * dtype.itemsize
    if needed > 2**63 - 1:
        raise PoolGradValueError(f"{name} {shape} has {elements} elements of {dtype}, beyond 64-bit addressing")
    return needed


def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 2**63 - 1


def check_out(out: object, source: Array, shape: tuple[int, ...]) -> Array:
    """`out` as a place for the result: right shape and dtype, writeable, apart from the source and from itself."""
    if not isinstance(out, np.ndarray):
        raise PoolGradTypeError(f"out must be a NumPy array, got {type(out).__name__}")
    if out.shape != shape:
        raise PoolGradValueError(f"out must have shape {shape}, got {out.shape}")
    if out.dtype != source.dtype:
        raise PoolGradTypeError(f"out must have the dtype of the input ({source.dtype}), got {out.dtype}")
    if not out.flags.writeable:
        raise PoolGradValueError("out must be writeable, got a read-only array")
    if _overlaps_itself(out):
        raise PoolGradValueError(f"out must not overlap itself, got strides {out.strides} for shape {out.shape}")
    if np.may_share_memory(source, out) and _shares(source, out):
        raise PoolGradValueError("out must not share memory with the input")
    return out.view(np.ndarray)


def check_device_out(out: Any, framework: Framework, source: DeviceArray, shape: tuple[int, ...]) -> DeviceArray:
    """`out` on a device as a place for the result: the source's framework and device, right shape and dtype, apart from it."""
    if gpu_framework(out) is not framework:
        kind = f"{type(out).__module__}.{type(out).__qualname__}"
        raise PoolGradTypeError(f"out must be a {framework.name} array on the GPU like the input, got {kind}")
    if framework.name == "JAX":
        raise PoolGradTypeError("JAX arrays cannot be written to; leave out away and use the result")
    place = framework.describe("out", out)
    if place.device != source.device:
        raise PoolGradValueError(f"out must be on the input's device (cuda:{source.device}), got cuda:{place.device}")
    if place.shape != shape:
        raise PoolGradValueError(f"out must have shape {shape}, got {place.shape}")
    if place.dtype != source.dtype:
        raise PoolGradTypeError(f"out must have the dtype of the input ({source.dtype}), got {place.dtype}")
    if _strides_overlap(place.strides, place.shape, 1):
        raise PoolGradValueError(f"out must not overlap itself, got strides {place.strides} for shape {place.shape}")
    (a, b), (c, d) = place.extent(), source.extent()
    if a < d and c < b:
        raise PoolGradValueError("out must not share memory with the input")
    return place


def _shares(a: Array, b: Array) -> bool:
    try:
        return np.shares_memory(a, b, max_work=10**5)  # type: ignore[arg-type]  # any bound is allowed
    except np.exceptions.TooHardError:
        return True


def _overlaps_itself(out: Array) -> bool:
    return _strides_overlap(out.strides, out.shape, out.itemsize)


def _strides_overlap(strides: tuple[int, ...], shape: tuple[int, ...], reach: int) -> bool:
    if 0 in shape:
        return False
    for stride, extent in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride < reach:
            return True
        reach += stride * (extent - 1)
    return False
