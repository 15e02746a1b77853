"""The functions as modules. Those that PyTorch has are subclasses of PyTorch's own: the same attributes, the same `repr`.

`dilation` is the one attribute that PyTorch's regular modules lack; it is shown where it is not 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from . import functional
from .functional import Ints, Padding, Size

__all__ = [
    "AdaptiveAvgPool",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AvgPool",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalAvgPool",
]


class AvgPool1d(nn.AvgPool1d):  # type: ignore[misc]
    """`torch.nn.AvgPool1d`, with `padding="same"`, asymmetric padding and dilation.

    >>> AvgPool1d(3, 2, padding="same")(torch.arange(6.0).reshape(1, 1, 6))
    tensor([[[1., 3., 3.]]])
    """

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        *,
        dilation: Ints = 1,
    ) -> None:
        nn.Module.__init__(self)
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad

    def forward(self, input: Tensor) -> Tensor:
        flags = (self.ceil_mode, self.count_include_pad)
        return functional.avg_pool1d(input, self.kernel_size, self.stride, self.padding, *flags, dilation=self.dilation)

    def extra_repr(self) -> str:
        return _shown(self)


class _Regular:
    """What the modules of two axes and more share: their arguments, and the function that they call."""

    function: Any

    def __init__(
        self,
        kernel_size: Ints,
        stride: Ints | None = None,
        padding: Padding = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
        *,
        dilation: Ints = 1,
    ) -> None:
        nn.Module.__init__(self)
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.ceil_mode, self.count_include_pad = ceil_mode, count_include_pad
        self.divisor_override = divisor_override

    def forward(self, input: Tensor) -> Tensor:
        rest = (self.ceil_mode, self.count_include_pad, self.divisor_override)
        return self.function(input, self.kernel_size, self.stride, self.padding, *rest, dilation=self.dilation)

    def extra_repr(self) -> str:
        return _shown(self)


def _shown(module: Any) -> str:
    stride = module.kernel_size if module.stride is None else module.stride
    text = f"kernel_size={module.kernel_size}, stride={stride}, padding={module.padding!r}"
    return text if module.dilation == 1 else f"{text}, dilation={module.dilation}"


class AvgPool2d(_Regular, nn.AvgPool2d):  # type: ignore[misc]
    """`torch.nn.AvgPool2d`, with `padding="same"`, asymmetric padding and dilation.

    >>> AvgPool2d(3, 2, padding=((0, 1), (0, 1)), count_include_pad=False)
    AvgPool2d(kernel_size=3, stride=2, padding=((0, 1), (0, 1)))
    """

    function = staticmethod(functional.avg_pool2d)


class AvgPool3d(_Regular, nn.AvgPool3d):  # type: ignore[misc]
    """`torch.nn.AvgPool3d`, with `padding="same"`, asymmetric padding and dilation."""

    function = staticmethod(functional.avg_pool3d)


class AvgPool(_Regular, nn.Module):  # type: ignore[misc]
    """Average pooling of as many axes as `kernel_size` has entries; one integer pools all but batch and channels.

    >>> AvgPool((2, 1, 1, 3))(torch.zeros(1, 5, 6, 7, 8, 9)).shape
    torch.Size([1, 5, 3, 7, 8, 3])
    """

    function = staticmethod(functional.avg_pool)


class AdaptiveAvgPool1d(nn.AdaptiveAvgPool1d):  # type: ignore[misc]
    """`torch.nn.AdaptiveAvgPool1d`."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.adaptive_avg_pool1d(input, self.output_size)


class AdaptiveAvgPool2d(nn.AdaptiveAvgPool2d):  # type: ignore[misc]
    """`torch.nn.AdaptiveAvgPool2d`."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.adaptive_avg_pool2d(input, self.output_size)


class AdaptiveAvgPool3d(nn.AdaptiveAvgPool3d):  # type: ignore[misc]
    """`torch.nn.AdaptiveAvgPool3d`."""

    def forward(self, input: Tensor) -> Tensor:
        return functional.adaptive_avg_pool3d(input, self.output_size)


class AdaptiveAvgPool(nn.Module):  # type: ignore[misc]
    """Adaptive pooling of as many axes as `output_size` has entries; one integer pools all but batch and channels."""

    def __init__(self, output_size: Size) -> None:
        super().__init__()
        self.output_size = output_size

    def forward(self, input: Tensor) -> Tensor:
        return functional.adaptive_avg_pool(input, self.output_size)

    def extra_repr(self) -> str:
        return f"output_size={self.output_size}"


class FractionalAvgPool(nn.Module):  # type: ignore[misc]
    """Fractional average pooling: new random sequences each call, or given ones; see `fractional_avg_pool`.

    >>> pool = FractionalAvgPool((1.5, 1.25), generator=torch.Generator().manual_seed(5))
    >>> pool, pool(torch.zeros(2, 3, 9, 10)).shape
    (FractionalAvgPool(pooling_ratio=(1.5, 1.25)), torch.Size([2, 3, 6, 8]))
    """

    def __init__(
        self,
        pooling_ratio: float | Sequence[float] | None = None,
        *,
        pseudo_random: bool = False,
        overlapping: bool = False,
        generator: torch.Generator | None = None,
        sequences: Sequence[Sequence[int]] | None = None,
        return_sequences: bool = False,
    ) -> None:
        super().__init__()
        self.pooling_ratio, self.sequences = pooling_ratio, sequences
        self.pseudo_random, self.overlapping = pseudo_random, overlapping
        self.generator, self.return_sequences = generator, return_sequences

    def forward(self, input: Tensor) -> Any:
        return functional.fractional_avg_pool(
            input,
            self.pooling_ratio,
            pseudo_random=self.pseudo_random,
            overlapping=self.overlapping,
            generator=self.generator,
            sequences=self.sequences,
            return_sequences=self.return_sequences,
        )

    def extra_repr(self) -> str:
        shown = {"pooling_ratio": self.pooling_ratio, "sequences": self.sequences}
        shown |= {name: getattr(self, name) or None for name in ("pseudo_random", "overlapping")}
        return ", ".join(f"{name}={value}" for name, value in shown.items() if value is not None)
