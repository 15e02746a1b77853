"""`accelerate` on a GPU: PyTorch's own pooling with our backward, to the bit of the NumPy engine; and PyTorch's back after.

PyTorch's own gradient is compared too. Where it differs by more than rounding, the exact oracle says who is right: ours must be,
and that PyTorch's is wrong there is said as a warning (until July 2026 its padded channels_last gradient on CUDA was). Run by
`make test-gpu`; needs PyTorch and a CUDA device, and is skipped elsewhere.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from device_support import DEVICE, DTYPES, assert_same_bits, definition, exact_convolutions, random, to_device, to_host

from poolgrad import Axis, Pool, exact

torch = pytest.importorskip("torch")
if DEVICE == "cuda" and not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
import poolgrad.torch as pt  # noqa: E402
from poolgrad.bench.networks import NETWORKS  # noqa: E402
from poolgrad.torch import takeover  # noqa: E402

F = torch.nn.functional
R, A = Axis.regular, Axis.adaptive
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}
LAYOUTS = {3: "NCL", 4: "NCHW", 5: "NCDHW"}


class Case(NamedTuple):
    """A function of PyTorch, the operator that its backward calls, and its tables."""

    operator: str
    function: Callable[[Any], Any]
    shape: tuple[int, ...]
    pool: Pool


CASES = {
    "1-d": Case(
        "avg_pool2d_backward", lambda x: F.avg_pool1d(x, 3, 2, 1), (2, 3, 11),
        Pool((R(11, 3, stride=2, padding=(1, 1), count="padded"),)),
    ),
    "2x2": Case("avg_pool2d_backward", lambda x: F.avg_pool2d(x, 2), (4, 8, 66, 48), Pool((R(66, 2), R(48, 2)))),
    "padding counted": Case(
        "avg_pool2d_backward", lambda x: F.avg_pool2d(x, 3, 1, 1), (2, 32, 35, 33),
        Pool(tuple(R(n, 3, stride=1, padding=(1, 1), count="padded") for n in (35, 33))),
    ),
    "padding not counted": Case(
        "avg_pool2d_backward", lambda x: F.avg_pool2d(x, (3, 5), (2, 3), (1, 2), count_include_pad=False), (2, 5, 14, 17),
        Pool((R(14, 3, stride=2, padding=(1, 1)), R(17, 5, stride=3, padding=(2, 2)))),
    ),
    "ceil": Case(
        "avg_pool2d_backward", lambda x: F.avg_pool2d(x, (3, 2), (2, 3), ceil_mode=True), (2, 3, 10, 12),
        Pool((R(10, 3, stride=2, ceil_mode=True), R(12, 2, stride=3, ceil_mode=True))),
    ),
    "divisor": Case(
        "avg_pool2d_backward", lambda x: F.avg_pool2d(x, (3, 4), (2, 3), divisor_override=-7), (2, 3, 13, 12),
        Pool((R(13, 3, stride=2), R(12, 4, stride=3)), -7),
    ),
    "wide": Case(
        "avg_pool2d_backward", lambda x: F.avg_pool2d(x, 15, 1, count_include_pad=False), (2, 4, 40, 37),
        Pool((R(40, 15, stride=1), R(37, 15, stride=1))),
    ),
    "3-d": Case(
        "avg_pool3d_backward", lambda x: F.avg_pool3d(x, (2, 3, 1), (1, 2, 3), (1, 0, 0)), (2, 3, 5, 6, 7),
        Pool((R(5, 2, stride=1, padding=(1, 1), count="padded"), R(6, 3, stride=2), R(7, 1, stride=3))),
    ),
    "adaptive 1-d": Case(
        "_adaptive_avg_pool2d_backward", lambda x: F.adaptive_avg_pool1d(x, 4), (2, 3, 11), Pool((A(11, 4),))
    ),
    "adaptive": Case(
        "_adaptive_avg_pool2d_backward", lambda x: F.adaptive_avg_pool2d(x, (3, 13)), (2, 5, 9, 11), Pool((A(9, 3), A(11, 13)))
    ),
    "adaptive 3-d": Case(
        "_adaptive_avg_pool3d_backward", lambda x: F.adaptive_avg_pool3d(x, (3, None, 2)), (2, 3, 5, 6, 7),
        Pool((A(5, 3), A(6, 6), A(7, 2))),
    ),
}
TOLERANCE = {2: 2e-2, 4: 1e-4, 8: 1e-9}
"""By the bytes of an element, at sums of numbers up to some hundreds."""


@pytest.fixture(autouse=True)
def _undone() -> Iterator[None]:
    yield
    assert not takeover._active


def gradient(case: Case, x: Any, dy: Any, last: bool) -> Any:
    leaf, grad = to_device(x), to_device(dy)
    if last:
        leaf, grad = (t.contiguous(memory_format=FORMATS[t.ndim]) for t in (leaf, grad))
    leaf.requires_grad_()
    y = case.function(leaf)
    assert y.shape == dy.shape
    return torch.autograd.grad(y, leaf, grad)[0]


def arrays(case: Case, dtype: Any) -> tuple[Any, Any]:
    shape = (*case.shape[:2], *case.pool.output_size)
    return random(1, case.shape, dtype), (random(2, shape, np.dtype(np.float64)) / 8).astype(dtype)


@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels_last"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_gradients(name: str, dtype: Any, last: bool) -> None:
    case = CASES[name]
    if last and len(case.shape) not in FORMATS:
        pytest.skip("channels_last is for images and volumes")
    x, dy = arrays(case, dtype)
    try:
        theirs = to_host(gradient(case, x, dy, last))
    except NotImplementedError as refused:
        pytest.skip(f"PyTorch has no such forward: {refused}")
    with pt.accelerate() as report:
        ours = gradient(case, x, dy, last)
    assert report.calls[case.operator] == 1
    assert sum(report.left.values()) == 0
    assert ours.is_contiguous(memory_format=torch.channels_last if last and ours.ndim == 4 else torch.contiguous_format)
    assert_same_bits(ours, definition(case.pool, dy, LAYOUTS[len(case.shape)], forwards=False))
    beside_pytorchs(case, to_host(ours), theirs, dy, f"{name}, {dtype}, channels_last={last}")
    most = TOLERANCE[dtype.itemsize]  # PyTorch's atomic additions come in any order
    again = to_host(gradient(case, x, dy, last))
    np.testing.assert_allclose(again.astype(np.float64), theirs.astype(np.float64), rtol=most, atol=most)
    assert report.calls[case.operator] == 1, "PyTorch's own is not back"


def beside_pytorchs(case: Case, ours: Any, theirs: Any, dy: Any, what: str) -> None:
    """The same up to rounding; if not, the oracle must find ours right, and PyTorch's fault is told."""
    most = TOLERANCE[ours.dtype.itemsize]
    got, other = ours.astype(np.float64), theirs.astype(np.float64)
    if np.allclose(got, other, rtol=most, atol=most):
        return
    want = exact.gradient(case.pool, dy, LAYOUTS[len(case.shape)]).astype(np.float64)
    assert np.allclose(got, want, rtol=most, atol=most), f"{what}: ours is wrong"
    worst = float(np.max(abs(other - want)))
    warnings.warn(f"PyTorch {torch.__version__} is wrong by up to {worst:.3g} in {what}", UserWarning, stacklevel=1)


def test_undone_in_any_order() -> None:
    case = CASES["padding counted"]
    x, dy = arrays(case, DTYPES[0])

    def served(report: Any) -> bool:
        before = sum(report.calls.values())
        gradient(case, x, dy, False)
        return sum(report.calls.values()) > before

    first, second = pt.accelerate(), pt.accelerate()
    assert DEVICE in first.devices
    assert served(first)
    assert served(second)
    first.undo()
    first.undo()
    assert not served(first)
    assert served(second)
    second.undo()
    assert not served(second)
    with pytest.raises(ZeroDivisionError), pt.accelerate() as third:
        raise ZeroDivisionError
    assert not served(third)


def test_derivatives() -> None:
    x = torch.randn(2, 2, 6, 5, dtype=torch.float64, device=DEVICE, requires_grad=True)
    with pt.accelerate() as report:
        assert torch.autograd.gradcheck(lambda x: F.avg_pool2d(x, 3, 2, 1), x)
        assert torch.autograd.gradgradcheck(lambda x: F.adaptive_avg_pool2d(x, (4, 2)), x)
        each = torch.func.vmap(torch.func.grad(lambda x: F.avg_pool2d(x, 2).pow(2).sum()))(x.detach())
        torch.testing.assert_close(each, torch.autograd.grad(F.avg_pool2d(x, 2).pow(2).sum(), x)[0])
    assert report.calls["avg_pool2d_backward"] > 0
    assert report.calls["_adaptive_avg_pool2d_backward"] > 0


def test_it_is_deterministic() -> None:
    """PyTorch refuses some of these backward passes on CUDA in deterministic mode; ours need no atomic additions."""
    torch.use_deterministic_algorithms(True)
    try:
        with pt.accelerate() as report:
            for name in ("padding counted", "3-d", "adaptive", "adaptive 3-d"):
                case = CASES[name]
                x, dy = arrays(case, DTYPES[0])
                first, second = (to_host(gradient(case, x, dy, False)) for _ in range(2))
                assert np.array_equal(first, second)
    finally:
        torch.use_deterministic_algorithms(False)
    assert sum(report.calls.values()) == 8


@pytest.mark.skipif(DEVICE != "cuda", reason="needs two kinds of devices")
def test_mixed_devices_are_pytorchs_to_refuse() -> None:
    grad, x = torch.ones(1, 1, 2, 2), torch.ones(1, 1, 4, 4)
    for mixed in ((grad, x.to(DEVICE)), (grad.to(DEVICE), x)):
        with pt.accelerate() as report, pytest.raises(RuntimeError):
            torch.ops.aten.avg_pool2d_backward(*mixed, [2, 2], [2, 2], [0, 0], False, True, None)
        assert not any(report.calls.values())
        assert report.left["avg_pool2d_backward"] == 1


def train(network: type[Any], steps: int, order: Any, dtype: Any = None) -> list[float]:
    """The losses of some steps on the device, under autocast where a dtype is given."""
    torch.manual_seed(7)
    model = network(width=2)
    images, labels = torch.randn(8, 3, 48, 48), torch.randint(10, (8,))
    model, images, labels = model.to(DEVICE, memory_format=order), images.to(DEVICE, memory_format=order), labels.to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        with torch.autocast(DEVICE, dtype or torch.bfloat16, enabled=dtype is not None):
            loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("name", NETWORKS)
def test_training_is_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """PyTorch's losses are taken in NCHW, where its gradient is right; ours must be those in both orders."""
    steps, network = 5, NETWORKS[name]
    orders = (torch.contiguous_format, torch.channels_last)
    with exact_convolutions():
        want, others = (train(network, steps, order) for order in orders)
    with exact_convolutions(), pt.accelerate() as report:
        ours = [train(network, steps, order) for order in orders]
    with capsys.disabled():
        print(f"\n{name}: PyTorch NCHW {_text(want)}, channels_last {_text(others)}; ours {_text(ours[0])}, {_text(ours[1])}")
    poolings = {"DenseNet-like": 3, "Inception-like": 3, "with a 15×15 smoothing": 4}[name]
    assert report.calls["avg_pool2d_backward"] == 2 * steps * poolings
    assert report.calls["_adaptive_avg_pool2d_backward"] == (2 * steps if name == "DenseNet-like" else 0)
    assert want[-1] < want[0]
    for losses in ours:
        np.testing.assert_allclose(losses, want, rtol=2e-3)


def _text(losses: list[float]) -> str:
    return " ".join(f"{loss:.4f}" for loss in losses)


def test_training_under_autocast() -> None:
    network = NETWORKS["Inception-like"]
    with exact_convolutions():
        want = train(network, 4, torch.contiguous_format, torch.bfloat16)
    with exact_convolutions(), pt.accelerate() as report:
        ours = train(network, 4, torch.contiguous_format, torch.bfloat16)
    assert report.calls["avg_pool2d_backward"] == 12
    np.testing.assert_allclose(ours, want, rtol=5e-2)
