"""Checking a kernel of your own against the oracle: `poolgrad.exact` is rational arithmetic, rounded once.

`mine` stands for the kernel under test. It is the textbook loop, written for float16 as it is often found: it sums in
the storage type. The oracle says how far off that is; poolgrad's own answer is beside it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

import poolgrad
from poolgrad import exact

Array = npt.NDArray[Any]


def mine(dy: Array, size: tuple[int, int], window: int) -> Array:
    """The gradient of stride 1 pooling without padding, added up window by window in dy's own type."""
    dx = np.zeros(size, dtype=dy.dtype)
    for i, j in np.ndindex(dy.shape):
        dx[i : i + window, j : j + window] += dy[i, j] / dy.dtype.type(window * window)
    return dx


size, window = (24, 20), 9
dy = np.random.default_rng(4).uniform(0.5, 1.5, (size[0] - window + 1, size[1] - window + 1)).astype(np.float16)

want = exact.avg_pool_grad(dy.astype(np.float64), size, window, stride=1, layout="HW")
ours = poolgrad.avg_pool_grad(dy, size, window, stride=1, layout="HW")

print(f"summed in float16: off by {exact.ulps(mine(dy, size, window), want):.2f} units in the last place")
print(f"poolgrad:          off by {exact.ulps(ours, want):.2f}  (0.50 is the best a float16 can do)")
