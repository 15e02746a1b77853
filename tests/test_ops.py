"""The public functions: defaults, ways of saying the same thing, `out`, accumulation, kinds of arrays."""

from __future__ import annotations

from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest
import support
from checks import CASES, Case, check_all
from hypothesis import given
from hypothesis import strategies as st

import poolgrad
from poolgrad import Axis, Pool, exact, ops

BF16 = np.dtype(ml_dtypes.bfloat16)
X = support.random_array(1, (2, 9, 11, 3), np.dtype(np.float32))


def through_avg_pool_grad(case: Case, dy: support.Array) -> support.Array:
    return poolgrad.avg_pool_grad(
        dy, case.input_shape, case.window, stride=case.stride, padding=case.pads, count=case.count, layout=case.layout
    )


@pytest.mark.parametrize("case", CASES)
def test_laws(case: Case) -> None:
    check_all(through_avg_pool_grad, case)


SAME_THING: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("stride defaults to the window", {"window": (2, 3)}, {"window": (2, 3), "stride": (2, 3)}),
    ("one integer for all", {"window": 3, "stride": 2}, {"window": (3, 3), "stride": (2, 2)}),
    ("a list", {"window": [2, 3], "stride": [1, 2]}, {"window": (2, 3), "stride": (1, 2)}),
    ("an array", {"window": np.array([2, 3]), "stride": np.array([1, 2])}, {"window": (2, 3), "stride": (1, 2)}),
    ("a NumPy integer", {"window": np.int32(3), "stride": np.int64(2)}, {"window": 3, "stride": 2}),
    ("valid is no padding", {"window": 3, "padding": "valid"}, {"window": 3, "padding": 0}),
    ("one pad for all", {"window": 3, "padding": 1}, {"window": 3, "padding": (1, 1)}),
    ("one pad per axis", {"window": 3, "padding": (1, 0)}, {"window": 3, "padding": ((1, 1), (0, 0))}),
    ("nested lists", {"window": 3, "padding": [[1, 0], [0, 1]]}, {"window": 3, "padding": ((1, 0), (0, 1))}),
    ("a padding array", {"window": 3, "padding": np.array([[1, 0], [0, 1]])}, {"window": 3, "padding": ((1, 0), (0, 1))}),
    ("a name per axis", {"window": 3, "padding": ("same", "valid")}, {"window": 3, "padding": ((0, 0), (0, 0))}),
    ("same is explicit", {"window": 2, "stride": 1, "padding": "same"}, {"window": 2, "stride": 1, "padding": ((0, 1), (0, 1))}),
    ("same_lower", {"window": 2, "stride": 1, "padding": "same_lower"}, {"window": 2, "stride": 1, "padding": ((1, 0), (1, 0))}),
    ("channels last", {"window": 2}, {"window": 2, "layout": "NHWC"}),
    ("digits", {"window": (2, 3)}, {"window": (2, 3), "layout": "N01C"}),
    ("dilation 1", {"window": 3, "dilation": 1}, {"window": 3, "dilation": (1, 1)}),
    ("count inside", {"window": 3, "padding": 1}, {"window": 3, "padding": 1, "count": "inside"}),
    ("ceil without need", {"window": (3, 11), "ceil_mode": True}, {"window": (3, 11)}),
    ("the window as divisor", {"window": 3, "padding": 1, "divisor": 9}, {"window": 3, "padding": 1, "count": "window"}),
]


@pytest.mark.parametrize(("left", "right"), [row[1:] for row in SAME_THING], ids=[row[0] for row in SAME_THING])
def test_ways_of_saying_the_same(left: dict[str, Any], right: dict[str, Any]) -> None:
    a, b = poolgrad.avg_pool(X, **left), poolgrad.avg_pool(X, **right)
    support.assert_same_bits(a, b)
    support.assert_same_bits(poolgrad.avg_pool_grad(a, X.shape, **left), poolgrad.avg_pool_grad(b, X.shape, **right))


def test_per_axis_arguments_follow_the_logical_order() -> None:
    """D, H, W whatever the layout."""
    options: dict[str, Any] = {"window": (3, 2), "stride": (1, 2), "padding": ((1, 0), (0, 1)), "dilation": (1, 2)}
    want = poolgrad.avg_pool(X, **options)
    for layout in ("NCHW", "CWHN", "WNHC", "HWNC"):
        order = ["NHWC".index(letter) for letter in layout]
        got = poolgrad.avg_pool(np.ascontiguousarray(X.transpose(order)), layout=layout, **options)
        support.assert_same_bits(got, np.ascontiguousarray(want.transpose(order)))


@given(pool=support.pools(kinds=("valid", "same", "explicit", "ceil")), data=st.data(), seed=support.seeds)
def test_forward_and_gradient_agree_with_the_oracle(pool: Pool, data: st.DataObject, seed: int) -> None:
    layout = data.draw(support.layouts(len(pool.axes)))
    x = support.random_array(seed, support.source_shape(pool, layout, 2, 3, forwards=True), np.dtype(np.float64))
    y = poolgrad.forward(pool, x, layout=layout)
    assert y.shape == support.result_shape(pool, x.shape, layout, forwards=True)
    dx = poolgrad.gradient(pool, y, layout=layout)
    assert dx.shape == x.shape
    assert np.allclose(dx, exact.gradient(pool, exact.forward(pool, x, layout), layout), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_results(dtype: np.dtype[Any]) -> None:
    """The dtype of the source, the shape of the layout, contiguous, writeable, its own memory."""
    x = X.astype(dtype)
    y = poolgrad.avg_pool(x, 2, layout="NHWC")
    dx = poolgrad.avg_pool_grad(y, x.shape, 2, layout="NHWC")
    for result, shape in ((y, (2, 4, 5, 3)), (dx, x.shape)):
        assert type(result) is np.ndarray
        assert (result.dtype, result.shape) == (dtype, shape)
        assert result.flags.c_contiguous
        assert result.flags.writeable
        assert result.flags.aligned
    for source in (x.transpose(3, 2, 1, 0), x[::-1], np.asfortranarray(x)):
        assert poolgrad.avg_pool(source, 2, layout="CWHN" if source.shape[0] == 3 else "NHWC").flags.c_contiguous


def test_subclasses_become_plain_arrays() -> None:
    class Sub(np.ndarray[Any, Any]):
        pass

    got = poolgrad.avg_pool(X.view(Sub), 2)
    assert type(got) is np.ndarray
    support.assert_same_bits(got, poolgrad.avg_pool(X, 2))


def test_out_is_returned_and_written() -> None:
    y = poolgrad.avg_pool(X, 2)
    out = np.full_like(y, np.nan)
    assert poolgrad.avg_pool(X, 2, out=out) is out
    support.assert_same_bits(out, y)
    dx = np.full_like(X, np.nan)
    assert poolgrad.avg_pool_grad(y, X.shape, 2, out=dx) is dx
    support.assert_same_bits(dx, poolgrad.avg_pool_grad(y, X.shape, 2))
    made = [
        (poolgrad.adaptive_avg_pool, (X, 3)),
        (poolgrad.adaptive_avg_pool_grad, (y, X.shape)),
        (poolgrad.fractional_avg_pool, (X, [[0, 4, 9], [0, 5, 11]])),
        (poolgrad.fractional_avg_pool_grad, (np.ascontiguousarray(y[:, :2, :2]), X.shape, [[0, 4, 9], [0, 5, 11]])),
    ]
    for function, arguments in made:
        want = function(*arguments)
        place = np.full_like(want, np.nan)
        assert function(*arguments, out=place) is place
        support.assert_same_bits(place, want)


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_accumulate_rounds_once(dtype: np.dtype[Any]) -> None:
    """The old value, widened, plus the sum in the accumulator; then the one rounding."""
    wide = np.float64 if dtype == np.float64 else np.float32
    dy = support.random_array(3, (2, 5, 6, 7), dtype)
    old = support.random_array(4, (2, 11, 13, 7), dtype)
    fresh = poolgrad.avg_pool_grad(dy.astype(wide), old.shape, (3, 3), stride=2)
    out = old.copy()
    poolgrad.avg_pool_grad(dy, old.shape, (3, 3), stride=2, out=out, accumulate=True)
    support.assert_same_bits(out, (old.astype(wide) + fresh).astype(dtype))
    for function, more in ((poolgrad.adaptive_avg_pool_grad, ()), (poolgrad.fractional_avg_pool_grad, ([range(6), range(7)],))):
        arguments = (dy, old.shape, *[[list(r) for r in part] for part in more])
        out = old.copy()
        function(*arguments, out=out, accumulate=True)
        fresh = function(dy.astype(wide), *arguments[1:])
        support.assert_same_bits(out, (old.astype(wide) + fresh).astype(dtype))


def test_accumulate_with_a_half_that_two_roundings_get_wrong() -> None:
    out = np.array([2048], dtype=np.float16)
    dy = np.array([1.5, 1.0], dtype=np.float16)
    pool = Pool((Axis(1, [0, 0], [1, 1], [2, 2]),))
    poolgrad.gradient(pool, dy, layout="L", out=out, accumulate=True)
    assert out == [2050]
    assert np.float16(2048) + poolgrad.gradient(pool, dy, layout="L") == [2050]
    out[:] = 2048
    poolgrad.gradient(pool, np.array([2.0 - 2**-10, 2**-11], dtype=np.float16), layout="L", out=out, accumulate=True)
    assert out == [2048], "1 - 2^-12 is below the half unit; rounded to float16 first it would be 1, a tie"


def test_accumulate_adds_where_nothing_reaches() -> None:
    out = np.array([-0.0, 3.0, 5.0])
    poolgrad.avg_pool_grad(np.array([4.0]), (3,), 2, layout="L", out=out, accumulate=True)
    support.assert_same_bits(out, np.array([2.0, 5.0, 5.0]))
    dilated = np.array([1.0, 1.0, 1.0])
    poolgrad.avg_pool_grad(np.array([4.0]), (3,), 2, dilation=2, layout="L", out=dilated, accumulate=True)
    support.assert_same_bits(dilated, np.array([3.0, 1.0, 3.0]))


EMPTY = [
    ((0, 9, 11, 3), "NHWC"),
    ((2, 9, 11, 0), "NHWC"),
    ((0, 3, 9, 11), "NCHW"),
    ((0, 0, 9, 11), "NCHW"),
]


@pytest.mark.parametrize(("shape", "layout"), EMPTY)
@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_empty_arrays(shape: tuple[int, ...], layout: str, dtype: np.dtype[Any]) -> None:
    for options in ({"window": 2}, {"window": 3, "stride": 2, "dilation": 2, "padding": 1}):
        y = poolgrad.avg_pool(np.zeros(shape, dtype), layout=layout, **options)
        assert y.size == 0
        dx = poolgrad.avg_pool_grad(y, shape, layout=layout, **options)
        assert (dx.shape, dx.dtype) == (shape, dtype)


def test_empty_space() -> None:
    """No inputs, no cells; and cells without a batch. An input that no cell covers gets +0.0."""
    assert poolgrad.avg_pool(np.zeros((2, 0, 4, 3)), 2, padding="same").shape == (2, 0, 2, 3)
    assert poolgrad.avg_pool_grad(np.zeros((2, 0, 2, 3)), (2, 0, 4, 3), 2, padding="same").shape == (2, 0, 4, 3)
    got = poolgrad.adaptive_avg_pool_grad(np.zeros((2, 0, 3)), (2, 4, 3))
    support.assert_same_bits(got, np.zeros((2, 4, 3)))


def test_adaptive() -> None:
    support.assert_same_bits(poolgrad.adaptive_avg_pool(X, (None, 11)), X)
    support.assert_same_bits(poolgrad.adaptive_avg_pool(X, (None, 1)), poolgrad.avg_pool(X, (1, 11)))
    support.assert_same_bits(poolgrad.adaptive_avg_pool(X, 1), poolgrad.avg_pool(X, (9, 11)))
    support.assert_same_bits(poolgrad.adaptive_avg_pool(X, None), X)
    dy = support.random_array(5, (2, 4, 5, 3), X.dtype)
    pool = Pool((Axis.adaptive(9, 4), Axis.adaptive(11, 5)))
    support.assert_same_bits(poolgrad.adaptive_avg_pool_grad(dy, X.shape), poolgrad.gradient(pool, dy))
    turned = np.ascontiguousarray(dy.transpose(0, 3, 1, 2))
    got = poolgrad.adaptive_avg_pool_grad(turned, (2, 3, 9, 11), layout="NCHW")
    support.assert_same_bits(got, np.ascontiguousarray(poolgrad.gradient(pool, dy).transpose(0, 3, 1, 2)))


@pytest.mark.parametrize("overlapping", [False, True])
def test_fractional(overlapping: bool) -> None:
    rows, columns = [0, 2, 5, 9], [0, 3, 4, 8, 11]
    pool = Pool((Axis.fractional(9, rows, overlapping=overlapping), Axis.fractional(11, columns, overlapping=overlapping)))
    y = poolgrad.fractional_avg_pool(X, [rows, columns], overlapping=overlapping)
    support.assert_same_bits(y, poolgrad.forward(pool, X))
    for sequences in ([rows, columns], (tuple(rows), tuple(columns)), [np.array(rows), np.array(columns, np.int32)]):
        got = poolgrad.fractional_avg_pool_grad(y, X.shape, sequences, overlapping=overlapping)
        support.assert_same_bits(got, poolgrad.gradient(pool, y))


def test_input_shape_may_be_anything_like_a_tuple() -> None:
    y = poolgrad.avg_pool(X, 2)
    want = poolgrad.avg_pool_grad(y, X.shape, 2)
    for shape in (list(X.shape), np.array(X.shape), tuple(np.int32(n) for n in X.shape), (n for n in X.shape)):
        support.assert_same_bits(poolgrad.avg_pool_grad(y, shape, 2), want)


@pytest.mark.parametrize("threads", [1, 2, 5, 1000, 10**9])
def test_num_threads(threads: int) -> None:
    x = support.random_array(6, (2, 61, 67, 9), np.dtype(np.float32))
    support.assert_same_bits(poolgrad.avg_pool(x, 3, stride=1, num_threads=threads), poolgrad.avg_pool(x, 3, stride=1))
    shape = (2, 122, 134, 9)
    support.assert_same_bits(poolgrad.avg_pool_grad(x, shape, 2, num_threads=threads), poolgrad.avg_pool_grad(x, shape, 2))


def test_calls_are_kept() -> None:
    """The second call of a kind makes nothing new; another stride, layout or shape does."""
    made = len(ops._calls)
    shape = (1, 23, 29, 2)
    x = np.zeros(shape, np.float32)
    poolgrad.avg_pool(x, 5)
    assert len(ops._calls) == made + 1
    poolgrad.avg_pool(x, 5)
    poolgrad.avg_pool(x.astype(np.float64), 5)
    assert len(ops._calls) == made + 1
    poolgrad.avg_pool(x, 5, stride=4)
    poolgrad.avg_pool(x, 5, layout="CHWN")
    assert len(ops._calls) == made + 3


def test_kept_calls_do_not_grow_without_bound() -> None:
    x = np.zeros((1, 4, 4, 1), np.float32)
    for k in range(ops.KEPT_CALLS + 10):
        poolgrad.avg_pool(x, 2, divisor=k + 1)
    assert len(ops._calls) <= ops.KEPT_CALLS


def test_a_wrong_call_is_wrong_after_a_right_one() -> None:
    """2.0 and True equal integers, so a call kept for the integer must not answer for them."""
    for wrong, right in ((2.0, 2), (True, 1), (np.float64(2), 2)):
        poolgrad.avg_pool(X, right)
        with pytest.raises(poolgrad.PoolGradTypeError, match="window"):
            poolgrad.avg_pool(X, wrong)  # type: ignore[arg-type]


def test_a_wrong_tuple_is_wrong_after_a_right_one() -> None:
    """The same of what tuples hold, theirs and those of kinds of tuples."""

    class Sizes(NamedTuple):
        high: Any
        wide: Any

    dy = np.ones((2, 2), np.float32)
    for kind in (Sizes, lambda *sizes: sizes):
        poolgrad.avg_pool_grad(dy, kind(4, 4), kind(2, 2), layout="HW")
        with pytest.raises(poolgrad.PoolGradTypeError, match="input_shape"):
            poolgrad.avg_pool_grad(dy, kind(4.0, 4), kind(2, 2), layout="HW")
        with pytest.raises(poolgrad.PoolGradTypeError, match="window"):
            poolgrad.avg_pool_grad(dy, kind(4, 4), kind(2, 2.0), layout="HW")
        poolgrad.adaptive_avg_pool(dy, kind(1, 1), layout="HW")
        with pytest.raises(poolgrad.PoolGradTypeError, match="output size"):
            poolgrad.adaptive_avg_pool(dy, kind(1, True), layout="HW")


def test_a_wrong_region_is_wrong_after_a_right_one() -> None:
    pool = poolgrad.Pool((poolgrad.Axis.regular(8, 2),))
    for run, size in ((poolgrad.forward, 4), (poolgrad.gradient, 1)):
        source = np.ones(size, np.float32)
        run(pool, source, layout="L", region=[slice(0, 2)])
        with pytest.raises(poolgrad.PoolGradTypeError, match="region must be a sequence of slices"):
            run(pool, source, layout="L", region=[slice(0.0, 2.0)])  # type: ignore[misc]
        with pytest.raises(poolgrad.PoolGradValueError, match="one slice per spatial axis"):
            run(pool, source, layout="L", region=[slice(0, 2), None])


def test_bfloat16() -> None:
    x = X.astype(BF16)
    got = poolgrad.avg_pool(x, 3, stride=2)
    support.assert_same_bits(got, exact.avg_pool(x, 3, stride=2))
    assert poolgrad.avg_pool(np.full((256, 256), 1.5, BF16), 256, layout="HW") == BF16.type(1.5)


def test_regions() -> None:
    pool = Pool((Axis.regular(20, 3, stride=2), Axis.regular(15, 4, stride=3, padding=1)))
    dy = support.random_array(7, (2, *pool.output_size, 3), np.dtype(np.float32))
    whole = poolgrad.gradient(pool, dy)
    for region in ([slice(3, 9), None], [slice(None), slice(-4, None)], (slice(0, 0), slice(2, 3))):
        rows, columns = pool.cells_for([r or slice(None) for r in region])
        index = (slice(None), *(r or slice(None) for r in region))
        got = poolgrad.gradient(pool, dy[:, rows, columns], region=region)
        support.assert_same_bits(got, np.ascontiguousarray(whole[index]))
        out = np.full_like(got, 5)
        poolgrad.gradient(pool, dy[:, rows, columns], region=region, out=out)
        support.assert_same_bits(out, got)


@pytest.mark.parametrize("window", [(2.0, 2), [2.0, 2], np.array([2.0, 2.0]), (True, 2)], ids=repr)
def test_a_kept_call_does_not_excuse_a_wrong_kind(window: Any) -> None:
    """2.0 and True equal 2 and 1: they are refused even after the same call with integers."""
    x = np.ones((1, 4, 4, 2), np.float32)
    for good in ((2, 2), [2, 2], np.array([2, 2]), (1, 2)):
        poolgrad.avg_pool(x, good)
    with pytest.raises(poolgrad.PoolGradTypeError, match="window"):
        poolgrad.avg_pool(x, window)


def test_an_empty_result_beyond_addressing_is_refused() -> None:
    with pytest.raises(poolgrad.PoolGradValueError, match="64-bit"):
        poolgrad.adaptive_avg_pool(np.zeros((0, 1, 1, 1, 4)), 2**28)
