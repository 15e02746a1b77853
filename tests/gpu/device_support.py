"""What the tests on a device share: arrays there and back, the definition of a pooling, and comparison by bits."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np

from poolgrad import Axis, Pool
from poolgrad.engines.numpy import run
from poolgrad.layout import spatial_positions

DEVICE = "cuda"
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
DTYPES = [np.dtype(np.float32), BFLOAT16, np.dtype(np.float16), np.dtype(np.float64)]

R = Axis.regular
POOLS = {
    "2x2 with a rest": Pool((R(13, 2), R(12, 2))),
    "3x3 s2 same": Pool((R(13, 3, stride=2, padding="same"), R(12, 3, stride=2, padding="same"))),
    "3x4 s1 same": Pool((R(11, 3, stride=1, padding="same"), R(12, 4, stride=1, padding="same"))),
    "global": Pool((R(7, 7), R(6, 6))),
    "15x13 same": Pool((R(40, 15, stride=1, padding="same"), R(33, 13, stride=1, padding="same"))),
    "63x40 same": Pool((R(70, 63, stride=1, padding="same"), R(50, 40, stride=1, padding="same"))),
    "three levels": Pool((R(90, 80, stride=1), R(20, 3))),
    "2x2x3": Pool((R(8, 2), R(6, 2), R(9, 3))),
    "3x3x2 same": Pool((R(8, 3, stride=1, padding="same"), R(7, 3, stride=1, padding="same"), R(6, 2, stride=1, padding="same"))),
    "9x9x9 same": Pool(tuple(R(n, 9, stride=1, padding="same") for n in (14, 12, 11))),
    "long line": Pool((R(400, 21, stride=1, padding="same"),)),
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
"""One of every kind."""

Array = Any
Tensor = Any


@contextmanager
def capturing(graph: Any) -> Iterator[None]:
    """Capture what this thread does: the threads of other frameworks, and what earlier tests left to be collected, would
    invalidate a capture."""
    import torch

    gc.collect()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        yield



def random(seed: int, shape: tuple[int, ...], dtype: np.dtype[Any], special: bool = False) -> Array:
    """Numbers of many sizes; `special` strews NaN, infinities, both zeros and the smallest and largest numbers among them.

    Only in the first half along the first axis: else a long window would see nothing but NaN.
    """
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape))
    if special:
        tiny, huge = float(ml_dtypes.finfo(dtype).smallest_subnormal), float(ml_dtypes.finfo(dtype).max)
        odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, tiny, -3 * tiny, huge])
        chosen = rng.random(shape) < 0.06
        chosen[(len(chosen) + 1) // 2 :] = False
        values = np.where(chosen, odd[rng.integers(0, len(odd), shape)], values)
    return values.astype(dtype)


def placed(layout: str, sizes: tuple[int, ...], batch: int = 3, channels: int = 8) -> tuple[int, ...]:
    """The shape of an array of this layout whose spatial axes have these sizes."""
    shape = [batch if letter == "N" else channels for letter in layout]
    for position, n in zip(spatial_positions(layout, len(layout)), sizes, strict=True):
        shape[position] = n
    return tuple(shape)


def to_device(array: Array) -> Tensor:
    import torch

    array = np.ascontiguousarray(array)
    if array.dtype == BFLOAT16:
        return torch.from_numpy(array.view(np.int16)).to(DEVICE).view(torch.bfloat16)
    return torch.from_numpy(array).to(DEVICE)


def to_host(tensor: Tensor) -> Array:
    import torch

    assert tensor.device.type == DEVICE, f"the result is on {tensor.device}"
    tensor = tensor.detach().contiguous().cpu()
    return tensor.view(torch.int16).numpy().view(BFLOAT16) if tensor.dtype is torch.bfloat16 else tensor.numpy()


def definition(pool: Pool, source: Array, layout: str, *, forwards: bool) -> Array:
    """What the NumPy engine makes of it, without the public functions in between."""
    spatial = spatial_positions(layout, source.ndim)
    shape = list(source.shape)
    for position, n in zip(spatial, pool.output_size if forwards else pool.input_size, strict=True):
        shape[position] = n
    out = np.full(shape, 7, source.dtype)
    for piece in pool.forward_pieces() if forwards else pool.gradient_pieces():
        take, put = [slice(None)] * source.ndim, [slice(None)] * source.ndim
        for position, a, b in zip(spatial, piece.take, piece.put, strict=True):
            take[position], put[position] = a, b
        run(piece.sums, source[tuple(take)], out[tuple(put)], spatial, accumulate=False, threads=None)
    return out


def difference(got: Array, want: Array) -> str:
    """Where the bits differ, in words; empty where they do not. Any NaN equals any NaN."""
    if (got.shape, got.dtype) != (want.shape, want.dtype):
        return f"{got.dtype} {got.shape}, not {want.dtype} {want.shape}"
    bits = np.dtype(f"u{want.dtype.itemsize}")
    got, want = np.ascontiguousarray(got), np.ascontiguousarray(want)
    off = (got.view(bits) != want.view(bits)) & ~(np.isnan(got) & np.isnan(want))
    if not off.any():
        return ""
    at = tuple(int(k) for k in np.argwhere(off)[0])
    return f"{off.sum()} of {off.size} differ, first at {at}: {got[at]!r}, not {want[at]!r}"


def assert_same_bits(got: Tensor, want: Array) -> None:
    found = difference(to_host(got), want)
    assert not found, found


@contextmanager
def exact_convolutions() -> Iterator[None]:
    """The same convolutions in every run, without TF32, whose errors would hide ours."""
    import torch

    convolutions, products = torch.backends.cudnn, torch.backends.cuda.matmul
    before = convolutions.allow_tf32, convolutions.deterministic, products.allow_tf32
    convolutions.allow_tf32, convolutions.deterministic, products.allow_tf32 = False, True, False
    try:
        yield
    finally:
        convolutions.allow_tf32, convolutions.deterministic, products.allow_tf32 = before
