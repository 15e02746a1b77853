"""XLA's foreign-function interface in its plain C form, spoken from Python: what a custom call brings, and what it may ask for.

Only what every version 0.x of the interface has is used, at the places where it has always been. The pointers of a frame are
XLA's and are believed; whatever a program decides (operands, dtypes, attributes) is not.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np

from ..errors import PoolGradTypeError, PoolGradValueError

__all__ = ["Array", "CallFrame", "Refused", "array", "describe", "handler", "memory", "numbers", "refusal", "stream"]

MAJOR, METADATA, EXECUTE, BUFFER, ARRAY, INT64 = 0, 1, 3, 1, 1, 5
ALIGNMENT = 16
"""The most that XLA grants, and what the kernels count on."""

DTYPES = {
    10: np.dtype(np.float16),
    11: np.dtype(np.float32),
    12: np.dtype(np.float64),
    16: np.dtype(ml_dtypes.bfloat16),
}
INVALID_ARGUMENT, RESOURCE_EXHAUSTED, INTERNAL = 3, 8, 13

_HEAD: list[Any] = [("struct_size", ctypes.c_size_t), ("extension_start", ctypes.c_void_p)]


class Extension(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("type", ctypes.c_int), ("next", ctypes.c_void_p)]


class Version(ctypes.Structure):
    _fields_ = [*_HEAD, ("major_version", ctypes.c_int), ("minor_version", ctypes.c_int)]


class Metadata(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("api_version", Version), ("traits", ctypes.c_uint32)]


class MetadataExtension(ctypes.Structure):
    _fields_ = [("extension_base", Extension), ("metadata", ctypes.POINTER(Metadata))]


class Buffer(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("dtype", ctypes.c_int),
        ("data", ctypes.c_void_p),
        ("rank", ctypes.c_int64),
        ("dims", ctypes.POINTER(ctypes.c_int64)),
    ]


class Buffers(ctypes.Structure):
    """Operands or results."""

    _fields_ = [
        *_HEAD,
        ("size", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ]


class Text(ctypes.Structure):
    _fields_ = [("ptr", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Numbers(ctypes.Structure):
    _fields_ = [("dtype", ctypes.c_int), ("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]


class Attributes(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("size", ctypes.c_int64),
        ("types", ctypes.POINTER(ctypes.c_int)),
        ("names", ctypes.POINTER(ctypes.POINTER(Text))),
        ("attrs", ctypes.POINTER(ctypes.c_void_p)),
    ]


class ErrorCreate(ctypes.Structure):
    _fields_ = [*_HEAD, ("message", ctypes.c_char_p), ("errc", ctypes.c_int)]


class StreamGet(ctypes.Structure):
    _fields_ = [*_HEAD, ("ctx", ctypes.c_void_p), ("stream", ctypes.c_void_p)]


class MemoryAllocate(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("ctx", ctypes.c_void_p),
        ("size", ctypes.c_size_t),
        ("alignment", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
    ]


class MemoryFree(ctypes.Structure):
    _fields_ = [*_HEAD, ("ctx", ctypes.c_void_p), ("size", ctypes.c_size_t), ("data", ctypes.c_void_p)]


def _asks(question: type[ctypes.Structure]) -> Any:
    """A function of XLA that takes a question and returns an error or nothing; others may use Python meanwhile."""
    return ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(question))


class Api(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("api_version", Version),
        ("internal_api", ctypes.c_void_p),
        ("error_create", _asks(ErrorCreate)),
        ("error_get_message", ctypes.c_void_p),
        ("error_destroy", ctypes.c_void_p),
        ("handler_register", ctypes.c_void_p),
        ("stream_get", _asks(StreamGet)),
        ("type_register", ctypes.c_void_p),
        ("execution_context_get", ctypes.c_void_p),
        ("state_set", ctypes.c_void_p),
        ("state_get", ctypes.c_void_p),
        ("memory_allocate", _asks(MemoryAllocate)),
        ("memory_free", _asks(MemoryFree)),
    ]


class CallFrame(ctypes.Structure):
    _fields_ = [
        *_HEAD,
        ("api", ctypes.POINTER(Api)),
        ("ctx", ctypes.c_void_p),
        ("stage", ctypes.c_int),
        ("args", Buffers),
        ("rets", Buffers),
        ("attrs", Attributes),
    ]


class Refused(Exception):
    """XLA said no; `error` is its own error, which goes back to it."""

    def __init__(self, error: int) -> None:
        super().__init__(error)
        self.error = error


class Array(NamedTuple):
    """An operand or a result, dense and row-major."""

    pointer: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]


_Handler = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.POINTER(CallFrame))


def handler(run: Callable[[CallFrame], None]) -> Any:
    """A C function for XLA that does `run` when a program executes. Whoever registers it must keep it."""

    def handle(pointer: Any) -> int | None:
        frame = pointer.contents
        try:
            if not describe(frame) and frame.stage == EXECUTE:
                run(frame)
        except Refused as refused:
            return refused.error
        except BaseException as error:  # an exception cannot cross C: unanswered, it would pass for success
            return refusal(frame, error)
        return None

    return _Handler(handle)


def describe(frame: CallFrame) -> bool:
    """Answer the question which version this handler speaks, if that is what the frame asks: any 0.x, without further traits."""
    at = frame.extension_start
    while at:
        if Extension.from_address(at).type == METADATA:
            said = MetadataExtension.from_address(at).metadata.contents
            said.api_version.major_version = MAJOR
            said.api_version.minor_version = frame.api.contents.api_version.minor_version if frame.api else 1
            said.traits = 0  # not for command buffers: scratch is given back before a recorded graph would run
            return True
        at = Extension.from_address(at).next
    return False


def refusal(frame: CallFrame, error: BaseException) -> int | None:
    """`error` as one of XLA's."""
    code = INTERNAL
    if isinstance(error, MemoryError):
        code = RESOURCE_EXHAUSTED
    elif isinstance(error, (ValueError, TypeError)):
        code = INVALID_ARGUMENT
    words = f"poolgrad: {error or type(error).__name__}".replace("\0", " ")
    question = ErrorCreate(ctypes.sizeof(ErrorCreate), None, words.encode(errors="replace"), code)
    created: int | None = frame.api.contents.error_create(ctypes.byref(question))
    return created


def array(buffers: Buffers, k: int, count: int, what: str) -> Array:
    """Buffer `k` of the `count` there must be."""
    if buffers.size != count or buffers.types[k] != BUFFER:
        raise PoolGradValueError(f"the custom call must have {count} {what}, got {buffers.size}")
    buffer = Buffer.from_address(buffers.buffers[k])
    dtype = DTYPES.get(buffer.dtype)
    if dtype is None:
        raise PoolGradTypeError(
            f"the {what} of the custom call must be float16, bfloat16, float32 or float64, got type {buffer.dtype} of XLA"
        )
    return Array(buffer.data or 0, tuple(buffer.dims[: buffer.rank]) if buffer.rank else (), dtype)


def numbers(attributes: Attributes, name: bytes) -> bytes:
    """The 64-bit integers of the attribute `name`, as they lie in memory."""
    for k in range(attributes.size):
        said = attributes.names[k].contents
        if attributes.types[k] == ARRAY and ctypes.string_at(said.ptr, said.len) == name:
            found = Numbers.from_address(attributes.attrs[k])
            if found.dtype == INT64:
                return ctypes.string_at(found.data, 8 * found.size) if found.size else b""
    raise PoolGradValueError(f"the custom call must have an attribute {name.decode()!r} of 64-bit integers")


def stream(frame: CallFrame) -> int:
    """The stream that the program runs on."""
    question = StreamGet(ctypes.sizeof(StreamGet), None, frame.ctx, None)
    _ask(frame.api.contents.stream_get, question)
    return question.stream or 0


@contextmanager
def memory(frame: CallFrame) -> Iterator[Callable[[int], int]]:
    """A function that allocates device memory. XLA takes it back at the end, for work that comes later on the same stream."""
    held: list[tuple[int, int]] = []

    def allocate(size: int) -> int:
        question = MemoryAllocate(ctypes.sizeof(MemoryAllocate), None, frame.ctx, max(size, ALIGNMENT), ALIGNMENT, None)
        _ask(frame.api.contents.memory_allocate, question)
        held.append((question.data, question.size))
        return held[-1][0]

    try:
        yield allocate
    finally:
        for data, size in held:
            _ask(frame.api.contents.memory_free, MemoryFree(ctypes.sizeof(MemoryFree), None, frame.ctx, size, data))


def _ask(function: Any, question: ctypes.Structure) -> None:
    error = function(ctypes.byref(question))
    if error:
        raise Refused(error)
