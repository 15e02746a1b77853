"""PyTorch's average-pooling functions, with what PyTorch lacks: same and asymmetric padding, dilation, any axes, fractions.

Names, order and defaults of the arguments are PyTorch's; what is added comes after them, by name. What the arguments
mean for a shape is worked out once and kept, so that asking again costs a look-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from marshal import dumps
from typing import Any

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from ..dialects.common import flag
from ..errors import PoolGradTypeError, PoolGradValueError
from ..geometry import integer
from . import kernels
from .autograd import is_eager, linear
from .library import check_placement, operators
from .sequences import Sequences, given
from .spec import ADAPTIVE, fractional_spec, output_size, regular_spec

__all__ = [
    "adaptive_avg_pool",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "fractional_avg_pool",
]

Ints = int | Sequence[int]
Padding = int | str | Sequence[int] | Sequence[tuple[int, int]]
Size = int | Sequence[int | None]
Meaning = tuple[str, tuple[int, ...]]

_maps = kernels.Kept()
"""What was asked before. A hit needs no check: a tensor that fails is looked at then."""


def _pool(meaning: Callable[..., Meaning], input: Any, axes: int, *arguments: Any) -> Tensor:
    """Pool the last `axes` axes of `input`; `meaning` says from the arguments what that is."""
    if not is_eager(input):
        kernels.check("input", input, axes)
        sizes = input.shape[-axes:]
        if torch.jit.is_tracing():  # where sizes are tensors
            sizes = tuple([int(n) for n in sizes])
        spec, size = meaning(sizes, axes, *arguments)
        if not torch.compiler.is_compiling():  # the operator checks too, but not what inference mode made
            check_placement("input", input, axes)
        return operators(True)(input, size, spec, kernels.is_channels_last(input, axes))
    order = kernels.is_channels_last(input, axes)
    try:
        # As bytes: 2.0 and True equal 2 and 1, and must be refused whatever was asked before.
        key = (meaning, axes, input.shape, order, dumps(arguments, 2))
    except ValueError:  # no plain numbers: not looked up
        map_ = _bound(input, meaning, axes, order, arguments)
    else:
        map_ = _maps.get(key) or _maps.keep(key, _bound(input, meaning, axes, order, arguments))
    try:
        return linear(input, map_)
    except (TypeError, RuntimeError):
        kernels.check("input", input, axes)
        raise


def _bound(input: Tensor, meaning: Callable[..., Meaning], axes: int, order: bool, arguments: tuple[Any, ...]) -> kernels.Bound:
    kernels.check("input", input, axes)
    shape = tuple(input.shape)
    spec, size = meaning(shape[-axes:], axes, *arguments)
    return kernels.bound(spec, shape, size, True, order)


def _regular(sizes: tuple[int, ...], axes: int, *arguments: Any) -> Meaning:
    spec = regular_spec(axes, *arguments)
    return spec, output_size(spec, sizes)


def _adaptive(sizes: tuple[int, ...], axes: int, asked: Any) -> Meaning:
    entries = tuple(asked) if isinstance(asked, (list, tuple)) else (asked,) * axes
    if len(entries) != axes:
        raise PoolGradValueError(f"output_size must be an integer or {axes} of them, got {asked!r}")
    cells = tuple([n if m is None else integer("output_size", m, 0) for n, m in zip(sizes, entries, strict=True)])
    for n, m in zip(sizes, cells, strict=True):
        if n == 0 and m > 0:
            raise PoolGradValueError(f"output_size {m} needs inputs to average, got sizes {tuple(sizes)}")
    return ADAPTIVE, cells


def _fractional(sizes: tuple[int, ...], axes: int, rows: Sequences, overlapping: bool) -> Meaning:
    spec = fractional_spec(rows, overlapping)
    return spec, output_size(spec, sizes)


def _axes(name: str, value: Any, input: Any) -> int:
    """The number of axes: as many as `value` has entries, or all but batch and channels."""
    if isinstance(value, (list, tuple)) and len(value) > 0:
        return len(value)
    if not isinstance(input, Tensor):
        raise PoolGradTypeError(f"input must be a torch.Tensor, got {type(input).__name__}")
    if input.ndim < 3:
        raise PoolGradValueError(f"{name} must name every axis for an input of shape {tuple(input.shape)}: give a tuple")
    axes: int = input.ndim - 2
    return axes


def avg_pool(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dilation: Ints = 1,
) -> Tensor:
    """Average pooling of as many axes as `kernel_size` has entries; one integer pools all but batch and channels.

    >>> avg_pool(torch.arange(6.0).reshape(1, 6), (3,), padding="same", stride=2, count_include_pad=False)
    tensor([[1.0000, 3.0000, 4.5000]])
    """
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    if has_torch_function_unary(input):
        return handle_torch_function(avg_pool, (input,), input, *given, dilation=dilation)
    return _pool(_regular, input, _axes("kernel_size", kernel_size, input), *given, dilation)


def avg_pool1d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    *,
    dilation: Ints = 1,
) -> Tensor:
    """`torch.nn.functional.avg_pool1d` of (N, C, L) or (C, L).

    >>> avg_pool1d(torch.tensor([[1.0, 2, 3, 4, 5]]), 2, ceil_mode=True)
    tensor([[1.5000, 3.5000, 5.0000]])
    """
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad)
    if has_torch_function_unary(input):
        return handle_torch_function(avg_pool1d, (input,), input, *given, dilation=dilation)
    return _pool(_regular, input, 1, *given, None, dilation)


def avg_pool2d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dilation: Ints = 1,
) -> Tensor:
    """`torch.nn.functional.avg_pool2d` of (N, C, H, W) or (C, H, W), and more.

    Parameters
    ----------
    input
        float16, bfloat16, float32 or float64, with any strides; channels_last stays channels_last.
    kernel_size, stride, dilation
        An integer or one per axis; `stride` is `kernel_size` unless given.
    padding
        An integer, one per axis, ``"valid"``, ``"same"``, ``"same_lower"``, or a (before, after) pair per axis.
    ceil_mode
        Round the output size up; a last window that would begin in the end padding is dropped.
    count_include_pad
        Whether declared padding counts in the divisor (what hangs over beyond it in ceil mode never does).
    divisor_override
        Divide by this integer instead.

    >>> avg_pool2d(torch.arange(9.0).reshape(1, 3, 3), 2, stride=1, padding=((0, 1), (0, 0)), count_include_pad=False)
    tensor([[[2.0000, 3.0000],
             [5.0000, 6.0000],
             [6.5000, 7.5000]]])
    """
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    if has_torch_function_unary(input):
        return handle_torch_function(avg_pool2d, (input,), input, *given, dilation=dilation)
    return _pool(_regular, input, 2, *given, dilation)


def avg_pool3d(
    input: Tensor,
    kernel_size: Ints,
    stride: Ints | None = None,
    padding: Padding = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
    *,
    dilation: Ints = 1,
) -> Tensor:
    """`torch.nn.functional.avg_pool3d` of (N, C, D, H, W) or (C, D, H, W); the arguments are those of `avg_pool2d`."""
    given = (kernel_size, stride, padding, ceil_mode, count_include_pad, divisor_override)
    if has_torch_function_unary(input):
        return handle_torch_function(avg_pool3d, (input,), input, *given, dilation=dilation)
    return _pool(_regular, input, 3, *given, dilation)


def adaptive_avg_pool(input: Tensor, output_size: Size) -> Tensor:
    """Adaptive pooling of as many axes as `output_size` has entries; one integer pools all but batch and channels.

    >>> adaptive_avg_pool(torch.arange(10.0).reshape(1, 2, 5), (None, 2))
    tensor([[[1., 3.],
             [6., 8.]]])
    """
    if has_torch_function_unary(input):
        return handle_torch_function(adaptive_avg_pool, (input,), input, output_size)
    return _pool(_adaptive, input, _axes("output_size", output_size, input), output_size)


def adaptive_avg_pool1d(input: Tensor, output_size: Size) -> Tensor:
    """`torch.nn.functional.adaptive_avg_pool1d`."""
    if has_torch_function_unary(input):
        return handle_torch_function(adaptive_avg_pool1d, (input,), input, output_size)
    return _pool(_adaptive, input, 1, output_size)


def adaptive_avg_pool2d(input: Tensor, output_size: Size) -> Tensor:
    """`torch.nn.functional.adaptive_avg_pool2d`; None keeps an axis as it is."""
    if has_torch_function_unary(input):
        return handle_torch_function(adaptive_avg_pool2d, (input,), input, output_size)
    return _pool(_adaptive, input, 2, output_size)


def adaptive_avg_pool3d(input: Tensor, output_size: Size) -> Tensor:
    """`torch.nn.functional.adaptive_avg_pool3d`; None keeps an axis as it is."""
    if has_torch_function_unary(input):
        return handle_torch_function(adaptive_avg_pool3d, (input,), input, output_size)
    return _pool(_adaptive, input, 3, output_size)


def fractional_avg_pool(
    input: Tensor,
    pooling_ratio: float | Sequence[float] | None = None,
    *,
    pseudo_random: bool = False,
    overlapping: bool = False,
    generator: torch.Generator | None = None,
    sequences: Sequence[Sequence[int]] | None = None,
    return_sequences: bool = False,
) -> Any:
    """Fractional average pooling: cells of two neighbouring lengths in a random order, or between given boundaries.

    `pooling_ratio` is how much shorter each axis becomes: one number per axis, or one for all but batch and channels.
    The sequences are TensorFlow's, seeded by two numbers from `generator` (the default one if None); `return_sequences`
    returns them too. With `overlapping` the boundary belongs to both its cells.

    >>> x = torch.tensor([[20.0, 5, 16, 3, 7]])
    >>> fractional_avg_pool(x, sequences=[[0, 2, 5]])
    tensor([[12.5000,  8.6667]])
    >>> fractional_avg_pool(x, (1.5,), generator=torch.Generator().manual_seed(0), return_sequences=True)
    (tensor([[12.5000,  9.5000,  7.0000]]), ((0, 2, 4, 5),))
    """
    if has_torch_function_unary(input):
        options: dict[str, Any] = {"pseudo_random": pseudo_random, "overlapping": overlapping, "generator": generator}
        options |= {"sequences": sequences, "return_sequences": return_sequences}
        return handle_torch_function(fractional_avg_pool, (input,), input, pooling_ratio, **options)
    if (pooling_ratio is None) == (sequences is None):
        raise PoolGradTypeError("give either pooling_ratio, to draw sequences, or the sequences themselves")
    if sequences is None:
        axes = _axes("pooling_ratio", pooling_ratio, input)
        kernels.check("input", input, axes)
        if torch.compiler.is_compiling():  # the one thing that a graph cannot hold
            from .uncompiled import draw
        else:
            from .sequences import draw
        random = flag("pseudo_random", pseudo_random)
        rows = draw(tuple(input.shape[-axes:]), pooling_ratio, pseudo_random=random, generator=generator)
    else:
        rows = given(sequences)
    pooled = _pool(_fractional, input, len(rows), rows, flag("overlapping", overlapping))
    return (pooled, rows) if return_sequences else pooled
