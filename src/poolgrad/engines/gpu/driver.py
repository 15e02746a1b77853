"""CUDA from Python with nothing to install: the driver and NVRTC through ctypes.

The driver comes with the graphics card. NVRTC, the run-time compiler, comes with the CUDA toolkit, with PyTorch, with
JAX and CuPy, or as the wheel `nvidia-cuda-nvrtc`. Kernels are compiled for the device at hand on first use and kept.
Everything runs on the stream it is given; only the making of a kernel or a table waits, and neither disturbs a capture.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ...errors import PoolGradDeviceError, PoolGradMemoryError

__all__ = ["Device", "compile_cubin", "device", "has_driver", "holder", "nvrtc"]

OUT_OF_MEMORY, NOT_READY, RELAXED, NON_BLOCKING, NO_TIMING = 2, 600, 2, 1, 2
MAJOR, MINOR, SHARED, DYNAMIC_SHARED, ORDINAL = 75, 76, 97, 8, 9
LAUNCH_BUFFER, LAUNCH_SIZE = 1, 2

_making = threading.RLock()


def _load(names: list[str]) -> ctypes.CDLL | None:
    for name in names:
        with suppress(OSError):
            return ctypes.CDLL(name)
    return None


@cache
def _cuda() -> ctypes.CDLL:
    library = _load(["nvcuda.dll"] if sys.platform == "win32" else ["libcuda.so.1", "libcuda.so"])
    if library is None:
        raise PoolGradDeviceError("no CUDA driver was found (libcuda.so.1); install the NVIDIA driver of this machine's GPU")
    _check(library, library.cuInit(0), "cuInit")
    return library


def _nvrtc_names() -> list[str]:
    """Where NVRTC may lie: on the loader's path, in the wheels beside this package, in a CUDA toolkit."""
    if sys.platform == "win32":
        pattern, plain = "nvrtc64_*_0.dll", [f"nvrtc64_{v}_0.dll" for v in ("130", "120", "112")]
    else:
        pattern, plain = "libnvrtc.so*", [f"libnvrtc.so{v}" for v in (".13", ".12", ".11.2", "")]
    folders = [f for path in sys.path for f in Path(path or ".").glob("nvidia/*/[lb]i[bn]*")]
    folders += [f for wheel in folders for f in wheel.glob("x86_64")]
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders += [Path(home) / part for home in homes if home for part in ("lib64", "bin")]
    found = [f for folder in folders for f in sorted(folder.glob(pattern))]
    return plain + [str(f) for f in found if "builtins" not in f.name and "alt" not in f.name]


@cache
def nvrtc() -> ctypes.CDLL:
    library = _load(_nvrtc_names())
    if library is None:
        raise PoolGradDeviceError(
            "no CUDA run-time compiler was found (libnvrtc); install it with: pip install nvidia-cuda-nvrtc "
            "(nvidia-cuda-nvrtc-cu12 for a CUDA 12 driver)"
        )
    library.nvrtcGetErrorString.restype = ctypes.c_char_p
    return library


def compile_cubin(source: str, architecture: str) -> bytes:
    """`source` as machine code, without fused multiply-add: the order and rounding of every operation are the contract's."""
    library, program = nvrtc(), ctypes.c_void_p()
    library.nvrtcCreateProgram(ctypes.byref(program), source.encode(), b"poolgrad.cu", 0, None, None)
    options = [f"--gpu-architecture={architecture}", "--fmad=false", "--std=c++17", "--restrict"]
    array = (ctypes.c_char_p * len(options))(*[option.encode() for option in options])
    status = library.nvrtcCompileProgram(program, len(options), array)
    if status:
        log = _text(library.nvrtcGetProgramLogSize, library.nvrtcGetProgramLog, program).decode(errors="replace")
        reason = library.nvrtcGetErrorString(status).decode()
        raise PoolGradDeviceError(f"NVRTC could not compile a kernel for {architecture} ({reason}): {log}")
    cubin = _text(library.nvrtcGetCUBINSize, library.nvrtcGetCUBIN, program)
    library.nvrtcDestroyProgram(ctypes.byref(program))
    return cubin


def _text(size_of: Any, read: Any, program: ctypes.c_void_p) -> bytes:
    size = ctypes.c_size_t()
    size_of(program, ctypes.byref(size))
    buffer = ctypes.create_string_buffer(size.value)
    read(program, buffer)
    return buffer.raw


def _check(library: ctypes.CDLL, status: int, what: str) -> None:
    if status == 0:
        return
    if status == OUT_OF_MEMORY:
        raise PoolGradMemoryError(f"the device has no memory left ({what})")
    text = ctypes.c_char_p()
    library.cuGetErrorString(status, ctypes.byref(text))
    raise PoolGradDeviceError(f"{what} failed: {(text.value or b'unknown error').decode()} (CUDA error {status})")


class Device:
    """One GPU: its kernels and tables, and the launch of a kernel on a stream."""

    def __init__(self, index: int) -> None:
        self.index, self.cuda = index, _cuda()
        number, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuDeviceGet", ctypes.byref(number), index)
        self._number = number
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), number)
        self._kernels: dict[tuple[str, str], ctypes.c_void_p] = {}
        self._stream = ctypes.c_void_p()
        with self.current():
            self._call("cuStreamCreate", ctypes.byref(self._stream), NON_BLOCKING)

    def _call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.cuda, name)(*arguments)
        if status:
            _check(self.cuda, status, name)

    def _attribute(self, which: int) -> int:
        value = ctypes.c_int()
        self._call("cuDeviceGetAttribute", ctypes.byref(value), which, self._number)
        return value.value

    @cached_property
    def architecture(self) -> str:
        return f"sm_{self._attribute(MAJOR)}{self._attribute(MINOR)}"

    @cached_property
    def shared(self) -> int:
        """Bytes of shared memory that a block may have."""
        return self._attribute(SHARED)

    def is_current(self) -> bool:
        """Whether the device's primary context, which every framework shares, is the thread's current one."""
        now = ctypes.c_void_p()
        self._call("cuCtxGetCurrent", ctypes.byref(now))
        return now.value == self._context.value

    @contextmanager
    def current(self) -> Iterator[None]:
        """Make it so for a while."""
        if self.is_current():
            yield
            return
        self._call("cuCtxPushCurrent_v2", self._context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    @contextmanager
    def _beside_captures(self) -> Iterator[None]:
        """Allocation and loading are allowed although some stream of this thread may be capturing a graph."""
        mode = ctypes.c_int(RELAXED)
        with _making, self.current():
            self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
            try:
                yield
            finally:
                self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def kernel(self, source: str, name: str, shared: int = 0) -> ctypes.c_void_p:
        """The kernel `name` of `source`, compiled on first use, allowed to use `shared` bytes of shared memory."""
        found = self._kernels.get((source, name))
        if found is None:
            with self._beside_captures():
                module, found = ctypes.c_void_p(), ctypes.c_void_p()
                self._call("cuModuleLoadData", ctypes.byref(module), compile_cubin(source, self.architecture))
                self._call("cuModuleGetFunction", ctypes.byref(found), module, name.encode())
                if shared > 48 * 1024:
                    self._call("cuFuncSetAttribute", found, DYNAMIC_SHARED, shared)
                self._kernels[source, name] = found
        return found

    def is_capturing(self, stream: int) -> bool:
        """Whether what is put on `stream` now goes into a graph."""
        if not self.is_current():
            with self.current():
                return self.is_capturing(stream)
        status = ctypes.c_int()
        self._call("cuStreamIsCapturing", ctypes.c_void_p(stream), ctypes.byref(status))
        return status.value != 0

    def event(self, stream: int) -> ctypes.c_void_p:
        """A mark at the present end of `stream`."""
        mark = ctypes.c_void_p()
        with self.current():
            self._call("cuEventCreate", ctypes.byref(mark), NO_TIMING)
            self._call("cuEventRecord", mark, ctypes.c_void_p(stream))
        return mark

    def happened(self, mark: ctypes.c_void_p) -> bool:
        """Whether the device has come past `mark`, which is then gone."""
        status = self.cuda.cuEventQuery(mark)
        if status == NOT_READY:
            return False
        self._call("cuEventDestroy_v2", mark)
        return True

    def upload(self, table: npt.NDArray[Any]) -> Table:
        """A copy of `table` on the device, freed with the handle."""
        return Table(self, np.ascontiguousarray(table))

    def ready(self, kernel: ctypes.c_void_p, grid: int, block: int, shared: int, arguments: Any) -> tuple[Any, ...]:
        """A launch with everything but its stream. `arguments` is a buffer, read when it is launched."""
        size = ctypes.c_size_t(len(arguments))
        extra = (ctypes.c_void_p * 5)(LAUNCH_BUFFER, ctypes.addressof(arguments), LAUNCH_SIZE, ctypes.addressof(size), 0)
        return (kernel, grid, 1, 1, block, 1, 1, shared), extra, (arguments, size)

    def launch(self, ready: tuple[Any, ...], stream: int) -> None:
        how, extra, _ = ready
        self._call("cuLaunchKernel", *how, ctypes.c_void_p(stream), None, extra)


class Table:
    """A small array on the device, freed with this handle unless a captured graph may still read it."""

    def __init__(self, device: Device, table: npt.NDArray[Any]) -> None:
        self._device, pointer = device, ctypes.c_uint64()
        with device._beside_captures():
            device._call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(table.nbytes, 8)))
            self.pointer = int(pointer.value)
            arguments = (ctypes.c_uint64(self.pointer), ctypes.c_void_p(table.ctypes.data), ctypes.c_size_t(table.nbytes))
            device._call("cuMemcpyHtoDAsync_v2", *arguments, device._stream)
            device._call("cuStreamSynchronize", device._stream)
        self.pinned = False

    def __del__(self, is_finalizing: Any = sys.is_finalizing) -> None:
        if getattr(self, "pinned", True) or is_finalizing():  # modules may be gone by then
            return
        with self._device._beside_captures():
            self._device.cuda.cuMemFree_v2(ctypes.c_uint64(self.pointer))


@cache
def device(index: int) -> Device:
    return Device(index)


def has_driver() -> bool:
    """Whether this machine has a CUDA driver."""
    try:
        _cuda()
    except PoolGradDeviceError:
        return False
    return True


def holder(pointer: int) -> Device:
    """The device whose memory this is."""
    ordinal, cuda = ctypes.c_int(), _cuda()
    status = cuda.cuPointerGetAttribute(ctypes.byref(ordinal), ORDINAL, ctypes.c_uint64(pointer))
    _check(cuda, status, "cuPointerGetAttribute")
    return device(ordinal.value)
