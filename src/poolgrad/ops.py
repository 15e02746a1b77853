"""The public functions: average pooling, its gradient, and their adaptive and fractional kin.

Every function turns its arguments into a `Call`: a `Pool`, a layout and a direction, bound to the arrays' shapes.
Calls are kept, so that asking for the same pooling again costs a dictionary look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from .arrays import check_fits, check_out, check_source
from .engines import engine
from .errors import PoolGradTypeError, PoolGradValueError
from .geometry import Axis, Pool, Region, integer
from .layout import default_layout, spatial_positions

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
Ints = int | Sequence[int]
Padding = str | int | Sequence[int] | Sequence[tuple[int, int]]


class Call:
    """A pooling in one direction, bound to the shapes of its arrays; `region` limits it to a part of the result."""

    def __init__(self, pool: Pool, source_shape: tuple[int, ...], layout: str, forwards: bool, region: Region | None = None):
        self.pool, self.source_shape, self.name = pool, source_shape, "x" if forwards else "dy"
        self.spatial = spatial_positions(layout, len(source_shape))
        if len(self.spatial) != len(pool.axes):
            raise PoolGradValueError(f"layout {layout!r} has {len(self.spatial)} spatial axes, the pooling {len(pool.axes)}")
        shape = list(source_shape)
        whole = pool.output_size if forwards else pool.input_size
        region = region if region is None else [slice(*(r or slice(None)).indices(n)) for r, n in zip(region, whole, strict=True)]
        for position, size, part in zip(self.spatial, whole, region or [None] * len(whole), strict=True):
            shape[position] = len(range(*(part or slice(None)).indices(size)))
        self.result_shape = tuple(shape)
        self.pieces = (pool.forward_pieces if forwards else pool.gradient_pieces)(region)
        self._quick: Callable[..., Array] | None = None
        self._threads: Callable[[], int] = lambda: 1
        self._large = prod(self.result_shape) > 2**27
        if hasattr(engine(), "operation") and self._is_whole():
            bound = engine().operation(self.pieces[0].sums, self.spatial, self.source_shape, self.result_shape)
            self._quick, self._threads = bound.run, engine().default_threads

    def __call__(self, source: Array, out: Array | None, accumulate: bool, num_threads: int | None) -> Array:
        if type(source) is not np.ndarray or source.dtype not in _PLAIN:
            source = check_source(self.name, source)
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
                engine().run(piece.sums, part, place, self.spatial, accumulate=accumulate, threads=num_threads)
        return out if out is not None else result

    def _is_whole(self) -> bool:
        """Whether one engine call on the arrays themselves does all of it: no residue classes to pick out."""
        if len(self.pieces) != 1:
            return False
        tables = zip(self.pieces[0].sums.tables, self.spatial, strict=True)
        return all((t.rows, t.positions) == (self.source_shape[p], self.result_shape[p]) for t, p in tables)

    def _view(self, array: Array, parts: tuple[slice, ...]) -> Array:
        index = [slice(None)] * array.ndim
        for position, part in zip(self.spatial, parts, strict=True):
            index[position] = part
        return array[tuple(index)]


_PLAIN = frozenset([np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)])
_KEPT_CALLS = 1024
_calls: dict[Hashable, Call] = {}


def _kept(key: tuple[Any, ...], make: Callable[[], Call]) -> Call:
    """The call kept under `key`, made if there is none. Unhashable arguments (lists, arrays) become tuples first."""
    try:
        found = _calls.get(key)
    except TypeError:
        return _kept(tuple(_frozen(part) for part in key), make)
    if found is None:
        found = make()
        if len(_calls) >= _KEPT_CALLS:
            _calls.clear()
        _calls[key] = found
    return found


def _frozen(part: Any) -> Hashable:
    if isinstance(part, np.ndarray):
        part = part.tolist()
    if isinstance(part, (list, tuple)):
        return tuple(_frozen(p) for p in part)
    if not isinstance(part, Hashable):
        raise PoolGradTypeError(f"cannot use {part!r} ({type(part).__name__}) as an argument of a pooling")
    return part


def _shape_of(name: str, array: Any) -> tuple[int, ...]:
    return array.shape if type(array) is np.ndarray else check_source(name, array).shape


def _sizes(name: str, shape: Any) -> tuple[int, ...]:
    if isinstance(shape, (str, bytes)) or not isinstance(shape, (Iterable, np.ndarray)):
        raise PoolGradTypeError(f"{name} must be a sequence of integers, got {shape!r}")
    return tuple(integer(f"{name}[{k}]", n, 0) for k, n in enumerate(shape))


def _per_axis(name: str, value: Any, axes: int) -> tuple[Any, ...]:
    """One value per spatial axis: a single one for all, or a sequence of the right length."""
    if isinstance(value, (str, int, np.integer)) or value is None:
        return (value,) * axes
    if not isinstance(value, (Sequence, np.ndarray)) or isinstance(value, bytes):
        raise PoolGradTypeError(f"{name} must be an integer or one per spatial axis, got {value!r} ({type(value).__name__})")
    if len(value) != axes:
        raise PoolGradValueError(f"{name} must have one entry per spatial axis ({axes}), got {len(value)}: {value!r}")
    return tuple(value)


def _pairs(padding: Any, axes: int) -> tuple[Any, ...]:
    """Padding per axis as `_places` takes it: a name, an int, or a (before, after) pair."""
    return tuple(_pair(p) for p in _per_axis("padding", padding, axes))


def _pair(padding: Any) -> Any:
    if isinstance(padding, (str, int, np.integer)):
        return padding
    if not isinstance(padding, (Sequence, np.ndarray)) or len(padding) != 2:
        raise PoolGradValueError(f"padding of an axis must be an integer or a (before, after) pair, got {padding!r}")
    return tuple(padding)


def _regular(
    sizes: tuple[int, ...],
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    count: str,
    divisor: int | None,
    ceil_mode: bool,
) -> Pool:
    """Evenly spaced windows on axes of these sizes."""
    n = len(sizes)
    if isinstance(padding, str) and padding != "valid" and ceil_mode:
        raise PoolGradValueError(f"ceil_mode applies to 'valid' or explicit padding, got padding={padding!r}")
    per_axis = zip(
        sizes,
        _per_axis("window", window, n),
        _per_axis("stride", stride, n),
        _pairs(padding, n),
        _per_axis("dilation", dilation, n),
        strict=True,
    )
    make = partial(Axis.regular, count=count, ceil_mode=bool(ceil_mode))
    axes = tuple(make(size, k, stride=s, padding=p, dilation=d) for size, k, s, p, d in per_axis)
    return Pool(axes, divisor)


def _kinds(*scalars: Any) -> tuple[type, ...]:
    """Part of a key: 2.0 and True equal 2 and 1, and must be refused whatever was asked before."""
    return tuple(map(type, scalars))


def _forward_call(shape: tuple[int, ...], layout: str | None, make_pool: Callable[[tuple[int, ...]], Pool]) -> Call:
    layout = default_layout(len(shape)) if layout is None else layout
    spatial = spatial_positions(layout, len(shape))
    return Call(make_pool(tuple(shape[p] for p in spatial)), shape, layout, forwards=True)


def _gradient_call(
    dy_shape: tuple[int, ...], input_shape: Any, layout: str | None, make_pool: Callable[[tuple[int, ...]], Pool]
) -> Call:
    shape = _sizes("input_shape", input_shape)
    layout = default_layout(len(shape)) if layout is None else layout
    spatial = spatial_positions(layout, len(shape))
    pool = make_pool(tuple(shape[p] for p in spatial))
    expected = list(shape)
    for position, cells in zip(spatial, pool.output_size, strict=True):
        expected[position] = cells
    if tuple(expected) != dy_shape:
        raise PoolGradValueError(
            f"dy must have shape {tuple(expected)} for input_shape {shape} (layout {layout!r}), got {dy_shape}"
        )
    check_fits("input_shape", shape, np.dtype(np.uint8))
    return Call(pool, dy_shape, layout, forwards=False)


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
    key = ("f", shape, given, layout, _kinds(window, stride, dilation))
    return _kept(key, lambda: _forward_call(shape, layout, lambda sizes: _regular(sizes, *given)))(x, out, False, num_threads)


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
    key = ("g", shape, input_shape, given, layout, _kinds(window, stride, dilation))
    call = _kept(key, lambda: _gradient_call(shape, input_shape, layout, lambda sizes: _regular(sizes, *given)))
    return call(dy, out, accumulate, num_threads)


def _adaptive(sizes: tuple[int, ...], output_size: Any) -> Pool:
    cells = _per_axis("output_size", output_size, len(sizes))
    return Pool(tuple(Axis.adaptive(n, n if m is None else m) for n, m in zip(sizes, cells, strict=True)))


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
    make = partial(_adaptive, output_size=output_size)
    return _kept(("af", shape, output_size, layout), lambda: _forward_call(shape, layout, make))(x, out, False, num_threads)


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

    def make(sizes: tuple[int, ...]) -> Pool:
        positions = spatial_positions(default_layout(len(shape)) if layout is None else layout, len(shape))
        return _adaptive(sizes, tuple(shape[p] for p in positions))

    key = ("ag", shape, input_shape, layout)
    return _kept(key, lambda: _gradient_call(shape, input_shape, layout, make))(dy, out, accumulate, num_threads)


def _fractional(sizes: tuple[int, ...], sequences: Any, overlapping: bool) -> Pool:
    if not isinstance(sequences, (Sequence, np.ndarray)) or len(sequences) != len(sizes):
        raise PoolGradValueError(f"sequences must hold one pooling sequence per spatial axis ({len(sizes)}), got {sequences!r}")
    rows = zip(sizes, sequences, strict=True)
    return Pool(tuple(Axis.fractional(n, edges, overlapping=bool(overlapping)) for n, edges in rows))


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
    make = partial(_fractional, sequences=sequences, overlapping=overlapping)
    key = ("ff", shape, sequences, overlapping, layout)
    return _kept(key, lambda: _forward_call(shape, layout, make))(x, out, False, num_threads)


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
    make = partial(_fractional, sequences=sequences, overlapping=overlapping)
    key = ("fg", shape, input_shape, sequences, overlapping, layout)
    return _kept(key, lambda: _gradient_call(shape, input_shape, layout, make))(dy, out, accumulate, num_threads)


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
    name = "x" if forwards else "dy"
    shape = _shape_of(name, source)
    layout = default_layout(len(shape)) if layout is None else layout
    bounds = None if region is None else tuple((r.start, r.stop, r.step) if r else None for r in region)

    def make() -> Call:
        sizes = pool.input_size if forwards else pool.output_size
        if region is not None:
            needed = (pool.inputs_for if forwards else pool.cells_for)(region)
            sizes = tuple(part.stop - part.start for part in needed)
        call = Call(pool, shape, layout, forwards, region)
        if tuple(shape[p] for p in call.spatial) != sizes:
            raise PoolGradValueError(f"{name} must have spatial sizes {sizes} (layout {layout!r}), got shape {shape}")
        return call

    return _kept((forwards, pool, shape, layout, bounds), make)
