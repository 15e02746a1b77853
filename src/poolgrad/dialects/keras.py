"""Keras 3's average pooling on NumPy arrays, as `keras.ops` and its global pooling layers say it.

`data_format` is ``"channels_last"`` (the default) or ``"channels_first"``; padding is ``"valid"`` or ``"same"`` and never
counted. Any number of spatial axes where Keras has one to three.

>>> import numpy as np
>>> from poolgrad.dialects import keras
>>> x = np.arange(5, dtype=np.float32).reshape(1, 5, 1)
>>> keras.average_pool(x, 2, padding="same")[0, :, 0]
array([0.5, 2.5, 4. ], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..arguments import as_sizes
from ..arrays import check_source
from ..errors import PoolGradValueError
from ..geometry import places
from .common import Array, Maker, called, choice, flag, forward, gradient, per_axis, shape_of
from .fit import Form, fit, is_adaptive, place
from .pooling import Adaptive, NoTranslation, Pooling, Regular
from .tables import Tables, letters

__all__ = [
    "adaptive_average_pool",
    "adaptive_average_pool_grad",
    "average_pool",
    "average_pool_grad",
    "global_average_pool",
    "global_average_pool_grad",
    "read",
    "write",
]

Ints = int | Sequence[int]
_FORMATS = ("channels_last", "channels_first")


def _layout(shape: tuple[int, ...], data_format: Any) -> str:
    if not 3 <= len(shape) <= 12:
        raise PoolGradValueError(f"inputs must have a batch, channels and 1 to 10 spatial axes, got shape {shape}")
    space = letters(len(shape) - 2)
    chosen = "channels_last" if data_format is None else choice("data_format", data_format, _FORMATS)
    return f"N{space}C" if chosen == "channels_last" else f"NC{space}"


def _sizes(shape: tuple[int, ...], layout: str) -> tuple[int, ...]:
    return shape[1:-1] if layout.endswith("C") else shape[2:]


def _average(
    shape: tuple[int, ...], pool_size: Any, strides: Any = None, padding: Any = "valid", data_format: Any = None
) -> Regular:
    layout, axes = _layout(shape, data_format), len(shape) - 2
    window = per_axis("pool_size", pool_size, axes, 1)
    stride = window if strides is None else per_axis("strides", strides, axes, 1)
    rule = choice("padding", padding, ("valid", "same"))
    rows = zip(_sizes(shape, layout), window, stride, strict=True)
    return Regular(layout, window, stride, tuple(places(n, k, s, rule, 1, False)[:2] for n, k, s in rows))


def _adaptive(shape: tuple[int, ...], output_size: Any, data_format: Any = None) -> Adaptive:
    return Adaptive(_layout(shape, data_format), per_axis("output_size", output_size, len(shape) - 2, 1))


def _whole(shape: tuple[int, ...], data_format: Any = None, keepdims: Any = False) -> Adaptive:
    return Adaptive(_layout(shape, data_format), (1,) * (len(shape) - 2))


_MAKERS: dict[str, Maker] = {"average_pool": _average, "adaptive_average_pool": _adaptive, "global_average_pool": _whole}


def average_pool(
    inputs: Array, pool_size: Ints, strides: Ints | None = None, padding: str = "valid", data_format: str | None = None
) -> Array:
    """`keras.ops.average_pool`, and what the layers AveragePooling1D, 2D and 3D compute.

    >>> import numpy as np
    >>> average_pool(np.array([[[1.0, 2, 3, 4]]]), 2, strides=1, data_format="channels_first")
    array([[[1.5, 2.5, 3.5]]])
    """
    return forward("inputs", inputs, _average, pool_size, strides, padding, data_format)


def average_pool_grad(
    dy: Array,
    input_shape: Sequence[int],
    pool_size: Ints,
    strides: Ints | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> Array:
    """The gradient of `average_pool` with respect to its inputs of shape `input_shape`.

    >>> import numpy as np
    >>> average_pool_grad(np.array([[[2.0, 4, 6]]]), (1, 1, 4), 2, 1, data_format="channels_first")
    array([[[1., 3., 5., 3.]]])
    """
    return gradient("dy", dy, shape_of("input_shape", input_shape), _average, pool_size, strides, padding, data_format)


def adaptive_average_pool(inputs: Array, output_size: Ints, data_format: str | None = None) -> Array:
    """`keras.ops.adaptive_average_pool`.

    >>> import numpy as np
    >>> adaptive_average_pool(np.array([[[1.0], [2], [3], [4], [5]]]), 2)[0, :, 0]
    array([2., 4.])
    """
    return forward("inputs", inputs, _adaptive, output_size, data_format)


def adaptive_average_pool_grad(dy: Array, input_shape: Sequence[int], output_size: Ints, data_format: str | None = None) -> Array:
    """The gradient of `adaptive_average_pool`."""
    return gradient("dy", dy, shape_of("input_shape", input_shape), _adaptive, output_size, data_format)


def global_average_pool(inputs: Array, data_format: str | None = None, keepdims: bool = False) -> Array:
    """What the layers GlobalAveragePooling1D, 2D and 3D compute: (N, C), or with `keepdims` spatial axes of length 1.

    >>> import numpy as np
    >>> global_average_pool(np.array([[[1.0, 10], [3, 30]]]))
    array([[ 2., 20.]])
    """
    pooled = forward("inputs", inputs, _whole, data_format)
    if flag("keepdims", keepdims):
        return pooled
    return pooled.reshape(_batch_and_channels(pooled.shape, data_format))


def _batch_and_channels(shape: tuple[int, ...], data_format: Any) -> tuple[int, int]:
    return shape[0], shape[_layout(shape, data_format).index("C")]


def global_average_pool_grad(
    dy: Array, input_shape: Sequence[int], data_format: str | None = None, keepdims: bool = False
) -> Array:
    """The gradient of `global_average_pool`; `dy` has the shape of its result.

    >>> import numpy as np
    >>> global_average_pool_grad(np.array([[4.0, 6.0]]), (1, 2, 2))
    array([[[2., 3.],
            [2., 3.]]])
    """
    shape, dy = shape_of("input_shape", input_shape), check_source("dy", dy)
    if not flag("keepdims", keepdims):
        flat, layout = _batch_and_channels(shape, data_format), _layout(shape, data_format)
        if dy.shape != flat:
            raise PoolGradValueError(f"dy must have shape {flat} for input_shape {shape} without keepdims, got {dy.shape}")
        dy = dy.reshape([n if letter in "NC" else 1 for letter, n in zip(layout, shape, strict=True)])
    return gradient("dy", dy, shape, _whole, data_format)


def read(arguments: Mapping[str, Any], input_shape: Sequence[int]) -> Pooling:
    """What a call means; without `op`, `pool_size` or `output_size` tells which one it is.

    >>> read({"pool_size": 3, "strides": 2, "padding": "same"}, (1, 8, 1)).pool((1, 8, 1)).axes[0]
    Axis(size=8, cells=4): [0:3)/3 [2:5)/3 [4:7)/3 [6:8)/2
    """
    named = {"pool_size": "average_pool", "output_size": "adaptive_average_pool"}
    op = arguments.get("op", next((named[name] for name in arguments if name in named), "global_average_pool"))
    return called(_MAKERS, op, arguments, input_shape)


def write(pooling: Pooling, input_shape: Sequence[int]) -> dict[str, Any]:
    """The Keras call that means the same, or `NoTranslation`.

    >>> write(Regular("NHWC", (2, 3), (2, 3), ((0, 1), (0, 0))), (1, 5, 6, 3))
    {'op': 'average_pool', 'pool_size': (2, 3), 'strides': (2, 3), 'padding': 'same', 'data_format': 'channels_last'}
    """
    shape = as_sizes("input_shape", input_shape)
    if not 3 <= len(shape) <= 5:
        raise NoTranslation(f"Keras pools 1 to 3 axes beside a batch and channels; the array has shape {shape}")
    tables = Tables.of(pooling, shape)
    first = tables.axes[1] is None and tables.axes[-1] is not None
    positions = range(2, len(shape)) if first else range(1, len(shape) - 1)
    data_format = "channels_first" if first else "channels_last"
    placed = place(pooling, shape, positions, "Keras")
    cells = tuple(axis.cells for axis in placed.axes)
    adaptive = {"op": "adaptive_average_pool", "output_size": cells, "data_format": data_format}
    if isinstance(pooling, Adaptive) and 0 not in cells:
        return adaptive
    try:
        found = fit(placed, [Form("valid", "inside"), Form("same", "inside")], "Keras")
    except NoTranslation:
        if is_adaptive(placed) and 0 not in cells:
            return adaptive
        raise
    return {
        "op": "average_pool",
        "pool_size": found.window,
        "strides": found.stride,
        "padding": found.form.padding,
        "data_format": data_format,
    }
