"""Which kind of file a path is, the store that serves it, and the chunks of a result."""

from __future__ import annotations

import importlib
import os
import re
import shutil
from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

from ..errors import PoolGradMemoryError, PoolGradValueError
from ..geometry import integer
from .flat import NpySource, NpyTarget, NpzSource, NpzTarget
from .store import Place, Source, Target

__all__ = ["open_source", "open_target"]

KINDS = {".npy": "npy", ".npz": "npz", ".zarr": "zarr", ".h5": "hdf5", ".hdf5": "hdf5"}
SERVED = ".npy or .npz, .zarr (a folder), .h5 or .hdf5"
LEAST_CHUNK, MOST_CHUNK = 1 << 20, 64 << 20
"""Bytes of a result's chunk, unless they are chosen."""

LONGEST_NAME = 255
MOST_ELEMENTS = 1 << 59
"""What metadata may claim of an array or a chunk: with room left for bytes in 64 bits."""


def _kind(path: Path) -> tuple[str | None, Path]:
    """The kind of a path, and the file or outermost Zarr folder that makes it so."""
    for outer in reversed(path.parents):
        if outer.suffix == ".zarr":
            return "zarr", outer
    return KINDS.get(path.suffix), path


def _module(kind: str, path: Path) -> Any:
    package = {"zarr": "zarr", "hdf5": "h5py"}[kind]
    try:
        importlib.import_module(package)
        return importlib.import_module(f".{kind}", __package__)
    except ImportError as missing:
        raise PoolGradValueError(f"{path} needs {package} ({missing}): pip install 'poolgrad[volumes]'") from None


def _local(name: str, path: str | Path) -> Path:
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]+:/", str(path)):
        raise PoolGradValueError(f"{name} must be a local file or folder, got the address {path}; copy or mount it first")
    return Path(path)


def open_source(path: str | Path, key: str | None = None) -> Source:
    """The array in a file or folder, opened but not read."""
    path = _local("the source", path)
    kind, _ = _kind(path)
    if kind is None:
        raise PoolGradValueError(f"{path}: files are {SERVED}; got {path.suffix or 'no suffix'!r}")
    if not path.exists():
        raise PoolGradValueError(f"{path} does not exist")
    if path.is_dir() != (kind == "zarr"):
        raise PoolGradValueError(f"{path} is a {'folder' if path.is_dir() else 'file'}; a {kind} source is not one")
    if kind in ("npy", "npz"):
        return NpySource(path, key) if kind == "npy" else NpzSource(path, key)
    module = _module(kind, path)
    made: Source = module.ZarrSource(path, key) if kind == "zarr" else module.Hdf5Source(path, key)
    for what, sizes in (("shape", made.shape), ("chunks", made.chunks or ())):
        if prod(max(n, 1) for n in sizes) > MOST_ELEMENTS:
            made.close()
            raise PoolGradValueError(f"{path}: {what} {sizes} cannot be served: more than {MOST_ELEMENTS:,} elements")
    return made


def place_of(output: str | Path, source: Path) -> tuple[str, Place]:
    """The kind of a result, as its name was typed (a link may lead to any name), and where it goes; refused if it cannot."""
    output = _local("--output", output)
    kind, outer = _kind(output)
    if kind is None:
        raise PoolGradValueError(f"--output must end in {SERVED}; got {output}")
    if not output.parent.is_dir():
        raise PoolGradValueError(f"--output {output}: there is no folder {output.parent}")
    if output.exists() and output.samefile(source):
        raise PoolGradValueError(f"--output {output} is the input itself")
    if kind != "zarr" and output.is_dir():
        raise PoolGradValueError(f"--output {output} is a folder")
    path, outer = Path(output).resolve(), Path(outer).resolve()
    if kind == "zarr":
        _check_folder(output, path, outer, source.resolve())
    place = Place(path, outer if path.is_relative_to(outer) else path)
    if len(os.fsencode(place.journal.name)) > LONGEST_NAME:
        raise PoolGradValueError(f"--output {output}: the name is too long to have a journal beside it")
    return kind, place


def _check_folder(output: Path, path: Path, outer: Path, source: Path) -> None:
    node_kind = _module("zarr", output).node_kind
    if path.is_relative_to(source):
        raise PoolGradValueError(f"--output {output} lies inside the input {source}")
    if source.is_relative_to(path):
        raise PoolGradValueError(f"--output {output} holds the input {source} inside it")
    if path.exists() and not (path.is_dir() and node_kind(path) == "array"):
        raise PoolGradValueError(f"--output {output} exists and is not a Zarr array; it is left alone: choose another name")
    if path != outer and node_kind(path.parent) != "group":
        raise PoolGradValueError(f"--output {output}: {path.parent} is not a Zarr group")


def open_target(
    output: str | Path, source: Source, shape: tuple[int, ...], *, forwards: bool, chunks: Sequence[int] | None
) -> Target:
    """The store of a result of this shape, refused if it cannot go there; nothing is written yet."""
    kind, place = place_of(output, source.path)
    target = _made(kind, place, source, shape, "y" if forwards else "dx", chunks)
    free = shutil.disk_usage(place.beside.parent).free + place.taken()
    if target.stored is not None and target.stored > free:
        raise PoolGradMemoryError(
            f"the result {shape} of {source.dtype} takes {target.stored:,} bytes; {free:,} are free where {output} goes"
        )
    return target


def _made(kind: str, place: Place, source: Source, shape: tuple[int, ...], name: str, chunks: Sequence[int] | None) -> Target:
    dtype = source.dtype
    if kind in ("npy", "npz"):
        if chunks is not None:
            raise PoolGradValueError(f"{place.path}: a .{kind} has no chunks; --chunks is for .zarr and HDF5")
        return NpyTarget(place, shape, dtype) if kind == "npy" else NpzTarget(place, shape, dtype, name)
    asked = None if chunks is None else _asked(chunks, shape)
    module = _module(kind, place.path)
    made: Target
    if kind == "hdf5":
        made = module.Hdf5Target(place, shape, dtype, name, asked or (_scaled(source, shape) if source.chunks else None))
    else:
        inner = asked or _scaled(source, shape)
        storage = getattr(source, "storage", {})
        made = module.ZarrTarget(place, shape, dtype, inner, _shards(source, shape, inner), storage)
    return made


def _asked(chunks: Sequence[int], shape: tuple[int, ...]) -> tuple[int, ...]:
    sizes = tuple(integer("chunks", n, 1) for n in chunks)
    if len(sizes) != len(shape):
        raise PoolGradValueError(f"chunks must have one extent per axis of the result {shape}, got {sizes}")
    return tuple(min(n, max(extent, 1)) for n, extent in zip(sizes, shape, strict=True))


def _scaled(source: Source, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Chunks of the result over the same part of space as the source's, made larger or smaller by halves to a good size."""
    item = source.dtype.itemsize
    whole = tuple(max(n, 1) for n in shape)
    if source.chunks is None:
        chunks = list(whole)
    else:
        ratios = ((c, max(n, 1), max(m, 1)) for c, n, m in zip(source.chunks, shape, source.shape, strict=True))
        chunks = [min(max(n, 1), _times(c, n, m)) for c, n, m in ratios]
    while prod(chunks) * item > MOST_CHUNK:
        k = max(range(len(chunks)), key=lambda k: chunks[k])
        chunks[k] = -(-chunks[k] // 2)
    while prod(chunks) * item < LEAST_CHUNK and tuple(chunks) != whole:
        k = min((k for k in range(len(chunks)) if chunks[k] < whole[k]), key=lambda k: chunks[k])
        chunks[k] = min(2 * chunks[k], whole[k])
    return tuple(chunks)


def _times(chunk: int, n: int, m: int) -> int:
    """`chunk` in an axis of `m`, in one of `n` over the same space: whole strides, so that chunks keep to whole windows."""
    return chunk * round(n / m) if n >= m else -(-chunk // round(m / n))


def _shards(source: Source, shape: tuple[int, ...], inner: tuple[int, ...]) -> tuple[int, ...] | None:
    """As many chunks in a shard as the source has, within a reasonable size."""
    if source.shards is None or source.chunks is None:
        return None
    counts = [s // c for s, c in zip(source.shards, source.chunks, strict=True)]
    counts = [min(count, -(-n // c)) if n else 1 for count, n, c in zip(counts, shape, inner, strict=True)]
    while prod(counts) * prod(inner) * source.dtype.itemsize > 4 * MOST_CHUNK and max(counts) > 1:
        k = max(range(len(counts)), key=lambda k: counts[k])
        counts[k] = -(-counts[k] // 2)
    return tuple(c * count for c, count in zip(inner, counts, strict=True))
