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
from collections.abc import Callable
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


Check = Callable[[Any], Any]


class _Wrong(Exception):
    """What does not fit; the place is found on the way out, so that a page that fits costs nothing for it."""

    def __init__(self, kind: str, place: str = "") -> None:
        super().__init__(kind)
        self.said, self.place = kind, place

    def within(self, part: str) -> _Wrong:
        self.place = part + ("." if self.place and self.place[0] != "[" else "") + self.place
        return self


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
    hashable: Any = kind
    try:
        made: Record = _check(hashable)(value)
        return made
    except _Wrong as wrong:
        place = (wrong.within(where) if where else wrong).place
        raise Failure("protocol", f"{place or 'the message'} {wrong.said}") from None


@lru_cache(maxsize=256)
def _check(kind: Any) -> Check:
    """The function that judges a value of this type."""
    origin = get_origin(kind)
    if dataclasses.is_dataclass(kind):
        return _record(kind)
    if origin is list:
        return _list(_check(get_args(kind)[0]))
    if origin is Literal:
        choices = get_args(kind)
        return _plain(lambda value: isinstance(value, str) and value in choices, f"one of {', '.join(map(repr, choices))}")
    if origin in (Union, types.UnionType):
        [some] = [_check(part) for part in get_args(kind) if part is not type(None)]
        return lambda value: None if value is None else some(value)
    return PLAIN[kind]


def _plain(fits: Callable[[Any], bool], wanted: str, made: Check = lambda value: value) -> Check:
    def check(value: Any) -> Any:
        if not fits(value):
            shown = repr(value) if isinstance(value, (str, int, float, bool, type(None))) else f"a {type(value).__name__}"
            raise _Wrong(f"must be {wanted}, got {shown[:60]}")
        return made(value)

    return check


def _whole(value: Any) -> bool:
    return type(value) is int and abs(value) <= MOST_WHOLE


PLAIN: dict[Any, Check] = {
    Any: lambda value: value,
    bool: _plain(lambda value: isinstance(value, bool), "true or false"),
    str: _plain(lambda value: isinstance(value, str), "a text"),
    int: _plain(_whole, "a whole number"),
    float: _plain(lambda value: _whole(value) or (type(value) is float and math.isfinite(value)), "a finite number", float),
}


def _list(item: Check) -> Check:
    def check(value: Any) -> Any:
        if not isinstance(value, list):
            raise _Wrong(f"must be a list, got a {type(value).__name__}")
        made: list[Any] = []
        try:
            made.extend(item(entry) for entry in value)
        except _Wrong as wrong:
            raise wrong.within(f"[{len(made)}]") from None
        return made

    return check


def _record(kind: Any) -> Check:
    hints = get_type_hints(kind)
    fields = {f.name: _check(hints[f.name]) for f in dataclasses.fields(kind)}
    missing = dataclasses.MISSING
    needed = [f.name for f in dataclasses.fields(kind) if f.default is missing and f.default_factory is missing]

    def check(value: Any) -> Any:
        if not isinstance(value, dict):
            raise _Wrong(f"must be an object, got a {type(value).__name__}")
        given = {}
        for name, entry in value.items():
            if name not in fields:
                raise _Wrong(f"is not known here; there are {', '.join(fields)}", name[:40])
            try:
                given[name] = fields[name](entry)
            except _Wrong as wrong:
                raise wrong.within(name) from None
        for name in needed:
            if name not in given:
                raise _Wrong("is missing", name)
        return kind(**given)

    return check
