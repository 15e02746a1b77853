"""Intervals too long for an engine's scratch: the same bits, in bounded memory."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import support

import poolgrad
from poolgrad import Axis, Pool, far, ops

MIB = 1 << 20


def axis_of(rng: np.random.Generator, size: int) -> Axis:
    kind, window = rng.integers(4), int(rng.integers(1, size + 1))
    if kind == 0:
        return Axis.adaptive(size, int(rng.integers(1, size + 3)))
    if kind == 1:
        return Axis.whole(size)
    count = str(rng.choice(["inside", "padded", "window"]))
    dilation = 2 if kind == 2 and 2 * window - 1 <= size else 1
    return Axis.regular(size, window, stride=int(rng.integers(1, window + 2)), padding="same", count=count, dilation=dilation)


def fresh(call: Any, monkeypatch: pytest.MonkeyPatch, limit: int, stretch: int) -> support.Array:
    monkeypatch.setattr(far, "FAR", limit)
    monkeypatch.setattr(far, "STRETCH", stretch)
    ops._calls.clear()
    result: support.Array = call()
    ops._calls.clear()
    return result


@pytest.mark.parametrize("layout", ["NLC", "NCL", "NHWC", "CWHN", "NCDHW"])
def test_the_same_bits_in_stretches(layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every axis longer than a few inputs goes the far way, in stretches of odd sizes; plain calls are the reference."""
    rng = np.random.default_rng(len(layout) * ord(layout[-1]))
    spatial = len(layout) - 2
    for trial in range(12):
        pool = Pool(tuple(axis_of(rng, int(rng.integers(1, 40 if spatial > 1 else 900))) for _ in range(spatial)))
        dtype = support.DTYPES[trial % len(support.DTYPES)]
        for forwards in (False, True):
            shape = support.source_shape(pool, layout, int(rng.integers(1, 4)), int(rng.integers(1, 20)), forwards=forwards)
            source = rng.standard_normal(shape).astype(dtype)
            run = poolgrad.forward if forwards else poolgrad.gradient
            plain = fresh(lambda: run(pool, source, layout=layout), monkeypatch, 1 << 14, 1 << 16)  # noqa: B023
            limit, stretch = int(rng.integers(9, 90)), int(2 ** rng.integers(3, 14))
            cut = fresh(lambda: run(pool, source, layout=layout), monkeypatch, limit, stretch)  # noqa: B023
            assert plain.tobytes() == cut.tobytes(), (pool, layout, dtype, forwards, limit, stretch)


def test_regions_and_accumulation(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(8)
    pool = Pool((Axis.regular(301, 97, stride=3, padding=(11, 5), count="padded"), Axis.regular(7, 3, stride=2)))
    dy = rng.standard_normal((2, *pool.output_size, 5)).astype(np.float32)
    old = rng.standard_normal((2, 301, 7, 5)).astype(np.float32)
    region = [slice(100, 219), None]
    for call in (
        lambda: poolgrad.gradient(pool, dy, out=old.copy(), accumulate=True),
        lambda: poolgrad.gradient(pool, dy[(slice(None), *pool.cells_for(region))], region=region),
    ):
        assert fresh(call, monkeypatch, 1 << 14, 1 << 16).tobytes() == fresh(call, monkeypatch, 20, 77).tobytes()


@pytest.mark.parametrize(
    ("layout", "shape", "window", "stride"),
    [("NLC", (1, 1 << 22, 1), 1 << 22, 1), ("NCL", (2, 3, 100_000), 99_999, 1), ("NHWC", (1, 1 << 18, 2, 3), (90_001, 2), 7)],
)
def test_memory_is_bounded(layout: str, shape: tuple[int, ...], window: Any, stride: int) -> None:
    """An eighth of the result and 8 MiB, whatever the window."""
    x = np.random.default_rng(1).standard_normal(shape, dtype=np.float32)
    options = {"stride": stride, "padding": "same", "layout": layout}
    if window == 1 << 22:
        options = {"layout": layout}
    y = poolgrad.avg_pool(x, window, **options)
    out = np.empty_like(y)
    tracemalloc.start()
    poolgrad.avg_pool(x, window, out=out, **options)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= out.nbytes / 8 + 8 * MIB, f"{peak / MIB:.2f} MiB for a result of {out.nbytes / MIB:.2f} MiB"
    np.testing.assert_allclose(y.mean(dtype=np.float64), x.mean(dtype=np.float64), atol=1e-3)


def test_calls_with_long_tables_are_not_kept() -> None:
    before = len(ops._calls)
    poolgrad.adaptive_avg_pool_grad(np.ones((1, 1, 1), np.float32), (1, ops.KEPT_ELEMENTS + 1, 1))
    assert len(ops._calls) <= before
