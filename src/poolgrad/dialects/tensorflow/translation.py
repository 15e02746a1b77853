"""TensorFlow's arguments as the common record, and back.

`write` looks for arguments that make the same tables. A regular op has one padding for all its axes, so every axis must
fit VALID, or every axis SAME; failing that, two sequences for FractionalAvgPoolGrad may say it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from ...arguments import as_sizes
from ...errors import PoolGradValueError
from ...geometry import Axis, Pool, places
from ...layout import spatial_positions
from ..pooling import Fractional, NoTranslation, Pooling, Regular
from .arguments import switch, whole_numbers
from .ops import LAYOUTS, checked, windows

__all__ = ["read", "write"]

REGULAR = {"ksize", "strides", "padding"}
FRACTIONAL = {"row_pooling_sequence", "col_pooling_sequence"}
Fit = tuple[int, int]


def read(arguments: Mapping[str, Any], input_shape: Sequence[int]) -> Pooling:
    """What the arguments of a TensorFlow op say about an input of this shape.

    >>> said = read({"ksize": [1, 3, 3, 1], "strides": [1, 2, 2, 1], "padding": "SAME"}, (1, 8, 7, 2))
    >>> said.layout, said.window, said.stride, said.padding
    ('NHWC', (3, 3), (2, 2), ((0, 1), (1, 1)))
    """
    shape = as_sizes("input_shape", input_shape)
    given = set(arguments)
    if len(shape) not in LAYOUTS:
        raise PoolGradValueError(f"TensorFlow pools arrays of rank 4 or 5, got input_shape {shape}")
    if REGULAR <= given <= REGULAR | {"data_format"}:
        return _read_regular(shape, **arguments)
    if len(shape) == 4 and FRACTIONAL <= given <= FRACTIONAL | {"overlapping"}:
        return _read_fractional(**arguments)
    raise PoolGradValueError(
        "arguments must be ksize, strides, padding and data_format, or (rank 4) row_pooling_sequence, "
        f"col_pooling_sequence and overlapping, got {', '.join(map(str, sorted(given, key=str))) or 'none'} for rank {len(shape)}"
    )


def _read_regular(shape: tuple[int, ...], ksize: Any, strides: Any, padding: Any, data_format: Any = None) -> Regular:
    data_format = LAYOUTS[len(shape)][0] if data_format is None else data_format
    said = windows(shape, *checked(len(shape), ksize, strides, padding, data_format))
    rows = zip(said.sizes, said.window, said.stride, strict=True)
    pads = tuple(places(n, k, s, said.padding.lower(), 1, False)[:2] for n, k, s in rows)
    return Regular(said.layout, said.window, said.stride, pads)


def _read_fractional(row_pooling_sequence: Any, col_pooling_sequence: Any, overlapping: Any = False) -> Fractional:
    rows = whole_numbers("row_pooling_sequence", row_pooling_sequence).ravel()
    cols = whole_numbers("col_pooling_sequence", col_pooling_sequence).ravel()
    return Fractional("NHWC", (tuple(rows.tolist()), tuple(cols.tolist())), switch("overlapping", overlapping))


def write(pooling: Pooling, input_shape: Sequence[int]) -> dict[str, Any]:
    """The arguments of a TensorFlow op that make the same tables, or `NoTranslation`.

    >>> write(Regular("NCHW", (2, 2), (2, 2), ((0, 0), (0, 0)), ceil_mode=True), (1, 3, 5, 7))
    {'ksize': [1, 1, 2, 2], 'strides': [1, 1, 2, 2], 'padding': 'SAME', 'data_format': 'NCHW'}
    """
    shape = as_sizes("input_shape", input_shape)
    if pooling.layout not in LAYOUTS.get(len(shape), ()):
        allowed = ", ".join(name for names in LAYOUTS.values() for name in names)
        raise NoTranslation(f"TensorFlow's raw ops know the layouts {allowed}, not {pooling.layout!r} of rank {len(shape)}")
    if isinstance(pooling, Fractional) and pooling.layout == "NHWC":
        return _sequences([list(row) for row in pooling.sequences], pooling.overlapping)
    axes = _plain_axes(pooling.pool(shape))
    asked = list(zip(pooling.window, pooling.stride, strict=True)) if isinstance(pooling, Regular) else [(1, 1)] * len(axes)
    for padding, guess in (("VALID", _none), ("SAME", _none), ("VALID", _valid), ("SAME", _same)):
        tries = [[first, *guess(axis)] for axis, first in zip(axes, asked, strict=True)]
        fits = [next((fit for fit in row if _makes(axis, fit, padding)), None) for axis, row in zip(axes, tries, strict=True)]
        if None not in fits:
            return _regular(pooling.layout, padding, [fit for fit in fits if fit])
    return _fractional(pooling.layout, axes)


def _plain_axes(pool: Pool) -> tuple[Axis, ...]:
    """The axes with TensorFlow's divisor, the cells within the input, if that is what the pooling divides by."""
    for axis in pool.axes:
        if axis.step > 1 and (axis.stop - axis.start > 1).any():
            raise NoTranslation(f"TensorFlow's average pooling has no dilation; a window here takes every {axis.step}th input")
    axes = tuple(Axis(a.size, a.start, a.stop, a.stop - a.start) for a in pool.axes)
    if pool.divisor is None:
        same = all((plain.count == axis.count).all() for plain, axis in zip(axes, pool.axes, strict=True))
    else:
        least, most = (prod(int(edge(axis.count)) for axis in axes if axis.cells) for edge in (np.min, np.max))
        same = least == most == pool.divisor
    if not same:
        raise NoTranslation("TensorFlow divides by the cells within the input; this one counts otherwise or has a constant")
    return axes


def _makes(axis: Axis, fit: Fit, padding: str) -> bool:
    k, s = fit
    try:
        return max(fit) < 2**31 and Axis.regular(axis.size, k, stride=s, padding=padding.lower()) == axis
    except PoolGradValueError:
        return False


def _none(axis: Axis) -> Iterator[Fit]:
    """No guesses: the window and stride asked for are the plainest answer, with either padding."""
    return iter(())


def _valid(axis: Axis) -> Iterator[Fit]:
    """The window and stride that VALID would need to make this axis."""
    if axis.cells:
        k = int(axis.stop[0] - axis.start[0])
        yield k, int(axis.start[1] - axis.start[0]) if axis.cells > 1 else max(k, axis.size - k + 1)


def _same(axis: Axis) -> Iterator[Fit]:
    """The windows and strides that SAME could need: the padding before shows in the last start, the window in the first stop.

    A stride shows between two edges that the input does not clip; where there is none, the largest that gives as many
    cells will do if any does.
    """
    n, m = axis.size, axis.cells
    if m < 2:
        yield (int(axis.stop[0]), n) if m else (1, 1)
        return
    last, first = int(axis.start[-1]), int(axis.stop[0])
    strides = {last - int(axis.start[-2]), int(axis.stop[1]) - first, -(-n // m), -(-n // (m - 1)) - 1}
    for s in sorted(strides - {0}):
        before, beyond = (m - 1) * s - last, n - (m - 1) * s
        yield from ((first, s), (2 * before + beyond, s), (2 * before + 1 + beyond, s))


def _regular(layout: str, padding: str, fits: list[Fit]) -> dict[str, Any]:
    ksize, strides = [1] * len(layout), [1] * len(layout)
    for position, (k, s) in zip(spatial_positions(layout, len(layout)), fits, strict=True):
        ksize[position], strides[position] = k, s
    return {"ksize": ksize, "strides": strides, "padding": padding, "data_format": layout}


def _fractional(layout: str, axes: tuple[Axis, ...]) -> dict[str, Any]:
    """Boundaries for FractionalAvgPoolGrad, which knows NHWC alone."""
    for overlapping in (False, True):
        edges = [_edges(axis, overlapping) for axis in axes if layout == "NHWC" and axis.cells]
        rows = zip(axes, edges, strict=False)
        made = [Axis.fractional(axis.size, row, overlapping=overlapping, allow_empty=True) for axis, row in rows]
        if made == list(axes):
            return _sequences(edges, overlapping)
    raise NoTranslation(
        "no ksize and strides make these windows with one padding, SAME or VALID, for all axes, and no pair of pooling "
        f"sequences (NHWC only) does: {', '.join(map(repr, axes))}"
    )


def _edges(axis: Axis, overlapping: bool) -> list[int]:
    end = int(axis.stop[-1])
    return [*axis.start.tolist(), end - 1 if overlapping and end < axis.size else end]


def _sequences(edges: list[list[int]], overlapping: bool) -> dict[str, Any]:
    return {"row_pooling_sequence": edges[0], "col_pooling_sequence": edges[1], "overlapping": overlapping}
