"""The `.dat` beside a page: the raw little-endian bytes of its big pins, one after another."""

from __future__ import annotations

import numpy as np

from .grammar import PIN_TYPES, Array, PropertyError, parse_shape, size_of
from .page import Page, Pin

__all__ = ["cut", "positions", "take"]


def take(pin: Pin) -> Array:
    """The array in the bytes of a binary pin; a view, never a copy."""
    kind = PIN_TYPES.get(pin.type)
    if kind is None or pin.type == "string":
        raise PropertyError(f"a pin of type {pin.type!r} cannot be binary", "the type double, float, int or bool")
    dtype, shape = np.dtype(kind), parse_shape(pin.shape)
    found = len(pin.data or b"")
    if found != size_of(shape) * dtype.itemsize:
        wanted = f"{size_of(shape) * dtype.itemsize} bytes for {pin.type}{pin.shape}"
        raise PropertyError(f"the binary pin {pin.name} has {found} bytes", wanted)
    array = np.frombuffer(pin.data or b"", dtype.newbyteorder("<")).reshape(shape)
    if pin.type == "bool" and (np.frombuffer(pin.data or b"", np.uint8) > 1).any():
        raise PropertyError(f"the binary pin {pin.name} holds bytes that are neither 0 nor 1", "0 or 1 for each bool")
    return array


def cut(pin: Pin, position: str, dat: bytes) -> str | None:
    """Give the pin its bytes from the `.dat`; or say why there are none."""
    try:
        kind, size = PIN_TYPES[pin.type], size_of(parse_shape(pin.shape))
        start = int(position)
    except (KeyError, ValueError) as error:
        return f"{pin.name} is saved as binary, but its type, shape or position says nothing: {error}"
    stop = start + size * (np.dtype(kind).itemsize if pin.type != "string" else 0)
    if pin.type == "string" or start < 0 or stop > len(dat):
        return (
            f"{pin.name} is saved as binary at bytes {start} to {stop} of the page's .dat file, which has {len(dat)}: "
            "put the .dat file beside the page, or save the page again in enuSpace"
        )
    pin.data = dat[start:stop]
    return None


def positions(page: Page) -> tuple[dict[int, int], bytes | None]:
    """Where each binary pin goes (by the pin's `id()`), and the whole file; `None` when no pin is binary."""
    binary = [pin for block in page.blocks for pin in block.pins if pin.data is not None]
    places, end = {}, 0
    for pin in binary:
        places[id(pin)] = end
        end += len(pin.data or b"")
    return places, b"".join(pin.data or b"" for pin in binary) if binary else None
