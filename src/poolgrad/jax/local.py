"""What one device computes: our kernel on the CPU, JAX's own operations anywhere else.

The kernel is a custom call of XLA. It is registered when this module is imported, under a name of its own, and carries its
tables as numbers: a program saved by `jax.export` runs wherever `poolgrad.jax` has been imported.
"""

from __future__ import annotations

import warnings
from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ..geometry import Pool
from .composition import composed
from .parts import Cut, encode, has_far

__all__ = ["TARGET", "local"]

TARGET = "poolgrad_avg_pool"


@cache
def has_kernel() -> bool:
    """Whether the kernel is there; asked before the first program is made, and registered then."""
    try:
        from ..engines import native
        from ..engines._native import set_xla_threads, xla_handler
    except ImportError as missing:
        warnings.warn(
            f"poolgrad's kernel for XLA is absent ({missing}); JAX's own operations do the same, slower and within ulps",
            RuntimeWarning,
            stacklevel=2,
        )
        return False
    set_xla_threads(native.default_threads())
    jax.ffi.register_ffi_target(TARGET, xla_handler(), platform="cpu")
    return True


def local(x: Any, places: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool, cuts: tuple[Cut, ...]) -> Any:
    """The pooling of this device's part of `x`, or the gradient; `places` says which part of each cut axis that is."""
    anywhere = partial(composed, pool=pool, spatial=spatial, forwards=forwards, cuts=cuts)
    if not has_kernel() or has_far(pool, forwards):
        return anywhere(x, places)
    shape = list(x.shape)
    for axis, position, cut in zip(pool.axes, spatial, cuts, strict=True):
        shape[position] = (axis.cells if forwards else axis.size) // cut.parts
    call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(shape, x.dtype))
    tables = encode(pool, spatial, forwards, cuts)

    def kernel(x: Any, places: Any) -> Any:
        return call(x, places, tables=tables)

    return jax.lax.platform_dependent(x, jnp.asarray(places, dtype=np.int32), cpu=kernel, default=anywhere)
