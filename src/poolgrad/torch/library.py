"""`torch.ops.poolgrad.avg_pool` and `avg_pool_grad`: the two maps as registered operators, each the other's gradient.

    avg_pool(Tensor x, SymInt[] size, str spec, bool channels_last) -> Tensor
    avg_pool_grad(Tensor dy, SymInt[] size, str spec, bool channels_last) -> Tensor

`size` are the spatial sizes of the result, `spec` is the pooling (`spec.py`), and `channels_last` the order of the result
in memory. What traces, compiles, exports or watches operators sees these; plain eager calls go round them
(`autograd.py`), because a Python kernel costs the dispatcher more than a small pooling costs the engine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from . import kernels

__all__ = ["folded", "operators"]

NAMES = ("avg_pool_grad", "avg_pool")

_library = torch.library.Library("poolgrad", "DEF")


def operators(forwards: bool) -> Any:
    """The pooling or its gradient, as the operator that graphs hold."""
    return _operators[forwards]


def _real(forwards: bool, source: Tensor, size: Sequence[int], spec: str, channels_last: bool) -> Tensor:
    return kernels.bound(spec, tuple(source.shape), tuple(size), forwards, channels_last)(source)


def _fake(source: Tensor, size: Sequence[int], spec: str, channels_last: bool) -> Tensor:
    lead = source.shape[: source.ndim - len(size)]
    if channels_last:
        return source.new_empty([lead[0], *size, lead[1]]).movedim(-1, 1)
    return source.new_empty([*lead, *size])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    source, size, ctx.spec, ctx.channels_last = inputs
    ctx.size = source.shape[source.ndim - len(size) :]


def _backward(forwards: bool, ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
    return operators(not forwards)(grad, ctx.size, ctx.spec, ctx.channels_last), None, None, None


def _mapped(forwards: bool, info: Any, in_dims: Any, source: Tensor, size: Any, spec: str, channels_last: bool) -> Any:
    return folded(partial(operators(forwards), size=size, spec=spec), source, in_dims[0], len(size), channels_last)


def folded(function: Any, source: Tensor, mapped: int, axes: int, channels_last: bool) -> tuple[Tensor, int]:
    """`function` over a tensor with one more axis, `mapped`, which joins the batch for the while."""
    source = source.movedim(mapped, 0)
    if source.ndim < axes + 3:
        return function(source, channels_last=False), 0
    result = function(source.flatten(0, 1), channels_last=channels_last)
    return result.unflatten(0, source.shape[:2]), 0


for _name, _forwards in zip(NAMES, (False, True), strict=True):
    _library.define(f"{_name}(Tensor {'x' if _forwards else 'dy'}, SymInt[] size, str spec, bool channels_last) -> Tensor")
    for _key in ("CPU", "CUDA"):
        _library.impl(_name, partial(_real, _forwards), _key)
    torch.library.register_fake(f"poolgrad::{_name}", _fake, lib=_library)
    torch.library.register_autograd(f"poolgrad::{_name}", partial(_backward, _forwards), setup_context=_remember, lib=_library)
    torch.library.register_vmap(f"poolgrad::{_name}", partial(_mapped, _forwards), lib=_library)

_operators = {forwards: getattr(torch.ops.poolgrad, name).default for name, forwards in zip(NAMES, (False, True), strict=True)}
