"""The GPU engine on a GPU: the bits of the NumPy engine, for every kind of pooling, framework and arrangement of memory.

Run by `make test-gpu`; elsewhere these tests are skipped, and `test_gpu_kernels.py` runs the same kernels on the host.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
from device_support import DTYPES, POOLS, capturing, difference, placed, to_device, to_host
from device_support import random as numbers

import poolgrad
from poolgrad import Axis, Pool, PoolGradMemoryError, PoolGradTypeError, PoolGradValueError, exact
from poolgrad.engines import gpu
from poolgrad.engines.gpu import general, line, sheet
from poolgrad.engines.numpy import run as definition
from poolgrad.layout import spatial_positions

torch = pytest.importorskip("torch")
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

Array = Any
R = Axis.regular
random = partial(numbers, special=True)
LAYOUTS = {1: ["NLC", "NCL"], 2: ["NHWC", "NCHW", "CWHN"], 3: ["NDHWC", "NCDHW"], 4: ["N0123C", "NC0123"]}


def expected(pool: Pool, source: Array, out: Array, layout: str, forwards: bool, accumulate: bool = False) -> Array:
    spatial = spatial_positions(layout, len(layout))
    for piece in pool.forward_pieces() if forwards else pool.gradient_pieces():
        take, put = [slice(None)] * len(layout), [slice(None)] * len(layout)
        for position, a, b in zip(spatial, piece.take, piece.put, strict=True):
            take[position], put[position] = a, b
        definition(piece.sums, source[tuple(take)], out[tuple(put)], spatial, accumulate=accumulate, threads=None)
    return out


def same_bits(got: Array, want: Array) -> bool:
    return not difference(got, want)


def check(pool: Pool, layout: str, dtype: Any, forwards: bool, accumulate: bool = False) -> None:
    sizes, made = (pool.input_size, pool.output_size) if forwards else (pool.output_size, pool.input_size)
    source = random(1, placed(layout, sizes), dtype)
    old = random(2, placed(layout, made), dtype)
    want = expected(pool, source, old.copy(), layout, forwards, accumulate)
    if forwards:
        got = poolgrad.forward(pool, to_device(source), layout=layout)
    elif accumulate:
        got = poolgrad.gradient(pool, to_device(source), layout=layout, out=to_device(old), accumulate=True)
    else:
        got = poolgrad.gradient(pool, to_device(source), layout=layout)
    assert same_bits(to_host(got), want)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", POOLS)
def test_general_kernels(name: str, dtype: Any) -> None:
    pool = POOLS[name]
    for k, layout in enumerate(LAYOUTS[len(pool.axes)]):
        check(pool, layout, dtype, False)
        if k < 2:
            check(pool, layout, dtype, True)
    check(pool, LAYOUTS[len(pool.axes)][0], dtype, False, accumulate=True)


@pytest.mark.parametrize("name", POOLS)
def test_written_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "WORTH_WRITING", 0)
    monkeypatch.setattr(sheet, "ENOUGH", 0)
    poolgrad.ops._calls.clear()
    pool = POOLS[name]
    for k, layout in enumerate(LAYOUTS[len(pool.axes)]):
        for dtype in (DTYPES[0], DTYPES[1 + k % 3]):
            check(pool, layout, dtype, False)
        check(pool, layout, DTYPES[k % 2], True)
    check(pool, layout, DTYPES[0], False, accumulate=True)
    poolgrad.ops._calls.clear()


CASE = Pool((R(40, 3, stride=2, padding="same"), R(36, 5, stride=1, padding="same")))
"""Large enough for kernels of its own."""


def case_arrays(dtype: Any = np.float32) -> tuple[Array, Array]:
    dy = random(3, placed("NHWC", CASE.output_size, 4, 16), np.dtype(dtype))
    return dy, expected(CASE, dy, np.zeros(placed("NHWC", CASE.input_size, 4, 16), dy.dtype), "NHWC", False)


def test_any_strides_and_alignment() -> None:
    dy, want = case_arrays()
    wide = torch.zeros([2 * n + 1 for n in dy.shape], device="cuda")
    view = wide[tuple(slice(1, None, 2) for _ in dy.shape)]
    view.copy_(to_device(dy))
    turned = to_device(np.ascontiguousarray(dy.transpose(3, 1, 0, 2))).permute(2, 1, 3, 0)
    shifted = torch.zeros(dy.size + 1, device="cuda")[1:].view(dy.shape)
    shifted.copy_(to_device(dy))
    for tensor in (view, turned, shifted):
        assert same_bits(to_host(poolgrad.gradient(CASE, tensor, layout="NHWC").contiguous()), want)
    out = torch.zeros(want.size + 3, device="cuda")[3:].view(want.shape)
    assert poolgrad.gradient(CASE, to_device(dy), layout="NHWC", out=out) is out
    assert same_bits(to_host(out), want)


def test_broadcast_source() -> None:
    dy = torch.ones((), device="cuda").expand(placed("NHWC", CASE.output_size, 4, 16))
    want = expected(CASE, dy.cpu().numpy(), np.zeros(placed("NHWC", CASE.input_size, 4, 16), np.float32), "NHWC", False)
    got = poolgrad.gradient(CASE, dy, layout="NHWC")
    assert got.is_contiguous()
    assert same_bits(to_host(got), want)


def test_memory_format_is_kept() -> None:
    dy, want = case_arrays()
    last = to_device(dy).permute(0, 3, 1, 2)
    got = poolgrad.gradient(CASE, last, layout="NCHW")
    assert got.is_contiguous(memory_format=torch.channels_last)
    assert same_bits(to_host(got.permute(0, 2, 3, 1).contiguous()), want)


def test_current_stream_and_graph() -> None:
    dy, want = case_arrays()
    held, stream = torch.zeros(dy.shape, device="cuda"), torch.cuda.Stream()
    fresh, old = to_device(dy), torch.zeros(want.shape, device="cuda")
    poolgrad.gradient(CASE, held, layout="NHWC")
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(500_000_000)
        held.copy_(fresh)
        got = poolgrad.gradient(CASE, held, layout="NHWC")
        assert not stream.query(), "the call waited for the device"
    stream.synchronize()
    assert same_bits(to_host(got), want)
    poolgrad.ops._calls.clear()
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):  # the first call of its kind: tables and kernels are made although the stream is capturing
        made = poolgrad.gradient(CASE, held, layout="NHWC")
        poolgrad.gradient(CASE, held, layout="NHWC", out=old, accumulate=True)
    for k in (1, 2):
        held.copy_(fresh * k)
        graph.replay()
    with np.errstate(over="ignore"):
        want2 = expected(CASE, dy * np.float32(2), np.zeros_like(want), "NHWC", False)
    assert same_bits(to_host(made), want2)
    with np.errstate(invalid="ignore"):
        assert same_bits(to_host(old), (want + np.float32(0)) + want2)


def test_long_axes_scratch_on_streams() -> None:
    pool = Pool((R(64, 15, stride=1, padding="same"), R(64, 15, stride=1, padding="same")))
    dy = random(4, (4, 64, 64, 8), np.dtype(np.float32))
    want = expected(pool, dy, np.zeros_like(dy), "NHWC", False)
    streams = [torch.cuda.Stream() for _ in range(4)]
    source, got = to_device(dy), []
    torch.cuda.synchronize()
    for stream in streams:
        with torch.cuda.stream(stream):
            got += [poolgrad.gradient(pool, source, layout="NHWC") for _ in range(3)]
    torch.cuda.synchronize()
    assert all(same_bits(to_host(answer), want) for answer in got)


def test_oracle() -> None:
    pool = Pool((R(9, 3, stride=2, padding="same"), R(7, 2, stride=1)))
    dy = np.random.default_rng(5).integers(-8, 9, placed("NHWC", pool.output_size)).astype(np.float64) * 36
    got = poolgrad.gradient(pool, torch.from_numpy(dy).cuda(), layout="NHWC")
    assert same_bits(got.cpu().numpy(), exact.gradient(pool, dy, layout="NHWC"))


def test_regions() -> None:
    pool = Pool((R(90, 21, stride=1, padding="same"), R(14, 3, stride=2, padding="same")))
    dy = random(6, placed("NHWC", pool.output_size), np.dtype(np.float32))
    whole = expected(pool, dy, np.zeros(placed("NHWC", pool.input_size), np.float32), "NHWC", False)
    for region in ([slice(0, 31), slice(2, 9)], [slice(31, 90), slice(0, 14)]):
        part = to_device(np.ascontiguousarray(dy[:, pool.cells_for(region)[0], pool.cells_for(region)[1]]))
        got = poolgrad.gradient(pool, part, layout="NHWC", region=region)
        assert same_bits(to_host(got), whole[:, region[0], region[1]])


def test_more_than_two_to_the_31() -> None:
    free, _ = torch.cuda.mem_get_info()
    if free < 14 << 30:
        pytest.skip("needs 14 GiB of device memory")
    dy = torch.randn(1, 16500, 16500, 2, device="cuda", dtype=torch.bfloat16)
    dx = poolgrad.avg_pool_grad(dy, (1, 33000, 33000, 2), 2)
    for a in range(0, 16500, 4125):
        want = (dy[:, a : a + 4125] * 0.25).repeat_interleave(2, 1).repeat_interleave(2, 2)
        assert torch.equal(dx[:, 2 * a : 2 * a + 8250], want)


def test_refusals() -> None:
    x = torch.ones(1, 8, 8, 2, device="cuda")
    with pytest.raises(PoolGradTypeError, match="int32"):
        poolgrad.avg_pool(x.int(), 2)
    with pytest.raises(PoolGradTypeError, match="requires grad"):
        poolgrad.avg_pool(x.clone().requires_grad_(), 2)
    with pytest.raises(PoolGradTypeError, match="out must be a PyTorch array on the GPU"):
        poolgrad.avg_pool(x, 2, out=np.zeros((1, 4, 4, 2), np.float32))
    with pytest.raises(PoolGradTypeError, match="out must be a PyTorch array on the GPU"):
        poolgrad.avg_pool(x, 2, out=torch.zeros(1, 4, 4, 2))
    with pytest.raises(PoolGradTypeError, match="NumPy"):
        poolgrad.avg_pool(np.zeros((1, 8, 8, 2), np.float32), 2, out=x)
    with pytest.raises(PoolGradValueError, match="shape"):
        poolgrad.avg_pool(x, 2, out=torch.zeros(1, 4, 4, 3, device="cuda"))
    with pytest.raises(PoolGradTypeError, match="dtype"):
        poolgrad.avg_pool(x, 2, out=torch.zeros(1, 4, 4, 2, device="cuda", dtype=torch.float16))
    with pytest.raises(PoolGradValueError, match="share memory"):
        poolgrad.avg_pool(x, 1, out=x)
    with pytest.raises(PoolGradValueError, match="overlap itself"):
        poolgrad.avg_pool(x, 2, out=torch.zeros((), device="cuda").expand(1, 4, 4, 2))
    with pytest.raises(PoolGradMemoryError, match="does not fit the device"):
        poolgrad.adaptive_avg_pool(x.expand(1 << 19, 8, 8, 2), (300, 300))


def test_nothing_to_do() -> None:
    assert poolgrad.avg_pool(torch.zeros(0, 8, 8, 2, device="cuda"), 2).shape == (0, 4, 4, 2)
    assert poolgrad.avg_pool_grad(torch.zeros(2, 4, 4, 0, device="cuda"), (2, 8, 8, 0), 2).shape == (2, 8, 8, 0)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cupy(dtype: Any) -> None:
    cupy = pytest.importorskip("cupy")
    dy, want = case_arrays(dtype)
    try:
        source = cupy.asarray(dy)
    except (TypeError, ValueError):
        pytest.skip(f"this CuPy has no {dtype}")
    with cupy.cuda.Stream(non_blocking=True) as stream:
        got = poolgrad.gradient(CASE, source, layout="NHWC")
        twice = poolgrad.gradient(CASE, source, layout="NHWC", out=cupy.zeros_like(got), accumulate=True)
        stream.synchronize()
    assert isinstance(got, cupy.ndarray)
    assert same_bits(cupy.asnumpy(got), want)
    assert twice.shape == want.shape
    turned = poolgrad.gradient(CASE, source.transpose(3, 1, 2, 0), layout="CHWN").transpose(3, 1, 2, 0)
    assert same_bits(cupy.asnumpy(turned), want)


@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_jax(dtype: Any) -> None:
    jax = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("JAX sees no GPU")
    dy, want = case_arrays(dtype)
    source = jax.device_put(dy)
    got = poolgrad.gradient(CASE, source, layout="NHWC")
    assert isinstance(got, jax.Array)
    again = [poolgrad.gradient(CASE, source + 0, layout="NHWC") for _ in range(5)]
    assert same_bits(np.asarray(got), want)
    assert all(same_bits(np.asarray(answer), want) for answer in again)
    long = Pool((R(64, 15, stride=1, padding="same"),) * 2)
    x = random(8, (2, 64, 64, 8), np.dtype(dtype))
    answers = [poolgrad.gradient(long, jax.device_put(x), layout="NHWC") for _ in range(5)]
    wanted = expected(long, x, np.zeros_like(x), "NHWC", False)
    assert all(same_bits(np.asarray(answer), wanted) for answer in answers)
    with pytest.raises(PoolGradTypeError, match="JAX arrays cannot be written to"):
        poolgrad.gradient(CASE, source, layout="NHWC", out=got)
    with pytest.raises(PoolGradTypeError):
        jax.jit(lambda a: poolgrad.avg_pool(a, 2))(source)


def test_a_seeded_bug_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """An order of additions that is not the contract's gives other bits."""
    right = general.prelude("sheet")
    wrong = right.replace("down[0][j] = down[0][j + 1] + term[j]", "down[0][j] = term[j] + down[0][7]")
    assert wrong != right
    monkeypatch.setattr(line.Cells, "down", line.Cells.up)
    monkeypatch.setattr(sheet, "prelude", lambda name: wrong)
    monkeypatch.setattr(gpu, "WORTH_WRITING", 0)
    monkeypatch.setattr(sheet, "ENOUGH", 0)
    for name in ("15x13 same", "63x40 same"):
        poolgrad.ops._calls.clear()
        with pytest.raises(AssertionError):
            check(POOLS[name], "NHWC", DTYPES[0], False)
    poolgrad.ops._calls.clear()
