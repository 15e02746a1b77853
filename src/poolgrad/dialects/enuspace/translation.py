"""Property texts as the common record, and back: TensorFlow's arguments in enuSpace's grammar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ...errors import PoolGradTypeError, PoolGradValueError
from .. import tensorflow
from ..pooling import NoTranslation, Pooling
from .blocks import BLOCKS
from .check import property_value
from .grammar import format_attrs, format_list, parse_ints
from .page import Block, Pin

__all__ = ["read", "write"]

SEQUENCES = ("row_pooling_sequence", "col_pooling_sequence")


def read(arguments: Mapping[str, Any], input_shape: Sequence[int]) -> Pooling:
    """What the property texts of a pooling block say about an input of this shape.

    The block follows from the rank and the properties; it may be named as `block`. A list may be given as a list. A pair of
    sequences, which a page wires in from two Const blocks, is given here as two lists.

    >>> read({"ksize": "1,3,3,1", "strides": [1, 2, 2, 1], "padding": "SAME"}, (1, 8, 7, 2)).padding
    ((0, 1), (1, 1))
    """
    texts = {str(name): _text(str(name), value) for name, value in arguments.items()}
    symbol = texts.pop("block", "") or _symbol(texts, len(input_shape))
    if symbol not in BLOCKS or symbol in ("Const", "Const_ex", "ClientSession"):
        pools = ", ".join(name for name in BLOCKS if "Pool" in name)
        raise PoolGradValueError(f"block must be one of {pools}, got {symbol!r}")
    if "pooling_ratio" in texts:
        raise NoTranslation("FractionalAvgPool draws its boundaries when it runs: translate the sequences that it gave")
    rows = {name: list(parse_ints(texts.pop(name))) for name in SEQUENCES if name in texts}
    properties = [pin.name for pin in BLOCKS[symbol].of_kind("const")]
    unknown = set(texts) - set(properties)
    if unknown:
        raise PoolGradValueError(f"{symbol} has no property {', '.join(sorted(unknown))}; it has {', '.join(properties)}")
    block = Block("", symbol, pins=[Pin(name, "const", value=text) for name, text in texts.items()])
    given = {name: property_value(block, name)[0] for name in properties}
    return tensorflow.read({**given.pop("attrs"), **given, **rows}, input_shape)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, (list, tuple)):
        return str(value)
    if not all(isinstance(entry, (str, int, float, np.number)) for entry in value):
        raise PoolGradTypeError(f"{name} must be a text or a list of numbers, got {value!r}")
    return format_list(value)


def _symbol(texts: Mapping[str, str], rank: int) -> str:
    if any(name in texts for name in SEQUENCES):
        return "FractionalAvgPoolGrad"
    return "FractionalAvgPool" if "pooling_ratio" in texts else "AvgPool3D" if rank == 5 else "AvgPool"


def write(pooling: Pooling, input_shape: Sequence[int]) -> dict[str, Any]:
    """The block and its property texts that say the same, or `NoTranslation`.

    >>> from poolgrad.dialects.pooling import Regular
    >>> write(Regular("NDHWC", (2, 2, 2), (1, 2, 2), ((0, 0),) * 3), (1, 4, 6, 8, 2))["ksize"]
    '1,2,2,2,1'
    """
    said = tensorflow.write(pooling, input_shape)
    if "ksize" not in said:
        rows = {name: format_list(said[name]) for name in SEQUENCES}
        return {"block": "FractionalAvgPoolGrad", **rows, "attrs": format_attrs({"overlapping_": said["overlapping"]})}
    return {
        "block": "AvgPool3DGrad" if len(said["ksize"]) == 5 else "AvgPoolGrad",
        "ksize": format_list(said["ksize"]),
        "strides": format_list(said["strides"]),
        "padding": said["padding"],
        "attrs": format_attrs({"data_format_": said["data_format"]}),
    }
