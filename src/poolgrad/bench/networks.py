"""Two small networks with average pooling where DenseNet and Inception have it, to see what a faster pooling gains in training.

`width` scales the channels: 1 is a toy, 8 about the size of the originals' first stages.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["NETWORKS", "Dense", "Inception", "Smoothed"]


def _unit(channels: int, made: int, window: int) -> nn.Sequential:
    """Normalise, rectify, convolve."""
    convolution = nn.Conv2d(channels, made, window, padding=window // 2, bias=False)
    return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), convolution)


class Dense(nn.Module):  # type: ignore[misc]
    """Blocks in which every layer sees all before it; 2×2 average pooling at stride 2 after each."""

    def __init__(self, width: int = 8, layers: int = 4) -> None:
        super().__init__()
        channels, growth = 8 * width, 4 * width
        self.stem = nn.Conv2d(3, channels, 3, padding=1, bias=False)
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for _ in range(3):
            self.blocks.append(nn.ModuleList(_unit(channels + growth * k, growth, 3) for k in range(layers)))
            channels += growth * layers
            self.transitions.append(_unit(channels, channels // 2, 1))
            channels //= 2
        self.last = nn.Linear(4 * channels, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block, transition in zip(self.blocks, self.transitions, strict=True):
            for layer in block:
                x = torch.cat([x, layer(x)], 1)
            x = F.avg_pool2d(transition(x), 2)
        return self.last(F.adaptive_avg_pool2d(x, 2).flatten(1))


class Inception(nn.Module):  # type: ignore[misc]
    """Branches of 1×1, 3×3, twice 3×3 and, after a 3×3 average pooling at stride 1, again 1×1."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        channels, part = 24 * width, 6 * width
        self.stem = nn.Sequential(nn.Conv2d(3, 8 * width, 3, padding=1, bias=False), _unit(8 * width, channels, 3))
        self.blocks = nn.ModuleList()
        for _ in range(3):
            twice = nn.Sequential(_unit(channels, part, 3), _unit(part, part, 3))
            branches = [_unit(channels, part, 1), _unit(channels, part, 3), twice, _unit(channels, part, 1)]
            self.blocks.append(nn.ModuleList(branches))
        self.last = nn.Linear(channels, 10)

    def begun(self, x: Tensor) -> Tensor:
        """What the blocks work on."""
        begun: Tensor = self.stem(x)
        return begun

    def forward(self, x: Tensor) -> Tensor:
        x = self.begun(x)
        for point, wide, twice, pooled in self.blocks:
            x = torch.cat([point(x), wide(x), twice(x), pooled(F.avg_pool2d(x, 3, 1, 1))], 1)
        return self.last(F.relu(x).mean((2, 3)))


class Smoothed(Inception):
    """The same after a background, the mean of the 15×15 pixels around, is taken off."""

    def begun(self, x: Tensor) -> Tensor:
        x = super().begun(x)
        return x - F.avg_pool2d(x, 15, 1, 7, count_include_pad=False)


NETWORKS: dict[str, type[nn.Module]] = {"DenseNet-like": Dense, "Inception-like": Inception, "with a 15×15 smoothing": Smoothed}
