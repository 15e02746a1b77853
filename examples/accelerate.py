"""Two small networks trained with and without `poolgrad.torch.accelerate()`: the same losses, a quicker backward.

The first is built like DenseNet (dense blocks, 2×2 average pooling between them), the second like Inception (branches, one
of them a 3×3 average pooling at stride 1) with a wide smoothing before it. Times are printed, not promised: most of a
backward pass is convolutions, and they are PyTorch's in both runs.
"""

from __future__ import annotations

import time

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import poolgrad.torch


class Dense(nn.Module):  # type: ignore[misc]
    """Dense blocks: every layer sees all before it; transitions pool 2×2."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.first = nn.ModuleList(nn.Conv2d(16 + 8 * k, 8, 3, padding=1) for k in range(3))
        self.second = nn.ModuleList(nn.Conv2d(40 + 8 * k, 8, 3, padding=1) for k in range(3))
        self.last = nn.Linear(64, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        for block in (self.first, self.second):
            for layer in block:
                x = torch.cat([x, layer(F.relu(x))], 1)
            x = F.avg_pool2d(x, 2)
        return self.last(F.adaptive_avg_pool2d(x, (2, 2)).mean((2, 3)))


class Inception(nn.Module):  # type: ignore[misc]
    """A background is taken off by a 15×15 mean; then branches of 1×1, 3×3 and pooled 1×1 are joined."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 3, padding=1)
        self.point, self.wide, self.pooled = nn.Conv2d(16, 8, 1), nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(16, 8, 1)
        self.last = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = F.relu(x - F.avg_pool2d(x, 15, 1, 7, count_include_pad=False))
        smooth = F.avg_pool2d(x, 3, 1, 1)
        x = torch.cat([self.point(x), self.wide(x), self.pooled(smooth)], 1)
        return self.last(F.relu(x).mean((2, 3)))


def train(network: type[nn.Module], steps: int) -> tuple[list[float], float]:
    """The losses, and the best time of a backward pass in milliseconds."""
    torch.manual_seed(7)
    model, best = network(), float("inf")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    images, labels = torch.randn(8, 3, 48, 48), torch.randint(5, (8,))
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        begin = time.perf_counter()
        loss.backward()
        best = min(best, time.perf_counter() - begin)
        optimizer.step()
        losses.append(loss.item())
    return losses, 1000 * best


def main(steps: int = 4, rounds: int = 2) -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # steadier times on a machine that does other things too
    for network in (Dense, Inception):
        plain_ms = ours_ms = float("inf")
        for _ in range(rounds):  # in turns, so that what disturbs the machine disturbs both
            plain, ms = train(network, steps)
            plain_ms = min(plain_ms, ms)
            with poolgrad.torch.accelerate() as report:
                ours, ms = train(network, steps)
            ours_ms = min(ours_ms, ms)
        same = torch.allclose(torch.tensor(plain), torch.tensor(ours), rtol=1e-4)
        print(f"{network.__name__}: loss {plain[0]:.4f} to {plain[-1]:.4f}, the same in both runs: {same}")
        print(f"  a backward pass takes {plain_ms:.1f} ms, accelerated {ours_ms:.1f} ms")
    torch.set_num_threads(threads)
    print(report)


if __name__ == "__main__":
    main()
