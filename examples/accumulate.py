"""Into an array that exists already: `out=` writes the gradient there, `accumulate=True` adds it.

A tensor that feeds two poolings gets the sum of two gradients. Adding in place saves the second tensor and a pass over
both, and is rounded once instead of twice.
"""

from __future__ import annotations

import numpy as np

import poolgrad

shape = (8, 56, 56, 64)
rng = np.random.default_rng(1)
dy_small = rng.standard_normal((8, 28, 28, 64), dtype=np.float32)
dy_smooth = rng.standard_normal(shape, dtype=np.float32)

dx = np.empty(shape, dtype=np.float32)
poolgrad.avg_pool_grad(dy_small, shape, 2, out=dx)
poolgrad.avg_pool_grad(dy_smooth, shape, 3, stride=1, padding="same", out=dx, accumulate=True)

apart = poolgrad.avg_pool_grad(dy_small, shape, 2) + poolgrad.avg_pool_grad(dy_smooth, shape, 3, stride=1, padding="same")
print("in place and apart agree:", np.array_equal(dx, apart))

half = dx.astype(np.float16)
poolgrad.avg_pool_grad(dy_smooth.astype(np.float16), shape, 3, stride=1, padding="same", out=half, accumulate=True)
print("in float16 the sum is made in float32 and rounded once:", half.dtype, half.shape)
