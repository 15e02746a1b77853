"""What the caller's tensors and shapes say: known now, known in part while a graph is traced, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import tensorflow as tf

from ..dialects.tensorflow.arguments import integer_row
from ..errors import PoolGradError, PoolGradTypeError, PoolGradValueError
from ..layout import spatial_positions

__all__ = [
    "FLOATS",
    "INTEGERS",
    "Shape",
    "as_tensor",
    "check_space",
    "holds_tensors",
    "known_now",
    "matched",
    "shape_of",
    "sizes_of",
]

Shape = tuple[int | None, ...]
Known = TypeVar("Known")

FLOATS = (tf.float16, tf.bfloat16, tf.float32, tf.float64)
INTEGERS = (tf.int32, tf.int64)

PoolGradError.ag_pass_through = True  # type: ignore[attr-defined]  # or AutoGraph raises an error of its own instead


def as_tensor(name: str, value: Any, dtypes: tuple[Any, ...], rank: int | None = None) -> Any:
    """`value` as a dense tensor of one of these dtypes and of this rank."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if "KerasTensor" in kind:
        raise PoolGradTypeError(f"{name} is an input of a Keras model that is being built: use the layers of poolgrad.tensorflow")
    if isinstance(value, (tf.RaggedTensor, tf.SparseTensor, tf.IndexedSlices)):
        raise PoolGradTypeError(f"{name} must be a dense tensor, got {kind}")
    try:
        tensor = tf.convert_to_tensor(value)
    except (ValueError, TypeError) as refusal:
        raise PoolGradTypeError(f"{name} must be a tensor, got {kind} ({refusal})") from None
    if tensor.dtype not in dtypes:
        raise PoolGradTypeError(f"{name} must have dtype {', '.join(t.name for t in dtypes)}, got {tensor.dtype.name}")
    if tensor.shape.rank is None:
        raise PoolGradValueError(f"{name} must have a known rank; use tf.ensure_shape, or an input_signature")
    if rank is not None and tensor.shape.rank != rank:
        raise PoolGradValueError(f"{name} must have {rank} axes, got shape {shape_of(tensor)}")
    return tensor


def shape_of(tensor: Any) -> Shape:
    return tuple(tensor.shape)


def sizes_of(name: str, value: Any, length: int) -> Shape:
    """A shape given as integers or as a tensor; None where a graph does not know a size yet."""
    if isinstance(value, tf.TensorShape):
        if value.rank != length:
            raise PoolGradValueError(f"{name} must hold exactly {length} integers, got {value}")
        return tuple(value)
    if not isinstance(value, (tf.Tensor, tf.Variable)) and not holds_tensors(value):
        return integer_row(name, value, length)
    tensor = as_tensor(name, value, INTEGERS)
    known = tf.get_static_value(tensor)
    if known is not None:
        return integer_row(name, np.asarray(known), length)
    if shape_of(tensor) != (length,):
        raise PoolGradValueError(f"{name} must be one row of {length} integers, got a tensor of shape {tensor.shape}")
    # The graph's own inference knows more than the tensor says: which sizes of tf.shape(x) are fixed, for one.
    return shape_of(tf.broadcast_to(False, tensor))


def holds_tensors(value: Any) -> bool:
    return isinstance(value, (list, tuple)) and any(isinstance(n, (tf.Tensor, tf.Variable)) for n in value)


def known_now(names: str, check: Callable[[], Known]) -> Known:
    """What `check` makes of arguments that a graph must know while it is traced."""
    try:
        return check()
    except NotImplementedError:  # TensorFlow's answer to a symbolic tensor that is read
        raise PoolGradTypeError(
            f"{names} must be known while a graph is traced: give numbers, not tensors of the graph"
        ) from None


def check_space(name: str, shape: Shape, layout: str) -> None:
    """Refuse a graph that does not know the sizes of the axes that are pooled: the tables are made while it is traced."""
    if any(shape[p] is None for p in spatial_positions(layout, len(shape))):
        raise PoolGradValueError(
            f"{name} must have known spatial sizes inside a graph (batch and channels may be unknown), got shape {shape} "
            f"(layout {layout!r}); use tf.ensure_shape, or an input_signature that names them"
        )


def matched(name: str, value: Any, sizes: Shape, tensor: Any, expected: Shape) -> Any:
    """`tensor`, of which a graph checks when it runs what it could not while it was traced.

    `expected` is the shape that `tensor` must have; where `sizes` is None, `value` knows the size when the graph runs.
    """
    unknown = [k for k, n in enumerate(sizes) if n is None]
    if unknown and not isinstance(value, tf.TensorShape):
        said = tf.gather(tf.convert_to_tensor(value), unknown)
        found = tf.gather(tf.shape(tensor, out_type=said.dtype), unknown)
        message = f"{name} and the gradient must have the same batch and channels"
        with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(said == found), [message, said, found])]):
            tensor = tf.identity(tensor)
    return tensor if None not in shape_of(tensor) else tf.ensure_shape(tensor, expected)
