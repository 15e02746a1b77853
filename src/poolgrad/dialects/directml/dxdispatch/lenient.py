"""JSON as DxDispatch reads it: comments and trailing commas allowed, text after the root value ignored.

Comments and trailing commas become spaces, so that every position of an error is one of the file's. NaN and Infinity are
not JSON; a repeated key, of which DxDispatch silently takes the first, is refused.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from typing import Any, NoReturn

from ....errors import PoolGradValueError

__all__ = ["ModelError", "parse"]

_STRING = r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)'  # an unclosed one runs to the end, so that no text is scanned twice
_COMMENTS = re.compile(rf"{_STRING}|//[^\n]*|/\*(?:.*?\*/|.*\Z)", re.DOTALL)
_COMMAS = re.compile(rf"{_STRING}|(?<=[^\s\[{{,:])\s*,(?=\s*[\]}}])", re.DOTALL)
_VISIBLE = re.compile(r"[^\n]")
_INTEGERS = range(-(2**63), 2**64)


class ModelError(PoolGradValueError):
    """A DxDispatch model that cannot be read or run."""


def parse(text: str) -> Any:
    """The root value of `text`.

    >>> parse('{"a": [1, 2.5,], // comment' + chr(10) + '} and so on')
    {'a': [1, 2.5]}
    """
    plain = _COMMAS.sub(_blanked, _COMMENTS.sub(_blanked, text))
    start = len(plain) - len(plain.lstrip(" \t\r\n"))
    try:
        value, _ = _DECODER.raw_decode(plain, start)
    except json.JSONDecodeError as error:
        raise ModelError(_located(text, error.pos, error.msg)) from None
    except RecursionError:
        raise ModelError("JSON parse error: nested too deeply") from None
    if re.search(r"\\u[dD][89a-fA-F]", plain):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            raise ModelError("JSON parse error: a \\u escape holds half a surrogate pair") from None
    return value


def _blanked(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else _VISIBLE.sub(" ", found[0])


def _located(text: str, at: int, problem: str) -> str:
    line, column = text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)
    snippet = " ".join(text[at : at + 40].splitlines())
    return f"JSON parse error at char offset:{at}, line:{line}, column:{column}, error: {problem}\nSnippet: >>>{snippet}<<<"


def _float(digits: str) -> float:
    value = float(digits)
    if math.isinf(value):
        raise ModelError(f"JSON parse error: number too big for a double: {digits[:40]}")
    return value


def _integer(digits: str) -> int | float:
    value = int(digits) if len(digits) <= 20 else 2**64
    return value if value in _INTEGERS else _float(digits)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        repeated = Counter(name for name, _ in pairs).most_common(1)[0][0]
        raise ModelError(f"JSON parse error: the key {repeated!r} appears twice in one object")
    return value


def _constant(name: str) -> NoReturn:
    instead = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}[name]
    raise ModelError(f'JSON parse error: {name} is not JSON; write the string "{instead}"')


_DECODER = json.JSONDecoder(parse_float=_float, parse_int=_integer, parse_constant=_constant, object_pairs_hook=_object)
