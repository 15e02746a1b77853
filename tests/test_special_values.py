"""NaN, infinities, signed zeros, subnormals, overflow; and the caller's own floating-point modes."""

from __future__ import annotations

import ctypes
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf, nan
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import support
from checks import CASES, Case, check_reach
from hypothesis import given
from hypothesis import strategies as st

import poolgrad
from poolgrad import Axis, Pool, exact


@pytest.mark.parametrize("case", CASES)
def test_a_nan_reaches_its_window(case: Case) -> None:
    check_reach(lambda c, dy: poolgrad.gradient(c.pool, dy, layout=c.layout), case)


@given(pool=support.pools(), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_specials_are_where_the_oracle_has_them(
    pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool
) -> None:
    """Infinities of each sign and NaN land on the same elements; what is finite stays so."""
    layout = data.draw(support.layouts(len(pool.axes)))
    shape = support.source_shape(pool, layout, 2, 3, forwards=forwards)
    rng = np.random.default_rng(seed)
    source = support.random_array(seed, shape, dtype)
    odd = np.array([nan, inf, -inf])[rng.integers(0, 3, shape)]
    source = np.where(rng.random(shape) < 0.1, odd, source.astype(np.float64)).astype(dtype)
    oracle, run = (exact.forward, poolgrad.forward) if forwards else (exact.gradient, poolgrad.gradient)
    got, want = run(pool, source, layout=layout), oracle(pool, source, layout)
    for special in (np.isnan, np.isposinf, np.isneginf):
        wide = got.astype(np.float64), want.astype(np.float64)
        assert (special(wide[0]) == special(wide[1])).all()


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize("window", [2, 9, 40, 80])
def test_one_infinity_in_a_long_window(window: int, dtype: np.dtype[Any]) -> None:
    """Running sums with subtraction would smear it over every later element."""
    pool = Pool((Axis.regular(200, window, stride=1),))
    for special in (nan, inf, -inf):
        dy = np.ones(pool.output_size, dtype=dtype)
        dy[77] = special
        got = poolgrad.gradient(pool, dy, layout="L")
        assert (~np.isfinite(got)).nonzero()[0].tolist() == list(range(77, 77 + window))


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_infinities_of_both_signs_make_nan(dtype: np.dtype[Any]) -> None:
    x = np.array([inf, 1, -inf, 1, 1]).astype(dtype)
    got = poolgrad.avg_pool(x, 2, stride=1, layout="L").astype(np.float64)
    support.assert_same_bits(got, np.array([inf, -inf, -inf, 1]))
    got = poolgrad.avg_pool(x, 3, stride=1, layout="L").astype(np.float64)
    support.assert_same_bits(got, np.array([nan, -inf, -inf]))


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize("layout", ["NLC", "NCL"])
def test_zeros_keep_their_sign(dtype: np.dtype[Any], layout: str) -> None:
    """A lone -0.0 stays; with any +0.0 it is +0.0; what no window reaches is +0.0."""
    dy = np.array([-0.0, -0.0, 0.0, -0.0]).astype(dtype)
    want = np.array([-0.0, -0.0, 0.0, 0.0, 0.0, -0.0, -0.0, 0.0]).astype(dtype)
    pool = Pool((Axis(8, [0, 1, 2, 5], [2, 3, 4, 7], [2, 2, 2, 2]),))
    support.assert_same_bits(exact.gradient(pool, dy, "L"), want)
    order = (0, 1, 2) if layout == "NLC" else (0, 2, 1)
    for channels in (1, 3, 16, 33):
        shaped = np.broadcast_to(dy[None, :, None], (1, 4, channels)).transpose(order)
        expected = np.broadcast_to(want[None, :, None], (1, 8, channels)).transpose(order)
        support.assert_same_bits(poolgrad.gradient(pool, np.ascontiguousarray(shaped), layout=layout), expected)


@pytest.mark.parametrize("forwards", [False, True], ids=["gradient", "forward"])
@given(pool=support.pools(), data=st.data(), dtype=support.dtypes, seed=support.seeds)
def test_zeros_are_the_oracles(forwards: bool, pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int) -> None:
    layout = data.draw(support.layouts(len(pool.axes)))
    shape = support.source_shape(pool, layout, 2, 5, forwards=forwards)
    source = np.array([-0.0, -0.0, -0.0, 0.0])[np.random.default_rng(seed).integers(0, 4, shape)].astype(dtype)
    oracle, run = (exact.forward, poolgrad.forward) if forwards else (exact.gradient, poolgrad.gradient)
    support.assert_same_bits(run(pool, source, layout=layout), oracle(pool, source, layout))


def hard_to_divide(dtype: np.dtype[Any], d: int) -> Any:
    """Quotients by d next to the middle between two numbers; any bits; both zeros; subnormal quotients, some half-way."""
    rng, bits = np.random.default_rng(d), np.finfo(dtype).nmant + 1
    middles = 2 * rng.integers(2 ** (bits - 1), 2**bits, 3000) + 1
    near = np.array([float(int(m) * d) for m in middles]).astype(dtype)
    near = np.concatenate([near, np.nextafter(near, dtype.type(0)), np.nextafter(near, dtype.type(inf))])
    wild = rng.integers(0, 256, 3000 * dtype.itemsize, dtype=np.uint8).view(dtype)
    least = np.finfo(dtype).tiny * dtype.type(d)
    small = least * rng.random(3000, dtype=dtype.type) * 2
    ties = np.arange(1, 2001, 2).astype(dtype) * dtype.type(d / 2) * np.finfo(dtype).smallest_subnormal  # of an even d
    values = np.concatenate([near, -near, wild, small, ties, np.zeros(99, dtype), -np.zeros(99, dtype)])
    return rng.permutation(values)


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)], ids=str)
@pytest.mark.parametrize("divisor", [3, 6, 7, 9, 36, 49, 225, 729, 3969, 65535, 65536, 65537, 2**24 + 2, 2**62 + 1, -9])
def test_quotients_are_correctly_rounded(divisor: int, dtype: np.dtype[Any]) -> None:
    dy = hard_to_divide(dtype, abs(divisor))
    with np.errstate(all="ignore"):
        want = dy / dtype.type(divisor)
    pool = Pool((Axis.regular(len(dy), 1),), divisor)
    for run in (poolgrad.gradient, poolgrad.forward):
        support.assert_same_bits(run(pool, dy, layout="L"), want)
        support.assert_same_bits(run(pool, dy[:, None].repeat(32, 1), layout="LC"), want[:, None].repeat(32, 1))


@pytest.mark.parametrize("dtype", [np.dtype(np.float32), np.dtype(np.float64)], ids=str)
@pytest.mark.parametrize("size", [3, 15, 63, 257])
def test_quotients_by_counts_that_differ(size: int, dtype: np.dtype[Any]) -> None:
    """A padded window has another count in every column near an edge; with few channels they are divided as one row."""
    pool = Pool((Axis.regular(size, size, stride=1, padding="same"), Axis.regular(size, size, stride=1, padding="same")))
    dy = np.resize(hard_to_divide(dtype, size * size), (2, 3, size, size))
    support.assert_same_bits(
        support.compute("native", pool, dy, "NCHW", forwards=False), support.compute("numpy", pool, dy, "NCHW", forwards=False)
    )


@pytest.mark.parametrize("name", ["numpy", "native"])
@pytest.mark.parametrize("divisor", [None, 3])
def test_empty_windows_are_plus_zero(name: str, divisor: int | None) -> None:
    """Never divided by, so the sign of a constant divisor does not reach them."""
    pool = Pool((Axis.fractional(4, [0, 2, 2, 4], allow_empty=True),), divisor)
    x = np.array([nan, inf, -0.0, -0.0])
    support.assert_same_bits(support.compute(name, pool, x, "L", forwards=True), exact.forward(pool, x, "L"))


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize("forwards", [False, True], ids=["gradient", "forward"])
def test_subnormals(dtype: np.dtype[Any], forwards: bool) -> None:
    """Whole multiples of the least subnormal add exactly; quotients round to even in the subnormal range."""
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    pool = Pool((Axis.regular(9, 2), Axis.regular(7, 3, stride=2)), 4)
    source = support.random_array(1, (*(pool.input_size if forwards else pool.output_size), 17), dtype, "whole")
    source = (source.astype(np.float64) * tiny * 2).astype(dtype)
    assert len(np.unique(source)) > 5
    oracle, run = (exact.forward, poolgrad.forward) if forwards else (exact.gradient, poolgrad.gradient)
    support.assert_same_bits(run(pool, source, layout="HWC"), oracle(pool, source, "HWC"))


def test_half_types_do_not_overflow_on_the_way() -> None:
    """A sum of 65504s is beyond float16, their mean is not."""
    x = np.full((8, 8), 65504, dtype=np.float16)
    assert (poolgrad.avg_pool(x, 4, layout="HW") == 65504).all()
    assert (poolgrad.avg_pool(x, 4, layout="HW", divisor=15) == np.inf).all()
    dy = np.full((4, 4), 65504, dtype=np.float16)
    assert poolgrad.avg_pool_grad(dy, (5, 5), 2, stride=1, layout="HW").max() == 65504


HALVES = [
    ([65504, 15], 1, 65504),
    ([65504, 16], 1, inf),
    ([-65504, -16], 1, -inf),
    ([2**-24, 0], 2, 0.0),
    ([2**-24, 2**-23], 2, 2**-23),
    ([2048, 1], 1, 2048),
    ([2048, 3], 1, 2052),
]


@pytest.mark.parametrize(("x", "divisor", "want"), HALVES)
def test_rounding_to_half(x: list[float], divisor: int, want: float) -> None:
    """Added in float32, then one rounding to the nearest, ties to even."""
    assert poolgrad.avg_pool(np.array(x, dtype=np.float16), 2, layout="L", divisor=divisor).tolist() == [want]


LIBC_ROUNDING = {"x86_64": 0x800, "AMD64": 0x800, "aarch64": 0x400000, "arm64": 0x400000}


@contextmanager
def flushing() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    if not torch.set_flush_denormal(True):
        pytest.skip("this machine cannot flush subnormals")
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@contextmanager
def rounding_upward() -> Iterator[None]:
    if sys.platform != "linux" or platform.machine() not in LIBC_ROUNDING:
        pytest.skip("no way to set the rounding mode here")
    libc = ctypes.CDLL(None)
    libc.fesetround(LIBC_ROUNDING[platform.machine()])
    try:
        yield
    finally:
        libc.fesetround(0)


def small(dtype: np.dtype[Any], *shape: int) -> support.Array:
    tiny = float(ml_dtypes.finfo(dtype).smallest_normal)
    return (support.random_array(2, shape, np.dtype(np.float64)) * tiny).astype(dtype)


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize("mode", [flushing, rounding_upward])
@pytest.mark.parametrize("shape", [(2, 6, 7, 5), (3, 64, 67, 9)], ids=["small", "split"])
def test_the_callers_modes_are_set_aside(mode: Any, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    """Nothing kept from before: the plan, too, is made under the caller's mode."""
    pool = Pool((Axis.regular(shape[1], 3, stride=1, padding="same"), Axis.regular(shape[2], 3, stride=2)))
    dy, x = small(dtype, *support.result_shape(pool, shape, "NHWC", forwards=True)), small(dtype, *shape)
    want = [support.compute("numpy", pool, a, "NHWC", forwards=f) for a, f in ((dy, False), (x, True))]
    pieces = pool.gradient_pieces(), pool.forward_pieces()
    results = [np.empty_like(w) for w in want]
    one, tiny = np.float32(1), np.float32(1e-40)
    poolgrad.engines.engine("native")
    with mode():
        changed_before = (tiny * one == 0, one + np.float32(1e-8) != one)
        for (piece,), source, result in zip(pieces, (dy, x), results, strict=True):
            poolgrad.engines.engine("native").run(piece.sums, source, result, (1, 2), accumulate=False, threads=2)
        changed_after = (tiny * one == 0, one + np.float32(1e-8) != one)
    assert any(changed_before), "the mode did not take"
    assert changed_after == changed_before, "the caller's mode was not restored"
    assert (tiny * one != 0, one + np.float32(1e-8) == one) == (True, True)
    for got, expected in zip(results, want, strict=True):
        support.assert_same_bits(got, expected)
