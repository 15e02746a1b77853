"""The oracle: average pooling in rational arithmetic, rounded once. Slow, and right by inspection.

Every element is its exact rational value rounded to the dtype: half to even, subnormals kept, overflow to infinity.
Nothing is shared with the engines but the `Pool`: the gradient scatters `dy / D` over the windows that `start`, `stop`
and `step` spell out, so a mistake in the swapped tables, in an order of additions or in a kernel shows.

A NaN or an infinity reaches the elements whose windows hold it, and +inf with -inf makes NaN. A sum is -0.0 only if all
its terms are; the sum of nothing is +0.0. `LIMIT` bounds the work of one call.

>>> import numpy as np
>>> from poolgrad import Axis, Pool, exact
>>> pool = Pool((Axis.regular(3, 2, stride=1),) * 2)
>>> exact.gradient(pool, np.array([[1.0, 2.0], [3.0, 4.0]]), layout="HW")
array([[0.25, 0.75, 0.5 ],
       [1.  , 2.5 , 1.5 ],
       [0.75, 1.75, 1.  ]])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from math import inf, lcm, ldexp, prod
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .arguments import Ints, Padding, as_sizes, regular
from .arrays import check_source
from .errors import PoolGradTypeError, PoolGradValueError
from .geometry import Axis, Pool
from .layout import default_layout, spatial_positions

__all__ = ["LIMIT", "avg_pool", "avg_pool_grad", "forward", "gradient", "ulps"]

Array = npt.NDArray[Any]
Sum = Callable[[Array], Array]

LIMIT = 1 << 22
"""Most elements and additions of one call: some seconds of Python's integers."""


def forward(pool: Pool, x: Array, layout: str | None = None) -> Array:
    """The forward pass of `pool`, correctly rounded.

    >>> import numpy as np
    >>> from poolgrad import Axis, Pool
    >>> forward(Pool((Axis.regular(5, 3, stride=2),)), np.array([1, 1, 2, 2, 3], np.float32), layout="L")
    array([1.3333334, 2.3333333], dtype=float32)
    """
    source, spatial = _source("x", pool, x, layout)

    def gather(values: Array) -> Array:
        sums = np.zeros(values.shape[: -len(spatial)] + pool.output_size, dtype=values.dtype)
        for cell, window in _windows(pool):
            sums[cell] = values[window].sum(axis=tuple(range(-len(spatial), 0)))
        return sums

    divisors = _divisors(pool)
    result = _exactly(gather, source, np.array(1, dtype=object), abs(divisors))
    return _restored(-result if pool.divisor is not None and pool.divisor < 0 else result, spatial)


def gradient(pool: Pool, dy: Array, layout: str | None = None) -> Array:
    """The gradient of `pool` with respect to its input, correctly rounded.

    >>> import numpy as np
    >>> from poolgrad import Axis, Pool
    >>> gradient(Pool((Axis.regular(5, 3, stride=2),)), np.array([1, 1], np.float32), layout="L")
    array([0.33333334, 0.33333334, 0.6666667 , 0.33333334, 0.33333334],
          dtype=float32)
    """
    source, spatial = _source("dy", pool, dy, layout, forwards=False)

    spread = (..., *[np.newaxis] * len(spatial))

    def scatter(values: Array) -> Array:
        sums = np.zeros(values.shape[: -len(spatial)] + pool.input_size, dtype=values.dtype)
        for cell, window in _windows(pool):
            sums[window] += values[cell][spread]
        return sums

    divisors = _divisors(pool)
    common = lcm(*abs(divisors).flat)
    if pool.divisor is not None and pool.divisor < 0:
        source = -source
    return _restored(_exactly(scatter, source, common // abs(divisors), np.array(common, dtype=object)), spatial)


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
) -> Array:
    """What `poolgrad.avg_pool` computes, correctly rounded; the arguments are the same.

    >>> import numpy as np
    >>> avg_pool(np.array([1.0, 2.0, 4.0]), 2, padding="same", layout="L")
    array([1.5, 4. ])
    """
    source, spatial = _placed("x", x, layout)
    sizes = tuple(source.shape[p] for p in spatial)
    return forward(regular(sizes, window, stride, padding, dilation, count, divisor, ceil_mode), source, layout)


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
) -> Array:
    """What `poolgrad.avg_pool_grad` computes, correctly rounded; the arguments are the same.

    >>> import numpy as np
    >>> avg_pool_grad(np.array([3.0, 4.0]), (3,), 2, padding="same", layout="L")
    array([1.5, 1.5, 4. ])
    """
    source, spatial = _placed("dy", dy, layout)
    shape = as_sizes("input_shape", input_shape)
    outer = [d for d in range(source.ndim) if d not in spatial]
    if len(shape) != source.ndim or any(shape[d] != source.shape[d] for d in outer):
        raise PoolGradValueError(f"input_shape {shape} does not agree with dy of shape {source.shape}")
    sizes = tuple(shape[p] for p in spatial)
    return gradient(regular(sizes, window, stride, padding, dilation, count, divisor, ceil_mode), source, layout)


def ulps(got: Array, want: Array) -> float:
    """The largest error of `got`, in units of the last place of its own dtype at `want`; `want` may be wider.

    Infinite where one is NaN or infinite and the other is not the same.

    >>> import numpy as np
    >>> ulps(np.array([1.0, 3.0], np.float32), np.array([1.0, 3.0 + 2**-22]))
    1.0
    >>> ulps(np.array([np.nan]), np.array([1.0]))
    inf
    """
    got, want = check_source("got", got), check_source("want", want)
    if got.shape != want.shape:
        raise PoolGradValueError(f"got and want must have one shape, got {got.shape} and {want.shape}")
    kind = _KINDS[got.dtype.name]
    with np.errstate(all="ignore"):
        same = (got == want.astype(got.dtype)) | (np.isnan(got) & np.isnan(want))
        a, b = got.astype(np.float64), want.astype(np.float64)
        exponent = np.maximum(np.frexp(b)[1] - kind.precision, kind.least)
        error = np.where(np.isfinite(a) & np.isfinite(b), np.ldexp(abs(a - b), -exponent), inf)
        error[same & ~np.isfinite(a)] = 0
    return float(error.max(initial=0.0))


class _Kind(NamedTuple):
    """A floating-point format: bits of its significand, exponent of its least subnormal, exponent it overflows at."""

    precision: int
    least: int
    most: int

    def rounded(self, n: int, d: int) -> float:
        """`n / d` to the nearest number of this format, ties to even; every such number is a Python float."""
        size = abs(n)
        exponent = max(size.bit_length() - d.bit_length() - self.precision, self.least)
        q, rest, unit = _divided(size, d, exponent)
        if q >> self.precision:
            exponent += 1
            q, rest, unit = _divided(size, d, exponent)
        q += 2 * rest > unit or (2 * rest == unit and q % 2 == 1)
        result = inf if q.bit_length() + exponent > self.most else ldexp(q, exponent)
        return -result if n < 0 else result


_KINDS = {
    "float16": _Kind(11, -24, 16),
    "bfloat16": _Kind(8, -133, 128),
    "float32": _Kind(24, -149, 128),
    "float64": _Kind(53, -1074, 1024),
}


def _divided(n: int, d: int, exponent: int) -> tuple[int, int, int]:
    unit = d << max(exponent, 0)
    q, rest = divmod(n << max(-exponent, 0), unit)
    return q, rest, unit


def _exactly(sums: Sum, source: Array, weights: Array, divisors: Array) -> Array:
    """`Σ source · weights`, added exactly by `sums`, over `divisors`, rounded once."""
    kind = _KINDS[source.dtype.name]
    finite = np.isfinite(source)
    wide = np.where(finite, source, 0).astype(np.float64)
    integers = np.array([_integer(value, kind.least) for value in wide.flat], dtype=object).reshape(source.shape)
    marks = [np.ones_like(finite), np.isnan(source), source == inf, source == -inf, (source == 0) & np.signbit(source)]
    terms, nan, above, below, minus = sums(np.stack(marks).astype(np.int64))
    totals = sums(integers * weights)
    over = np.broadcast_to(divisors, totals.shape)
    rounded = [kind.rounded(n, d << -kind.least) for n, d in zip(totals.flat, over.flat, strict=True)]
    result = np.array(rounded, dtype=np.float64).reshape(totals.shape)
    result[(minus == terms) & (terms > 0)] = -0.0
    result[above > 0], result[below > 0] = inf, -inf
    result[(nan > 0) | ((above > 0) & (below > 0))] = np.nan
    return result.astype(source.dtype)


def _integer(value: float, least: int) -> int:
    n, d = value.as_integer_ratio()
    return n * ((1 << -least) // d)


def _divisors(pool: Pool) -> Array:
    """What each cell divides by, as Python integers."""
    if pool.divisor is not None:
        return np.full(pool.output_size, int(pool.divisor), dtype=object)
    return np.asarray(reduce(np.multiply.outer, [axis.count.astype(object) for axis in pool.axes]), dtype=object)


def _windows(pool: Pool) -> list[tuple[tuple[Any, ...], tuple[Any, ...]]]:
    """For every cell its own place and that of its window, as indices into the last axes."""
    spans = [_spans(axis) for axis in pool.axes]
    cells = np.ndindex(*pool.output_size)
    return [((..., *cell), (..., *(axis[o] for axis, o in zip(spans, cell, strict=True)))) for cell in cells]


def _spans(axis: Axis) -> list[slice]:
    rows = zip(axis.start.tolist(), axis.stop.tolist(), strict=True)
    return [slice(start, max(start, stop), axis.step) for start, stop in rows]


def _placed(name: str, array: Array, layout: str | None) -> tuple[Array, tuple[int, ...]]:
    source = check_source(name, array)
    return source, spatial_positions(default_layout(source.ndim) if layout is None else layout, source.ndim)


def _source(name: str, pool: Pool, array: Array, layout: str | None, forwards: bool = True) -> tuple[Array, tuple[int, ...]]:
    """`array` with its spatial axes last, and where they were; refused if it does not fit or is too much work."""
    if not isinstance(pool, Pool):
        raise PoolGradTypeError(f"pool must be a poolgrad.Pool, got {pool!r}")
    source, spatial = _placed(name, array, layout)
    sizes = pool.input_size if forwards else pool.output_size
    if tuple(source.shape[p] for p in spatial) != sizes:
        raise PoolGradValueError(f"{name} must have spatial sizes {sizes}, got shape {source.shape} (layout {layout!r})")
    outer = prod(n for d, n in enumerate(source.shape) if d not in spatial)
    terms = prod(int(np.maximum(-((axis.start - axis.stop) // axis.step), 0).sum()) for axis in pool.axes)
    work = max(outer, 1) * (terms + prod(pool.input_size) + prod(pool.output_size))
    if work > LIMIT:
        raise PoolGradValueError(f"{name} of shape {source.shape} takes {work} exact operations, more than exact.LIMIT ({LIMIT})")
    return np.moveaxis(source, spatial, range(-len(spatial), 0)), spatial


def _restored(result: Array, spatial: tuple[int, ...]) -> Array:
    return np.ascontiguousarray(np.moveaxis(result, range(-len(spatial), 0), spatial))
