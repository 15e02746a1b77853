"""`torch.ops.poolgrad.avg_pool` and `avg_pool_grad`: the two maps as registered operators, each the other's gradient.

    avg_pool(Tensor x, SymInt[] size, str spec, bool channels_last) -> Tensor
    avg_pool_grad(Tensor dy, SymInt[] size, str spec, bool channels_last) -> Tensor

`size` are the spatial sizes of the result, `spec` is the pooling (`spec.py`), and `channels_last` the order of the result
in memory. What transforms, traces, compiles, exports or watches operators sees these; plain eager calls go round them
(`autograd.py`), because a Python kernel costs the dispatcher more than a small pooling costs the engine.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._functorch.utils import enable_single_level_autograd_function
from torch.autograd.forward_ad import _set_fwd_grad_enabled

from . import kernels

__all__ = ["apply_of", "check_placement", "operators"]

NAMES = ("avg_pool_grad", "avg_pool")

_library = torch.library.Library("poolgrad", "DEF")


def operators(forwards: bool) -> Any:
    """The pooling or its gradient, as the operator that graphs hold."""
    return _operators[forwards]


def check_placement(name: str, source: Any, axes: int) -> None:
    """Refuse a DTensor that is sharded where it is pooled. Nobody has one before its module was imported."""
    kind: Any = getattr(sys.modules.get("torch.distributed.tensor"), "DTensor", ())
    if isinstance(source, kind):
        from . import dtensor

        dtensor.check(name, source._spec, axes)


def apply_of(function: Any) -> Any:
    """`function.apply` without what Python puts before it: the inspection of signatures (12 µs a call), and the refusal of
    functorch's wrappers, which the dispatcher unwraps here as it does for PyTorch's own operators."""
    return super(torch.autograd.Function, function).apply


def _real(forwards: bool, source: Tensor, size: Sequence[int], spec: str, channels_last: bool) -> Tensor:
    made = kernels.bound(spec, tuple(source.shape), tuple(size), forwards, channels_last)
    try:
        return made(source)
    except TypeError:
        kernels.check("input" if forwards else "dy", source, len(size))
        raise


def _fake(source: Tensor, size: Sequence[int], spec: str, channels_last: bool) -> Tensor:
    lead = source.shape[: source.ndim - len(size)]
    if channels_last:
        return source.new_empty([lead[0], *size, lead[1]]).movedim(-1, 1)
    return source.new_empty([*lead, *size])


class _Map(NamedTuple):
    forwards: bool
    size: Sequence[int]
    spec: str
    channels_last: bool

    def __call__(self, source: Tensor) -> Tensor:
        return operators(self.forwards)(source, *self[1:])


class _Registered(torch.autograd.Function):  # type: ignore[misc]
    """The derivatives of the operators, for every order and both modes."""

    @staticmethod
    def forward(ctx: Any, source: Tensor, keys: Any, map: _Map) -> Tensor:
        ctx.map, ctx.size = map, source.shape[source.ndim - len(map.size) :]
        # Derivatives stay on: below this level there may be others of torch.func, which record what it does.
        with torch.enable_grad(), _set_fwd_grad_enabled(True), torch._C._AutoDispatchBelowAutograd():
            return operators(map.forwards).redispatch(keys & torch._C._after_autograd_keyset, source, *map[1:])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return ctx.map._replace(forwards=not ctx.map.forwards, size=ctx.size)(grad), None, None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: None) -> Tensor:
        return ctx.map(tangent)


_apply = apply_of(_Registered)


def _differentiable(forwards: bool, keys: Any, source: Tensor, *rest: Any) -> Tensor:
    check_placement("input" if forwards else "dy", source, len(rest[0]))
    with enable_single_level_autograd_function():
        return _apply(source, keys, _Map(forwards, *rest))


def _mapped(forwards: bool, info: Any, in_dims: Any, source: Tensor, *rest: Any) -> tuple[Tensor, int]:
    """vmap: the new axis joins the batch for the while, or is the batch of an unbatched input."""
    source, map = source.movedim(in_dims[0], 0), _Map(forwards, *rest)
    if source.ndim < len(map.size) + 3:
        return map(source), 0
    return map(source.flatten(0, 1)).unflatten(0, source.shape[:2]), 0


for _name, _forwards in zip(NAMES, (False, True), strict=True):
    _library.define(f"{_name}(Tensor {'x' if _forwards else 'dy'}, SymInt[] size, str spec, bool channels_last) -> Tensor")
    for _key in ("CPU", "CUDA"):
        _library.impl(_name, partial(_real, _forwards), _key)
    _library.impl(_name, partial(_differentiable, _forwards), "Autograd", with_keyset=True)
    torch.library.register_fake(f"poolgrad::{_name}", _fake, lib=_library)
    torch.library.register_vmap(f"poolgrad::{_name}", partial(_mapped, _forwards), lib=_library)

_operators = {forwards: getattr(torch.ops.poolgrad, name).default for name, forwards in zip(NAMES, (False, True), strict=True)}
