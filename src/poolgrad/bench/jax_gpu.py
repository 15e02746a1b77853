"""`poolgrad.jax` under `jit` on a GPU, through the engine and as a composition, beside JAX: `python -m poolgrad.bench.jax_gpu`.

Everything is a multiple of a device copy that reads and writes as many bytes as the gradient must. A turn puts a few calls on
the device behind work that keeps it busy until the host is ahead, and waits once; the time of a call is the difference between
a long and a short turn over the difference of their calls, so that neither the host nor the work before them counts. Results
are dropped as they come. The rows are those of `poolgrad.bench.gpu`; neither PyTorch nor the compiled core is needed.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from .. import __version__
from .cases import DTYPES, Row
from .gpu import GPU_CASES, rows

__all__ = ["main"]

Call = Callable[[Any], Any]

SHORT, LONG = 4, 24
"""Calls of a turn; JAX lets no more than 32 programs wait on a device."""

SLOW, PATIENCE = 0.004, 2.0
"""Seconds: a call that needs no company to be timed; a call that is made but once more."""

BUSY = 8192
"""Side of the matrices that keep the device busy: eight products take some ten milliseconds."""


class Clock:
    """Seconds of a call on the device."""

    def __init__(self, jax: Any, turns: int, side: int) -> None:
        self.jax, self.turns = jax, turns
        self._matrix = jax.numpy.full((side, side), 1 / side, dtype=jax.numpy.bfloat16)
        self._busy = jax.jit(lambda a: reduce(lambda b, _: b @ a, range(8), a))
        jax.block_until_ready(self._busy(self._matrix))

    def __call__(self, call: Call, given: Any) -> float:
        self.jax.block_until_ready(call(given))  # compiled and warm
        once = self._plain(call, given, 1)
        if once > PATIENCE:
            return once
        if once > SLOW:
            return min(self._plain(call, given, 2) for _ in range(2))
        self._behind(call, given, LONG)
        return median(self._difference(call, given) for _ in range(self.turns))

    def _plain(self, call: Call, given: Any, calls: int) -> float:
        begin = time.perf_counter()
        for _ in range(calls):
            last = call(given)
        last.block_until_ready()
        return (time.perf_counter() - begin) / calls

    def _behind(self, call: Call, given: Any, calls: int) -> float:
        begin = time.perf_counter()
        self._busy(self._matrix)
        for _ in range(calls):
            last = call(given)
        last.block_until_ready()
        return time.perf_counter() - begin

    def _difference(self, call: Call, given: Any) -> float:
        return (self._behind(call, given, LONG) - self._behind(call, given, SHORT)) / (LONG - SHORT)


def engine(jax: Any, row: Row) -> Call:
    """The gradient as users of `poolgrad.jax` get it."""
    from ..jax.primitive import linear

    pool, spatial = row.case.pool(), _spatial(row)
    return _jitted(jax, lambda dy: linear(dy, pool, spatial, False))


def composition(jax: Any, row: Row) -> Call:
    """The same gradient in JAX's own operations."""
    from ..jax.composition import composed
    from ..jax.parts import uncut

    pool, spatial = row.case.pool(), _spatial(row)
    call = partial(composed, pool=pool, spatial=spatial, forwards=False, cuts=uncut(pool, False))
    return _jitted(jax, lambda dy: call(dy, np.zeros(len(spatial), dtype=np.int32)))


def theirs(jax: Any, row: Row) -> list[Call]:
    """What JAX's users write: the transpose of a window sum; for global pooling a broadcast too."""
    case, dtype = row.case, DTYPES[row.dtype]
    assert case.window is not None
    window, stride = row.arrange(1, 1, case.window), row.arrange(1, 1, case.stride)
    counts = reduce(np.multiply.outer, [axis.count for axis in case.pool().axes])
    divisor = counts.reshape(row.arrange(1, 1, counts.shape)).astype(dtype)

    def forward(x: Any) -> Any:
        return jax.lax.reduce_window(x, np.zeros((), dtype), jax.lax.add, window, stride, case.padding.upper()) / divisor

    transposed = jax.linear_transpose(forward, jax.ShapeDtypeStruct(row.input_shape, dtype))
    ways = [_jitted(jax, lambda dy: transposed(dy)[0])]
    if case.is_global:
        ways.append(_jitted(jax, lambda dy: jax.numpy.broadcast_to(dy / divisor, row.input_shape)))
    return ways


def _jitted(jax: Any, function: Call) -> Call:
    call: Call = jax.jit(function)
    return call


def _spatial(row: Row) -> tuple[int, ...]:
    return tuple(row.layout.index(letter) for letter in "DHW" if letter in row.layout)


def measure(jax: Any, clock: Clock, name: str, row: Row, *, peer: bool) -> dict[str, Any]:
    dtype = DTYPES[row.dtype]
    dy = jax.random.uniform(jax.random.key(0), row.output_shape, np.float32, 0.5, 1.5).astype(dtype)
    size = (dy.size + int(np.prod(row.input_shape))) * dtype.itemsize
    floor = clock(jax.jit(jax.numpy.copy), jax.numpy.zeros(size // 2, dtype=np.uint8))
    ours, composed = engine(jax, row), composition(jax, row)
    begin = time.perf_counter()
    answer = ours(dy).block_until_ready()
    first = time.perf_counter() - begin
    apart = jax.jit(lambda a, b: jax.numpy.max(jax.numpy.abs(a.astype(np.float32) - b.astype(np.float32))))
    far = float(apart(answer, composed(dy)) / jax.numpy.max(answer).astype(np.float32))
    if not far <= (1e-2 if row.dtype == "bfloat16" else 1e-5):
        raise AssertionError(f"engine and composition are {far} apart on {row.case.title}, {row.layout}, {row.dtype}")
    del answer
    done = {
        "case": name, "title": row.case.title, "layout": row.layout, "dtype": row.dtype, "floor ms": 1e3 * floor,
        "first call s": first, "engine": clock(ours, dy) / floor, "composition": clock(composed, dy) / floor,
    }
    if peer:
        done["JAX"] = min(clock(way, dy) for way in theirs(jax, row)) / floor
    return done


def tiny(jax: Any, calls: int) -> dict[str, float]:
    """Microseconds of the host for a call on an array that is nothing."""
    row = Row(replace(GPU_CASES["2x2"], batch=1, size=(16, 16), channels=4), "NHWC", "float32")
    dy = jax.numpy.ones(row.output_shape, dtype=np.float32)
    found = {}
    for name, call in (("engine", engine(jax, row)), ("composition", composition(jax, row)), ("JAX", theirs(jax, row)[0])):
        call(dy).block_until_ready()
        times = []
        for _ in range(5):
            begin = time.perf_counter()
            for _ in range(calls):
                last = call(dy)
            last.block_until_ready()
            times.append((time.perf_counter() - begin) / calls)
        found[name] = 1e6 * min(times)
    return found


def text(done: dict[str, Any]) -> str:
    columns = "  ".join(f"{name} {done[name]:8.2f}" for name in ("engine", "composition", "JAX") if name in done)
    return f"{done['title']:42s} {done['layout']:6s} {done['dtype']:9s} copy {done['floor ms']:7.3f} ms  {columns}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m poolgrad.bench.jax_gpu", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--case", default=",".join(GPU_CASES), help="which rows: %(default)s")
    parser.add_argument("--dtype", default="float32,bfloat16")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--budget", type=float, default=200.0, help="seconds after which JAX's own is left out")
    parser.add_argument("--quick", action="store_true", help="batches of one and short turns, on any device: a trial run")
    parser.add_argument("--output", type=Path, help="a folder for jax_gpu.json")
    asked = parser.parse_args()
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax

    from ..jax.device import has_engine

    if not asked.quick and (jax.default_backend() != "gpu" or not has_engine()):
        parser.error("this needs a CUDA device that JAX sees, its driver and NVRTC")
    begin = time.perf_counter()
    about = {"device": jax.devices()[0].device_kind, "poolgrad": __version__, "JAX": str(jax.__version__)}
    print(about, flush=True)
    clock = Clock(jax, 1 if asked.quick else asked.turns, 64 if asked.quick else BUSY)
    measured = []
    for name, row in rows(asked.case.split(","), asked.dtype.split(",")):
        chosen = replace(row, case=replace(row.case, batch=1)) if asked.quick else row
        peer = time.perf_counter() - begin < asked.budget
        measured.append(measure(jax, clock, name, chosen, peer=peer))
        print(text(measured[-1]), flush=True)
    small = tiny(jax, 20 if asked.quick else 1000)
    print("a tiny call: " + ", ".join(f"{name} {value:.1f} µs" for name, value in small.items()), flush=True)
    print(f"{time.perf_counter() - begin:.0f} s in all")
    if asked.output:
        asked.output.mkdir(parents=True, exist_ok=True)
        whole = {"about": about, "rows": measured, "tiny µs": small}
        (asked.output / "jax_gpu.json").write_text(json.dumps(whole, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
