"""The linear map: one primitive for a pooling and its gradient, which are each other's transpose.

Linear and transposed is all that JAX needs for derivatives of every order in both modes. Axes that are not spatial are
never looked at, so `vmap` just names one more of them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
from jax._src.dispatch import prim_requires_devices_during_lowering
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..errors import PoolGradValueError
from ..geometry import Pool
from .parts import result_shape, uncut
from .sharding import explicit_sharding, partitioned

__all__ = ["linear"]

pool_p = Primitive("poolgrad_avg_pool")


def linear(x: Any, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> Any:
    """The pooling of `x`, or, not `forwards`, the gradient of that pooling."""
    return pool_p.bind(x, pool=pool, spatial=spatial, forwards=forwards)


def _run(x: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> Any:
    # Refused here, it is our own error; refused while XLA compiles, it would be XLA's.
    if hasattr(x, "devices") and len(x.devices()) > 1:
        explicit_sharding(x, pool, spatial, forwards)
    with jax.disable_jit(False):  # compiled is the only form it has; without jit it would call itself
        return _eager(x, pool=pool, spatial=spatial, forwards=forwards)


@partial(jax.jit, static_argnames=("pool", "spatial", "forwards"))
def _eager(x: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> Any:
    return linear(x, pool, spatial, forwards)


def _shape(x: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> Any:
    shape = result_shape(x.shape, pool, spatial, forwards, uncut(pool, forwards))
    return x.update(shape=shape, sharding=explicit_sharding(x, pool, spatial, forwards))


def _transposed(dy: Any, x: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> tuple[Any]:
    dx = linear(dy, pool, spatial, not forwards)
    wanted = x.aval.sharding
    return (dx if jax.typeof(dx).sharding == wanted else jax.sharding.reshard(dx, wanted),)


def _mapped(arrays: Any, dims: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> tuple[Any, int]:
    (x,), (dim,) = arrays, dims
    return linear(x, pool, tuple(p + (p >= dim) for p in spatial), forwards), dim


def _lowered(context: Any, x: Any, *, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> Any:
    module = context.module_context
    if module.lowering_parameters.for_export and getattr(module.axis_context, "num_devices", 1) > 1:
        raise PoolGradValueError(
            "a program for several devices cannot be exported with a pooling that JAX is to share out: its partitioning lives in "
            "this process; put the pooling into jax.shard_map, or export a program for one device"
        )
    return mlir.lower_fun(lambda x: partitioned(x, pool, spatial, forwards), multiple_results=False)(context, x)


pool_p.def_impl(_run)
pool_p.def_abstract_eval(_shape)
ad.deflinear2(pool_p, _transposed)
batching.primitive_batchers[pool_p] = _mapped
mlir.register_lowering(pool_p, _lowered)
# Whose devices it will run on decides how it is shared out. JAX asks this of its own primitives by the same set.
prim_requires_devices_during_lowering.add(pool_p)
