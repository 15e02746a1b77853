"""What the tests of DirectML share: descriptions with small defaults, and random operators with random strides."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import support
from hypothesis import strategies as st

from poolgrad import Axis, directml

Array = support.Array
TYPES = {"FLOAT32": np.float32, "FLOAT16": np.float16, "FLOAT64": np.float64, "BFLOAT16": ml_dtypes.bfloat16}


def tensor(sizes: Any, kind: str = "FLOAT32", **more: Any) -> directml.BufferTensorDesc:
    return directml.BufferTensorDesc(DataType=kind, Sizes=sizes, **more)


def gradient(dy: Any, dx: Any, **fields: Any) -> Any:
    """A gradient desc with small defaults; tensors as sizes or descs."""
    dy, dx = (t if isinstance(t, directml.BufferTensorDesc) or t is None else tensor(t) for t in (dy, dx))
    axes = len(fields.get("WindowSize", (2, 2)))
    plain = {"Strides": (1,) * axes, "WindowSize": (2,) * axes, "StartPadding": (0,) * axes, "EndPadding": (0,) * axes}
    kind = directml.AveragePooling1GradOperatorDesc if "Dilations" in fields else directml.AveragePoolingGradOperatorDesc
    return kind(InputGradientTensor=dy, OutputGradientTensor=dx, **{"IncludePadding": False, **plain, **fields})


def run(desc: Any, source: Array, out: Any, **options: Any) -> None:
    op = directml.compile_operator(desc, **options)
    op.execute({desc.input_field: source, desc.output_field: out})


def spelled_out(size: int, cells: int, k: int, s: int, start: int, d: int, include: bool) -> Axis:
    """The axis as a list of taps; a window without one inside is empty."""
    rows = []
    for o in range(cells):
        inside = [t for t in (o * s - start + j * d for j in range(k)) if 0 <= t < size]
        rows.append((inside[0], inside[-1] + 1, k if include else len(inside)) if inside else None)
    step = d if k > 1 else 1
    if None not in rows:
        return Axis(size, *map(np.array, zip(*rows, strict=True)), step)
    return _with_holes(size, rows, k if include else 1, step)


def _with_holes(size: int, rows: list[Any], count: int, step: int) -> Axis:
    """Only the oracle takes this one, whose rows need no order: an empty cell is put anywhere."""
    axis = object.__new__(Axis)
    filled = [(0, 0, count) if row is None else row for row in rows]
    columns = [np.array(column, dtype=np.int64) for column in zip(*filled, strict=True)]
    for name, value in zip(("size", "start", "stop", "count", "step"), (size, *columns, step), strict=True):
        object.__setattr__(axis, name, value)
    return axis


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """A random operator with random strides for both tensors, padded and permuted, input axes possibly broadcast."""
    axes = draw(st.sampled_from([2, 2, 3]))
    dilated = draw(st.booleans())
    column = st.tuples(
        st.integers(1, 6), st.integers(1, 4), st.integers(1, 4), st.integers(0, 5), st.integers(0, 5), st.integers(1, 4)
    )
    rows = []
    for _ in range(axes):
        n, k, s, start, end, d = draw(column)
        d = d if dilated else 1
        rows.append((n, k, s, start, max(end, (k - 1) * d + 1 - n - start), d))  # the window fits the padded input
    explicit = draw(st.booleans())
    cells = []
    for n, k, s, start, end, d in rows:
        cells.append((n + start + end - (k - 1) * d - 1) // s + 1 + (draw(st.integers(0, 2)) if explicit else 0))
    return {
        "rows": rows,
        "cells": cells,
        "outer": draw(st.tuples(st.integers(1, 2), st.integers(1, 3))),
        "forwards": draw(st.booleans()),
        "dilated": dilated,
        "explicit": explicit,
        "include": draw(st.booleans()),
        "kind": draw(st.sampled_from(list(TYPES))),
        "orders": [draw(st.permutations(range(axes + 2))) for _ in range(2)],
        "gaps": [draw(st.lists(st.integers(0, 2), min_size=axes + 2, max_size=axes + 2)) for _ in range(2)],
        "broadcast": draw(st.sets(st.integers(0, axes + 1), max_size=2)),
        "seed": draw(support.seeds),
    }


def strides_in(order: Any, gaps: Any, sizes: Any) -> list[int]:
    """Element strides for axes that lie in memory in this order, innermost first, with gaps after each."""
    strides, step = [0] * len(sizes), 1
    for axis, gap in zip(order, gaps, strict=True):
        strides[axis] = step
        step = step * sizes[axis] + gap
    return strides
