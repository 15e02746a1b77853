"""What one device computes: our kernels on the CPU and on CUDA devices, JAX's own operations anywhere else.

A kernel is a custom call of XLA that carries its tables as numbers: a program saved by `jax.export` runs wherever
`poolgrad.jax` has been imported, which is what registers it.
"""

from __future__ import annotations

import warnings
from functools import cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import PartitionSpec

from ..geometry import Pool
from .composition import composed
from .device import handler, has_engine, launched, serves
from .parts import Cut, encode, has_far, result_shape

__all__ = ["TARGET", "has_kernel", "local"]

TARGET = "poolgrad_avg_pool"


def _register() -> str:
    """Give XLA the kernel; why that cannot be, in words, or nothing."""
    try:
        from ..engines import native
        from ..engines._native import set_xla_threads, xla_handler
    except ImportError as missing:
        return str(missing)
    set_xla_threads(native.default_threads())
    jax.ffi.register_ffi_target(TARGET, xla_handler(), platform="cpu")
    return ""


_absent = _register()
_on_stream = handler()  # kept for as long as XLA may call it
jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(_on_stream), platform="CUDA")


@cache
def has_kernel() -> bool:
    """Whether the kernel is there; its absence is said once, when it is first missed."""
    if _absent:
        warnings.warn(
            f"poolgrad's kernel for XLA is absent ({_absent}); JAX's own operations do the same, slower and within ulps",
            RuntimeWarning,
            stacklevel=2,
        )
    return not _absent


local_p = Primitive("poolgrad_avg_pool_local")


def local(x: Any, places: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool, cuts: tuple[Cut, ...]) -> Any:
    """The pooling of this device's part of `x`, or the gradient; `places` says which part of each cut axis that is."""
    return local_p.bind(x, jnp.asarray(places, dtype=jnp.int32), pool=pool, spatial=spatial, forwards=forwards, cuts=cuts)


def _shape(x: Any, places: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool, cuts: tuple[Cut, ...]) -> Any:
    # What a device holds is whole to it; in programs with shardings in their types, those of batch and channels stay.
    entries = (*x.sharding.spec, *[None] * (len(x.shape) - len(x.sharding.spec)))
    spec = PartitionSpec(*(None if d in spatial else entry for d, entry in enumerate(entries)))
    return x.update(shape=result_shape(x.shape, pool, spatial, forwards, cuts), sharding=x.sharding.update(spec=spec))


def _on_cpu(x: Any, places: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool, cuts: tuple[Cut, ...]) -> Any:
    if not has_kernel() or has_far(pool, forwards):
        return composed(x, places, pool=pool, spatial=spatial, forwards=forwards, cuts=cuts)
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(result_shape(x.shape, pool, spatial, forwards, cuts), x.dtype))
    return call(x, places, tables=encode(pool, spatial, forwards, cuts))


def _on_cuda(x: Any, places: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool, cuts: tuple[Cut, ...]) -> Any:
    if not has_engine() or not serves(x):
        return composed(x, places, pool=pool, spatial=spatial, forwards=forwards, cuts=cuts)
    return launched(x, places, target=TARGET, pool=pool, spatial=spatial, forwards=forwards, cuts=cuts)


local_p.def_abstract_eval(_shape)
mlir.register_lowering(local_p, mlir.lower_fun(composed, multiple_results=False))
mlir.register_lowering(local_p, mlir.lower_fun(_on_cpu, multiple_results=False), platform="cpu")
mlir.register_lowering(local_p, mlir.lower_fun(_on_cuda, multiple_results=False), platform="cuda")
