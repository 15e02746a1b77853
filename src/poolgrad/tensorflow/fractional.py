"""FractionalAvgPool and its gradient on TensorFlow tensors, and the forward at given sequences, which is its second gradient.

Sequences that are known while a graph is traced make tables then; others stay tensors, and the graph gathers by them.
Without `deterministic` a graph draws fresh sequences each time it runs. Integers are added in TensorFlow's own order.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..arrays import check_fits
from ..dialects.tensorflow import integers
from ..dialects.tensorflow.arguments import switch
from ..dialects.tensorflow.fractional import checked_ratios, drawn_seeds, tables
from ..dialects.tensorflow.sequences import philox, pooled_size, pooling_sequence
from ..errors import PoolGradValueError
from ..geometry import MAX_LENGTH
from . import compose
from .arguments import FLOATS, INTEGERS, Shape, as_tensor, check_space, known_now, matched, shape_of, sizes_of
from .host import Array, Tensor, is_host, tensor_of
from .linear import Map, linear, pooling
from .sequences import Cells, cells_of, draw, drawn_cells, sequence

__all__ = ["FractionalAvgPool", "FractionalAvgPoolGrad", "FractionalAvgPoolOutput", "fractional_avg_pool_at"]

NAMES = ("row_pooling_sequence", "col_pooling_sequence")

_unconverted = tf.autograph.experimental.do_not_convert


class FractionalAvgPoolOutput(NamedTuple):
    """What the fractional forward pass returns: the averages and the sequences that were drawn for them."""

    output: Tensor
    row_pooling_sequence: Tensor
    col_pooling_sequence: Tensor


@_unconverted  # type: ignore[untyped-decorator]
def FractionalAvgPool(
    value: Tensor,
    pooling_ratio: Any,
    pseudo_random: bool = False,
    overlapping: bool = False,
    deterministic: bool = False,
    seed: int = 0,
    seed2: int = 0,
    name: str | None = None,
) -> FractionalAvgPoolOutput:
    """`tf.raw_ops.FractionalAvgPool`, in graphs and XLA too; with the same seeds the same sequences.

    >>> x = tf.reshape(tf.range(15.0), (1, 3, 5, 1))
    >>> pooled = FractionalAvgPool(x, [1, 1.5, 2, 1], deterministic=True, seed=3, seed2=4)
    >>> pooled.row_pooling_sequence.numpy(), pooled.col_pooling_sequence.numpy()
    (array([0, 1, 3]), array([0, 2, 5]))
    >>> pooled.output.numpy().reshape(2, 2)
    array([[ 0.5,  3. ],
           [ 8. , 10.5]], dtype=float32)
    """
    x = _value(value)
    shape = tuple(1 if n is None else n for n in shape_of(x))
    ratios = known_now("pooling_ratio", lambda: checked_ratios(pooling_ratio, shape))
    pseudo_random, overlapping = switch("pseudo_random", pseudo_random), switch("overlapping", overlapping)
    deterministic = switch("deterministic", deterministic)
    seeds = drawn_seeds(deterministic, seed, seed2)
    if max(shape[1:3]) > MAX_LENGTH:
        raise PoolGradValueError(f"value may have at most {MAX_LENGTH} rows and columns, got shape {shape}")
    axes = [(n, pooled_size(n, ratio)) for n, ratio in zip(shape[1:3], ratios[1:3], strict=True)]
    check_fits("the result", (shape[0], *(m for _, m in axes), shape[3]), np.dtype(x.dtype.as_numpy_dtype))
    with tf.name_scope(name or "FractionalAvgPool"):
        if deterministic or is_host(x):
            numbers = philox(*seeds)
            known = [pooling_sequence(n, m, numbers, pseudo_random=pseudo_random) for n, m in axes]
            output = fractional_map(shape, None, known, overlapping, x.dtype, "NHWC", True)(x)
            return FractionalAvgPoolOutput(output, *map(tf.constant, known))
        fresh = tf.random.uniform((2, 2), maxval=2**31 - 1, dtype=tf.int32)
        rows = [draw(n, m, pseudo_random, fresh[k]) for k, (n, m) in enumerate(axes)]
        cells = [drawn_cells(n, row, overlapping) for (n, _), row in zip(axes, rows, strict=True)]
        return FractionalAvgPoolOutput(cells_map(cells, x.dtype, (1, 2), True)(x), *rows)


@_unconverted  # type: ignore[untyped-decorator]
def FractionalAvgPoolGrad(
    orig_input_tensor_shape: Any,
    out_backprop: Tensor,
    row_pooling_sequence: Any,
    col_pooling_sequence: Any,
    overlapping: bool = False,
    name: str | None = None,
) -> Tensor:
    """`tf.raw_ops.FractionalAvgPoolGrad`, with a gradient of its own.

    >>> grad = tf.constant([[[[41 / 3], [26 / 3]]]], tf.float64)
    >>> FractionalAvgPoolGrad([1, 1, 5, 1], grad, [0, 1], [0, 2, 4], overlapping=True).numpy().ravel() * 9
    array([41., 41., 67., 26., 26.])
    """
    dy = as_tensor("out_backprop", out_backprop, FLOATS + INTEGERS, 4)
    sizes = sizes_of("orig_input_tensor_shape", orig_input_tensor_shape, 4)
    shape, cells = _agreed(sizes, shape_of(dy), np.dtype(dy.dtype.as_numpy_dtype))
    rows = [sequence(n, values) for n, values in zip(NAMES, (row_pooling_sequence, col_pooling_sequence), strict=True)]
    with tf.name_scope(name or "FractionalAvgPoolGrad"):
        dy = matched("orig_input_tensor_shape", orig_input_tensor_shape, sizes, dy, (sizes[0], *cells, sizes[3]))
        return fractional_map(shape, cells, rows, switch("overlapping", overlapping), dy.dtype, "NHWC", False)(dy)


@_unconverted  # type: ignore[untyped-decorator]
def fractional_avg_pool_at(
    value: Tensor, row_pooling_sequence: Any, col_pooling_sequence: Any, overlapping: bool = False, name: str | None = None
) -> Tensor:
    """The average at given sequences: what the gradient of `FractionalAvgPoolGrad` is made of, and TensorFlow lacks.

    >>> x = tf.reshape(tf.constant([20, 5, 16, 3, 7]), (1, 1, 5, 1))
    >>> fractional_avg_pool_at(x, [0, 1], [0, 2, 4], overlapping=True).numpy().ravel()
    array([13,  8], dtype=int32)
    """
    x = _value(value)
    shape = tuple(1 if n is None else n for n in shape_of(x))
    rows = [sequence(n, values) for n, values in zip(NAMES, (row_pooling_sequence, col_pooling_sequence), strict=True)]
    check_fits("the result", (shape[0], *(max(r.shape[0] - 1, 1) for r in rows), shape[3]), np.dtype(x.dtype.as_numpy_dtype))
    with tf.name_scope(name or "fractional_avg_pool_at"):
        return fractional_map(shape, None, rows, switch("overlapping", overlapping), x.dtype, "NHWC", True)(x)


def _value(value: Any) -> Tensor:
    x = as_tensor("value", value, FLOATS + INTEGERS, 4)
    check_space("value", shape_of(x), "NHWC")
    if 0 in shape_of(x):
        raise PoolGradValueError(f"value must have no empty axis, got shape {shape_of(x)}")
    return x


def _agreed(sizes: Shape, dy_shape: Shape, dtype: np.dtype[Any]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The input's shape (1 where a graph does not know it) and the numbers of cells, if they agree."""
    check_space("orig_input_tensor_shape", sizes, "NHWC")
    check_space("out_backprop", dy_shape, "NHWC")
    shape = tuple(1 if n is None else n for n in sizes)
    if min(shape) < 1:
        raise PoolGradValueError(f"orig_input_tensor_shape must hold integers of at least 1, got {list(sizes)}")
    if 0 in dy_shape:
        raise PoolGradValueError(f"out_backprop must have no empty axis, got shape {dy_shape}")
    if any(None not in (dy_shape[p], sizes[p]) and dy_shape[p] != sizes[p] for p in (0, 3)):
        raise PoolGradValueError(
            f"out_backprop must have batch {sizes[0]} and channels {sizes[3]} for orig_input_tensor_shape {list(sizes)}, "
            f"got shape {dy_shape}"
        )
    check_fits("orig_input_tensor_shape", shape, dtype)
    return shape, tuple(n for n in dy_shape[1:3] if n is not None)


def fractional_map(
    shape: tuple[int, ...],
    cells: tuple[int, ...] | None,
    rows: list[Array | Tensor],
    overlapping: bool,
    dtype: Any,
    layout: str,
    forwards: bool,
) -> Map:
    """The pooling between two sequences, or its gradient; `shape` is the input's as NHWC, `cells` how many are wanted."""
    spatial = (1, 2) if layout == "NHWC" else (2, 3)
    if any(isinstance(row, tf.Tensor) for row in rows):
        wanted = cells or (None, None)
        named = zip(NAMES, shape[1:3], wanted, rows, strict=True)
        return cells_map([cells_of(name, n, m, row, overlapping) for name, n, m, row in named], dtype, spatial, forwards)
    pool = tables(shape, cells, rows[0], rows[1], overlapping)
    if dtype in FLOATS:
        return pooling(pool, layout, forwards)

    def on_integers(source: Tensor) -> Tensor:
        if is_host(source):
            return tensor_of((integers.forward if forwards else integers.gradient)(pool, np.asarray(source)))
        edges = [(a.size, tf.constant(a.start, tf.int32), tf.constant(a.stop, tf.int32), a.cells) for a in pool.axes]
        return compose.integers_at([Cells(n, start, stop, n, m) for n, start, stop, m in edges], forwards, source)

    return on_integers


def cells_map(cells: list[Cells], dtype: Any, spatial: tuple[int, ...], forwards: bool) -> Map:
    """The same for cells that the graph computes."""
    if dtype in INTEGERS:
        return lambda source: compose.integers_at(cells, forwards, source)

    def run(source: Tensor) -> Tensor:
        return compose.pooled_at(cells, spatial, forwards, source)

    return linear(run, lambda: cells_map(cells, dtype, spatial, not forwards))
