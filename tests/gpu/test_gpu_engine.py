"""The GPU engine on a GPU: the bits of the NumPy engine, for every kind of pooling, framework and arrangement of memory.

Run by `make test-gpu`; elsewhere these tests are skipped, and `test_gpu_kernels.py` runs the same kernels on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import poolgrad
from poolgrad import Axis, Pool, PoolGradMemoryError, PoolGradTypeError, PoolGradValueError, exact
from poolgrad.engines import gpu
from poolgrad.engines.numpy import run as definition
from poolgrad.layout import spatial_positions

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

Array = Any
R = Axis.regular
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), BFLOAT16, np.dtype(np.float16), np.dtype(np.float64)]
POOLS = {
    "2x2 with a rest": Pool((R(13, 2), R(12, 2))),
    "3x3 s2 same": Pool((R(13, 3, stride=2, padding="same"), R(12, 3, stride=2, padding="same"))),
    "3x4 s1 same": Pool((R(11, 3, stride=1, padding="same"), R(12, 4, stride=1, padding="same"))),
    "global": Pool((R(7, 7), R(6, 6))),
    "15x13 same": Pool((R(40, 15, stride=1, padding="same"), R(33, 13, stride=1, padding="same"))),
    "63x40 same": Pool((R(100, 63, stride=1, padding="same"), R(70, 40, stride=1, padding="same"))),
    "three levels": Pool((R(90, 80, stride=1), R(20, 3))),
    "2x2x3": Pool((R(8, 2), R(6, 2), R(9, 3))),
    "3x3x2 same": Pool((R(8, 3, stride=1, padding="same"), R(7, 3, stride=1, padding="same"), R(6, 2, stride=1, padding="same"))),
    "9x9x9 same": Pool((R(20, 9, stride=1, padding="same"), R(18, 9, stride=1, padding="same"), R(19, 9, stride=1, padding="same"))),
    "long line": Pool((R(600, 21, stride=1, padding="same"),)),
    "gaps": Pool((R(13, 2, stride=3), R(17, 2, stride=5, padding=(1, 1)))),
    "dilated": Pool((R(23, 3, stride=2, dilation=2), R(17, 3, stride=1, dilation=3, padding=2))),
    "adaptive": Pool((Axis.adaptive(13, 5), Axis.adaptive(20, 7))),
    "fractional": Pool((Axis.fractional(20, [0, 3, 5, 9, 14, 20], overlapping=True), Axis.fractional(40, [0, 13, 26, 40]))),
    "empty cells": Pool((Axis.fractional(20, [0, 3, 3, 9, 14, 25], allow_empty=True), R(4, 2))),
    "four axes": Pool((R(5, 2, stride=1), R(6, 3, stride=1, padding="same"), R(4, 2), R(5, 3, stride=2, padding="same"))),
    "far": Pool((R(3000, 2500, stride=7),)),
    "counts": Pool((R(13, 3, stride=2, padding=(1, 2), count="padded"), R(12, 4, stride=3, padding=(2, 1), count="window"))),
    "divisor": Pool((R(13, 3, stride=2), R(12, 4, stride=3)), -7),
}
LAYOUTS = {1: ["NLC", "NCL"], 2: ["NHWC", "NCHW", "CWHN"], 3: ["NDHWC", "NCDHW"], 4: ["N0123C", "NC0123"]}


def random(seed: int, shape: tuple[int, ...], dtype: Any) -> Array:
    """Numbers of many sizes, with every special value among them."""
    rng = np.random.default_rng(seed)
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, tiny, -3 * tiny, float(ml_dtypes.finfo(dtype).max)])
    values = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape))
    return np.where(rng.random(shape) < 0.06, odd[rng.integers(0, len(odd), shape)], values).astype(dtype)


def placed(pool: Pool, layout: str, sizes: tuple[int, ...], batch: int = 3, channels: int = 8) -> tuple[int, ...]:
    shape = [batch if letter == "N" else channels for letter in layout]
    for position, n in zip(spatial_positions(layout, len(layout)), sizes, strict=True):
        shape[position] = n
    return tuple(shape)


def expected(pool: Pool, source: Array, out: Array, layout: str, forwards: bool, accumulate: bool = False) -> Array:
    spatial = spatial_positions(layout, len(layout))
    for piece in pool.forward_pieces() if forwards else pool.gradient_pieces():
        take, put = [slice(None)] * len(layout), [slice(None)] * len(layout)
        for position, a, b in zip(spatial, piece.take, piece.put, strict=True):
            take[position], put[position] = a, b
        definition(piece.sums, source[tuple(take)], out[tuple(put)], spatial, accumulate=accumulate, threads=None)
    return out


def same_bits(got: Array, want: Array) -> bool:
    bits = np.dtype(f"u{want.dtype.itemsize}")
    assert got.shape == want.shape
    assert got.dtype == want.dtype
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
    return not ((got.view(bits) != want.view(bits)) & ~(np.isnan(got) & np.isnan(want))).any()


def to_torch(array: Array) -> Any:
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).cuda().view(torch.bfloat16)
    return torch.from_numpy(array).cuda()


def from_torch(tensor: Any) -> Array:
    if tensor.dtype is torch.bfloat16:
        return tensor.view(torch.int16).cpu().numpy().view(BFLOAT16)
    return tensor.cpu().numpy()


def check(pool: Pool, layout: str, dtype: Any, forwards: bool, accumulate: bool = False) -> None:
    sizes, made = (pool.input_size, pool.output_size) if forwards else (pool.output_size, pool.input_size)
    source = random(1, placed(pool, layout, sizes), dtype)
    old = random(2, placed(pool, layout, made), dtype)
    want = expected(pool, source, old.copy(), layout, forwards, accumulate)
    if forwards:
        got = poolgrad.forward(pool, to_torch(source), layout=layout)
    elif accumulate:
        got = poolgrad.gradient(pool, to_torch(source), layout=layout, out=to_torch(old), accumulate=True)
    else:
        got = poolgrad.gradient(pool, to_torch(source), layout=layout)
    assert same_bits(from_torch(got), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", POOLS)
def test_general_kernels(name: str, dtype: Any) -> None:
    pool = POOLS[name]
    for layout in LAYOUTS[len(pool.axes)]:
        check(pool, layout, dtype, False)
        check(pool, layout, dtype, True)
    check(pool, LAYOUTS[len(pool.axes)][0], dtype, False, accumulate=True)


@pytest.mark.parametrize("name", POOLS)
def test_written_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "WORTH_WRITING", 0)
    poolgrad.ops._calls.clear()
    pool = POOLS[name]
    for k, layout in enumerate(LAYOUTS[len(pool.axes)]):
        for dtype in (DTYPES[0], DTYPES[1 + k % 3]):
            check(pool, layout, dtype, False)
        check(pool, layout, DTYPES[k % 2], True)
    check(pool, layout, DTYPES[0], False, accumulate=True)
    poolgrad.ops._calls.clear()
