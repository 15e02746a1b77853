"""Gradients to be tested by the conformance kit: a right one, and the same with one known mistake each.

Written from the documented signature alone, by brute force: every window adds its share to the inputs it covers.
"""

from __future__ import annotations

import ctypes
import itertools
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

Array = Any
BUGS: dict[str, Callable[..., Array]] = {}


def cells_of(n: int, k: int, s: int, pads: tuple[int, int], d: int, ceil_mode: bool) -> int:
    spare = n + sum(pads) - ((k - 1) * d + 1)
    if spare < 0:
        raise ValueError(f"a window of {k} does not fit {n} + {pads}")
    cells = (-(-spare // s) if ceil_mode else spare // s) + 1
    return cells - 1 if ceil_mode and (cells - 1) * s >= n + pads[0] else cells


def taps(bug: str, o: int, n: int, k: int, s: int, pads: tuple[int, int], d: int, count: str) -> tuple[list[int], int]:
    """The inputs of cell `o` and what the axis divides by."""
    begin = o * s - (0 if bug == "dropped pad" else pads[0])
    last = k + {"stop one too far": 1, "stop one short": -1}.get(bug, 0)
    inside = [i for i in range(begin, begin + last * d, d) if 0 <= i < n]
    real = o * s - pads[0]
    counts = {"inside": len([i for i in range(real, real + k * d, d) if 0 <= i < n]), "window": k}
    counts["padded"] = len([i for i in range(real, real + k * d, d) if i < n + pads[1]])
    rule = {"full-window divisor": "window", "padding never counts": "inside"}.get(bug, count)
    return inside, max(counts[rule], 1)


def compute(dy: Array, input_shape: Any, bug: str = "", **said: Any) -> Array:
    """The gradient; `said` is what the kit passes by keyword."""
    layout, rank = said["layout"], len(said["window"])
    letters = sorted(set(layout) - set("NC"))
    spatial = [layout.index(letter) for letter in letters]
    sizes = [input_shape[p] for p in spatial]
    stride = said["stride"][::-1] if bug == "strides swapped" else said["stride"]
    dilation = (1,) * rank if bug == "dilation ignored" else said["dilation"]
    rows = list(zip(sizes, said["window"], stride, said["padding"], dilation, strict=True))
    right = list(zip(sizes, said["window"], said["stride"], said["padding"], said["dilation"], strict=True))
    cells = [cells_of(*row, said["ceil_mode"]) for row in right]
    expected = list(input_shape)
    for p, m in zip(spatial, cells, strict=True):
        expected[p] = m
    if dy.shape != tuple(expected) and bug != "shapes not checked":
        raise ValueError(f"dy must have shape {expected}, got {dy.shape}")
    ends = list(range(-rank, 0))
    source = np.moveaxis(dy, spatial, ends)
    wide = source.astype(source.dtype if bug == "sums in the type itself" else np.float64)
    dx = np.zeros((*wide.shape[:-rank], *sizes), dtype=wide.dtype)
    for cell in itertools.product(*map(range, cells)):
        each = [taps(bug, o, *row, said["count"]) for o, row in zip(cell, rows, strict=True)]
        divisor = said["divisor"] or int(np.prod([c for _, c in each]))
        share = (wide[(..., *cell)] / divisor).astype(wide.dtype)
        place = (..., *np.ix_(*(inside for inside, _ in each)))
        if bug == "assigns":
            dx[place] = share.reshape(*share.shape, *[1] * rank)
        else:
            dx[place] += share.reshape(*share.shape, *[1] * rank)
    return finished(np.moveaxis(spoiled(dx, sizes, rank, bug), ends, spatial).astype(dy.dtype), bug)


def spoiled(dx: Array, sizes: list[int], rank: int, bug: str) -> Array:
    if bug == "axes permuted":
        turned = [*range(dx.ndim - rank), *range(dx.ndim - 1, dx.ndim - rank - 1, -1)]
        return dx.reshape(*dx.shape[:-rank], *sizes[::-1]).transpose(turned)
    if bug == "wrong stripe edge" and sizes[0] > 4:
        dx[(..., 4, *[slice(None)] * (rank - 1))] = 0
    if bug == "infinity spreads":
        with np.errstate(all="ignore"):
            dx = dx + 0 * dx.sum(axis=-1, keepdims=True)
    return dx


def finished(dx: Array, bug: str) -> Array:
    if bug == "skipped tail":
        dx[..., dx.shape[-1] // 8 * 8 :] = 0
    return dx


def planted(name: str, bug: str) -> None:
    """A function of this module with one mistake, under a name that the kit can import."""

    def kernel(dy: Array, input_shape: Any, **said: Any) -> Array:
        return compute(dy, input_shape, bug, **said)

    kernel.__name__ = name
    BUGS[name] = globals()[name] = kernel


for mistake in [
    *("axes permuted", "dropped pad", "full-window divisor", "padding never counts", "stop one too far", "stop one short"),
    *("skipped tail", "wrong stripe edge", "strides swapped", "assigns", "dilation ignored", "sums in the type itself"),
    *("infinity spreads", "shapes not checked"),
]:
    planted(mistake.replace(" ", "_").replace("-", "_"), mistake)


def right(dy: Array, input_shape: Any, **said: Any) -> Array:
    print("a kernel may print")
    return compute(dy, input_shape, **said)


def float32_only(dy: Array, input_shape: Any, **said: Any) -> Array:
    if dy.dtype != np.float32 or len(said["window"]) != 2:
        raise NotImplementedError(f"float32 in 2-D only, got {dy.dtype}")
    return compute(dy, input_shape, **said)


calls = 0


def right_the_first_time(dy: Array, input_shape: Any, **said: Any) -> Array:
    global calls
    calls += 1
    return compute(dy, input_shape, **said) + dy.dtype.type(calls > 1)


def ceil_ignored(dy: Array, input_shape: Any, **said: Any) -> Array:
    return compute(dy, input_shape, **{**said, "count": "inside" if said["ceil_mode"] else said["count"]})


def changes_dy(dy: Array, input_shape: Any, **said: Any) -> Array:
    dx = compute(dy, input_shape, **said)
    dy *= dy.dtype.type(2)
    return dx


def wrong_shape(dy: Array, input_shape: Any, **said: Any) -> Array:
    return compute(dy, input_shape, **said)[np.newaxis]


def wrong_dtype(dy: Array, input_shape: Any, **said: Any) -> Array:
    return compute(dy, input_shape, **said).astype(np.float64 if dy.dtype != np.float64 else np.float32)


def not_an_array(dy: Array, input_shape: Any, **said: Any) -> Array:
    return compute(dy, input_shape, **said).tolist()


def raises(dy: Array, input_shape: Any, **said: Any) -> Array:
    return compute(dy, input_shape, **said)[10**9]


def crashes(dy: Array, input_shape: Any, **said: Any) -> Array:
    if said["window"][0] == 3:
        ctypes.string_at(0)
    return compute(dy, input_shape, **said)


def exits(dy: Array, input_shape: Any, **said: Any) -> Array:
    print("leaving early", file=sys.stderr)
    os._exit(7)


def hangs(dy: Array, input_shape: Any, **said: Any) -> Array:
    if said["window"][0] == 3:
        time.sleep(600)
    return compute(dy, input_shape, **said)
