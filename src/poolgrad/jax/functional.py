"""The functions of `poolgrad` on JAX arrays, traced or not.

Sizes of spatial axes must be numbers, for tables are made of them; batch and channels may be symbolic. There is no `out`, no
`accumulate` and no `num_threads`: JAX's arrays are never written to, and the result depends on no thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.export import is_symbolic_dim

from ..arguments import Ints, Padding, adaptive, fractional, regular
from ..arrays import DTYPES
from ..errors import PoolGradTypeError, PoolGradValueError
from ..geometry import Pool
from ..layout import default_layout, spatial_positions
from ..ops import _forward_call, _gradient_call, _kept
from .primitive import linear

__all__ = [
    "adaptive_avg_pool",
    "adaptive_avg_pool_grad",
    "avg_pool",
    "avg_pool_grad",
    "fractional_avg_pool",
    "fractional_avg_pool_grad",
]

Shape = tuple[Any, ...]
WINDOWS = "what describes the windows (window, stride, padding, dilation, count, divisor, ceil_mode)"


def _array(name: str, array: Any) -> Any:
    """`array` as JAX has it, or a refusal; nothing is converted to another dtype in silence."""
    if not isinstance(array, (jax.Array, np.ndarray)):
        kind = f"{type(array).__module__}.{type(array).__qualname__}"
        raise PoolGradTypeError(f"{name} must be a JAX or NumPy array, got {kind}; use jax.numpy.asarray")
    if array.dtype not in DTYPES:
        raise PoolGradTypeError(f"{name} must have dtype {', '.join(DTYPES.values())}, got {array.dtype}")
    if array.dtype == np.float64 and not jax.config.jax_enable_x64:
        raise PoolGradTypeError(
            f"{name} is float64, which JAX would make float32: call jax.config.update('jax_enable_x64', True), or convert it"
        )
    return array if isinstance(array, jax.Array) else jnp.asarray(array)


def _static(name: str, value: Any) -> Any:
    """An argument that shapes depend on: never traced; arrays and numbers of JAX become NumPy's."""

    def known(leaf: Any) -> Any:
        if isinstance(leaf, jax.core.Tracer):
            raise PoolGradTypeError(f"{name} must be known when the program is made, got {leaf}; make it static for jit")
        return np.asarray(leaf)[()] if isinstance(leaf, jax.Array) else leaf

    return jax.tree.map(known, value, is_leaf=lambda leaf: leaf is None)


def _spatial(layout: str | None, rank: int) -> tuple[int, ...]:
    return spatial_positions(default_layout(rank) if layout is None else layout, rank)


def _numbers(name: str, shape: Shape, layout: str | None) -> tuple[int, ...]:
    """`shape` with 1 for symbolic sizes, which only batch and channels may have."""
    spatial = _spatial(layout, len(shape)) if any(map(is_symbolic_dim, shape)) else ()
    for position in spatial:
        if is_symbolic_dim(shape[position]):
            raise PoolGradTypeError(
                f"{name} must have known sizes along its spatial axes {spatial}, got shape {shape}; "
                "only batch and channels may be symbolic"
            )
    return tuple(1 if is_symbolic_dim(n) else n for n in shape)


def _forward(x: Any, layout: str | None, make: Callable[..., Pool], *given: Any) -> Any:
    x = _array("x", x)
    shape = _numbers("x", x.shape, layout)
    key = ("jax forward", make, shape, layout, given)
    call = _kept(key, given, lambda: _forward_call(x, shape, layout, lambda sizes, check: make(sizes, *given, check)))
    return linear(x, call.pool, call.spatial, True)


def _gradient(dy: Any, input_shape: Any, layout: str | None, make: Callable[..., Pool], *given: Any) -> Any:
    dy, input_shape = _array("dy", dy), _static("input_shape", input_shape)
    shape, whole = _numbers("dy", dy.shape, layout), input_shape
    if isinstance(whole, (tuple, list)) and any(map(is_symbolic_dim, (*whole, *dy.shape))):
        whole = _numbers("input_shape", tuple(input_shape), layout)
        spatial = _spatial(layout, len(shape))
        if len(whole) == len(shape) and any(dy.shape[k] != input_shape[k] for k in range(len(shape)) if k not in spatial):
            raise PoolGradValueError(f"input_shape {tuple(input_shape)} and dy {dy.shape} must have the same batch and channels")
    key = ("jax gradient", make, shape, whole, layout, given)
    call = _kept(key, (*given, whole), lambda: _gradient_call(
        dy, shape, whole, layout, lambda sizes, check: make(sizes, *given, check)))
    return linear(dy, call.pool, call.spatial, False)


def avg_pool(
    x: Any,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    dilation: Ints = 1,
    count: str = "inside",
    divisor: int | None = None,
    ceil_mode: bool = False,
    layout: str | None = None,
) -> Any:
    """Average pooling; the arguments are those of `poolgrad.avg_pool`.

    >>> avg_pool(jnp.arange(9.0).reshape(3, 3), 2, stride=1, layout="HW")
    Array([[2., 3.],
           [5., 6.]], dtype=float32)
    """
    given = _static(WINDOWS, (window, stride, padding, dilation, count, divisor, ceil_mode))
    return _forward(x, layout, regular, *given)


def avg_pool_grad(
    dy: Any,
    input_shape: Sequence[int],
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    dilation: Ints = 1,
    count: str = "inside",
    divisor: int | None = None,
    ceil_mode: bool = False,
    layout: str | None = None,
) -> Any:
    """The gradient of `avg_pool` with respect to its input of shape `input_shape`, given the gradient `dy` of its output.

    >>> avg_pool_grad(jnp.array([[1.0, 2], [3, 4]]), (3, 3), 2, stride=1, layout="HW")
    Array([[0.25, 0.75, 0.5 ],
           [1.  , 2.5 , 1.5 ],
           [0.75, 1.75, 1.  ]], dtype=float32)
    """
    given = _static(WINDOWS, (window, stride, padding, dilation, count, divisor, ceil_mode))
    return _gradient(dy, input_shape, layout, regular, *given)


def adaptive_avg_pool(x: Any, output_size: int | Sequence[int | None], *, layout: str | None = None) -> Any:
    """Average pooling to a given output size; 1 is global pooling, None keeps an axis as it is.

    >>> adaptive_avg_pool(jnp.array([1.0, 2, 3, 4, 5]), 2, layout="L")
    Array([2., 4.], dtype=float32)
    """
    return _forward(x, layout, adaptive, _static("output_size", output_size))


def adaptive_avg_pool_grad(dy: Any, input_shape: Sequence[int], *, layout: str | None = None) -> Any:
    """The gradient of `adaptive_avg_pool`; the output size is that of `dy`.

    >>> adaptive_avg_pool_grad(jnp.array([3.0, 6.0]), (5,), layout="L")
    Array([1., 1., 3., 2., 2.], dtype=float32)
    """
    shape = _array("dy", dy).shape
    cells = tuple(shape[p] for p in _spatial(layout, len(shape)))
    return _gradient(dy, input_shape, layout, adaptive, cells)


def fractional_avg_pool(
    x: Any, sequences: Sequence[Sequence[int]], *, overlapping: bool = False, layout: str | None = None
) -> Any:
    """Average pooling between given boundaries, one sequence per spatial axis.

    >>> fractional_avg_pool(jnp.array([20.0, 5, 16, 3, 7]), [[0, 2, 5]], layout="L")
    Array([12.5     ,  8.666667], dtype=float32)
    """
    return _forward(x, layout, fractional, _static("sequences", sequences), _static("overlapping", overlapping))


def fractional_avg_pool_grad(
    dy: Any,
    input_shape: Sequence[int],
    sequences: Sequence[Sequence[int]],
    *,
    overlapping: bool = False,
    layout: str | None = None,
) -> Any:
    """The gradient of `fractional_avg_pool`.

    >>> fractional_avg_pool_grad(jnp.array([3.0, 6.0]), (5,), [[0, 2, 4]], overlapping=True, layout="L")
    Array([1., 1., 3., 2., 2.], dtype=float32)
    """
    given = _static("sequences", sequences), _static("overlapping", overlapping)
    return _gradient(dy, input_shape, layout, fractional, *given)
