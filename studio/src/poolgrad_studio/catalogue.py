"""What the client draws with: blocks and pins in enuSpace's order, names and colours; the rules; the colour scales."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from poolgrad.dialects.enuspace.grammar import DATATYPES, PIN_TYPES
from poolgrad.dialects.enuspace.rules import ALLOWED, LISTS
from poolgrad.enuspace import BLOCKS, BlockDef, PinDef, check_property

from .help import HELP

__all__ = ["COLOURS", "INPUTS", "catalogue", "palette", "palettes", "rules"]

COLOURS = {
    "scope": "#000000",
    "input": "#ffd21f",
    "wired": "#ffd21f",
    "const": "#8c8c8c",
    "output": "#2fbf4a",
    "result": "#d4d4d4",
    "wire": "#a5682a",
    "border": "#e0a030",
    "title": "#4aa3ff",
    "block": "#1c1c1e",
    "page": "#2a2a2a",
}
INPUTS = [
    {"kind": "npy", "title": "Array file", "summary": "a Const with the values of a .npy file"},
    {"kind": "image", "title": "Image", "summary": "a Const with the pixels of a PNG or JPEG, 0 to 1"},
    {"kind": "random", "title": "Random data", "summary": "a Const with random values of any shape"},
]
SCALES = {
    "sequential": ("#101438", "#2c3f94", "#1f7d9e", "#3fb488", "#b4d94f", "#fdf3a0"),
    "diverging": ("#0b3c6f", "#3f8fc4", "#c9e1ee", "#f6f4f0", "#f5cfae", "#d9713c", "#7d1f12"),
}


def catalogue() -> list[dict[str, Any]]:
    """Every block, by group, with its pins in enuSpace's order."""
    return [
        {
            "name": block.name,
            "summary": block.summary,
            "group": _group(block),
            "extension": block.extension,
            "help": HELP[block.name],
            "pins": [_pin(block, pin) for pin in block.pins],
        }
        for block in BLOCKS.values()
    ]


def _group(block: BlockDef) -> str:
    return "session" if block.name == "ClientSession" else "nn" if "Pool" in block.name else "array"


def _pin(block: BlockDef, pin: PinDef) -> dict[str, Any]:
    plain = asdict(pin)
    choices = {"values": tuple(PIN_TYPES), "dtype": tuple(DATATYPES), "bool": ("TRUE", "FALSE")}.get(pin.form, pin.choices)
    colour = COLOURS["scope" if pin.name == "scope" else pin.kind]
    return plain | {"choices": list(choices), "keys": list(pin.keys), "hint": _hint(block, pin), "colour": colour}


def _hint(block: BlockDef, pin: PinDef) -> str:
    """The legal form, in the words of the checker itself."""
    if pin.kind != "const":
        return ""
    if pin.form == "values":
        return "as many values as the shape holds, row-major, separated by ; such as 1;2;3"
    if pin.form == "attrs" and not pin.choices:
        return " ".join(f"{key} = ...;" for key in pin.keys)
    wrong = {"attrs": f"{pin.keys[0] if pin.keys else ''} = ?;", "text": ""}.get(pin.form, "?")
    return check_property(block.name, pin.name, wrong).legal


def rules() -> dict[str, Any]:
    """Which interfaces may meet, and which take many wires."""
    return {"allowed": {start: list(ends) for start, ends in ALLOWED.items()}, "lists": list(LISTS)}


@cache
def palette(name: str) -> npt.NDArray[np.uint8]:
    """A colour scale: 256 rows of red, green and blue."""
    anchors = np.array([[int(colour[k : k + 2], 16) for k in (1, 3, 5)] for colour in SCALES[name]], dtype=np.float64)
    places = np.linspace(0, len(anchors) - 1, 256)
    columns = [np.interp(places, np.arange(len(anchors)), anchors[:, k]) for k in range(3)]
    return np.asarray(np.stack(columns, axis=1).round(), np.uint8)


def palettes() -> dict[str, str]:
    return {name: palette(name).tobytes().hex() for name in SCALES}
