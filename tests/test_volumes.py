"""Volumes from store to store: the bits of one call, whatever the stores, the chunks, the boxes and the workers are."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from math import prod
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import support
from hypothesis import given
from hypothesis import strategies as st
from support import Array

pytest.importorskip("zarr")
pytest.importorskip("h5py")

import h5py
import zarr

import poolgrad
from poolgrad import Axis, Pool, PoolGradError, PoolGradMemoryError, PoolGradTypeError, PoolGradValueError, volumes
from poolgrad.layout import spatial_positions
from poolgrad.volumes import plan, store, stores

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def save(path: str, array: Array, chunks: tuple[int, ...], **more: Any) -> str:
    """An array in a store of the kind that the path names."""
    kind = Path(path).suffix
    if kind == ".npy":
        np.save(path, array)
    elif kind == ".npz":
        np.savez(path, only=array)
    elif kind == ".h5":
        with h5py.File(path, "w") as file:
            file.create_dataset("deep/dy", data=array, chunks=chunks, **more)
    else:
        numbers = array.view(np.uint16) if array.dtype == BFLOAT16 else array
        zarr.create_array(path, data=np.ascontiguousarray(numbers), chunks=chunks, **more)
        if array.dtype == BFLOAT16:
            relabel(Path(path), data_type="bfloat16", fill_value=0.0)
    return path


def relabel(path: Path, **said: Any) -> None:
    metadata = json.loads((path / "zarr.json").read_text())
    (path / "zarr.json").write_text(json.dumps({**metadata, **said}))


def load(path: str, dtype: np.dtype[Any]) -> Array:
    kind = Path(path).suffix
    if kind == ".npy":
        return np.load(path).view(dtype)
    if kind == ".npz":
        with np.load(path) as members:
            (name,) = members.files
            return np.asarray(members[name]).view(dtype)
    if kind == ".h5":
        with h5py.File(path) as file:
            (name,) = file
            return np.asarray(file[name][...])
    if dtype == BFLOAT16:
        assert json.loads((Path(path) / "zarr.json").read_text())["data_type"] == "bfloat16"
        relabel(Path(path), data_type="uint16", fill_value=0)
    return np.asarray(zarr.open_array(path, mode="r")[...]).view(dtype)


KINDS = (".npy", ".npz", ".zarr", ".h5")
ARGUMENTS: dict[str, Any] = {"window": (3, 2), "stride": (2, 3), "padding": ((1, 0), (0, 1)), "count": "padded", "layout": "CHNW"}
SHAPE = (3, 19, 2, 23)


def cut_into(monkeypatch: pytest.MonkeyPatch, extents: tuple[int, ...]) -> None:
    """These boxes or, where the result has chunks, as many whole ones; several workers."""

    def candidates(shape: tuple[int, ...], target: Any, item: int) -> list[tuple[int, ...]]:
        if target.in_order:
            return list(plan._in_order(shape, prod(extents)))[:1]
        units = target.chunks or (1,) * len(shape)
        return [tuple(-(-e // u) * u for e, u in zip(extents, units, strict=True))]

    monkeypatch.setattr(plan, "_candidates", candidates)
    monkeypatch.setattr(plan, "SHARED_BYTES", 0)


@pytest.mark.parametrize("into", KINDS)
@pytest.mark.parametrize("out_of", KINDS)
@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_every_store_to_every_store(out_of: str, into: str, dtype: np.dtype[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    if dtype == BFLOAT16 and out_of == ".h5":
        pytest.skip("HDF5 has no bfloat16")
    x = support.random_array(3, SHAPE, dtype, "special")
    want = poolgrad.avg_pool(x, **ARGUMENTS)
    dy = support.random_array(4, want.shape, dtype, "special")
    wanted = poolgrad.avg_pool_grad(dy, SHAPE, **ARGUMENTS)
    plain = {"compressors": None} if out_of == ".zarr" and dtype.itemsize > 2 else {}
    save("x" + out_of, x, (2, 5, 1, 7), **plain)
    save("dy" + out_of, dy, (1, 4, 2, 3), **plain)
    if dtype == BFLOAT16 and into == ".h5":
        with pytest.raises(PoolGradTypeError, match="no bfloat16"):
            volumes.pool("x" + out_of, "y" + into, **ARGUMENTS)
        return
    chunks = None if into in (".npy", ".npz") else (2, 4, 1, 5)
    cut_into(monkeypatch, (1, 7, 2, 9))
    done = volumes.pool("x" + out_of, "y" + into, threads=3, chunks=chunks, **ARGUMENTS)
    assert done.boxes > 3
    support.assert_same_bits(load("y" + into, dtype), want)
    volumes.grad("dy" + out_of, "dx" + into, SHAPE, threads=2, chunks=chunks, **ARGUMENTS)
    support.assert_same_bits(load("dx" + into, dtype), wanted)
    assert not [path for path in Path().iterdir() if path.name.startswith(".")]


@given(data=st.data(), pool=support.pools(most_axes=3), seed=support.seeds, forwards=st.booleans())
def test_any_boxes_have_the_bits_of_one_call(data: Any, pool: Any, seed: int, forwards: bool) -> None:
    """Every element of the result once, from the source that is named; no more of it than the plan said."""
    layout = data.draw(support.layouts(len(pool.axes)))
    source = support.random_array(seed, support.source_shape(pool, layout, 2, 3, forwards=forwards), np.dtype(np.float32))
    run = poolgrad.forward if forwards else poolgrad.gradient
    whole = run(pool, source, layout=layout)
    extents = tuple(data.draw(st.integers(1, n + 1)) for n in whole.shape)
    made, times = np.empty_like(whole), np.zeros(whole.shape, int)
    axes: list[Axis | None] = [None] * whole.ndim
    for position, axis in zip(spatial_positions(layout, whole.ndim), pool.axes, strict=True):
        axes[position] = axis
    planned = [plan.axis_reads(a, n, e, 1, forwards=forwards) for a, n, e in zip(axes, whole.shape, extents, strict=True)]
    for box in store.cut(whole.shape, extents):
        region, part = plan.needed(pool, layout, box, forwards=forwards)
        assert all(p.stop - p.start <= most for p, (_, most) in zip(part, planned, strict=True))
        made[box] = run(pool, source[part].copy(), layout=layout, region=region)
        times[box] += 1
    assert (times == 1).all()
    support.assert_same_bits(made, whole)


@given(
    size=st.integers(1, 60),
    window=st.integers(1, 9),
    stride=st.integers(1, 5),
    extent=st.integers(1, 70),
    chunk=st.integers(1, 9),
    forwards=st.booleans(),
)
def test_reads_are_counted_in_whole_chunks(size: int, window: int, stride: int, extent: int, chunk: int, forwards: bool) -> None:
    axis = Axis.regular(size, window, stride=stride, padding="same")
    pool, length = Pool((axis,)), axis.cells if forwards else size
    read = 0
    for (box,) in store.cut((length,), (extent,)):
        (part,) = (pool.inputs_for if forwards else pool.cells_for)([box])
        end = size if forwards else axis.cells
        read += sum(min(k + chunk, end) - k for k in range(0, end, chunk) if k < part.stop and k + chunk > part.start)
    assert plan.axis_reads(axis, length, extent, chunk, forwards=forwards)[0] == read


@given(data=st.data())
def test_parts_of_a_box_in_chunks(data: Any) -> None:
    shape = data.draw(st.lists(st.integers(1, 9), min_size=1, max_size=3))
    chunks = tuple(data.draw(st.integers(1, 10)) for _ in shape)
    edges = [sorted(data.draw(st.tuples(st.integers(0, n), st.integers(0, n)))) for n in shape]
    box = tuple(slice(a, b) for a, b in edges)
    whole = np.arange(prod(shape)).reshape(shape)
    made = np.full([b - a for a, b in edges], -1)
    for where, inner in store.within(box, chunks):
        assert all(p.start // c == (p.stop - 1) // c for p, c in zip(where, chunks, strict=True))
        made[inner] = whole[where]
    assert (made == whole[box]).all()
    raw, out = whole.reshape(-1), np.full(made.shape, -1)
    if out.size:
        for offset, index in store.runs(tuple(shape), box, 8):
            run = out[index]
            run[...] = raw[offset // 8 : offset // 8 + run.size].reshape(run.shape)
    assert (out == whole[box]).all()


def test_forms_of_zarr() -> None:
    """Version 2, shards, compression, either byte order, missing chunks and fill values, arrays in groups."""
    dy = support.random_array(5, (9, 10, 13), np.dtype(np.float32))
    dy[:4, :5] = 2.5
    want = poolgrad.avg_pool_grad(dy, (18, 20, 26), 2, layout="DHW")
    group = zarr.open_group("group.zarr", mode="w")
    forms: dict[str, dict[str, Any]] = {
        "v2.zarr": {"zarr_format": 2, "chunks": (4, 5, 6)},
        "v2 big.zarr": {"zarr_format": 2, "chunks": (4, 5, 6), "order": "F", "dtype": ">f4"},
        "shards.zarr": {"chunks": (2, 5, 3), "shards": (4, 10, 6), "dimension_names": ("z", "y", "x")},
        "big.zarr": {"chunks": (4, 5, 6), "serializer": zarr.codecs.BytesCodec(endian="big"), "compressors": None},
        "filled.zarr": {"chunks": (4, 5, 13), "fill_value": 2.5, "config": {"write_empty_chunks": False}},
        "raw.zarr": {"chunks": (4, 5, 13), "fill_value": 2.5, "compressors": None, "config": {"write_empty_chunks": False}},
        "turned.zarr": {"chunks": (4, 5, 6), "filters": (zarr.codecs.TransposeCodec(order=(2, 0, 1)),)},
    }
    for name, form in forms.items():
        typed = dy.astype(form.pop("dtype", "<f4"))
        zarr.create_array(name, data=typed, **form)
        volumes.grad(name, "dx.zarr", (18, 20, 26), window=2, layout="DHW")
        made = zarr.open_array("dx.zarr", mode="r")
        assert made.metadata.zarr_format == 3
        support.assert_same_bits(made[...], want, name)
        if name == "shards.zarr":
            assert (made.chunks, made.shards) != (None, None)
            assert made.metadata.dimension_names == ("z", "y", "x")
            assert made.compressors
    assert not (Path("filled.zarr") / "c/0/0/0").exists()
    assert not (Path("raw.zarr") / "c/0/0/0").exists()
    group.create_array("a/b", data=dy, chunks=(5, 5, 5))
    for source, key in (("group.zarr", "a/b"), ("group.zarr/a/b", None), ("group.zarr/a", "b")):
        volumes.grad(source, "group.zarr/a/dx", (18, 20, 26), window=2, layout="DHW", key=key)
        support.assert_same_bits(zarr.open_group("group.zarr")["a/dx"][...], want, source)
    assert sorted(path.name for path in Path("group.zarr/a").iterdir()) == ["b", "dx", "zarr.json"]


def test_a_shard_is_written_whole() -> None:
    dy = support.random_array(5, (16, 24, 20), np.dtype(np.float64))
    zarr.create_array("dy.zarr", data=dy, chunks=(2, 4, 5), shards=(8, 8, 10))
    volumes.grad("dy.zarr", "dx.zarr", (32, 48, 40), window=2, layout="DHW", chunks=(4, 8, 10))
    made = zarr.open_array("dx.zarr")
    assert (made.chunks, made.shards) == ((4, 8, 10), (16, 16, 20))
    support.assert_same_bits(made[...], poolgrad.avg_pool_grad(dy, (32, 48, 40), 2, layout="DHW"))


class Shaped:
    """What the choice of chunks looks at."""

    def __init__(self, shape: tuple[int, ...], chunks: tuple[int, ...] | None) -> None:
        self.shape, self.chunks, self.shards, self.dtype = shape, chunks, None, np.dtype(np.float32)


@pytest.mark.parametrize(
    ("source", "chunks", "result", "expected"),
    [
        ((1024, 1024, 512), (128, 128, 128), (2048, 2048, 1024), (256, 256, 256)),
        ((2048, 2048, 1024), (256, 256, 256), (1024, 1024, 512), (128, 128, 128)),
        ((512, 512, 512), (256, 256, 256), (1024, 1024, 1024), (256, 256, 256)),
        ((7, 100, 100), (1, 10, 10), (7, 200, 200), (7, 200, 200)),
        ((5, 6), None, (10, 12), (10, 12)),
        ((1024, 1024, 1024), None, (2048, 2048, 2048), (256, 256, 256)),
        ((0, 6), (1, 3), (0, 12), (1, 12)),
    ],
)
def test_chunks_of_a_result(source: Any, chunks: Any, result: Any, expected: Any) -> None:
    assert stores._scaled(Shaped(source, chunks), result) == expected


def test_empty_results_and_single_cells() -> None:
    for kind in KINDS:
        np.save("x.npy", np.zeros((0, 6, 8, 5), np.float32))
        assert volumes.pool("x.npy", "y" + kind, window=2).boxes == 0
        assert load("y" + kind, np.dtype(np.float32)).shape == (0, 3, 4, 5)
    np.save("x.npy", np.array([3.0]))
    volumes.pool("x.npy", "y.zarr", window=1, layout="L")
    assert zarr.open_array("y.zarr")[...].tolist() == [3.0]


class Faked:
    """Stores that the plan looks at."""

    def __init__(self, shape: tuple[int, ...], chunks: tuple[int, ...] | None, extra: int = 0, in_order: bool = False) -> None:
        self.shape, self.chunks, self.extra, self.in_order = shape, chunks, extra, in_order
        self.dtype, self.copies = np.dtype(np.float32), 0


def planned(source: Faked, target: Faked, pool: Pool, memory: int, cores: int = 2) -> plan.Plan:
    stores: Any = (source, target)
    return plan.plan(pool, "DHW", *stores, target.shape, forwards=False, memory=memory, base=0, cores=cores)


def test_boxes_are_whole_chunks_and_keep_to_the_ceiling() -> None:
    pool = Pool(tuple(Axis.regular(n, 3, stride=2, padding="same") for n in (2048, 2048, 1024)))
    source, target = Faked((1024, 1024, 512), (64, 64, 64)), Faked((2048, 2048, 1024), (128, 128, 128))
    before = 10**18
    for memory in (64 << 20, 256 << 20, 1 << 30, 4 << 30):
        found = planned(source, target, pool, memory)
        assert all(e % c == 0 for e, c in zip(found.extents, target.chunks or (), strict=True))
        held = found.workers * (found.source_bytes + found.result_bytes)
        assert held <= memory
        assert found.reads <= before
        before = found.reads
    assert found.workers == 2


def test_aligned_chunks_are_read_once_and_files_in_long_runs() -> None:
    pool = Pool(tuple(Axis.regular(n, 2) for n in (2048, 2048, 1024)))
    aligned = planned(Faked((1024, 1024, 512), (64,) * 3), Faked((2048, 2048, 1024), (128,) * 3), pool, 1 << 30)
    assert aligned.reads == 1024 * 1024 * 512 * 4
    flat = planned(Faked((1024, 1024, 512), None), Faked((2048, 2048, 1024), None), pool, 1 << 30)
    assert flat.extents[1:] == (2048, 1024)
    mixed = planned(Faked((1024, 1024, 512), None), Faked((2048, 2048, 1024), (128,) * 3), pool, 1 << 30)
    assert mixed.extents[2] == 1024


def test_a_ceiling_that_is_too_low_names_one_that_is_not() -> None:
    pool = Pool(tuple(Axis.regular(1024, 2) for _ in range(3)))
    source, target = Faked((512,) * 3, (128,) * 3, extra=3 * 2**23), Faked((1024,) * 3, (256,) * 3, extra=2**27)
    with pytest.raises(PoolGradMemoryError, match=r"at least (\d+)MiB, or smaller chunks") as refusal:
        planned(source, target, pool, 100 << 20)
    least = int(str(refusal.value).split("at least ")[1].split("MiB")[0]) << 20
    assert planned(source, target, pool, least).workers == 1
    with pytest.raises(PoolGradMemoryError):
        planned(source, target, pool, least - (2 << 20))


def test_many_axes_do_not_make_many_candidates() -> None:
    shape = (200,) * 8
    pool = Pool(tuple(Axis.regular(200, 2) for _ in range(8)))
    for chunks in (None, (16,) * 8):
        source, target = Faked((100,) * 8, chunks), Faked(shape, chunks)
        assert len(list(plan._candidates(shape, target, 4))) < 2000  # type: ignore[arg-type]
        stores: Any = (source, target)
        found = plan.plan(pool, "01234567", *stores, shape, forwards=False, memory=1 << 40, base=0, cores=2)
        assert found.extents


@pytest.mark.parametrize("size", ["", "1", "GiB", "-1GiB", "1XiB", "0GiB", "1e3", "1" * 99 + "GiB", "nan"])
def test_sizes(size: str) -> None:
    if size == "1":
        assert volumes.as_bytes("memory", size) == 1
        return
    with pytest.raises(PoolGradValueError, match="memory must be a size such as"):
        volumes.as_bytes("memory", size)


def test_places_that_are_refused() -> None:
    dy = save("dy.zarr", support.random_array(1, (4, 6), np.dtype(np.float32)), (2, 3))
    shutil.copytree(dy, "group.zarr/inner")
    zarr.open_group("group.zarr", mode="a")
    Path("plain.zarr").mkdir()
    Path("plain.zarr/keep").write_text("mine")
    Path("file.zarr").write_text("mine")
    Path("link.zarr").symlink_to("dy.zarr")
    Path("damaged.zarr").mkdir()
    Path("damaged.zarr/zarr.json").write_text("{")
    cases = [
        ("dy.zarr", "is the input itself"),
        ("link.zarr", "is the input itself"),
        ("dy.zarr/dx", "lies inside the input"),
        ("group.zarr", "is not a Zarr array; it is left alone"),
        ("plain.zarr", "is not a Zarr array; it is left alone"),
        ("file.zarr", "is not a Zarr array; it is left alone"),
        ("damaged.zarr", "not the metadata of a Zarr array"),
        ("plain.zarr/dx", "is not a Zarr group"),
        ("no/such/dx.zarr", "there is no folder"),
        ("dx.tif", "must end in"),
        ("s3://bucket/dx.zarr", "must be a local file or folder"),
        ("https://example.org/dx.zarr", "must be a local file or folder"),
    ]
    for output, reason in cases:
        with pytest.raises(PoolGradValueError, match=reason):
            volumes.grad(dy, output, (8, 12), window=2, layout="HW")
    with pytest.raises(PoolGradValueError, match="inside it"):
        volumes.grad("group.zarr/inner", "group.zarr", (8, 12), window=2, layout="HW")
    assert Path("plain.zarr/keep").read_text() == Path("file.zarr").read_text() == "mine"
    sources = [
        ("group.zarr", None, r"is a Zarr group \(holding inner\): choose an array with --key"),
        ("group.zarr", "other", "has no array 'other'; it holds inner"),
        ("group.zarr", "../dy.zarr", "must be the path of an array inside"),
        ("plain.zarr", None, "neither zarr.json nor .zarray"),
        ("damaged.zarr", None, "not the metadata"),
        ("file.zarr", None, "is a file"),
        ("nothing.zarr", None, "does not exist"),
        ("https://example.org/dy.zarr", None, "must be a local file or folder"),
    ]
    for source, key, reason in sources:
        with pytest.raises(PoolGradValueError, match=reason):
            volumes.grad(source, "dx.zarr", (8, 12), key=key, window=2, layout="HW")
    assert not Path("dx.zarr").exists()
    assert not list(Path().glob(".*"))


def test_arguments_that_are_refused() -> None:
    np.save("x.npy", np.zeros((6, 9), np.float32))
    good: dict[str, Any] = {"window": 2, "layout": "HW"}
    for wrong, reason in [
        ({"chunks": (2,)}, "one extent per axis"),
        ({"chunks": (0, 2)}, "at least 1"),
        ({"memory": "much"}, "memory must be a size"),
        ({"memory": 1000}, "at least"),
        ({"threads": 0}, "threads must be at least 1"),
        ({"restart": "yes"}, "restart must be True or False"),
        ({"colour": "red"}, "colour"),
    ]:
        with pytest.raises(PoolGradError, match=reason):
            volumes.pool("x.npy", "y.zarr", **{**good, **wrong})
    with pytest.raises(PoolGradValueError, match="has no chunks"):
        volumes.pool("x.npy", "y.npy", chunks=(2, 2), **good)
    with pytest.raises(PoolGradValueError, match=r"dy must have shape \(2, 2\)"):
        volumes.grad("x.npy", "y.npy", (4, 4), **good)
    assert sorted(path.name for path in Path().iterdir()) == ["x.npy"]


HOSTILE: dict[str, dict[str, Any]] = {
    "whole numbers": {"data_type": "int32", "fill_value": 0},
    "no chunks": {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [0, 3]}}},
    "unknown grid": {"chunk_grid": {"name": "odd"}},
    "unknown codec": {"codecs": [{"name": "magic"}]},
    "unknown type": {"data_type": "float12"},
    "negative": {"shape": [-4, 6]},
    "text": {"shape": "large"},
    "other rank": {"shape": [4, 6, 2]},
    "huge": {"shape": [2**60, 2**60]},
    "a group": {"node_type": "group"},
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_metadata(name: str) -> None:
    save("dy.zarr", support.random_array(1, (4, 6), np.dtype(np.float32)), (2, 3))
    relabel(Path("dy.zarr"), **HOSTILE[name])
    with pytest.raises(PoolGradError):
        volumes.grad("dy.zarr", "dx.zarr", (8, 12), window=2, layout="HW")
    assert not Path("dx.zarr").exists()


def test_damaged_chunks_and_files_are_named() -> None:
    dy = save("dy.zarr", support.random_array(1, (4, 6), np.dtype(np.float32)), (2, 3))
    chunk = Path(dy) / "c/1/0"
    chunk.write_bytes(chunk.read_bytes()[:9])
    with pytest.raises(volumes.StoreError, match=r"dy.zarr\[2:4, 0:3\] cannot be read"):
        volumes.grad(dy, "dx.zarr", (8, 12), window=2, layout="HW")
    raw = save("raw.zarr", support.random_array(1, (4, 6), np.dtype(np.float32)), (2, 3), compressors=None)
    os.truncate(Path(raw) / "c/1/0", 9)
    with pytest.raises(volumes.StoreError, match=r"raw.zarr/c/1/0 has 9 bytes, where a chunk has 24"):
        volumes.grad(raw, "dx.zarr", (8, 12), window=2, layout="HW")
    with h5py.File("two.h5", "w") as file:
        file["a"], file["b"] = np.zeros((4, 6), np.float32), np.zeros((4, 6))
        file["empty"] = h5py.Empty("f4")
    with pytest.raises(PoolGradValueError, match=r"holds 3 arrays \(a, b, empty\)"):
        volumes.grad("two.h5", "dx.h5", (8, 12), window=2, layout="HW")
    with pytest.raises(PoolGradValueError, match="null dataspace"):
        volumes.grad("two.h5", "dx.h5", (8, 12), key="empty", window=2, layout="HW")
    with pytest.raises(PoolGradValueError, match="no array 'c'"):
        volumes.grad("two.h5", "dx.h5", (8, 12), key="c", window=2, layout="HW")
    assert volumes.grad("two.h5", "dx.h5", (8, 12), key="b", window=2, layout="HW").dtype == "float64"
    Path("text.h5").write_text("not HDF5")
    with pytest.raises(PoolGradValueError, match="not a readable HDF5 file"):
        volumes.grad("text.h5", "dx.h5", (8, 12), window=2, layout="HW")
    assert not list(Path().glob(".*"))


def test_what_a_packages_absence_says(monkeypatch: pytest.MonkeyPatch) -> None:
    save("dy.zarr", support.random_array(1, (4, 6), np.dtype(np.float32)), (2, 3))
    monkeypatch.setitem(__import__("sys").modules, "zarr", None)
    with pytest.raises(PoolGradValueError, match=r"needs zarr .*pip install 'poolgrad\[volumes\]'"):
        volumes.open_source("dy.zarr")


def test_more_workers_never_make_boxes_so_small_that_all_is_read_again() -> None:
    """A machine of many cores under a low ceiling: fewer workers, not slivers."""
    pool = Pool(tuple(Axis.regular(n, 2) for n in (2048, 2048, 1024)))
    source, target = Faked((1024, 1024, 512), (64,) * 3), Faked((2048, 2048, 1024), None)
    alone = planned(source, target, pool, 512 << 20, cores=1)
    many = planned(source, target, pool, 512 << 20, cores=1000)
    written = 2048 * 2048 * 1024 * 4
    assert many.reads + written <= 1.5 * (alone.reads + written)
    assert many.workers > 1
    aligned = planned(source, Faked((2048, 2048, 1024), (128,) * 3), pool, 2 << 30, cores=16)
    assert (aligned.workers, aligned.reads) == (16, prod(source.shape) * 4)


def test_long_axes_are_compared_in_little_memory() -> None:
    """The tables that boxes are compared by do not grow with an axis that is not pooled."""
    pool = Pool((Axis.regular(4, 2),))
    for target in (Faked((10**9, 4), None), Faked((10**9, 4), (1, 4))):
        stores: Any = (Faked((10**9, 2), None), target)
        tracemalloc.start()
        found = plan.plan(pool, "NL", *stores, target.shape, forwards=False, memory=1 << 28, base=0, cores=2)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert most < 32 << 20
        assert found.workers * (found.source_bytes + found.result_bytes) <= 1 << 28
