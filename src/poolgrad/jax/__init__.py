"""Average pooling and its gradient in JAX: linear primitives, each the other's transpose, at native speed on the CPU.

>>> import jax, jax.numpy as jnp, poolgrad.jax as pj
>>> x = jnp.arange(6.0).reshape(2, 3)
>>> y, pullback = jax.vjp(lambda x: pj.avg_pool(x, 2, stride=1, padding="same", layout="HW"), x)
>>> pullback(jnp.ones_like(y))[0]
Array([[0.25, 0.5 , 0.75],
       [0.75, 1.5 , 2.25]], dtype=float32)
"""

import jax

if jax.__version_info__ < (0, 8):
    raise ImportError(f"poolgrad.jax needs JAX 0.8 or newer, found {jax.__version__}")

from .functional import (
    adaptive_avg_pool,
    adaptive_avg_pool_grad,
    avg_pool,
    avg_pool_grad,
    fractional_avg_pool,
    fractional_avg_pool_grad,
)

__all__ = [
    "adaptive_avg_pool",
    "adaptive_avg_pool_grad",
    "avg_pool",
    "avg_pool_grad",
    "fractional_avg_pool",
    "fractional_avg_pool_grad",
]
