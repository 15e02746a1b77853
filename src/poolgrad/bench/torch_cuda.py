"""What `accelerate()` gains on a GPU: `python -m poolgrad.bench.torch --device cuda`.

Three tables. Training steps of the networks in `networks.py`: the time between device events in a running training, in turns
with and without. The backward of typical layers alone: device time, working sets beyond the caches. A tiny forward and backward:
time on the host, and replayed in a CUDA graph. Gradients are compared with PyTorch's own of contiguous float32 tensors
before they are timed. On CUDA its own of padded channels_last ones has been wrong; where it is, the table says so.
"""

from __future__ import annotations

from statistics import median
from typing import Any

import torch
from torch.nn import functional as F

import poolgrad.torch as ours

from .gpu import Clock
from .networks import NETWORKS
from .torch import ORDERS, TINY, Call, Layer, digits, randn, table, tiny_calls, within

__all__ = ["LAYERS", "on_cuda"]

LAYERS = {
    "2x2": Layer("2×2 stride 2 (DenseNet's transitions)", (256, 128, 56, 56), 2, 2),
    "3x3s1": Layer("3×3 stride 1 (Inception's branches)", (256, 192, 35, 35), 3, 1, 1),
    "3x3s2": Layer("3×3 stride 2", (256, 64, 112, 112), 3, 2, 1),
    "7x7": Layer("7×7 global", (1024, 1024, 7, 7), 7, 7),
    "15x15": Layer("15×15 stride 1", (64, 32, 128, 128), 15, 1, 7),
    "63x63": Layer("63×63 stride 1", (16, 32, 128, 128), 63, 1, 31),
    "3x3x3": Layer("3×3×3 stride 1", (16, 32, 32, 64, 64), 3, 1, 1),
}
WAYS = ("PyTorch", "accelerate()")
PRECISIONS = {"float32": None, "bfloat16 autocast": torch.bfloat16}
SIZES = {"DenseNet-like": 56, "Inception-like": 35, "with a 15×15 smoothing": 35}
IMAGES = 128
WIDTH = 8
STEPS, TURNS = 3, 6
"""Of a way in a row, and how often it takes its turn; a first turn is not counted."""
TOLERANCE = {torch.float32: 1e-4, torch.bfloat16: 2e-2}
"""Of the largest number in a gradient."""


class Training:
    """A network, its data and its optimiser on the device."""

    def __init__(self, name: str, order: str, dtype: torch.dtype | None) -> None:
        torch.manual_seed(0)
        self.dtype = dtype
        self.model = NETWORKS[name](width=WIDTH).to("cuda", memory_format=ORDERS[order])
        self.images = randn((IMAGES, 3, SIZES[name], SIZES[name]), 1, torch.float32, order, "cuda")
        self.labels = torch.arange(IMAGES, device="cuda") % 10
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)

    def step(self) -> list[Any]:
        """One step; the events before it, before and after its backward, and after it."""
        events = [torch.cuda.Event(enable_timing=True) for _ in range(4)]
        events[0].record()
        self.optimizer.zero_grad()
        with torch.autocast("cuda", self.dtype or torch.bfloat16, enabled=self.dtype is not None):
            loss = F.cross_entropy(self.model(self.images), self.labels)
        events[1].record()
        loss.backward()
        events[2].record()
        self.optimizer.step()
        events[3].record()
        return events


def networks() -> list[dict[str, Any]]:
    """Milliseconds of a step and of its backward, each way."""
    rows = []
    for name in NETWORKS:
        for order in ORDERS:
            for precision, dtype in PRECISIONS.items():
                times = trained(Training(name, order, dtype))
                rows.append({"network": name, "memory": order, "precision": precision, **times})
    return rows


def trained(training: Training) -> dict[str, float]:
    """The two ways in turns: the median of each."""
    times: dict[str, list[float]] = {f"{what}, {way}": [] for what in ("step", "backward") for way in WAYS}
    for turn in range(TURNS + 1):
        for way in WAYS:
            with within(way):
                marks = [training.step() for _ in range(STEPS)]
                torch.cuda.synchronize()
            if turn:
                times[f"step, {way}"] += [first.elapsed_time(last) for first, _, _, last in marks]
                times[f"backward, {way}"] += [before.elapsed_time(after) for _, before, after, _ in marks]
    return {key: median(values) for key, values in times.items()}


def layer_backward(layer: Layer, order: str) -> dict[str, Any]:
    """Milliseconds of the backward alone, each way, and whether PyTorch's own is right."""
    axes, clock = len(layer.shape) - 2, Clock(torch)
    operator = getattr(torch.ops.aten, f"avg_pool{axes}d_backward")
    arguments = ([layer.window] * axes, [layer.stride] * axes, [layer.padding] * axes, False, True, None)
    x = randn(layer.shape, 0, layer.dtype, order, "cuda")
    shape = getattr(F, f"avg_pool{axes}d")(x, layer.window, layer.stride, layer.padding).shape
    dy = randn(shape, 1, layer.dtype, order, "cuda")
    want = operator(dy.float().contiguous(), x.float().contiguous(), *arguments)
    most = TOLERANCE[layer.dtype] * float(want.abs().max())
    right = float((operator(dy, x, *arguments) - want).abs().max()) <= most
    with within("accelerate()"):
        apart = float((operator(dy, x, *arguments) - want).abs().max())
    if not apart <= most:
        raise AssertionError(f"accelerate() differs by {apart} on {layer}, {order}")
    del want
    row: dict[str, Any] = {"layer": layer.name, "input": layer.title, "memory": order, "PyTorch is right": right}
    for way in WAYS:
        with within(way):
            row[way] = clock(lambda: operator(dy, x, *arguments))
    return row


def graphed(function: Any) -> Call:
    """A tiny forward and backward, captured; calling it replays the graph."""
    x = randn(TINY.shape, 0, TINY.dtype, "NCHW", "cuda").requires_grad_()
    dy = torch.ones_like(function(x, TINY.window))

    def step() -> Any:
        return torch.autograd.grad(function(x, TINY.window), x, dy)

    with torch.cuda.stream(torch.cuda.Stream()):
        step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    replay: Call = graph.replay
    return replay


def replays() -> dict[str, float]:
    """Milliseconds of a replayed graph, on the device."""
    clock, times = Clock(torch), {}
    for way, function in (("PyTorch", F.avg_pool2d), ("accelerate()", F.avg_pool2d), ("functions", ours.avg_pool2d)):
        with within(way):
            replay = graphed(function)
        times[way] = clock(replay)
    return times


def _gain(row: dict[str, Any], what: str = "") -> list[str]:
    own, other = (row[what + way] for way in WAYS)
    return [digits(own), digits(other), f"{digits(own / other)}×"]


def _markdown(heads: list[str], texts: int, rows: list[list[str]]) -> str:
    rule = "---|" * texts + "--:|" * (len(heads) - texts)
    return "\n".join([f"| {' | '.join(heads)} |", f"|{rule}", *(f"| {' | '.join(row)} |" for row in rows)])


def on_cuda(names: list[str], rounds: int) -> dict[str, Any]:
    """All three tables, the layers those of these names: printed, and returned."""
    steps = networks()
    heads = ["network", "memory", "precision", "step, ms", "`accelerate()`", "gain", "backward, ms", "`accelerate()`", "gain"]
    keys = heads[:3]
    said = [[*(row[key] for key in keys), *_gain(row, "step, "), *_gain(row, "backward, ")] for row in steps]
    print(_markdown(heads, 3, said), flush=True)
    layers = []
    for layer in [LAYERS[name] for name in names]:
        for dtype in TOLERANCE:
            layers += [layer_backward(layer._replace(dtype=dtype), order) for order in layer.orders]
    said = []
    for row in layers:
        own, *others = _gain(row)
        said.append([row["layer"], row["input"], row["memory"], own if row["PyTorch is right"] else f"{own} (wrong)", *others])
    print("\n" + _markdown(["layer", "input", "memory", "PyTorch, ms", "`accelerate()`", "gain"], 3, said), flush=True)
    tiny, replayed = tiny_calls("cuda", max(1, rounds // 4)), replays()
    print("\n" + table(tiny, ("dtype",), "µs", 1e6))
    print("\nreplayed in a CUDA graph, µs: " + ", ".join(f"{way} {digits(1e3 * time)}" for way, time in replayed.items()))
    return {"networks": steps, "layers": layers, "tiny": tiny, "graph": replayed}
