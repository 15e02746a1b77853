"""PyTorch's average pooling on NumPy arrays: its functions, argument names, defaults and limits.

Channels first, batched or not: `avg_pool2d` takes (N, C, H, W) or (C, H, W). The gradients are named and ordered as in
aten, with the same defaults as the forward; where aten takes the input tensor (`self`), its shape will do too.

>>> import numpy as np
>>> from poolgrad.dialects import torch
>>> x = np.arange(12, dtype=np.float32).reshape(1, 1, 3, 4)
>>> torch.avg_pool2d(x, 2, stride=1, padding=1)[0, 0, 0]
array([0.  , 0.25, 0.75, 1.25, 0.75], dtype=float32)
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from ..arguments import as_sizes
from ..arrays import check_source
from ..errors import PoolGradValueError
from ..geometry import integer
from .common import Array, Maker, called, flag, forward, gradient, per_axis, rank_of, shape_of
from .fit import Fit, Form, fit, is_adaptive, place
from .pooling import Adaptive, NoTranslation, Pooling, Regular
from .tables import Tables, letters

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool1d_backward",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool2d_backward",
    "adaptive_avg_pool3d",
    "adaptive_avg_pool3d_backward",
    "avg_pool1d",
    "avg_pool1d_backward",
    "avg_pool2d",
    "avg_pool2d_backward",
    "avg_pool3d",
    "avg_pool3d_backward",
    "read",
    "write",
]

Ints = int | Sequence[int]
Size = int | Sequence[int | None]


def _layout(dims: int, shape: tuple[int, ...]) -> str:
    return ("NC" if rank_of("input", shape, (dims + 1, dims + 2)) == dims + 2 else "C") + letters(dims)


def _regular(
    dims: int,
    shape: tuple[int, ...],
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: Any = False,
    count_include_pad: Any = True,
    divisor_override: Any = None,
) -> Regular:
    layout = _layout(dims, shape)
    window = per_axis("kernel_size", kernel_size, dims, 1)
    unsaid = stride is None or (isinstance(stride, Sequence) and not len(stride))
    strides = window if unsaid else per_axis("stride", stride, dims, 1)
    pads = per_axis("padding", padding, dims, 0)
    ceil = flag("ceil_mode", ceil_mode)
    for p, k in zip(pads, window, strict=True):
        if 2 * p > k:
            raise PoolGradValueError(f"padding must be at most half of kernel_size, got padding {p} for kernel_size {k}")
    if divisor_override is not None and integer("divisor_override", divisor_override, -(2**63) + 1) == 0:
        raise PoolGradValueError("divisor_override must not be 0")
    sizes = shape[-dims:]
    if dims == 3 and any(k > n for k, n in zip(window, sizes, strict=True)):
        raise PoolGradValueError(f"kernel_size of avg_pool3d must not exceed the input {sizes}, got {window}")
    if ceil:  # a window larger than the padded input may still make one cell, of all of it
        rows = zip(window, sizes, pads, strides, strict=True)
        window = tuple(n + 2 * p if 0 < k - n - 2 * p < s and n else k for k, n, p, s in rows)
    count = "padded" if flag("count_include_pad", count_include_pad) else "inside"
    return Regular(layout, window, strides, tuple((p, p) for p in pads), None, count, divisor_override, ceil)


def _regular1d(
    shape: tuple[int, ...],
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: Any = False,
    count_include_pad: Any = True,
) -> Regular:
    return _regular(1, shape, kernel_size, stride, padding, ceil_mode, count_include_pad)


def _adaptive(dims: int, shape: tuple[int, ...], output_size: Any) -> Adaptive:
    layout, sizes = _layout(dims, shape), shape[-dims:]
    entries = tuple(output_size) if isinstance(output_size, Sequence) else (output_size,) * dims
    if len(entries) != dims:
        raise PoolGradValueError(f"output_size must be an integer or {dims} of them, got {output_size!r}")
    cells = (n if m is None else integer("output_size", m, 0) for n, m in zip(sizes, entries, strict=True))
    return Adaptive(layout, tuple(cells))


_MAKERS: dict[str, Maker] = {
    "avg_pool1d": _regular1d,
    "avg_pool2d": partial(_regular, 2),
    "avg_pool3d": partial(_regular, 3),
    **{f"adaptive_avg_pool{dims}d": partial(_adaptive, dims) for dims in (1, 2, 3)},
}


def avg_pool1d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """`torch.nn.functional.avg_pool1d` of (N, C, L) or (C, L).

    >>> import numpy as np
    >>> avg_pool1d(np.array([[1.0, 2, 3, 4, 5]]), 2, ceil_mode=True)
    array([[1.5, 3.5, 5. ]])
    """
    return forward("input", input, _regular1d, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool1d_backward(
    grad_output: Array,
    self: Array | Sequence[int],
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
) -> Array:
    """The gradient of `avg_pool1d`; `self` is its input or the shape of it."""
    shape = shape_of("self", self)
    return gradient("grad_output", grad_output, shape, _regular1d, kernel_size, stride, padding, ceil_mode, count_include_pad)


def avg_pool2d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """`torch.nn.functional.avg_pool2d` of (N, C, H, W) or (C, H, W)."""
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return forward("input", input, _MAKERS["avg_pool2d"], *given)


def avg_pool2d_backward(
    grad_output: Array,
    self: Array | Sequence[int],
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """The gradient of `avg_pool2d`, `aten::avg_pool2d_backward`; `self` is its input or the shape of it.

    >>> import numpy as np
    >>> avg_pool2d_backward(np.array([[[4.0, 8.0]]]), (1, 2, 4), 2)
    array([[[1., 1., 2., 2.],
            [1., 1., 2., 2.]]])
    """
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return gradient("grad_output", grad_output, shape_of("self", self), _MAKERS["avg_pool2d"], *given)


def avg_pool3d(
    input: Array,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """`torch.nn.functional.avg_pool3d` of (N, C, D, H, W) or (C, D, H, W)."""
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return forward("input", input, _MAKERS["avg_pool3d"], *given)


def avg_pool3d_backward(
    grad_output: Array,
    self: Array | Sequence[int],
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Ints = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Array:
    """The gradient of `avg_pool3d`, `aten::avg_pool3d_backward`; `self` is its input or the shape of it."""
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    return gradient("grad_output", grad_output, shape_of("self", self), _MAKERS["avg_pool3d"], *given)


def adaptive_avg_pool1d(input: Array, output_size: Size) -> Array:
    """`torch.nn.functional.adaptive_avg_pool1d`; None keeps an axis as it is."""
    return forward("input", input, _MAKERS["adaptive_avg_pool1d"], output_size)


def adaptive_avg_pool1d_backward(grad_output: Array, self: Array | Sequence[int]) -> Array:
    """The gradient of `adaptive_avg_pool1d`; the output size is that of `grad_output`."""
    return _adaptive_backward(1, grad_output, self)


def adaptive_avg_pool2d(input: Array, output_size: Size) -> Array:
    """`torch.nn.functional.adaptive_avg_pool2d`; None keeps an axis as it is."""
    return forward("input", input, _MAKERS["adaptive_avg_pool2d"], output_size)


def adaptive_avg_pool2d_backward(grad_output: Array, self: Array | Sequence[int]) -> Array:
    """The gradient of `adaptive_avg_pool2d`; the output size is that of `grad_output`."""
    return _adaptive_backward(2, grad_output, self)


def adaptive_avg_pool3d(input: Array, output_size: Size) -> Array:
    """`torch.nn.functional.adaptive_avg_pool3d`; None keeps an axis as it is."""
    return forward("input", input, _MAKERS["adaptive_avg_pool3d"], output_size)


def adaptive_avg_pool3d_backward(grad_output: Array, self: Array | Sequence[int]) -> Array:
    """The gradient of `adaptive_avg_pool3d`; the output size is that of `grad_output`."""
    return _adaptive_backward(3, grad_output, self)


def _adaptive_backward(dims: int, grad_output: Array, self: Array | Sequence[int]) -> Array:
    dy = check_source("grad_output", grad_output)
    _layout(dims, dy.shape)
    return gradient("grad_output", dy, shape_of("self", self), _MAKERS[f"adaptive_avg_pool{dims}d"], dy.shape[-dims:])


def read(arguments: Mapping[str, Any], input_shape: Sequence[int]) -> Pooling:
    """What a call means; without `op`, `output_size` tells an adaptive one and the length of the sizes the dimensions.

    >>> read({"kernel_size": 2, "padding": 1}, (2, 3, 8)).pool((2, 3, 8)).axes[0]
    Axis(size=8, cells=5): [0:1)/2 [1:3)/2 [3:5)/2 [5:7)/2 [7:8)/2
    """
    op = arguments.get("op")
    if op is None:
        name = "output_size" if "output_size" in arguments else "kernel_size"
        sizes, shape = arguments.get(name), tuple(input_shape)
        listed = isinstance(sizes, Sequence) and not isinstance(sizes, str)
        dims = len(sizes) if listed and len(sizes) > 1 else len(shape) - 2  # type: ignore[arg-type]
        if not 1 <= dims <= 3:
            said = f"{name} {sizes!r} and the input shape {shape}"
            raise PoolGradValueError(f"{said} tell no op: name one, such as op='avg_pool2d'")
        op = f"{'adaptive_' if name == 'output_size' else ''}avg_pool{dims}d"
    return called(_MAKERS, op, arguments, input_shape)


def write(pooling: Pooling, input_shape: Sequence[int]) -> dict[str, Any]:
    """The PyTorch call that means the same, or `NoTranslation`.

    >>> write(Regular("NCHW", (3, 3), (2, 2), ((0, 1), (0, 1))), (1, 8, 8, 8))
    {'op': 'avg_pool2d', 'kernel_size': (3, 3), 'stride': (2, 2), 'padding': (0, 0), 'ceil_mode': True}
    """
    shape = as_sizes("input_shape", input_shape)
    tables = Tables.of(pooling, shape)
    if not 2 <= len(shape) <= 5:
        raise NoTranslation(f"PyTorch pools arrays of rank 2 to 5; the array has shape {shape}")
    batched = len(shape) > 2 and tables.axes[1] is None
    dims = len(shape) - 2 if batched or len(shape) == 5 else len(shape) - 1
    placed = place(pooling, shape, range(len(shape) - dims, len(shape)), "PyTorch")
    adaptive = {"op": f"adaptive_avg_pool{dims}d", "output_size": tuple(axis.cells for axis in placed.axes)}
    if isinstance(pooling, Adaptive):
        return adaptive
    try:
        return _arguments(fit(placed, _forms(dims), "PyTorch"), dims)
    except NoTranslation:
        if is_adaptive(placed):
            return adaptive
        raise


def _forms(dims: int) -> list[Form]:
    counts = ("padded", "inside") if dims == 1 else ("padded", "inside", None)
    return [Form("half", count, ceil, within=dims == 3) for count in counts for ceil in (False, True)]


def _arguments(found: Fit, dims: int) -> dict[str, Any]:
    pads = tuple(before for before, _ in found.padding)
    said: dict[str, Any] = {"op": f"avg_pool{dims}d", "kernel_size": found.window, "stride": found.stride, "padding": pads}
    if found.form.ceil_mode:
        said["ceil_mode"] = True
    if found.form.count == "inside":
        said["count_include_pad"] = False
    if found.divisor is not None:
        said["divisor_override"] = found.divisor
    return said
