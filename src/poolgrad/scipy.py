"""Binning as a matrix that is never stored: `AvgPoolOperator`, for SciPy's and PyLops' solvers.

The product with a vector is the pooling of the array that the vector holds, the product with the adjoint is the gradient:
the same engine and the same bits as `poolgrad.avg_pool` and `avg_pool_grad`. The operator is real. Columns of a matrix, and
the real and imaginary parts of complex numbers, are channels to the engine: one call serves them all, in place.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial, reduce
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, eye_array, kron
from scipy.sparse.linalg import LinearOperator

from . import exact, ops
from .arguments import Ints, Padding, adaptive, as_sizes, fractional, regular
from .arrays import DTYPES, check_fits
from .errors import PoolGradMemoryError, PoolGradTypeError, PoolGradValueError
from .geometry import Axis, Pool, integer
from .layout import default_layout, placed, spatial_positions

__all__ = ["AvgPoolOperator"]

Array = npt.NDArray[Any]

_REAL = {**{dtype: dtype for dtype in DTYPES}, np.dtype(np.complex64): np.dtype(np.float32)}
_REAL[np.dtype(np.complex128)] = np.dtype(np.float64)
"""What a product may be made of, and the numbers that the engine then sees."""


class AvgPoolOperator(LinearOperator):  # type: ignore[misc]
    """Average pooling of arrays of one shape, as a `scipy.sparse.linalg.LinearOperator`.

    Parameters
    ----------
    input_shape
        The shape of the arrays that are pooled; a vector holds one of them in C order, as `ravel()` gives it.
    window, stride, padding, dilation, count, divisor, ceil_mode, layout
        Those of `poolgrad.avg_pool`.
    dtype
        float16, bfloat16, float32 or float64. A product has the dtype that NumPy's promotion gives for this and the
        vector's, like that of a matrix; complex vectors are pooled part by part.

    Attributes
    ----------
    dims, dimsd
        The shapes of the arrays before and after, under the names that PyLops gives them.
    pool, layout
        The tables, and where the spatial axes are.

    >>> import numpy as np
    >>> from scipy.sparse.linalg import lsqr
    >>> A = AvgPoolOperator((3, 4), 2, stride=1, layout="HW")
    >>> A
    <6x12 AvgPoolOperator with dtype=float64>
    >>> (A @ np.arange(12.0)).reshape(A.dimsd)
    array([[2.5, 3.5, 4.5],
           [6.5, 7.5, 8.5]])
    >>> (A.H @ np.ones(6)).reshape(A.dims)
    array([[0.25, 0.5 , 0.5 , 0.25],
           [0.5 , 1.  , 1.  , 0.5 ],
           [0.25, 0.5 , 0.5 , 0.25]])
    >>> x = lsqr(A, np.arange(6.0))[0]
    >>> np.allclose(A @ x, np.arange(6.0))
    True
    """

    def __init__(
        self,
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
        dtype: npt.DTypeLike = np.float64,
    ) -> None:
        def make(sizes: tuple[int, ...], check: Callable[[tuple[int, ...]], None]) -> Pool:
            return regular(sizes, window, stride, padding, dilation, count, divisor, ceil_mode, check)

        self._bind(make, input_shape, layout, dtype)

    @classmethod
    def adaptive(
        cls,
        input_shape: Sequence[int],
        output_size: int | Sequence[int | None],
        *,
        layout: str | None = None,
        dtype: npt.DTypeLike = np.float64,
    ) -> AvgPoolOperator:
        """The operator of `poolgrad.adaptive_avg_pool`.

        >>> AvgPoolOperator.adaptive((5,), 2, layout="L") @ np.array([1.0, 2, 3, 4, 5])
        array([2., 4.])
        """
        return cls._made(partial(adaptive, output_size=output_size), input_shape, layout, dtype)

    @classmethod
    def fractional(
        cls,
        input_shape: Sequence[int],
        sequences: Sequence[Sequence[int]],
        *,
        overlapping: bool = False,
        layout: str | None = None,
        dtype: npt.DTypeLike = np.float64,
    ) -> AvgPoolOperator:
        """The operator of `poolgrad.fractional_avg_pool`.

        >>> AvgPoolOperator.fractional((5,), [[0, 2, 5]], layout="L").to_sparse().toarray().round(3)
        array([[0.5  , 0.5  , 0.   , 0.   , 0.   ],
               [0.   , 0.   , 0.333, 0.333, 0.333]])
        """
        return cls._made(partial(fractional, sequences=sequences, overlapping=overlapping), input_shape, layout, dtype)

    @classmethod
    def of(
        cls, pool: Pool, input_shape: Sequence[int], *, layout: str | None = None, dtype: npt.DTypeLike = np.float64
    ) -> AvgPoolOperator:
        """The operator of any `Pool`, which may pool each axis in its own way.

        >>> from poolgrad import Axis, Pool
        >>> pool = Pool((Axis.regular(9, 3, stride=2), Axis.adaptive(7, 4)))
        >>> AvgPoolOperator.of(pool, (2, 9, 7), layout="NHW", dtype=np.float32)
        <32x126 AvgPoolOperator with dtype=float32>
        """
        if not isinstance(pool, Pool):
            raise PoolGradTypeError(f"pool must be a poolgrad.Pool, got {pool!r}")

        def same(sizes: tuple[int, ...], check: Callable[[tuple[int, ...]], None]) -> Pool:
            if sizes != pool.input_size:
                raise PoolGradValueError(f"input_shape must have the pooling's sizes {pool.input_size}, got {sizes}")
            check(pool.output_size)
            return pool

        return cls._made(same, input_shape, layout, dtype)

    @classmethod
    def _made(cls, make: Callable[..., Pool], input_shape: Any, layout: str | None, dtype: Any) -> AvgPoolOperator:
        operator: AvgPoolOperator = cls.__new__(cls)
        operator._bind(make, input_shape, layout, dtype)
        return operator

    def _bind(self, make: Callable[..., Pool], input_shape: Any, layout: str | None, dtype: Any) -> None:
        own = _dtype(dtype)
        self.dims = as_sizes("input_shape", input_shape)
        self.layout = default_layout(len(self.dims)) if layout is None else layout
        self._spatial = spatial_positions(self.layout, len(self.dims))

        def check(cells: tuple[int, ...]) -> None:
            check_fits("the result", placed(self.dims, self._spatial, cells), own)

        check_fits("the input", self.dims, own)
        self.pool = make(tuple(self.dims[p] for p in self._spatial), check=check)
        self.dimsd = placed(self.dims, self._spatial, self.pool.output_size)
        super().__init__(own, (prod(self.dimsd), prod(self.dims)))

    def _matvec(self, x: Array) -> Array:
        return self._product(x, forwards=True)

    def _rmatvec(self, x: Array) -> Array:
        return self._product(x, forwards=False)

    _matmat, _rmatmat = _matvec, _rmatvec

    def _transpose(self) -> LinearOperator:
        return self._adjoint()  # a real operator's; SciPy would conjugate, which copies

    def _product(self, x: Array, *, forwards: bool) -> Array:
        """The columns of `x` pooled, or pooled back."""
        if not isinstance(x, np.ndarray):
            kind = f"{type(x).__module__}.{type(x).__qualname__}"
            raise PoolGradTypeError(f"a vector must be a NumPy array, got {kind}; convert it first")
        dtype = _promoted(self.dtype, x.dtype)
        columns = np.asarray(x, dtype=dtype).reshape(len(x), prod(x.shape[1:]))
        if dtype.kind == "c":
            parts = np.ascontiguousarray(columns).view(_REAL[dtype])
            product = self._pooled(parts, forwards).view(dtype)
        else:
            product = self._pooled(columns, forwards)
        return product.reshape(len(product), *x.shape[1:])

    def _pooled(self, columns: Array, forwards: bool) -> Array:
        """Columns ride along as channels: merged with what lies last, or as an axis of their own."""
        shape, made = (self.dims, self.dimsd) if forwards else (self.dimsd, self.dims)
        run = partial(ops.forward if forwards else ops.gradient, self.pool)
        k, free = columns.shape[1], {"N", "C"} - set(self.layout)
        if k == 1 or self.layout[-1] in "NC":
            result = run(columns.reshape(*shape[:-1], shape[-1] * k), layout=self.layout)
        elif free:
            result = run(columns.reshape(*shape, k), layout=self.layout + free.pop())
        else:  # N and C are both taken: the batch is gone through image by image
            batch = self.layout.index("N")
            result = np.empty((*made, k), dtype=columns.dtype)
            images = np.moveaxis(columns.reshape(*shape, k), batch, 0)
            for image, place in zip(images, np.moveaxis(result, batch, 0), strict=True):
                run(image, layout=self.layout.replace("N", "") + "N", out=place)
        return result.reshape(prod(made), k)

    def to_sparse(self, *, limit: int = 1 << 24) -> csr_array:
        """The matrix itself, for small operators: each weight is 1/divisor, correctly rounded (to float32 for half types,
        which SciPy's sparse arrays lack). `limit` is the most weights, rows or columns that it may have.

        >>> AvgPoolOperator((4,), 3, stride=2, padding="same", layout="L").to_sparse().toarray()
        array([[0.33333333, 0.33333333, 0.33333333, 0.        ],
               [0.        , 0.        , 0.5       , 0.5       ]])
        """
        axes: dict[int, Axis] = dict(zip(self._spatial, self.pool.axes, strict=True))
        weights = prod(int(_taps(axes[p]).sum()) if p in axes else n for p, n in enumerate(self.dims))
        if max(weights, *self.shape) > integer("limit", limit, 0):
            raise PoolGradMemoryError(
                f"the matrix of {self.shape[0]} rows and {self.shape[1]} columns has {weights} weights, more than limit={limit};"
                " multiply by the operator itself, which stores none, or raise the limit"
            )
        factors = [_cover(axes[p]) if p in axes else eye_array(n, dtype=np.int8, format="csr") for p, n in enumerate(self.dims)]
        matrix = csr_array(reduce(partial(kron, format="csr"), factors))
        matrix.sort_indices()
        dtype = self.dtype if self.dtype.itemsize > 2 else np.dtype(np.float32)
        matrix.data = np.repeat(self._row_weights(axes, dtype), np.diff(matrix.indptr))
        return matrix

    def _row_weights(self, axes: dict[int, Axis], dtype: np.dtype[Any]) -> Array:
        ones = [axes[p].count if p in axes else np.ones(n, dtype=np.int64) for p, n in enumerate(self.dims)]
        divisors = reduce(np.multiply.outer, ones).ravel()
        if self.pool.divisor is not None:
            divisors = np.full_like(divisors, self.pool.divisor)
        values, where = np.unique(divisors, return_inverse=True)
        one = np.ones(1, dtype=dtype)
        inverses = [exact.forward(Pool((Axis.whole(1),), int(value)), one, "L") for value in values]
        return np.concatenate([*inverses, one[:0]])[where]


def _taps(axis: Axis) -> Array:
    """How many inputs each cell holds."""
    taps: Array = np.maximum(-((axis.start - axis.stop) // axis.step), 0)
    return taps


def _cover(axis: Axis) -> csr_array:
    """Which inputs each cell of an axis holds, as a matrix of ones."""
    taps = _taps(axis)
    ends = np.concatenate([[0], np.cumsum(taps)])
    inputs = np.repeat(axis.start - ends[:-1] * axis.step, taps) + np.arange(ends[-1]) * axis.step
    return csr_array((np.ones(ends[-1], dtype=np.int8), inputs, ends), shape=(axis.cells, axis.size))


def _dtype(given: Any) -> np.dtype[Any]:
    try:
        dtype: np.dtype[Any] = np.dtype(given).newbyteorder("=")
    except TypeError as unknown:
        raise PoolGradTypeError(f"dtype must be one of {', '.join(DTYPES.values())}, got {given!r}") from unknown
    if dtype not in DTYPES:
        allowed = ", ".join(DTYPES.values())
        raise PoolGradTypeError(f"dtype must be one of {allowed}, got {dtype}; the operator is real and serves complex vectors")
    return dtype


def _promoted(own: np.dtype[Any], given: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype of a product: NumPy's promotion."""
    try:
        dtype = np.result_type(own, given)
    except TypeError:
        dtype = np.dtype(object)
    if dtype not in _REAL:
        raise PoolGradTypeError(
            f"a vector of {given} cannot be multiplied by an operator of {own}: convert it to {own}"
            f"{', or use an operator of float32 or float64' if own.itemsize == 2 else ' or a complex type of its width'}"
        )
    return dtype
