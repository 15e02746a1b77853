"""Keras layers: average pooling with explicit padding in one to three axes, and fractional average pooling.

They run wherever Keras has the TensorFlow backend: eager, `fit`, XLA, export. A layer's config holds plain numbers and
lists, so that a saved model loads again wherever this module was imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from ..arguments import Ints, Padding
from ..dialects.common import choice, flag, per_axis
from ..dialects.tensorflow.sequences import pooled_size
from ..errors import PoolGradTypeError, PoolGradValueError
from ..geometry import COUNTS, integer, places
from . import ops
from .arguments import FLOATS, Shape, as_tensor, check_space, shape_of
from .fractional import cells_map, fractional_map
from .host import Array, Tensor, is_host
from .sequences import draw, drawn_cells, even

__all__ = ["AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "FractionalAveragePooling2D"]

FORMATS = ("channels_last", "channels_first")
SPACE = {1: "L", 2: "HW", 3: "DHW"}

_registered = keras.saving.register_keras_serializable(package="poolgrad")


class _Layer(keras.Layer):  # type: ignore[misc]
    """What the layers share: a layout from `data_format`, and a shape in that layout."""

    axes: int

    def __init__(self, data_format: str | None, **kwargs: Any) -> None:
        if keras.backend.backend() != "tensorflow":
            raise PoolGradValueError(
                f"the layers of poolgrad.tensorflow need Keras' TensorFlow backend, got {keras.backend.backend()!r}; "
                "set KERAS_BACKEND=tensorflow before Keras is imported"
            )
        super().__init__(**kwargs)
        chosen = keras.config.image_data_format() if data_format is None else data_format
        self.data_format = choice("data_format", chosen, FORMATS)
        self.layout = f"N{SPACE[self.axes]}C" if self.data_format == "channels_last" else f"NC{SPACE[self.axes]}"
        self.first = self.layout.index(SPACE[self.axes])
        self.input_spec = keras.layers.InputSpec(ndim=self.axes + 2)

    def _sizes(self, shape: Sequence[int | None]) -> Shape:
        if len(shape) != self.axes + 2:
            raise PoolGradValueError(f"input_shape must have {self.axes + 2} entries, got {tuple(shape)}")
        return tuple(shape[self.first : self.first + self.axes])

    def _placed(self, shape: Sequence[int | None], sizes: Shape) -> Shape:
        return (*shape[: self.first], *sizes, *shape[self.first + self.axes :])


class _AveragePooling(_Layer):
    """Average pooling; `padding` is a name or numbers, and `count` says whether padding is counted.

    Parameters
    ----------
    pool_size, strides, dilation
        An integer, or one per axis. `strides` defaults to `pool_size`.
    padding
        ``"valid"``, ``"same"``, ``"same_lower"``, an integer, one per axis, or one ``(before, after)`` pair per axis.
    data_format
        ``"channels_last"`` or ``"channels_first"``; both run on a CPU.
    count
        What a window divides by: ``"inside"`` (its cells within the input), ``"padded"`` (those and its cells within the
        padding) or ``"window"`` (always all of it).
    divisor
        Divide by this integer instead.
    ceil_mode
        Round the output size up, as PyTorch does.
    """

    def __init__(
        self,
        pool_size: Ints = 2,
        strides: Ints | None = None,
        padding: Padding = "valid",
        data_format: str | None = None,
        *,
        dilation: Ints = 1,
        count: str = "inside",
        divisor: int | None = None,
        ceil_mode: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format, **kwargs)
        self.pool_size = per_axis("pool_size", pool_size, self.axes, 1)
        self.strides = self.pool_size if strides is None else per_axis("strides", strides, self.axes, 1)
        self.padding = _padding(padding, self.axes)
        self.dilation = per_axis("dilation", dilation, self.axes, 1)
        self.count = choice("count", count, COUNTS)
        self.divisor = None if divisor is None else integer("divisor", divisor, 1)
        self.ceil_mode = flag("ceil_mode", ceil_mode)
        if self.ceil_mode and self.padding in ("same", "same_lower"):
            raise PoolGradValueError(f"ceil_mode applies to 'valid' or explicit padding, got padding={padding!r}")

    def call(self, inputs: Tensor) -> Tensor:
        return ops.avg_pool(
            inputs,
            self.pool_size,
            stride=self.strides,
            padding=self.padding,
            dilation=self.dilation,
            count=self.count,
            divisor=self.divisor,
            ceil_mode=self.ceil_mode,
            layout=self.layout,
        )

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Shape:
        pads = (self.padding,) * self.axes if isinstance(self.padding, str) else self.padding
        rows = zip(self._sizes(input_shape), self.pool_size, self.strides, pads, self.dilation, strict=True)
        cells = [None if n is None else places(n, k, s, p, d, self.ceil_mode)[2] for n, k, s, p, d in rows]
        return self._placed(input_shape, tuple(cells))

    def get_config(self) -> dict[str, Any]:
        names = ("pool_size", "strides", "padding", "data_format", "dilation", "count", "divisor", "ceil_mode")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _padding(padding: Any, axes: int) -> Any:
    """A name, or a (before, after) pair for every axis."""
    if isinstance(padding, str):
        return choice("padding", padding, ("valid", "same", "same_lower"))
    padding = padding.tolist() if isinstance(padding, np.ndarray) else padding
    if not isinstance(padding, (list, tuple)) or not any(isinstance(entry, (list, tuple)) for entry in padding):
        return tuple((p, p) for p in per_axis("padding", padding, axes, 0))
    if len(padding) != axes or not all(isinstance(entry, (list, tuple)) and len(entry) == 2 for entry in padding):
        raise PoolGradValueError(f"padding must be a name, {axes} integers or {axes} (before, after) pairs, got {padding!r}")
    return tuple(per_axis("padding", entry, 2, 0) for entry in padding)


@_registered
class AveragePooling1D(_AveragePooling):
    """`keras.layers.AveragePooling1D` with explicit padding, dilation and every rule of counting.

    >>> import tensorflow as tf
    >>> layer = AveragePooling1D(3, strides=2, padding=[(0, 2)], count="padded")
    >>> layer(tf.reshape(tf.range(5.0), (1, 5, 1))).numpy().ravel()
    array([1.       , 3.       , 1.3333334], dtype=float32)
    """

    axes = 1


@_registered
class AveragePooling2D(_AveragePooling):
    """`keras.layers.AveragePooling2D` with explicit padding, dilation and every rule of counting.

    >>> import tensorflow as tf
    >>> layer = AveragePooling2D((3, 2), padding=((2, 1), (0, 1)), data_format="channels_first")
    >>> layer(tf.zeros((8, 3, 12, 9))).shape
    TensorShape([8, 3, 5, 5])
    """

    axes = 2


@_registered
class AveragePooling3D(_AveragePooling):
    """`keras.layers.AveragePooling3D` with explicit padding, dilation and every rule of counting."""

    axes = 3


@_registered
class FractionalAveragePooling2D(_Layer):
    """Fractional average pooling: cells of two neighbouring lengths, in a fresh random order in every step of training.

    In inference the cells lie as evenly as they can, so that predictions repeat and an exported model has one answer; call
    the layer with ``training=True`` for random ones. `seed` fixes the order of the draws.

    Parameters
    ----------
    pooling_ratio
        How much shorter an axis becomes: a number of at least 1, or two of them (rows, columns).
    pseudo_random
        Draw one number per axis and space the cells by it, instead of mixing their lengths.
    overlapping
        The boundary between two cells belongs to both.

    >>> import tensorflow as tf
    >>> layer = FractionalAveragePooling2D((1.5, 2), seed=1)
    >>> layer(tf.reshape(tf.range(15.0), (1, 3, 5, 1)), training=False).numpy().reshape(2, 2)
    array([[ 3.5,  6. ],
           [11. , 13.5]], dtype=float32)
    """

    axes = 2

    def __init__(
        self,
        pooling_ratio: float | Sequence[float],
        pseudo_random: bool = False,
        overlapping: bool = False,
        data_format: str | None = None,
        seed: int | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(data_format, **kwargs)
        self.pooling_ratio = _ratios(pooling_ratio)
        self.pseudo_random, self.overlapping = flag("pseudo_random", pseudo_random), flag("overlapping", overlapping)
        self.seed = None if seed is None else integer("seed", seed, 0)
        self.seed_generator = keras.random.SeedGenerator(self.seed)

    def call(self, inputs: Tensor, training: bool | None = None) -> Tensor:
        x = as_tensor("inputs", inputs, FLOATS, 4)
        check_space("inputs", shape_of(x), self.layout)
        sizes = [n for n in self._sizes(shape_of(x)) if n is not None]
        axes = [(n, self._cells(n, ratio)) for n, ratio in zip(sizes, self.pooling_ratio, strict=True)]
        if not training:
            return self._at(x, sizes, [even(n, m) for n, m in axes])
        rows = [draw(n, m, self.pseudo_random, self.seed_generator.next()) for n, m in axes]
        if is_host(x):
            return self._at(x, sizes, [np.asarray(row) for row in rows])
        cells = [drawn_cells(n, row, self.overlapping) for n, row in zip(sizes, rows, strict=True)]
        return cells_map(cells, x.dtype, (self.first, self.first + 1), True)(x)

    def _at(self, x: Tensor, sizes: list[int], rows: list[Array]) -> Tensor:
        return fractional_map((1, *sizes, 1), None, rows, self.overlapping, x.dtype, self.layout, True)(x)

    def _cells(self, size: int, ratio: float) -> int:
        if ratio > size:
            raise PoolGradValueError(f"pooling_ratio must be at most the size of its axis ({size}), got {ratio}")
        return pooled_size(size, ratio)

    def compute_output_shape(self, input_shape: Sequence[int | None]) -> Shape:
        rows = zip(self._sizes(input_shape), self.pooling_ratio, strict=True)
        return self._placed(input_shape, tuple(None if n is None else self._cells(n, ratio) for n, ratio in rows))

    def get_config(self) -> dict[str, Any]:
        names = ("pooling_ratio", "pseudo_random", "overlapping", "data_format", "seed")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def _ratios(ratios: Any) -> tuple[float, ...]:
    given = tuple(ratios) if isinstance(ratios, (list, tuple, np.ndarray)) else (ratios, ratios)
    entries = tuple(ratio.item() if isinstance(ratio, np.generic) else ratio for ratio in given)
    for ratio in entries:
        if isinstance(ratio, bool) or not isinstance(ratio, (int, float)):
            raise PoolGradTypeError(f"pooling_ratio must be a number or two of them, got {ratios!r}")
        if not 1 <= ratio < float("inf"):
            raise PoolGradValueError(f"pooling_ratio must be at least 1 and finite, got {ratios!r}")
    if len(entries) != 2:
        raise PoolGradValueError(f"pooling_ratio must be a number or two of them (rows, columns), got {ratios!r}")
    return entries
