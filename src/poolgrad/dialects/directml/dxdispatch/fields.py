"""Readers of JSON values as DxDispatch types them: strict about integers and booleans, generous about numbers.

A reader takes the value and returns it typed, or raises `ModelError` that says what was expected; `field` adds the name.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeVar

import numpy as np

from ..enums import NUMPY_TYPES, ExecutionFlags, TensorDataType, TensorFlags, TensorType, lookup
from .lenient import ModelError

__all__ = [
    "boolean",
    "field",
    "flags",
    "int64",
    "listed",
    "member",
    "object_of",
    "scalar_reader",
    "string",
    "uint32",
    "uint64",
]

T = TypeVar("T")
_F = TypeVar("_F", TensorFlags, ExecutionFlags)
_E = TypeVar("_E", TensorDataType, TensorType)
Reader = Callable[[Any], T]
_SPECIAL = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}


def expected(what: str, value: object) -> NoReturn:
    raise ModelError(f"Expected {what}, got {reprlib.repr(value)}")


def field(owner: Mapping[str, Any], name: str, read: Reader[T], *default: T) -> T:
    """The value of a field; with a default it may be absent."""
    if name not in owner:
        if default:
            return default[0]
        raise ModelError(f"Field '{name}' is required.")
    try:
        return read(owner[name])
    except ModelError as problem:
        raise ModelError(f"Field '{name}': {problem}") from None


def object_of(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else expected("a non-null JSON object", value)


def string(value: Any) -> str:
    return value if isinstance(value, str) else expected("a string", value)


def boolean(value: Any) -> bool:
    return value if isinstance(value, bool) else expected("true or false", value)


def _ranged(low: int, high: int) -> Reader[int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            expected(f"an integer from {low} to {high}", value)
        return value

    return read


uint32, uint64, int64 = _ranged(0, 2**32 - 1), _ranged(0, 2**64 - 1), _ranged(-(2**63), 2**63 - 1)


def listed(read: Reader[T]) -> Reader[list[T]]:
    def read_list(value: Any) -> list[T]:
        return [read(entry) for entry in value] if isinstance(value, list) else expected("an array", value)

    return read_list


def member(kind: type[_E]) -> Reader[_E]:
    def read(value: Any) -> _E:
        found = lookup(kind, value) if isinstance(value, str) else None
        return expected(f"a name among {', '.join(kind.__members__)}", value) if found is None else found

    return read


def flags(kind: type[_F]) -> Reader[_F]:
    """A flag by name, or an array of them, or-ed."""

    def read(value: Any) -> _F:
        total = kind(0)
        for name in value if isinstance(value, list) else [value]:
            found = lookup(kind, name) if isinstance(name, str) else None
            if found is None:
                expected(f"a name, or an array of names, among {', '.join(kind.__members__)}", value)
            total |= found
        return total

    return read


def scalar_reader(kind: TensorDataType) -> Reader[Any]:
    """How a single value of this type is written: any number or "nan", "inf", "-inf" for floats, integers for integers."""
    dtype = NUMPY_TYPES.get(kind)
    if dtype is None:
        raise ModelError(f"Data type {kind.name} is not supported for values.")
    if dtype.kind in "iu":
        limits = np.iinfo(dtype)
        return _ranged(int(limits.min), int(limits.max))
    return _number


def _number(value: Any) -> float:
    if isinstance(value, str):
        found = _SPECIAL.get(value.lower())
        return expected("a number or 'nan', 'inf', '-inf'", value) if found is None else found
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        expected("a number or 'nan', 'inf', '-inf'", value)
    return float(value)
