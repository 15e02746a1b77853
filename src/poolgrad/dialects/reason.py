"""Why a dialect has no arguments for given tables: what an axis asks for, what the dialect offers, where they part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice

from ..geometry import Axis, Pool, places
from .tables import cell_text, difference
from .windows import Form, Window, guesses, solve, table_of

__all__ = ["reason"]

_PADDING = {
    "valid": "'valid'",
    "same": "'same'",
    "same_lower": "'same_lower'",
    "half": "alike on both sides and at most half the window",
    "pairs": "any before and after",
}
_COUNT = {
    "inside": "the inputs in the window",
    "padded": "the inputs and padding in the window",
    "window": "the whole window",
    None: "a given number",
}


def reason(pool: Pool, names: Sequence[str], said: Sequence[Window | None], forms: Sequence[Form], who: str) -> str:
    """One sentence for the first axis that no form can say, or for what the axes cannot say together."""
    able = []
    for axis, name, own in zip(pool.axes, names, said, strict=True):
        count = None if pool.divisor is not None else axis.count
        able.append([form for form in forms if solve(axis, count, form, own)])
        if not able[-1]:
            return f"{_clash(axis, name, own, forms, who)}{_nearest(axis, own, forms)}"
    if pool.divisor is not None:
        return f"every window is divided by {pool.divisor}; {who} divides by {_counts(forms)}"
    wishes = " and ".join(f"{name} needs {_wish(own[0])}" for name, own in zip(names, able, strict=True))
    return f"{wishes}; {who} has one choice for all axes"


def _clash(axis: Axis, name: str, said: Window | None, forms: Sequence[Form], who: str) -> str:
    if axis.step > 1 and not any(form.dilation for form in forms):
        return f"the inputs of a window on {name} lie {axis.step} apart; {who} has no dilation"
    anyhow = [Form("pairs", None, ceil, dilation=True) for ceil in (False, True)]
    window = said or next((w for form in anyhow if (w := solve(axis, None, form, None)) is not None), None)
    if window is None:
        return f"evenly spaced windows do not make {name}; {who} knows no others"
    if any(solve(axis, None, replace(form, count=None), said) for form in forms):
        return f"{who} divides by {_counts(forms)}, the windows on {name} by something else"
    paddings = " or ".join(dict.fromkeys(_PADDING[form.padding] for form in forms))
    return f"{name} has window {window.window}, stride {window.stride}, padding {window.padding}; {who} pads {paddings}"


def _counts(forms: Sequence[Form]) -> str:
    return " or ".join(dict.fromkeys(_COUNT[form.count] for form in forms))


def _wish(form: Form) -> str:
    return f"padding {_PADDING[form.padding]}{' with ceil_mode' if form.ceil_mode else ''}, divided by {_counts([form])}"


def _nearest(axis: Axis, said: Window | None, forms: Sequence[Form]) -> str:
    """The first cell in which the best of the dialect's tables differs from this one."""
    tried = [(window, form) for form in forms for window in _neighbours(axis, said, form)]
    tables = [table for window, form in tried if (table := table_of(window, axis.size, form)) is not None]
    if not tables:
        return ""
    nearest = max(tables, key=lambda table: difference(axis, table))
    o = difference(axis, nearest)
    return f": cell {o} {_cell(axis, o)}, its nearest {_cell(nearest, o)}"


def _neighbours(axis: Axis, said: Window | None, form: Form) -> list[Window]:
    """The windows that were said, padded as the form can; without them, the first guesses."""
    if said is None:
        return list(islice(guesses(axis, axis.count, form, None), 64))
    before, after = said.padding
    pads = [(before, after), (before, before), (after, after), (0, 0)]
    if form.padding.startswith("same"):
        pads = [places(axis.size, said.window, said.stride, form.padding, said.dilation, False)[:2]]
    return [said._replace(padding=pair) for pair in pads]


def _cell(axis: Axis, o: int) -> str:
    return f"{cell_text(axis, o)} and divides by {axis.count[o]}" if o < axis.cells else cell_text(axis, o)
