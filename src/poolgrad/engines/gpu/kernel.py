"""A kernel being written: its text, its arguments, and what all forms of kernels say.

Kernels are straight-line CUDA in which every addition stands in the contract's order. A thread makes its part of the result
for `V` elements along an axis that is contiguous and not summed; it reads each source cell that it needs once, and no thread
waits for another (but in `staged`). Sizes and strides are arguments; only what shapes the arithmetic is in the text, so that one
text serves many shapes. The forms: `tile` (short intervals), `line` and `staged` (long ones), `spread` (global pooling).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["THREADS", "Array", "Division", "Kernel", "Loop", "spread_kernel"]

Array = npt.NDArray[Any]

THREADS = 128


class Loop(NamedTuple):
    """A dimension that the threads are spread over: its length, its steps in source and result, its counts if any."""

    n: int
    source: int
    out: int
    counts: Array | None = None


class Division(NamedTuple):
    """How a pass divides: not at all, by a power of two, by one number, or by the product of the axes' counts."""

    kind: str = "none"
    first: bool = True
    by: float = 1.0

    def of(self, value: str, d: str, how: str = "exact") -> str:
        """The text of a quotient; `how` is `exact` or `checked` (prelude.cu)."""
        if self.kind == "scale":
            return f"scaled({value}, r)"
        if self.kind == "one":
            return f"{how}({value}, one, r)"
        return f"{how}({value}, {d}, reciprocal({d}))"


class Kernel:
    """A kernel being written: its text, and the arguments that go with it."""

    def __init__(self, storage: tuple[str, str], wide: str, vector: int, division: Division, accumulate: bool) -> None:
        self.storage, self.wide, self.vector, self.division, self.accumulate = storage, wide, vector, division, accumulate
        self.blocks = 4  # that a multiprocessor should hold at once: bounds the registers of a thread
        self.lines: list[str] = []
        self.parameters: list[str] = []
        self.arguments: list[Any] = []
        self.names: set[str] = set()
        if division.kind in ("scale", "one"):
            self.argument("double", "one_", division.by)
            self.argument("double", "r_", float(1 / np.dtype("f8" if wide == "double" else "f4").type(division.by)))
            self.say("const A one = (A)one_, r = (A)r_;")

    def argument(self, kind: str, name: str, value: Any) -> str:
        self.parameters.append(f"{kind} {name}")
        self.arguments.append(value)
        return name

    def say(self, line: str) -> None:
        self.lines.append("    " + line)

    def let(self, name: str, value: str) -> str:
        """A vector of accumulators called `name`, once."""
        if name not in self.names:
            self.names.add(name)
            self.say(f"const Acc<A, V> {name} = {value};")
        return name

    @property
    def divides_first(self) -> bool:
        return self.division.kind != "none" and self.division.first

    @property
    def divides_last(self) -> bool:
        return self.division.kind != "none" and not self.division.first

    def text(self, name: str, total: int) -> str:
        """The kernel: the work in straight lines."""
        taken = ", ".join(["const SRC* __restrict__ source", "DST* __restrict__ out", "i64 total", *self.parameters])
        body = "\n".join(self.lines)
        return (
            f'{self.types(total)}extern "C" __global__ void __launch_bounds__({THREADS}, {self.blocks}) {name}({taken}) {{\n'
            "    INDEX index = (INDEX)blockIdx.x * blockDim.x + threadIdx.x;\n    if (index >= total) return;\n"
            f"{body}\n}}\n"
        )

    def types(self, total: int) -> str:
        source, out = self.storage
        index = "u32" if total < 2**31 else "u64"
        return (
            f"typedef {source} SRC; typedef {out} DST; typedef {self.wide} A; typedef {index} INDEX;\n"
            f"enum {{ V = {self.vector} }};\n"
        )

    def locate(self, loops: list[tuple[str, Loop]]) -> None:
        """Split `index` into the loops' own, fastest first, and move `s` and `d` there; `common` is the counts' product."""
        self.say("const SRC* s = source; DST* d = out;")
        counted = ["(A)1"]
        for k, (name, loop) in enumerate(loops):
            n = self.argument("i64", f"n_{name}", loop.n)
            if k + 1 < len(loops):
                self.say(f"const INDEX {name} = index % (INDEX){n}; index /= (INDEX){n};")
            else:
                self.say(f"const INDEX {name} = index;")
            if loop.source:
                self.say(f"s += (i64){name} * {self.argument('i64', f'from_{name}', loop.source)};")
            if loop.out:
                self.say(f"d += (i64){name} * {self.argument('i64', f'to_{name}', loop.out)};")
            if loop.counts is not None and self.division.kind == "counts":
                counted.append(f"{self.argument('const A*', f'count_{name}', loop.counts)}[{name}]")
        if self.division.kind == "counts":
            self.say(f"const A common = {' * '.join(counted)};")

    def finish(self, place: str, value: str, d: str) -> None:
        """The forward's division, `accumulate`, the rounding."""
        if self.divides_last:
            value = self.division.of(value, d)
        if self.accumulate:
            value = f"(load<A, V>({place}) + {value})"
        self.say(f"store({place}, {value});")


def spread_kernel(kernel: Kernel, step: int, positions: int, total: int) -> str:
    """One source cell to each run of `positions` contiguous elements; a thread's vector may reach into the next run."""
    kernel.argument("i64", "step", step)
    kernel.argument("i64", "positions", positions)
    width, kernel.vector = kernel.vector, 1
    kernel.say(f"const i64 begin = (i64)index * {width}; const INDEX run = (INDEX)begin / (INDEX)positions;")
    kernel.say("const int at = (int)(begin - (i64)run * positions);")
    kernel.say("const SRC* s = source + (i64)run * step;")
    for name, place, there in (("here", "s", "true"), ("next", "s + step", f"at + {width} > positions")):
        value = f"load_if<A, 1>({there}, {place})"
        kernel.let(name, kernel.division.of(value, "", "checked") if kernel.division.kind != "none" else value)
    kernel.say(f"Acc<A, {width}> w;")
    kernel.say(f'_Pragma("unroll") for (int k = 0; k < {width}; ++k) w.v[k] = (at + k < positions ? here : next).v[0];')
    old = f"load<A, {width}>(out + begin) + " if kernel.accumulate else ""
    kernel.say(f"store(out + begin, {old}w);")
    return kernel.text("spread", total * width)
