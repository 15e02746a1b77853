"""JSON from outside, as records whose every field has the type it claims.

A record is a dataclass. `decode` walks its type hints: texts, whole numbers, finite numbers, booleans, lists, choices,
optional fields and other records. Whatever does not fit is refused with the place where it stands. Unknown fields are
refused too, so that a mistyped name is not ignored.
"""

from __future__ import annotations

import dataclasses
import json
import math
import types
from functools import lru_cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .failure import Failure

__all__ = ["decode", "load"]

MOST_WHOLE = 2**53
Record = TypeVar("Record")


def load(text: str | bytes) -> Any:
    """The JSON in a message; NaN and the infinities, which are not JSON, are refused."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise Failure("protocol", f"this is not JSON: {error}") from None


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def decode(kind: type[Record], value: Any, where: str = "") -> Record:
    """`value` as a record of this kind.

    >>> @dataclasses.dataclass
    ... class Point:
    ...     x: float
    ...     tags: list[str]
    >>> decode(Point, {"x": 1, "tags": ["a"]})
    Point(x=1.0, tags=['a'])
    >>> decode(Point, {"x": 1, "tags": ["a", 2]})
    Traceback (most recent call last):
    ...
    poolgrad_studio.failure.Failure: tags[1] must be a text, got 2
    """
    made: Record = _as(kind, value, where)
    return made


@lru_cache(maxsize=256)
def _fields(kind: Any) -> dict[str, tuple[Any, bool]]:
    hints = get_type_hints(kind)
    missing = dataclasses.MISSING
    return {f.name: (hints[f.name], f.default is missing and f.default_factory is missing) for f in dataclasses.fields(kind)}


def _as(kind: Any, value: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind):
        return _record(kind, value, where)
    origin = get_origin(kind)
    if origin is list:
        if not isinstance(value, list):
            raise _wrong(where, "a list", value)
        [item] = get_args(kind)
        return [_as(item, entry, f"{where}[{k}]") for k, entry in enumerate(value)]
    if origin is Literal:
        if value not in get_args(kind) or not isinstance(value, str):
            raise _wrong(where, f"one of {', '.join(map(repr, get_args(kind)))}", value)
        return value
    if origin in (Union, types.UnionType):
        [some] = [part for part in get_args(kind) if part is not type(None)]
        return None if value is None else _as(some, value, where)
    return _plain(kind, value, where)


def _record(kind: Any, value: Any, where: str) -> Any:
    if not isinstance(value, dict):
        raise _wrong(where, "an object", value)
    fields = _fields(kind)
    at = f"{where}." if where else ""
    for name in value:
        if name not in fields:
            raise Failure("protocol", f"{at}{name[:40]} is not known here; there are {', '.join(fields)}")
    given = {}
    for name, (hint, needed) in fields.items():
        if name in value:
            given[name] = _as(hint, value[name], f"{at}{name}")
        elif needed:
            raise Failure("protocol", f"{at}{name} is missing")
    return kind(**given)


def _plain(kind: Any, value: Any, where: str) -> Any:
    if kind is bool:
        if not isinstance(value, bool):
            raise _wrong(where, "true or false", value)
    elif kind is str:
        if not isinstance(value, str):
            raise _wrong(where, "a text", value)
    elif kind is int:
        if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MOST_WHOLE:
            raise _wrong(where, "a whole number", value)
    elif kind is float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _finite(value):
            raise _wrong(where, "a finite number", value)
        return float(value)
    else:
        raise TypeError(f"{where}: no rule for {kind!r}")
    return value


def _finite(value: int | float) -> bool:
    return abs(value) <= MOST_WHOLE if isinstance(value, int) else math.isfinite(value)


def _wrong(where: str, wanted: str, value: Any) -> Failure:
    shown = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else f"a {type(value).__name__}"
    return Failure("protocol", f"{where or 'the message'} must be {wanted}, got {shown[:60]}")
