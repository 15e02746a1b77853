"""More than 2³¹ elements: offsets that no 32-bit number holds, at both ends and across the line between them.

Needs about ten gigabytes of memory; run with -m slow.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import support

import poolgrad
from poolgrad import Axis, Pool

pytestmark = pytest.mark.slow

HALF = np.dtype(np.float16)


@pytest.fixture(autouse=True)
def _give_back() -> Iterator[None]:
    """What is freed may be kept for the next result; the next test needs the room."""
    yield
    from poolgrad.engines import _native

    _native.release_held()


def samples(size: int, seed: int) -> support.Array:
    """Positions at both ends, around 2³¹ elements and bytes, and at random."""
    edges = [0, 1, 2**30 - 1, 2**30, 2**31 - 1, 2**31, 2**31 + 1, size - 2, size - 1]
    drawn = np.random.default_rng(seed).integers(0, size, 20_000)
    return np.unique(np.concatenate([[e for e in edges if e < size], drawn]))


def whole_numbers(seed: int, shape: tuple[int, ...]) -> support.Array:
    """Multiples of 64 that float16 holds: their quotients by 64 are exact."""
    return (np.random.default_rng(seed).integers(-31, 32, shape) * 64).astype(HALF)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_gradient_with_a_result_of_more_than_two_to_the_31(layout: str) -> None:
    """8×8 windows, stride 8: every element of the result is one sixty-fourth of one cell."""
    pool = Pool((Axis.regular(1000, 8), Axis.regular(1048, 8)))
    shape = support.source_shape(pool, layout, 2, 1025, forwards=False)
    dy = whole_numbers(1, shape)
    dx = poolgrad.gradient(pool, dy, layout=layout)
    assert dx.size > 2**31
    at = np.array(np.unravel_index(samples(dx.size, 2), dx.shape))
    cells = [k // 8 if letter in "HW" else k for letter, k in zip(layout, at, strict=True)]
    support.assert_same_bits(dx[tuple(at)], dy[tuple(cells)] / HALF.type(64))
    for row in (0, dx.shape[1] // 2, dx.shape[1] - 1):
        got = dx[-1, row]
        again = np.repeat(np.repeat(dy[-1, row], 8, 0), 8, 1) if layout == "NCHW" else np.repeat(dy[-1, row // 8], 8, 0)
        support.assert_same_bits(got, again / HALF.type(64))


def test_gradient_of_global_pooling_beyond_two_to_the_31() -> None:
    dy = whole_numbers(3, (3, 1, 1, 1000))
    dx = poolgrad.adaptive_avg_pool_grad(dy, (3, 1024, 704, 1000))
    assert dx.size > 2**31
    want = (dy[:, 0, 0].astype(np.float32) / np.float32(1024 * 704)).astype(HALF)
    for n, row in ((0, 0), (1, 500), (2, 1023)):
        support.assert_same_bits(dx[n, row], np.broadcast_to(want[n], (704, 1000)))


def test_overlapping_gradient_beyond_two_to_the_31() -> None:
    """3×3 windows, stride 2, against the same rows computed as a region."""
    pool = Pool((Axis.regular(30_001, 3, stride=2), Axis.regular(2_203, 3, stride=2)))
    dy = whole_numbers(4, (1, *pool.output_size, 33))
    dx = poolgrad.gradient(pool, dy)
    assert dx.size > 2**31
    for a, b in ((0, 5), (14_770, 14_775), (29_533, 29_541), (29_996, 30_001)):
        region = [slice(a, b), slice(None)]
        rows, columns = pool.cells_for(region)
        want = support.compute("numpy", pool, dy[:, rows, columns], "NHWC", forwards=False, region=region)
        support.assert_same_bits(dx[:, a:b], want)


@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_forward_from_more_than_two_to_the_31(layout: str) -> None:
    """Rows of windows (channels, in NCHW) at both ends and in the middle, against the same ones pooled alone."""
    pool = Pool((Axis.regular(1000, 8), Axis.regular(1048, 8)))
    shape = support.source_shape(pool, layout, 2, 1025, forwards=True)
    x = np.empty(shape, dtype=HALF)
    assert x.size > 2**31
    pattern = whole_numbers(5, (shape[1] // 25, *shape[2:]))
    for k in range(0, shape[1], len(pattern)):
        x[0, k : k + len(pattern)] = pattern
        x[1, k : k + len(pattern)] = pattern[::-1]
    y = poolgrad.forward(pool, x, layout=layout)
    step, alone = (8, Pool((Axis.whole(8), pool.axes[1]))) if layout == "NHWC" else (1, pool)
    for n in (0, 1):
        for k in (0, y.shape[1] // 2, y.shape[1] - 1):
            part = x[n : n + 1, step * k : step * (k + 1)]
            support.assert_same_bits(y[n : n + 1, k : k + 1], support.compute("numpy", alone, part, layout, forwards=True))
