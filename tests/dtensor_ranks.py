"""What each rank of a real process group checks about `poolgrad.torch` on DTensors; run by `test_torch_dtensor.py`.

    python dtensor_ranks.py RANK RANKS STORE RESULTS

Every check compares the rank's own shard with the same part of the unsharded result, bit by bit, and counts what PyTorch
communicates. Only the first check communicates itself, so one that fails does not hold up the others.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

import poolgrad.torch as pt
from poolgrad import PoolGradValueError

RANKS = 4
POOLINGS: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "avg_pool1d": ((5, 7, 13), lambda x: pt.avg_pool1d(x, 3, stride=2, padding=1)),
    "avg_pool2d": ((6, 5, 11, 9), lambda x: pt.avg_pool2d(x, (3, 2), (2, 1), padding=((1, 0), (0, 1)), count_include_pad=False)),
    "another on the same shape": ((6, 5, 11, 9), lambda x: pt.avg_pool2d(x, (3, 2), (2, 1), padding=((0, 1), (1, 0)))),
    "avg_pool3d": ((5, 6, 6, 7, 5), lambda x: pt.avg_pool3d(x, (2, 3, 2), stride=(1, 2, 3), ceil_mode=True)),
    "long window": ((4, 5, 40, 9), lambda x: pt.avg_pool2d(x, (17, 1), stride=1, dilation=(2, 1), divisor_override=7)),
    "adaptive": ((5, 6, 11, 9), lambda x: pt.adaptive_avg_pool2d(x, (4, None))),
    "fractional": ((5, 6, 11, 9), lambda x: pt.fractional_avg_pool(x, sequences=[[0, 3, 7, 11], [0, 4, 9]], overlapping=True)),
    # Not called as modules: CommDebugMode's hooks on modules know no torch.autograd.grad. `check_backward_of_a_loss` does.
    "module": ((5, 6, 11, 9), pt.AvgPool2d(3, 2, padding="same", count_include_pad=False).forward),
    "adaptive module": ((5, 6, 8, 7, 5), pt.AdaptiveAvgPool3d((3, 2, 2)).forward),
    "four axes": ((3, 6, 4, 5, 6, 3), lambda x: pt.avg_pool(x, (2, 3, 2, 2), 1)),
}
UNBATCHED: dict[str, tuple[tuple[int, ...], Callable[[Any], Any]]] = {
    "avg_pool2d": ((7, 11, 9), lambda x: pt.avg_pool2d(x, 3, stride=2, padding=1)),
    "adaptive": ((6, 13), lambda x: pt.adaptive_avg_pool1d(x, 5)),
}


def numbers(seed: int, shape: Sequence[int], dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def shared(tensor: Tensor, mesh: Any, placements: Sequence[Any]) -> Any:
    """The rank's part of a tensor that every rank has: no communication."""
    from torch.distributed.tensor import distribute_tensor

    return distribute_tensor(tensor, mesh, placements, src_data_rank=None)


def same(got: Any, want: Tensor, mesh: Any, placements: Sequence[Any]) -> None:
    assert tuple(got.placements) == tuple(placements), f"placed {got.placements}, not {placements}"
    assert got.shape == want.shape
    assert got.stride() == want.stride(), f"strides {got.stride()}, not {want.stride()}"
    part = shared(want, mesh, placements).to_local()
    local = got.to_local()
    assert local.shape == part.shape, f"rank has {local.shape}, not {part.shape}"
    bits = torch.int16 if local.element_size() == 2 else torch.int32 if local.element_size() == 4 else torch.int64
    assert torch.equal(local.contiguous().view(bits), part.contiguous().view(bits)), f"{local} instead of {part}"


class Silence:
    """Nothing may be communicated inside."""

    def __enter__(self) -> None:
        from torch.distributed.tensor.debug import CommDebugMode

        self.mode = CommDebugMode()
        self.mode.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.mode.__exit__(*error)
        assert self.mode.get_total_counts() == 0, f"communicated: {dict(self.mode.get_comm_counts())}"


def derivatives(function: Callable[[Any], Any], x: Any, dy: Any, v: Any) -> tuple[Any, Any, Any]:
    """The output, the gradient for `dy`, and the gradient with respect to `dy` of that times `v`."""
    x, dy = x.requires_grad_(), dy.requires_grad_()
    y = function(x)
    (dx,) = torch.autograd.grad(y, x, dy, create_graph=True)
    (ddy,) = torch.autograd.grad(dx, dy, v)
    return y.detach(), dx.detach(), ddy


def every_order(
    function: Callable[[Any], Any],
    shape: Sequence[int],
    mesh: Any,
    placements: Sequence[Any],
    dtype: torch.dtype = torch.float32,
    order: Any = None,
) -> None:
    x, v = (numbers(seed, shape, dtype) for seed in (1, 2))
    dy = numbers(3, function(x).shape, dtype)
    if order is not None:
        x, v, dy = (t.contiguous(memory_format=order) for t in (x, v, dy))
    want = derivatives(function, x.clone(), dy.clone(), v)
    parts = [shared(t.detach(), mesh, placements) for t in (x, dy, v)]
    with Silence():
        got = derivatives(function, *parts)
    for one, other in zip(got, want, strict=True):
        same(one, other, mesh, placements)


@cache  # PyTorch's compiler takes two equal meshes for two
def line() -> Any:
    return dist.init_device_mesh("cpu", (RANKS,))


@cache
def square() -> Any:
    return dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("batch", "channels"))


def check_batch() -> None:
    """Uneven shards too: 5 and 6 images on 4 ranks leave the last one none."""
    from torch.distributed.tensor import Shard

    for shape, function in POOLINGS.values():
        every_order(function, shape, line(), [Shard(0)])


def check_channels() -> None:
    from torch.distributed.tensor import Shard

    for shape, function in POOLINGS.values():
        every_order(function, shape, line(), [Shard(1)])


def check_replicated() -> None:
    from torch.distributed.tensor import Replicate

    for shape, function in POOLINGS.values():
        every_order(function, shape, line(), [Replicate()])


def check_unbatched() -> None:
    from torch.distributed.tensor import Shard

    for shape, function in UNBATCHED.values():
        every_order(function, shape, line(), [Shard(0)])


def check_two_dimensional_mesh() -> None:
    from torch.distributed.tensor import Replicate, Shard

    mesh = square()
    for placements in (
        [Shard(0), Shard(1)],
        [Shard(1), Shard(0)],
        [Shard(0), Shard(0)],
        [Shard(1), Shard(1)],
        [Replicate(), Shard(1)],
        [Shard(0), Replicate()],
    ):
        for shape, function in POOLINGS.values():
            every_order(function, shape, mesh, placements)


def check_dtypes_and_memory_formats() -> None:
    from torch.distributed.tensor import Shard

    shape, function = POOLINGS["avg_pool2d"]
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        every_order(function, shape, line(), [Shard(0)], dtype)
    every_order(function, shape, line(), [Shard(0)], order=torch.channels_last)
    every_order(function, shape, square(), [Shard(0), Shard(1)], torch.bfloat16, torch.channels_last)


def check_whole() -> None:
    """Gathered at the end, by PyTorch and on request, the parts are the unsharded result."""
    from torch.distributed.tensor import Shard

    shape, function = POOLINGS["avg_pool2d"]
    x = numbers(4, shape)
    for placements in ([Shard(0), Shard(1)], [Shard(1), Shard(0)]):
        assert torch.equal(function(shared(x, square(), placements)).full_tensor(), function(x))


def check_silence_can_be_broken() -> None:
    from torch.distributed.tensor import Replicate, Shard

    source = shared(numbers(4, (6, 5, 11, 9)), line(), [Shard(2)])
    with pytest.raises(AssertionError, match="all_gather"), Silence():
        source.redistribute(placements=[Replicate()])


def check_backward_of_a_loss() -> None:
    """As in training: a sharded input, a loss made of the output, `x.grad` placed like `x`."""
    from torch.distributed.tensor import Shard

    model = torch.nn.Sequential(pt.AvgPool2d(3, 2, padding="same"), torch.nn.ReLU(), pt.AdaptiveAvgPool2d((2, 3)))
    x = numbers(5, (5, 6, 11, 9)).requires_grad_()
    weight = numbers(6, (5, 6, 2, 3))
    (model(x) * weight).pow(2).sum().backward()
    parts = shared(x.detach(), line(), [Shard(0)]).requires_grad_()
    with Silence():
        (model(parts) * shared(weight, line(), [Shard(0)])).pow(2).to_local().sum().backward()
    same(parts.grad, x.grad, line(), [Shard(0)])


def check_parts_of_a_sum() -> None:
    """Each rank's term is pooled apart; whole numbers and a divisor of 8 make the sum exact."""
    from torch.distributed.tensor import DTensor, Partial, Shard

    def function(t: Any) -> Any:
        return pt.avg_pool2d(t, (4, 2), stride=(2, 1))

    terms = [torch.round(4 * numbers(7 + rank, (3, 4, 9, 8))) for rank in range(RANKS)]
    total: Tensor = torch.stack(terms).sum(0)
    for reduce_op, whole in (("sum", total), ("avg", total / RANKS)):
        source = DTensor.from_local(terms[dist.get_rank()], line(), [Partial(reduce_op)])
        with Silence():
            pooled = function(source)
        assert tuple(pooled.placements) == (Partial(reduce_op),)
        assert torch.equal(pooled.full_tensor(), function(whole))
    mine = terms[dist.get_rank() % 2].chunk(2)[dist.get_rank() // 2]
    source = DTensor.from_local(mine, square(), [Shard(0), Partial()], shape=torch.Size((3, 4, 9, 8)), stride=(288, 72, 8, 1))
    assert torch.equal(function(source).full_tensor(), function(terms[0] + terms[1]))


def refused(call: Callable[[], Any], *says: str) -> None:
    with Silence(), pytest.raises(PoolGradValueError) as refusal:
        call()
    missing = [words for words in says if words not in str(refusal.value)]
    assert not missing, f"{refusal.value} does not say {missing}"


def check_space_is_refused() -> None:
    from torch.distributed.tensor import Replicate, Shard

    for shape, function in POOLINGS.values():
        for axis in range(2, len(shape)):
            source = shared(numbers(8, shape), line(), [Shard(axis)])
            refused(lambda f=function, s=source: f(s), f"input with placements [Shard(dim={axis})]", "axes 2 to", "[Replicate()]")
    for shape, function in UNBATCHED.values():
        source = shared(numbers(8, shape), line(), [Shard(1)])
        refused(lambda f=function, s=source: f(s), "Shard(dim=1)")
    mixed = shared(numbers(8, (6, 5, 11, 9)), square(), [Shard(0), Shard(3)])
    nearest = str([Shard(0), Replicate()])
    refused(lambda: pt.avg_pool2d(mixed, 3), f"input.redistribute(placements={nearest})")
    pt.avg_pool2d(mixed.redistribute(placements=[Shard(0), Replicate()]), 3)
    for context in (torch.no_grad, torch.inference_mode):
        with context():
            source = shared(numbers(8, (6, 5, 11, 9)), line(), [Shard(2)])
            refused(lambda s=source: pt.avg_pool2d(s, 3), "Shard(dim=2)")


def check_space_is_refused_in_the_backward() -> None:
    from torch.distributed.tensor import Shard

    x = shared(numbers(9, (6, 5, 11, 9)), line(), [Shard(0)]).requires_grad_()
    y = pt.avg_pool2d(x, 3)
    dy = shared(numbers(10, y.shape), line(), [Shard(2)])
    refused(lambda: torch.autograd.grad(y, x, dy), "dy with placements [Shard(dim=2)]")


def check_other_parts_are_refused() -> None:
    from torch.distributed.tensor import DTensor, Partial

    for reduce_op in ("max", "min", "product"):
        source = DTensor.from_local(numbers(11, (2, 3, 6, 5)), line(), [Partial(reduce_op)])
        refused(lambda s=source: pt.avg_pool2d(s, 2), f"Partial({reduce_op})", "[Replicate()]")


def check_without_derivatives() -> None:
    from torch.distributed.tensor import Shard

    for shape, function in POOLINGS.values():
        x = numbers(12, shape)
        for context in (torch.no_grad, torch.inference_mode):
            with context():
                with Silence():
                    got = function(shared(x, line(), [Shard(0)]))
                same(got, function(x), line(), [Shard(0)])


def check_compiled() -> None:
    from torch.distributed.tensor import Shard

    shape, function = POOLINGS["avg_pool2d"]
    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    x, dy = numbers(13, shape).requires_grad_(), numbers(14, function(numbers(13, shape)).shape)
    (dx,) = torch.autograd.grad(function(x), x, dy)
    parts = shared(x.detach(), line(), [Shard(0)]).requires_grad_()
    y = compiled(parts)
    (got,) = torch.autograd.grad(y, parts, shared(dy, line(), [Shard(0)]))
    same(y.detach(), function(x).detach(), line(), [Shard(0)])
    same(got, dx, line(), [Shard(0)])


def check_accelerated() -> None:
    """PyTorch's own adaptive pooling under `accelerate()`: its kernel sees each rank's shard."""
    from torch.distributed.tensor import Shard

    def function(t: Any) -> Any:
        return torch.nn.functional.adaptive_avg_pool2d(t, (4, 5))

    x, dy = numbers(15, (8, 4, 11, 9)).requires_grad_(), numbers(16, (8, 4, 4, 5))
    with pt.accelerate() as report:
        (want,) = torch.autograd.grad(function(x), x, dy)
        parts = shared(x.detach(), line(), [Shard(0)]).requires_grad_()
        with Silence():
            (got,) = torch.autograd.grad(function(parts), parts, shared(dy, line(), [Shard(0)]))
    same(got, want, line(), [Shard(0)])
    assert report.calls["_adaptive_avg_pool2d_backward"] == 2


CHECKS = {name.removeprefix("check_"): check for name, check in list(globals().items()) if name.startswith("check_")}


def failure(check: Callable[[], None]) -> str:
    try:
        check()
    except BaseException:  # pytest's own failures are no Exception
        return traceback.format_exc()
    return ""


def main(rank: int, ranks: int, store: str, results: Path) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo" if sys.platform == "linux" else "lo0"
    patience = datetime.timedelta(seconds=240)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=patience)
    said = {name: failure(check) for name, check in CHECKS.items()}
    results.write_text(json.dumps(said), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], Path(sys.argv[4]))
