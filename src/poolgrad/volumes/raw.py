"""Zarr chunks that are plain bytes: each a file of its own, read and written without zarr-python's copies in between.

Only what a box needs of a chunk is read. A chunk is always stored whole, also where the array ends inside it.
"""

from __future__ import annotations

import os
import sys
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from .store import Box, Positions, StoreError, within

__all__ = ["RawChunks"]

Array = npt.NDArray[Any]


class RawChunks:
    """The chunks below `folder`, as their metadata describes them; `dtype` is that of the elements."""

    def __init__(self, folder: Path, metadata: Any, chunks: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self._folder, self._key, self._chunks, self._dtype = folder, metadata.encode_chunk_key, chunks, dtype
        self._fill = metadata.fill_value

    @staticmethod
    def serve(metadata: Any) -> bool:
        """Whether an array's chunks are its elements in the machine's byte order and nothing else."""
        if metadata.zarr_format != 3 or metadata.storage_transformers or len(metadata.codecs) != 1:
            return False
        said = metadata.codecs[0].to_dict()
        order = said.get("configuration", {}).get("endian", sys.byteorder)
        return bool(said.get("name") == "bytes" and order == sys.byteorder)

    def path(self, chunk: Box) -> Path:
        return self._folder / str(self._key(tuple(part.start // size for part, size in zip(chunk, self._chunks, strict=True))))

    def read(self, box: Box, out: Array) -> None:
        for whole, inner in within(box, self._chunks):
            self._read(whole, out[inner])

    def _read(self, where: Box, out: Array) -> None:
        path = self.path(where)
        try:
            file = Positions(path, os.O_RDONLY)
        except FileNotFoundError:
            out[...] = self._fill
            return
        try:
            size, held = prod(self._chunks) * self._dtype.itemsize, os.fstat(file.fd).st_size
            if held != size:
                raise StoreError(f"{path} has {held} bytes, where a chunk has {size}")
            first = tuple(part.start % size for part, size in zip(where, self._chunks, strict=True))
            row = prod(self._chunks[1:])
            direct = out.shape[1:] == self._chunks[1:] and out.flags.c_contiguous
            rows = out if direct else np.empty((out.shape[0], *self._chunks[1:]), self._dtype)
            file.read(rows, first[0] * row * self._dtype.itemsize)
            if rows is not out:
                np.copyto(out, rows[tuple(slice(a, a + n) for a, n in zip((0, *first[1:]), out.shape, strict=True))])
        finally:
            file.close()

    def write(self, where: Box, piece: Array) -> None:
        """Write the chunk at `where`."""
        if piece.shape != self._chunks:
            padded = np.full(self._chunks, self._fill, self._dtype)
            padded[tuple(slice(0, n) for n in piece.shape)] = piece
            piece = padded
        path = self.path(where)
        path.parent.mkdir(parents=True, exist_ok=True)
        file = Positions(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            file.write(np.ascontiguousarray(piece), 0)
        finally:
            file.close()
