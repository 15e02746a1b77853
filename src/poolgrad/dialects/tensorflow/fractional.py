"""FractionalAvgPool and its gradient: TensorFlow's names, arguments and defaults.

Cell `(i, j)` covers the rows `r[i] … r[i+1] - 1` and the columns `c[j] … c[j+1] - 1`, clipped to the input; `overlapping`
adds the boundary itself. A sequence may begin after 0, end before or after the input, or repeat a boundary: what no cell
covers gets nothing, a cell that covers nothing is 0 and gives nothing. A sequence that decreases is refused.
"""

from __future__ import annotations

import os
from functools import cache, lru_cache
from typing import Any, NamedTuple

import numpy as np

from ... import ops as core
from ...arrays import check_fits
from ...errors import PoolGradTypeError, PoolGradValueError
from ...geometry import MAX_LENGTH, Axis, Pool, integer
from . import integers
from .arguments import INTEGERS, Array, integer_row, pooled_array, switch, whole_numbers
from .sequences import philox, pooled_size, pooling_sequence

__all__ = [
    "FractionalAvgPool",
    "FractionalAvgPoolGrad",
    "FractionalAvgPoolOutput",
    "checked_ratios",
    "drawn_seeds",
    "fractional_avg_pool",
    "fractional_avg_pool_at",
    "tables",
]

DEFAULT_GLOBAL_SEED = 87654321
OP_SEEDS = 2**31 - 1
"""TensorFlow takes its global and its operations' seeds modulo this."""


class FractionalAvgPoolOutput(NamedTuple):
    """What the fractional forward pass returns: the averages and the sequences that were drawn for them."""

    output: Array
    row_pooling_sequence: Array
    col_pooling_sequence: Array


def FractionalAvgPool(
    value: Array,
    pooling_ratio: Any,
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> FractionalAvgPoolOutput:
    """Average pooling of an NHWC array between boundaries drawn at random.

    >>> import numpy as np
    >>> x = np.arange(15, dtype=np.float32).reshape(1, 3, 5, 1)
    >>> pooled = FractionalAvgPool(x, [1, 1.5, 2, 1], deterministic=True, seed=3, seed2=4)
    >>> pooled.row_pooling_sequence, pooled.col_pooling_sequence
    (array([0, 1, 3]), array([0, 2, 5]))
    >>> pooled.output.reshape(2, 2)
    array([[ 0.5,  3. ],
           [ 8. , 10.5]], dtype=float32)
    """
    x = pooled_array("value", value)
    ratios = checked_ratios(pooling_ratio, x.shape)
    pseudo_random, overlapping = switch("pseudo_random", pseudo_random), switch("overlapping", overlapping)
    numbers = philox(*drawn_seeds(switch("deterministic", deterministic), seed, seed2))
    sizes = x.shape[1:3]
    if max(sizes) > MAX_LENGTH:
        raise PoolGradValueError(f"value may have at most {MAX_LENGTH} rows and columns, got shape {x.shape}")
    cells = [pooled_size(n, ratio) for n, ratio in zip(sizes, ratios[1:3], strict=True)]
    check_fits("the result", (x.shape[0], *cells, x.shape[3]), x.dtype)
    rows, cols = (pooling_sequence(n, m, numbers, pseudo_random=pseudo_random) for n, m in zip(sizes, cells, strict=True))
    return FractionalAvgPoolOutput(fractional_avg_pool_at(x, rows, cols, overlapping), rows, cols)


def FractionalAvgPoolGrad(
    orig_input_tensor_shape: Any,
    out_backprop: Array,
    row_pooling_sequence: Any,
    col_pooling_sequence: Any,
    overlapping: bool = False,
    name: str | None = None,
) -> Array:
    """The gradient of `FractionalAvgPool` with respect to its input of shape `orig_input_tensor_shape`.

    >>> import numpy as np
    >>> grad = np.array([41 / 3, 26 / 3]).reshape(1, 1, 2, 1)
    >>> FractionalAvgPoolGrad([1, 1, 5, 1], grad, [0, 1], [0, 2, 4], overlapping=True).ravel() * 9
    array([41., 41., 67., 26., 26.])
    """
    dy = pooled_array("out_backprop", out_backprop)
    shape = integer_row("orig_input_tensor_shape", orig_input_tensor_shape, 4)
    if min(shape) < 1:
        raise PoolGradValueError(f"orig_input_tensor_shape must hold integers of at least 1, got {list(shape)}")
    if (dy.shape[0], dy.shape[3]) != (shape[0], shape[3]):
        raise PoolGradValueError(
            f"out_backprop must have batch {shape[0]} and channels {shape[3]} for orig_input_tensor_shape {list(shape)}, "
            f"got shape {dy.shape}"
        )
    check_fits("orig_input_tensor_shape", shape, dy.dtype)
    pool = tables(shape, dy.shape[1:3], row_pooling_sequence, col_pooling_sequence, switch("overlapping", overlapping))
    return integers.gradient(pool, dy) if dy.dtype in INTEGERS else core.gradient(pool, dy, layout="NHWC")


def fractional_avg_pool_at(
    value: Array, row_pooling_sequence: Any, col_pooling_sequence: Any, overlapping: bool = False
) -> Array:
    """The average at given boundaries: the forward pass of a drawn pair again, or the gradient of `FractionalAvgPoolGrad`.

    TensorFlow has no such op, so it cannot differentiate its fractional pooling twice.

    >>> import numpy as np
    >>> x = np.array([20, 5, 16, 3, 7]).reshape(1, 1, 5, 1)
    >>> fractional_avg_pool_at(x, [0, 1], [0, 2, 4], overlapping=True).ravel()
    array([13,  8])
    """
    x = pooled_array("value", value)
    pool = tables(x.shape, None, row_pooling_sequence, col_pooling_sequence, switch("overlapping", overlapping))
    check_fits("the result", (x.shape[0], *pool.output_size, x.shape[3]), x.dtype)
    return integers.forward(pool, x) if x.dtype in INTEGERS else core.forward(pool, x, layout="NHWC")


def fractional_avg_pool(
    value: Array,
    pooling_ratio: Any,
    pseudo_random: bool = False,
    overlapping: bool = False,
    seed: int = 0,
    name: str | None = None,
    *,
    global_seed: int | None = None,
) -> FractionalAvgPoolOutput:
    """`tf.nn.fractional_avg_pool`: one seed, 0 for a fresh one. `global_seed` is what `tf.random.set_seed` was given.

    >>> import numpy as np
    >>> x = np.zeros((1, 3, 5, 1), dtype=np.float32)
    >>> fractional_avg_pool(x, [1, 1.5, 2, 1], seed=9).row_pooling_sequence
    array([0, 1, 3])
    """
    given = _signed("seed", seed)
    if given == 0:
        return FractionalAvgPool(value, pooling_ratio, pseudo_random, overlapping)
    first = DEFAULT_GLOBAL_SEED if global_seed is None else _signed("global_seed", global_seed) % OP_SEEDS
    second = given % OP_SEEDS
    if (first, second) == (0, 0):  # which would ask for fresh seeds
        second = OP_SEEDS
    return FractionalAvgPool(value, pooling_ratio, pseudo_random, overlapping, True, first, second)


def checked_ratios(pooling_ratio: Any, shape: tuple[int, ...]) -> tuple[float, ...]:
    try:
        given = np.asarray(pooling_ratio)
    except ValueError:
        given = np.asarray(None)
    if given.dtype.kind not in "iuf":
        raise PoolGradTypeError(f"pooling_ratio must be a row of 4 numbers, got {pooling_ratio!r}")
    if given.shape != (4,):
        raise PoolGradValueError(f"pooling_ratio must be a row of exactly 4 numbers, got {pooling_ratio!r}")
    with np.errstate(over="ignore"):
        ratios = given.astype(np.float32)
    if not (ratios >= 1).all():
        raise PoolGradValueError(f"pooling_ratio must hold numbers of at least 1, got {pooling_ratio!r}")
    if (ratios[0], ratios[3]) != (1, 1):
        raise PoolGradValueError(f"pooling_ratio must be 1 for batch and channels, got {pooling_ratio!r}")
    for position in (1, 2):
        if ratios[position] > shape[position]:
            raise PoolGradValueError(
                f"pooling_ratio must be at most the size of its axis: value has shape {shape}, got {pooling_ratio!r}"
            )
    return tuple(ratios.tolist())


def drawn_seeds(deterministic: bool, seed: Any, seed2: Any) -> tuple[int, int]:
    """Zeros are fresh seeds: for every call, or with `deterministic` once for the process."""
    given = _signed("seed", seed), _signed("seed2", seed2)
    if not deterministic and given != (0, 0):
        raise PoolGradValueError(f"seed and seed2 must be 0 unless deterministic=True, got {given[0]} and {given[1]}")
    if given != (0, 0):
        return given
    return _process_seeds() if deterministic else _fresh_seeds()


def _signed(name: str, value: Any) -> int:
    return integer(name, value, -(2**63))


def _fresh_seeds() -> tuple[int, int]:
    first, second = (int.from_bytes(os.urandom(8), "little", signed=True) for _ in range(2))
    return first, second


@cache
def _process_seeds() -> tuple[int, int]:
    return _fresh_seeds()


def tables(shape: tuple[int, ...], cells: tuple[int, ...] | None, rows: Any, cols: Any, overlapping: bool) -> Pool:
    """The tables of two sequences; `cells` is how many cells are wanted of each, or None for all there are."""
    axes = []
    for position, (name, values) in enumerate((("row_pooling_sequence", rows), ("col_pooling_sequence", cols))):
        given = whole_numbers(name, values)
        wanted = given.size - 1 if cells is None else cells[position]
        axes.append(_axis(name, shape[1 + position], wanted, given.astype(np.int64).tobytes(), overlapping))
    return Pool(tuple(axes))


@lru_cache(maxsize=512)
def _axis(name: str, size: int, cells: int, values: bytes, overlapping: bool) -> Axis:
    """Entries beyond the last cell's end mean nothing, as in TensorFlow."""
    given = np.frombuffer(values, dtype=np.int64)
    if len(given) < max(cells, 1) + 1:
        raise PoolGradValueError(f"{name} must hold at least {max(cells, 1) + 1} integers, got {len(given)}: {given.tolist()}")
    edges = given[: cells + 1]
    if edges[0] < 0 or (np.diff(edges) < 0).any():
        raise PoolGradValueError(f"{name} must start at 0 or above and never decrease, got {edges.tolist()[:20]}")
    return Axis.fractional(size, edges, overlapping=overlapping, allow_empty=True)
