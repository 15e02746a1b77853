"""Whatever PyTorch does to a function: derivatives of every order and mode, torch.func, compile, export, autocast, modes.

The reference is PyTorch's own pooling under the same transformation, in float64, with random cotangents.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")
from torch.autograd import forward_ad, gradcheck, gradgradcheck  # noqa: E402
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, vjp, vmap  # noqa: E402

import poolgrad.torch as pt  # noqa: E402
from poolgrad.torch.spec import ADAPTIVE, regular_spec  # noqa: E402

F = torch.nn.functional
Function = Callable[[Any], Any]


def randn(*shape: int, seed: int = 0, **options: Any) -> Any:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return values.to(**options)


ROWS = ((0, 2, 3, 5), (0, 1, 4, 6))
OURS: dict[str, Function] = {
    "window": lambda x: pt.avg_pool2d(x, (3, 2), (2, 3), (1, 0)),
    "dilated same": lambda x: pt.avg_pool2d(x, 2, 1, padding="same", dilation=2),
    "asymmetric": lambda x: pt.avg_pool2d(x, (2, 3), (1, 2), ((0, 1), (2, 1)), count_include_pad=False),
    "adaptive": lambda x: pt.adaptive_avg_pool2d(x, (3, 4)),
    "fractional": lambda x: pt.fractional_avg_pool(x, sequences=ROWS, overlapping=True),
}
PAIRS: dict[str, tuple[Function, Function]] = {
    "window": (OURS["window"], lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 0))),
    "adaptive": (OURS["adaptive"], lambda x: F.adaptive_avg_pool2d(x, (3, 4))),
}


@pytest.mark.parametrize("name", OURS)
def test_gradcheck(name: str) -> None:
    x = randn(2, 2, 5, 6).requires_grad_()
    batched = {"check_batched_grad": True}
    assert gradcheck(OURS[name], x, check_forward_ad=True, check_batched_forward_grad=True, **batched)
    assert gradgradcheck(OURS[name], x, check_fwd_over_rev=True, check_rev_over_rev=True, **batched)


x0, v0 = randn(2, 3, 5, 6, seed=1), randn(2, 3, 5, 6, seed=2)
TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "vmap": vmap,
    "vmap of images": lambda k: vmap(lambda x: k(x.unsqueeze(0))),
    "vmap over another axis": lambda k: vmap(k, in_dims=1, out_dims=2),
    "jvp": lambda k: lambda x: jvp(k, (x,), (v0,))[1],
    "vjp": lambda k: lambda x: vjp(k, x)[1](k(v0))[0],
    "grad": lambda k: grad(lambda x: (k(x) ** 3).sum()),
    "grad of grad": lambda k: grad(lambda x: grad(lambda x: (k(x) ** 3).sum())(x).pow(2).sum()),
    "third order": lambda k: grad(lambda x: grad(lambda x: grad(lambda x: (k(x) ** 4).sum())(x).pow(2).sum())(x).sum()),
    "jvp of jvp": lambda k: lambda x: jvp(lambda x: jvp(lambda x: k(x) ** 3, (x,), (v0,))[1], (x,), (v0,))[1],
    "jvp of grad": lambda k: lambda x: jvp(grad(lambda x: (k(x) ** 3).sum()), (x,), (v0,))[1],
    "grad of jvp": lambda k: grad(lambda x: jvp(lambda x: k(x) ** 3, (x,), (v0,))[1].pow(2).sum()),
    "grad of vmap of grad": lambda k: grad(lambda x: vmap(grad(lambda x: (k(x) ** 3).sum()))(x).pow(2).sum()),
    "jacrev": lambda k: jacrev(lambda x: k(x) ** 2),
    "jacfwd": lambda k: jacfwd(lambda x: k(x) ** 2),
    "hessian": lambda k: hessian(lambda x: (k(x) ** 3).sum()),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PAIRS)
def test_torch_func(name: str, transform: str) -> None:
    ours, theirs = PAIRS[name]
    torch.testing.assert_close(TRANSFORMS[transform](ours)(x0), TRANSFORMS[transform](theirs)(x0))


@pytest.mark.parametrize("transform", ["vmap", "jvp", "grad of grad", "jvp of grad"])
def test_torch_func_compiled(transform: str) -> None:
    ours, theirs = PAIRS["window"]
    torch._dynamo.reset()
    compiled = torch.compile(TRANSFORMS[transform](ours), fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x0), TRANSFORMS[transform](theirs)(x0))


def test_unbatched_vmap_and_channels_last() -> None:
    kept = x0.contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(vmap(OURS["window"])(kept), OURS["window"](x0))
    stacked = torch.stack([kept, 2 * kept])
    torch.testing.assert_close(vmap(OURS["window"])(stacked)[1], 2 * OURS["window"](x0))


def test_forward_mode_and_batched_gradients() -> None:
    ours, theirs = PAIRS["window"]
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(x0, v0)
        torch.testing.assert_close(forward_ad.unpack_dual(ours(dual)).tangent, theirs(v0))
        with torch.no_grad():
            torch.testing.assert_close(forward_ad.unpack_dual(ours(dual)).tangent, theirs(v0))
    x = x0.clone().requires_grad_()
    many = randn(4, *ours(x).shape, seed=5)
    mine, want = (torch.autograd.grad(k(x), x, many, is_grads_batched=True)[0] for k in (ours, theirs))
    torch.testing.assert_close(mine, want)
    jacobian = torch.autograd.functional.jacobian
    torch.testing.assert_close(jacobian(ours, x0, vectorize=True), jacobian(theirs, x0))


SPEC = regular_spec(2, (3, 2), (2, 3), ((1, 1), (0, 0)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
def test_opcheck(dtype: Any) -> None:
    x = randn(2, 3, 5, 6, dtype=dtype)
    kept = x.contiguous(memory_format=torch.channels_last)
    pool, back = torch.ops.poolgrad.avg_pool.default, torch.ops.poolgrad.avg_pool_grad.default
    samples = [(pool, (x, (3, 2), SPEC, False)), (pool, (kept, (3, 2), SPEC, True)), (pool, (x[0], (4, 3), ADAPTIVE, False))]
    samples += [(back, (randn(2, 3, 3, 2, dtype=dtype), (5, 6), SPEC, False)), (back, (x, (7, 9), ADAPTIVE, True))]
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


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile(dynamic: bool) -> None:
    """By Inductor, in one graph, forward and backward, at more than one size."""
    torch._dynamo.reset()
    torch.manual_seed(3)
    model = Network()
    compiled = torch.compile(model, fullgraph=True, dynamic=dynamic)
    for size in ((8, 9), (10, 7)) if dynamic else ((8, 9),):
        x = torch.randn(2, 3, *size)
        gradients = []
        for network in (model, compiled):
            leaf = x.clone().requires_grad_()
            y = network(leaf)
            y.backward(torch.randn(y.shape, generator=torch.Generator().manual_seed(1)))
            gradients.append((y.detach(), leaf.grad))
        torch.testing.assert_close(gradients[0], gradients[1])


def test_compiled_sizes_as_arguments() -> None:
    torch._dynamo.reset()
    options = {"fullgraph": True, "dynamic": True, "backend": "aot_eager"}
    whole = torch.compile(lambda x: pt.avg_pool2d(x, x.shape[2:]), **options)
    like = torch.compile(lambda x, y: pt.adaptive_avg_pool2d(x, y.shape[2:]), **options)
    for size in ((5, 6), (7, 4), (8, 8)):
        x = randn(2, 3, *size)
        torch.testing.assert_close(whole(x), F.avg_pool2d(x, size))
        torch.testing.assert_close(like(x, x[:, :, :3, :2]), F.adaptive_avg_pool2d(x, (3, 2)))


def test_compiled_kinds() -> None:
    for function in OURS.values():
        torch._dynamo.reset()
        torch.testing.assert_close(torch.compile(function, fullgraph=True, backend="aot_eager")(x0), function(x0))
    torch._dynamo.reset()
    drawn = torch.compile(lambda x: pt.fractional_avg_pool(x, 1.5), backend="eager")
    torch.manual_seed(2)
    got = drawn(x0)
    torch.manual_seed(2)
    torch.testing.assert_close(got, pt.fractional_avg_pool(x0, 1.5))


@pytest.mark.parametrize("strict", [False, True])
def test_export(strict: bool) -> None:
    model = Network().double()
    shapes = ({0: torch.export.Dim("batch"), 2: torch.export.Dim("height", min=4)},)
    exported = torch.export.export(model, (x0,), dynamic_shapes=shapes, strict=strict)
    operators = [str(node.target) for node in exported.graph.nodes if "poolgrad" in str(node.target)]
    assert operators == ["poolgrad.avg_pool.default"] * 3
    x = randn(3, 3, 9, 6, seed=6)
    torch.testing.assert_close(exported.module()(x), model(x))


def test_traced() -> None:
    model = Network().double().eval()
    torch.testing.assert_close(torch.fx.symbolic_trace(model)(x0), model(x0))
    with pytest.warns(torch.jit.TracerWarning):
        traced = torch.jit.trace(model, x0, check_trace=False)
    torch.testing.assert_close(traced(v0), model(v0))


def test_meta_and_fake_tensors() -> None:
    for function in OURS.values():
        for given in (x0, x0.contiguous(memory_format=torch.channels_last)):
            x = given.to("meta").requires_grad_()
            y, real = function(x), function(given)
            assert (y.shape, y.stride(), y.dtype, y.device.type) == (real.shape, real.stride(), real.dtype, "meta")
            (dx,) = torch.autograd.grad(y, x, torch.empty_like(y))
            assert dx.shape == given.shape
            with torch._subclasses.FakeTensorMode() as mode:
                fake = function(mode.from_tensor(given))
            assert (fake.shape, fake.stride()) == (real.shape, real.stride())


def test_modes_and_subclasses() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Watch(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.seen: list[str] = []

        def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
            self.seen.append(str(function))
            return function(*arguments, **(named or {}))

    with Watch() as watch:
        x = x0.clone().requires_grad_()
        OURS["window"](x).sum().backward()
    assert [name for name in watch.seen if "poolgrad" in name] == ["poolgrad.avg_pool.default", "poolgrad.avg_pool_grad.default"]

    class Named(torch.Tensor):
        pass

    named = OURS["adaptive"](x0.as_subclass(Named))
    assert type(named) is Named
    assert torch.equal(named.as_subclass(torch.Tensor), OURS["adaptive"](x0))
    parameter = torch.nn.Parameter(x0.clone())
    OURS["window"](parameter).sum().backward()
    assert parameter.grad is not None


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_autocast(dtype: Any) -> None:
    """The dtype that comes in goes out; gradients arrive in the dtypes that the layers before had."""
    torch.manual_seed(0)
    model, x = Network(), torch.randn(2, 3, 8, 9)
    with torch.autocast("cpu", dtype):
        y = model(x)
        assert y.dtype is dtype
        assert pt.avg_pool2d(x, 2).dtype is torch.float32
    y.float().pow(2).sum().backward()
    assert model.conv.weight.grad.dtype is torch.float32
    assert model.conv.weight.grad.abs().sum() > 0


def test_deterministic_and_inference() -> None:
    x = torch.randn(2, 3, 40, 41, requires_grad=True)
    torch.use_deterministic_algorithms(True)
    try:
        answers = [torch.autograd.grad(pt.avg_pool2d(x, 9, 2).pow(2).sum(), x)[0] for _ in range(3)]
        volumes = x.detach().unsqueeze(2).requires_grad_()
        pt.adaptive_avg_pool3d(volumes, (1, 7, 5)).sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(answers[0], other) for other in answers)
    with torch.inference_mode():
        assert pt.avg_pool2d(x, 2).is_inference()
    with torch.no_grad():
        assert not pt.avg_pool2d(x, 2).requires_grad


def test_graphs_of_gradients() -> None:
    """create_graph, hooks, retain_graph, checkpoints and functional_call, as PyTorch's own."""
    ours, theirs = PAIRS["window"]
    results = []
    for k in (ours, theirs):
        x = x0.clone().requires_grad_()
        seen = []
        x.register_hook(lambda g, seen=seen: seen.append(g.clone()))
        (first,) = torch.autograd.grad((k(x) ** 3).sum(), x, create_graph=True)
        first.pow(2).sum().backward(retain_graph=True)
        first.sum().backward()
        again = torch.utils.checkpoint.checkpoint(k, x, use_reentrant=False)
        again.pow(2).sum().backward()
        results.append([first.detach(), x.grad, *seen])
    torch.testing.assert_close(results[0], results[1])
    model = Network().double()
    torch.testing.assert_close(functional_call(model, dict(model.named_parameters()), (x0,)), model(x0))
