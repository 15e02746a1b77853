"""The core's own arguments as a dialect: what `poolgrad.avg_pool` and its adaptive and fractional kin take.

It says everything the others say, since their arguments become one of its three records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..arguments import as_sizes
from ..errors import PoolGradValueError
from ..geometry import COUNTS, places
from ..layout import default_layout, spatial_positions
from .common import Maker, called, choice, flag, listed, per_axis
from .pooling import Adaptive, Fractional, Pooling, Regular

__all__ = ["read", "write"]


def _places(shape: tuple[int, ...], layout: Any) -> tuple[str, tuple[int, ...]]:
    layout = default_layout(len(shape)) if layout is None else layout
    return layout, tuple(shape[p] for p in spatial_positions(layout, len(shape)))


def _regular(
    shape: tuple[int, ...],
    window: Any,
    stride: Any = None,
    padding: Any = "valid",
    dilation: Any = 1,
    count: Any = "inside",
    divisor: Any = None,
    ceil_mode: Any = False,
    layout: Any = None,
) -> Regular:
    layout, sizes = _places(shape, layout)
    windows = per_axis("window", window, len(sizes), 1)
    strides = windows if stride is None else per_axis("stride", stride, len(sizes), 1)
    dilations = per_axis("dilation", dilation, len(sizes), 1)
    each = [padding] * len(sizes) if isinstance(padding, (str, int)) else padding
    if not isinstance(each, (Sequence, np.ndarray)) or len(each) != len(sizes):
        raise PoolGradValueError(f"padding must have one entry per spatial axis ({len(sizes)}), got {padding!r}")
    ceil = flag("ceil_mode", ceil_mode)
    if ceil and isinstance(padding, str) and padding != "valid":
        raise PoolGradValueError(f"ceil_mode applies to 'valid' or explicit padding, got padding={padding!r}")
    rows = zip(sizes, windows, strides, each, dilations, strict=True)
    pairs = tuple(places(n, k, s, p, d, ceil)[:2] for n, k, s, p, d in rows)
    return Regular(layout, windows, strides, pairs, dilations, choice("count", count, COUNTS), divisor, ceil)


def _adaptive(shape: tuple[int, ...], output_size: Any, layout: Any = None) -> Adaptive:
    layout, sizes = _places(shape, layout)
    asked = list(output_size) if isinstance(output_size, Sequence) else [output_size] * len(sizes)
    if len(asked) == len(sizes):
        asked = [n if m is None else m for n, m in zip(sizes, asked, strict=True)]
    return Adaptive(layout, listed("output_size", asked, len(sizes), 0))


def _fractional(shape: tuple[int, ...], sequences: Any, overlapping: Any = False, layout: Any = None) -> Fractional:
    layout, sizes = _places(shape, layout)
    if not isinstance(sequences, Sequence) or len(sequences) != len(sizes):
        raise PoolGradValueError(f"sequences must hold one pooling sequence per spatial axis ({len(sizes)}), got {sequences!r}")
    rows = tuple(as_sizes(f"sequences[{k}]", row) for k, row in enumerate(sequences))
    return Fractional(layout, rows, flag("overlapping", overlapping))


_MAKERS: dict[str, Maker] = {"avg_pool": _regular, "adaptive_avg_pool": _adaptive, "fractional_avg_pool": _fractional}


def read(arguments: Mapping[str, Any], input_shape: Sequence[int]) -> Pooling:
    """What a call means; without `op`, `window`, `output_size` or `sequences` tells which one it is.

    >>> read({"window": 3, "stride": 2, "padding": "same"}, (1, 8, 1)).pool((1, 8, 1)).axes[0]
    Axis(size=8, cells=4): [0:3)/3 [2:5)/3 [4:7)/3 [6:8)/2
    """
    named = {"output_size": "adaptive_avg_pool", "sequences": "fractional_avg_pool"}
    op = arguments.get("op", next((named[name] for name in arguments if name in named), "avg_pool"))
    return called(_MAKERS, op, arguments, input_shape)


def write(pooling: Pooling, input_shape: Sequence[int]) -> dict[str, Any]:
    """The core's arguments for any pooling.

    >>> write(Regular("NHWC", (2, 3), (2, 1), ((0, 1), (1, 1))), (1, 5, 6, 3))
    {'op': 'avg_pool', 'window': (2, 3), 'stride': (2, 1), 'padding': ((0, 1), (1, 1)), 'layout': 'NHWC'}
    """
    if isinstance(pooling, Adaptive):
        return {"op": "adaptive_avg_pool", "output_size": pooling.output_size, "layout": pooling.layout}
    if isinstance(pooling, Fractional):
        said = {"op": "fractional_avg_pool", "sequences": pooling.sequences, "overlapping": pooling.overlapping}
        return {**said, "layout": pooling.layout}
    assert isinstance(pooling, Regular)
    options = {
        "dilation": pooling.dilation if max(pooling.dilation or (1,)) > 1 else None,
        "count": pooling.count if pooling.count != "inside" else None,
        "divisor": pooling.divisor,
        "ceil_mode": pooling.ceil_mode or None,
    }
    said = {"op": "avg_pool", "window": pooling.window, "stride": pooling.stride, "padding": pooling.padding}
    return {**said, **{name: value for name, value in options.items() if value is not None}, "layout": pooling.layout}
