"""Arrays that lie in one file: `.npy` and `.npz`, and what HDF5 results share with them.

Invariants: nothing is unpickled; a file that does not hold what its header says is refused before anything is allocated.
"""

from __future__ import annotations

import io
import os
import threading
import warnings
import zipfile
from collections.abc import Callable
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..arrays import DTYPES, check_fits
from ..errors import PoolGradError, PoolGradTypeError, PoolGradValueError
from ..npy import npy_header
from .store import Box, Place, Positions, StoreError, file_state, flush_folder, runs

__all__ = ["BFLOAT16", "FileTarget", "NpySource", "NpyTarget", "NpzSource", "NpzTarget", "our_dtype"]

Array = npt.NDArray[Any]


BFLOAT16: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)


def our_dtype(path: Path, dtype: np.dtype[Any]) -> np.dtype[Any]:
    """`dtype`, in its own byte order, if it is one of ours."""
    if dtype.hasobject:
        raise PoolGradTypeError(f"{path} holds Python objects, which are never unpickled")
    if dtype.kind == "V" and dtype.itemsize == 2 and dtype.names is None and dtype.subdtype is None:
        return BFLOAT16  # this is how NumPy stores one
    if dtype.newbyteorder("=") not in DTYPES:
        raise PoolGradTypeError(f"{path}: dtype must be {', '.join(DTYPES.values())}, got {dtype}")
    return dtype


def _unreadable(path: Path, broken: Exception) -> PoolGradValueError:
    reason = str(broken).splitlines()[0] if str(broken) else type(broken).__name__
    return PoolGradValueError(f"{path} is not a readable {path.suffix} file: {reason}")


class NpySource:
    """A `.npy`, in either order of elements and bytes."""

    chunks: tuple[int, ...] | None = None
    shards: tuple[int, ...] | None = None
    extra = held = 0

    def __init__(self, path: Path, key: str | None = None) -> None:
        if key is not None:
            raise PoolGradValueError(f"{path}: --key names an array of an .npz, .zarr or HDF5 file")
        self.path = path
        try:
            with warnings.catch_warnings(), open(path, "rb") as file:
                warnings.simplefilter("ignore")  # a header may say anything; what matters becomes a refusal
                self.shape, self._turned, dtype = npy_header(file)
                self._first = file.tell()
        except OSError:
            raise
        except Exception as broken:  # whatever NumPy makes of a header that is not what it seems
            raise _unreadable(path, broken) from None
        self._stored = our_dtype(path, dtype)
        if not all(isinstance(n, int) and n >= 0 for n in self.shape):
            raise PoolGradValueError(f"{path} is not a readable .npy file: shape {self.shape}")
        self.dtype = self._stored.newbyteorder("=")
        self.copies = int(self._turned)
        promised, held = self._first + prod(self.shape) * self.dtype.itemsize, os.path.getsize(path)
        if promised > held:
            raise PoolGradValueError(f"{path} has {held} bytes, where {dtype} of shape {self.shape} makes {promised}")
        self._file = Positions(path, os.O_RDONLY)

    def read(self, box: Box, out: Array) -> None:
        if self._turned:
            turned = np.empty(out.shape[::-1], self.dtype)
            self._read(self.shape[::-1], box[::-1], turned)
            np.copyto(out, turned.T)
        else:
            self._read(self.shape, box, out)
        if self._stored != self.dtype:
            out.byteswap(inplace=True)

    def _read(self, shape: tuple[int, ...], box: Box, out: Array) -> None:
        if out.size:
            for offset, index in runs(shape, box, self.dtype.itemsize):
                self._file.read(out[index], self._first + offset)

    def state(self) -> str:
        return file_state(self.path)

    def close(self) -> None:
        self._file.close()


class NpzSource:
    """One member of an `.npz`, read whole when the first of it is asked for."""

    chunks: tuple[int, ...] | None = None
    shards: tuple[int, ...] | None = None
    extra = copies = 0

    def __init__(self, path: Path, key: str | None = None) -> None:
        self.path = path
        self._array: Array | None = None
        self._turn = threading.Lock()
        self._name, self.held, self.shape, dtype = self._asked(lambda archive: _promise(path, archive, key))
        self._stored = our_dtype(path, dtype)
        self.dtype = self._stored.newbyteorder("=")

    def _asked(self, question: Callable[[zipfile.ZipFile], Any]) -> Any:
        """What the archive answers, or a refusal."""
        try:
            with warnings.catch_warnings(), zipfile.ZipFile(self.path) as archive:
                warnings.simplefilter("ignore")
                return question(archive)
        except (PoolGradError, OSError):
            raise
        except Exception as broken:  # whatever zipfile, NumPy or a decompressor makes of it
            raise _unreadable(self.path, broken) from None

    def _whole(self, archive: zipfile.ZipFile) -> Array:
        with archive.open(self._name) as member:
            array = np.asarray(np.lib.format.read_array(member, allow_pickle=False))
        return array.view(self._stored) if array.dtype.kind == "V" else array

    def read(self, box: Box, out: Array) -> None:
        with self._turn:
            if self._array is None:
                self._array = self._asked(self._whole)
        np.copyto(out, self._array[box])

    def state(self) -> str:
        return file_state(self.path)

    def close(self) -> None:
        self._array = None


def _promise(path: Path, archive: zipfile.ZipFile, key: str | None) -> tuple[str, int, tuple[int, ...], np.dtype[Any]]:
    """The file name of a member, its bytes, shape and dtype."""
    members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
    if not members:
        raise PoolGradValueError(f"{path} holds no array")
    if key is None and len(members) != 1:
        raise PoolGradValueError(f"{path} holds {len(members)} arrays ({', '.join(members)}): choose one with --key")
    name = next(iter(members)) if key is None else key
    if name not in members:
        raise PoolGradValueError(f"{path} has no array {name!r}; it holds {', '.join(members)}")
    held = members[name].file_size
    check_fits(f"{path}: {name}", (held,), np.dtype(np.uint8))
    with archive.open(members[name]) as member:
        shape, _, dtype = npy_header(member)
        promised = member.tell() + prod(shape) * dtype.itemsize
    if promised != held and not dtype.hasobject:
        raise PoolGradValueError(f"{path}: {name} has {held} bytes, where {dtype} of shape {shape} makes {promised}")
    return members[name].filename, held, shape, dtype


class FileTarget:
    """A result in one file whose bytes have known positions: written anywhere, in any order, renamed when whole."""

    in_order = False
    extra = 0
    form = ""
    chunks: tuple[int, ...] | None = None

    def __init__(self, place: Place, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.place, self.shape, self.dtype = place, shape, dtype
        self.stored: int | None = prod(shape) * dtype.itemsize
        self._first = 0
        self._file: Positions | None = None

    def begin(self) -> None:
        self.place.part.unlink(missing_ok=True)
        self._make(self.place.part)
        self.resume()

    def resume(self) -> None:
        self._locate(self.place.part)
        self._file = Positions(self.place.part, os.O_RDWR)

    def _make(self, part: Path) -> None:
        """A file with everything in it but the elements."""
        raise NotImplementedError

    def _locate(self, part: Path) -> None:
        """Find where the elements go."""
        raise NotImplementedError

    def write(self, box: Box, array: Array) -> None:
        assert self._file is not None
        if array.size:
            for offset, index in runs(self.shape, box, self.dtype.itemsize):
                self._file.write(array[index], self._first + offset)

    def written(self, box: Box) -> None:
        pass

    def sync(self) -> None:
        assert self._file is not None
        self._file.sync()

    def finish(self) -> None:
        self.sync()
        self.close()
        os.replace(self.place.part, self.place.path)
        flush_folder(self.place.path.parent)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()


class NpyTarget(FileTarget):
    """A `.npy` in C order and the machine's byte order."""

    def _head(self) -> bytes:
        made = io.BytesIO()
        descr = np.lib.format.dtype_to_descr(self.dtype)
        np.lib.format.write_array_header_1_0(made, {"descr": descr, "fortran_order": False, "shape": self.shape})
        return made.getvalue()

    def _make(self, part: Path) -> None:
        head = self._head()
        with open(part, "xb") as file:
            file.write(head)
            file.truncate(len(head) + prod(self.shape) * self.dtype.itemsize)

    def _locate(self, part: Path) -> None:
        head = self._head()
        with open(part, "rb") as file:
            if file.read(len(head)) != head:
                raise StoreError(f"{part} is not the part of this result")
        self._first = len(head)


class NpzTarget:
    """An `.npz` with one member: a stream of bytes, so it is written in order and cannot be resumed."""

    in_order = True
    extra = 0
    form = ""
    chunks: tuple[int, ...] | None = None

    def __init__(self, place: Place, shape: tuple[int, ...], dtype: np.dtype[Any], name: str) -> None:
        self.place, self.shape, self.dtype, self._name = place, shape, dtype, name
        self.stored: int | None = prod(shape) * dtype.itemsize

    def begin(self) -> None:
        self._file = open(self.place.part, "wb")  # noqa: SIM115
        self._archive = zipfile.ZipFile(self._file, "w")
        self._entry = self._archive.open(zipfile.ZipInfo(f"{self._name}.npy"), "w", force_zip64=True)
        header = {"descr": np.lib.format.dtype_to_descr(self.dtype), "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(self._entry, header)

    def resume(self) -> None:
        raise StoreError(f"{self.place.path}: an .npz cannot be resumed")

    def write(self, box: Box, array: Array) -> None:
        self._entry.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)

    def written(self, box: Box) -> None:
        pass

    def sync(self) -> None:
        pass

    def finish(self) -> None:
        self._entry.close()
        self._archive.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        os.replace(self.place.part, self.place.path)
        flush_folder(self.place.path.parent)

    def close(self) -> None:
        if hasattr(self, "_file"):
            with suppress(OSError, ValueError):  # of an archive that will not be kept
                self._entry.close()
                self._archive.close()
            self._file.close()
