"""Poolings whose arrays are large enough to be shared among threads: one at least for every kernel.

Work below 32,768 elements stays on one thread. Extents are odd so that no row fills its last vector.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

import numpy as np
import support

from poolgrad import Axis, Pool


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
    "one cell for all positions of large images": Split(Pool((Axis.whole(7), Axis.whole(9))), "NHWC", 3, 701),
    "one cell for all positions of large volumes": Split(Pool((Axis.whole(3), Axis.whole(4), Axis.whole(5))), "NDHWC", 2, 608),
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
    "pairs of cells, 32 channels": Split(regular((25, 38), 3, stride=2, padding=1), "NHWC", 3, 32),
    "pairs of cells, 16 channels": Split(regular((26, 38), 2, stride=1), "NHWC", 3, 16),
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
    "windows that slide, 16 channels": Split(regular((27, 38), 3, stride=1, padding="same"), "NHWC", 3, 16),
    "windows that slide, padded on one side": Split(
        Pool((Axis.regular(23, 3, stride=1, padding=(2, 0)), Axis.regular(31, 3, stride=1, padding=(0, 2)))), "NHWC", 2, 96
    ),
    "windows that slide, channels of the batch": Split(regular((19, 21), 3, stride=1, padding="same"), "CHWN", 64, 3),
    "windows that slide along three axes": Split(regular((7, 13, 18), (3, 2, 3), stride=1, padding="same"), "NDHWC", 2, 32),
    "windows of two cells that slide along three axes": Split(
        regular((8, 11, 14), (2, 3, 2), stride=1, padding="same"), "NDHWC", 2, 32
    ),
    "windows that slide along three axes, 16 channels": Split(
        regular((7, 13, 19), (3, 3, 2), stride=1, padding=1), "NDHWC", 2, 16
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
    "windows beyond eight, few cells of a row": Split(Pool((Axis.regular(16, 9, stride=2), uneven(96))), "NCHW", 3, 31),
    "windows beyond eight, channels in between": Split(
        Pool((Axis.regular(23, 9, stride=7), Axis.regular(4, 2), Axis.regular(16, 3))), "NDCHW", 3, 67
    ),
    "windows beyond eight, channels beside rows": Split(
        Pool((Axis.regular(23, 9, stride=2), Axis.regular(17, 3, stride=2))), "NHCW", 3, 41
    ),
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
        Pool((Axis.regular(23, 3, stride=5), Axis.regular(19, 3, stride=4), Axis.regular(64, 3, stride=2, padding=1))),
        "NDCHW",
        2,
        7,
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
