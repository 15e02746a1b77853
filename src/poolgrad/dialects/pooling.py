"""What a dialect says, in the core's own words: the common language between dialects.

Every dialect has `read(arguments, input_shape)`, which returns one of these records, and `write(pooling, input_shape)`,
which returns the dialect's own arguments or raises `NoTranslation` with the reason. Two descriptions say the same exactly
when their tables are equal: `pooling.pool(input_shape)`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..arguments import as_sizes, regular
from ..errors import PoolGradValueError
from ..geometry import Axis, Pool
from ..layout import spatial_positions

__all__ = ["Adaptive", "Fractional", "NoTranslation", "Pooling", "Regular"]


class NoTranslation(PoolGradValueError):
    """The other dialect has no arguments that say the same."""


@dataclass(frozen=True)
class Pooling:
    """A pooling with its layout; per-axis fields follow the logical order D, H, W."""

    layout: str

    def sizes(self, input_shape: Sequence[int]) -> tuple[int, ...]:
        """The spatial extents of `input_shape`, in logical order."""
        shape = as_sizes("input_shape", input_shape)
        return tuple(shape[p] for p in spatial_positions(self.layout, len(shape)))

    def pool(self, input_shape: Sequence[int]) -> Pool:
        """The tables of this pooling on an input of this full shape."""
        raise NotImplementedError


@dataclass(frozen=True)
class Regular(Pooling):
    """Evenly spaced windows, padding as numbers.

    >>> Regular("NHWC", (2, 3), (2, 1), ((0, 0), (1, 1))).pool((1, 4, 5, 2)).output_size
    (2, 5)
    """

    window: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...] | None = None
    count: str = "inside"
    divisor: int | None = None
    ceil_mode: bool = False

    def pool(self, input_shape: Sequence[int]) -> Pool:
        sizes = self.sizes(input_shape)
        dilation = self.dilation or (1,) * len(sizes)
        return regular(sizes, self.window, self.stride, self.padding, dilation, self.count, self.divisor, self.ceil_mode)


@dataclass(frozen=True)
class Adaptive(Pooling):
    """A given number of cells per axis, PyTorch's rule; 1 everywhere is global pooling."""

    output_size: tuple[int, ...]

    def pool(self, input_shape: Sequence[int]) -> Pool:
        return Pool(tuple(Axis.adaptive(n, m) for n, m in zip(self.sizes(input_shape), self.output_size, strict=True)))


@dataclass(frozen=True)
class Fractional(Pooling):
    """Cells between given boundaries, one sequence per axis."""

    sequences: tuple[tuple[int, ...], ...]
    overlapping: bool = False

    def pool(self, input_shape: Sequence[int]) -> Pool:
        rows = zip(self.sizes(input_shape), self.sequences, strict=True)
        return Pool(tuple(Axis.fractional(n, row, overlapping=self.overlapping, allow_empty=True) for n, row in rows))
