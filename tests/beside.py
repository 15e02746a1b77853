"""A framework's answers beside ours: both against the oracle, each within what its additions may lose.

Ours must be within the rounding of one answer; a framework, which adds in its own order and may multiply by reciprocals,
within as many units of the last place as a window has terms. Errors are measured in units of the same sum over absolute
values, which cancellation cannot hide behind.
"""

from __future__ import annotations

from typing import Any

import checks
import numpy as np
import support
from support import Array

from poolgrad import exact
from poolgrad.dialects import Pooling


def arrays(pooling: Pooling, shape: tuple[int, ...], seed: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
    """A random input, and a random gradient of its output."""
    pool = pooling.pool(shape)
    x = support.random_array(seed, shape, dtype)
    return x, support.random_array(seed + 1, support.result_shape(pool, shape, pooling.layout, forwards=True), dtype)


def check(
    pooling: Pooling, x: Array, dy: Array, ours: tuple[Array, Array | None], theirs: tuple[Array, Array | None] | None
) -> None:
    """`ours` and `theirs` are the output for `x` and the gradient for `dy`."""
    pool, layout = pooling.pool(x.shape), pooling.layout
    terms = int(np.prod([(axis.stop - axis.start).max(initial=1) for axis in pool.axes]))
    for k, (function, source) in enumerate([(exact.forward, x), (exact.gradient, dy)]):
        want, size = function(pool, source, layout), abs(function(pool, abs(source), layout))
        mine = ours[k]
        if mine is not None:
            assert mine.dtype == x.dtype
            checks.assert_close(mine, want, size, checks.tolerance(pool, x.dtype, forwards=k == 0))
        other = theirs[k] if theirs is not None else None
        if other is not None:
            assert other.dtype == x.dtype
            checks.assert_close(other, want, size, terms + 4)
