"""ONNX's AveragePool and GlobalAveragePool on NumPy arrays, and the gradient that the standard does not have.

Channels first: (N, C, D1, …, Dn). `opset` is the version of the default operator set a model was written for:
`count_include_pad` exists from 7 on, `ceil_mode` from 10, `dilations` from 19. A ceil window that would begin in the end
padding is dropped in every version: it covers no input. (Shape inference for versions before 22 counts it; ONNX Runtime and
ONNX's reference implementation drop it there too.)

>>> import numpy as np
>>> from poolgrad.dialects import onnx
>>> x = np.arange(5, dtype=np.float32).reshape(1, 1, 5)
>>> onnx.AveragePool(x, kernel_shape=[2], strides=[2], auto_pad="SAME_UPPER")
array([[[0.5, 2.5, 4. ]]], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..arguments import as_sizes
from ..errors import PoolGradValueError
from ..geometry import integer, places
from .common import Array, Maker, called, choice, flag, forward, gradient, listed, shape_of
from .fit import Form, fit, is_adaptive, place
from .pooling import Adaptive, NoTranslation, Pooling, Regular
from .tables import letters

__all__ = ["OPSET", "AveragePool", "AveragePoolGrad", "GlobalAveragePool", "GlobalAveragePoolGrad", "read", "write"]

OPSET = 22
"""The newest version in which AveragePool changed; later ones mean the same."""

_SINCE = {"count_include_pad": 7, "ceil_mode": 10, "dilations": 19}
_AUTO_PAD = {"NOTSET": None, "VALID": "valid", "SAME_UPPER": "same", "SAME_LOWER": "same_lower"}


def _layout(name: str, shape: tuple[int, ...]) -> str:
    if not 3 <= len(shape) <= 12:
        raise PoolGradValueError(f"{name} must have a batch, channels and 1 to 10 spatial axes, got shape {shape}")
    return "NC" + letters(len(shape) - 2)


def _average(
    shape: tuple[int, ...],
    kernel_shape: Any,
    opset: Any = OPSET,
    auto_pad: Any = "NOTSET",
    ceil_mode: Any = 0,
    count_include_pad: Any = 0,
    dilations: Any = None,
    pads: Any = None,
    strides: Any = None,
) -> Regular:
    layout, axes = _layout("X", shape), len(shape) - 2
    window = listed("kernel_shape", kernel_shape, axes, 1)
    stride = (1,) * axes if strides is None else listed("strides", strides, axes, 1)
    dilation = (1,) * axes if dilations is None else listed("dilations", dilations, axes, 1)
    ceil, include = flag("ceil_mode", ceil_mode), flag("count_include_pad", count_include_pad)
    used = {"count_include_pad": include, "ceil_mode": ceil, "dilations": dilations is not None}
    version = integer("opset", opset, 1)
    for name, is_used in used.items():
        if is_used and version < _SINCE[name]:
            raise PoolGradValueError(f"{name} exists from opset {_SINCE[name]} on, got opset {version}")
    rule = _AUTO_PAD[choice("auto_pad", auto_pad, list(_AUTO_PAD))]
    given = (0,) * (2 * axes) if pads is None else listed("pads", pads, 2 * axes, 0)
    if rule is not None and any(given):
        raise PoolGradValueError(f"pads cannot be used with auto_pad={auto_pad!r}, got {pads!r}")
    pairs = tuple(zip(given[:axes], given[axes:], strict=True))
    rows = list(zip(shape[2:], window, stride, dilation, strict=True))
    if rule in ("same", "same_lower"):
        pairs, ceil = tuple(places(n, k, s, rule, d, False)[:2] for n, k, s, d in rows), False
    if ceil:  # a window larger than the padded input may still make one cell, of all of it
        window, stride = zip(*(_shortened(*row, sum(pair)) for row, pair in zip(rows, pairs, strict=True)), strict=True)
    return Regular(layout, window, stride, pairs, dilation, "padded" if include else "inside", None, ceil)


def _shortened(n: int, k: int, s: int, d: int, padding: int) -> tuple[int, int]:
    """The taps within the padded input, with a stride that leaves no second cell; otherwise the window as it is."""
    excess = (k - 1) * d + 1 - n - padding
    return ((n + padding - 1) // d + 1, max(s, n + padding)) if 0 < excess < s and n else (k, s)


def _whole(shape: tuple[int, ...]) -> Adaptive:
    return Adaptive(_layout("X", shape), (1,) * (len(shape) - 2))


_MAKERS: dict[str, Maker] = {"AveragePool": _average, "GlobalAveragePool": _whole}


def AveragePool(
    x: Array,
    kernel_shape: Sequence[int],
    *,
    opset: int = OPSET,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """ONNX's AveragePool, with the attributes and defaults of the standard. `pads` holds all begins, then all ends.

    >>> import numpy as np
    >>> AveragePool(np.array([[[2.0, 4, 6]]]), [2], pads=[1, 0], count_include_pad=1)
    array([[[1., 3., 5.]]])
    """
    given = (kernel_shape, opset, auto_pad, ceil_mode, count_include_pad, dilations, pads, strides)
    return forward("x", x, _average, *given)


def AveragePoolGrad(
    dy: Array,
    input_shape: Sequence[int],
    kernel_shape: Sequence[int],
    *,
    opset: int = OPSET,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: Sequence[int] | None = None,
    pads: Sequence[int] | None = None,
    strides: Sequence[int] | None = None,
) -> Array:
    """The gradient of `AveragePool` with respect to its input of shape `input_shape`.

    >>> import numpy as np
    >>> AveragePoolGrad(np.array([[[2.0, 4]]]), (1, 1, 4), [2], strides=[2])
    array([[[1., 1., 2., 2.]]])
    """
    given = (kernel_shape, opset, auto_pad, ceil_mode, count_include_pad, dilations, pads, strides)
    return gradient("dy", dy, shape_of("input_shape", input_shape), _average, *given)


def GlobalAveragePool(x: Array) -> Array:
    """ONNX's GlobalAveragePool: the mean over the spatial axes, which stay with length 1.

    >>> import numpy as np
    >>> GlobalAveragePool(np.array([[[2.0, 4, 6]]]))
    array([[[4.]]])
    """
    return forward("x", x, _whole)


def GlobalAveragePoolGrad(dy: Array, input_shape: Sequence[int]) -> Array:
    """The gradient of `GlobalAveragePool`.

    >>> import numpy as np
    >>> GlobalAveragePoolGrad(np.array([[[6.0]]]), (1, 1, 3))
    array([[[2., 2., 2.]]])
    """
    return gradient("dy", dy, shape_of("input_shape", input_shape), _whole)


def read(arguments: Mapping[str, Any], input_shape: Sequence[int]) -> Pooling:
    """What a node means; without `op` it is an AveragePool if it has a `kernel_shape`.

    >>> read({"kernel_shape": [3], "pads": [1, 0]}, (1, 1, 4)).pool((1, 1, 4)).axes[0]
    Axis(size=4, cells=3): [0:2)/2 [0:3)/3 [1:4)/3
    """
    op = arguments.get("op", "AveragePool" if "kernel_shape" in arguments else "GlobalAveragePool")
    return called(_MAKERS, op, arguments, input_shape)


def write(pooling: Pooling, input_shape: Sequence[int]) -> dict[str, Any]:
    """The ONNX node that means the same, or `NoTranslation`.

    >>> write(Regular("NCL", (3,), (2,), ((0, 1),)), (1, 1, 8))
    {'op': 'AveragePool', 'kernel_shape': [3], 'strides': [2], 'pads': [0, 1], 'opset': 22}
    """
    shape = as_sizes("input_shape", input_shape)
    if len(shape) < 3:
        raise NoTranslation(f"ONNX needs a batch and channels before the spatial axes; the array has shape {shape}")
    placed = place(pooling, shape, range(2, len(shape)), "ONNX")
    if is_adaptive(placed) and all(axis.cells == 1 for axis in placed.axes):
        return {"op": "GlobalAveragePool"}
    forms = [Form("pairs", count, ceil, dilation=True) for ceil in (False, True) for count in ("inside", "padded")]
    found = fit(placed, forms, "ONNX")
    befores, afters = zip(*found.padding, strict=True)
    said: dict[str, Any] = {"op": "AveragePool", "kernel_shape": list(found.window), "strides": list(found.stride)}
    if any(befores + afters):
        said["pads"] = [*befores, *afters]
    if max(found.dilation) > 1:
        said["dilations"] = list(found.dilation)
    if found.form.ceil_mode:
        said["ceil_mode"] = 1
    if found.form.count == "padded":
        said["count_include_pad"] = 1
    return {**said, "opset": OPSET}
