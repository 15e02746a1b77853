"""No kernel touches anything beside the arrays it is given: here these end or begin at a page that nobody may touch.

A touch ends the process, so the poolings run in one of their own: this file, as a program.
"""

from __future__ import annotations

import ctypes
import itertools
import mmap
import os
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest
import support

import poolgrad
from poolgrad import Axis, Pool

PAGE = mmap.PAGESIZE


def fenced(array: support.Array, *, behind: bool) -> support.Array:
    """A copy that ends right before a page that may not be touched, or begins right behind one."""
    size = -(-array.nbytes // PAGE) * PAGE
    pages = mmap.mmap(-1, size + 2 * PAGE)
    begin = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    for page in (begin, begin + PAGE + size):
        assert ctypes.CDLL(None, use_errno=True).mprotect(ctypes.c_void_p(page), PAGE, 0) == 0
    first = PAGE + size - array.nbytes if behind else PAGE
    copy = np.frombuffer(pages, array.dtype, array.size, first).reshape(array.shape)
    copy[...] = array
    return copy


def square(size: int, window: int, axes: int = 2, **options: object) -> Pool:
    return Pool((Axis.regular(size, window, **options),) * axes)  # type: ignore[arg-type]


SLIDING = [(3, 1), (3, 2), (2, 1), (15, 1)]
POOLS = [
    *(Pool((Axis.regular(h, h), Axis.regular(w, w))) for h, w in itertools.product((1, 2, 7, 9), (*range(1, 10), 13, 33))),
    *(Pool((Axis.regular(n, n),) * axes) for n, axes in ((3, 1), (49, 1), (2, 3), (3, 3), (3, 4))),
    *(square(n, window, stride=stride, padding="same") for n in (11, 35, 66) for window, stride in SLIDING),
    *(square(n, 2, stride=2) for n in (8, 14, 30, 33, 112)),
    *(square(n, 3, 3, stride=1, padding="same") for n in (6, 17)),
    *(square(n, 2, 3, stride=2) for n in (8, 18, 32)),
    Pool((Axis.adaptive(23, 7), Axis.adaptive(29, 5))),
    Pool((Axis.fractional(20, [0, 2, 4, 7, 9, 13, 20], overlapping=True),) * 2),
]


def run(pool: Pool, layout: str, channels: int, dtype: np.dtype[np.generic]) -> None:
    for forwards, behind in itertools.product((True, False), (True, False)):
        source = support.random_array(3, support.source_shape(pool, layout, 3, channels, forwards=forwards), dtype)
        call = poolgrad.forward if forwards else poolgrad.gradient
        want = call(pool, source, layout=layout, num_threads=1)
        out = fenced(np.zeros_like(want), behind=behind)
        call(pool, fenced(source, behind=behind), layout=layout, out=out, num_threads=1)
        support.assert_same_bits(out, want)


def layouts(pool: Pool) -> Iterator[str]:
    spatial = "0123"[: len(pool.axes)]
    yield from (f"N{spatial}C", f"NC{spatial}")


@pytest.mark.skipif(sys.platform == "win32", reason="mprotect is a function of Unix")
def test_nothing_beside_the_arrays_is_touched(isa: str) -> None:
    environment = os.environ | {"POOLGRAD_ISA": isa}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, f"exit status {done.returncode}: {done.stdout[-500:]} {done.stderr[-2000:]}"


if __name__ == "__main__":
    for pool, channels, dtype in itertools.product(POOLS, (1, 3, 8, 19), support.DTYPES):
        for layout in layouts(pool):
            print(pool, layout, channels, dtype, flush=True)
            run(pool, layout, channels, dtype)
