"""The laws themselves: each check takes any implementation of the gradient and raises AssertionError if it breaks one.

The tests of the engines and the seeded-bug test run these same functions, so that what the one proves the other can lose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import support
from support import Array

from poolgrad import Axis, Pool, exact
from poolgrad.geometry import Region
from poolgrad.layout import spatial_positions

Gradient = Callable[["Case", Array], Array]


class Case(NamedTuple):
    """One gradient: a regular pooling with explicit pads, and the arrays it works on."""

    sizes: tuple[int, ...]
    window: tuple[int, ...]
    stride: tuple[int, ...]
    pads: tuple[tuple[int, int], ...]
    layout: str
    batch: int = 2
    channels: int = 3
    count: str = "inside"

    @property
    def pool(self) -> Pool:
        rows = zip(self.sizes, self.window, self.stride, self.pads, strict=True)
        return Pool(tuple(Axis.regular(n, k, stride=s, padding=p, count=self.count) for n, k, s, p in rows))

    @property
    def dy_shape(self) -> tuple[int, ...]:
        return support.source_shape(self.pool, self.layout, self.batch, self.channels, forwards=False)

    @property
    def input_shape(self) -> tuple[int, ...]:
        return support.result_shape(self.pool, self.dy_shape, self.layout, forwards=False)

    @property
    def spatial(self) -> tuple[int, ...]:
        return spatial_positions(self.layout, len(self.layout))


CASES = [
    Case((9,), (3,), (2,), ((1, 2),), "NLC"),
    Case((7, 10), (3, 2), (2, 3), ((1, 1), (0, 1)), "NHWC"),
    Case((10, 7), (2, 3), (1, 2), ((1, 0), (2, 1)), "NCHW", count="padded"),
    Case((6, 6), (2, 4), (1, 2), ((1, 1), (1, 3)), "NHWC", channels=11),
    Case((6, 6), (4, 4), (1, 2), ((3, 0), (0, 3)), "CWHN", count="window"),
    Case((23, 5), (13, 2), (1, 1), ((5, 7), (1, 0)), "HWC", channels=9),
    Case((5, 4, 6), (2, 3, 2), (1, 2, 3), ((1, 0), (1, 1), (0, 1)), "NDHWC"),
    Case((3, 4, 3, 5), (2, 2, 3, 2), (1, 2, 1, 2), ((1, 0), (0, 1), (1, 1), (0, 0)), "N0123C", batch=1, channels=2),
]


def tolerance(pool: Pool, dtype: np.dtype[Any], *, forwards: bool = False) -> float:
    """Units of the last place allowed: one for the division and the last rounding, half for each addition in a row.

    Half types add in float32, where all but the last rounding vanishes.
    """
    if dtype.itemsize == 2:
        return 1.0
    pieces = pool.forward_pieces() if forwards else pool.gradient_pieces()
    return 1 + 0.5 * max(sum(_depth(table.reach[0]) for table in piece.sums.tables) for piece in pieces)


def _depth(reach: int) -> int:
    """Additions in a row over an interval: at most seven, or seven in a block, two to join, and those of the blocks."""
    return max(reach - 1, 0) if reach <= 8 else 9 + _depth(reach // 8)


def check_oracle(gradient: Gradient, case: Case, dtype: np.dtype[Any]) -> None:
    """Within a few units of the last place of the sum of the absolute values, which cancellation cannot hide behind."""
    dy = support.random_array(11, case.dy_shape, dtype)
    got, want = gradient(case, dy), exact.gradient(case.pool, dy, case.layout)
    assert got.shape == want.shape, f"shape {got.shape}, not {want.shape}"
    assert got.dtype == want.dtype, f"dtype {got.dtype}, not {want.dtype}"
    assert_close(got, want, exact.gradient(case.pool, abs(dy), case.layout), tolerance(case.pool, dtype))


def assert_close(got: Array, want: Array, size: Array, allowed: float) -> None:
    """`got` is within `allowed` units of the last place at `size`, the same sum over absolute values."""
    assert got.shape == want.shape, f"shape {got.shape}, not {want.shape}"
    wide = got.astype(np.float64) - want.astype(np.float64)
    after = np.nextafter(abs(size), np.array(np.inf, dtype=size.dtype))
    unit = after.astype(np.float64) - abs(size).astype(np.float64)
    worst = float(np.max(abs(wide) / unit, initial=0.0))
    assert worst <= allowed, f"{worst} units of the last place, {allowed} allowed"


def check_exact(gradient: Gradient, case: Case) -> None:
    """Where every quotient and sum is representable, the answer is the oracle's to the bit."""
    divisors = [int(np.lcm.reduce(axis.count)) for axis in case.pool.axes]
    dy = support.random_array(12, case.dy_shape, np.dtype(np.float64), "whole") * np.prod(divisors)
    support.assert_same_bits(gradient(case, dy), exact.gradient(case.pool, dy, case.layout))


def check_adjoint(gradient: Gradient, case: Case) -> None:
    """⟨A x, y⟩ = ⟨x, Aᵀ y⟩ with whole numbers, hence exactly."""
    divisors = int(np.prod([np.lcm.reduce(axis.count) for axis in case.pool.axes]))
    x = support.random_array(13, case.input_shape, np.dtype(np.float64), "whole") * divisors
    y = support.random_array(14, case.dy_shape, np.dtype(np.float64), "whole") * divisors
    left = np.vdot(exact.forward(case.pool, x, case.layout), y)
    right = np.vdot(x, gradient(case, y))
    assert left == right, f"⟨A x, y⟩ = {left}, ⟨x, Aᵀ y⟩ = {right}"


def check_bits(gradient: Gradient, case: Case, dtype: np.dtype[Any]) -> None:
    """The bits of the NumPy engine, which is the definition."""
    dy = support.random_array(15, case.dy_shape, dtype)
    support.assert_same_bits(gradient(case, dy), support.compute("numpy", case.pool, dy, case.layout, forwards=False))


def check_reach(gradient: Gradient, case: Case) -> None:
    """A NaN in one cell of `dy` reaches its window and nothing else."""
    pool = case.pool
    for cell in _corners(pool.output_size):
        dy = np.ones(case.dy_shape, dtype=np.float32)
        support.at(dy, case.spatial, [slice(o, o + 1) for o in cell])[...] = np.nan
        want = np.zeros(case.input_shape, dtype=bool)
        window = [slice(int(a.start[o]), int(a.stop[o]), a.step) for a, o in zip(pool.axes, cell, strict=True)]
        support.at(want, case.spatial, window)[...] = True
        assert (np.isnan(gradient(case, dy)) == want).all(), f"a NaN in cell {cell} reaches other inputs than its window"


def _corners(sizes: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    for corner in np.ndindex(*(min(n, 2) for n in sizes)):
        yield tuple(n - 1 if end else 0 for n, end in zip(sizes, corner, strict=True))


def check_all(gradient: Gradient, case: Case) -> None:
    """Every law above."""
    check_exact(gradient, case)
    check_adjoint(gradient, case)
    check_reach(gradient, case)
    for dtype in support.DTYPES:
        check_oracle(gradient, case, dtype)
        check_bits(gradient, case, dtype)


def cuts(sizes: tuple[int, ...]) -> Iterator[Region]:
    """Boxes that together are the whole: the first axis in uneven stripes, the others halved."""
    stripes = [(a, min(a + 3, sizes[0])) for a in range(0, sizes[0], 3)]
    for a, b in stripes:
        for halves in np.ndindex(*(2,) * (len(sizes) - 1)):
            yield [slice(a, b), *(slice(n // 2 * h, (n // 2, n)[h]) for n, h in zip(sizes[1:], halves, strict=True))]
