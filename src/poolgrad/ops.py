"""The public functions: average pooling, its gradient, and their adaptive and fractional kin.

Every function turns its arguments into a `Call`: a `Pool`, a layout and a direction, bound to the arrays' shapes.
Calls are kept, so that asking for the same pooling again costs a dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from math import prod
from operator import is_
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from . import far
from .arguments import Check, Ints, Padding, adaptive, as_sizes, fractional, regular
from .arrays import DTYPES, check_addressable, check_device_out, check_fits, check_out, check_source, gpu_framework, is_dask
from .engines import engine
from .errors import PoolGradError, PoolGradMemoryError, PoolGradTypeError, PoolGradValueError
from .geometry import Pool, Region, integer
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

Array = npt.NDArray[Any]


class Call:
    """A pooling in one direction, bound to the shapes of its arrays; `region` limits it to a part of the result."""

    def __init__(self, pool: Pool, source_shape: tuple[int, ...], layout: str, forwards: bool, region: Region | None = None):
        self.pool, self.source_shape, self.layout, self.name = pool, source_shape, layout, "x" if forwards else "dy"
        self.elements = sum(pool.input_size) + sum(pool.output_size)
        self.spatial = spatial_positions(layout, len(source_shape))
        if len(self.spatial) != len(pool.axes):
            raise PoolGradValueError(f"layout {layout!r} has {len(self.spatial)} spatial axes, the pooling {len(pool.axes)}")
        whole = pool.output_size if forwards else pool.input_size
        boxes = [slice(*(r or slice(None)).indices(n)) for r, n in zip(region or [None] * len(whole), whole, strict=True)]
        self.region = region = None if region is None else boxes
        self.result_shape = placed(source_shape, self.spatial, tuple(len(range(part.start, part.stop)) for part in boxes))
        self.pieces = (pool.forward_pieces if forwards else pool.gradient_pieces)(region)
        self._bind: Callable[[], None] | None = self._bind_cpu
        self._quick: Callable[..., Array] | None = None
        self._threads: Callable[[], int] = lambda: 1
        self._large = prod(self.result_shape) > 2**27
        self._on_gpu: list[Any] = []
        self.given: tuple[Any, ...] = ()  # the arguments of its last use, and the kinds of all that it was used with
        self.kinds: set[Hashable] = set()

    def _bind_cpu(self) -> None:
        """On the first call with host arrays: the engine's own form of this call, if it has one."""
        if hasattr(engine(), "operation") and self._is_whole():
            bound = engine().operation(self.pieces[0].sums, self.spatial, self.source_shape, self.result_shape)
            self._quick, self._threads = bound.run, engine().default_threads
        self._bind = None

    def __call__(self, source: Array, out: Array | None, accumulate: bool, num_threads: int | None) -> Array:
        if type(source) is not np.ndarray and (framework := gpu_framework(source)) is not None:
            answer: Array = self._device_call(framework, source, out, accumulate)
            return answer
        if type(source) is not np.ndarray and is_dask(source):
            return cast(Array, self._lazy_call(source, out, accumulate, num_threads))
        if self._bind is not None:
            self._bind()
        if type(source) is not np.ndarray or source.dtype not in _PLAIN:
            source = check_source(self.name, source)
        if accumulate is not False and accumulate is not True:
            raise PoolGradTypeError(f"accumulate must be True or False, got {accumulate!r}")
        if num_threads is not None:
            num_threads = min(integer("num_threads", num_threads, 1), 1024)
        if out is not None:
            result = check_out(out, source, self.result_shape)
        elif accumulate:
            raise PoolGradValueError("accumulate=True adds to out; give an out array")
        else:
            if self._large:
                check_fits("the result", self.result_shape, source.dtype)
            if self._quick is not None:
                return self._quick(source, None, False, num_threads or self._threads())
            result = np.empty(self.result_shape, dtype=source.dtype)
        if self._quick is not None:
            self._quick(source, result, accumulate, num_threads or self._threads())
        else:
            for piece in self.pieces:
                part, place = self._view(source, piece.take), self._view(result, piece.put)
                far.run(piece.sums, part, place, self.spatial, accumulate=accumulate, threads=num_threads)
        return out if out is not None else result

    def _device_call(self, framework: Any, array: Any, out: Any, accumulate: bool) -> Any:
        """The same on a GPU: planned once, launched on the caller's stream, the result an array of the same kind."""
        if accumulate is not False and accumulate is not True:
            raise PoolGradTypeError(f"accumulate must be True or False, got {accumulate!r}")
        source = framework.describe(self.name, array)
        if out is not None:
            result, place = out, check_device_out(out, framework, source, self.result_shape)
        elif accumulate:
            raise PoolGradValueError("accumulate=True adds to out; give an out array")
        else:
            result = framework.empty(array, source, self.result_shape)
            place = framework.describe("the result", result)
        if not self._on_gpu:
            from .engines.gpu import Operation

            self._on_gpu = [Operation(piece.sums, self.spatial) for piece in self.pieces]
        held: list[Any] = [array]

        def scratch(size: int) -> Any:
            held.append(framework.scratch(array, size))
            return held[-1]

        for piece, operation in zip(self.pieces, self._on_gpu, strict=True):
            part, there = source.part(self.spatial, piece.take), place.part(self.spatial, piece.put)
            operation.run(part, there, accumulate=accumulate, scratch=scratch)
        return framework.finish(result, source, held)

    def device_launch(self, array: Any, out: Any) -> Any:
        """What the call just made on these GPU arrays launches, for more of its kind; None if it does several things."""
        framework = gpu_framework(array)
        if framework is None or not self._is_whole() or 0 in self.result_shape:
            return None
        return self._on_gpu[0].bound(framework.describe(self.name, array), framework.describe("out", out))

    def _lazy_call(self, source: Any, out: Any, accumulate: bool, num_threads: int | None) -> Any:
        """The same on a Dask array: nothing is computed before the result is asked for."""
        if out is not None or accumulate is not False:
            raise PoolGradTypeError("out and accumulate are not for Dask arrays, whose results are lazy; use the result instead")
        if num_threads is not None:
            num_threads = min(integer("num_threads", num_threads, 1), 1024)
        from .dask import lazily

        return lazily(source, self.pool, self.layout, self.region, forwards=self.name == "x", threads=num_threads)

    def _is_whole(self) -> bool:
        """Whether one engine call on the arrays themselves does all of it: no residue classes to pick out."""
        if len(self.pieces) != 1 or far.is_far(self.pieces[0].sums):
            return False
        tables = zip(self.pieces[0].sums.tables, self.spatial, strict=True)
        return all((t.rows, t.positions) == (self.source_shape[p], self.result_shape[p]) for t, p in tables)

    def _view(self, array: Array, parts: tuple[slice, ...]) -> Array:
        index = [slice(None)] * array.ndim
        for position, part in zip(self.spatial, parts, strict=True):
            index[position] = part
        return array[tuple(index)]


_PLAIN = frozenset(DTYPES)
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


_DEEP = frozenset({tuple, list, np.ndarray})


def _kinds(values: Any) -> Hashable:
    """The types of what was given, and of what that holds."""
    if type(values) is not tuple:
        if isinstance(values, np.ndarray):
            return (np.ndarray, values.dtype)
        if not isinstance(values, (tuple, list)):
            return cast(Hashable, type(values))
    kinds = tuple(map(type, values))
    return kinds if _DEEP.isdisjoint(kinds) else (kinds, *[_kinds(part) for part in values if type(part) in _DEEP])


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
        (pool.inputs_for if forwards else pool.cells_for)(region)
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
