"""The oracle itself: its rounding against Python's own, its answers by hand, its refusals."""

from __future__ import annotations

from fractions import Fraction
from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import support
from hypothesis import given
from hypothesis import strategies as st

import poolgrad
from poolgrad import Axis, Pool, PoolGradTypeError, PoolGradValueError, exact

BF16 = np.dtype(ml_dtypes.bfloat16)


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_rounding_is_the_casts(dtype: np.dtype[Any], value: float) -> None:
    kind = exact._KINDS[dtype.name]
    got = np.array(kind.rounded(*value.as_integer_ratio()))
    with np.errstate(all="ignore"):
        support.assert_same_bits(got + 0.0, np.array(value).astype(dtype).astype(np.float64) + 0.0)


@given(value=st.fractions(), scale=st.integers(-1080, 1030))
def test_rounding_is_pythons_division(value: Fraction, scale: int) -> None:
    value *= Fraction(2) ** scale
    try:
        want = value.numerator / value.denominator
    except OverflowError:
        want = inf if value > 0 else -inf
    assert exact._KINDS["float64"].rounded(value.numerator, value.denominator) == want


TIES = [
    ("half to even, down", np.float16, [2048, 2050], 2, 2048),
    ("half to even, up", np.float16, [2050, 2052], 2, 2052),
    ("half to even in float32", np.float32, [2**24, 2**24 + 2], 2, 2**24),
    ("above the half by a third", np.float32, [2**24 + 2, 2**25 + 4], 3, 2**24 + 2),
    ("least subnormal over two goes to zero", np.float32, [2**-149, 0], 2, 0.0),
    ("three halves of the least subnormal go to two", np.float32, [2**-149, 2**-148], 2, 2**-148),
    ("twice the largest is infinite", np.float16, [65504, 65504], 1, inf),
    ("bfloat16 has eight bits", BF16, [256, 1], 1, 256),
]


@pytest.mark.parametrize(("dtype", "x", "divisor", "want"), [tie[1:] for tie in TIES], ids=[tie[0] for tie in TIES])
def test_forward_rounds_once(dtype: Any, x: list[float], divisor: int, want: float) -> None:
    pool = Pool((Axis.whole(2),), divisor)
    got = exact.forward(pool, np.array(x).astype(dtype), "L")
    assert got.astype(np.float64).tolist() == [want]


def test_no_intermediate_rounding() -> None:
    """float32 would lose the ones beside 2^30 and overflow on the way to the mean of the largest."""
    x = np.array([2**30, 1, 1, 1, -(2**30)], dtype=np.float32)
    assert exact.forward(Pool((Axis.whole(5),), 3), x, "L") == [1.0]
    large = np.full(4, np.finfo(np.float32).max)
    assert exact.forward(Pool((Axis.whole(4),)), large, "L") == large[:1]


GOLDEN: list[tuple[str, tuple[int, ...], dict[str, Any], list[float], Any]] = [
    ("documented 3x3", (3, 3), {"stride": 1}, [1, 2, 3, 4], [[0.25, 0.75, 0.5], [1, 2.5, 1.5], [0.75, 1.75, 1]]),
    ("end pad", (3, 3), {"padding": [(0, 1)] * 2}, [1, 2, 3, 4], [[0.25, 0.25, 1], [0.25, 0.25, 1], [1.5, 1.5, 4]]),
    (
        "end pad, counted",
        (3, 3),
        {"padding": [(0, 1)] * 2, "count": "window"},
        [1, 2, 3, 4],
        [[0.25, 0.25, 0.5], [0.25, 0.25, 0.5], [0.75, 0.75, 1]],
    ),
    ("start pad", (3, 3), {"padding": [(1, 0)] * 2}, [1, 2, 3, 4], [[1, 1, 1], [1.5, 1, 1], [1.5, 1, 1]]),
    (
        "start pad, counted",
        (3, 3),
        {"padding": [(1, 0)] * 2, "count": "window"},
        [1, 2, 3, 4],
        [[0.25, 0.5, 0.5], [0.75, 1, 1], [0.75, 1, 1]],
    ),
    (
        "three axes, end pad",
        (3, 3, 3),
        {"padding": [(0, 1)] * 3},
        [1, 2, 3, 4, 5, 6, 7, 8],
        [[[0.125, 0.125, 0.5]] * 2 + [[0.75, 0.75, 2]]] * 2 + [[[1.25, 1.25, 3]] * 2 + [[3.5, 3.5, 8]]],
    ),
]


@pytest.mark.parametrize("module", [poolgrad, exact], ids=["poolgrad", "exact"])
@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize(("shape", "options", "dy", "want"), [g[1:] for g in GOLDEN], ids=[g[0] for g in GOLDEN])
def test_documented_gradients(
    module: Any, dtype: np.dtype[Any], shape: tuple[int, ...], options: dict[str, Any], dy: list[float], want: Any
) -> None:
    cells = np.array(dy).reshape((2,) * len(shape)).astype(dtype)
    got = module.avg_pool_grad(cells, shape, 2, layout="DHW"[-len(shape) :], **options)
    support.assert_same_bits(got, np.array(want).astype(dtype))


@pytest.mark.parametrize("dtype", support.DTYPES[2:], ids=str)
def test_documented_fractional_example(dtype: np.dtype[Any]) -> None:
    """20 5 16 3 7 between the edges 0, 2, 4."""
    x = np.array([20, 5, 16, 3, 7], dtype=dtype)
    shared, apart = (Pool((Axis.fractional(5, [0, 2, 4], overlapping=flag),)) for flag in (True, False))
    y = np.array([41 / 3, 26 / 3], dtype=dtype)
    support.assert_same_bits(exact.forward(shared, x, "L"), y)
    support.assert_same_bits(poolgrad.fractional_avg_pool(x, [[0, 2, 4]], overlapping=True, layout="L"), y)
    for pool, want in [(shared, [41 / 9, 41 / 9, 67 / 9, 26 / 9, 26 / 9]), (apart, [41 / 6, 41 / 6, 13 / 3, 13 / 3, 0])]:
        assert exact.ulps(exact.gradient(pool, y, "L"), np.array(want)) <= 1
        assert exact.ulps(poolgrad.gradient(pool, y, layout="L"), np.array(want)) <= 1


@given(pool=support.pools(signed=False), seed=support.seeds)
def test_forward_and_gradient_are_adjoint(pool: Pool, seed: int) -> None:
    """Each from its own loop over the windows, in rationals."""
    x = support.random_array(seed, pool.input_size, np.dtype(np.float64), "whole")
    y = support.random_array(seed + 1, pool.output_size, np.dtype(np.float64), "whole")
    scale = int(np.lcm.reduce(exact._divisors(pool).astype(np.int64).ravel(), initial=1))
    layout = "0123"[: x.ndim]
    left = np.vdot(exact.forward(pool, x * scale, layout), y * scale)
    assert left == np.vdot(x * scale, exact.gradient(pool, y * scale, layout))


@given(pool=support.pools(most_axes=3), data=st.data(), dtype=support.dtypes, seed=support.seeds)
def test_layouts_are_transpositions(pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int) -> None:
    layout = data.draw(support.layouts(len(pool.axes)))
    dy = support.random_array(seed, support.source_shape(pool, layout, 2, 3, forwards=False), dtype)
    plain = "".join(sorted(layout, key=lambda letter: (letter in "NC", letter)))
    order = [layout.index(letter) for letter in plain]
    want = exact.gradient(pool, dy.transpose(order), plain)
    support.assert_same_bits(exact.gradient(pool, dy, layout).transpose(order), want)


SPECIAL = [
    ([nan, 1, 2], [nan, 1.5]),
    ([inf, 1, 2], [inf, 1.5]),
    ([1, -inf, inf], [-inf, nan]),
    ([-0.0, -0.0, 0.0], [-0.0, 0.0]),
    ([-0.0, 1, -1], [0.5, 0.0]),
]


@pytest.mark.parametrize(("x", "want"), SPECIAL)
def test_special_values(x: list[float], want: list[float]) -> None:
    pool = Pool((Axis.regular(3, 2, stride=1),))
    support.assert_same_bits(exact.forward(pool, np.array(x), "L"), np.array(want))


def test_zeros() -> None:
    pool = Pool((Axis.regular(5, 2, stride=3),))
    got = exact.gradient(pool, np.array([-0.0, 0.0]), "L")
    support.assert_same_bits(got, np.array([-0.0, -0.0, 0.0, 0.0, 0.0]))
    negative = Pool((Axis.regular(3, 2, stride=1),), -4)
    support.assert_same_bits(exact.forward(negative, np.array([0.0, 0.0, 4.0]), "L"), np.array([-0.0, -1.0]))
    support.assert_same_bits(exact.gradient(negative, np.array([0.0, 4.0]), "L"), np.array([-0.0, -1.0, -1.0]))


def test_empty_arrays() -> None:
    pool = Pool((Axis.regular(4, 2),))
    assert exact.forward(pool, np.zeros((0, 4, 3)), "NLC").shape == (0, 2, 3)
    assert exact.gradient(pool, np.zeros((2, 2, 0)), "NLC").shape == (2, 4, 0)


def test_ulps() -> None:
    one = np.ones(1, np.float32)
    after = np.nextafter(one, np.float32(2))
    assert exact.ulps(one, one) == 0
    assert exact.ulps(after, one) == 1
    assert exact.ulps(one, after) == 1
    assert exact.ulps(-one, one) == 2**24
    assert exact.ulps(np.array([0.0]), np.array([5e-324])) == 1
    assert exact.ulps(np.array([0.0]), np.array([-0.0])) == 0
    assert exact.ulps(np.zeros(0), np.zeros(0)) == 0
    assert exact.ulps(np.array([np.inf], np.float32), np.array([1e39])) == 0
    for got, want in [(nan, 1.0), (1.0, nan), (inf, 1.0), (1.0, inf), (inf, -inf), (nan, inf)]:
        assert exact.ulps(np.array([got]), np.array([want])) == inf
    for value in (nan, inf, -inf):
        assert exact.ulps(np.array([value]), np.array([value])) == 0
    assert exact.ulps(np.array([257], BF16), np.array([257.0])) == 0.5
    with pytest.raises(PoolGradValueError, match="one shape"):
        exact.ulps(np.zeros(2), np.zeros(3))


def test_refusals() -> None:
    wide = Pool((Axis.regular(4096, 2048, stride=1),))
    with pytest.raises(PoolGradValueError, match=r"exact operations, more than exact\.LIMIT"):
        exact.gradient(wide, np.zeros(wide.output_size), "L")
    many = np.broadcast_to(np.float32(0), (2**30, 4, 2**10))
    with pytest.raises(PoolGradValueError, match=r"more than exact\.LIMIT"):
        exact.forward(Pool((Axis.regular(4, 2),)), many, "NLC")
    with pytest.raises(PoolGradValueError, match="spatial sizes"):
        exact.gradient(Pool((Axis.regular(4, 2),)), np.zeros(3), "L")
    with pytest.raises(PoolGradValueError, match="input_shape"):
        exact.avg_pool_grad(np.zeros((1, 2, 3)), (2, 4, 3), 2)
    with pytest.raises(PoolGradTypeError, match="pool must be"):
        exact.forward(None, np.zeros(3), "L")  # type: ignore[arg-type]
    with pytest.raises(PoolGradTypeError, match="dtype"):
        exact.forward(Pool((Axis.regular(4, 2),)), np.zeros(4, int), "L")
