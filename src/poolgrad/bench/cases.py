"""What is measured: the rows of the table in docs/performance.md.

A `Case` is a pooling of one tensor, a `Row` that case in one layout, dtype and direction. The tensors are far larger
than the caches, so that memory sets the floor; `--batch-divisor` shrinks them until they fit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import ceil, floor, prod
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..geometry import Axis, Pool

__all__ = ["CASES", "DTYPES", "TINY", "Case", "Row", "sweep_case"]

Array = npt.NDArray[Any]

DTYPES: dict[str, np.dtype[Any]] = {
    "float32": np.dtype(np.float32),
    "float64": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}


@dataclass(frozen=True)
class Case:
    """One pooling of one tensor; without a window it is fractional, with this ratio, overlapping."""

    name: str
    batch: int
    size: tuple[int, ...]
    channels: int
    window: tuple[int, ...] | None = None
    stride: tuple[int, ...] = ()
    padding: str = "valid"
    ratio: float = 1.44

    @property
    def title(self) -> str:
        return f"{self.name}, {'×'.join(map(str, (self.batch, *self.size, self.channels)))}"

    @property
    def is_global(self) -> bool:
        return self.window == self.size

    @property
    def sequences(self) -> list[list[int]]:
        return [sequence(n, self.ratio) for n in self.size]

    def pool(self) -> Pool:
        if self.window is None:
            return Pool(tuple(Axis.fractional(n, s, overlapping=True) for n, s in zip(self.size, self.sequences, strict=True)))
        rows = zip(self.size, self.window, self.stride, strict=True)
        return Pool(tuple(Axis.regular(n, k, stride=s, padding=self.padding) for n, k, s in rows))

    def layouts(self) -> tuple[str, str]:
        space = "DHW"[-len(self.size) :]
        return f"N{space}C", f"NC{space}"

    def with_batch(self, divisor: int) -> Case:
        return replace(self, batch=max(1, self.batch // divisor))


@dataclass(frozen=True)
class Row:
    """A case as it is measured."""

    case: Case
    layout: str
    dtype: str
    forward: bool = False

    @property
    def channels_last(self) -> bool:
        return self.layout.endswith("C")

    @property
    def input_shape(self) -> tuple[int, ...]:
        return self.arrange(self.case.batch, self.case.channels, self.case.size)

    @property
    def output_shape(self) -> tuple[int, ...]:
        return self.arrange(self.case.batch, self.case.channels, self.case.pool().output_size)

    @property
    def source_shape(self) -> tuple[int, ...]:
        return self.input_shape if self.forward else self.output_shape

    @property
    def result_shape(self) -> tuple[int, ...]:
        return self.output_shape if self.forward else self.input_shape

    def arrange(self, batch: int, channels: int, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """These extents in the order of the layout."""
        return (batch, *spatial, channels) if self.channels_last else (batch, channels, *spatial)

    def source(self) -> Array:
        """Random numbers from 0.5 to 1.5: without cancellation, an error in units of the last place means something."""
        shape = self.source_shape
        values = np.random.default_rng(7).random(prod(shape), dtype=np.float32).reshape(shape)
        values += np.float32(0.5)
        return values.astype(DTYPES[self.dtype], copy=False)


def sequence(size: int, ratio: float) -> list[int]:
    """TensorFlow's pseudo-random pooling sequence for the middle draw: cells of two neighbouring lengths, mixed."""
    cells = floor(np.float32(size) / np.float32(ratio))
    alpha, least = size / cells, size // cells
    u = 0.5 * min((least + 2) / alpha - 1, (size + 1 - least) / alpha - (cells - 1))
    return [0, *(ceil(alpha * (i + u)) - 1 for i in range(1, cells)), size]


def _regular(batch: int, size: tuple[int, ...], channels: int, window: int, stride: int | tuple[int, ...], padding: str) -> Case:
    strides = (stride,) * len(size) if isinstance(stride, int) else stride
    each = f"s{stride}" if isinstance(stride, int) else "strides " + ",".join(map(str, stride))
    kind = "global" if padding == "global" else f"{each} {padding}"
    name = f"{'×'.join([str(window)] * len(size))} {kind}"
    return Case(name, batch, size, channels, (window,) * len(size), strides, "valid" if padding == "global" else padding)


CASES: dict[str, Case] = {
    "2x2": _regular(64, (112, 112), 64, 2, 2, "valid"),
    "3x3s2": _regular(64, (112, 112), 64, 3, 2, "same"),
    "3x3s1": _regular(64, (35, 35), 288, 3, 1, "same"),
    "global": _regular(512, (7, 7), 2048, 7, 7, "global"),
    "15x15": _regular(32, (128, 128), 32, 15, 1, "same"),
    "63x63": _regular(16, (128, 128), 32, 63, 1, "same"),
    "2x2x2": _regular(16, (32, 64, 64), 32, 2, 2, "valid"),
    "3x3x3": _regular(8, (32, 64, 64), 32, 3, 1, "same"),
    "2x2x2s432": _regular(16, (32, 64, 64), 32, 2, (4, 3, 2), "same"),
    "9x9x9": _regular(8, (32, 64, 64), 32, 9, 1, "same"),
    "fractional": Case("fractional 1.44, overlapping", 64, (112, 112), 64),
}

TINY = _regular(1, (8, 8), 4, 2, 2, "valid")


def sweep_case(window: int) -> Case:
    """The same tensor under a window of any size."""
    return _regular(16, (128, 128), 32, window, 1, "same")
