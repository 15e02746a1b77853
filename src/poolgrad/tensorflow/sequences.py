"""Pooling sequences in TensorFlow: known ones, those a graph computes, and fresh ones drawn by the graph each time it runs.

A drawn sequence follows TensorFlow's own algorithm with the numbers of `tf.random.stateless_*`: a random one is its cell
lengths in a random order, a pseudo-random one takes one uniform number. The same seed gives the same sequence everywhere.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf

from ..dialects.tensorflow.arguments import whole_numbers
from ..dialects.tensorflow.sequences import pooling_sequence
from ..errors import PoolGradTypeError, PoolGradValueError
from .arguments import INTEGERS, holds_tensors
from .host import Array, Tensor

__all__ = ["Cells", "cells_of", "draw", "drawn_cells", "even", "sequence"]


class Cells(NamedTuple):
    """An axis whose cells a graph computes: what `Axis` is, with tensors of int32, and how long its intervals may get."""

    size: int
    start: Tensor
    stop: Tensor
    longest: int
    most_over: int

    @property
    def count(self) -> Tensor:
        return tf.maximum(self.stop - self.start, 1)

    def runs(self, forwards: bool) -> tuple[Tensor, Tensor, int]:
        """First row, number of rows and the bound of that number, for every cell or for every input."""
        if forwards:
            return self.start, self.stop - self.start, self.longest
        inputs = tf.range(self.size)
        first = tf.searchsorted(self.stop, inputs, side="right")
        return first, tf.maximum(tf.searchsorted(self.start, inputs, side="right") - first, 0), self.most_over


def sequence(name: str, values: Any) -> Array | Tensor:
    """A sequence from the caller: an array where it is known, else a tensor of one axis."""
    if holds_tensors(values):
        values = tf.stack(values)
    if not isinstance(values, (tf.Tensor, tf.Variable)):
        return whole_numbers(name, values).ravel()
    known = tf.get_static_value(values) if isinstance(values, tf.Tensor) else np.asarray(values)
    if known is not None:
        return whole_numbers(name, np.asarray(known)).ravel()
    if values.dtype not in INTEGERS:
        raise PoolGradTypeError(f"{name} must be 32-bit or 64-bit integers, got {values.dtype.name}")
    if values.shape.num_elements() is None:
        raise PoolGradValueError(f"{name} must have a known length inside a graph, got shape {values.shape}")
    return tf.reshape(tf.cast(values, tf.int64), (-1,))


def cells_of(name: str, size: int, cells: int | None, values: Array | Tensor, overlapping: bool) -> Cells:
    """The cells between boundaries that the graph will know, checked when it runs; entries beyond the last are ignored."""
    length = values.shape[0] if cells is None else cells + 1
    if not 2 <= length <= values.shape[0]:
        raise PoolGradValueError(f"{name} must hold at least {max(length, 2)} integers, got {values.shape[0]}")
    edges = tf.convert_to_tensor(values, tf.int64)[:length]
    right = tf.reduce_all(edges[1:] >= edges[:-1]) & (edges[0] >= 0)
    message = f"{name} must start at 0 or above and never decrease"
    with tf.control_dependencies([tf.debugging.Assert(right, [message, edges])]):
        edges = tf.cast(tf.clip_by_value(edges, 0, size), tf.int32)
    return _cells(size, edges, overlapping, size, length - 1)


def _cells(size: int, edges: Tensor, overlapping: bool, longest: int, most_over: int) -> Cells:
    start = edges[:-1]
    stop = tf.maximum(tf.minimum(edges[1:] + int(overlapping), size), start)
    return Cells(size, start, stop, longest, most_over)


def drawn_cells(size: int, edges: Tensor, overlapping: bool) -> Cells:
    """The cells of a sequence from `draw`, none of which is empty."""
    longest = size // (edges.shape[0] - 1) + 1 + int(overlapping)
    return _cells(size, tf.cast(edges, tf.int32), overlapping, min(longest, size), 1 + int(overlapping))


def draw(size: int, cells: int, pseudo_random: bool, seed: Tensor) -> Tensor:
    """The boundaries of `cells` cells on an axis of `size`, from a seed of two integers.

    >>> draw(10, 6, True, (3, 4)).numpy(), draw(10, 6, False, (3, 4)).numpy()
    (array([ 0,  2,  4,  6,  7,  9, 10]), array([ 0,  2,  3,  5,  6,  8, 10]))
    """
    if pseudo_random:
        return _spaced(size, cells, tf.random.stateless_uniform((), seed, dtype=tf.float64))
    longer = size % cells
    lengths = tf.constant([size // cells + 1] * longer + [size // cells] * (cells - longer), tf.int64)
    order = tf.argsort(tf.random.stateless_uniform((cells,), seed, minval=None, maxval=None, dtype=tf.int32))
    return tf.concat([tf.zeros((1,), tf.int64), tf.cumsum(tf.gather(lengths, order))], 0)


def even(size: int, cells: int) -> Array:
    """The boundaries that lie as evenly as they can: the pseudo-random sequence of the middle draw.

    >>> even(10, 6)
    array([ 0,  2,  3,  5,  7,  9, 10])
    """
    return pooling_sequence(size, cells, iter([1 << 19, 0, 0, 0]), pseudo_random=True)


def _spaced(size: int, cells: int, u: Tensor) -> Tensor:
    """Boundaries `ceil(alpha (i + u)) - 1`, `u` scaled so that a cell has one of two neighbouring lengths."""
    alpha, least = size / cells, size // cells
    u = u * min((least + 2) / alpha - 1, (size + 1 - least) / alpha - (cells - 1))
    inner = tf.math.ceil(alpha * (tf.range(1, cells, dtype=tf.float64) + u)) - 1
    ends = tf.constant([0], tf.int64), tf.constant([size], tf.int64)
    return tf.concat([ends[0], tf.cast(inner, tf.int64), ends[1]], 0)
