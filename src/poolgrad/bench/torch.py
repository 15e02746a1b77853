"""Forward and backward through PyTorch's own pooling, the same under `accelerate()`, and `poolgrad.torch`'s functions:
`python -m poolgrad.bench.torch`.

One thread. The three take turns, a few calls each, round after round, and the best of a way's calls counts: other work on the
machine slows all alike. Every way's gradient is compared with PyTorch's before it is timed. It prints Markdown tables, those
of docs/torch.md; `--output` writes what was measured as JSON. `--device cuda` measures on a GPU: `torch_cuda.py`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as own

import poolgrad.torch as ours

from .. import __version__

__all__ = ["LAYERS", "ORDERS", "TINY", "Call", "Layer", "digits", "main", "randn", "table", "tiny_calls", "within"]

Call = Callable[[], Any]
ORDERS = {"NCHW": torch.contiguous_format, "channels_last": torch.channels_last}
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
WAYS = ("PyTorch", "accelerate()", "functions")
SECONDS = 10.0
"""Of one way on one row, after which it takes no more turns."""


class Layer(NamedTuple):
    """A pooling layer as models have it."""

    name: str
    shape: tuple[int, ...]
    window: int
    stride: int
    padding: int = 0
    dtype: torch.dtype = torch.float32

    @property
    def orders(self) -> tuple[str, ...]:
        return tuple(ORDERS) if len(self.shape) == 4 else ("NCHW",)

    @property
    def title(self) -> str:
        return f"{'×'.join(map(str, self.shape))} {str(self.dtype).removeprefix('torch.')}"


LAYERS = {
    "2x2": Layer("2×2 stride 2 (DenseNet's transitions)", (16, 128, 56, 56), 2, 2),
    "3x3s1": Layer("3×3 stride 1 (Inception's branches)", (16, 192, 35, 35), 3, 1, 1),
    "3x3s2": Layer("3×3 stride 2", (16, 64, 112, 112), 3, 2, 1),
    "15x15": Layer("15×15 stride 1", (4, 32, 128, 128), 15, 1, 7),
    "63x63": Layer("63×63 stride 1", (1, 32, 128, 128), 63, 1, 31),
    "3x3s1-bfloat16": Layer("3×3 stride 1", (16, 192, 35, 35), 3, 1, 1, torch.bfloat16),
    "3x3x3": Layer("3×3×3 stride 1", (8, 32, 16, 48, 48), 3, 1, 1),
}
TINY = Layer("2×2 stride 2", (1, 1, 4, 4), 2, 2)


def randn(shape: tuple[int, ...], seed: int, dtype: torch.dtype, order: str, device: str) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator(device).manual_seed(seed), device=device)
    return values.to(dtype).contiguous(memory_format=ORDERS[order] if len(shape) == 4 else torch.contiguous_format)


def ways(layer: Layer, order: str = "NCHW", device: str = "cpu") -> dict[str, Call]:
    """A step of each way: the output, and the gradient of the input for a random one of the output."""
    axes = len(layer.shape) - 2
    x = randn(layer.shape, 0, layer.dtype, order, device).requires_grad_()

    def step(module: Any) -> Call:
        function = getattr(module, f"avg_pool{axes}d")
        arguments = (layer.window, layer.stride, layer.padding)
        dy = randn(function(x, *arguments).shape, 1, layer.dtype, order, device)

        def run() -> Tensor | None:
            x.grad = None
            function(x, *arguments).backward(dy)
            gradient: Tensor | None = x.grad
            return gradient

        return run

    return {"PyTorch": step(own), "accelerate()": step(own), "functions": step(ours)}


def within(way: str) -> contextlib.AbstractContextManager[Any]:
    return ours.accelerate() if way == "accelerate()" else contextlib.nullcontext()


def check(steps: dict[str, Call], dtype: torch.dtype) -> None:
    """Each way once: they warm up, and must agree."""
    tolerance = {torch.float64: 1e-9, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-1}[dtype]
    gradients = {}
    for way, step in steps.items():
        with within(way):
            gradients[way] = step().double()
    for way, gradient in gradients.items():
        torch.testing.assert_close(gradient, gradients["PyTorch"], rtol=tolerance, atol=tolerance, msg=f"{way} differs")


def race(steps: dict[str, Call], calls: int, turns: int, rounds: int) -> dict[str, float]:
    """Seconds of each: the best mean of `calls` in a row, one of `turns` in each round. Slow ones leave early."""
    best, spent = dict.fromkeys(steps, float("inf")), dict.fromkeys(steps, 0.0)
    for _ in range(rounds):
        for way, step in steps.items():
            with within(way):
                for _ in range(turns if spent[way] < SECONDS else 0):
                    begin = time.perf_counter()
                    for _ in range(calls):
                        step()
                    took = time.perf_counter() - begin
                    best[way], spent[way] = min(best[way], took / calls), spent[way] + took
    return best


def digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def table(rows: list[dict[str, Any]], keys: tuple[str, ...], unit: str, scale: float) -> str:
    """Markdown: what was measured, each way's time, and how often it fits into PyTorch's."""
    heads = [*keys, f"PyTorch, {unit}", "`accelerate()`", "gain", "functions", "gain"]
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(keys)}{'--:|' * 5}"]
    for row in rows:
        first, *others = (scale * row[way] for way in WAYS)
        cells = [digits(first)]
        for other in others:
            cells += [digits(other), f"{digits(first / other)}×"]
        lines.append(f"| {' | '.join([*(row[key] for key in keys), *cells])} |")
    return "\n".join(lines)


def on_cpu(names: list[str], rounds: int) -> dict[str, Any]:
    """The layers of these names, and a tiny call in every dtype: printed, and returned."""
    torch.set_num_threads(1)
    layers = []
    for layer in [LAYERS[name] for name in names]:
        for order in layer.orders:
            steps = ways(layer, order)
            check(steps, layer.dtype)
            where = {"layer": layer.name, "input": layer.title, "memory": order}
            layers.append({**where, **race(steps, 1, 3, rounds)})
    if layers:
        print(table(layers, ("layer", "input", "memory"), "ms", 1e3), flush=True)
    tiny = tiny_calls("cpu", rounds)
    print("\n" + table(tiny, ("dtype",), "µs", 1e6))
    return {"layers": layers, "tiny": tiny}


def tiny_calls(device: str, rounds: int) -> list[dict[str, Any]]:
    """What a call costs whose arrays cost nothing."""
    rows = []
    for dtype in DTYPES:
        steps = ways(TINY._replace(dtype=dtype), device=device)
        check(steps, dtype)
        rows.append({"dtype": str(dtype).removeprefix("torch."), **race(steps, 20, 20, 10 * rounds)})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m poolgrad.bench.torch", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where: %(default)s")
    parser.add_argument("--layer", default=None, help=f"which layers: {','.join(LAYERS)}")
    parser.add_argument("--rounds", type=int, default=12, help="turns of each way on a layer: %(default)s")
    parser.add_argument("--output", type=Path, help="file for what was measured, as JSON")
    asked = parser.parse_args()
    layers, measure = LAYERS, on_cpu
    about = {"poolgrad": __version__, "PyTorch": str(torch.__version__)}
    if asked.device == "cuda":
        if not torch.cuda.is_available():
            parser.error("--device cuda needs a CUDA device that PyTorch sees")
        from . import torch_cuda

        layers, measure = torch_cuda.LAYERS, torch_cuda.on_cuda
        about |= {"device": torch.cuda.get_device_name(), "CUDA": torch.version.cuda}
    else:
        about |= {"processor": platform.processor() or platform.machine()}
    names = list(layers) if asked.layer is None else [name for name in asked.layer.split(",") if name]
    if unknown := sorted(set(names) - set(layers)):
        parser.error(f"--layer must name some of {', '.join(layers)}, got {', '.join(unknown)}")
    print(about, flush=True)
    measured = measure(names, asked.rounds)
    if asked.output:
        asked.output.parent.mkdir(parents=True, exist_ok=True)
        asked.output.write_text(json.dumps({"about": about, **measured}, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
