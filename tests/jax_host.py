"""XLA's custom call for CUDA devices without one: the real handler in real programs of XLA's CPU.

What a CPU program lacks is put into the frame by a small C++ function, built with jaxlib's own header: a stream, and device
memory, which is the host's. The kernels are those of `gpu_host`, the same text compiled as C++.
"""

from __future__ import annotations

import ctypes
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import gpu_host
import jax
from jax.interpreters import mlir

from poolgrad.jax import device, local

TARGET, STREAM = "poolgrad_on_host", 0x5EED

BRIDGE = r"""
#include <atomic>
#include <cfenv>
#include <cstdlib>
#include <cstring>
#include "xla/ffi/api/c_api.h"

static XLA_FFI_Handler* inner;
static std::atomic<long long> held, taken, allowed{1ll << 60};
static thread_local const XLA_FFI_Api* real;

static XLA_FFI_Error* no(const char* words) {
    XLA_FFI_Error_Create_Args args{};
    args.struct_size = XLA_FFI_Error_Create_Args_STRUCT_SIZE;
    args.message = words;
    args.errc = XLA_FFI_Error_Code_RESOURCE_EXHAUSTED;
    return real->XLA_FFI_Error_Create(&args);
}

static XLA_FFI_Error* stream(XLA_FFI_Stream_Get_Args* args) {
    if (args->struct_size < XLA_FFI_Stream_Get_Args_STRUCT_SIZE || !args->ctx) return no("a bad question for a stream");
    args->stream = reinterpret_cast<void*>(0x5EED);
    return nullptr;
}

static XLA_FFI_Error* allocate(XLA_FFI_DeviceMemory_Allocate_Args* args) {
    if (args->struct_size < XLA_FFI_DeviceMemory_Allocate_Args_STRUCT_SIZE || !args->ctx || args->alignment != 16 || !args->size)
        return no("a bad question for memory");
    if (held + (long long)args->size > allowed) return no("no memory is left, says the test");
    args->data = std::aligned_alloc(16, (args->size + 15) / 16 * 16);
    std::memset(args->data, 0xFF, args->size);
    held += args->size;
    ++taken;
    return nullptr;
}

static XLA_FFI_Error* release(XLA_FFI_DeviceMemory_Free_Args* args) {
    if (args->struct_size < XLA_FFI_DeviceMemory_Free_Args_STRUCT_SIZE || !args->ctx) return no("a bad way to free memory");
    std::memset(args->data, 0xEE, args->size);
    std::free(args->data);
    held -= args->size;
    return nullptr;
}

extern "C" XLA_FFI_Error* bridge(XLA_FFI_CallFrame* frame) {
    if (!frame->api) return inner(frame);
    real = frame->api;
    XLA_FFI_Api api = *real;
    api.XLA_FFI_Stream_Get = stream;
    api.XLA_FFI_DeviceMemory_Allocate = allocate;
    api.XLA_FFI_DeviceMemory_Free = release;
    XLA_FFI_CallFrame here = *frame;
    here.api = &api;
    fenv_t kept;  // XLA's threads flush subnormals to zero, a device does not
    std::fegetenv(&kept);
    std::fesetenv(FE_DFL_ENV);
    XLA_FFI_Error* error = inner(&here);
    std::fesetenv(&kept);
    return error;
}

extern "C" void set_inner(XLA_FFI_Handler* handler) { inner = handler; }
extern "C" void allow(long long bytes) { allowed = bytes; }
extern "C" long long bytes_held() { return held; }
extern "C" long long times_taken() { return taken; }
"""


class Device(gpu_host.Host):
    """The host's kernels, one launch at a time: they keep their place in variables of their own."""

    index = 0

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.streams: set[int] = set()
        self._one = threading.Lock()

    def kernel(self, source: str, name: str, shared: int = 0) -> Any:
        with self._one:
            return super().kernel(source, name, shared)

    def launch(self, ready: Any, stream: int) -> None:
        with self._one:
            self.streams.add(stream)
            super().launch(ready, stream)


def compiled(text: str, folder: Path, name: str) -> Path:
    """C++ that includes jaxlib's headers, built as a library, or as a program where it has a main."""
    source, made = folder / f"{name}.cpp", folder / name
    source.write_text(text)
    kind = [] if "int main(" in text else ["-fPIC", "-shared"]
    command = [str(gpu_host.COMPILER), "-std=c++17", "-O1", *kind, f"-I{jax.ffi.include_dir()}", str(source), "-o", str(made)]
    subprocess.run(command, check=True)
    return made


class Bridge:
    """The handler behind the bridge, registered with XLA's CPU for the rest of the process."""

    def __init__(self, folder: Path) -> None:
        self.device = Device(folder)
        self.failure: BaseException | None = None
        self.library = ctypes.CDLL(str(compiled(BRIDGE, folder, "bridge.so")))
        self.library.bytes_held.restype = self.library.times_taken.restype = ctypes.c_longlong
        self.library.allow.argtypes = [ctypes.c_longlong]
        self._handler = device.handler(self._holder)
        self.library.set_inner(self._handler)
        jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(self.library.bridge), platform="cpu")

    def _holder(self, pointer: int) -> Any:
        if self.failure is not None:
            raise self.failure
        return self.device

    @contextmanager
    def instead(self) -> Iterator[None]:
        """`poolgrad.jax` on the CPU as on a CUDA device: the same lowering, the same handler."""
        launched = partial(device.launched, target=TARGET)
        mlir.register_lowering(local.local_p, mlir.lower_fun(launched, multiple_results=False), platform="cpu")
        jax.clear_caches()
        try:
            yield
        finally:
            mlir.register_lowering(local.local_p, mlir.lower_fun(local._on_cpu, multiple_results=False), platform="cpu")
            jax.clear_caches()
