"""Zarr arrays in local folders: version 3 is read and written, version 2 read.

A result is written into a folder of its own, which takes the result's name when every chunk is there: in a half-written
Zarr array the missing chunks would read as the fill value, and nobody could tell. zarr-python has no bfloat16, which is
registered as an extension of the format; such arrays pass through it as 16-bit numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import deque
from collections.abc import Iterator
from itertools import islice
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import zarr
from zarr.core.array import AsyncArray
from zarr.storage import LocalStore, StorePath

from ..errors import PoolGradError, PoolGradValueError
from .flat import BFLOAT16, our_dtype
from .raw import RawChunks
from .store import Box, Place, StoreError, flush_folder, within

__all__ = ["ZarrSource", "ZarrTarget", "node_kind"]

Array = npt.NDArray[Any]


def node_kind(folder: Path) -> str | None:
    """Whether a folder is a Zarr `array`, a `group`, or None of both."""
    if (folder / ".zarray").is_file():
        return "array"
    if (folder / ".zgroup").is_file():
        return "group"
    try:
        return str(json.loads((folder / "zarr.json").read_bytes()).get("node_type"))
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError, RecursionError) as broken:
        raise PoolGradValueError(f"{folder / 'zarr.json'} is not the metadata of a Zarr array: {broken}") from None


class ZarrSource:
    """A Zarr array in a local folder."""

    copies = held = 0

    def __init__(self, path: Path, key: str | None = None) -> None:
        self.path = node = _node(path, key)
        if node_kind(node) != "array":
            raise PoolGradValueError(_not_an_array(node))
        try:
            self._array, stored = _opened(node, read_only=True)
            self.shape = tuple(int(n) for n in self._array.shape)
            self.chunks = tuple(int(n) for n in self._array.chunks)
            self.shards = self._array.shards
        except (PoolGradError, OSError):
            raise
        except Exception as broken:  # zarr-python and its codecs raise what they like
            raise PoolGradValueError(f"{node} is not a readable Zarr array: {_first_line(broken)}") from None
        self.dtype = our_dtype(node, stored).newbyteorder("=")
        if not self.chunks or min(self.chunks) < 1 or min(self.shape) < 0:
            raise PoolGradValueError(f"{node}: an array of shape {self.shape} in chunks of {self.chunks} cannot be served")
        self.extra = 3 * prod(self.chunks) * self.dtype.itemsize
        self._raw: RawChunks | None = None
        if RawChunks.serve(self._array.metadata):
            self._raw, self.extra = RawChunks(node, self._array.metadata, self.chunks, self._array.dtype), self.extra // 3

    @property
    def storage(self) -> dict[str, Any]:
        """What a result takes over: how chunks are compressed, and what the axes are called."""
        metadata = self._array.metadata
        if metadata.zarr_format == 2:
            return {"compressors": "auto" if self._array.compressors else None}
        return {"compressors": self._array.compressors or None, "dimension_names": metadata.dimension_names}

    def read(self, box: Box, out: Array) -> None:
        place = out.view(np.uint16) if self.dtype == BFLOAT16 else out
        if self._raw is not None:
            self._raw.read(box, place)
            return
        whole = box
        try:
            for whole, inner in within(box, self.chunks):
                place[inner] = self._array[whole]
        except Exception as broken:
            where = ", ".join(f"{part.start}:{part.stop}" for part in whole)
            raise StoreError(f"{self.path}[{where}] cannot be read: {_first_line(broken)}") from None

    def state(self) -> str:
        digest = hashlib.sha256()
        for name, size, changed in _files(self.path, set()):
            digest.update(f"{name} {size} {changed}\n".encode())
        return digest.hexdigest()[:32]

    def close(self) -> None:
        pass


def _node(path: Path, key: str | None) -> Path:
    inner = Path(key or "")
    if inner.is_absolute() or ".." in inner.parts:
        raise PoolGradValueError(f"--key must be the path of an array inside {path}, got {key!r}")
    if key and not (path / inner).is_dir():
        raise PoolGradValueError(f"{path} has no array {key!r}; it holds {_listed(path)}")
    return path / inner


def _listed(group: Path) -> str:
    arrays = (folder for folder in sorted(group.rglob("*")) if folder.is_dir() and node_kind(folder) == "array")
    return ", ".join(str(folder.relative_to(group)) for folder in islice(arrays, 12)) or "no array"


def _not_an_array(node: Path) -> str:
    if node_kind(node) == "group":
        return f"{node} is a Zarr group (holding {_listed(node)}): choose an array with --key"
    return f"{node} is not a Zarr array: it has neither zarr.json nor .zarray"


def _first_line(broken: Exception) -> str:
    return (str(broken) or type(broken).__name__).splitlines()[0]


def _opened(node: Path, *, read_only: bool) -> tuple[Any, np.dtype[Any]]:
    """The array in a folder, and the dtype of its elements."""
    store = LocalStore(node, read_only=read_only)
    if (node / "zarr.json").is_file():
        said = json.loads((node / "zarr.json").read_bytes())
        if said.get("data_type") == "bfloat16":
            config = {"write_empty_chunks": True}
            return zarr.Array(AsyncArray(_as_numbers(said), StorePath(store), config)), BFLOAT16
    array = zarr.open_array(store, mode="r" if read_only else "r+", config={"write_empty_chunks": True})
    return array, array.dtype


def _as_numbers(said: dict[str, Any]) -> dict[str, Any]:
    """Metadata of a bfloat16 array as that of its bits."""
    fill = said.get("fill_value", 0)
    raw = isinstance(fill, str) and fill.startswith("0x")
    bits = int(fill, 16) if raw else int(np.array(float(fill), BFLOAT16).view(np.uint16))
    return {**said, "data_type": "uint16", "fill_value": bits}


def _files(folder: str | Path, passed: set[tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of every file below a folder, in a fixed order; a folder that links lead to again is passed by."""
    here = os.stat(folder)
    if (here.st_dev, here.st_ino) in passed:
        return
    passed.add((here.st_dev, here.st_ino))
    for entry in sorted(os.scandir(folder), key=lambda found: found.name):
        if entry.is_dir():
            yield from ((f"{entry.name}/{name}", size, changed) for name, size, changed in _files(entry.path, passed))
        else:
            seen = entry.stat()
            yield entry.name, seen.st_size, seen.st_mtime_ns


class ZarrTarget:
    """A Zarr v3 array in a folder of its own."""

    in_order = False

    def __init__(
        self,
        place: Place,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        chunks: tuple[int, ...],
        shards: tuple[int, ...] | None,
        storage: dict[str, Any],
    ) -> None:
        self.place, self.shape, self._dtype, self._inner, self._shards = place, shape, dtype, chunks, shards
        self._storage = {"compressors": None, **storage}
        self.chunks = shards or chunks
        self.form = f"chunks of {chunks}, shards of {shards}, {self._storage['compressors']}"
        copies = 3 if shards else 2 if self._storage["compressors"] else 1
        self.extra = copies * prod(self.chunks) * dtype.itemsize
        grid = prod(-(-n // c) for n, c in zip(shape, self.chunks, strict=True))
        self.stored = None if self._storage["compressors"] else grid * prod(self.chunks) * dtype.itemsize
        self._array: Any = None
        self._raw: RawChunks | None = None
        self._unsynced: deque[Path] = deque()

    def begin(self) -> None:
        part = self.place.part
        shutil.rmtree(part, ignore_errors=True)
        numbers = np.dtype(np.uint16) if self._dtype == BFLOAT16 else self._dtype
        kind = {"shape": self.shape, "dtype": numbers, "chunks": self._inner, "shards": self._shards, "fill_value": 0}
        zarr.create_array(LocalStore(part), **kind, **self._storage)
        if self._dtype == BFLOAT16:
            said = json.loads((part / "zarr.json").read_bytes())
            (part / "zarr.json").write_text(json.dumps({**said, "data_type": "bfloat16", "fill_value": 0.0}))
        self.resume()

    def resume(self) -> None:
        part = self.place.part
        try:
            self._array, stored = _opened(part, read_only=False)
        except Exception as broken:
            raise StoreError(f"{part} is not the part of this result: {_first_line(broken)}") from None
        if (self._array.shape, stored, self._array.shards or self._array.chunks) != (self.shape, self._dtype, self.chunks):
            raise StoreError(f"{part} is not the part of this result")
        if RawChunks.serve(self._array.metadata):
            self._raw = RawChunks(part, self._array.metadata, self.chunks, self._array.dtype)
        for left in part.rglob("*.partial"):  # zarr-python's names for files that a killed process was writing
            left.unlink()

    def write(self, box: Box, array: Array) -> None:
        plain = array.view(np.uint16) if self._dtype == BFLOAT16 else array
        for whole, inner in within(box, self.chunks):
            if self._raw is not None:
                self._raw.write(whole, plain[inner])
            else:
                self._array[whole] = plain[inner]
            self._unsynced.append(self._file(whole))

    def written(self, box: Box) -> None:
        self._unsynced.extend(self._file(whole) for whole, _ in within(box, self.chunks))

    def _file(self, chunk: Box) -> Path:
        index = tuple(part.start // size for part, size in zip(chunk, self.chunks, strict=True))
        return self.place.part / str(self._array.metadata.encode_chunk_key(index))

    def sync(self) -> None:
        done = [self._unsynced.popleft() for _ in range(len(self._unsynced))]
        for path in done:
            with open(path, "rb") as file:
                os.fsync(file.fileno())
        for folder in {path.parent for path in done}:
            flush_folder(folder)

    def finish(self) -> None:
        self.sync()
        path, old = self.place.path, self.place.old
        if path.exists():
            shutil.rmtree(old, ignore_errors=True)
            os.replace(path, old)
        os.replace(self.place.part, path)
        flush_folder(path.parent)
        shutil.rmtree(old, ignore_errors=True)

    def close(self) -> None:
        pass
