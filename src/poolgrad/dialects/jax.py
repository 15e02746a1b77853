"""JAX's average pooling on NumPy arrays: Flax's `avg_pool`, and a mean over the windows of `lax.reduce_window`.

`avg_pool` is channels last with any number of batch axes, or none. `window_average` says a window, a stride, a padding and
a dilation for every axis of the array, as `jax.lax.reduce_window` with `lax.add` does, and divides by the whole window, by
the inputs in it, or by a number. Strides default to 1 in both, and padding counts unless ``count_include_pad=False``.

>>> import numpy as np
>>> from poolgrad.dialects import jax
>>> x = np.arange(5, dtype=np.float32).reshape(1, 5, 1)
>>> jax.avg_pool(x, (2,), strides=(2,), padding="SAME")[0, :, 0]
array([0.5, 2.5, 2. ], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..arguments import as_sizes
from ..errors import PoolGradValueError
from ..geometry import integer, places
from .common import Array, Maker, called, choice, flag, forward, gradient, listed, shape_of
from .fit import Fit, Form, fit, place
from .pooling import NoTranslation, Pooling, Regular
from .tables import Tables, letters

__all__ = ["avg_pool", "avg_pool_grad", "read", "window_average", "window_average_grad", "write"]

Pads = str | Sequence[tuple[int, int]]
_RULES = {"VALID": "valid", "SAME": "same", "SAME_LOWER": "same_lower"}


def _pairs(padding: Any, sizes: Sequence[int], rows: Sequence[tuple[int, int, int]]) -> tuple[tuple[int, int], ...]:
    """Padding in numbers, one pair per axis; a row is the window, the stride and the dilation of an axis."""
    if isinstance(padding, str):
        rule = _RULES[choice("padding", padding.upper(), list(_RULES))]
        pairs = zip(sizes, rows, strict=True)  # an axis that is not pooled may be empty
        return tuple((0, 0) if k == s == 1 else places(n, k, s, rule, d, False)[:2] for n, (k, s, d) in pairs)
    if not isinstance(padding, Sequence) or len(padding) != len(sizes):
        raise PoolGradValueError(f"padding must be a name or {len(sizes)} (low, high) pairs, got {padding!r}")
    given = [listed(f"padding[{k}]", pair, 2, 0) for k, pair in enumerate(padding)]
    return tuple((low, high) for low, high in given)


def _layout(shape: tuple[int, ...], pooled: Sequence[bool]) -> str:
    """Letters for the axes: the first two that are not pooled are called N and C."""
    spare = [k for k, yes in enumerate(pooled) if not yes][:2]
    if len(shape) - len(spare) > 10:
        raise PoolGradValueError(f"at most 10 axes beside batch and channels are served, got shape {shape}")
    space = iter(letters(len(shape) - len(spare)))
    return "".join("NC"[spare.index(k)] if k in spare else next(space) for k in range(len(shape)))


def _windows(
    shape: tuple[int, ...], window: Any, stride: Any, padding: Any, dilation: Any, include: Any, divisor: Any
) -> Regular:
    rows = list(zip(window, stride, dilation, strict=True))
    pairs = _pairs(padding, shape, rows)
    pooled = [row[:2] != (1, 1) or pair != (0, 0) for row, pair in zip(rows, pairs, strict=True)]
    if not any(pooled):
        pooled = [False] * min(2, len(shape) - 1) + [True] * (len(shape) - min(2, len(shape) - 1))
    layout = _layout(shape, pooled)
    spatial = [k for k, letter in enumerate(layout) if letter not in "NC"]
    count = "window" if flag("count_include_pad", include) else "inside"
    if divisor is not None and integer("divisor", divisor, -(2**63) + 1) == 0:
        raise PoolGradValueError("divisor must not be 0")

    def chosen(column: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(column[k] for k in spatial)

    return Regular(layout, chosen(window), chosen(stride), chosen(pairs), chosen(dilation), count, divisor)


def _flax(
    shape: tuple[int, ...], window_shape: Any, strides: Any = None, padding: Any = "VALID", count_include_pad: Any = True
) -> Regular:
    if not isinstance(window_shape, Sequence) or not 1 <= len(window_shape) < len(shape):
        most = max(len(shape) - 1, 1)
        raise PoolGradValueError(
            f"window_shape must hold 1 to {most} integers for inputs of shape {shape} (channels last), got {window_shape!r}"
        )
    axes = len(window_shape)
    lead = len(shape) - axes - 1
    window = (1,) * lead + listed("window_shape", window_shape, axes, 1) + (1,)
    stride = (1,) * len(shape) if strides is None else (1,) * lead + listed("strides", strides, axes, 1) + (1,)
    ones = (1,) * len(shape)
    if not isinstance(padding, str):
        rows = list(zip(window, stride, ones, strict=True))[lead:-1]
        padding = [(0, 0)] * lead + list(_pairs(padding, shape[lead:-1], rows)) + [(0, 0)]
    return _windows(shape, window, stride, padding, ones, count_include_pad, None)


def _lax(
    shape: tuple[int, ...],
    window_dimensions: Any,
    window_strides: Any = None,
    padding: Any = "VALID",
    window_dilation: Any = None,
    count_include_pad: Any = True,
    divisor: Any = None,
) -> Regular:
    rank = len(shape)
    window = listed("window_dimensions", window_dimensions, rank, 1)
    stride = (1,) * rank if window_strides is None else listed("window_strides", window_strides, rank, 1)
    dilation = (1,) * rank if window_dilation is None else listed("window_dilation", window_dilation, rank, 1)
    return _windows(shape, window, stride, padding, dilation, count_include_pad, divisor)


_MAKERS: dict[str, Maker] = {"avg_pool": _flax, "window_average": _lax}


def avg_pool(
    inputs: Array,
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Pads = "VALID",
    count_include_pad: bool = True,
) -> Array:
    """`flax.linen.avg_pool`.

    >>> import numpy as np
    >>> avg_pool(np.array([[2.0], [4], [6]]), (2,), padding=((1, 0),))[:, 0]
    array([1., 3., 5.])
    """
    return forward("inputs", inputs, _flax, window_shape, strides, padding, count_include_pad)


def avg_pool_grad(
    dy: Array,
    input_shape: Sequence[int],
    window_shape: Sequence[int],
    strides: Sequence[int] | None = None,
    padding: Pads = "VALID",
    count_include_pad: bool = True,
) -> Array:
    """The gradient of `avg_pool`: what `jax.vjp` of Flax's function returns.

    >>> import numpy as np
    >>> avg_pool_grad(np.array([[2.0], [4]]), (3, 1), (2,))[:, 0]
    array([1., 3., 2.])
    """
    return gradient("dy", dy, shape_of("input_shape", input_shape), _flax, window_shape, strides, padding, count_include_pad)


def window_average(
    operand: Array,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: Pads = "VALID",
    window_dilation: Sequence[int] | None = None,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Array:
    """`lax.reduce_window(operand, 0, lax.add, …)` over what its windows hold, or over `divisor`: 1 gives the plain sum.

    >>> import numpy as np
    >>> window_average(np.array([1.0, 2, 3, 4, 5]), (2,), window_dilation=(3,))
    array([2.5, 3.5])
    """
    given = (window_dimensions, window_strides, padding, window_dilation, count_include_pad, divisor)
    return forward("operand", operand, _lax, *given)


def window_average_grad(
    dy: Array,
    input_shape: Sequence[int],
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | None = None,
    padding: Pads = "VALID",
    window_dilation: Sequence[int] | None = None,
    count_include_pad: bool = True,
    divisor: int | None = None,
) -> Array:
    """The gradient of `window_average`.

    >>> import numpy as np
    >>> window_average_grad(np.array([2.0, 4.0]), (5,), (2,), window_dilation=(3,))
    array([1., 2., 0., 1., 2.])
    """
    given = (window_dimensions, window_strides, padding, window_dilation, count_include_pad, divisor)
    return gradient("dy", dy, shape_of("input_shape", input_shape), _lax, *given)


def read(arguments: Mapping[str, Any], input_shape: Sequence[int]) -> Pooling:
    """What a call means; without `op`, `window_shape` tells Flax's function and `window_dimensions` the other.

    >>> read({"window_shape": (3,), "padding": "SAME"}, (1, 3, 1)).pool((1, 3, 1)).axes[0]
    Axis(size=3, cells=3): [0:2)/3 [0:3)/3 [1:3)/3
    """
    op = arguments.get("op", "window_average" if "window_dimensions" in arguments else "avg_pool")
    return called(_MAKERS, op, arguments, input_shape)


_FORMS = [Form("pairs", "window"), Form("pairs", "inside")]
_MORE_FORMS = [Form("pairs", count, dilation=True) for count in ("window", "inside", None)]


def write(pooling: Pooling, input_shape: Sequence[int]) -> dict[str, Any]:
    """The call that means the same, Flax's function if it can say it, or `NoTranslation`.

    >>> write(Regular("NHWC", (2, 2), (2, 1), ((0, 1), (0, 0))), (1, 5, 6, 3))
    {'op': 'avg_pool', 'window_shape': (2, 2), 'strides': (2, 1), 'padding': ((0, 1), (0, 0)), 'count_include_pad': False}
    """
    shape = as_sizes("input_shape", input_shape)
    pooled = [k for k, axis in enumerate(Tables.of(pooling, shape).axes) if axis is not None]
    if len(shape) > 1 and len(shape) - 1 not in pooled:
        first = min(pooled[:1] or [1], default=1)
        try:
            found = fit(place(pooling, shape, range(min(first, len(shape) - 2), len(shape) - 1), "Flax"), _FORMS, "Flax")
            if first > 1 and _padding(found)["padding"] != "VALID":
                # Flax itself takes pairs beside one batch axis only: the others get windows of 1.
                found = fit(place(pooling, shape, range(1, len(shape) - 1), "Flax"), _FORMS, "Flax")
            said = {"op": "avg_pool", "window_shape": found.window, "strides": found.stride}
            return {**said, **_padding(found)}
        except NoTranslation:
            pass
    found = fit(place(pooling, shape, range(len(shape)), "JAX"), _MORE_FORMS, "JAX")
    said = {"op": "window_average", "window_dimensions": found.window, "window_strides": found.stride}
    if max(found.dilation) > 1:
        said["window_dilation"] = found.dilation
    return {**said, **_padding(found)}


def _padding(found: Fit) -> dict[str, Any]:
    said: dict[str, Any] = {"padding": found.padding if any(map(any, found.padding)) else "VALID"}
    if found.form.count == "inside" and said["padding"] != "VALID":
        said["count_include_pad"] = False
    if found.divisor is not None:
        said["divisor"] = found.divisor
    return said
