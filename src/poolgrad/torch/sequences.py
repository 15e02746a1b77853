"""Where the cells of a fractional pooling begin and end: TensorFlow's sequences, drawn or given.

Two numbers from a `torch.Generator` seed TensorFlow's own stream, so `torch.manual_seed` repeats a draw, and the
sequences are those that TensorFlow would draw with the same two seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..dialects.tensorflow.sequences import philox, pooled_size, pooling_sequence
from ..errors import PoolGradTypeError, PoolGradValueError
from ..geometry import integer

__all__ = ["Sequences", "draw", "given"]

Sequences = tuple[tuple[int, ...], ...]


def given(sequences: Any) -> Sequences:
    """Sequences from the caller, as integers: lists, arrays or tensors, one per axis."""
    if isinstance(sequences, (str, bytes)) or not hasattr(sequences, "__len__") or len(sequences) == 0:
        raise PoolGradTypeError(f"sequences must hold one pooling sequence per axis, got {sequences!r}")
    for row in sequences:
        if isinstance(row, torch.Tensor) and row.device.type != "cpu":
            raise PoolGradValueError(f"sequences must be on the CPU, where tables are made, got {row.device}; use .cpu()")
    rows = [row.tolist() if isinstance(row, (np.ndarray, torch.Tensor)) else row for row in sequences]
    if not all(isinstance(row, (list, tuple)) for row in rows):
        raise PoolGradTypeError(f"sequences must hold one pooling sequence per axis, got {sequences!r}")
    return tuple([tuple([integer("an entry of a pooling sequence", n, 0) for n in row]) for row in rows])


def draw(
    sizes: tuple[int, ...], ratios: Any, *, pseudo_random: bool = False, generator: torch.Generator | None = None
) -> Sequences:
    """A sequence per axis; `ratios` is how much shorter each axis becomes, a number or one per axis.

    >>> draw((10, 7), (1.44, 1.73), generator=torch.Generator().manual_seed(3))
    ((0, 1, 3, 5, 6, 8, 10), (0, 2, 4, 5, 7))
    """
    if generator is not None and not isinstance(generator, torch.Generator):
        raise PoolGradTypeError(f"generator must be a torch.Generator or None, got {generator!r}")
    if generator is not None and generator.device.type != "cpu":
        raise PoolGradValueError(f"generator must be on the CPU, where sequences are drawn, got {generator.device}")
    seeds = torch.randint(2**32, (2,), generator=generator, device="cpu").tolist()
    numbers = philox(*seeds)
    rows = []
    for size, ratio in zip(sizes, _ratios(ratios, len(sizes)), strict=True):
        cells = pooled_size(size, ratio)
        if not 1 <= cells <= size:
            raise PoolGradValueError(f"pooling_ratio must leave 1 to {size} cells of an axis of {size}, got {ratio}")
        rows.append(tuple(pooling_sequence(size, cells, numbers, pseudo_random=pseudo_random).tolist()))
    return tuple(rows)


def _ratios(ratios: Any, axes: int) -> Sequence[float]:
    entries = list(ratios) if isinstance(ratios, (list, tuple)) else [ratios] * axes
    if len(entries) != axes:
        raise PoolGradValueError(f"pooling_ratio must be a number or {axes} of them, got {ratios!r}")
    for ratio in entries:
        if isinstance(ratio, bool) or not isinstance(ratio, (int, float)):
            raise PoolGradTypeError(f"pooling_ratio must be a number, got {ratio!r} ({type(ratio).__name__})")
        if not 1 <= ratio < float("inf"):
            raise PoolGradValueError(f"pooling_ratio must be at least 1 and finite, got {ratio}")
    return entries
