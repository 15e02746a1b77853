"""The way of a call: straight to the engine where PyTorch runs eagerly, through the registered operator elsewhere.

The pooling and its gradient are linear maps and each other's transpose, so the derivative in reverse is the transposed
map, and forward mode is the same map: that gives derivatives of every order. A `Function` around the engine costs a
fraction of what the same registered through the dispatcher does (docs/torch.md).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from .kernels import Bound
from .library import apply_of, operators

__all__ = ["is_eager", "linear"]

_modes = torch._C._len_torch_dispatch_stack
_traced = torch._C._is_tracing
_transforms = torch._C._are_functorch_transforms_active
_alive = torch._C._functorch.unwrap_if_dead
_batched = torch._C._functorch.is_legacy_batchedtensor  # of torch.autograd.grad(is_grads_batched=True)


def is_eager(tensor: Tensor) -> bool:
    """Whether this is a real tensor and nothing compiles, traces, transforms or watches what is done to it."""
    if torch.compiler.is_compiling() or _modes() or _transforms() or _traced():
        return False
    return (type(tensor) is Tensor or type(tensor) is Parameter) and not tensor.is_meta and not _batched(tensor)


class _Linear(torch.autograd.Function):  # type: ignore[misc]
    """A bound pooling, or gradient of one, of a real tensor."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, map: Bound) -> Tensor:
        ctx.map = map
        return map(source)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _anywhere(grad, ctx.map.transposed), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, _: None) -> Tensor:
        return _anywhere(tangent, ctx.map)


_apply = apply_of(_Linear)


def _anywhere(source: Tensor, map: Bound) -> Tensor:
    if is_eager(source):
        return linear(source, map)
    return operators(map.forwards)(source, map.size, map.spec, map.channels_last)


def linear(source: Tensor, map: Bound) -> Tensor:
    """`map` of a tensor for which `is_eager` holds, with its derivatives."""
    if not torch.is_grad_enabled() and forward_ad._current_level < 0:
        return map(source)
    return _apply(_alive(source), map)
