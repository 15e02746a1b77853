"""The gradient on a GPU beside a copy of the same bytes, PyTorch and JAX: `python -m poolgrad.bench.gpu`.

A time is the median of several turns, each a run of calls between two device events that begins while the device is still
busy, so that neither the host nor the launch of the first call counts. The floor is a device copy that reads and writes as many
bytes as the call must. It needs PyTorch; JAX joins in where it is installed. Working sets are well beyond the L2 cache.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from .. import __version__, avg_pool_grad, gradient
from .cases import CASES, DTYPES, Case, Row

__all__ = ["GPU_CASES", "TARGETS", "main"]

BATCHES = {"2x2": 256, "3x3s2": 256, "3x3s1": 256, "global": 1024, "15x15": 128, "63x63": 64}
BATCHES |= {"2x2x2": 32, "3x3x3": 16, "9x9x9": 8}
GPU_CASES: dict[str, Case] = {name: replace(CASES[name], batch=batch) for name, batch in BATCHES.items()}
TARGETS = {
    "2x2": (1.10, 1.15),
    "3x3s2": (1.20, 1.40),
    "3x3s1": (1.25, 1.50),
    "global": (1.10, 1.20),
    "15x15": (1.8, 2.5),
    "63x63": (2.5, 4.0),
    "2x2x2": (1.10, 1.20),
    "3x3x3": (1.5, 2.0),
    "9x9x9": (2.5, 4.0),
}
"""Multiples of the floor that we want, in float32 and bfloat16, channels last; channels first may take 1.3 times as long."""

Call = Callable[[], Any]


class Clock:
    """Device time of a call, in milliseconds."""

    def __init__(self, torch: Any) -> None:
        self.torch = torch

    def __call__(self, call: Call, turns: int = 7) -> float:
        torch = self.torch
        call()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        call()
        torch.cuda.synchronize()
        calls = max(1, min(10, int(0.01 / (time.perf_counter() - begin))))
        times = []
        for _ in range(turns if calls > 1 else 2):
            first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda._sleep(2_000_000)
            first.record()
            for _ in range(calls):
                call()
            last.record()
            last.synchronize()
            times.append(float(first.elapsed_time(last)) / calls)
        return sorted(times)[len(times) // 2]


def torch_peer(torch: Any, row: Row, dy: Any, dx: Any) -> Call:
    """PyTorch's own backward, on tensors in the row's memory format."""
    case, rank = row.case, len(row.case.size)
    assert case.window is not None
    order = (0, rank + 1, *range(1, rank + 1))

    def like(t: Any) -> Any:
        return t.permute(order) if row.channels_last else t

    ours_is_even = case.padding == "same" and case.stride[0] > 1  # padding (0, 1): ceil_mode says the same
    padding = [k // 2 if case.padding == "same" and not ours_is_even else 0 for k in case.window]
    op = getattr(torch.ops.aten, f"avg_pool{rank}d_backward")
    arguments = (list(case.window), list(case.stride), padding, ours_is_even, False, None)
    return lambda: op(like(dy), like(dx), *arguments)


def jax_time(row: Row) -> float | None:
    """Milliseconds of JAX's own gradient on the device, where JAX sees one."""
    try:
        import jax
    except ImportError:
        return None
    if jax.default_backend() != "gpu":
        return None
    from .jax_gpu import BUSY, Clock, theirs

    clock = Clock(jax, 3, BUSY)
    dy = jax.random.uniform(jax.random.key(0), row.output_shape, np.float32, 0.5, 1.5).astype(DTYPES[row.dtype])
    return 1e3 * min(clock(way, dy) for way in theirs(jax, row))


def copy_time(torch: Any, clock: Clock, size: int) -> float:
    """A copy that reads and writes `size` bytes in all."""
    half, other = (torch.empty(size // 2, device="cuda", dtype=torch.uint8) for _ in range(2))
    return clock(lambda: half.copy_(other), 11)


def measure(torch: Any, name: str, row: Row, peers: bool) -> dict[str, Any]:
    clock, dtype = Clock(torch), getattr(torch, row.dtype)
    dy = (torch.rand(row.output_shape, device="cuda") + 0.5).to(dtype)
    dx = torch.empty(row.input_shape, device="cuda", dtype=dtype)
    pool = row.case.pool()
    size = (dy.numel() + dx.numel()) * dy.element_size()
    floor = copy_time(torch, clock, size)
    begin = time.perf_counter()
    gradient(pool, dy, layout=row.layout, out=dx)
    torch.cuda.synchronize()
    compiled = time.perf_counter() - begin
    ours = clock(lambda: gradient(pool, dy, layout=row.layout, out=dx))
    target = TARGETS[name][row.dtype == "bfloat16"] * (1 if row.channels_last else 1.3)
    done: dict[str, Any] = {
        "case": name, "title": row.case.title, "layout": row.layout, "dtype": row.dtype, "floor ms": floor, "ours ms": ours,
        "ours": ours / floor, "target": target, "first call s": compiled,
    }
    if peers:
        call = torch_peer(torch, row, dy, dx)
        answer = call()
        answer = answer.permute(0, *range(2, answer.ndim), 1) if row.channels_last else answer
        tolerance = (0.02 if dtype == torch.bfloat16 else 1e-4) * float(dx.float().abs().max())
        done["PyTorch agrees"] = float((answer.float() - dx.float()).abs().max()) <= tolerance
        del answer
        done["PyTorch"] = clock(call, 3) / floor
        del dy, dx
        torch.cuda.empty_cache()
        if (theirs := jax_time(row)) is not None:
            done["JAX"] = theirs / floor
    return done


def tiny(torch: Any) -> dict[str, float]:
    """Microseconds of a call on a tensor that is nothing: ours, PyTorch's forward and backward, and both as graphs."""
    dy = torch.rand(1, 8, 8, 4, device="cuda")
    x = torch.rand(1, 4, 16, 16, device="cuda", requires_grad=True)

    def ours() -> None:
        avg_pool_grad(dy, (1, 16, 16, 4), 2)

    def theirs() -> None:
        y = torch.nn.functional.avg_pool2d(x, 2)
        torch.autograd.grad(y, x, y)

    done = {}
    for name, call in (("poolgrad", ours), ("PyTorch forward and backward", theirs)):
        done[name] = 1e6 * min(_host(torch, call) for _ in range(5))
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            call()
        done[f"{name}, in a CUDA graph"] = 1e6 * min(_host(torch, graph.replay) for _ in range(5))
    return done


def _host(torch: Any, call: Call, calls: int = 500) -> float:
    for _ in range(10):
        call()
    torch.cuda.synchronize()
    begin = time.perf_counter()
    for _ in range(calls):
        call()
    torch.cuda.synchronize()
    return (time.perf_counter() - begin) / calls


def rows(cases: list[str], dtypes: list[str]) -> Iterator[tuple[str, Row]]:
    for name in cases:
        for layout in GPU_CASES[name].layouts():
            for dtype in dtypes:
                yield name, Row(GPU_CASES[name], layout, dtype)


def text(done: dict[str, Any]) -> str:
    peers = "  ".join(f"{name} {done[name]:8.1f}" for name in ("PyTorch", "JAX") if name in done)
    verdict = "ok" if done["ours"] <= done["target"] else "  "
    return (
        f"{done['title']:42s} {done['layout']:6s} {done['dtype']:9s} {done['ours ms']:8.3f} ms  "
        f"{done['ours']:5.2f} (target {done['target']:4.2f} {verdict})  {peers}"
    )


def plot(measured: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    chosen = [row for row in measured if row["dtype"] == "float32" and row["layout"].endswith("C")]
    figure, axes = pyplot.subplots(figsize=(9, 4.5))
    for k, (name, colour) in enumerate((("ours", "#d1495b"), ("PyTorch", "#edae49"), ("JAX", "#5e4fa2"))):
        places, heights = [i + 0.27 * (k - 1) for i in range(len(chosen))], [row.get(name, 0) for row in chosen]
        axes.bar(places, heights, 0.27, label="poolgrad" if name == "ours" else name, color=colour)
    axes.axhline(1, color="#9aa0a6", linewidth=1)
    axes.set_yscale("log")
    axes.set_xticks(range(len(chosen)), [row["title"].split(",")[0] for row in chosen], rotation=30, ha="right")
    axes.set_ylabel("times a device copy of the same bytes")
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m poolgrad.bench.gpu", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--case", default=",".join(GPU_CASES), help="which rows: %(default)s")
    parser.add_argument("--dtype", default="float32,bfloat16")
    parser.add_argument("--no-peers", action="store_true", help="ours and the floor alone")
    parser.add_argument("--output", type=Path, help="folder for gpu.json and gpu.png")
    asked = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import torch

    about = {"device": torch.cuda.get_device_name(), "poolgrad": __version__}
    about |= {"PyTorch": str(torch.__version__), "CUDA": str(torch.version.cuda)}
    print(about, flush=True)
    measured = []
    for name, row in rows(asked.case.split(","), asked.dtype.split(",")):
        measured.append(measure(torch, name, row, not asked.no_peers))
        print(text(measured[-1]), flush=True)
        torch.cuda.empty_cache()
    small = tiny(torch)
    print("\n".join(f"{name}: {value:.1f} µs" for name, value in small.items()), flush=True)
    if asked.output:
        asked.output.mkdir(parents=True, exist_ok=True)
        (asked.output / "gpu.json").write_text(json.dumps({"about": about, "rows": measured, "tiny": small}, indent=1) + "\n")
        try:
            plot(measured, asked.output / "gpu.png")
        except ImportError:
            print("no plot: matplotlib is not installed")


if __name__ == "__main__":
    main()
