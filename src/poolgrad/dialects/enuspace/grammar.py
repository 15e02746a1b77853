"""The text of a property, as enuSpace's users type it: lists, attributes, shapes and values.

enuSpace reads a list item with C's `stoi` or `stof`: `2.9` becomes 2, `2x` becomes 2, and an item that is no number stops
every page without a word. Here the same texts mean the same where they mean something; the rest is a `PropertyError`
that gives the text, what is wrong and the legal form. Two slips that change nothing in enuSpace's reading (an unknown
key, a second value for a key) are warnings.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ...errors import PoolGradValueError

__all__ = [
    "DATATYPES",
    "PIN_TYPES",
    "PropertyError",
    "as_text",
    "format_attrs",
    "format_list",
    "format_shape",
    "format_values",
    "parse_attrs",
    "parse_bool",
    "parse_floats",
    "parse_ints",
    "parse_shape",
    "parse_values",
    "size_of",
]

Array = npt.NDArray[Any]

# A page holds values as text; a bigger tensor than this comes from a program, not from a page.
MOST_ELEMENTS = 1 << 28
MOST_AXES = 32

TEXT = np.dtypes.StringDType()
PIN_TYPES: dict[str, Any] = {
    "double": np.dtype(np.float64),
    "float": np.dtype(np.float32),
    "int": np.dtype(np.int32),
    "bool": np.dtype(np.bool_),
    "string": TEXT,
}
DATATYPES: dict[str, Any] = {
    "DT_DOUBLE": np.dtype(np.float64),
    "DT_FLOAT": np.dtype(np.float32),
    "DT_INT32": np.dtype(np.int32),
    "DT_INT64": np.dtype(np.int64),
    "DT_BOOL": np.dtype(np.bool_),
    "DT_STRING": TEXT,
    "DT_HALF": np.dtype(np.float16),
    "DT_BFLOAT16": np.dtype(ml_dtypes.bfloat16),
}
TRUE, FALSE = ("true", "TRUE", "True", "1"), ("false", "FALSE", "False", "0")


class PropertyError(PoolGradValueError):
    """A property's text that says nothing legal; `legal` is the form it should have."""

    def __init__(self, message: str, legal: str) -> None:
        super().__init__(f"{message}; write {legal}")
        self.message = message
        self.legal = legal


def _items(text: str, separators: str = ",;") -> list[str]:
    """The items of a list: braces are dropped, the last separator may trail."""
    items = re.split(f"[{separators}]", text.replace("{", "").replace("}", ""))
    if items[-1].strip() == "":
        items.pop()
    return [item.strip() for item in items]


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _number(item: str, position: int, of: str, legal: str) -> str:
    if item == "":
        raise PropertyError(f"item {position} of {_shown(of)} is empty", legal)
    return item


def parse_ints(text: str, legal: str = "integers separated by commas, such as 1,2,2,1") -> tuple[int, ...]:
    """Integers separated by `,` or `;`.

    >>> parse_ints(" 1, 2; {3,4},")
    (1, 2, 3, 4)
    >>> parse_ints("1,2.9")
    Traceback (most recent call last):
    ...
    poolgrad.dialects.enuspace.grammar.PropertyError: item 2 of '1,2.9' is not an integer: '2.9'; write integers separated by \
commas, such as 1,2,2,1
    """
    return tuple(_integer(_number(item, k, text, legal), k, text, legal) for k, item in enumerate(_items(text), 1))


def _integer(item: str, position: int, of: str, legal: str, bits: int = 32) -> int:
    if not re.fullmatch(r"[+-]?[0-9]{1,20}", item):
        raise PropertyError(f"item {position} of {_shown(of)} is not an integer: {_shown(item)}", legal)
    value = int(item)
    if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
        raise PropertyError(f"item {position} of {_shown(of)} does not fit {bits} bits: {item}", legal)
    return value


FLOAT = re.compile(r"[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,5})?|inf(?:inity)?|nan)", re.IGNORECASE)


def _float(item: str, position: int, of: str, legal: str) -> float:
    # A C literal's trailing f (3.f) is common on pages; infinity also ends in an f-less word.
    bare = item[:-1] if item[-1] in "fF" and item[-2:-1] in set("0123456789.") else item
    if not FLOAT.fullmatch(bare):
        raise PropertyError(f"item {position} of {_shown(of)} is not a number: {_shown(item)}", legal)
    return float(bare)


def parse_floats(text: str, legal: str = "numbers separated by commas, such as 1.0,1.44,1.73,1.0") -> tuple[float, ...]:
    """Numbers separated by `,` or `;`; a trailing `f` as in C is accepted.

    >>> parse_floats("1.0, 1.44; 3.f")
    (1.0, 1.44, 3.0)
    """
    return tuple(_float(_number(item, k, text, legal), k, text, legal) for k, item in enumerate(_items(text), 1))


def parse_bool(text: str, name: str = "value") -> bool:
    """`true`, `TRUE`, `True` or `1`; enuSpace takes anything else for false, here it must say so."""
    if text.strip() in TRUE:
        return True
    if text.strip() in FALSE:
        return False
    raise PropertyError(f"{name} is neither true nor false: {_shown(text)}", "true or false")


def parse_attrs(text: str, keys: Iterable[str]) -> tuple[dict[str, str], list[str]]:
    """Attributes `key_ = value;`, and warnings about what enuSpace would ignore in silence.

    >>> parse_attrs("data_format_ = NDHWC;", ["data_format_"])
    ({'data_format_': 'NDHWC'}, [])
    """
    known = list(keys)
    legal = " ".join(f"{key} = ...;" for key in known) or "nothing: this block has no attributes"
    values: dict[str, str] = {}
    warnings: list[str] = []
    for part in re.sub(r"[ \t\r\n]", "", text).split(";"):
        key, equals, value = part.partition("=")
        if part == "":
            continue
        if not equals:
            raise PropertyError(f"{_shown(part)} in {_shown(text)} has no '='", legal)
        if key not in known:
            near = f"did you mean {key}_?" if f"{key}_" in known else f"known here: {', '.join(known) or 'none'}"
            warnings.append(f"the unknown key {_shown(key)} is ignored; {near}")
        elif key in values:
            warnings.append(f"{key} is given again: the first value, {values[key]!r}, holds")
        else:
            values[key] = value
    return {key: value for key, value in values.items() if value != ""}, warnings


def parse_shape(text: str) -> tuple[int, ...]:
    """A shape: `[2][3]`, or `{2,3}`, which enuSpace misreads as 2 and 23; nothing is a scalar.

    >>> parse_shape("[2][3]"), parse_shape("{2,3}"), parse_shape("")
    ((2, 3), (2, 3), ())
    """
    bare, legal = text.strip(), "sizes in brackets, such as [2][3]"
    if re.fullmatch(r"(?:\[\s*[0-9]{1,10}\s*\])*", bare):
        sizes = tuple(int(n) for n in re.findall(r"[0-9]+", bare))
    elif re.fullmatch(r"\{\s*[0-9]{1,10}(?:\s*,\s*[0-9]{1,10})*\s*\}", bare):
        sizes = tuple(int(n) for n in bare[1:-1].split(","))
    else:
        raise PropertyError(f"shape {_shown(text)} is not a list of sizes", legal)
    if len(sizes) > MOST_AXES or size_of(sizes) > MOST_ELEMENTS:
        raise PropertyError(f"shape {_shown(text)} has more than {MOST_AXES} axes or {MOST_ELEMENTS} elements", "a smaller shape")
    return sizes


def size_of(shape: Sequence[int]) -> int:
    return math.prod(shape)


def parse_values(text: str, dtype: Any, shape: Sequence[int]) -> Array:
    """The values of a tensor, row-major. Their number must be the shape's: enuSpace leaves the rest undefined.

    >>> parse_values("1;2;3;4", np.dtype(np.float32), (2, 2))
    array([[1., 2.],
           [3., 4.]], dtype=float32)
    """
    size = size_of(shape)
    # Only ; separates strings, so that a string may hold a comma, a brace or a blank.
    parts = text.removesuffix(";").split(";") if dtype is TEXT else _items(text)
    if dtype is TEXT and text == "":
        parts = [""] * (size == 1)
    if len(parts) != size:
        legal = f"exactly {size} value{'s' * (size != 1)}, or a shape that holds {len(parts)}, such as [{len(parts)}]"
        raise PropertyError(f"{len(parts)} value{'s' * (len(parts) != 1)} for the shape {format_shape(shape) or 'scalar'}", legal)
    if dtype is TEXT:
        return _strings(parts, text).reshape(shape)
    return np.array(_typed(parts, text, np.dtype(dtype)), dtype=dtype).reshape(shape)


def _strings(parts: list[str], text: str) -> Array:
    try:
        return np.array([part.strip() for part in parts], dtype=TEXT)
    except UnicodeEncodeError:
        raise PropertyError(f"{_shown(text)} holds half a character", "whole characters") from None


def _typed(parts: list[str], text: str, dtype: np.dtype[Any]) -> list[Any]:
    legal = f"{len(parts)} values of type {dtype}"
    if dtype.kind == "b":
        return [parse_bool(part, f"item {k} of {_shown(text)}") for k, part in enumerate(parts, 1)]
    if dtype.kind == "i":
        bits = dtype.itemsize * 8
        return [_integer(_number(p, k, text, legal), k, text, legal, bits) for k, p in enumerate(parts, 1)]
    values = [_float(_number(p, k, text, legal), k, text, legal) for k, p in enumerate(parts, 1)]
    with np.errstate(over="ignore"):
        infinite = np.flatnonzero(np.isinf(np.array(values, dtype=dtype)))
    for k in infinite.tolist():
        if "inf" not in parts[k].lower():
            raise PropertyError(f"item {k + 1} of {_shown(text)} does not fit {dtype}: {_shown(parts[k])}", legal)
    return values


def format_list(values: Iterable[Any]) -> str:
    """
    >>> format_list([1, 2, 2, 1])
    '1,2,2,1'
    """
    return ",".join(as_text(value) for value in values)


def format_attrs(values: Mapping[str, Any]) -> str:
    """
    >>> format_attrs({"overlapping_": True, "seed_": 3})
    'overlapping_ = true; seed_ = 3;'
    """
    shown = {key: str(value).lower() if isinstance(value, bool) else value for key, value in values.items()}
    return " ".join(f"{key} = {value};" for key, value in shown.items())


def format_shape(shape: Iterable[int]) -> str:
    return "".join(f"[{n}]" for n in shape)


def format_values(array: Array) -> str:
    """The values of a tensor as a pin keeps them; `parse_values` reads the same values back."""
    return ";".join(as_text(value) for value in array.ravel())


def as_text(value: Any) -> str:
    """One value as a watch window shows it: the shortest text that reads back as the same value."""
    if isinstance(value, (bool, np.bool_)):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return value
    if isinstance(value, (int, np.integer)):
        return str(int(value))
    if float(value).is_integer() and abs(float(value)) < 1e15:
        return "-0" if float(value) == 0 and math.copysign(1, float(value)) < 0 else str(int(float(value)))
    return str(value)
