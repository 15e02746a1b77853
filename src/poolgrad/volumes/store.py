"""What a job needs to know of the places it reads from and writes to; one class per kind of file keeps to it.

A result is made in a hidden part beside its name (`Place`) and takes the name when all of it is written, so the name never
points at a half-written result. Files are read and written at positions, never mapped: mapped pages would count as resident
memory, and a file that shrinks under a mapping kills the process.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import pairwise, product
from math import prod
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..errors import PoolGradError

__all__ = ["Box", "Place", "Positions", "Source", "StoreError", "Target", "cut", "file_state", "flush_folder", "runs", "within"]

Array = npt.NDArray[Any]
Box = tuple[slice, ...]


class StoreError(PoolGradError, OSError):
    """A file, a folder or a disk did not do what was asked of it; what is finished is kept."""


class Source(Protocol):
    """An array that is read box by box, into memory of the machine's byte order."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    chunks: tuple[int, ...] | None
    """What a read takes whole, or None where any run of bytes can be read."""
    shards: tuple[int, ...] | None
    extra: int
    """Bytes that a read holds for a while besides what it reads, as a number…"""
    copies: int
    """…and as further copies of what it reads."""
    held: int
    """Bytes that it holds from its first read on."""

    def read(self, box: Box, out: Array) -> None: ...

    def state(self) -> str:
        """A text that differs when the stored array was changed."""
        ...

    def close(self) -> None: ...


class Target(Protocol):
    """A result that is written box by box into a part of its own."""

    place: Place
    shape: tuple[int, ...]
    chunks: tuple[int, ...] | None
    """What is stored as one piece: boxes are made of whole ones."""
    in_order: bool
    """Whether boxes must come in order, each a run of elements; such a result cannot be resumed."""
    extra: int
    stored: int | None
    """Bytes it takes on the disk, where that is known beforehand."""
    form: str
    """How it is stored: a part in another form cannot be resumed."""

    def begin(self) -> None:
        """Make the part anew."""
        ...

    def resume(self) -> None:
        """Open the part that an earlier run left."""
        ...

    def write(self, box: Box, array: Array) -> None: ...

    def written(self, box: Box) -> None:
        """Note a box that an earlier run wrote, for the next `sync`."""
        ...

    def sync(self) -> None:
        """Bring everything written so far to the disk."""
        ...

    def finish(self) -> None:
        """Put the whole result in its place."""
        ...

    def close(self) -> None: ...


@dataclass(frozen=True)
class Place:
    """The name a result will have, and where it and its journal are kept until then."""

    path: Path
    beside: Path
    """The file or folder that the part lies beside; the outermost store where the result goes into one."""

    @property
    def part(self) -> Path:
        return self._hidden("part")

    @property
    def journal(self) -> Path:
        return self._hidden("journal")

    @property
    def old(self) -> Path:
        """Where a folder of that name waits to be removed when the result takes it."""
        return self._hidden("old")

    def taken(self) -> int:
        """What the part of an earlier run takes on the disk."""
        files = [self.part, *self.part.rglob("*")] if self.part.is_dir() else [self.part] if self.part.exists() else []
        return sum(getattr(file.stat(), "st_blocks", 0) * 512 for file in files)

    def _hidden(self, ending: str) -> Path:
        inner = self.path.relative_to(self.beside)
        name = "-".join([self.beside.name, *inner.parts])
        return self.beside.with_name(f".{name}.{ending}")


def cut(shape: tuple[int, ...], extents: tuple[int, ...]) -> Iterator[Box]:
    """An array of this shape in boxes of these extents, in C order; the last ones may be smaller.

    >>> [[(part.start, part.stop) for part in box] for box in cut((2, 3), (1, 2))]
    [[(0, 1), (0, 2)], [(0, 1), (2, 3)], [(1, 2), (0, 2)], [(1, 2), (2, 3)]]
    """
    edges = ([slice(a, min(a + e, n)) for a in range(0, n, e)] for n, e in zip(shape, extents, strict=True))
    return product(*edges)


def within(box: Box, chunks: tuple[int, ...]) -> Iterator[tuple[Box, Box]]:
    """The parts of `box` that lie in one chunk each: where they are, and where in the box."""
    cuts = []
    for part, size in zip(box, chunks, strict=True):
        edges = [part.start, *range((part.start // size + 1) * size, part.stop, size), part.stop]
        cuts.append([(slice(a, b), slice(a - part.start, b - part.start)) for a, b in pairwise(edges) if a < b])
    for pairs in product(*cuts):
        yield tuple(whole for whole, _ in pairs), tuple(inner for _, inner in pairs)


def runs(shape: tuple[int, ...], box: Box, itemsize: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """A box of a C-ordered array in runs of neighbouring bytes: where each begins in the file, and its index in the box."""
    last = len(shape)
    while last > 0 and (box[last - 1].start, box[last - 1].stop) == (0, shape[last - 1]):
        last -= 1
    outer = max(last - 1, 0)
    steps = [prod(shape[k + 1 :]) * itemsize for k in range(len(shape))]
    first = sum(part.start * step for part, step in zip(box[: outer + 1], steps, strict=False))
    for index in np.ndindex(*(part.stop - part.start for part in box[:outer])):
        yield first + sum(i * step for i, step in zip(index, steps, strict=False)), index


class Positions:
    """A file that many threads read and write at positions of their own."""

    def __init__(self, path: Path, flags: int) -> None:
        self.path = path
        self.fd = os.open(path, flags | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0), 0o666)
        self._turn = threading.Lock()

    def read(self, out: Array, offset: int) -> None:
        view = out.reshape(-1).view(np.uint8).data
        while view:
            got = self._read(view, offset)
            if not got:
                raise StoreError(f"{self.path} ends before byte {offset + len(view)}: it was cut short while it was read")
            view, offset = view[got:], offset + got

    def write(self, array: Array, offset: int) -> None:
        view = array.reshape(-1).view(np.uint8).data
        while view:
            put = self._write(view, offset)
            view, offset = view[put:], offset + put

    def _read(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self.fd, [view], offset)
        with self._turn:
            os.lseek(self.fd, offset, os.SEEK_SET)
            got = os.read(self.fd, len(view))
        view[: len(got)] = got
        return len(got)

    def _write(self, view: memoryview, offset: int) -> int:
        if hasattr(os, "pwrite"):
            return os.pwrite(self.fd, view, offset)
        with self._turn:
            os.lseek(self.fd, offset, os.SEEK_SET)
            return os.write(self.fd, view)

    def sync(self) -> None:
        os.fsync(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def file_state(*paths: Path) -> str:
    """Sizes and times of files, as one short text."""
    digest = hashlib.sha256()
    for path in paths:
        seen = os.stat(path)
        digest.update(f"{path.name} {seen.st_size} {seen.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:32]


def flush_folder(folder: Path) -> None:
    """Bring the names in a folder to the disk, where the system has that."""
    with suppress(OSError):  # Windows opens no folders
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
