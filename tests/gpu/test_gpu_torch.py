"""`poolgrad.torch` on a GPU: its functions and modules to the bit of the NumPy engine, in every dtype and order of memory.

What PyTorch does to functions stands in `test_gpu_transforms.py`, `accelerate` in `test_gpu_accelerate.py`. Run by `make
test-gpu`; needs PyTorch and a CUDA device, and is skipped elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from device_support import DEVICE, DTYPES, assert_same_bits, definition, random, to_device

from poolgrad import Axis, Pool, PoolGradError, PoolGradMemoryError, PoolGradTypeError, PoolGradValueError

torch = pytest.importorskip("torch")
if DEVICE == "cuda" and not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
import poolgrad.torch as pt  # noqa: E402
from poolgrad.torch.spec import regular_spec  # noqa: E402

R, A = Axis.regular, Axis.adaptive
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
LAYOUTS = {1: "NCL", 2: "NCHW", 3: "NCDHW", 4: "NC0123"}
ROWS = ((0, 2, 3, 5, 9), (0, 1, 4, 6, 13))


class Case(NamedTuple):
    """A function of ours, a module that says the same where there is one, and the tables that both must mean."""

    function: Callable[[Any], Any]
    shape: tuple[int, ...]
    pool: Pool
    module: Any = None

    @property
    def layout(self) -> str:
        return LAYOUTS[len(self.pool.axes)][-len(self.shape) :]

    @property
    def output_shape(self) -> tuple[int, ...]:
        return (*self.shape[: -len(self.pool.axes)], *self.pool.output_size)


CASES = {
    "1-d": Case(
        lambda x: pt.avg_pool1d(x, 3, 2, 1), (3, 5, 11), Pool((R(11, 3, stride=2, padding=(1, 1), count="padded"),)),
        pt.AvgPool1d(3, 2, 1),
    ),
    "1-d long": Case(
        lambda x: pt.avg_pool1d(x, 21, 1, padding="same", count_include_pad=False), (3, 40, 401),
        Pool((R(401, 21, stride=1, padding="same"),)),
    ),
    "1-d adaptive": Case(lambda x: pt.adaptive_avg_pool1d(x, 4), (3, 5, 11), Pool((A(11, 4),)), pt.AdaptiveAvgPool1d(4)),
    "padding counted": Case(
        lambda x: pt.avg_pool2d(x, (3, 2), (2, 3), (1, 0)), (2, 6, 9, 13),
        Pool((R(9, 3, stride=2, padding=(1, 1), count="padded"), R(13, 2, stride=3))), pt.AvgPool2d((3, 2), (2, 3), (1, 0)),
    ),
    "padding not counted": Case(
        lambda x: pt.avg_pool2d(x, (4, 3), (3, 2), (2, 1), count_include_pad=False), (2, 6, 9, 13),
        Pool((R(9, 4, stride=3, padding=(2, 2)), R(13, 3, stride=2, padding=(1, 1)))),
        pt.AvgPool2d((4, 3), (3, 2), (2, 1), count_include_pad=False),
    ),
    "ceil": Case(
        lambda x: pt.avg_pool2d(x, (4, 3), (3, 2), (1, 0), ceil_mode=True), (3, 2, 12, 10),
        Pool((R(12, 4, stride=3, padding=(1, 1), count="padded", ceil_mode=True), R(10, 3, stride=2, ceil_mode=True))),
        pt.AvgPool2d((4, 3), (3, 2), (1, 0), ceil_mode=True),
    ),
    "divisor": Case(
        lambda x: pt.avg_pool2d(x, (3, 4), (2, 3), divisor_override=-7), (2, 5, 13, 12),
        Pool((R(13, 3, stride=2), R(12, 4, stride=3)), -7), pt.AvgPool2d((3, 4), (2, 3), divisor_override=-7),
    ),
    "unbatched": Case(lambda x: pt.avg_pool2d(x, (3, 2), 2), (5, 9, 13), Pool((R(9, 3, stride=2), R(13, 2)))),
    "same": Case(
        lambda x: pt.avg_pool2d(x, (5, 3), 1, padding="same", count_include_pad=False), (4, 16, 40, 36),
        Pool((R(40, 5, stride=1, padding="same"), R(36, 3, stride=1, padding="same"))),
        pt.AvgPool2d((5, 3), 1, padding="same", count_include_pad=False),
    ),
    "same lower": Case(
        lambda x: pt.avg_pool2d(x, (4, 2), (3, 1), padding="same_lower"), (2, 3, 11, 8),
        Pool((R(11, 4, stride=3, padding="same_lower", count="padded"), R(8, 2, stride=1, padding="same_lower", count="padded"))),
    ),
    "asymmetric": Case(
        lambda x: pt.avg_pool2d(x, (2, 3), (1, 2), ((0, 1), (2, 1)), count_include_pad=False), (2, 3, 11, 8),
        Pool((R(11, 2, stride=1, padding=(0, 1)), R(8, 3, stride=2, padding=(2, 1)))),
    ),
    "dilated": Case(
        lambda x: pt.avg_pool2d(x, 3, (2, 1), (0, 2), dilation=(2, 3)), (2, 8, 23, 17),
        Pool((R(23, 3, stride=2, dilation=2), R(17, 3, stride=1, padding=(2, 2), dilation=3, count="padded"))),
        pt.AvgPool2d(3, (2, 1), (0, 2), dilation=(2, 3)),
    ),
    "wide": Case(
        lambda x: pt.avg_pool2d(x, (15, 13), 1, padding="same", count_include_pad=False), (2, 8, 70, 50),
        Pool((R(70, 15, stride=1, padding="same"), R(50, 13, stride=1, padding="same"))),
    ),
    "2x2": Case(lambda x: pt.avg_pool2d(x, 2), (4, 8, 66, 48), Pool((R(66, 2), R(48, 2))), pt.AvgPool2d(2)),
    "adaptive": Case(
        lambda x: pt.adaptive_avg_pool2d(x, (5, 16)), (2, 6, 9, 13), Pool((A(9, 5), A(13, 16))), pt.AdaptiveAvgPool2d((5, 16))
    ),
    "global": Case(lambda x: pt.adaptive_avg_pool2d(x, 1), (5, 40, 7, 6), Pool((A(7, 1), A(6, 1))), pt.AdaptiveAvgPool2d(1)),
    "one row": Case(lambda x: pt.adaptive_avg_pool2d(x, (1, 5)), (2, 3, 9, 11), Pool((A(9, 1), A(11, 5)))),
    "no cells": Case(lambda x: pt.adaptive_avg_pool2d(x, (0, 5)), (2, 3, 9, 11), Pool((A(9, 0), A(11, 5)))),
    "fractional": Case(
        lambda x: pt.fractional_avg_pool(x, sequences=ROWS, overlapping=True), (2, 6, 9, 13),
        Pool((Axis.fractional(9, ROWS[0], overlapping=True), Axis.fractional(13, ROWS[1], overlapping=True))),
        pt.FractionalAvgPool(sequences=ROWS, overlapping=True),
    ),
    "3-d": Case(
        lambda x: pt.avg_pool3d(x, (2, 3, 1), (1, 2, 3), (1, 0, 0)), (2, 3, 5, 6, 7),
        Pool((R(5, 2, stride=1, padding=(1, 1), count="padded"), R(6, 3, stride=2), R(7, 1, stride=3))),
        pt.AvgPool3d((2, 3, 1), (1, 2, 3), (1, 0, 0)),
    ),
    "3-d same": Case(
        lambda x: pt.avg_pool3d(x, 3, 1, padding="same", count_include_pad=False), (2, 8, 12, 14, 18),
        Pool(tuple(R(n, 3, stride=1, padding="same") for n in (12, 14, 18))),
    ),
    "3-d adaptive": Case(
        lambda x: pt.adaptive_avg_pool3d(x, (3, None, 2)), (2, 3, 5, 6, 7), Pool((A(5, 3), A(6, 6), A(7, 2))),
        pt.AdaptiveAvgPool3d((3, None, 2)),
    ),
    "four axes": Case(
        lambda x: pt.avg_pool(x, (2, 3, 2, 4)), (1, 2, 5, 6, 7, 9), Pool((R(5, 2), R(6, 3), R(7, 2), R(9, 4))),
        pt.AvgPool((2, 3, 2, 4)),
    ),
}


def arrays(case: Case, dtype: Any, special: bool = True) -> tuple[Any, Any]:
    """An input and a gradient of the output."""
    return random(1, case.shape, dtype, special), random(2, case.output_shape, dtype, special)


def check(case: Case, x: Any, dy: Any, leaf: Any, grad: Any) -> None:
    """Forward and gradient to the bit, both in the order of memory that the input has."""
    leaf = leaf.detach().requires_grad_()
    kept = FORMATS.get(leaf.ndim, torch.contiguous_format)
    if leaf.is_contiguous() or not leaf.is_contiguous(memory_format=kept):
        kept = torch.contiguous_format
    y = case.function(leaf)
    (dx,) = torch.autograd.grad(y, leaf, grad)
    assert y.is_contiguous(memory_format=kept) or y.numel() == 0
    assert dx.is_contiguous(memory_format=kept)
    assert_same_bits(y, definition(case.pool, x, case.layout, forwards=True))
    assert_same_bits(dx, definition(case.pool, dy, case.layout, forwards=False))


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, where a sum of the definition overflows
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_bits(name: str, dtype: Any) -> None:
    """Contiguous and channels_last, and a gradient that comes in the other order: dx follows x."""
    case = CASES[name]
    x, dy = arrays(case, dtype)
    leaf, grad = to_device(x), to_device(dy)
    check(case, x, dy, leaf, grad)
    if leaf.ndim in FORMATS and leaf.ndim == len(case.pool.axes) + 2:
        last = [t.contiguous(memory_format=FORMATS[leaf.ndim]) for t in (leaf, grad)]
        check(case, x, dy, last[0], last[1])
        check(case, x, dy, leaf, last[1])
        check(case, x, dy, last[0], grad)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.module is not None])
def test_modules(name: str) -> None:
    case = CASES[name]
    x = random(3, case.shape, DTYPES[0])
    assert_same_bits(case.module.to(DEVICE)(to_device(x)), definition(case.pool, x, case.layout, forwards=True))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", ["padding counted", "same", "wide", "3-d same", "adaptive", "dilated"])
def test_any_strides(name: str, dtype: Any) -> None:
    """Results lie as they should whatever the source's order: every other element, turned, broadcast, not aligned."""
    case = CASES[name]
    x, dy = arrays(case, dtype, False)

    def strewn(t: Any) -> Any:
        wide = torch.zeros([2 * n + 1 for n in t.shape], dtype=t.dtype, device=DEVICE)
        wide[tuple(slice(1, None, 2) for _ in t.shape)] = t
        return wide[tuple(slice(1, None, 2) for _ in t.shape)]

    def turned(t: Any) -> Any:
        return t.transpose(0, -1).contiguous().transpose(0, -1)

    def shifted(t: Any) -> Any:
        return torch.cat([torch.zeros(1, dtype=t.dtype, device=DEVICE), t.flatten()])[1:].view(t.shape)

    for way in (strewn, turned, shifted):
        leaf, grad = way(to_device(x)), way(to_device(dy))
        y = case.function(leaf.requires_grad_())
        (dx,) = torch.autograd.grad(y, leaf, grad)
        assert_same_bits(y, definition(case.pool, x, case.layout, forwards=True))
        assert_same_bits(dx, definition(case.pool, dy, case.layout, forwards=False))
        fake = case.function(leaf.detach().to("meta"))
        assert (y.shape, y.stride()) == (fake.shape, fake.stride()), "graphs are compiled for other strides"
    one = np.broadcast_to(dy[:1, :1], dy.shape).copy()
    leaf = to_device(x).requires_grad_()
    (dx,) = torch.autograd.grad(case.function(leaf), leaf, to_device(dy)[:1, :1].expand(dy.shape))
    assert_same_bits(dx, definition(case.pool, one, case.layout, forwards=False))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_marked_tensors(dtype: Any) -> None:
    """A tensor that is negated, or zero, by a mark alone has its values nowhere in memory."""
    x = torch.randn(1, 2, 5, 5, device=DEVICE).to(dtype)
    assert torch.equal(pt.avg_pool2d(torch._neg_view(x), 2), pt.avg_pool2d(-x, 2))
    zero = torch._efficientzerotensor((1, 2, 5, 5), dtype=dtype, device=DEVICE)
    assert torch.equal(pt.avg_pool2d(zero, 2), torch.zeros(1, 2, 2, 2, dtype=dtype, device=DEVICE))


def test_fractional_is_drawn_as_on_the_host() -> None:
    """The same generator gives the same sequences and values wherever the tensor is."""
    x = random(4, (2, 3, 20, 17), DTYPES[0])
    for options in ({}, {"pseudo_random": True}, {"overlapping": True}):
        pools = []
        for tensor in (to_device(x), torch.from_numpy(x)):
            generator = torch.Generator().manual_seed(5)
            pools.append(pt.fractional_avg_pool(tensor, (1.5, 1.25), generator=generator, return_sequences=True, **options))
        assert pools[0][1] == pools[1][1]
        assert torch.equal(pools[0][0].cpu(), pools[1][0])
        assert pools[0][0].device.type == DEVICE


def test_zero_size() -> None:
    for shape in ((0, 3, 8, 8), (2, 0, 8, 8)):
        for function in (lambda x: pt.avg_pool2d(x, 3), lambda x: pt.adaptive_avg_pool2d(x, (2, 5))):
            x = torch.randn(shape, device=DEVICE, requires_grad=True)
            y = function(x)
            y.sum().backward()
            assert 0 in y.shape
            assert x.grad.shape == shape


def test_results_may_be_changed_in_place() -> None:
    x = torch.randn(2, 3, 6, 6, device=DEVICE, requires_grad=True)
    y = pt.avg_pool2d(x, 3).relu_()
    y.backward(torch.randn_like(y))
    assert torch.equal(x.grad != 0, (pt.avg_pool2d(x, 3) > 0).repeat_interleave(3, 2).repeat_interleave(3, 3))


def images() -> Any:
    return torch.randn(1, 3, 8, 9, device=DEVICE)


def drawn_there() -> Any:
    return pt.fractional_avg_pool(images(), 1.5, generator=torch.Generator(DEVICE))


def given_there() -> Any:
    return pt.fractional_avg_pool(images(), sequences=[torch.tensor([0, 3, 8], device=DEVICE)] * 2)


REFUSED: dict[str, tuple[Callable[[], Any], type[PoolGradError], str]] = {
    "integers": (lambda: pt.avg_pool2d(images().int(), 2), PoolGradTypeError, "torch.int32"),
    "complex": (lambda: pt.avg_pool2d(images().to(torch.complex64), 2), PoolGradTypeError, "complex64"),
    "sparse": (lambda: pt.avg_pool2d(images()[0].to_sparse(), 2), PoolGradTypeError, "dense tensor"),
    "array": (lambda: pt.avg_pool2d(images().cpu().numpy(), 2), PoolGradTypeError, "torch.Tensor"),
    "rank": (lambda: pt.avg_pool3d(images()[0], 2), PoolGradValueError, "dimensions"),
    "window": (lambda: pt.avg_pool2d(images(), 10), PoolGradValueError, "larger than the padded input"),
    "no batch for channels_last": (
        lambda: torch.ops.poolgrad.avg_pool(images()[0], (4, 4), regular_spec(2, 2), True),
        PoolGradValueError, "channels_last needs",
    ),
    "cells": (
        lambda: torch.ops.poolgrad.avg_pool(images(), (3, 3), regular_spec(2, 2), False), PoolGradValueError, r"not \(3, 3\)",
    ),
    "operator on integers": (
        lambda: torch.ops.poolgrad.avg_pool(images().int(), (4, 4), regular_spec(2, 2), False), PoolGradTypeError, "torch.int32",
    ),
}
ON_CUDA = {
    "generator there": (drawn_there, PoolGradValueError, "generator must be on the CPU"),
    "sequences there": (given_there, PoolGradValueError, "sequences must be on the CPU"),
    "memory": (
        lambda: pt.adaptive_avg_pool2d(images()[:, :, :, :8].expand(1 << 18, 3, 8, 8), (250, 250)),
        PoolGradMemoryError, "does not fit the device",
    ),
    "memory for a gradient": (
        lambda: torch.ops.poolgrad.avg_pool_grad(images()[:, :, :1, :1].expand(1 << 18, 3, 1, 1), (250, 250), "adaptive", True),
        PoolGradMemoryError, "does not fit the device",
    ),
}


@pytest.mark.parametrize("name", {**REFUSED, **(ON_CUDA if DEVICE == "cuda" else {})})
def test_refusals(name: str) -> None:
    pt.avg_pool2d(images(), 2)  # what is kept from a good call must not let a bad one pass
    call, kind, words = {**REFUSED, **ON_CUDA}[name]
    with pytest.raises(kind, match=words):
        call()
    assert pt.avg_pool2d(images(), 2).shape == (1, 3, 4, 4)


def test_a_gradient_on_another_device_is_refused() -> None:
    x = images().requires_grad_()
    y = pt.avg_pool2d(x, 2)
    with pytest.raises(RuntimeError):
        y.backward(torch.ones(y.shape, device="cpu" if DEVICE == "cuda" else "meta"))
    assert x.grad is None


def test_a_seeded_bug_is_seen() -> None:
    """Padding dropped, axes exchanged, the wrong divisor: other bits."""
    case = CASES["padding counted"]
    x, dy = arrays(case, DTYPES[0], False)
    for wrong in (
        lambda x: pt.avg_pool2d(x, (3, 2), (2, 3), (1, 0), count_include_pad=False),
        lambda x: pt.avg_pool2d(x.transpose(2, 3), (2, 3), (3, 2), (0, 1), count_include_pad=False).transpose(2, 3),
        lambda x: pt.avg_pool2d(x, (3, 2), (2, 3), ((0, 2), (0, 0))),
    ):
        with pytest.raises(AssertionError):
            check(case._replace(function=wrong), x, dy, to_device(x), to_device(dy))
