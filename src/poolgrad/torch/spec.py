"""A pooling in one line of text, and the tables it means on axes of given sizes.

The registered operators carry this text: it is the same for every input size, a compiled or exported graph shows it as
it is, and a dictionary finds the work behind it at once. Sizes stay outside, so that they may be symbolic; nothing here
that runs while a graph is traced asks more of them than arithmetic and comparison.

    window 3,2 stride 2,2 padding 1:1,0:0 dilation 1,1 count padded divisor none floor
    window 3,2 stride 2,2 padding same dilation 1,1 count inside divisor none floor
    adaptive
    fractional overlapping 0,2,5 0,1,3
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arguments import regular
from ..dialects.common import flag, per_axis
from ..errors import PoolGradTypeError, PoolGradValueError
from ..geometry import Axis, Pool, integer

__all__ = ["ADAPTIVE", "fractional_spec", "output_size", "regular_spec", "tables"]

ADAPTIVE = "adaptive"
NAMED = ("valid", "same", "same_lower")


def regular_spec(
    axes: int,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: Any = False,
    count_include_pad: Any = True,
    divisor_override: Any = None,
    dilation: Any = 1,
) -> str:
    """PyTorch's arguments, checked.

    >>> regular_spec(2, 3, stride=(2, 1), padding=((0, 1), (1, 1)))
    'window 3,3 stride 2,1 padding 0:1,1:1 dilation 1,1 count padded divisor none floor'
    """
    window = per_axis("kernel_size", kernel_size, axes, 1)
    unsaid = stride is None or (isinstance(stride, (list, tuple)) and len(stride) == 0)
    strides = window if unsaid else per_axis("stride", stride, axes, 1)
    dilations = per_axis("dilation", dilation, axes, 1)
    ceil = flag("ceil_mode", ceil_mode)
    count = "padded" if flag("count_include_pad", count_include_pad) else "inside"
    divisor = "none"
    if divisor_override is not None:
        divisor = str(integer("divisor_override", divisor_override, -(2**63) + 1))
        if divisor == "0":
            raise PoolGradValueError("divisor_override must not be 0")
    pads = _padding(padding, axes)
    if ceil and pads in ("same", "same_lower"):
        raise PoolGradValueError(f"ceil_mode needs padding in numbers, got padding={padding!r}")
    return (
        f"window {_text(window)} stride {_text(strides)} padding {pads} dilation {_text(dilations)} "
        f"count {count} divisor {divisor} {'ceil' if ceil else 'floor'}"
    )


def _text(numbers: Sequence[int]) -> str:
    return ",".join([f"{n}" for n in numbers])


def _padding(padding: Any, axes: int) -> str:
    if isinstance(padding, str):
        if padding not in NAMED:
            raise PoolGradValueError(f"padding must be {', '.join(NAMED)}, integers or (before, after) pairs, got {padding!r}")
        return padding if padding != "valid" else ",".join(["0:0"] * axes)
    if isinstance(padding, (list, tuple)) and any(isinstance(entry, (list, tuple)) for entry in padding):
        if len(padding) != axes or not all(isinstance(entry, (list, tuple)) and len(entry) == 2 for entry in padding):
            raise PoolGradValueError(f"padding must be {axes} integers or {axes} (before, after) pairs, got {padding!r}")
        pairs = [per_axis("padding", entry, 2, 0) for entry in padding]
    else:
        pairs = [(p, p) for p in per_axis("padding", padding, axes, 0)]
    return ",".join([f"{p}:{q}" for p, q in pairs])


def fractional_spec(sequences: Sequence[Sequence[int]], overlapping: bool) -> str:
    """Boundaries of cells, one sequence per axis, checked.

    >>> fractional_spec([[0, 2, 5], (0, 1, 3)], True)
    'fractional overlapping 0,2,5 0,1,3'
    """
    for row in sequences:
        if len(row) < 2 or min(row) < 0:
            raise PoolGradValueError(f"a pooling sequence must hold two or more integers from 0 up, got {list(row)}")
    return f"fractional {'overlapping' if overlapping else 'apart'} {' '.join([_text(row) for row in sequences])}"


def output_size(spec: str, sizes: Sequence[int]) -> tuple[int, ...]:
    """How many cells a regular or fractional pooling has on axes of these (maybe symbolic) sizes.

    >>> output_size(regular_spec(2, 3, 2, 1), (8, 9))
    (4, 5)
    """
    words = spec.split(" ")
    if words[0] == "fractional":
        return tuple([len(row.split(",")) - 1 for row in words[2:]])
    window, stride, dilation = (_numbers(words[k]) for k in (1, 3, 7))
    cells = []
    for k, n in enumerate(sizes):
        if words[5] in NAMED:
            cells.append((n + stride[k] - 1) // stride[k])
            continue
        before, after = _pairs(words[5])[k]
        spare = n + before + after - (window[k] - 1) * dilation[k] - 1
        ceil = words[-1] == "ceil"
        if spare < (1 - stride[k] if ceil else 0):
            raise PoolGradValueError(
                f"kernel_size {window[k]} (dilation {dilation[k]}) is larger than the padded input {n} + {before} + {after}"
            )
        cells.append((spare + (stride[k] - 1 if ceil else 0)) // stride[k] + 1)
        may_begin_outside = ceil and stride[k] + after > (window[k] - 1) * dilation[k] + 1
        if may_begin_outside and (cells[-1] - 1) * stride[k] >= n + before:
            cells[-1] -= 1
    return tuple(cells)


def _numbers(text: str) -> tuple[int, ...]:
    return tuple([int(n) for n in text.split(",")])


def _pairs(text: str) -> list[tuple[int, int]]:
    pairs = [entry.split(":") for entry in text.split(",")]
    return [(int(p), int(q)) for p, q in pairs]


def tables(spec: str, sizes: tuple[int, ...], cells: tuple[int, ...]) -> Pool:
    """The pooling on axes of these sizes with so many cells.

    >>> tables(regular_spec(1, 2, 2, ceil_mode=True), (5,), (3,)).axes[0]
    Axis(size=5, cells=3): [0:2)/2 [2:4)/2 [4:5)/1
    """
    words = spec.split(" ")
    try:
        if words[0] == ADAPTIVE:
            pool = Pool(tuple(Axis.adaptive(n, m) for n, m in zip(sizes, cells, strict=True)))
        elif words[0] == "fractional":
            rows = zip(sizes, words[2:], strict=True)
            pool = Pool(tuple(Axis.fractional(n, _numbers(row), overlapping=words[1] == "overlapping") for n, row in rows))
        else:
            pool = _regular(words, sizes)
    except PoolGradValueError:
        raise
    except (ValueError, IndexError) as unreadable:
        raise PoolGradTypeError(f"spec must describe a pooling of {len(sizes)} axes, got {spec!r} ({unreadable})") from None
    if pool.output_size != cells:
        raise PoolGradValueError(f"this pooling of {sizes} has {pool.output_size} cells, not {cells}: {spec}")
    return pool


def _regular(words: list[str], sizes: tuple[int, ...]) -> Pool:
    window, stride, dilation = (_numbers(words[k]) for k in (1, 3, 7))
    padding: Any = words[5] if words[5] in NAMED else _pairs(words[5])
    ceil = words[-1] == "ceil"
    if ceil:  # a window larger than the padded input may still make one cell, of all of it
        rows = zip(window, sizes, padding, dilation, stride, strict=True)
        window = tuple(_held(k, n, n + p + q, d, s) for k, n, (p, q), d, s in rows)
    divisor = None if words[11] == "none" else int(words[11])
    return regular(sizes, window, stride, padding, dilation, words[9], divisor, ceil)


def _held(window: int, size: int, padded: int, dilation: int, stride: int) -> int:
    """How many taps of a window fit the padded input, if what hangs over is less than a stride."""
    over = (window - 1) * dilation + 1 - padded
    return (padded - 1) // dilation + 1 if 0 < over < stride and size else window
