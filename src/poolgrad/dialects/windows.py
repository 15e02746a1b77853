"""Which numbers make one axis's table: the search behind every dialect's `write`.

Given a stride `s` and a dilation `d`, cell `o` takes `k` taps, `d` apart, from `o·s - p` on. A cell whose first tap is not
among the first `d` inputs was not cut at the start, so its `start` tells `p`; a cell whose last tap is not among the last
`d` was not cut at the end, so its `stop` tells `k`. Where every cell was cut, bounds remain, and the search tries from them.
Whatever is found was built and compared with the table before it is believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import PoolGradValueError
from ..geometry import Axis, places
from ..tables import Ints
from .tables import identity, plain

__all__ = ["Form", "Window", "guesses", "solve", "table_of"]

TRIES = 256
"""Strides, and paddings per stride, tried where the table leaves them open."""


@dataclass(frozen=True)
class Form:
    """A way to describe regular windows. All axes of one call share it.

    `padding`: ``valid``, ``same``, ``same_lower``, ``half`` (alike on both sides, at most half the window) or ``pairs``.
    `count`: as in the core, or None if the divisor is an argument of its own. `within`: no window exceeds the input.
    """

    padding: str
    count: str | None
    ceil_mode: bool = False
    dilation: bool = False
    within: bool = False


class Window(NamedTuple):
    """The windows of one axis in numbers."""

    window: int
    stride: int
    padding: tuple[int, int]
    dilation: int = 1


def solve(axis: Axis, count: Ints | None, form: Form, said: Window | None) -> Window | None:
    """Windows of this form that make the table of `axis` with these counts, whatever the counts if None."""
    if axis.step > 1 and not form.dilation:
        return None
    if count is not None and form.count == "inside" and (count != -((axis.start - axis.stop) // axis.step)).any():
        return None
    if count is not None and form.count == "window" and (count != count[:1]).any():
        return None
    return next((w for w in guesses(axis, count, form, said) if _makes(w, axis, count, form)), None)


def _makes(w: Window, axis: Axis, count: Ints | None, form: Form) -> bool:
    if axis.cells and _first_cell(w, axis.size) != (axis.start[0], axis.stop[0]):
        return False  # most guesses fail here, before a table is built
    table = table_of(w, axis.size, form, axis.cells)
    if table is None or (table.step, table.cells) != (axis.step, axis.cells):
        return False
    alike = np.array_equal(table.start, axis.start) and np.array_equal(table.stop, axis.stop)
    return alike and (count is None or np.array_equal(table.count, count))


def _first_cell(w: Window, size: int) -> tuple[int, int]:
    """Where the first cell starts and stops, without its table."""
    begin = -w.padding[0]
    last = begin + min(w.window - 1, (size - 1 - begin) // w.dilation) * w.dilation
    return begin % w.dilation if begin < 0 else begin, last + 1


def table_of(w: Window, size: int, form: Form, cells: int | None = None) -> Axis | None:
    """The table that `w` makes on an axis of this size; None where the form does not allow it, or not as many cells."""
    if w == Window(1, 1, (0, 0)) and not size:
        return identity(size)  # an empty batch is not pooled
    (p, q), rule = w.padding, form.padding
    if min(w.window, w.stride, p + 1, q + 1) < 1 or (w.dilation > 1 and not form.dilation):
        return None
    if (rule == "half" and (p != q or 2 * p > w.window)) or (form.within and w.window > size):
        return None
    try:
        if rule in ("valid", "same", "same_lower") and places(size, *w[:2], rule, w.dilation, False)[:2] != w.padding:
            return None
        if cells not in (None, places(size, *w, form.ceil_mode)[2]):
            return None
        axis = Axis.regular(
            size,
            w.window,
            stride=w.stride,
            padding=w.padding,
            dilation=w.dilation,
            count=form.count or "window",
            ceil_mode=form.ceil_mode,
        )
        return plain(axis)
    except PoolGradValueError:
        return None


def guesses(axis: Axis, count: Ints | None, form: Form, said: Window | None) -> Iterator[Window]:
    """Windows worth a try, those the caller said first."""
    if said is not None:
        yield said
    if not axis.cells or not axis.size:
        return
    known = None if form.count == "inside" or count is None else int(count[0])
    steps = {axis.step}
    if said is not None and (axis.stop - axis.start <= 1).all():
        steps.add(said.dilation)  # cells of one input do not show it
    for d in sorted(steps):
        for s in _strides(axis, d, known, said):
            yield from _with_stride(axis, d, s, known, count, form)


def _with_stride(axis: Axis, d: int, s: int, known: int | None, count: Ints | None, form: Form) -> Iterator[Window]:
    """Windows with this stride and dilation: `p0` is the least padding, `f0` the least last tap of cell 0."""
    n, last, ends = axis.size, axis.cells - 1, axis.stop - 1
    o = np.arange(axis.cells, dtype=np.int64)
    p0, f0 = int((o * s - axis.start).max()), int((ends - o * s).max())
    p0 = p0 if p0 >= 0 else p0 % d
    if form.padding.startswith("same"):
        yield from _same(n, d, s, last, known, (p0, f0), form)
        return
    if known is not None and (ends < n - d).any():
        paddings: Sequence[int] = [(known - 1) * d - f0]
    else:
        is_open = form.padding == "half" and bool((axis.start < d).all())
        paddings = range(p0, p0 + TRIES * d, d) if is_open else [p0]
    for p in paddings:
        k = (p + f0) // d + 1 if known is None else known
        begin, reach = last * s - p, (k - 1) * d + 1
        if form.padding != "pairs":
            yield Window(k, s, (p, p if form.padding == "half" else 0), d)
            continue
        fill = max(0, begin + reach - n)
        yield Window(k, s, (p, fill), d)
        if form.ceil_mode and count is not None:
            counted = begin + (int(count[-1]) - 1) * d + 1 - n
            for after in (counted, counted + d - 1, fill - s + 1):
                yield Window(k, s, (p, max(0, after)), d)


def _same(n: int, d: int, s: int, last: int, known: int | None, least: tuple[int, int], form: Form) -> Iterator[Window]:
    """The window alone decides the padding, so windows are tried around those that the bounds ask for."""
    p0, f0 = least
    asked = [f0, 2 * f0 + last * s - n, 2 * p0 + n - last * s]
    reaches = {r + extra for r in asked for extra in range(4)} if known is None else {(known - 1) * d + 1}
    for reach in sorted(r for r in reaches if r > 0):
        k = (reach - 1) // d + 1
        before, after, _ = places(n, k, s, form.padding, d, False)
        yield Window(k, s, (before, after), d)


def _strides(axis: Axis, d: int, known: int | None, said: Window | None) -> Sequence[int]:
    """The stride that cells not cut at one side tell; else those that may leave the cells as they are."""
    n, last = axis.size, axis.cells - 1
    for edge, free in ((axis.start, axis.start >= d), (axis.stop, axis.stop - 1 < n - d)):
        told = np.flatnonzero(free)
        if len(told) > 1:
            first, other = told[0], told[-1]
            return [int(edge[other] - edge[first]) // int(other - first)]
    own = [said.stride] if said is not None else []
    widest = n + (known or 0) * d
    if not last:
        return [*own, int(axis.stop[0] - axis.start[0]), n, 2 * widest + 1]
    least = max(1, int(axis.start[-1] - axis.start[0]) - d, int(axis.stop[-1] - axis.stop[0]) - d)
    return [*own, *range(least, least + min(widest + d, TRIES) + 1)]
