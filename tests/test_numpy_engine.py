"""The definition against the oracle: small errors that grow with the logarithm of the window, none where none is due."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import support
from checks import CASES, Case, assert_close, check_all, tolerance
from hypothesis import given
from hypothesis import strategies as st

from poolgrad import Axis, Pool, exact
from poolgrad.engines import numpy as numpy_engine
from poolgrad.tables import reach_of


def through_numpy(case: Case, dy: support.Array) -> support.Array:
    return support.compute("numpy", case.pool, dy, case.layout, forwards=False)


@pytest.mark.parametrize("case", CASES)
def test_laws(case: Case) -> None:
    check_all(through_numpy, case)


@given(pool=support.pools(), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_close_to_the_oracle(pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool) -> None:
    layout = data.draw(support.layouts(len(pool.axes)))
    source = support.random_array(seed, support.source_shape(pool, layout, 2, 3, forwards=forwards), dtype)
    oracle = exact.forward if forwards else exact.gradient
    got = support.compute("numpy", pool, source, layout, forwards=forwards)
    size = oracle(pool, abs(source), layout)
    assert_close(got, oracle(pool, source, layout), size, tolerance(pool, dtype, forwards=forwards))


@given(pool=support.pools(signed=False), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_equal_where_arithmetic_is_exact(pool: Pool, dtype: np.dtype[Any], seed: int, forwards: bool) -> None:
    """Small whole numbers over a power of two are exact in the accumulator; the one rounding is the oracle's."""
    pool = Pool(pool.axes, 4)
    layout = "0123"[: len(pool.axes)]
    source = support.random_array(seed, pool.input_size if forwards else pool.output_size, dtype, "whole")
    oracle = exact.forward if forwards else exact.gradient
    support.assert_same_bits(support.compute("numpy", pool, source, layout, forwards=forwards), oracle(pool, source, layout))


@pytest.mark.parametrize("size", [9, 64, 100, 1000, 4096])
@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_error_grows_with_the_logarithm(size: int, dtype: np.dtype[Any]) -> None:
    """Positive terms: each level of eights costs a few units of the last place, however long the window."""
    x = abs(support.random_array(size, (size,), dtype))
    pool = Pool((Axis.whole(size),))
    got = support.compute("numpy", pool, x, "L", forwards=True)
    assert exact.ulps(got, exact.forward(pool, x, "L")) <= (1 if dtype.itemsize == 2 else tolerance(pool, dtype, forwards=True))


def test_the_mean_of_many_ones_is_one() -> None:
    """Adding in ascending order would stop at 2^24."""
    x = np.ones((2**12, 2**13), dtype=np.float32)
    pool = Pool((Axis.whole(2**12), Axis.whole(2**13)))
    for name in ("numpy", "native"):
        assert support.compute(name, pool, x, "HW", forwards=True).tolist() == [[1.0]]


ORDERS = [
    (0, 8, (8,), "(((((((0+1)+2)+3)+4)+5)+6)+7)"),
    (3, 7, (9, 0), "(((3+4)+5)+6)"),
    (5, 19, (14, 1), "((((7+6)+5)+(((((((8+9)+10)+11)+12)+13)+14)+15))+((16+17)+18))"),
    (8, 16, (9, 1), "(((((((8+9)+10)+11)+12)+13)+14)+15)"),
    (6, 10, (9, 1), "((7+6)+(8+9))"),
]


@pytest.mark.parametrize(("lo", "hi", "reach", "want"), ORDERS)
def test_order_of_additions(lo: int, hi: int, reach: tuple[int, ...], want: str) -> None:
    """The contract's order, spelled out: terms that write down how they are added."""

    class Term(str):
        def __add__(self, other: str) -> Term:
            return Term(f"({self!s}+{other!s})")

    rows: dict[int, Any] = {c: Term(c) for c in range(32)}
    blocks = {}
    for block in range(4):
        total = rows[8 * block]
        for c in range(8 * block + 1, 8 * block + 8):
            total = total + rows[c]
        blocks[block] = total
    assert numpy_engine.interval_sum([rows, blocks], reach, lo, hi) == want


REACHES = [
    ([0], [8], (8,)),
    ([0], [9], (9, 1)),
    ([7], [16], (9, 1)),
    ([1], [16], (15, 1)),
    ([0], [72], (72, 9, 1)),
    ([0], [600], (600, 75, 9, 1)),
    ([3, 4], [3, 2], (0,)),
    ([], [], (0,)),
]


@pytest.mark.parametrize(("lo", "hi", "want"), REACHES)
def test_reach(lo: list[int], hi: list[int], want: tuple[int, ...]) -> None:
    assert reach_of(np.array(lo, dtype=np.int64), np.array(hi, dtype=np.int64)) == want
