"""`accelerate`: PyTorch's own pooling with our backward. The same gradients, the same training, and PyTorch's back after."""

from __future__ import annotations

import runpy
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
import poolgrad.torch as pt  # noqa: E402
from poolgrad.torch import takeover  # noqa: E402

F = torch.nn.functional
EXAMPLE = runpy.run_path(str(Path(__file__).parents[1] / "examples" / "accelerate.py"), run_name="example")

CASES: list[tuple[str, Callable[[Any], Any], tuple[int, ...]]] = [
    ("avg_pool2d_backward", lambda x: F.avg_pool1d(x, 3, 2, 1), (2, 3, 11)),
    ("avg_pool2d_backward", lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 0), ceil_mode=True), (2, 3, 9, 11)),
    ("avg_pool2d_backward", lambda x: F.avg_pool2d(x, 4, 3, 2, count_include_pad=False, divisor_override=-7), (3, 9, 11)),
    ("avg_pool3d_backward", lambda x: F.avg_pool3d(x, (2, 3, 1), (1, 2, 3), (1, 0, 0)), (2, 3, 5, 6, 7)),
    ("_adaptive_avg_pool2d_backward", lambda x: F.adaptive_avg_pool1d(x, 4), (2, 3, 11)),
    ("_adaptive_avg_pool2d_backward", lambda x: F.adaptive_avg_pool2d(x, (3, 13)), (2, 3, 9, 11)),
    ("_adaptive_avg_pool3d_backward", lambda x: F.adaptive_avg_pool3d(x, (3, None, 2)), (2, 3, 5, 6, 7)),
]


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    yield
    assert not takeover._active


def gradient(function: Callable[[Any], Any], shape: tuple[int, ...], dtype: Any, kept: bool) -> Any:
    generator = torch.Generator().manual_seed(len(shape))
    x = torch.randn(shape, generator=generator).to(dtype)
    if kept and len(shape) > 3:
        x = x.contiguous(memory_format=torch.channels_last if len(shape) == 4 else torch.channels_last_3d)
    x.requires_grad_()
    y = function(x)
    return torch.autograd.grad(y, x, torch.randn(y.shape, generator=generator).to(dtype))[0]


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize(("name", "function", "shape"), CASES)
def test_gradients(name: str, function: Callable[[Any], Any], shape: tuple[int, ...], dtype: Any, kept: bool) -> None:
    try:
        want = gradient(function, shape, dtype, kept)
    except NotImplementedError:
        pytest.skip("PyTorch has no such forward")
    with pt.accelerate() as report:
        got = gradient(function, shape, dtype, kept)
    assert report.calls[name] == 1
    assert got.stride() == want.stride()
    tolerance = {torch.bfloat16: 2e-2, torch.float16: 3e-3}.get(dtype)
    torch.testing.assert_close(got, want, rtol=tolerance, atol=tolerance)
    assert torch.equal(gradient(function, shape, dtype, kept), want)
    assert report.calls[name] == 1


def test_undone_in_any_order() -> None:
    function, shape = CASES[1][1:]

    def served(report: Any) -> bool:
        before = sum(report.calls.values())
        gradient(function, shape, torch.float32, False)
        return sum(report.calls.values()) > before

    first, second = pt.accelerate(), pt.accelerate()
    assert served(first)
    assert served(second)
    first.undo()
    first.undo()
    assert not first.active
    assert not served(first)
    assert served(second)
    second.undo()
    assert not served(second)
    with pytest.raises(ZeroDivisionError), pt.accelerate() as third:
        raise ZeroDivisionError
    assert not served(third)


def test_report() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pt.accelerate() as report:
            gradient(lambda x: F.adaptive_avg_pool2d(x, 1), (2, 3, 5, 6), torch.float32, False)
            assert "active" in str(report)
            assert not any(report.calls.values())  # the mean that PyTorch makes of it
            gradient(*CASES[1][1:], torch.float32, False)
    said = str(report)
    assert "undone" in said
    assert "avg_pool2d_backward: 1 calls" in said
    assert "as a mean" in said
    assert "torch.compile" in said


def test_what_is_not_ours_is_left_to_pytorch() -> None:
    with pt.accelerate() as report:
        grad, x = torch.ones(1, 1, 2, 2, dtype=torch.int64), torch.ones(1, 1, 4, 4, dtype=torch.int64)
        left = torch.ops.aten.avg_pool2d_backward(grad, x, [2, 2], [2, 2], [0, 0], False, True, 1)
    assert torch.equal(left, x)
    assert report.left["avg_pool2d_backward"] == 1
    assert "1 left to PyTorch" in str(report)


def test_derivatives_and_threads() -> None:
    x = torch.randn(2, 2, 6, 5, dtype=torch.float64, requires_grad=True)
    with pt.accelerate() as report:
        assert torch.autograd.gradcheck(lambda x: F.avg_pool2d(x, 3, 2, 1), x)
        assert torch.autograd.gradgradcheck(lambda x: F.adaptive_avg_pool2d(x, (4, 2)), x)
        each = torch.func.vmap(torch.func.grad(lambda x: F.avg_pool2d(x, 2).pow(2).sum()))(x.detach())
        torch.testing.assert_close(each, torch.autograd.grad(F.avg_pool2d(x, 2).pow(2).sum(), x)[0])
        before = report.calls["avg_pool2d_backward"]
        threads = [threading.Thread(target=gradient, args=(*CASES[1][1:], torch.float32, False)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert report.calls["avg_pool2d_backward"] == before + 4


@pytest.mark.parametrize("name", ["Dense", "Inception"])
def test_training_is_the_same(name: str) -> None:
    """Some steps of a network: the same losses, and every pooling of it was ours."""
    losses, _ = EXAMPLE["train"](EXAMPLE[name], 4)
    with pt.accelerate() as report:
        ours, _ = EXAMPLE["train"](EXAMPLE[name], 4)
    torch.testing.assert_close(torch.tensor(ours), torch.tensor(losses), rtol=1e-5, atol=1e-6)
    assert losses[-1] < losses[0]
    assert report.calls["avg_pool2d_backward"] == 8
    assert report.calls["_adaptive_avg_pool2d_backward"] == (4 if name == "Dense" else 0)
