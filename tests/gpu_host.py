"""A device that is none: the CUDA text of the GPU engine compiled as plain C++ and run thread by thread.

It has the interface of `poolgrad.engines.gpu.driver.Device`, with host pointers. Every addition and rounding is the one
the GPU does (the division and the conversions are C++'s own), so bits can be compared without a GPU.
"""

from __future__ import annotations

import ctypes
import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from poolgrad.engines import gpu
from poolgrad.engines.gpu import DeviceArray, sheet
from poolgrad.tables import Sums

Array = npt.NDArray[Any]

COMPILER = shutil.which("g++") or shutil.which("clang++")

HOST = r"""
#include <cmath>
#include <cstdint>
#include <cstring>
#include <ucontext.h>
#include <vector>
#define POOLGRAD_HOST
#define __global__
#define __device__
#define __forceinline__
#define __restrict__
#define __launch_bounds__(...)
#define CONST_FN static inline
#define MEMBER inline
struct Index { long long x; };
static Index blockIdx, blockDim, threadIdx, gridDim;
template <class T> static T min(T a, T b) { return a < b ? a : b; }
alignas(16) static unsigned char shared_[1 << 18];
// A thread of a block that waits for the others is left where it is and taken up again when all have come as far.
static ucontext_t all_;
static std::vector<ucontext_t> thread_;
static void __syncthreads() { swapcontext(&thread_[threadIdx.x], &all_); }
#define SHARED(name, type) type* const name = reinterpret_cast<type*>(shared_)
static inline float bits_to_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }
static inline unsigned float_to_bits(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
static inline float div_rn(float a, float b) { return a / b; }
static inline double div_rn(double a, double b) { return a / b; }
static inline float near_reciprocal(float d) { return 1.0f / d * 1.0000001f; }
static inline float fma_rn(float a, float b, float c) { return std::fmaf(a, b, c); }
struct F16;
static inline float widen(F16 h);
static inline F16 narrow(float f, F16*);
"""

KERNEL = re.compile(r'extern "C" __global__ void __launch_bounds__\([\d, ]+\) (\w+)\(\s*([^{]*?)\) \{')

HALF = r"""
static inline float widen(F16 h) { _Float16 f; memcpy(&f, &h.bits, 2); return (float)f; }
static inline F16 narrow(float f, F16*) { const _Float16 g = (_Float16)f; F16 h; memcpy(&h.bits, &g, 2); return h; }
"""


class Host:
    """Compiles kernels with the machine's C++ compiler and runs their threads one after the other."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.shared = folder, 1 << 18
        self.launches: list[str] = []
        self._kernels: dict[tuple[str, str], Any] = {}

    def is_current(self) -> bool:
        return True

    def current(self) -> Any:
        return nullcontext()

    def is_capturing(self, stream: int) -> bool:
        return False

    def kernel(self, source: str, name: str, shared: int = 0) -> Any:
        assert shared <= 1 << 18
        if (source, name) not in self._kernels:
            library = self._compiled(source)
            self._kernels[source, name] = (name, ctypes.CDLL(str(library)))
        return self._kernels[source, name]

    def _compiled(self, source: str) -> Path:
        path = self.folder / hashlib.sha256(source.encode()).hexdigest()[:16]
        library, text = path.with_suffix(".so"), path.with_suffix(".cpp")
        if not library.exists():
            first = "#ifndef POOLGRAD_HOST"
            text.write_text(HOST + source.replace(first, HALF + first, 1) + _runner(source))
            flags = ["-O0", "-std=c++17", "-ffp-contract=off", "-fPIC", "-shared", "-w", "-fno-strict-aliasing"]
            subprocess.run([str(COMPILER), *flags, str(text), "-o", str(library)], check=True)
        return library

    def upload(self, table: Array) -> Any:
        return Held(np.ascontiguousarray(table))

    def ready(self, kernel: Any, grid: int, block: int, shared: int, arguments: Any) -> Any:
        return kernel, ctypes.c_longlong(grid), ctypes.c_longlong(block), arguments

    def launch(self, ready: Any, stream: int) -> None:
        (name, library), grid, block, arguments = ready
        self.launches.append(name)
        getattr(library, f"run_{name}")(grid, block, arguments)


class Held:
    def __init__(self, table: Array) -> None:
        self.table, self.pointer = table, table.ctypes.data


def _runner(source: str) -> str:
    """For each kernel a function that unpacks the arguments and runs all threads."""
    text = ""
    for name, parameters in KERNEL.findall(source):
        kinds = [re.sub(r"__restrict__|\b\w+$", "", part.strip()).strip() for part in parameters.split(",")]
        fields = "".join(f"{kind} a{k};\n" for k, kind in enumerate(kinds))
        call = ", ".join(f"p->a{k}" for k in range(len(kinds)))
        text += f"""
struct Packed_{name} {{ {fields} }};
static const Packed_{name}* given_{name};
static int done_{name};
static void thread_{name}() {{ const Packed_{name}* p = given_{name}; {name}({call}); ++done_{name}; }}
extern "C" void run_{name}(long long grid, long long block, const Packed_{name}* p) {{
    const size_t room = 1 << 16;
    const bool waits = {str("__syncthreads" in source).lower()};
    std::vector<char> stacks(waits ? block * room : 0);
    given_{name} = p;
    thread_.resize(block);
    gridDim.x = grid; blockDim.x = block;
    for (blockIdx.x = 0; blockIdx.x < grid; ++blockIdx.x) {{
        for (threadIdx.x = 0; !waits && threadIdx.x < block; ++threadIdx.x) thread_{name}();
        for (threadIdx.x = 0; waits && threadIdx.x < block; ++threadIdx.x) {{
            ucontext_t& thread = thread_[threadIdx.x];
            getcontext(&thread);
            thread.uc_stack.ss_sp = stacks.data() + threadIdx.x * room;
            thread.uc_stack.ss_size = room;
            thread.uc_link = &all_;
            makecontext(&thread, thread_{name}, 0);
        }}
        for (done_{name} = 0; waits && done_{name} < block;) {{
            for (threadIdx.x = 0; threadIdx.x < block; ++threadIdx.x) swapcontext(&all_, &thread_[threadIdx.x]);
        }}
    }}
}}
"""
    return text


def record(array: Array) -> DeviceArray:
    strides = tuple(s // array.itemsize for s in array.strides)
    return DeviceArray(array.ctypes.data, array.shape, strides, array.dtype, 0, 0)


def run(host: Host, sums: Sums, source: Array, out: Array, spatial: tuple[int, ...], *, accumulate: bool) -> None:
    """What an engine's `run` does, on the host."""

    def scratch(size: int) -> Held:
        return Held(np.full(size, 0xFF, dtype=np.uint8))

    gpu.Operation(sums, spatial).run(record(source), record(out), accumulate=accumulate, scratch=scratch, device=host)


@contextmanager
def worth_writing(elements: int) -> Iterator[None]:
    """Results of so many elements get kernels of their own, sheets even where few threads make them."""
    before = gpu.WORTH_WRITING, sheet.ENOUGH
    gpu.WORTH_WRITING, sheet.ENOUGH = elements, 0
    try:
        yield
    finally:
        gpu.WORTH_WRITING, sheet.ENOUGH = before
