"""What the dialects share: reading a dict of arguments as a call, spreading one number over the axes, and running.

A dialect describes each of its functions by a *maker*: a function of the input shape and of that system's arguments that
returns a `Pooling`. Its forward, its gradient and `read` all go through the maker, so they cannot disagree.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import ops
from ..arguments import as_sizes
from ..arrays import check_source
from ..errors import PoolGradTypeError, PoolGradValueError
from ..geometry import integer
from .pooling import Adaptive, Fractional, Pooling, Regular

__all__ = ["Array", "Maker", "called", "choice", "flag", "forward", "gradient", "listed", "per_axis", "rank_of", "shape_of"]

Array = npt.NDArray[Any]
Maker = Callable[..., Pooling]


def called(makers: Mapping[str, Maker], op: str, arguments: Mapping[str, Any], input_shape: Sequence[int]) -> Pooling:
    """What `makers[op]` makes of a dict of arguments; `op` in the dict, if any, is the name it was looked up by."""
    if not isinstance(op, str) or op not in makers:
        raise PoolGradValueError(f"op must be one of {', '.join(map(repr, makers))}, got {op!r}")
    maker = makers[op]
    names = list(inspect.signature(maker).parameters)[1:]
    given = {name: value for name, value in arguments.items() if name != "op"}
    for name in given:
        if name not in names:
            raise PoolGradTypeError(f"{op} has no argument {name!r}; its arguments are {', '.join(names)}")
    for name, parameter in list(inspect.signature(maker).parameters.items())[1:]:
        if parameter.default is parameter.empty and name not in given:
            raise PoolGradTypeError(f"{op} needs the argument {name!r}; its arguments are {', '.join(names)}")
    return maker(as_sizes("input_shape", input_shape), **given)


def per_axis(name: str, value: Any, axes: int, least: int) -> tuple[int, ...]:
    """One integer per axis: a sequence of the right length, or one for all (alone or in a sequence of length one)."""
    entries = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Sequence):
        return (integer(name, entries, least),) * axes
    if len(entries) not in (1, axes):
        raise PoolGradValueError(f"{name} must be an integer or {axes} of them, got {value!r}")
    numbers = tuple(integer(f"{name}[{k}]", entry, least) for k, entry in enumerate(entries))
    return numbers * (axes // len(numbers))


def listed(name: str, value: Any, length: int, least: int) -> tuple[int, ...]:
    """Exactly `length` integers."""
    entries = value.tolist() if isinstance(value, np.ndarray) else value
    if isinstance(entries, (str, bytes)) or not isinstance(entries, Sequence) or len(entries) != length:
        raise PoolGradValueError(f"{name} must hold {length} integers, got {value!r}")
    return tuple(integer(f"{name}[{k}]", entry, least) for k, entry in enumerate(entries))


def flag(name: str, value: Any) -> bool:
    """A truth value: True, False, 1 or 0."""
    if not isinstance(value, (bool, np.bool_, int, np.integer)) or value not in (0, 1):
        raise PoolGradTypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def choice(name: str, value: Any, allowed: Sequence[str]) -> str:
    if not isinstance(value, str) or value not in allowed:
        raise PoolGradValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, got {value!r}")
    return value


def rank_of(name: str, shape: tuple[int, ...], allowed: Sequence[int]) -> int:
    if len(shape) not in allowed:
        raise PoolGradValueError(f"{name} must have rank {' or '.join(map(str, allowed))}, got shape {shape}")
    return len(shape)


def shape_of(name: str, array: Any) -> tuple[int, ...]:
    """The shape of an input that may be given as an array or as its shape."""
    return array.shape if isinstance(array, np.ndarray) and array.ndim != 1 else as_sizes(name, array)


def forward(name: str, x: Any, maker: Maker, *arguments: Any) -> Array:
    """The forward pass of the pooling that `maker` makes for `x`, the argument called `name`."""
    x = check_source(name, x)
    pooling = maker(x.shape, *arguments)
    if isinstance(pooling, Regular):
        return ops.avg_pool(x, pooling.window, layout=pooling.layout, **_options(pooling))
    if isinstance(pooling, Adaptive):
        return ops.adaptive_avg_pool(x, pooling.output_size, layout=pooling.layout)
    assert isinstance(pooling, Fractional)
    return ops.fractional_avg_pool(x, pooling.sequences, overlapping=pooling.overlapping, layout=pooling.layout)


def gradient(name: str, dy: Any, input_shape: tuple[int, ...], maker: Maker, *arguments: Any) -> Array:
    """The gradient of the pooling that `maker` makes for `input_shape`, from `dy`, the argument called `name`."""
    dy = check_source(name, dy)
    pooling = maker(input_shape, *arguments)
    if isinstance(pooling, Regular):
        return ops.avg_pool_grad(dy, input_shape, pooling.window, layout=pooling.layout, **_options(pooling))
    if isinstance(pooling, Adaptive):
        return ops.adaptive_avg_pool_grad(dy, input_shape, layout=pooling.layout)
    assert isinstance(pooling, Fractional)
    return ops.fractional_avg_pool_grad(
        dy, input_shape, pooling.sequences, overlapping=pooling.overlapping, layout=pooling.layout
    )


def _options(pooling: Regular) -> dict[str, Any]:
    return {
        "stride": pooling.stride,
        "padding": pooling.padding,
        "dilation": pooling.dilation or 1,
        "count": pooling.count,
        "divisor": pooling.divisor,
        "ceil_mode": pooling.ceil_mode,
    }
