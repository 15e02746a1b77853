"""Names, links and files that are not what they seem: refused or served, never a traceback, never wrong in silence."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support
from support import Array

pytest.importorskip("zarr")
pytest.importorskip("h5py")

import h5py
import zarr

import poolgrad
from poolgrad import PoolGradMemoryError, PoolGradValueError, volumes
from poolgrad.volumes import flat, run, store

HOW: dict[str, Any] = {"window": 2, "layout": "HW"}
SHAPE = (8, 12)


@pytest.fixture(autouse=True)
def dy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Array:
    """An array in dy.npy, here."""
    monkeypatch.chdir(tmp_path)
    made = support.random_array(1, (4, 6), np.dtype(np.float32))
    np.save("dy.npy", made)
    return made


def wanted(dy: Array) -> Array:
    return poolgrad.avg_pool_grad(dy, SHAPE, **HOW)


def hidden() -> list[str]:
    return sorted(path.name for path in Path().iterdir() if path.name.startswith("."))


def test_the_kind_is_that_of_the_name_as_typed(dy: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever a link leads, and whatever the folder we are in is called."""
    Path("blob").write_text("older")
    Path("link.npy").symlink_to("blob")
    volumes.grad("dy.npy", "link.npy", SHAPE, **HOW)
    support.assert_same_bits(np.load("blob"), wanted(dy))
    assert Path("link.npy").is_symlink()
    Path("folder.zarr").mkdir()
    monkeypatch.chdir("folder.zarr")
    volumes.grad("../dy.npy", "dx.npy", SHAPE, **HOW)
    support.assert_same_bits(np.load("dx.npy"), wanted(dy))


@pytest.mark.parametrize("name", ["ü [bold] 日本 'x'", "-o", "a" * 200])
@pytest.mark.parametrize("kind", [".npy", ".zarr", ".h5", ".npz"])
def test_odd_names(dy: Array, name: str, kind: str) -> None:
    volumes.grad("dy.npy", name + kind, SHAPE, **HOW)
    opened = volumes.open_source(name + kind)
    made = np.empty(SHAPE, np.float32)
    opened.read((slice(0, 8), slice(0, 12)), made)
    opened.close()
    support.assert_same_bits(made, wanted(dy))
    assert hidden() == []


def test_a_name_without_room_for_a_journal() -> None:
    with pytest.raises(PoolGradValueError, match="too long to have a journal"):
        volumes.grad("dy.npy", "a" * 248 + ".npy", SHAPE, **HOW)


@pytest.mark.parametrize("sizes", [[10**9, 10**9], [2**64, 3], [10**200, 10**200]], ids=["2^60", "2^64", "10^400"])
@pytest.mark.parametrize("into", ["dx.npy", "dx.zarr"])
def test_chunks_beyond_every_machine(dy: Array, sizes: list[int], into: str) -> None:
    zarr.create_array("dy.zarr", data=dy, chunks=(2, 3), compressors=None)
    said = json.loads(Path("dy.zarr/zarr.json").read_text())
    said["chunk_grid"]["configuration"]["chunk_shape"] = sizes
    Path("dy.zarr/zarr.json").write_text(json.dumps(said))
    with pytest.raises(PoolGradValueError, match=r"chunks .* cannot be served"):
        volumes.grad("dy.zarr", into, SHAPE, **HOW)
    assert hidden() == []


def test_a_dataset_beyond_every_machine() -> None:
    with h5py.File("huge.h5", "w") as file:
        file.create_dataset("d", (2**61, 4), "f4", chunks=(4, 4))
    with pytest.raises(PoolGradValueError, match=r"shape .* cannot be served"):
        volumes.pool("huge.h5", "y.zarr", window=2, layout="NL")


def test_folders_that_lead_back_into_themselves(dy: Array) -> None:
    zarr.create_array("dy.zarr", data=dy, chunks=(2, 3), compressors=None)
    for name in "abdefgh":
        Path("dy.zarr", name).symlink_to(".")
        Path("dy.zarr/c", name).symlink_to("..")
    volumes.grad("dy.zarr", "dx.npy", SHAPE, **HOW)
    support.assert_same_bits(np.load("dx.npy"), wanted(dy))
    opened = volumes.open_source("dy.zarr")
    before = opened.state()
    os.utime("dy.zarr/c/1/1", ns=(1, 1))
    assert opened.state() != before


def test_chunks_behind_links_count_as_the_source(dy: Array) -> None:
    zarr.create_array("dy.zarr", data=dy, chunks=(2, 3), compressors=None)
    Path("dy.zarr/c").rename("elsewhere")
    Path("dy.zarr/c").symlink_to("../elsewhere")
    opened = volumes.open_source("dy.zarr")
    before = opened.state()
    volumes.grad("dy.zarr", "dx.npy", SHAPE, **HOW)
    support.assert_same_bits(np.load("dx.npy"), wanted(dy))
    os.utime("elsewhere/1/1", ns=(1, 1))
    assert opened.state() != before


def view_of(path: str, name: str) -> None:
    """view.h5: the first rows of `name` in one file, the others in another."""
    layout = h5py.VirtualLayout((4, 6), "f4")
    layout[:2] = h5py.VirtualSource("one.h5", "q", (4, 6))[:2]
    layout[2:] = h5py.VirtualSource(path, name, (4, 6))[2:]
    with h5py.File("view.h5", "w") as file:
        file.create_virtual_dataset("v", layout)


def test_views_and_links_of_hdf5(dy: Array) -> None:
    for name in ("one.h5", "two.h5"):
        with h5py.File(name, "w") as file:
            file["q"] = dy
    with h5py.File("link.h5", "w") as file:
        file["there"] = h5py.ExternalLink("two.h5", "q")
        file["round"] = h5py.SoftLink("/round")
        file["nowhere"] = h5py.SoftLink("/no/such")
    view_of("two.h5", "q")
    for time, (source, key) in enumerate([("view.h5", None), ("link.h5", "there")]):
        volumes.grad(source, "dx.npy", SHAPE, key=key, **HOW)
        support.assert_same_bits(np.load("dx.npy"), wanted(dy))
        opened = volumes.open_source(source, key)
        before = opened.state()
        os.utime("two.h5", ns=(1, time))
        assert opened.state() != before, "a change of the file behind it is a change of the source"
        opened.close()
    for key in ("round", "nowhere"):
        with pytest.raises(PoolGradValueError):
            volumes.open_source("link.h5", key)


@pytest.mark.parametrize(("path", "name"), [("gone.h5", "q"), ("one.h5", "gone")])
def test_a_view_of_what_is_not_there(dy: Array, path: str, name: str) -> None:
    """HDF5 would read zeros."""
    with h5py.File("one.h5", "w") as file:
        file["q"] = dy
    view_of(path, name)
    with pytest.raises(PoolGradValueError, match=f"is a view of {name} of {path}, which is not there"):
        volumes.grad("view.h5", "dx.npy", SHAPE, **HOW)


def test_raw_files_outside_hdf5() -> None:
    Path("secret").write_bytes(b"A" * 40)
    with h5py.File("raw.h5", "w") as file:
        file.create_dataset("x", (4, 6), "f4", external=[("secret", 0, 96)])
    with pytest.raises(PoolGradValueError, match="raw files outside HDF5"):
        volumes.grad("raw.h5", "dx.npy", SHAPE, **HOW)


def test_chunks_of_hdf5_are_found_in_one_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for each by its number makes the library count from the first one every time."""
    np.save("wide.npy", support.random_array(1, (40, 60), np.dtype(np.float32)))
    asked: list[str] = []

    class Watched:
        def __init__(self, id: Any) -> None:
            self._id = id

        def __getattr__(self, name: str) -> Any:
            asked.append(name)
            return getattr(self._id, name)

    monkeypatch.setattr(h5py.Dataset, "id", property(lambda self: Watched(self._id)))
    volumes.grad("wide.npy", "dx.h5", (80, 120), chunks=(2, 2), **HOW)
    assert 0 < sum("chunk" in name for name in asked) < 10


@pytest.mark.parametrize("text", ["notes without an end of line", "{", '{"other": 1'])
def test_a_file_that_has_the_journals_name_is_left_alone(text: str) -> None:
    Path(".dx.npy.journal").write_text(text)
    if text == "{":  # may be the beginning of one
        volumes.grad("dy.npy", "dx.npy", SHAPE, **HOW)
        return
    with pytest.raises(PoolGradValueError, match="remove it to begin anew"):
        volumes.grad("dy.npy", "dx.npy", SHAPE, **HOW)
    assert Path(".dx.npy.journal").read_text() == text


def test_a_journal_that_a_crash_of_the_machine_emptied(dy: Array) -> None:
    Path(".dx.npy.journal").write_bytes(bytes(300))
    volumes.grad("dy.npy", "dx.npy", SHAPE, **HOW)
    support.assert_same_bits(np.load("dx.npy"), wanted(dy))
    assert hidden() == []


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="needs a system that can refuse links")
def test_a_link_with_the_journals_name_is_not_followed() -> None:
    Path("mine").write_text("line\nand a half")
    Path(".dx.npy.journal").symlink_to("mine")
    with pytest.raises(volumes.StoreError, match="cannot be written"):
        volumes.grad("dy.npy", "dx.npy", SHAPE, restart=True, **HOW)
    assert Path("mine").read_text() == "line\nand a half"


def test_a_restart_that_is_refused_keeps_the_journal_of_the_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a part of any size would lie there with nothing that names it."""
    monkeypatch.setattr(run, "WORTH_KEEPING", 0)

    def enough(done: int, size: int) -> None:
        if done:
            raise RuntimeError("enough")

    with pytest.raises(RuntimeError):
        volumes.grad("dy.npy", "dx.zarr", SHAPE, chunks=(2, 12), progress=enough, **HOW)
    assert hidden() == [".dx.zarr.journal", ".dx.zarr.part"]
    with pytest.raises(PoolGradMemoryError):
        volumes.grad("dy.npy", "dx.zarr", SHAPE, chunks=(2, 12), restart=True, memory=1, **HOW)
    assert hidden() == [".dx.zarr.journal", ".dx.zarr.part"]
    volumes.grad("dy.npy", "dx.zarr", SHAPE, chunks=(2, 12), **HOW)
    assert hidden() == []


def test_an_error_of_the_source_names_the_source(dy: Array, monkeypatch: pytest.MonkeyPatch) -> None:
    zarr.create_array("dy.zarr", data=dy, chunks=(2, 3), compressors=None)

    def failing(self: Any, view: memoryview, offset: int) -> int:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(store.Positions, "_read", failing)
    for source in ("dy.zarr", "dy.npy"):
        with pytest.raises(volumes.StoreError, match=f"^{source}.* cannot be read: Input/output error"):
            volumes.grad(source, "dx.h5", SHAPE, **HOW)


def test_an_archive_is_measured_before_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez_compressed("dy.npz", np.zeros((256, 512, 512), np.float32))

    def never(*args: Any, **more: Any) -> None:
        raise AssertionError("read before it was measured")

    monkeypatch.setattr(flat.np.lib.format, "read_array", never)
    with pytest.raises(PoolGradMemoryError, match="at least"):
        volumes.pool("dy.npz", "y.npy", window=2, layout="DHW", memory="300MiB")


def test_scalars_and_single_axes() -> None:
    np.save("s.npy", np.float32(3))
    with pytest.raises(PoolGradValueError, match="layout"):
        volumes.pool("s.npy", "y.npy", window=1, layout="L")
    zarr.create_array("s.zarr", shape=(), dtype="f4")
    with pytest.raises(PoolGradValueError, match="cannot be served"):
        volumes.pool("s.zarr", "y.npy", window=1, layout="L")
    x = np.asfortranarray(support.random_array(2, (2, 5, 6, 7, 3), np.dtype(np.float64))).astype(">f8", order="F")
    np.save("x.npy", x)
    volumes.pool("x.npy", "y.h5", window=2, chunks=(99,) * 5)
    with h5py.File("y.h5") as file:
        support.assert_same_bits(file["y"][...], poolgrad.avg_pool(x.astype("f8", order="C"), 2))
    zarr.create_array("wide.zarr", data=x, chunks=(5, 6, 7, 8, 9), compressors=None)
    volumes.pool("wide.zarr", "y.zarr", window=2)
    support.assert_same_bits(zarr.open_array("y.zarr")[...], poolgrad.avg_pool(x.astype("f8", order="C"), 2))
