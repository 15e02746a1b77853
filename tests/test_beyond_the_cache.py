"""One answer beyond the caches: results of 32 MiB or more are written past them, in whole lines, but never a byte more.

How a row gets there depends on its address and length. `support.past_the_caches` sends small results the same way.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import support
from hypothesis import given
from hypothesis import strategies as st
from large import SPLIT, Split, defined, regular, uneven

import poolgrad
from poolgrad import Axis, Pool

native = pytest.importorskip("poolgrad.engines.native")



class Guarded:
    """Memory for a result, `offset` bytes after a cache line's beginning; not a byte around it may change."""

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], offset: int) -> None:
        size = int(np.prod(shape)) * dtype.itemsize
        self.memory = np.full(size + 256, 0xA5, dtype=np.uint8)
        self.begin = 64 + offset - self.memory.ctypes.data % 64
        self.end = self.begin + size
        self.out = self.memory[self.begin : self.end].view(dtype).reshape(shape)

    def __enter__(self) -> support.Array:
        return self.out

    def __exit__(self, *_: object) -> None:
        assert (self.memory[: self.begin] == 0xA5).all()
        assert (self.memory[self.end :] == 0xA5).all()


@pytest.mark.parametrize("forwards", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("name", SPLIT)
def test_every_way_past_the_caches(name: str, forwards: bool) -> None:
    """From a line's beginning, from where NumPy's own memory begins, from anywhere."""
    from poolgrad.engines import _native

    split = SPLIT[name]
    for dtype in support.DTYPES:
        source, want = defined(name, dtype, forwards)
        for isa in _native.isas():
            for offset in (0, 16, 3 * dtype.itemsize, 1):
                guarded = Guarded(want.shape, dtype, offset)
                with guarded as out, support.instruction_set(isa), support.past_the_caches():
                    support.compute("native", split.pool, source, split.layout, forwards=forwards, out=out, threads=3)
                support.assert_same_bits(out, want, (name, dtype, isa, offset))


@given(pool=support.pools(sizes=support.LARGE), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_any_pooling_past_the_caches(
    pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool
) -> None:
    from poolgrad.engines import _native

    layout = data.draw(support.layouts(len(pool.axes)))
    batch, channels = data.draw(st.sampled_from([1, 2, 5])), data.draw(st.sampled_from([1, 2, 3, 7, 16, 17, 32, 64, 96]))
    while batch * channels > 1 and batch * channels * np.prod(pool.input_size) > 300_000:
        batch, channels = 1, (channels + 1) // 2
    shape = support.source_shape(pool, layout, batch, channels, forwards=forwards)
    source = support.random_array(seed, shape, dtype)
    want = support.compute("numpy", pool, source, layout, forwards=forwards)
    isa, threads = data.draw(st.sampled_from(_native.isas())), data.draw(st.sampled_from(support.THREADS))
    guarded = Guarded(want.shape, dtype, data.draw(st.integers(0, 63)))
    with guarded as out, support.instruction_set(isa), support.past_the_caches():
        support.compute("native", pool, source, layout, forwards=forwards, out=out, threads=threads)
    support.assert_same_bits(out, want)


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
    for offset in (3 * dy.itemsize, 16):
        with Guarded(want.shape, dy.dtype, offset) as out:
            poolgrad.gradient(split.pool, dy, layout=split.layout, out=out, num_threads=2)
        support.assert_same_bits(out, want)


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


def test_accumulating_beyond_the_cache() -> None:
    split, _ = STREAMED["NHWC, rows of 4 mod 64 bytes"]
    for dtype in support.DTYPES:
        shape = support.source_shape(split.pool, split.layout, 2 * split.batch, split.channels, forwards=False)
        dy = support.random_array(5, shape, dtype)
        old = support.random_array(6, support.result_shape(split.pool, shape, split.layout, forwards=False), dtype)
        want = support.compute("numpy", split.pool, dy, split.layout, forwards=False, out=old.copy(), accumulate=True)
        got = poolgrad.gradient(split.pool, dy, layout=split.layout, out=old, accumulate=True, num_threads=2)
        support.assert_same_bits(got, want)
