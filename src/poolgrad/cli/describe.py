"""A pooling as plain data: every window of every axis, and what every input's gradient gets."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from ..geometry import Axis, Pool

__all__ = ["described", "names", "span"]

NAMES = {1: "L", 2: "HW", 3: "DHW"}


def names(pool: Pool) -> str:
    """The axes' letters; digits where there are more than three."""
    return NAMES.get(len(pool.axes), "0123456789"[: len(pool.axes)])


def described(pool: Pool) -> dict[str, Any]:
    """The whole of a pooling, as JSON can hold it. A weight is a fraction, `"1/4"`.

    >>> described(Pool((Axis.regular(3, 2, stride=1),)))["axes"][0]["cells"]
    [{'cell': 0, 'inputs': [0, 1], 'divides_by': 2}, {'cell': 1, 'inputs': [1, 2], 'divides_by': 2}]
    """
    return {
        "input_size": list(pool.input_size),
        "output_size": list(pool.output_size),
        "divisor": pool.divisor,
        "axes": [_axis(name, axis, pool.divisor) for name, axis in zip(names(pool), pool.axes, strict=True)],
    }


def _axis(name: str, axis: Axis, divisor: int | None) -> dict[str, Any]:
    """One axis. Under a constant divisor an axis has no divisor and no weights of its own."""
    cells: list[dict[str, Any]] = []
    gets: list[list[dict[str, Any]]] = [[] for _ in range(axis.size)]
    for o, (start, stop, count) in enumerate(zip(axis.start.tolist(), axis.stop.tolist(), axis.count.tolist(), strict=True)):
        inputs = list(range(start, stop, axis.step))
        cells.append({"cell": o, "inputs": inputs, "divides_by": count if divisor is None else None})
        for i in inputs:
            gets[i].append({"cell": o, "weight": str(Fraction(1, count)) if divisor is None else None})
    return {"name": name, "size": axis.size, "cells": cells, "inputs": [{"input": i, "gets": g} for i, g in enumerate(gets)]}


def span(inputs: list[int]) -> str:
    """A window's inputs along an axis.

    >>> span([3, 4, 5]), span([0, 2, 4]), span([7]), span([])
    ('3..5', '0..4 step 2', '7', 'none')
    """
    if len(inputs) < 2:
        return str(inputs[0]) if inputs else "none"
    step = inputs[1] - inputs[0]
    return f"{inputs[0]}..{inputs[-1]}" + (f" step {step}" if step > 1 else "")
