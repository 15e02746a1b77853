"""A pooling and its gradient as linear maps of tensors, each the gradient of the other: derivatives of every order.

Where a tensor has its values and lies in the machine's memory, the engine computes (bits); anywhere else, in a graph, under
XLA or on another device, TensorFlow's basic ops do (units of the last place).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import tensorflow as tf

from .. import ops as core
from ..geometry import Pool
from ..layout import spatial_positions
from . import compose
from .host import Array, Tensor, is_host, on_host

__all__ = ["Map", "linear", "pooling"]

Map = Callable[[Tensor], Tensor]


def linear(there: Map, transposed: Callable[[], Map]) -> Map:
    """`there` with its gradient, the map that `transposed` makes."""

    @tf.custom_gradient  # type: ignore[untyped-decorator]
    def apply(x: Tensor) -> tuple[Tensor, Map]:
        return there(x), lambda dy: transposed()(tf.convert_to_tensor(dy))

    made: Map = apply
    return made


@lru_cache(maxsize=512)
def pooling(pool: Pool, layout: str, forwards: bool) -> Map:
    """The pooling of tensors of floats, or its gradient. Kept: TensorFlow takes long to wrap a function."""
    spatial = spatial_positions(layout, len(layout))
    function: Any = core.forward if forwards else core.gradient

    def run(source: Tensor) -> Tensor:
        if not is_host(source):
            return compose.pooled(pool, spatial, forwards, source)
        shape = list(source.shape)
        for position, size in zip(spatial, pool.output_size if forwards else pool.input_size, strict=True):
            shape[position] = size

        def compute(array: Array, out: Array | None, threads: int | None) -> Array:
            result: Array = function(pool, array, layout=layout, out=out, num_threads=threads)
            return result

        return on_host(compute, source, tuple(shape))

    return linear(run, lambda: pooling(pool, layout, not forwards))
