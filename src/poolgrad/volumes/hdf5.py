"""HDF5: any dataset is read; results are written around the library, which promises nothing about a killed process.

A result's dataset has its whole room from the start and no filter, so every element has a known position in a file that the
library closed before the first of them is written. From there on it is a file like `.npy`: positioned writes, a journal,
and a rename when it is whole.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from ..errors import PoolGradError, PoolGradTypeError, PoolGradValueError
from .flat import FileTarget, our_dtype
from .store import Box, Place, StoreError, file_state, within

__all__ = ["Hdf5Source", "Hdf5Target"]

Array = npt.NDArray[Any]

CACHE = 1 << 20
"""HDF5's own cache of a dataset's chunks."""


class Hdf5Source:
    """One dataset of an HDF5 file."""

    shards = None
    copies = held = 0

    def __init__(self, path: Path, key: str | None = None) -> None:
        self.path = path
        self._file = _asked(path, lambda: h5py.File(path, "r"))
        try:
            self._dataset = _chosen(path, self._file, key)
            if self._dataset.shape is None:
                raise PoolGradValueError(f"{path}: {self._dataset.name} holds no elements at all (a null dataspace)")
            self.shape = tuple(self._dataset.shape)
            self._files = _asked(path, lambda: _behind(self._dataset))
            self.dtype = our_dtype(path, _asked(path, lambda: self._dataset.dtype)).newbyteorder("=")
            self.chunks = self._dataset.chunks
            self.extra = CACHE + 2 * prod(self.chunks or (0,)) * self.dtype.itemsize
        except BaseException:
            self._file.close()
            raise

    def read(self, box: Box, out: Array) -> None:
        if not out.size:
            return
        try:
            self._dataset.read_direct(out.view(self._dataset.dtype) if out.dtype.kind == "V" else out, source_sel=box)
        except Exception as broken:  # h5py passes on whatever a filter or the disk said
            raise StoreError(f"{self.path}: {self._dataset.name} cannot be read: {broken}") from None

    def state(self) -> str:
        return file_state(self.path, *self._files)

    def close(self) -> None:
        self._file.close()


def _asked(path: Path, question: Callable[[], Any]) -> Any:
    """What h5py answers, or a refusal."""
    try:
        return question()
    except PoolGradError:
        raise
    except Exception as broken:
        if isinstance(broken, OSError) and broken.errno:
            raise
        raise PoolGradValueError(f"{path} is not a readable HDF5 file: {str(broken) or type(broken).__name__}") from None


def _chosen(path: Path, file: Any, key: str | None) -> Any:
    found: list[str] = []
    _asked(path, lambda: file.visititems(lambda name, node: found.append(name) if isinstance(node, h5py.Dataset) else None))
    if key is None and len(found) != 1:
        held = f"{len(found)} arrays ({', '.join(found[:12])}): choose one with --key" if found else "no array"
        raise PoolGradValueError(f"{path} holds {held}")
    name = found[0] if key is None else key
    node = _asked(path, lambda: file.get(name))
    if not isinstance(node, h5py.Dataset):
        raise PoolGradValueError(f"{path} has no array {name!r}; it holds {', '.join(found[:12]) or 'none'}")
    return node


def _behind(dataset: Any) -> list[Path]:
    """The files that a dataset's elements lie in: the one that a link led to, and those that it is only a view of.

    Where such a file or its dataset is missing HDF5 reads the fill value, and nobody could tell: the view is refused. So are raw
    files, which HDF5 reads as zeros where they are too short.
    """
    home = Path(dataset.file.filename)
    if dataset.external:
        raise PoolGradValueError(f"{home}: {dataset.name} lies in raw files outside HDF5; copy it into one (h5repack does)")
    files = [home]
    for source in dataset.virtual_sources() if dataset.is_virtual else ():
        places = (home,) if source.file_name == "." else (home.parent / source.file_name, Path(source.file_name))
        found = next((place for place in places if place.is_file()), None)
        if found is None or not _holds(found, source.dset_name):
            missing = f"{source.dset_name} of {source.file_name}"
            raise PoolGradValueError(f"{home}: {dataset.name} is a view of {missing}, which is not there")
        files.append(found)
    return files


def _holds(path: Path, name: str) -> bool:
    with h5py.File(path, "r") as file:
        return name in file


class Hdf5Target(FileTarget):
    """One dataset, contiguous or in chunks, without filters."""

    def __init__(
        self, place: Place, shape: tuple[int, ...], dtype: np.dtype[Any], name: str, chunks: tuple[int, ...] | None
    ) -> None:
        super().__init__(place, shape, dtype)
        if dtype.kind == "V":
            raise PoolGradTypeError(f"{place.path}: HDF5 has no bfloat16; choose .zarr or .npy")
        self._name = name
        self._at: dict[tuple[int, ...], int] = {}
        self.chunks = chunks if 0 not in shape else None
        self.form = f"{name} in chunks of {self.chunks}"
        if self.chunks is not None:
            size = prod(self.chunks) * dtype.itemsize
            if size >= 1 << 32:
                raise PoolGradValueError(f"HDF5 chunks are smaller than 4 GiB, got {self.chunks} of {dtype}")
            self.extra = size
            self.stored = size * prod(-(-n // c) for n, c in zip(shape, self.chunks, strict=True))

    def _make(self, part: Path) -> None:
        layout = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        layout.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        layout.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        layout.set_obj_track_times(False)  # the same result is the same file
        if self.chunks is not None:
            layout.set_chunk(self.chunks)
        with h5py.File(part, "x") as file:
            kind = h5py.h5t.py_create(self.dtype)
            h5py.h5d.create(file.id, self._name.encode(), kind, h5py.h5s.create_simple(self.shape), dcpl=layout)

    def _locate(self, part: Path) -> None:
        try:
            with h5py.File(part, "r") as file:
                dataset = file[self._name]
                if (dataset.shape, dataset.dtype, dataset.chunks) != (self.shape, self.dtype, self.chunks):
                    raise StoreError(f"{part} is not the part of this result")
                if self.chunks is None:
                    self._first = dataset.id.get_offset() or 0
                else:
                    dataset.id.chunk_iter(lambda info: self._at.update({tuple(info.chunk_offset): int(info.byte_offset)}))
        except (KeyError, OSError, RuntimeError) as broken:
            raise StoreError(f"{part} is not the part of this result: {broken}") from None

    def write(self, box: Box, array: Array) -> None:
        if self.chunks is None:
            super().write(box, array)
            return
        assert self._file is not None
        for whole, inner in within(box, self.chunks):
            piece = array[inner]
            if piece.shape != self.chunks:  # at an edge of the array a chunk is stored whole all the same
                padded = np.zeros(self.chunks, self.dtype)
                padded[tuple(slice(0, n) for n in piece.shape)] = piece
                piece = padded
            self._file.write(np.ascontiguousarray(piece), self._at[tuple(part.start for part in whole)])
