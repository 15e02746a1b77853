"""What the caller's arguments say: a `Pool` for axes of given sizes, or a refusal that names the argument.

Each maker may be handed a `check` that sees the output sizes before any table is built, so that a call whose shapes do
not agree, or whose result cannot exist, is refused at no cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import numpy as np

from .errors import PoolGradTypeError, PoolGradValueError
from .geometry import Axis, Pool, integer, places

__all__ = ["Check", "Ints", "Padding", "adaptive", "as_sizes", "fractional", "regular"]

Ints = int | Sequence[int]
Padding = str | int | Sequence[int] | Sequence[tuple[int, int]]
Check = Callable[[tuple[int, ...]], None]


def as_sizes(name: str, shape: Any) -> tuple[int, ...]:
    if isinstance(shape, (str, bytes)) or not isinstance(shape, Iterable) or (isinstance(shape, np.ndarray) and shape.ndim != 1):
        raise PoolGradTypeError(f"{name} must be a sequence of integers, got {shape!r}")
    return tuple(integer(f"{name}[{k}]", n, 0) for k, n in enumerate(shape))


def _has_entries(value: Any) -> bool:
    if isinstance(value, np.ndarray):
        return value.ndim > 0
    return isinstance(value, Sequence) and not isinstance(value, (str, bytes))


def _per_axis(name: str, value: Any, axes: int) -> tuple[Any, ...]:
    """One value per spatial axis: a single one for all, or a sequence of the right length."""
    if isinstance(value, (str, int, np.integer)) or value is None:
        return (value,) * axes
    if not _has_entries(value):
        raise PoolGradTypeError(f"{name} must be an integer or one per spatial axis, got {value!r} ({type(value).__name__})")
    if len(value) != axes:
        raise PoolGradValueError(f"{name} must have one entry per spatial axis ({axes}), got {len(value)}: {value!r}")
    return tuple(value)


def _pairs(padding: Any, axes: int) -> tuple[Any, ...]:
    """Padding per axis as `_places` takes it: a name, an int, or a (before, after) pair."""
    return tuple(_pair(p) for p in _per_axis("padding", padding, axes))


def _pair(padding: Any) -> Any:
    if isinstance(padding, (str, int, np.integer)):
        return padding
    if not _has_entries(padding) or len(padding) != 2:
        raise PoolGradValueError(f"padding of an axis must be an integer or a (before, after) pair, got {padding!r}")
    return tuple(padding)


def regular(
    sizes: tuple[int, ...],
    window: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    count: str,
    divisor: int | None,
    ceil_mode: bool,
    check: Check | None = None,
) -> Pool:
    """Evenly spaced windows on axes of these sizes."""
    n = len(sizes)
    if not isinstance(ceil_mode, (bool, np.bool_, int)):
        raise PoolGradTypeError(f"ceil_mode must be True or False, got {ceil_mode!r}")
    if isinstance(padding, str) and padding != "valid" and ceil_mode:
        raise PoolGradValueError(f"ceil_mode applies to 'valid' or explicit padding, got padding={padding!r}")
    per_axis = list(
        zip(
            sizes,
            _per_axis("window", window, n),
            _per_axis("stride", stride, n),
            _pairs(padding, n),
            _per_axis("dilation", dilation, n),
            strict=True,
        )
    )
    if check is not None:
        check(tuple(places(*row, bool(ceil_mode))[2] for row in per_axis))
    make = partial(Axis.regular, count=count, ceil_mode=bool(ceil_mode))
    axes = tuple(make(size, k, stride=s, padding=p, dilation=d) for size, k, s, p, d in per_axis)
    return Pool(axes, divisor)


def adaptive(sizes: tuple[int, ...], output_size: Any, check: Check) -> Pool:
    asked = _per_axis("output_size", output_size, len(sizes))
    cells = tuple(n if m is None else integer("output size", m, 0) for n, m in zip(sizes, asked, strict=True))
    check(cells)
    return Pool(tuple(Axis.adaptive(n, m) for n, m in zip(sizes, cells, strict=True)))


def fractional(sizes: tuple[int, ...], sequences: Any, overlapping: bool, check: Check) -> Pool:
    if not _has_entries(sequences) or len(sequences) != len(sizes):
        raise PoolGradValueError(f"sequences must hold one pooling sequence per spatial axis ({len(sizes)}), got {sequences!r}")
    rows = zip(sizes, sequences, strict=True)
    pool = Pool(tuple(Axis.fractional(n, edges, overlapping=bool(overlapping)) for n, edges in rows))
    check(pool.output_size)
    return pool
