"""AvgPool, AvgPool3D and their gradients on TensorFlow tensors, and average pooling with every option there is.

Names, arguments and defaults of the raw ops are TensorFlow's; what they mean and what is refused is that of
`poolgrad.raw_ops`. Inside a graph batch and channels may be unknown.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import tensorflow as tf

from ..arguments import Ints, Padding, regular
from ..arrays import check_fits
from ..dialects.tensorflow.ops import checked, windows
from ..errors import PoolGradValueError
from ..geometry import Axis, Pool, integer
from ..layout import default_layout, placed, spatial_positions
from .arguments import FLOATS, Shape, as_tensor, check_space, known_now, matched, shape_of, sizes_of
from .host import Tensor
from .linear import pooling

__all__ = ["AvgPool", "AvgPool3D", "AvgPool3DGrad", "AvgPoolGrad", "avg_pool"]

_unconverted = tf.autograph.experimental.do_not_convert


@_unconverted  # type: ignore[untyped-decorator]
def AvgPool(value: Tensor, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC", name: str | None = None) -> Tensor:
    """`tf.raw_ops.AvgPool`.

    >>> x = tf.reshape(tf.range(16.0), (1, 4, 4, 1))
    >>> AvgPool(value=x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID").numpy().ravel()
    array([ 2.5,  4.5, 10.5, 12.5], dtype=float32)
    """
    return _forward("value", value, 4, ksize, strides, padding, data_format, name or "AvgPool")


@_unconverted  # type: ignore[untyped-decorator]
def AvgPool3D(
    input: Tensor, ksize: Any, strides: Any, padding: str, data_format: str = "NDHWC", name: str | None = None
) -> Tensor:
    """`tf.raw_ops.AvgPool3D`, in every floating-point type.

    >>> x = tf.reshape(tf.range(8, dtype=tf.float64), (1, 2, 2, 2, 1))
    >>> AvgPool3D(input=x, ksize=[1, 2, 2, 1, 1], strides=[1, 2, 2, 1, 1], padding="VALID").numpy().ravel()
    array([3., 4.])
    """
    return _forward("input", input, 5, ksize, strides, padding, data_format, name or "AvgPool3D")


@_unconverted  # type: ignore[untyped-decorator]
def AvgPoolGrad(
    orig_input_shape: Any,
    grad: Tensor,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Tensor:
    """`tf.raw_ops.AvgPoolGrad`, with the divisor of the forward and in every layout.

    >>> grad = tf.reshape(tf.range(1.0, 5.0), (1, 2, 2, 1))
    >>> dx = AvgPoolGrad(orig_input_shape=[1, 3, 3, 1], grad=grad, ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="VALID")
    >>> dx.numpy().reshape(3, 3)
    array([[0.25, 0.75, 0.5 ],
           [1.  , 2.5 , 1.5 ],
           [0.75, 1.75, 1.  ]], dtype=float32)
    """
    return _gradient(orig_input_shape, grad, 4, ksize, strides, padding, data_format, name or "AvgPoolGrad")


@_unconverted  # type: ignore[untyped-decorator]
def AvgPool3DGrad(
    orig_input_shape: Any,
    grad: Tensor,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NDHWC",
    name: str | None = None,
) -> Tensor:
    """`tf.raw_ops.AvgPool3DGrad`, in every floating-point type.

    >>> grad = tf.constant(8.0, tf.float64, (1, 1, 1, 1, 1))
    >>> AvgPool3DGrad([1, 2, 2, 2, 1], grad, [1, 2, 2, 2, 1], [1, 2, 2, 2, 1], "VALID").numpy().ravel()
    array([1., 1., 1., 1., 1., 1., 1., 1.])
    """
    return _gradient(orig_input_shape, grad, 5, ksize, strides, padding, data_format, name or "AvgPool3DGrad")


@_unconverted  # type: ignore[untyped-decorator]
def avg_pool(
    x: Tensor,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    dilation: Ints = 1,
    count: str = "inside",
    divisor: int | None = None,
    ceil_mode: bool = False,
    layout: str | None = None,
    name: str | None = None,
) -> Tensor:
    """`poolgrad.avg_pool` of a tensor: explicit and asymmetric padding, dilation, every rule of counting, any layout.

    >>> x = tf.reshape(tf.range(5.0), (1, 5, 1))
    >>> avg_pool(x, 3, stride=2, padding=[(0, 2)], count="padded").numpy().ravel()
    array([1.       , 3.       , 1.3333334], dtype=float32)
    """
    x = as_tensor("x", x, FLOATS)
    shape = shape_of(x)
    layout = default_layout(len(shape)) if layout is None else layout
    check_space("x", shape, layout)
    spatial = spatial_positions(layout, len(shape))

    def check(cells: tuple[int, ...]) -> None:
        check_fits("the result", placed(tuple(n or 1 for n in shape), spatial, cells), np.dtype(np.uint8))

    sizes = tuple(n for p in spatial if (n := shape[p]) is not None)
    pool = regular(sizes, window, stride, padding, dilation, count, divisor, ceil_mode, check)
    with tf.name_scope(name or "avg_pool"):
        return pooling(pool, layout, True)(x)


def _forward(argument: str, value: Any, rank: int, *rest: Any) -> Tensor:
    *arguments, name = rest
    x = as_tensor(argument, value, FLOATS, rank)
    given = known_now("ksize and strides", lambda: checked(rank, *arguments))
    pool, _ = _plan(argument, shape_of(x), None, given)
    with tf.name_scope(name):
        return pooling(pool, given[3], True)(x)


def _gradient(shape: Any, grad: Any, rank: int, *rest: Any) -> Tensor:
    *arguments, name = rest
    dy = as_tensor("grad", grad, FLOATS, rank)
    given = known_now("ksize and strides", lambda: checked(rank, *arguments))
    sizes = sizes_of("orig_input_shape", shape, rank)
    pool, pooled = _plan("orig_input_shape", sizes, shape_of(dy), given)
    with tf.name_scope(name):
        return pooling(pool, given[3], False)(matched("orig_input_shape", shape, sizes, dy, pooled))


@lru_cache(maxsize=1024)
def _plan(name: str, shape: Shape, dy_shape: Shape | None, given: tuple[Any, ...]) -> tuple[Pool, Shape]:
    """The tables of a raw op and the shape of its output; everything is checked before a table is built."""
    layout = given[3]
    check_space(name, shape, layout)
    known = tuple(1 if n is None else integer(f"{name}[{k}]", n, 0) for k, n in enumerate(shape))
    said = windows(known, *given)
    spatial = spatial_positions(layout, len(shape))
    pooled = tuple(n if p in spatial else shape[p] for p, n in enumerate(said.pooled_shape))
    pairs = zip(dy_shape or pooled, pooled, strict=True)
    if any(None not in pair and pair[0] != pair[1] for pair in pairs):
        raise PoolGradValueError(
            f"grad must have shape {pooled} for orig_input_shape {shape}, ksize {list(given[0])}, strides {list(given[1])}, "
            f"padding {given[2]!r} and data_format {layout!r}, got {dy_shape}"
        )
    check_fits("the result", said.pooled_shape if dy_shape is None else known, np.dtype(np.uint8))
    cells = (said.pooled_shape[p] for p in spatial)
    rows = zip(said.sizes, cells, said.window, said.stride, strict=True)
    return Pool(tuple(_axis(n, m, k, s, said.padding.lower()) for n, m, k, s in rows)), pooled


def _axis(size: int, cells: int, window: int, stride: int, padding: str) -> Axis:
    nothing = np.zeros(0, np.int64)
    return Axis.regular(size, window, stride=stride, padding=padding) if cells else Axis(size, nothing, nothing, nothing)
