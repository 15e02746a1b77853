"""The public functions: average pooling, its gradient, and their adaptive and fractional kin.

Every function turns its arguments into a `Call` (call.py): a `Pool`, a layout and a direction, bound to the arrays' shapes.
Calls are kept, so that asking for the same pooling again costs a dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from operator import is_
from typing import Any

import numpy as np

from .arguments import Check, Ints, Padding, adaptive, as_sizes, fractional, regular
from .arrays import check_addressable, check_fits, check_source, gpu_framework, is_dask
from .call import Array, Call
from .errors import PoolGradError, PoolGradMemoryError, PoolGradTypeError, PoolGradValueError
from .geometry import Pool, Region
from .layout import default_layout, placed, spatial_positions

__all__ = [
    "adaptive_avg_pool",
    "adaptive_avg_pool_grad",
    "avg_pool",
    "avg_pool_grad",
    "forward",
    "fractional_avg_pool",
    "fractional_avg_pool_grad",
    "gradient",
]

KEPT_CALLS, KEPT_ELEMENTS = 1024, 1 << 22
"""Calls that are kept, and the inputs and cells that their tables may hold in all."""

_calls: dict[Hashable, Call] = {}


def _known(key: tuple[Any, ...], given: tuple[Any, ...]) -> Call | None:
    """The call kept under `key`, if there is one that has been used with arguments of these kinds.

    2.0 and True equal 2 and 1, and must be refused whatever was asked before. The very objects of the last use need no look.
    """
    try:
        found = _calls.get(key)
    except TypeError:  # something in it is unhashable
        return None
    if found is None or all(map(is_, given, found.given)):
        return found
    if _kinds(given) not in found.kinds:
        return None
    found.given = given
    return found


def _kept(key: tuple[Any, ...], given: tuple[Any, ...], make: Callable[[], Call]) -> Call:
    """The call kept under `key`, made if there is none. Unhashable arguments (lists, arrays) become tuples first."""
    try:
        hash(key)
    except TypeError:
        return _kept(tuple(_frozen(part) for part in key), tuple(_frozen(part) for part in given), make)
    if (found := _known(key, given)) is not None:
        return found
    try:
        made = make()
    except PoolGradError:
        raise
    except MemoryError as short:
        raise PoolGradMemoryError(f"the tables of this pooling do not fit this machine ({short})") from None
    found = _calls.get(key) or _keep(key, made)
    found.kinds.add(_kinds(given))
    found.given = given
    return found


def _keep(key: tuple[Any, ...], call: Call) -> Call:
    if len(_calls) >= KEPT_CALLS or sum(other.elements for other in list(_calls.values())) + call.elements > KEPT_ELEMENTS:
        _calls.clear()
    if call.elements <= KEPT_ELEMENTS:
        _calls[key] = call
    return call


def _frozen(part: Any) -> Hashable:
    if isinstance(part, np.ndarray):
        part = part.tolist()
    if isinstance(part, (list, tuple)):
        return tuple(_frozen(p) for p in part)
    if not isinstance(part, Hashable):
        raise PoolGradTypeError(f"cannot use {part!r} ({type(part).__name__}) as an argument of a pooling")
    return part


def _shape_of(name: str, array: Any) -> tuple[int, ...]:
    if type(array) is np.ndarray:
        shape: tuple[int, ...] = array.shape
        return shape
    if is_dask(array):
        from .dask import shape_of

        return shape_of(name, array)
    return tuple(array.shape) if gpu_framework(array) is not None else check_source(name, array).shape


def _kinds(given: tuple[Any, ...]) -> Hashable:
    """The types of what was given, and of what that holds."""
    kinds, held = tuple(map(type, given)), [_kinds(part) for part in given if isinstance(part, tuple)]
    return (kinds, *held) if held else kinds


def _forward_call(x: Any, shape: tuple[int, ...], layout: str | None, make_pool: Callable[..., Pool]) -> Call:
    layout = default_layout(len(shape)) if layout is None else layout
    spatial = spatial_positions(layout, len(shape))

    def check(cells: tuple[int, ...]) -> None:
        _exists(x)("the result", placed(shape, spatial, cells), np.dtype(np.uint8))

    return Call(make_pool(tuple(shape[p] for p in spatial), check=check), shape, layout, forwards=True)


def _gradient_call(
    dy: Any, dy_shape: tuple[int, ...], input_shape: Any, layout: str | None, make_pool: Callable[..., Pool]
) -> Call:
    shape = as_sizes("input_shape", input_shape)
    layout = default_layout(len(shape)) if layout is None else layout
    spatial = spatial_positions(layout, len(shape))

    def check(cells: tuple[int, ...]) -> None:
        expected = placed(shape, spatial, cells)
        if expected != dy_shape:
            raise PoolGradValueError(f"dy must have shape {expected} for input_shape {shape} (layout {layout!r}), got {dy_shape}")
        _exists(dy)("input_shape", shape, np.dtype(np.uint8))

    return Call(make_pool(tuple(shape[p] for p in spatial), check=check), dy_shape, layout, forwards=False)


def _exists(source: Any) -> Callable[..., object]:
    """What a result of this kind of array must pass before any table is made: only a lazy one may be larger than memory."""
    return check_addressable if is_dask(source) else check_fits


def avg_pool(
    x: Array,
    window: Ints,
    *,
    stride: Ints | None = None,
    padding: Padding = "valid",
    dilation: Ints = 1,
    count: str = "inside",
    divisor: int | None = None,
    ceil_mode: bool = False,
    layout: str | None = None,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Average pooling.

    Parameters
    ----------
    x
        float16, bfloat16, float32 or float64, with any strides.
    window, stride, dilation
        An integer, or one per spatial axis in the order D, H, W whatever the layout. `stride` defaults to `window`.
    padding
        ``"valid"``, ``"same"``, ``"same_lower"``, an int, one int per axis, or one ``(before, after)`` pair per axis.
    count
        What a window divides by: ``"inside"`` (its cells within the input), ``"padded"`` (its cells within the input
        and the declared padding), ``"window"`` (always the whole window).
    divisor
        Divide by this integer instead.
    ceil_mode
        Round the output size up; a last window that would begin in the end padding is dropped (PyTorch's rule).
    layout
        Such as ``"NHWC"`` or ``"NCDHW"``; channels last by default.
    out
        Where to write the result.
    num_threads
        The result never depends on it.

    Examples
    --------
    >>> import numpy as np, poolgrad
    >>> x = np.arange(9, dtype=np.float32).reshape(3, 3)
    >>> poolgrad.avg_pool(x, 2, stride=1, layout="HW")
    array([[2., 3.],
           [5., 6.]], dtype=float32)
    """
    shape = _shape_of("x", x)
    given = (window, stride, padding, dilation, count, divisor, ceil_mode)
    key = ("f", shape, given, layout)
    if (call := _known(key, given)) is None:
        call = _kept(key, given, lambda: _forward_call(x, shape, layout, lambda sizes, check: regular(sizes, *given, check)))
    return call(x, out, False, num_threads)


def avg_pool_grad(
    dy: Array,
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
    out: Array | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> Array:
    """The gradient of `avg_pool` with respect to its input of shape `input_shape`, given the gradient `dy` of its output.

    The arguments are those of `avg_pool`. ``accumulate=True`` adds to `out` (with one rounding) instead of replacing it.

    Examples
    --------
    >>> import numpy as np, poolgrad
    >>> dy = np.array([[1, 2], [3, 4]], dtype=np.float32)
    >>> poolgrad.avg_pool_grad(dy, (3, 3), 2, stride=1, layout="HW")
    array([[0.25, 0.75, 0.5 ],
           [1.  , 2.5 , 1.5 ],
           [0.75, 1.75, 1.  ]], dtype=float32)
    """
    shape = _shape_of("dy", dy)
    given = (window, stride, padding, dilation, count, divisor, ceil_mode)
    key, all_given = ("g", shape, input_shape, given, layout), (*given, input_shape)
    if (call := _known(key, all_given)) is None:
        call = _kept(key, all_given, lambda: _gradient_call(
            dy, shape, input_shape, layout, lambda sizes, check: regular(sizes, *given, check)))
    return call(dy, out, accumulate, num_threads)


def adaptive_avg_pool(
    x: Array,
    output_size: int | Sequence[int | None],
    *,
    layout: str | None = None,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Average pooling to a given output size; 1 is global pooling, None keeps an axis as it is.

    >>> import numpy as np, poolgrad
    >>> poolgrad.adaptive_avg_pool(np.array([1.0, 2, 3, 4, 5]), 2, layout="L")
    array([2., 4.])
    """
    shape = _shape_of("x", x)
    make = partial(adaptive, output_size=output_size)
    key = ("af", shape, output_size, layout)
    return _kept(key, (output_size,), lambda: _forward_call(x, shape, layout, make))(x, out, False, num_threads)


def adaptive_avg_pool_grad(
    dy: Array,
    input_shape: Sequence[int],
    *,
    layout: str | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> Array:
    """The gradient of `adaptive_avg_pool`; the output size is that of `dy`.

    >>> import numpy as np, poolgrad
    >>> poolgrad.adaptive_avg_pool_grad(np.array([3.0, 6.0]), (5,), layout="L")
    array([1., 1., 3., 2., 2.])
    """
    shape = _shape_of("dy", dy)

    def make(sizes: tuple[int, ...], check: Check) -> Pool:
        positions = spatial_positions(default_layout(len(shape)) if layout is None else layout, len(shape))
        return adaptive(sizes, tuple(shape[p] for p in positions), check)

    key = ("ag", shape, input_shape, layout)
    call = _kept(key, (input_shape,), lambda: _gradient_call(dy, shape, input_shape, layout, make))
    return call(dy, out, accumulate, num_threads)


def fractional_avg_pool(
    x: Array,
    sequences: Sequence[Sequence[int]],
    *,
    overlapping: bool = False,
    layout: str | None = None,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """Average pooling between given boundaries, one sequence per spatial axis.

    >>> import numpy as np, poolgrad
    >>> poolgrad.fractional_avg_pool(np.array([20.0, 5, 16, 3, 7]), [[0, 2, 5]], layout="L")
    array([12.5       ,  8.66666667])
    """
    shape = _shape_of("x", x)
    make = partial(fractional, sequences=sequences, overlapping=overlapping)
    key = ("ff", shape, sequences, overlapping, layout)
    return _kept(key, (sequences, overlapping), lambda: _forward_call(x, shape, layout, make))(x, out, False, num_threads)


def fractional_avg_pool_grad(
    dy: Array,
    input_shape: Sequence[int],
    sequences: Sequence[Sequence[int]],
    *,
    overlapping: bool = False,
    layout: str | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> Array:
    """The gradient of `fractional_avg_pool`.

    >>> import numpy as np, poolgrad
    >>> poolgrad.fractional_avg_pool_grad(np.array([3.0, 6.0]), (5,), [[0, 2, 4]], overlapping=True, layout="L")
    array([1., 1., 3., 2., 2.])
    """
    shape = _shape_of("dy", dy)
    make = partial(fractional, sequences=sequences, overlapping=overlapping)
    key = ("fg", shape, input_shape, sequences, overlapping, layout)
    given = (input_shape, sequences, overlapping)
    call = _kept(key, given, lambda: _gradient_call(dy, shape, input_shape, layout, make))
    return call(dy, out, accumulate, num_threads)


def forward(
    pool: Pool,
    x: Array,
    *,
    layout: str | None = None,
    region: Region | None = None,
    out: Array | None = None,
    num_threads: int | None = None,
) -> Array:
    """The forward pass of any `Pool`; with `region`, those output cells from the inputs `pool.inputs_for(region)` alone."""
    return _pool_call(pool, x, layout, region, forwards=True)(x, out, False, num_threads)


def gradient(
    pool: Pool,
    dy: Array,
    *,
    layout: str | None = None,
    region: Region | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    num_threads: int | None = None,
) -> Array:
    """The gradient of any `Pool`; with `region`, over those inputs from the cells `pool.cells_for(region)` alone.

    >>> import numpy as np, poolgrad
    >>> pool = poolgrad.Pool((poolgrad.Axis.regular(9, 3, stride=2),))
    >>> dy = np.array([3.0, 6.0, 9.0, 12.0])
    >>> region = [slice(3, 5)]
    >>> poolgrad.gradient(pool, dy[pool.cells_for(region)], layout="L", region=region)
    array([2., 5.])
    """
    return _pool_call(pool, dy, layout, region, forwards=False)(dy, out, accumulate, num_threads)


def _pool_call(pool: Pool, source: Array, layout: str | None, region: Region | None, *, forwards: bool) -> Call:
    if not isinstance(pool, Pool):
        raise PoolGradTypeError(f"pool must be a poolgrad.Pool, got {pool!r}")
    name = "x" if forwards else "dy"
    shape = _shape_of(name, source)
    layout = default_layout(len(shape)) if layout is None else layout
    if region is not None:
        pool.check_region(region, forwards=forwards)
    bounds = None if region is None else tuple((r.start, r.stop, r.step) if r else None for r in region)

    def make() -> Call:
        sizes = pool.input_size if forwards else pool.output_size
        if region is not None:
            needed = (pool.inputs_for if forwards else pool.cells_for)(region)
            sizes = tuple(part.stop - part.start for part in needed)
        spatial = spatial_positions(layout, len(shape))
        if len(spatial) == len(sizes) and tuple(shape[p] for p in spatial) != sizes:
            raise PoolGradValueError(f"{name} must have spatial sizes {sizes} (layout {layout!r}), got shape {shape}")
        return Call(pool, shape, layout, forwards, region)

    return _kept((forwards, pool, shape, layout, bounds), (), make)
