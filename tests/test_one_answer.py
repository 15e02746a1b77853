"""One answer: the bits of the NumPy engine for every engine, instruction set, thread count, layout, region and memory.

Work below 32,768 elements stays on one thread and results of 32 MiB or more are written past the cache, so the tables
below have small, split and large cases; their extents are odd so that no row fills its last vector.
"""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import support
from checks import CASES, Case, check_all, cuts
from hypothesis import given
from hypothesis import strategies as st

import poolgrad
from poolgrad import Axis, Pool
from poolgrad.layout import spatial_positions

native = pytest.importorskip("poolgrad.engines.native")


def through_native(case: Case, dy: support.Array) -> support.Array:
    return support.compute("native", case.pool, dy, case.layout, forwards=False, threads=3)


@pytest.mark.parametrize("case", CASES)
def test_laws(case: Case, isa: str) -> None:
    with support.instruction_set(isa):
        check_all(through_native, case)


class Split(NamedTuple):
    """A pooling whose arrays are large enough to be shared among threads."""

    pool: Pool
    layout: str
    batch: int
    channels: int


def regular(
    sizes: tuple[int, ...], window: int | tuple[int, ...], stride: int | tuple[int, ...] | None = None, **options: Any
) -> Pool:
    windows = (window,) * len(sizes) if isinstance(window, int) else window
    strides = stride if isinstance(stride, tuple) else (stride,) * len(sizes)
    return Pool(tuple(Axis.regular(n, k, stride=s, **options) for n, k, s in zip(sizes, windows, strides, strict=True)))


def uneven(size: int, overlapping: bool = True) -> Axis:
    """Cells of one input and of two (of two and three, if they overlap), unevenly mixed."""
    edges = [0]
    while edges[-1] < size:
        edges.append(min(edges[-1] + 1 + len(edges) ** 2 // 3 % 2, size))
    return Axis.fractional(size, edges, overlapping=overlapping)


SPLIT = {
    "2x2 s2 NHWC": Split(regular((37, 53), 2), "NHWC", 3, 19),
    "2x2 s2 NCHW": Split(regular((37, 53), 2), "NCHW", 3, 19),
    "2x2 s2 NCHW, every cell twice": Split(regular((37, 54), 2), "NCHW", 3, 19),
    "2x2 s2 NCHW, every cell of a short row twice": Split(regular((97, 14), 2), "NCHW", 5, 19),
    "2x2x2 s2, every cell twice": Split(regular((7, 9, 70), 2, stride=2), "NCDHW", 2, 11),
    "3x3 s2 same NHWC": Split(regular((41, 43), 3, stride=2, padding="same"), "NHWC", 2, 17),
    "3x3 s2 same NCHW": Split(regular((41, 43), 3, stride=2, padding="same"), "NCHW", 5, 7),
    "3x3 s1 same one channel": Split(regular((131, 257), 3, stride=1, padding="same"), "HW", 1, 1),
    "3x3 s1 same three channels": Split(regular((131, 127), 3, stride=1, padding="same"), "HWC", 1, 3),
    "5x4 s3,2 explicit": Split(
        Pool((Axis.regular(67, 5, stride=3, padding=(2, 1)), Axis.regular(59, 4, stride=2, padding=(0, 3)))), "NHWC", 3, 7
    ),
    "global": Split(Pool((Axis.whole(7), Axis.whole(7))), "NHWC", 9, 129),
    "global NCHW": Split(Pool((Axis.whole(7), Axis.whole(7))), "NCHW", 9, 129),
    "halves": Split(Pool((Axis.regular(41, 3, stride=2, padding=1), Axis.regular(95, 2, padding=(1, 0)))), "NCHW", 3, 7),
    "halves of long rows": Split(regular((6, 50021), 3, stride=2, padding="same"), "NCHW", 1, 2),
    "halves of three cells": Split(regular((29, 90), 3, stride=2, padding="same"), "NCHW", 5, 7),
    "halves of three cells, padded, windows counted": Split(
        Pool((Axis.regular(9, 2), Axis.regular(14, 3), Axis.regular(77, 3, stride=2, padding=(2, 2), count="window"))),
        "NCDHW",
        3,
        11,
    ),
    "one cell for all positions": Split(Pool((Axis.whole(3), Axis.whole(5), Axis.whole(4))), "NDHWC", 7, 96),
    "one cell for all positions, channels cut": Split(Pool((Axis.whole(3), Axis.whole(4))), "NHWC", 1, 3 * 4096),
    "one cell, a constant divisor": Split(Pool((Axis.whole(3), Axis.whole(5)), divisor=-7), "HNWC", 53, 48),
    "global of a large image": Split(Pool((Axis.whole(211), Axis.whole(197))), "NCHW", 1, 3),
    "global of images of any size": Split(Pool((Axis.whole(3), Axis.whole(75), Axis.whole(13))), "NCDHW", 3, 21),
    **{
        f"global of images {n} wide": Split(Pool((Axis.whole(5), Axis.whole(n))), "NCHW", 61, 149)
        for n in (1, 2, 3, 4, 5, 6, 8, 9)
    },
    "one cell for each image, a constant divisor": Split(Pool((Axis.whole(9), Axis.whole(11)), divisor=-7), "NCHW", 37, 41),
    "rows of several chunks": Split(regular((9, 67), 3, stride=1, padding="same"), "NHWC", 2, 48),
    "rows of several chunks, the last one short": Split(regular((10, 71), (2, 3), stride=1, padding="same"), "NHWC", 1, 83),
    "short windows, whole lines": Split(regular((26, 38), (3, 2), stride=2, padding="same"), "NHWC", 2, 64),
    "windows side by side, whole lines": Split(regular((27, 38), (2, 3)), "NHWC", 2, 64),
    "pairs of cells": Split(
        Pool((Axis.regular(25, 3, stride=2, padding=1), Axis.regular(38, 5, stride=3, padding=(1, 2)))), "NHWC", 2, 96
    ),
    "pairs of cells, fractional": Split(
        Pool((Axis.fractional(40, [0, 1, 3, 4, *range(6, 41, 2)], overlapping=True), Axis.fractional(33, [*range(0, 34, 3)]))),
        "NHWC",
        2,
        48,
    ),
    "pairs of cells, many rows of each": Split(
        Pool((Axis.regular(53, 9, stride=8, padding=4), Axis.regular(31, 2, stride=1, padding=1))), "NHWC", 2, 64
    ),
    "pairs of cells, more of them than positions": Split(Pool((Axis.adaptive(13, 26), Axis.adaptive(11, 21))), "NHWC", 2, 160),
    "pairs of cells, channels cut": Split(regular((4, 5), 3, stride=2, padding="same"), "NHWC", 1, 4096),
    "steps of two": Split(regular((41, 90), 3, stride=2, padding="same"), "NCHW", 3, 7),
    "steps of two, padded": Split(regular((41, 93), 3, stride=2, padding=1), "NCHW", 3, 7),
    "steps of two, padded by two": Split(
        Pool((Axis.regular(37, 5, stride=3, padding=2), Axis.regular(124, 3, stride=2, padding=2)), divisor=-7), "NCHW", 3, 7
    ),
    "steps of two, small images": Split(regular((13, 30), 3, stride=2, padding=1), "NCHW", 11, 19),
    "steps of two, side by side": Split(regular((40, 94), 2), "NCHW", 3, 7),
    "steps of two, side by side, rows shared": Split(
        Pool((Axis.regular(39, 3, stride=2, padding=1), Axis.regular(123, 2, padding=(0, 1)))), "NCHW", 3, 7
    ),
    "few cells anywhere": Split(Pool((uneven(47), uneven(109))), "NCHW", 3, 7),
    "few cells anywhere, side by side": Split(Pool((uneven(39, False), uneven(131)), divisor=-7), "NCHW", 3, 7),
    "few cells anywhere, small images": Split(Pool((Axis.adaptive(17, 12), Axis.adaptive(50, 37))), "NCHW", 7, 19),
    "few cells anywhere, steps of three": Split(regular((37, 128), 4, stride=3, padding="same"), "NCHW", 3, 7),
    "few cells anywhere, long rows": Split(Pool((uneven(5), uneven(8100))), "NHW", 2, 1),
    "short windows of three axes": Split(regular((6, 14, 11), (2, 2, 2), stride=2), "NDHWC", 3, 37),
    "nine planes of one cell": Split(regular((20, 5, 7), (9, 1, 1), stride=1), "NDHWC", 2, 32),
    "short windows of uneven steps": Split(
        Pool((Axis.fractional(11, [0, 2, 3, 5, 8, 11]), Axis.fractional(15, [0, 1, 3, 5, 6, 8, 11, 12, 15])), divisor=5),
        "NHWC",
        5,
        48,
    ),
    "windows that slide": Split(regular((26, 37), 3, stride=1, padding="same"), "NHWC", 2, 64),
    "windows that slide, valid": Split(regular((24, 33), 3, stride=1), "NHWC", 2, 32),
    "windows that slide, padded on one side": Split(
        Pool((Axis.regular(23, 3, stride=1, padding=(2, 0)), Axis.regular(31, 3, stride=1, padding=(0, 2)))), "NHWC", 2, 96
    ),
    "windows that slide, channels of the batch": Split(regular((19, 21), 3, stride=1, padding="same"), "CHWN", 64, 3),
    "windows that slide along three axes": Split(regular((7, 13, 18), (3, 2, 3), stride=1, padding="same"), "NDHWC", 2, 32),
    "windows of two cells that slide along three axes": Split(
        regular((8, 11, 14), (2, 3, 2), stride=1, padding="same"), "NDHWC", 2, 32
    ),
    "windows that slide along three axes, several boxes": Split(regular((5, 61, 47), 3, stride=1, padding=1), "NDHWC", 1, 64),
    "windows that slide along three axes, channels cut": Split(regular((4, 6, 5), 3, stride=1, padding="same"), "DHCWN", 608, 3),
    **{
        f"windows that slide over {n} lanes": Split(regular((26, n), 3, stride=1, padding="same"), "NCHW", 9, 31)
        for n in (5, 16, 35, 61, 65, 131)
    },
    **{
        f"narrow images, {n} wide": Split(regular((13, n), 3, stride=1, padding="same"), "NCHW", 9, 61)
        for n in (3, 5, 14, 19, 35)
    },
    "narrow images, cells of which fewer are needed": Split(
        Pool((Axis.regular(15, 3, stride=1), Axis.regular(11, 3, stride=1, padding=1, count="window"))), "NCHW", 7, 67
    ),
    "narrow images, a constant divisor": Split(
        Pool((Axis.regular(12, 3, stride=1, padding=2), Axis.regular(19, 3, stride=1, padding=1)), divisor=7), "NCHW", 7, 67
    ),
    "windows that slide over lanes, valid": Split(regular((24, 33), 3, stride=1), "NCHW", 5, 21),
    "windows that slide over lanes, a constant divisor": Split(
        Pool((Axis.regular(23, 3, stride=1, padding=(0, 2)), Axis.regular(64, 3, stride=1, padding=(2, 1))), divisor=-5),
        "NCHW",
        3,
        21,
    ),
    "windows that slide over lanes, padded to both sides": Split(
        Pool((Axis.regular(21, 3, stride=1, padding=(2, 1)), Axis.regular(47, 3, stride=1, padding=(1, 2), count="window"))),
        "NCHW",
        5,
        19,
    ),
    "windows that slide over lanes of three axes": Split(
        regular((7, 13, 61), (3, 3, 3), stride=1, padding="same"), "NCDHW", 2, 7
    ),
    "windows that slide over lanes of three axes, valid": Split(regular((8, 11, 79), (2, 3, 3), stride=1), "NCDHW", 2, 5),
    "windows that slide over lanes, two rows at a time": Split(regular((7, 13, 61), (3, 2, 3), stride=1), "NCDHW", 2, 5),
    "windows that slide over lanes, several boxes": Split(regular((5, 161, 147), 3, stride=1, padding=1), "DHW", 1, 1),
    "windows that slide over lanes of a tall image": Split(regular((901, 47), 3, stride=1, padding=1), "HW", 1, 1),
    "windows that slide over lanes of three axes, a negative divisor": Split(
        Pool(
            (
                Axis.regular(13, 2, stride=1, padding=1),
                Axis.regular(5, 3, stride=1),
                Axis.regular(70, 3, stride=1, padding=(0, 2)),
            ),
            divisor=-5,
        ),
        "NCDHW",
        3,
        5,
    ),
    "a last column that no window holds": Split(
        Pool((Axis.regular(13, 3, stride=1, padding=(0, 2)), Axis.regular(64, 2, stride=2, padding=(1, 0)))), "NCHW", 2, 17
    ),
    "window 15 of many channels": Split(regular((61, 67), 15, stride=1, padding="same"), "NHWC", 1, 48),
    "window 15": Split(regular((61, 67), 15, stride=1, padding="same"), "NHWC", 2, 9),
    "window 15 NCHW": Split(regular((61, 67), 15, stride=1, padding="same"), "NCHW", 2, 9),
    "window 63 s1": Split(regular((101, 97), 63, stride=1, padding="same"), "NHWC", 1, 13),
    "window 63 s1 NCHW": Split(regular((101, 97), 63, stride=1, padding="same"), "NCHW", 2, 5),
    "window 127 s1 narrow": Split(regular((300, 11), (127, 3), stride=1, padding="same"), "NHWC", 1, 12),
    "windows beyond 72": Split(Pool((Axis.regular(9, 3, stride=2), Axis.regular(900, 85, stride=1))), "CHWN", 7, 3),
    "windows beyond 600 NLC": Split(Pool((Axis.regular(2000, 701, stride=1, padding="same"),)), "NLC", 2, 33),
    "windows beyond 600 NCL": Split(Pool((Axis.regular(2000, 701, stride=1, padding="same"),)), "NCL", 3, 11),
    "windows beyond 600 L": Split(Pool((Axis.regular(40000, 4999, stride=1, padding="same"),)), "L", 1, 1),
    "windows as long as the axis": Split(regular((83, 61), (83, 61), stride=1, padding="same"), "NHWC", 2, 5),
    "stride beyond the window": Split(regular((101, 103), (2, 3), stride=5), "NHWC", 3, 9),
    "long and strided": Split(regular((301, 29), (41, 13), stride=3, padding="same"), "NWHC", 3, 6),
    "dilated": Split(regular((63, 71), (3, 4), stride=2, dilation=3, padding="same"), "NHWC", 3, 8),
    "dilated and long": Split(regular((301, 29), (21, 3), stride=1, dilation=2, padding="same"), "NCHW", 2, 5),
    "adaptive down": Split(Pool((Axis.adaptive(61, 7), Axis.adaptive(53, 9))), "NHWC", 3, 11),
    "adaptive up": Split(Pool((Axis.adaptive(31, 45), Axis.adaptive(29, 64))), "NCHW", 4, 6),
    "fractional": Split(
        Pool((Axis.fractional(60, [*range(0, 50, 3), 60], overlapping=True), Axis.fractional(41, [0, 7, 9, 30, 41]))),
        "NHWC",
        3,
        13,
    ),
    "constant divisor": Split(Pool((Axis.regular(45, 4, stride=3, padding=2), Axis.regular(51, 3)), divisor=-7), "CNHW", 5, 4),
    "three axes": Split(regular((17, 19, 23), (3, 2, 3), stride=2, padding="same"), "NDHWC", 2, 5),
    "three axes NCDHW": Split(regular((17, 19, 23), (2, 3, 2), stride=1, padding="same"), "NCDHW", 2, 3),
    "three axes, long": Split(regular((19, 23, 29), 9, stride=1, padding="same"), "NDHWC", 1, 7),
    "three axes, strides 4 3 2": Split(
        Pool(tuple(Axis.regular(n, 2, stride=s, padding="same") for n, s in ((32, 4), (31, 3), (30, 2)))), "NDHWC", 2, 6
    ),
    "planes side by side": Split(regular((8, 18, 22), 2), "NDHWC", 3, 32),
    "planes side by side, one channel": Split(regular((8, 18, 62), 2), "NCDHW", 2, 7),
    "planes and rows of nothing": Split(regular((11, 17, 22), 2, stride=(5, 4, 2)), "NDHWC", 3, 64),
    "planes and rows of nothing, one channel": Split(regular((11, 17, 62), 2, stride=(5, 4, 2)), "NCDHW", 2, 7),
    "planes and rows of nothing, windows of three": Split(
        Pool((Axis.regular(23, 3, stride=5), Axis.regular(19, 3, stride=4), Axis.regular(64, 3, stride=2, padding=1))), "NDCHW", 2, 7
    ),
    "planes anywhere": Split(Pool((uneven(13, False), uneven(17), uneven(65))), "NDCHW", 2, 5),
    "planes anywhere, under one divisor": Split(Pool((uneven(13, False), uneven(17), uneven(21)), divisor=-7), "NDHWC", 2, 32),
    "planes that slide": Split(regular((9, 25, 26), (1, 3, 3), stride=1, padding="same"), "NDHWC", 2, 32),
    "planes that slide, one channel": Split(regular((9, 25, 61), (1, 3, 3), stride=1, padding="same"), "NCDHW", 2, 7),
    "planes left out, one channel": Split(
        Pool((Axis.regular(14, 1, stride=2), *(Axis.regular(n, 3, stride=1, padding=1) for n in (25, 61)))), "NCDHW", 3, 7
    ),
    "planes in between": Split(regular((25, 9, 26), (3, 1, 2), stride=1, padding="same"), "NDHWC", 2, 24),
    "columns": Split(regular((25, 29), (5, 1), stride=1, padding="same"), "NHWC", 2, 32),
    "columns, one channel": Split(regular((25, 61), (11, 1), stride=1, padding="same"), "NCHW", 3, 19),
    "rows": Split(regular((25, 29), (1, 11), stride=1, padding="same", count="window"), "NHWC", 2, 32),
    "rows, one channel": Split(regular((25, 61), (1, 5), stride=1, padding="same"), "NCHW", 3, 19),
    "four axes, planes of planes": Split(regular((5, 6, 13, 17), (1, 2, 2, 3), stride=2), "N0123C", 2, 32),
    "four axes": Split(regular((7, 8, 9, 11), (2, 3, 3, 2), stride=2, padding="same"), "N0123C", 3, 5),
    "four axes, mixed": Split(regular((9, 8, 7, 13), (3, 2, 1, 12), stride=1, padding="same"), "2C01N3", 2, 3),
    "many small images": Split(regular((5, 6), (3, 2), stride=1, padding="same"), "NHWC", 700, 3),
    "many channels": Split(regular((5, 3), (3, 2), stride=2, padding="same"), "NHWC", 2, 3001),
    "counts that float32 cannot hold": Split(
        Pool((Axis.regular(99, 5, stride=2, padding=2, count="window"), Axis(301, [0, 5], [9, 301], [2**25 + 1, 7]))),
        "NHWC",
        2,
        3,
    ),
}


# One case of each kind that has kernels of its own.
KINDS = [
    "pairs of cells",
    "windows side by side, whole lines",
    "steps of two",
    "few cells anywhere",
    "halves",
    "halves of three cells, padded, windows counted",
    "windows that slide",
    "windows that slide over 61 lanes",
    "narrow images, 14 wide",
    "global NCHW",
    "one cell for each image, a constant divisor",
    "one cell for all positions",
    "planes and rows of nothing",
    "planes and rows of nothing, one channel",
    "columns",
]


@cache
def defined(name: str, dtype: np.dtype[Any], forwards: bool) -> tuple[support.Array, support.Array]:
    """The source of a case and what the NumPy engine makes of it."""
    split = SPLIT[name]
    shape = support.source_shape(split.pool, split.layout, split.batch, split.channels, forwards=forwards)
    source = support.random_array(len(name), shape, dtype, "special" if len(name) % 3 == 0 else "plain")
    return source, support.compute("numpy", split.pool, source, split.layout, forwards=forwards)


@pytest.mark.parametrize("forwards", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("name", SPLIT)
def test_threads_and_instruction_sets(name: str, forwards: bool) -> None:
    from poolgrad.engines import _native

    split = SPLIT[name]
    for dtype in support.DTYPES:
        source, want = defined(name, dtype, forwards)
        assert source.size + want.size > 32768
        for isa in _native.isas():
            for threads in support.THREADS:
                with support.instruction_set(isa):
                    got = support.compute("native", split.pool, source, split.layout, forwards=forwards, threads=threads)
                support.assert_same_bits(got, want, (name, dtype, isa, threads))


@pytest.mark.parametrize("forwards", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("name", SPLIT)
def test_regions_of_large_arrays(name: str, forwards: bool) -> None:
    """Uneven stripes of the result, each from exactly the cells it needs."""
    split, dtype = SPLIT[name], np.dtype(np.float32)
    source, want = defined(name, dtype, forwards)
    spatial = spatial_positions(split.layout, source.ndim)
    sizes = split.pool.output_size if forwards else split.pool.input_size
    edges = sorted({0, 1, sizes[0] // 3, sizes[0] // 3 + 5, sizes[0]})
    for a, b in pairwise(edges):
        region = [slice(a, min(b, sizes[0])), *(slice(n // 5, n) for n in sizes[1:])]
        part = support.at(source, spatial, (split.pool.inputs_for if forwards else split.pool.cells_for)(region))
        run = poolgrad.forward if forwards else poolgrad.gradient
        for piece in (part, np.ascontiguousarray(part)):
            got = run(split.pool, piece, layout=split.layout, region=region, num_threads=2)
            support.assert_same_bits(got, np.ascontiguousarray(support.at(want, spatial, region)), (name, region))


@given(pool=support.pools(), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_any_pooling(pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool) -> None:
    from poolgrad.engines import _native

    layout = data.draw(support.layouts(len(pool.axes)))
    style, batch = data.draw(st.sampled_from(["plain", "special"])), data.draw(st.sampled_from([1, 2, 3]))
    channels = data.draw(st.sampled_from([1, 3, 4, 7, 8, 15, 16, 17, 33]))
    source = support.random_array(seed, support.source_shape(pool, layout, batch, channels, forwards=forwards), dtype, style)
    want = support.compute("numpy", pool, source, layout, forwards=forwards)
    with support.instruction_set(data.draw(st.sampled_from(_native.isas()))):
        support.assert_same_bits(support.compute("native", pool, source, layout, forwards=forwards), want)
    run = poolgrad.forward if forwards else poolgrad.gradient
    support.assert_same_bits(run(pool, source, layout=layout), want)


@given(pool=support.pools(sizes=support.LARGE), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_any_large_pooling(pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool) -> None:
    """Enough channels to be worth several threads, whatever the geometry."""
    from poolgrad.engines import _native

    layout = data.draw(support.layouts(len(pool.axes)))
    batch, channels = data.draw(st.sampled_from([1, 2, 5])), data.draw(st.sampled_from([1, 2, 3, 5, 8, 12, 16, 31, 65, 260]))
    while batch * channels > 1 and batch * channels * np.prod(pool.input_size) > 300_000:
        batch, channels = 1, (channels + 1) // 2
    shape = support.source_shape(pool, layout, batch, channels, forwards=forwards)
    source = support.random_array(seed, shape, dtype)
    want = support.compute("numpy", pool, source, layout, forwards=forwards)
    isa, threads = data.draw(st.sampled_from(_native.isas())), data.draw(st.sampled_from(support.THREADS))
    with support.instruction_set(isa):
        got = support.compute("native", pool, source, layout, forwards=forwards, threads=threads)
    support.assert_same_bits(got, want)


@given(pool=support.pools(), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_any_memory(pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool) -> None:
    """Strided, transposed, reversed, misaligned and read-only sources; the same for results; added to or replaced."""
    layout = data.draw(support.layouts(len(pool.axes)))
    channels, accumulate = data.draw(st.sampled_from([1, 3, 17])), not forwards and data.draw(st.booleans())
    source = support.random_array(seed, support.source_shape(pool, layout, 2, channels, forwards=forwards), dtype)
    old = support.random_array(seed + 1, support.result_shape(pool, source.shape, layout, forwards=forwards), dtype)
    want = support.compute("numpy", pool, source, layout, forwards=forwards, out=old.copy(), accumulate=accumulate)
    arranged = support.in_memory(source, data.draw(st.sampled_from(support.VIEWS)))
    out = support.in_memory(old, data.draw(st.sampled_from(support.VIEWS[:-1])))
    if forwards:
        assert poolgrad.forward(pool, arranged, layout=layout, out=out) is out
    else:
        assert poolgrad.gradient(pool, arranged, layout=layout, out=out, accumulate=accumulate) is out
    support.assert_same_bits(np.ascontiguousarray(out), want)
    support.assert_same_bits(np.ascontiguousarray(arranged), source, "the source has changed")


@pytest.mark.parametrize("out_view", support.VIEWS[:-1])
@pytest.mark.parametrize("view", support.VIEWS)
@pytest.mark.parametrize("name", [*KINDS, "3x3 s2 same NHWC", "3x3 s1 same three channels", "window 15 NCHW", "three axes"])
def test_memory_of_large_arrays(name: str, view: str, out_view: str) -> None:
    split = SPLIT[name]
    for forwards in (False, True):
        source, want = defined(name, np.dtype(np.float32), forwards)
        out = support.in_memory(np.zeros_like(want), out_view)
        arranged = support.in_memory(source, view)
        support.compute("native", split.pool, arranged, split.layout, forwards=forwards, out=out, threads=3)
        support.assert_same_bits(np.ascontiguousarray(out), want)


def test_a_strided_result_leaves_its_gaps_alone() -> None:
    split = SPLIT["3x3 s2 same NHWC"]
    source, want = defined("3x3 s2 same NHWC", np.dtype(np.float32), False)
    wide = np.full([n + 3 for n in want.shape], 5, dtype=want.dtype)
    inner = (slice(1, -2),) * want.ndim
    support.compute("native", split.pool, source, split.layout, forwards=False, out=wide[inner], threads=2)
    support.assert_same_bits(np.ascontiguousarray(wide[inner]), want)
    wide[inner] = 5
    assert (wide == 5).all()


@given(pool=support.pools(), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_any_region(pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool) -> None:
    layout = data.draw(support.layouts(len(pool.axes)))
    source = support.random_array(seed, support.source_shape(pool, layout, 2, 5, forwards=forwards), dtype, "special")
    spatial = spatial_positions(layout, source.ndim)
    whole = support.compute("numpy", pool, source, layout, forwards=forwards)
    needed, run = (pool.inputs_for, poolgrad.forward) if forwards else (pool.cells_for, poolgrad.gradient)
    sizes = pool.output_size if forwards else pool.input_size
    for region in [data.draw(support.regions(sizes)), *cuts(sizes)][:12]:
        got = run(pool, support.at(source, spatial, needed(region)), layout=layout, region=region)
        support.assert_same_bits(got, np.ascontiguousarray(support.at(whole, spatial, region)), region)


STREAMED = {
    "NHWC, rows of 4 mod 64 bytes": (Split(regular((113, 131), 3, stride=2, padding="same"), "NHWC", 6, 97), np.float32),
    "NHWC, three channels": (Split(regular((1021, 1531), 2), "NHWC", 2, 3), np.float32),
    "NCHW, odd rows": (Split(regular((211, 307), 3, stride=2, padding="same"), "NCHW", 12, 11), np.float32),
    "NCHW, 2x2": (Split(regular((512, 515), 2), "NCHW", 4, 9), np.float32),
    "NCHW, every cell twice": (Split(regular((122, 102), 2), "NCHW", 13, 107), np.float16),
    "NCHW, every cell twice, whole lines": (Split(regular((62, 128), 2), "NCHW", 41, 55), support.DTYPES[1]),
    "float64": (Split(regular((213, 217), 5, stride=1, padding="same"), "NHWC", 6, 17), np.float64),
    "float16": (Split(regular((233, 241), 3, stride=1, padding="same"), "NHWC", 10, 31), np.float16),
    "bfloat16 NCHW": (Split(regular((233, 241), 2, stride=3, padding="same"), "NCHW", 10, 31), support.DTYPES[1]),
    "long NHWC": (Split(regular((301, 303), 63, stride=1, padding="same"), "NHWC", 6, 17), np.float32),
    "long NCHW": (Split(regular((301, 303), 15, stride=1, padding="same"), "NCHW", 6, 17), np.float32),
    "global": (Split(Pool((Axis.whole(7), Axis.whole(9))), "NHWC", 140, 1001), np.float32),
    "one cell for each image": (Split(Pool((Axis.whole(7), Axis.whole(7))), "NCHW", 257, 701), np.float32),
    "one cell for each image, float16": (Split(Pool((Axis.whole(7), Axis.whole(9))), "NCHW", 257, 1201), np.float16),
    "one cell for each image, float64": (
        Split(Pool((Axis.whole(3), Axis.whole(1), Axis.whole(5))), "NCDHW", 401, 701),
        np.float64,
    ),
    "one cell for each image, whole lines": (Split(Pool((Axis.whole(4), Axis.whole(8))), "NCHW", 401, 701), np.float32),
    "three axes": (Split(regular((33, 65, 67), 3, stride=2, padding="same"), "NDHWC", 2, 31), np.float32),
    "pairs": (Split(regular((112, 113), 3, stride=2, padding="same"), "NHWC", 11, 64), np.float32),
    "pairs, bfloat16": (Split(regular((112, 113), 3, stride=2, padding=1), "NHWC", 15, 96), support.DTYPES[1]),
    "planes": (Split(regular((17, 64, 66), 2), "NDHWC", 5, 32), np.float32),
    "planes and rows of nothing": (Split(regular((32, 65, 64), 2, stride=(4, 3, 2)), "NDHWC", 3, 32), np.float32),
    "planes and rows of nothing, one channel": (Split(regular((32, 65, 64), 2, stride=(4, 3, 2)), "NCDHW", 3, 32), np.float32),
    "planes and rows of nothing, joined": (Split(regular((33, 61, 62), 2, stride=(4, 3, 2)), "NCDHW", 3, 53), np.float16),
    "steps of two, whole lines": (Split(regular((61, 96), 3, stride=2, padding="same"), "NCHW", 38, 41), np.float32),
    "steps of two, joined": (Split(regular((62, 112), 3, stride=2, padding="same"), "NCHW", 52, 50), np.float16),
    "steps of two, padded": (Split(regular((61, 104), 3, stride=2, padding=1), "NCHW", 36, 20), np.float64),
    "steps of two, side by side": (Split(regular((62, 96), 2), "NCHW", 38, 41), np.float32),
    "steps of two, side by side, joined": (
        Split(Pool((Axis.regular(61, 3, stride=2, padding=1), Axis.regular(112, 2))), "NCHW", 52, 50), np.float16
    ),
    "few cells anywhere, whole lines": (Split(Pool((uneven(61), uneven(96))), "NCHW", 38, 41), np.float32),
    "few cells anywhere, joined": (Split(Pool((uneven(61), uneven(103))), "NCHW", 52, 55), np.float16),
    "few cells anywhere, whole lines of half types": (Split(Pool((uneven(61), uneven(96))), "NCHW", 52, 60), support.DTYPES[1]),
    "sliding": (Split(regular((113, 117), 3, stride=1, padding="same"), "NHWC", 10, 64), np.float32),
    "sliding, float16": (Split(regular((113, 117), 3, stride=1, padding="same"), "NHWC", 14, 96), np.float16),
    "sliding along three axes": (Split(regular((17, 65, 67), (2, 3, 3), stride=1, padding="same"), "NDHWC", 4, 32), np.float32),
    "sliding over lanes": (Split(regular((61, 35), 3, stride=1, padding="same"), "NCHW", 38, 109), np.float32),
    "sliding over lanes, float16": (Split(regular((61, 35), 3, stride=1, padding="same"), "NCHW", 83, 107), np.float16),
    "sliding over lanes, bfloat16": (Split(regular((59, 61), 3, stride=1), "NCHW", 48, 101), support.DTYPES[1]),
    "sliding over lanes, float64": (Split(regular((61, 27), 3, stride=1, padding="same"), "NCHW", 26, 107), np.float64),
    "narrow images": (Split(regular((17, 19), 3, stride=1, padding="same"), "NCHW", 131, 211), np.float32),
    "narrow images, bfloat16": (Split(regular((35, 37), 3, stride=1, padding="same"), "NCHW", 83, 163), support.DTYPES[1]),
    "narrow images, float64": (Split(regular((5, 7), 3, stride=1, padding="same"), "NCHW", 401, 307), np.float64),
    "sliding over few lanes": (Split(regular((53, 13), 3, stride=1, padding="same"), "NCHW", 111, 127), np.float32),
    "sliding over whole lines": (Split(regular((61, 96), 3, stride=1, padding="same"), "NCHW", 41, 76), support.DTYPES[1]),
    "sliding over lanes of three axes": (
        Split(regular((33, 65, 64), (3, 3, 3), stride=1, padding="same"), "NCDHW", 2, 32),
        np.float32,
    ),
    "a bare row": (Split(Pool((Axis.regular(4_200_011, 3, stride=1, padding="same"),)), "L", 1, 1), np.float64),
}


@pytest.mark.parametrize("name", STREAMED)
def test_results_beyond_the_cache(name: str) -> None:
    """Above 32 MiB results may be written past the cache: whole lines, but never a byte more."""
    split, kind = STREAMED[name]
    shape = support.source_shape(split.pool, split.layout, split.batch, split.channels, forwards=False)
    dy = support.random_array(3, shape, np.dtype(kind))
    want = support.compute("numpy", split.pool, dy, split.layout, forwards=False)
    assert want.nbytes > 32 << 20
    for threads in (1, 3):
        got = poolgrad.gradient(split.pool, dy, layout=split.layout, num_threads=threads)
        support.assert_same_bits(got, want)
    guarded = np.full(want.size + 64, 5, dtype=dy.dtype)
    for offset in (3, 16):
        guarded[:] = 5
        out = guarded[offset : offset + want.size].reshape(want.shape)
        poolgrad.gradient(split.pool, dy, layout=split.layout, out=out, num_threads=2)
        support.assert_same_bits(out, want)
        assert (guarded[:offset] == 5).all()
        assert (guarded[offset + want.size :] == 5).all()


def test_forward_beyond_the_cache() -> None:
    wide = regular((301, 303), 3, stride=1, padding="same")
    narrow = Pool(
        (Axis.regular(59, 3, stride=1, padding=(2, 0)), Axis.regular(45, 3, stride=1, padding=(0, 1), count="padded")), divisor=-3
    )
    cases = [(wide, "NHWC", 6, 17), (wide, "NCHW", 6, 17), (narrow, "NCHW", 37, 97)]
    cases += [(Pool((uneven(81), uneven(n))), "NCHW", 47, 71) for n in (119, 121)]  # whole lines, and not
    cases += [(regular((17, 19), 3, stride=1, padding="same"), "NCHW", 131, 211)]
    for pool, layout, batch, channels in cases:
        x = support.random_array(4, support.source_shape(pool, layout, batch, channels, forwards=True), np.dtype(np.float32))
        want = support.compute("numpy", pool, x, layout, forwards=True)
        assert want.nbytes > 32 << 20
        for threads in (1, 2):
            support.assert_same_bits(poolgrad.forward(pool, x, layout=layout, num_threads=threads), want)


@pytest.mark.parametrize("name", KINDS)
def test_accumulating(name: str) -> None:
    split = SPLIT[name]
    for dtype in support.DTYPES:
        dy, plain = defined(name, dtype, False)
        old = support.random_array(7, plain.shape, dtype)
        want = support.compute("numpy", split.pool, dy, split.layout, forwards=False, out=old.copy(), accumulate=True)
        got = poolgrad.gradient(split.pool, dy, layout=split.layout, out=old, accumulate=True, num_threads=2)
        support.assert_same_bits(got, want, (name, dtype))


def test_accumulating_beyond_the_cache() -> None:
    split, _ = STREAMED["NHWC, rows of 4 mod 64 bytes"]
    for dtype in support.DTYPES:
        shape = support.source_shape(split.pool, split.layout, 2 * split.batch, split.channels, forwards=False)
        dy = support.random_array(5, shape, dtype)
        old = support.random_array(6, support.result_shape(split.pool, shape, split.layout, forwards=False), dtype)
        want = support.compute("numpy", split.pool, dy, split.layout, forwards=False, out=old.copy(), accumulate=True)
        got = poolgrad.gradient(split.pool, dy, layout=split.layout, out=old, accumulate=True, num_threads=2)
        support.assert_same_bits(got, want)
