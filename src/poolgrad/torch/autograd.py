"""The way of a call: straight to the engine where PyTorch runs eagerly, through the registered operator elsewhere.

The pooling and its gradient are linear maps and each other's transpose, so one `Function` holds both: its derivative in
reverse is the transposed map, forward mode is the same map, and vmap folds the new axis into the batch. That gives
derivatives of every order. Measured (docs/torch.md): a `Function` around the engine costs half of what the same
registered through the dispatcher does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from .kernels import Bound, bound
from .library import folded, operators

__all__ = ["is_eager", "linear", "real"]


# What `torch.autograd.Function.apply` itself asks, asked here so that its inspection of signatures (12 µs) is skipped.
_transforms = torch._C._are_functorch_transforms_active
_modes = torch._C._len_torch_dispatch_stack
_traced = torch._C._is_tracing
_alive = torch._C._functorch.unwrap_if_dead


def is_eager(tensor: Tensor) -> bool:
    """Whether this is a real tensor and nothing compiles, traces or watches what is done to it."""
    if torch.compiler.is_compiling() or _modes() or _traced():
        return False
    return (type(tensor) is Tensor or type(tensor) is Parameter) and not tensor.is_meta


class Linear(torch.autograd.Function):  # type: ignore[misc]
    """A bound pooling, or gradient of one, of a real tensor."""

    @staticmethod
    def forward(source: Tensor, map: Bound) -> Tensor:
        return map(source)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Bound], output: Tensor) -> None:
        ctx.map = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return linear(grad, ctx.map.transposed), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return linear(tangent, ctx.map)

    @staticmethod
    def vmap(info: Any, in_dims: Any, source: Tensor, map: Bound) -> tuple[Tensor, int]:
        def function(source: Tensor, channels_last: bool) -> Tensor:
            return linear(source, bound(map.spec, tuple(source.shape), map.size, map.forwards, channels_last))

        return folded(function, source, in_dims[0], len(map.size), map.channels_last)


_apply = super(torch.autograd.Function, Linear).apply


def linear(source: Tensor, map: Bound) -> Tensor:
    """`map` of any tensor, with its derivatives."""
    if is_eager(source):
        return real(source, map)
    return operators(map.forwards)(source, map.size, map.spec, map.channels_last)


def real(source: Tensor, map: Bound) -> Tensor:
    """`map` of a tensor for which `is_eager` holds."""
    if _transforms():
        return Linear.apply(source, map)
    if not torch.is_grad_enabled() and forward_ad._current_level < 0:
        return map(source)
    return _apply(_alive(source), map)
