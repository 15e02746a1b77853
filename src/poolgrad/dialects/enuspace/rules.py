"""Why two pins may not be connected: one sentence, or nothing when they may.

The pairs of interfaces are enuSpace's. A block that we do not know has pins of unknown kind; no objection is raised there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .blocks import FEED, FETCH, INITIALIZER, INPUT, OPERATIONS, OUTPUT

if TYPE_CHECKING:
    from .page import Block, Page, Pin

__all__ = ["pair_refusal", "refusal"]

INPUTS, OUTPUTS, TENSOR, OPERATION = "InputList", "OutputList", "Tensor", "Operation"
LISTS = (FETCH, OPERATIONS, FEED, INPUTS, OUTPUTS)
ALLOWED = {
    OUTPUT: (INPUT, OUTPUT, FETCH, OUTPUTS, OPERATION, OPERATIONS),
    INPUT: (INPUT,),
    OUTPUTS: (INPUTS, FETCH, OUTPUTS),
    TENSOR: (INPUT, OPERATION),
    INITIALIZER: (INPUT, INITIALIZER),
    OPERATION: (OPERATIONS, FETCH, OUTPUT),
    INPUTS: (FETCH,),
    FEED: (FEED,),
    "string": ("string",),
}


def pair_refusal(source: Block, source_pin: str, target: Block, target_pin: str) -> str | None:
    """Why these pins do not fit, whatever else is on the page."""
    start, end = source.pin(source_pin), target.pin(target_pin)
    for block, name, pin in ((source, source_pin, start), (target, target_pin, end)):
        if pin is None and block.definition is not None:
            return f"{block.symbol} has no pin {name!r}; it has {', '.join(p.name for p in block.pins)}"
    if source.id == target.id:
        return "a block cannot feed itself"
    if start is None or end is None:
        return None
    return _kinds(start, end) or _interfaces(start, end)


def _kinds(start: Pin, end: Pin) -> str | None:
    for pin in (start, end):
        if pin.name == "scope" and pin.interface == "Scope":
            return "the scope is made for each page and never wired"
        if pin.kind == "const":
            return f"{pin.name} is a property: type its value instead"
        if pin.kind == "result":
            return f"{pin.name} only shows a value: wire {pin.name.removeprefix('result_')} instead"
    if start.kind == "input":
        return f"a wire starts at an output pin, and {start.name} is an input"
    if end.kind == "output":
        return f"a wire ends at an input pin, and {end.name} is an output"
    return None


def _interfaces(start: Pin, end: Pin) -> str | None:
    if not start.interface or not end.interface or end.interface in ALLOWED.get(start.interface, ()):
        return None
    fits = " or ".join(ALLOWED.get(start.interface, ())) or "nothing"
    return f"{start.name} is of type {start.interface}, which fits {fits}, and {end.name} is of type {end.interface}"


def refusal(page: Page, source: str, source_pin: str, target: str, target_pin: str) -> str | None:
    """Why a new wire may not be drawn on this page; `None` if it may."""
    blocks = {block.id: block for block in page.blocks}
    for id in (source, target):
        if id not in blocks:
            return f"there is no block {id!r} on the page"
    why = pair_refusal(blocks[source], source_pin, blocks[target], target_pin)
    if why:
        return why
    end = blocks[target].pin(target_pin)
    for wire in page.wires:
        if wire.ends == (source, source_pin, target, target_pin):
            return "this wire is there already"
        if (wire.target, wire.target_pin) == (target, target_pin) and end is not None and end.interface not in LISTS:
            return f"{target_pin} is wired to {wire.source}.{wire.source_pin} already: remove that wire first"
    return f"{target} feeds {source} already: this would close a loop" if _reaches(page, target, source) else None


def _reaches(page: Page, start: str, goal: str) -> bool:
    feeds: dict[str, list[str]] = {}
    for wire in page.wires:
        feeds.setdefault(wire.source, []).append(wire.target)
    seen, todo = {start}, [start]
    while todo:
        for following in feeds.get(todo.pop(), []):
            if following not in seen:
                seen.add(following)
                todo.append(following)
    return goal in seen
