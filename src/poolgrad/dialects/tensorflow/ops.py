"""AvgPool, AvgPool3D and their gradients: TensorFlow's names, arguments and defaults.

    SAME   ceil(n / s) cells; the padding max(0, (cells - 1)·s + k - n) is split in two, the odd one after
    VALID  (n - k + s) / s cells, truncated toward zero: none where n < k < n + 2·s, an error beyond

A window divides by its cells within the input. The shapes of the arrays must agree; every dtype is served in every
layout; sums are made in float32 or wider and rounded once (docs/numeric-contract.md).
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from ... import ops as core
from ...arrays import check_fits
from ...errors import PoolGradValueError
from ...geometry import Axis, Pool, integer
from ...layout import spatial_positions
from .arguments import Array, float_array, integer_row, one_of

__all__ = ["AvgPool", "AvgPool3D", "AvgPool3DGrad", "AvgPoolGrad", "Windows", "checked", "windows"]

LAYOUTS = {4: ("NHWC", "NCHW"), 5: ("NDHWC", "NCDHW")}
PADDINGS = ("SAME", "VALID")

Row = tuple[int, ...]


def AvgPool(value: Array, ksize: Any, strides: Any, padding: str, data_format: str = "NHWC", name: str | None = None) -> Array:
    """Average pooling of a 4-D array.

    >>> import numpy as np
    >>> x = np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1)
    >>> AvgPool(x, ksize=[1, 2, 2, 1], strides=[1, 2, 2, 1], padding="VALID").ravel()
    array([ 2.5,  4.5, 10.5, 12.5], dtype=float32)
    """
    return _forward("value", value, 4, ksize, strides, padding, data_format)


def AvgPool3D(input: Array, ksize: Any, strides: Any, padding: str, data_format: str = "NDHWC", name: str | None = None) -> Array:
    """Average pooling of a 5-D array.

    >>> import numpy as np
    >>> x = np.arange(8, dtype=np.float64).reshape(1, 2, 2, 2, 1)
    >>> AvgPool3D(x, ksize=[1, 2, 2, 1, 1], strides=[1, 2, 2, 1, 1], padding="VALID").ravel()
    array([3., 4.])
    """
    return _forward("input", input, 5, ksize, strides, padding, data_format)


def AvgPoolGrad(
    orig_input_shape: Any,
    grad: Array,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NHWC",
    name: str | None = None,
) -> Array:
    """The gradient of `AvgPool` with respect to its input of shape `orig_input_shape`.

    >>> import numpy as np
    >>> grad = np.array([1, 2, 3, 4], dtype=np.float32).reshape(1, 2, 2, 1)
    >>> AvgPoolGrad([1, 3, 3, 1], grad, ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="VALID").reshape(3, 3)
    array([[0.25, 0.75, 0.5 ],
           [1.  , 2.5 , 1.5 ],
           [0.75, 1.75, 1.  ]], dtype=float32)
    """
    return _gradient(orig_input_shape, grad, 4, ksize, strides, padding, data_format)


def AvgPool3DGrad(
    orig_input_shape: Any,
    grad: Array,
    ksize: Any,
    strides: Any,
    padding: str,
    data_format: str = "NDHWC",
    name: str | None = None,
) -> Array:
    """The gradient of `AvgPool3D` with respect to its input of shape `orig_input_shape`.

    >>> import numpy as np
    >>> grad = np.array([8.0]).reshape(1, 1, 1, 1, 1)
    >>> AvgPool3DGrad([1, 2, 2, 2, 1], grad, [1, 2, 2, 2, 1], [1, 2, 2, 2, 1], "VALID").ravel()
    array([1., 1., 1., 1., 1., 1., 1., 1.])
    """
    return _gradient(orig_input_shape, grad, 5, ksize, strides, padding, data_format)


class Windows(NamedTuple):
    """The windows of a regular op along its spatial axes, in logical order, on an input of the full shape `shape`."""

    shape: Row
    window: Row
    stride: Row
    padding: str
    layout: str

    @property
    def sizes(self) -> Row:
        return tuple(self.shape[p] for p in spatial_positions(self.layout, len(self.shape)))

    @property
    def pooled_shape(self) -> Row:
        """The full shape of the output."""
        shape = list(self.shape)
        rows = zip(spatial_positions(self.layout, len(shape)), self.sizes, self.window, self.stride, strict=True)
        for position, n, k, s in rows:
            shape[position] = -(-n // s) if self.padding == "SAME" else max(n - k + s, 0) // s
            if self.padding == "VALID" and k >= n + 2 * s:
                raise PoolGradValueError(
                    f"ksize {k} with stride {s} and padding 'VALID' needs an input of at least {k - 2 * s + 1} along axis "
                    f"{position}, got {n}; use padding='SAME' or a smaller window"
                )
        return tuple(shape)

    def pool(self) -> Pool:
        rows = zip(self.sizes, self.window, self.stride, strict=True)
        return Pool(tuple(Axis.regular(n, k, stride=s, padding=self.padding.lower()) for n, k, s in rows))


def checked(rank: int, ksize: Any, strides: Any, padding: Any, data_format: Any) -> tuple[Row, Row, str, str]:
    """A regular op's arguments as hashable values of the right kinds."""
    kernel, steps = integer_row("ksize", ksize, rank), integer_row("strides", strides, rank)
    return kernel, steps, one_of("padding", padding, PADDINGS), one_of("data_format", data_format, LAYOUTS[rank])


def windows(shape: Row, kernel: Row, steps: Row, padding: str, data_format: str) -> Windows:
    """The windows that the `checked` arguments speak of, or a refusal."""
    rank = len(shape)
    for name, row in (("ksize", kernel), ("strides", steps)):
        if min(row) < 1 or max(row) > 2**31 - 1:
            raise PoolGradValueError(f"{name} must hold integers from 1 to {2**31 - 1}, got {list(row)}")
    spatial = spatial_positions(data_format, rank)
    channels = data_format.index("C")
    # The 2-D kernel of TensorFlow looks at the channels' window alone: their stride means nothing where it is 1.
    if (kernel[0], kernel[channels], steps[0]) != (1, 1, 1) or (rank == 5 and steps[channels] != 1):
        raise PoolGradValueError(
            f"pooling over batch or channels is not offered: ksize and strides must be 1 along axes 0 and {channels} of "
            f"{data_format}, got ksize={list(kernel)}, strides={list(steps)}"
        )
    return Windows(shape, tuple(kernel[p] for p in spatial), tuple(steps[p] for p in spatial), padding, data_format)


def _forward(name: str, array: Any, rank: int, *arguments: Any) -> Array:
    x = float_array(name, array, rank)
    given = checked(rank, *arguments)
    plan = _plan(x.shape, None, *given)
    if plan.pool is None:
        return np.zeros(plan.result_shape, dtype=x.dtype)
    return core.forward(plan.pool, x, layout=given[3])


def _gradient(shape: Any, grad: Any, rank: int, *arguments: Any) -> Array:
    dy = float_array("grad", grad, rank)
    given = checked(rank, *arguments)
    plan = _plan(integer_row("orig_input_shape", shape, rank), dy.shape, *given)
    if plan.pool is None:
        check_fits("orig_input_shape", plan.result_shape, dy.dtype)
        return np.zeros(plan.result_shape, dtype=dy.dtype)
    return core.gradient(plan.pool, dy, layout=given[3])


class _Plan(NamedTuple):
    """A pooling whose arguments and shapes have been checked; no tables where the result needs no sum."""

    pool: Pool | None
    result_shape: Row


@lru_cache(maxsize=1024)
def _plan(shape: Row, dy_shape: Row | None, ksize: Row, strides: Row, padding: str, data_format: str) -> _Plan:
    """Everything is checked before a table is built; `dy_shape` is None for the forward pass."""
    shape = tuple(integer(f"orig_input_shape[{k}]", n, 0) for k, n in enumerate(shape))
    plan = windows(shape, ksize, strides, padding, data_format)
    pooled = plan.pooled_shape
    if dy_shape is not None and dy_shape != pooled:
        raise PoolGradValueError(
            f"grad must have shape {pooled} for orig_input_shape {shape}, ksize {list(ksize)}, strides {list(strides)}, "
            f"padding {padding!r} and data_format {data_format!r}, got {dy_shape}"
        )
    result = pooled if dy_shape is None else shape
    if prod(n or 1 for n in result) > 2**59:  # NumPy's own limit, for empty arrays too
        raise PoolGradValueError(f"orig_input_shape {shape} is beyond 64-bit addressing")
    check_fits("the result", result, np.dtype(np.uint8))
    return _Plan(None if 0 in shape or 0 in pooled else plan.pool(), result)
