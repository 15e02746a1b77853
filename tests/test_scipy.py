"""`poolgrad.scipy.AvgPoolOperator` beside the functions it stands for, the exact matrix, SciPy's solvers and PyLops.

A product has the bits of `poolgrad.avg_pool` or `avg_pool_grad` on the array that the vector holds, column by column and
part by part.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tracemalloc
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import support
from hypothesis import given
from hypothesis import strategies as st
from support import Array, assert_same_bits, dtypes, layouts, pools, random_array, seeds, source_shape

import poolgrad
from poolgrad import PoolGradError, PoolGradMemoryError, PoolGradTypeError, PoolGradValueError

pytest.importorskip("scipy")
from scipy import sparse
from scipy.sparse import linalg

from poolgrad.scipy import AvgPoolOperator

OPERATORS = {
    "regular": AvgPoolOperator((2, 7, 9, 3), (3, 2), stride=(2, 1), padding=((1, 0), (0, 1)), count="padded"),
    "channels first": AvgPoolOperator((2, 3, 9, 7), (2, 3), stride=(1, 2), padding="same", layout="NCHW"),
    "channels between": AvgPoolOperator((2, 9, 3, 7), 4, stride=3, dilation=(1, 2), layout="NHCW"),
    "batch last": AvgPoolOperator((5, 6, 7, 2), 2, stride=(1, 2, 3), ceil_mode=True, layout="DHWN"),
    "no channels": AvgPoolOperator((2, 5, 8), (4, 3), stride=2, divisor=-7, layout="NWH"),
    "volume": AvgPoolOperator((6, 7, 5), (2, 3, 2), stride=(2, 1, 1), layout="DHW"),
    "adaptive": AvgPoolOperator.adaptive((2, 11, 3), 4),
    "fractional": AvgPoolOperator.fractional((7, 9, 2), [[0, 2, 5, 7], [1, 4, 9]], overlapping=True, layout="HWC"),
}
named = pytest.mark.parametrize("A", OPERATORS.values(), ids=OPERATORS.keys())


def vector(seed: int, n: int, dtype: Any = np.float64, columns: int | None = None) -> Array:
    shape = (n,) if columns is None else (n, columns)
    dtype = np.dtype(dtype)
    if dtype.kind == "c":
        real = random_array(seed, shape, np.dtype(f"f{dtype.itemsize // 2}"))
        return (real + 1j * random_array(seed + 1, shape, real.dtype)).astype(dtype)
    return random_array(seed, shape, dtype)


def pooled(A: AvgPoolOperator, x: Array, *, forwards: bool) -> Array:
    """One real column, by the public functions."""
    shape, run = (A.dims, poolgrad.forward) if forwards else (A.dimsd, poolgrad.gradient)
    return run(A.pool, x.reshape(shape), layout=A.layout).ravel()


@given(pools(), st.data(), seeds, dtypes, st.sampled_from([None, 1, 2, 5]), st.booleans())
def test_products_are_poolings(
    pool: poolgrad.Pool, data: st.DataObject, seed: int, dtype: Any, columns: int | None, forwards: bool
) -> None:
    layout = data.draw(layouts(len(pool.axes)))
    A = AvgPoolOperator.of(pool, source_shape(pool, layout, 2, 3, forwards=True), layout=layout, dtype=dtype)
    x = vector(seed, A.shape[1 if forwards else 0], dtype, columns)
    if columns == 5:
        x = np.asfortranarray(x)
    got = A @ x if forwards else A.H @ x
    want = [pooled(A, column, forwards=forwards) for column in x.reshape(len(x), -1).T]
    assert_same_bits(got, np.stack(want, axis=1).reshape(got.shape))


@named
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
@pytest.mark.parametrize("columns", [None, 1, 4])
def test_complex_vectors_are_pooled_part_by_part(A: AvgPoolOperator, dtype: Any, columns: int | None) -> None:
    A = AvgPoolOperator.of(A.pool, A.dims, layout=A.layout, dtype=np.float32)
    for B, forwards in ((A, True), (A.H, False), (A.T, False)):
        x = vector(5, B.shape[1], dtype, columns)
        got = B @ x
        assert got.dtype == dtype
        assert got.shape == (B.shape[0], *x.shape[1:])
        for part in ("real", "imag"):
            want = [pooled(A, np.ascontiguousarray(getattr(c, part)), forwards=forwards) for c in x.reshape(len(x), -1).T]
            assert_same_bits(getattr(got, part), np.stack(want, axis=1).reshape(got.shape))


def test_arguments_are_those_of_the_functions() -> None:
    x = vector(1, 2 * 7 * 10 * 3).reshape(2, 3, 7, 10)
    options: dict[str, Any] = {"stride": (2, 3), "padding": ((1, 2), (0, 1)), "dilation": (2, 1), "count": "window"}
    for more in ({}, {"divisor": 5}, {"ceil_mode": True}):
        A = AvgPoolOperator(x.shape, (3, 2), layout="NCHW", **options, **more)
        want = poolgrad.avg_pool(x, (3, 2), layout="NCHW", **options, **more)
        assert A.dimsd == want.shape
        assert_same_bits(A @ x.ravel(), want.ravel())
        dy = vector(2, want.size).reshape(want.shape)
        back = poolgrad.avg_pool_grad(dy, x.shape, (3, 2), layout="NCHW", **options, **more)
        assert_same_bits(A.rmatvec(dy.ravel()), back.ravel())
    A = AvgPoolOperator.adaptive(x.shape, (4, None), layout="NCHW")
    assert_same_bits(A @ x.ravel(), poolgrad.adaptive_avg_pool(x, (4, None), layout="NCHW").ravel())
    sequences = [[0, 3, 7], [0, 4, 5, 10]]
    A = AvgPoolOperator.fractional(x.shape, sequences, overlapping=True, layout="NCHW")
    assert_same_bits(A @ x.ravel(), poolgrad.fractional_avg_pool(x, sequences, overlapping=True, layout="NCHW").ravel())


BFLOAT16 = ml_dtypes.bfloat16
PROMOTIONS = [
    (np.float32, np.float32, np.float32),
    (np.float32, np.float64, np.float64),
    (np.float64, np.float32, np.float64),
    (np.float32, np.float16, np.float32),
    (np.float32, np.int8, np.float32),
    (np.float32, np.int64, np.float64),
    (np.float32, np.bool_, np.float32),
    (np.float32, np.complex64, np.complex64),
    (np.float64, np.complex64, np.complex128),
    (np.float16, np.float16, np.float16),
    (np.float16, np.complex64, np.complex64),
    (BFLOAT16, BFLOAT16, BFLOAT16),
    (BFLOAT16, np.float32, np.float32),
    (np.float64, ">f4", np.float64),
]


@pytest.mark.parametrize(("own", "given", "made"), PROMOTIONS)
def test_a_product_has_the_promoted_dtype(own: Any, given: Any, made: Any) -> None:
    A = AvgPoolOperator((9, 2), 3, stride=2, layout="LC", dtype=own)
    for B, forwards in ((A, True), (A.H, False)):
        x = np.rint(vector(3, B.shape[1]) * 4).astype(given)
        got = B @ x
        assert got.dtype == np.dtype(made)
        assert_same_bits(got.real, pooled(A, x.real.astype(got.real.dtype), forwards=forwards))


@named
def test_the_matrix_is_exact(A: AvgPoolOperator) -> None:
    """Every weight is 1/divisor rounded once; the columns are the poolings of the unit vectors."""
    matrix = A.to_sparse()
    assert matrix.format == "csr"
    assert matrix.has_canonical_format
    dense = matrix.toarray()
    want = A @ np.eye(A.shape[1])
    assert ((dense != 0) == (want != 0)).all()
    np.testing.assert_allclose(dense, want, rtol=1e-15)
    divisors = np.unique(np.rint(1 / dense[dense != 0]).astype(int))
    assert set(dense[dense != 0]) == {float(Fraction(1, int(d))) for d in divisors}
    assert_same_bits(A.rmatmat(np.eye(A.shape[0])), np.ascontiguousarray(want.T))


def test_the_matrix_of_every_dtype() -> None:
    for dtype in support.DTYPES:
        A = AvgPoolOperator((6, 5), (3, 2), stride=1, layout="HW", dtype=dtype)
        matrix = A.to_sparse()
        assert matrix.dtype == (np.float32 if dtype.itemsize == 2 else dtype)
        assert set(matrix.data) == {matrix.dtype.type(1) / 6}
        x = vector(4, 30, matrix.dtype)
        np.testing.assert_allclose(matrix @ x, A @ x, rtol=1e-5, atol=1e-5)


def test_the_matrix_of_a_large_divisor_is_rounded_once() -> None:
    divisor = (1 << 24) + 1  # no float32; its inverse is not that of a float32 either
    A = AvgPoolOperator((3,), 3, divisor=divisor, layout="L", dtype=np.float32)
    weight = A.to_sparse().data[0]
    below, above = np.nextafter(weight, np.float32(0)), np.nextafter(weight, np.float32(1))
    distance = [abs(Fraction(float(w)) - Fraction(1, divisor)) for w in (below, weight, above)]
    assert min(distance) == distance[1]


def test_empty_cells_and_empty_arrays() -> None:
    axis = poolgrad.Axis.fractional(4, [0, 2, 2, 4], allow_empty=True)
    A = AvgPoolOperator.of(poolgrad.Pool((axis,)), (4,), layout="L")
    np.testing.assert_array_equal(A.to_sparse().toarray(), [[0.5, 0.5, 0, 0], [0, 0, 0, 0], [0, 0, 0.5, 0.5]])
    B = AvgPoolOperator((0, 6, 5, 3), 2)
    assert B.shape == (0, 0)
    assert (B @ np.zeros(0)).shape == (0,)
    assert B.to_sparse().shape == (0, 0)
    C = OPERATORS["regular"]
    assert (C @ np.zeros((C.shape[1], 0))).shape == (C.shape[0], 0)
    assert (C.H @ np.zeros((C.shape[0], 0))).shape == (C.shape[1], 0)


def test_a_matrix_that_is_too_large_is_refused_before_it_is_made() -> None:
    A = AvgPoolOperator((2, 300, 400, 500), 5, stride=1, layout="NDHW")
    tracemalloc.start()
    with pytest.raises(PoolGradMemoryError, match=r"14534784000 weights, more than limit=16777216.*operator itself"):
        A.to_sparse()
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    B = OPERATORS["volume"]
    entries = B.to_sparse().nnz
    assert B.to_sparse(limit=max(entries, *B.shape)).nnz == entries
    with pytest.raises(PoolGradMemoryError, match=f"{entries} weights"):
        B.to_sparse(limit=entries - 1)


@named
def test_algebra_with_other_operators(A: AvgPoolOperator) -> None:
    m, n = A.shape
    dense = A.to_sparse().toarray()
    S = sparse.random_array((m, n), density=0.1, rng=np.random.default_rng(0))
    D = linalg.aslinearoperator(sparse.diags_array(np.arange(1.0, n + 1)))
    x, y = vector(6, n), vector(7, m)
    for got, want in [
        (A + linalg.aslinearoperator(S), dense + S.toarray()),
        (2.5 * A, 2.5 * dense),
        (-A, -dense),
        (A @ D, dense * np.arange(1.0, n + 1)),
        (A.H @ A + 0.1 * linalg.aslinearoperator(sparse.eye_array(n)), dense.T @ dense + 0.1 * np.eye(n)),
    ]:
        np.testing.assert_allclose(got @ x, want @ x, rtol=1e-10, atol=1e-10)
        z = y if got.shape[0] == m else x
        np.testing.assert_allclose(got.H @ z, want.T @ z, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(y @ A, y @ dense, rtol=1e-10, atol=1e-10)
    with pytest.raises(ValueError, match="shape mismatch"):
        A @ A


@named
def test_solvers(A: AvgPoolOperator) -> None:
    """Each solver finds what the dense matrix's least squares find."""
    m, n = A.shape
    b, damp = vector(8, m), 0.5
    dense = A.to_sparse().toarray()
    want = np.linalg.solve(dense.T @ dense + damp**2 * np.eye(n), dense.T @ b)
    normal = A.H @ A + damp**2 * linalg.aslinearoperator(sparse.eye_array(n))
    found = {
        "lsqr": linalg.lsqr(A, b, damp=damp, atol=1e-13, btol=1e-13)[0],
        "lsmr": linalg.lsmr(A, b, damp=damp, atol=1e-13, btol=1e-13)[0],
        "cg": linalg.cg(normal, A.H @ b, rtol=1e-13)[0],
    }
    for name, x in found.items():
        np.testing.assert_allclose(x, want, rtol=1e-6, atol=1e-6 * abs(want).max(), err_msg=name)


def test_solvers_with_other_dtypes() -> None:
    A = AvgPoolOperator((8, 9), 2, stride=1, layout="HW", dtype=np.float32)
    b = vector(9, A.shape[0], np.complex128)
    normal = A.H @ A + 0.3 * linalg.aslinearoperator(sparse.eye_array(72, dtype=np.float32))
    x, stopped = linalg.cg(normal, A.H @ b, rtol=1e-10)
    assert stopped == 0
    np.testing.assert_allclose(normal @ x, A.H @ b, atol=1e-6)
    x = linalg.lsqr(A, b.real.astype(np.float32), damp=0.1)[0]
    assert np.isfinite(x).all()


def test_nothing_is_copied() -> None:
    """Vectors, columns and complex parts are pooled where they are: only the result is allocated."""
    A = AvgPoolOperator((64, 64, 64, 2), 2, dtype=np.float32)
    for dtype, columns in ((np.float32, None), (np.float32, 4), (np.complex64, None), (np.complex64, 3)):
        x = np.ones((A.shape[1],) if columns is None else (A.shape[1], columns), dtype=dtype)
        A @ x
        tracemalloc.start()
        A @ x
        A.H  # noqa: B018
        assert tracemalloc.get_traced_memory()[1] < x.nbytes // 4 + (1 << 16)
        tracemalloc.stop()


def pylops() -> Any:
    return pytest.importorskip("pylops")


@named
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pylops_dot_test(A: AvgPoolOperator, dtype: Any) -> None:
    B = AvgPoolOperator.of(A.pool, A.dims, layout=A.layout, dtype=dtype)
    for complexflag in range(4):
        assert pylops().utils.dottest(B, rtol=1e-3 if dtype == np.float32 else 1e-10, complexflag=complexflag)
        assert pylops().utils.dottest(pylops().aslinearoperator(B), rtol=1e-3, complexflag=complexflag)


@named
def test_pylops_algebra(A: AvgPoolOperator) -> None:
    """In PyLops the operator knows its shapes, stacks, composes and turns into a matrix."""
    P = pylops().aslinearoperator(A)
    assert (P.dims, P.dimsd) == (A.dims, A.dimsd)
    dense = A.to_sparse().toarray()
    x = vector(11, A.shape[1])
    if len(A.dims) > 1:
        assert_same_bits(P @ x.reshape(A.dims), (A @ x).reshape(A.dimsd))
        assert_same_bits(P.H @ (P @ x.reshape(A.dims)), (A.H @ (A @ x)).reshape(A.dims))
    np.testing.assert_allclose(P.todense(), dense, rtol=1e-15)
    stack = pylops().VStack([A, 2 * P, pylops().Identity(A.shape[1])])
    np.testing.assert_allclose(stack @ x, np.concatenate([dense @ x, 2 * dense @ x, x]), rtol=1e-10, atol=1e-10)
    assert pylops().utils.dottest(stack, rtol=1e-10)
    b = vector(12, A.shape[0])
    want = np.linalg.solve(dense.T @ dense + 0.25 * np.eye(A.shape[1]), dense.T @ b)
    got = pylops().optimization.leastsquares.regularized_inversion(P, b, [], damp=0.5, iter_lim=400, atol=1e-14, btol=1e-14)[0]
    np.testing.assert_allclose(got.ravel(), want, rtol=1e-5, atol=1e-6 * abs(want).max())
    got = pylops().optimization.basic.cgls(P, b, niter=400, damp=0.5, tol=1e-14)[0]
    np.testing.assert_allclose(got.ravel(), want, rtol=1e-5, atol=1e-6 * abs(want).max())


def test_an_operator_can_be_pickled() -> None:
    A = OPERATORS["fractional"]
    B = pickle.loads(pickle.dumps(A))
    x = vector(10, A.shape[1])
    assert_same_bits(A @ x, B @ x)


REFUSED = [
    (lambda: AvgPoolOperator((3, 4), 2), PoolGradValueError, "layout='HW'"),
    (lambda: AvgPoolOperator((3, 4), 9, layout="HW"), PoolGradValueError, "window 9"),
    (lambda: AvgPoolOperator((3, -4), 2, layout="HW"), PoolGradValueError, r"input_shape\[1\]"),
    (lambda: AvgPoolOperator(7, 2, layout="L"), PoolGradTypeError, "input_shape"),
    (lambda: AvgPoolOperator((3, 4), 2, layout="HQ"), PoolGradValueError, "layout"),
    (lambda: AvgPoolOperator((3, 4), 2, layout="HW", dtype=np.int32), PoolGradTypeError, "int32"),
    (lambda: AvgPoolOperator((3, 4), 2, layout="HW", dtype=np.complex64), PoolGradTypeError, "complex vectors"),
    (lambda: AvgPoolOperator((3, 4), 2, layout="HW", dtype="no such type"), PoolGradTypeError, "no such type"),
    (lambda: AvgPoolOperator((1 << 28,) * 3, 2, layout="DHW"), PoolGradError, "the input"),
    (lambda: AvgPoolOperator.adaptive((1,), 1 << 40, layout="L"), PoolGradError, "result"),
    (lambda: AvgPoolOperator.of("pool", (3,), layout="L"), PoolGradTypeError, "poolgrad.Pool"),
    (lambda: AvgPoolOperator.of(OPERATORS["volume"].pool, (6, 5, 7), layout="DHW"), PoolGradValueError, r"\(6, 7, 5\)"),
    (lambda: AvgPoolOperator.of(OPERATORS["volume"].pool, (6, 5), layout="HW"), PoolGradValueError, r"\(6, 7, 5\)"),
    (lambda: AvgPoolOperator.fractional((5,), [[0, 2], [2, 5]], layout="L"), PoolGradValueError, "sequences"),
    (lambda: OPERATORS["volume"].to_sparse(limit="many"), PoolGradTypeError, "limit"),
    (lambda: OPERATORS["volume"] @ np.zeros(210, np.longdouble), PoolGradTypeError, "longdouble|float128"),
    (lambda: OPERATORS["volume"] @ np.array(["a"] * 210), PoolGradTypeError, "<U1"),
    (lambda: OPERATORS["volume"] @ np.array([None] * 210), PoolGradTypeError, "object"),
    (lambda: OPERATORS["volume"] @ np.zeros(209), ValueError, "mismatch"),
    (lambda: OPERATORS["volume"] @ sparse.eye_array(210), TypeError, "sparse"),
    (lambda: OPERATORS["volume"]._matvec([0.0] * 210), PoolGradTypeError, "list"),
]


@pytest.mark.parametrize(("call", "error", "says"), REFUSED)
def test_refusals(call: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        call()


def test_half_vectors_that_do_not_join_are_refused() -> None:
    A = AvgPoolOperator((9,), 3, layout="L", dtype=BFLOAT16)
    with pytest.raises(PoolGradTypeError, match=r"float16.*bfloat16.*float32"):
        A @ np.zeros(9, np.float16)


def test_scipy_is_imported_only_where_it_is_used() -> None:
    check = "import sys, poolgrad; assert not any(name.partition('.')[0] == 'scipy' for name in sys.modules)"
    subprocess.run([sys.executable, "-c", check], check=True, timeout=120)
