"""What PyTorch does to `poolgrad.torch` on a GPU: derivatives of every order and mode, torch.func, compile, export, autocast,
operator checks, deterministic mode, streams and CUDA graphs.

Where the result is a pooling or a gradient of one, it is compared by bits with the NumPy engine. Run by `make test-gpu`;
needs PyTorch and a CUDA device, Inductor's tests also Triton and a C compiler; without them they are skipped and say so.
"""

from __future__ import annotations

import importlib.util
import shutil
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device_support import DEVICE, DTYPES, assert_same_bits, capturing, definition, exact_convolutions, random, to_device

from poolgrad import Axis, Pool

torch = pytest.importorskip("torch")
if DEVICE == "cuda" and not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402

import poolgrad.torch as pt  # noqa: E402
from poolgrad.torch.spec import ADAPTIVE, regular_spec  # noqa: E402

F = torch.nn.functional
R = Axis.regular
Function = Callable[[Any], Any]
on_cuda = pytest.mark.skipif(DEVICE != "cuda", reason="streams and graphs are CUDA's")

SHAPE = (2, 3, 5, 6)
ROWS = ((0, 2, 3, 5), (0, 1, 4, 6))
OURS: dict[str, tuple[Function, Pool]] = {
    "window": (
        lambda x: pt.avg_pool2d(x, (3, 2), (2, 3), (1, 0)),
        Pool((R(5, 3, stride=2, padding=(1, 1), count="padded"), R(6, 2, stride=3))),
    ),
    "dilated same": (
        lambda x: pt.avg_pool2d(x, 2, 1, padding="same", count_include_pad=False, dilation=2),
        Pool(tuple(R(n, 2, stride=1, padding="same", dilation=2) for n in (5, 6))),
    ),
    "adaptive": (lambda x: pt.adaptive_avg_pool2d(x, (3, 4)), Pool((Axis.adaptive(5, 3), Axis.adaptive(6, 4)))),
    "fractional": (
        lambda x: pt.fractional_avg_pool(x, sequences=ROWS),
        Pool(tuple(Axis.fractional(n, row) for n, row in zip((5, 6), ROWS, strict=True))),
    ),
}
THEIRS: dict[str, Function] = {
    "window": lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 0)),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, (3, 4)),
}


def randn(*shape: int, seed: int = 0, dtype: Any = None) -> Any:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(DEVICE, dtype or torch.float64)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OURS)
def test_derivatives_by_bits(name: str, dtype: Any) -> None:
    """The map is linear: its gradient's gradient, its tangent and its mapped form are the map again, and so are their bits."""
    function, pool = OURS[name]
    x, v = random(1, SHAPE, dtype), random(2, SHAPE, dtype)
    dy = random(3, (*SHAPE[:2], *pool.output_size), dtype)
    forward = {key: definition(pool, array, "NCHW", forwards=True) for key, array in (("x", x), ("v", v))}
    backward = definition(pool, dy, "NCHW", forwards=False)
    leaf, cotangent = to_device(x).requires_grad_(), to_device(dy).requires_grad_()
    (dx,) = torch.autograd.grad(function(leaf), leaf, cotangent, create_graph=True)
    assert_same_bits(dx, backward)
    (again,) = torch.autograd.grad(dx, cotangent, to_device(v), create_graph=True)
    assert_same_bits(again, forward["v"])
    value, tangent = jvp(function, (to_device(x),), (to_device(v),))
    assert_same_bits(value, forward["x"])
    assert_same_bits(tangent, forward["v"])
    assert_same_bits(vjp(function, to_device(x))[1](to_device(dy))[0], backward)
    with forward_ad.dual_level():
        dual = function(forward_ad.make_dual(to_device(x), to_device(v)))
        assert_same_bits(forward_ad.unpack_dual(dual).tangent, forward["v"])
    both = vmap(function, in_dims=1, out_dims=1)(torch.stack([to_device(x), to_device(v)], 1))
    assert_same_bits(both[:, 0], forward["x"])
    assert_same_bits(both[:, 1], forward["v"])
    assert_same_bits(vmap(lambda image: function(image.unsqueeze(0)).squeeze(0))(to_device(x)), forward["x"])
    many = torch.stack([to_device(dy), 2 * to_device(dy)])
    (batched,) = torch.autograd.grad(function(leaf), leaf, many, is_grads_batched=True)
    assert_same_bits(batched[0], backward)
    assert_same_bits(batched[1], definition(pool, (2 * dy).astype(dtype), "NCHW", forwards=False))


@pytest.mark.parametrize("name", OURS)
def test_gradcheck(name: str) -> None:
    x = randn(1, 2, 5, 6).requires_grad_()
    batched = {"check_batched_grad": True}
    assert gradcheck(OURS[name][0], x, check_forward_ad=True, check_batched_forward_grad=True, **batched)
    assert gradgradcheck(OURS[name][0], x, check_fwd_over_rev=True, check_rev_over_rev=True, **batched)


TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "grad of grad": lambda k: grad(lambda x: grad(lambda x: (k(x) ** 3).sum())(x).pow(2).sum()),
    "jvp of grad": lambda k: lambda x: jvp(grad(lambda x: (k(x) ** 3).sum()), (x,), (randn(*SHAPE, seed=2),))[1],
    "grad of vmap of grad": lambda k: grad(lambda x: vmap(grad(lambda x: (k(x) ** 3).sum()))(x).pow(2).sum()),
    "jacrev": lambda k: jacrev(lambda x: k(x) ** 2),
    "jacfwd": lambda k: jacfwd(lambda x: k(x) ** 2),
    "hessian": lambda k: hessian(lambda x: (k(x) ** 3).sum()),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", THEIRS)
def test_torch_func(name: str, transform: str) -> None:
    """Beside PyTorch's own pooling under the same transformation, in NCHW, where its gradient is right."""
    x = randn(*SHAPE, seed=1)
    ours, theirs = TRANSFORMS[transform](OURS[name][0])(x), TRANSFORMS[transform](THEIRS[name])(x)
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_opcheck(dtype: Any) -> None:
    spec = regular_spec(2, (3, 2), (2, 3), ((1, 1), (0, 0)))
    x = randn(*SHAPE, dtype=dtype)
    kept = x.contiguous(memory_format=torch.channels_last)
    pool, back = torch.ops.poolgrad.avg_pool.default, torch.ops.poolgrad.avg_pool_grad.default
    samples = [(pool, (x, (3, 2), spec, False)), (pool, (kept, (3, 2), spec, True)), (pool, (kept, (3, 2), spec, False))]
    samples += [(back, (randn(2, 3, 3, 2, dtype=dtype), (5, 6), spec, False)), (back, (x, (7, 9), ADAPTIVE, True))]
    samples += [(back, (kept[:, :, :1], (4, 6), ADAPTIVE, False))]
    for operator, (source, *rest) in samples:
        if dtype is torch.float16 or dtype is torch.float32:
            torch.library.opcheck(operator, (source, *rest), test_utils=("test_schema", "test_faketensor"))
        else:
            torch.library.opcheck(operator, (source.detach().requires_grad_(), *rest))


class Network(torch.nn.Module):
    """Every kind of module."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3, padding=1)
        self.pools = torch.nn.Sequential(
            pt.AvgPool2d(3, 2, 1, ceil_mode=True), pt.AvgPool2d(2, 1, padding="same"), pt.AdaptiveAvgPool2d((3, None))
        )

    def forward(self, x: Any) -> Any:
        return self.pools(self.conv(x)).flatten(1)


def network() -> Network:
    torch.manual_seed(3)
    return Network().to(DEVICE)


def check_compiled(backend: str, dynamic: bool) -> None:
    torch._dynamo.reset()
    model = network()
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic, backend=backend)
    for size in ((8, 9), (10, 7)) if dynamic else ((8, 9),):
        for order in (torch.contiguous_format, torch.channels_last):
            x = randn(2, 3, *size, dtype=torch.float32).contiguous(memory_format=order)
            results = []
            for module in (model, compiled):
                leaf = x.clone().requires_grad_()
                y = module(leaf)
                y.backward(randn(*y.shape, seed=1, dtype=torch.float32))
                results.append((y.detach(), leaf.grad))
            torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_without_inductor(dynamic: bool) -> None:
    with exact_convolutions():
        check_compiled("aot_eager", dynamic)


COMPILER = any(map(shutil.which, ("cc", "gcc", "clang")))
TRITON = DEVICE != "cuda" or importlib.util.find_spec("triton") is not None
inductor = pytest.mark.skipif(not (COMPILER and TRITON), reason="Inductor needs Triton and a C compiler (cc, gcc or clang)")


@inductor
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_by_inductor(dynamic: bool) -> None:
    with exact_convolutions():
        check_compiled("inductor", dynamic)


@inductor
@pytest.mark.parametrize("name", OURS)
def test_inductor_keeps_the_bits(name: str) -> None:
    function, pool = OURS[name]
    torch._dynamo.reset()
    compiled = torch.compile(lambda x: 2 * function(x / 4), fullgraph=True)  # powers of two, so that no rounding is added
    x, dy = random(4, SHAPE, DTYPES[0]), random(5, (*SHAPE[:2], *pool.output_size), DTYPES[0])
    leaf = to_device(x).requires_grad_()
    y = compiled(leaf)
    (dx,) = torch.autograd.grad(y, leaf, to_device(dy))
    assert_same_bits(y, definition(pool, x, "NCHW", forwards=True) / np.float32(2))
    assert_same_bits(dx, definition(pool, dy, "NCHW", forwards=False) / np.float32(2))


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict: bool) -> None:
    model = network()
    shapes = ({0: torch.export.Dim("batch"), 2: torch.export.Dim("height", min=4)},)
    exported = torch.export.export(model, (randn(*SHAPE, dtype=torch.float32),), dynamic_shapes=shapes, strict=strict)
    operators = [str(node.target) for node in exported.graph.nodes if "poolgrad" in str(node.target)]
    assert operators == ["poolgrad.avg_pool.default"] * 3
    x = randn(3, 3, 9, 6, seed=6, dtype=torch.float32)
    with exact_convolutions():
        torch.testing.assert_close(exported.module()(x), model(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(dtype: Any) -> None:
    """The dtype that comes in goes out; gradients arrive in the dtypes that the layers before had."""
    model, x = network(), randn(*SHAPE, dtype=torch.float32)
    with torch.autocast(DEVICE, dtype):
        y = model(x)
        assert y.dtype is dtype
        assert pt.avg_pool2d(x, 2).dtype is torch.float32
    y.float().pow(2).sum().backward()
    assert model.conv.weight.grad.dtype is torch.float32
    assert model.conv.weight.grad.abs().sum() > 0


def test_deterministic_and_inference() -> None:
    x = randn(2, 3, 40, 41, dtype=torch.float32).requires_grad_()
    torch.use_deterministic_algorithms(True)
    try:
        answers = [torch.autograd.grad(pt.avg_pool2d(x, 9, 2).pow(2).sum(), x)[0] for _ in range(3)]
        volumes = x.detach().unsqueeze(2).requires_grad_()
        pt.avg_pool3d(volumes, (1, 7, 5), 1).sum().backward()
        pt.adaptive_avg_pool3d(volumes, (1, 7, 5)).sum().backward()
        pt.adaptive_avg_pool2d(x, (7, 5)).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(answers[0], other) for other in answers)
    with torch.inference_mode():
        assert pt.avg_pool2d(x, 2).is_inference()
    with torch.no_grad():
        assert not pt.avg_pool2d(x, 2).requires_grad


LARGE = (4, 16, 40, 36)
"""Large enough for kernels of its own."""
SMOOTH = Pool((R(40, 5, stride=1, padding="same"), R(36, 3, stride=1, padding="same")))


def smooth(x: Any) -> Any:
    return pt.avg_pool2d(x, (5, 3), 1, padding="same", count_include_pad=False)


def test_threads() -> None:
    """Calls from several threads at once, the first of their kind among them."""
    x, dy = random(6, LARGE, DTYPES[0]), random(7, LARGE, DTYPES[0])
    leaves, answers = [to_device(x).requires_grad_() for _ in range(4)], {}

    def work(k: int) -> None:
        answers[k] = torch.autograd.grad(smooth(leaves[k]), leaves[k], to_device(dy))[0]

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    want = definition(SMOOTH, dy, "NCHW", forwards=False)
    for k in range(4):
        assert_same_bits(answers[k], want)


@on_cuda
def test_another_stream_is_not_waited_for() -> None:
    x, dy = random(6, LARGE, DTYPES[0]), random(7, LARGE, DTYPES[0])
    fresh, cotangent, stream = to_device(x), to_device(dy), torch.cuda.Stream()
    leaf = torch.zeros(LARGE, device=DEVICE, requires_grad=True)
    torch.autograd.grad(smooth(leaf), leaf, cotangent)  # the kernels are made now, which takes longer than the sleep
    torch.cuda.synchronize()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(400_000_000)
        with torch.no_grad():
            leaf.copy_(fresh)
        y = smooth(leaf)
        (dx,) = torch.autograd.grad(y, leaf, cotangent)
        assert not stream.query(), "the call waited for the device"
    stream.synchronize()
    assert_same_bits(y, definition(SMOOTH, x, "NCHW", forwards=True))
    assert_same_bits(dx, definition(SMOOTH, dy, "NCHW", forwards=False))


@on_cuda
@pytest.mark.parametrize("order", [torch.contiguous_format, torch.channels_last], ids=str)
@pytest.mark.parametrize("warm", [True, False])
def test_cuda_graphs(warm: bool, order: Any) -> None:
    """Forward and backward in one graph, replayed with new values; also where the capture is the first call of its kind."""
    shape = LARGE if warm else (3, *LARGE[1:])  # not seen before
    leaf, cotangent = (torch.zeros(shape, device=DEVICE).contiguous(memory_format=order) for _ in range(2))
    leaf.requires_grad_()

    def step() -> tuple[Any, Any]:
        y = smooth(leaf)
        return y, torch.autograd.grad(y, leaf, cotangent)[0]

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        if warm:
            step()
        else:  # PyTorch's own things alone
            torch.autograd.grad(F.avg_pool2d(leaf, 2), leaf, cotangent[:, :, :20, :18])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        y, dx = step()
    for seed in (8, 9):
        x, dy = random(seed, shape, DTYPES[0]), random(seed + 10, shape, DTYPES[0])
        with torch.no_grad():
            leaf.copy_(to_device(x))
        cotangent.copy_(to_device(dy))
        graph.replay()
        assert_same_bits(y, definition(SMOOTH, x, "NCHW", forwards=True))
        assert_same_bits(dx, definition(SMOOTH, dy, "NCHW", forwards=False))


@on_cuda
def test_graphed_callables() -> None:
    sample = torch.randn(2, 8, 12, 11, device=DEVICE, requires_grad=True)
    module = torch.cuda.make_graphed_callables(pt.AvgPool2d(3, 2, 1), (sample,))
    x = randn(2, 8, 12, 11, seed=3, dtype=torch.float32).requires_grad_()
    y, want = module(x), pt.avg_pool2d(x, 3, 2, 1)
    dy = randn(*y.shape, seed=4, dtype=torch.float32)
    assert torch.equal(y, want)
    assert torch.equal(torch.autograd.grad(y, x, dy)[0], torch.autograd.grad(want, x, dy)[0])
