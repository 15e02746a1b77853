"""Arrays in files: `.npy` mapped into memory, `.npz` one member of it; results written in order and put in place at once.

Invariants: nothing is unpickled; a file that does not hold what its header says is refused; the name of a result never
points at a half-written one, and never at its own input.
"""

from __future__ import annotations

import os
import secrets
import warnings
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import prod
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from ..arrays import DTYPES, check_fits
from ..errors import PoolGradError, PoolGradTypeError, PoolGradValueError
from ..npy import npy_header

__all__ = ["check_output", "load", "writer"]

Array = npt.NDArray[Any]

SUFFIXES = (".npy", ".npz")


def load(path: Path, key: str | None = None) -> Array:
    """The array in a file, of one of our dtypes in either byte order; a `.npy` is mapped, not read."""
    if path.suffix not in SUFFIXES:
        raise PoolGradValueError(f"{path}: files are .npy or .npz, got {path.suffix or 'no suffix'!r}")
    if path.suffix == ".npy" and key is not None:
        raise PoolGradValueError(f"{path}: --key names a member of an .npz file")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a header may say anything; what matters becomes a refusal
            array = np.lib.format.open_memmap(path, mode="r") if path.suffix == ".npy" else _member(path, key)
    except (PoolGradError, OSError):
        raise
    except Exception as broken:  # whatever NumPy, zipfile or a decompressor makes of a file that is not what it seems
        reason = str(broken).splitlines()[0] if str(broken) else type(broken).__name__
        raise PoolGradValueError(f"{path} is not a readable {path.suffix} file: {reason}") from None
    if array.dtype.kind == "V" and array.dtype.itemsize == 2 and array.dtype.names is None:
        array = array.view(ml_dtypes.bfloat16)  # this is how NumPy stores a bfloat16
    if array.dtype.newbyteorder("=") not in DTYPES:
        raise PoolGradTypeError(f"{path}: dtype must be {', '.join(DTYPES.values())}, got {array.dtype}")
    return array


def _member(path: Path, key: str | None) -> Array:
    with zipfile.ZipFile(path) as archive:
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
        with archive.open(members[name]) as member:
            return np.asarray(np.lib.format.read_array(member, allow_pickle=False))


def check_output(output: Path, source: Path) -> None:
    """Refuse a place where the result cannot go, before anything is computed."""
    if output.suffix not in SUFFIXES:
        raise PoolGradValueError(f"--output must end in .npy or .npz, got {output}")
    if output.is_dir():
        raise PoolGradValueError(f"--output {output} is a folder")
    if not output.parent.is_dir():
        raise PoolGradValueError(f"--output {output}: there is no folder {output.parent}")
    if output.exists() and output.samefile(source):
        raise PoolGradValueError(f"--output {output} is the input itself")


@contextmanager
def writer(path: Path, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[Callable[[Array], None]]:
    """A function that takes the result's elements in C order, run by run; `name` is the member's name in an `.npz`."""
    header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
    with _replaced(path) as file:
        if path.suffix == ".npy":
            np.lib.format.write_array_header_1_0(file, header)
            yield lambda part: _put(file, part)
            return
        member = zipfile.ZipInfo(f"{name}.npy")
        with zipfile.ZipFile(file, "w") as archive, archive.open(member, "w", force_zip64=True) as entry:
            np.lib.format.write_array_header_1_0(entry, header)
            yield lambda part: _put(entry, part)


def _put(file: IO[bytes], part: Array) -> None:
    file.write(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)


@contextmanager
def _replaced(path: Path) -> Iterator[IO[bytes]]:
    """A new file that takes the place of `path` when all of it is written; else it never was."""
    target = Path(os.path.realpath(path))
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with open(part, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
