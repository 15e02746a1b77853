"""What TensorFlow's arguments have in common: rows of integers, arrays of a rank, switches, seeds.

Everything is refused by its TensorFlow name, before any memory is touched. A row of integers comes out as a tuple of
plain ints, so that it can be the key of a cache: 2.0 and True would equal 2 and 1 there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...arrays import DTYPES, check_source
from ...errors import PoolGradTypeError, PoolGradValueError

__all__ = ["Array", "float_array", "integer_row", "one_of", "pooled_array", "switch", "whole_numbers"]

Array = npt.NDArray[Any]

INTEGERS = frozenset([np.dtype(np.int32), np.dtype(np.int64)])
_PLAIN = frozenset([int])


def whole_numbers(name: str, values: Any) -> Array:
    """`values` as an array of integers of any rank, refused if that would change them."""
    if isinstance(values, (list, tuple)) and any(isinstance(value, (bool, np.bool_)) for value in values):
        raise PoolGradTypeError(f"{name} must be integers, got {_shown(values)} (bool)")
    try:
        given = np.asarray(values)
    except (ValueError, OverflowError):
        given = np.asarray(None)
    if given.dtype not in INTEGERS:
        raise PoolGradTypeError(f"{name} must be 32-bit or 64-bit integers, got {_shown(values)} ({_kind(values, given)})")
    return given


def integer_row(name: str, values: Any, length: int) -> tuple[int, ...]:
    """`values` as a tuple of exactly `length` ints."""
    if type(values) in (list, tuple) and set(map(type, values)) == _PLAIN:
        row = tuple(values)
    else:
        given = whole_numbers(name, values)
        if given.ndim != 1:
            raise PoolGradValueError(f"{name} must be one row of {length} integers, got shape {given.shape}")
        row = tuple(given.tolist())
    if len(row) != length:
        raise PoolGradValueError(f"{name} must hold exactly {length} integers, got {len(row)}: {_shown(values)}")
    return row


def float_array(name: str, array: Any, rank: int) -> Array:
    """`array` as the core takes it: one of the four floating-point types, of this rank."""
    return _of_rank(name, check_source(name, array), rank)


def pooled_array(name: str, array: Any) -> Array:
    """`array` as the fractional ops take it: of rank 4, without an empty axis, floats or int32 or int64."""
    if isinstance(array, np.ndarray) and array.dtype in INTEGERS:
        given = array.view(np.ndarray)
    elif isinstance(array, np.ndarray) and array.dtype not in DTYPES:
        allowed = ", ".join([*DTYPES.values(), "int32", "int64"])
        raise PoolGradTypeError(f"{name} must have dtype {allowed}, got {array.dtype}")
    else:
        given = check_source(name, array)
    if 0 in _of_rank(name, given, 4).shape:
        raise PoolGradValueError(f"{name} must have no empty axis, got shape {given.shape}")
    return given


def switch(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise PoolGradTypeError(f"{name} must be True or False, got {value!r}")
    return bool(value)


def one_of(name: str, text: Any, allowed: tuple[str, ...]) -> str:
    if not isinstance(text, str) or text not in allowed:
        raise PoolGradValueError(f"{name} must be {' or '.join(map(repr, allowed))}, got {text!r}")
    return text


def _of_rank(name: str, array: Array, rank: int) -> Array:
    if array.ndim != rank:
        raise PoolGradValueError(f"{name} must have {rank} axes, got shape {array.shape}")
    return array


def _shown(values: Any) -> str:
    text = repr(values)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _kind(values: Any, given: Array) -> str:
    return str(given.dtype) if given.dtype != object else type(values).__name__
