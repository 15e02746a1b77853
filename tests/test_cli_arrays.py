"""`poolgrad grad` and `poolgrad pool`: from file to file the bits of the functions, however the files lie and the work is cut."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import support
from hypothesis import given
from hypothesis import strategies as st
from support import Array

pytest.importorskip("typer")
pytest.importorskip("rich")

import poolgrad
from poolgrad import PoolGradError
from poolgrad.call import Call
from poolgrad.cli import main
from poolgrad.volumes import open_source, plan, run, store


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def random(shape: tuple[int, ...], dtype: Any = np.float32) -> Array:
    return support.random_array(5, shape, np.dtype(dtype))


def saved(name: str, array: Array) -> Array:
    np.save(name, array)
    return array


def cut_small(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Boxes of at most so many bytes, whatever a plan would choose."""

    def candidates(shape: tuple[int, ...], target: Any, item: int) -> list[tuple[int, ...]]:
        return list(plan._in_order(shape, max(1, most // item)))[:1]

    monkeypatch.setattr(plan, "_candidates", candidates)


def good(*arguments: str) -> None:
    assert main(list(arguments)) == 0


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line that a refusal is."""
    assert main(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("poolgrad: ")
    assert said.err.count("\n") == 1
    assert not [name for name in os.listdir() if name.endswith((".part", ".journal"))]
    return said.err


SHAPE = (2, 12, 17, 3)
FORWARD = {
    "regular": (["--window", "3", "--stride", "2", "--padding", "same"], {"window": 3, "stride": 2, "padding": "same"}),
    "per axis": (
        ["--window", "3,2", "--stride", "2,3", "--padding", "(1,0),(0,1)", "--count", "padded", "--ceil-mode"],
        {"window": (3, 2), "stride": (2, 3), "padding": ((1, 0), (0, 1)), "count": "padded", "ceil_mode": True},
    ),
    "dilated": (
        ["--window", "2,3", "--stride", "1", "--dilation", "3,2", "--divisor", "5"],
        {"window": (2, 3), "stride": 1, "dilation": (3, 2), "divisor": 5},
    ),
    "window": (
        ["--window", "4", "--stride", "3", "--padding", "1,2", "--count", "window", "--layout", "CHWN"],
        {"window": 4, "stride": 3, "padding": (1, 2), "count": "window", "layout": "CHWN"},
    ),
}


@pytest.mark.parametrize("kind", FORWARD)
@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_options_are_the_functions_arguments(kind: str, dtype: np.dtype[Any]) -> None:
    options, arguments = FORWARD[kind]
    x = saved("x.npy", random(SHAPE, dtype))
    want = poolgrad.avg_pool(x, **arguments)
    good("pool", "x.npy", *options, "-o", "y.npy")
    support.assert_same_bits(np.load("y.npy").view(dtype), want)
    dy = saved("dy.npy", random(want.shape, dtype))
    good("grad", "dy.npy", "--input-shape", "2,12,17,3", *options, "--threads", "1", "-o", "dx.npy")
    support.assert_same_bits(np.load("dx.npy").view(dtype), poolgrad.avg_pool_grad(dy, SHAPE, **arguments))


def test_adaptive_and_fractional() -> None:
    x = saved("x.npy", random(SHAPE))
    good("pool", "x.npy", "--output-size", "5,None", "-o", "y.npy")
    support.assert_same_bits(np.load("y.npy"), poolgrad.adaptive_avg_pool(x, (5, None)))
    dy = saved("dy.npy", random((2, 5, 4, 3)))
    good("grad", "dy.npy", "--input-shape", "2,12,17,3", "--output-size", "5,4", "-o", "dx.npy")
    support.assert_same_bits(np.load("dx.npy"), poolgrad.adaptive_avg_pool_grad(dy, SHAPE))
    rows = [[0, 2, 5, 6, 9, 12], [0, 4, 8, 11, 17]]
    options = ["--sequence", "0,2,5,6,9,12", "--sequence", "0,4,8,11,17", "--overlapping"]
    good("pool", "x.npy", *options, "-o", "y.npy")
    support.assert_same_bits(np.load("y.npy"), poolgrad.fractional_avg_pool(x, rows, overlapping=True))
    good("grad", "dy.npy", "--input-shape", "2,12,17,3", *options, "-o", "dx.npy")
    support.assert_same_bits(np.load("dx.npy"), poolgrad.fractional_avg_pool_grad(dy, SHAPE, rows, overlapping=True))


DIALECTS = {
    "torch": (
        ["kernel_size=3,2", "stride=2", "padding=1", "ceil_mode=true"],
        {"padding": 1, "ceil_mode": True, "count": "padded"},
    ),
    "onnx": (["kernel_shape=3,2", "strides=2,2", "pads=1,0,0,1"], {"padding": ((1, 0), (0, 1))}),
    "tensorflow": (["ksize=1,1,3,2", "strides=1,1,2,2", "padding=SAME", "data_format=NCHW"], {"padding": "same"}),
    "directml": (
        ["WindowSize=3,2", "Strides=2,2", "StartPadding=1,0", "EndPadding=0,1", "IncludePadding=true"],
        {"padding": ((1, 0), (0, 1)), "count": "window"},
    ),
    "enuspace": (["ksize=1,1,3,2", "strides=1;1;2;2", "padding=SAME", "attrs=data_format_ = NCHW;"], {"padding": "same"}),
    "jax": (
        ["op=window_average", "window_dimensions=1,1,3,2", "window_strides=1,1,2,2", "padding=SAME"],
        {"padding": "same", "count": "window"},
    ),
    "keras": (["pool_size=3,2", "strides=2", "padding=same", "data_format=channels_first"], {"padding": "same"}),
    "poolgrad": (["window=3,2", "stride=2", "padding=same_lower", "layout=NCHW"], {"padding": "same_lower"}),
}


@pytest.mark.parametrize("name", DIALECTS)
def test_a_dialects_own_arguments(name: str) -> None:
    words, arguments = DIALECTS[name]
    x = saved("x.npy", random((2, 3, 11, 14)))
    want = poolgrad.avg_pool(x, (3, 2), stride=2, layout="NCHW", **arguments)
    good("pool", "x.npy", "--dialect", name, *words, "-o", "y.npy")
    support.assert_same_bits(np.load("y.npy"), want)
    dy = saved("dy.npy", random(want.shape))
    good("grad", "dy.npy", "--dialect", name, "--input-shape", "2,3,11,14", "-o", "dx.npy", *words)
    want = poolgrad.avg_pool_grad(dy, x.shape, (3, 2), stride=2, layout="NCHW", **arguments)
    support.assert_same_bits(np.load("dx.npy"), want)


ARRANGED = {
    "fortran": np.asfortranarray,
    "big-endian": lambda array: array.astype(array.dtype.newbyteorder(">")),
    "fortran big-endian": lambda array: np.asfortranarray(array.astype(array.dtype.newbyteorder(">"))),
}


@pytest.mark.parametrize("arranged", ARRANGED)
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("cut", [1 << 26, 64])
def test_any_order_of_elements_and_bytes(arranged: str, dtype: Any, cut: int, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_small(monkeypatch, cut)
    dy = random((2, 4, 6, 3), dtype)
    saved("dy.npy", ARRANGED[arranged](dy))
    np.savez("dy.npz", only=ARRANGED[arranged](dy))
    want = poolgrad.avg_pool_grad(dy, (2, 8, 17, 3), (2, 3), stride=(2, 3), padding="same")
    for name in ("dy.npy", "dy.npz"):
        good("grad", name, "--input-shape", "2,8,17,3", "--window", "2,3", "--stride", "2,3", "--padding", "same", "-o", "dx.npy")
        made = np.load("dx.npy")
        assert made.flags.c_contiguous
        support.assert_same_bits(made, want)


@given(data=st.data(), pool=support.pools(most_axes=3), seed=support.seeds, dtype=support.dtypes, forwards=st.booleans())
def test_boxes_have_the_bits_of_one_call(data: Any, pool: Any, seed: int, dtype: Any, forwards: bool) -> None:
    """Every element once, in order, from the part of the source that is named and nothing else."""
    layout = data.draw(support.layouts(len(pool.axes)))
    source = support.random_array(seed, support.source_shape(pool, layout, 2, 3, forwards=forwards), dtype, "special")
    run = poolgrad.forward if forwards else poolgrad.gradient
    whole = run(pool, source, layout=layout)
    most = data.draw(st.integers(1, whole.size + 2))
    parts = []
    for box in store.cut(whole.shape, data.draw(st.sampled_from(list(plan._in_order(whole.shape, most))))):
        region, needed = plan.needed(pool, layout, box, forwards=forwards)
        parts.append(run(pool, source[needed].copy(), layout=layout, region=region))
        assert parts[-1].size <= most
    flat = np.concatenate([part.reshape(-1) for part in parts]) if parts else np.empty(0, dtype)
    support.assert_same_bits(flat.reshape(whole.shape), whole)


def test_npz_in_and_out(capsys: pytest.CaptureFixture[str]) -> None:
    x, other = random((6, 7)), random((5, 4))
    np.savez_compressed("in.npz", x=x, other=other)
    assert "(x, other): choose one with --key" in refused(capsys, "pool", "in.npz", "--window", "2", "-o", "y.npz")
    assert "no array 'z'" in refused(capsys, "pool", "in.npz", "--key", "z", "--window", "2", "-o", "y.npz")
    good("pool", "in.npz", "--key", "other", "--window", "2", "-o", "y.npz")
    with np.load("y.npz") as made:
        assert made.files == ["y"]
        support.assert_same_bits(made["y"], poolgrad.avg_pool(other, 2, layout="HW"))
    first = Path("y.npz").read_bytes()
    good("pool", "in.npz", "--key", "other", "--window", "2", "-o", "y.npz")
    assert Path("y.npz").read_bytes() == first


def test_bfloat16_as_numpy_stores_it() -> None:
    x = saved("x.npy", random((9, 8), ml_dtypes.bfloat16))
    good("pool", "x.npy", "--window", "3,2", "-o", "y.npy")
    stored = np.load("y.npy")
    assert stored.dtype == np.dtype("V2")
    support.assert_same_bits(stored.view(ml_dtypes.bfloat16), poolgrad.avg_pool(x, (3, 2), layout="HW"))


def test_what_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    saved("x.npy", random((6, 9)))
    good("pool", "x.npy", "--window", "3", "-o", "y.npy")
    assert capsys.readouterr().out == "y.npy: float32 2×3, 24 bytes\n"
    good("pool", "x.npy", "--window", "3", "-o", "y.npy", "--json")
    said = json.loads(capsys.readouterr().out)
    assert said.pop("seconds") > 0
    assert said == {"output": "y.npy", "shape": [2, 3], "dtype": "float32", "bytes": 24, "boxes": 1, "resumed": 0, "reread": 1.0}


def test_only_what_is_asked_for_is_read() -> None:
    """A file of a tebibyte, all but the end of it a hole."""
    shape = (2**20, 2**18)
    Path("x.npy").write_bytes(npy(shape=shape))
    with open("x.npy", "r+b") as file:
        file.truncate(file.seek(0, os.SEEK_END) + 2**40 - 8)
        file.seek(0, os.SEEK_END)
        file.write(np.array([3, 5], np.float32).tobytes())
    source, out = open_source("x.npy"), np.empty((1, 2), np.float32)
    source.read((slice(2**20 - 1, 2**20), slice(2**18 - 2, 2**18)), out)
    source.close()
    assert out.tolist() == [[3, 5]]


def test_empty_arrays() -> None:
    saved("dy.npy", np.zeros((0, 3, 4, 5), np.float32))
    good("grad", "dy.npy", "--input-shape", "0,6,8,5", "--window", "2", "-o", "dx.npy")
    assert np.load("dx.npy").shape == (0, 6, 8, 5)


POOL = ("--window", "2", "-o", "y.npy")


def npy(**header: Any) -> bytes:
    """A .npy with this header and no data."""
    made = io.BytesIO()
    np.lib.format.write_array_header_1_0(made, {"descr": "<f4", "fortran_order": False, "shape": (4, 4), **header})
    return made.getvalue()


class Trap:
    def __reduce__(self) -> Any:
        return (Path.touch, (Path("sprung"),))


HOSTILE = {
    "nothing": b"",
    "text": b"1 2 3\n",
    "a pickle": pickle.dumps(Trap()),
    "cut short": npy(),
    "cut in the header": npy()[:40],
    "huge": npy(shape=(2**40, 2**20)),
    "overflow": npy(shape=(2**62, 2**62)),
    "negative": npy(shape=(-4, -4)),
    "no numbers": npy(shape=("a", 2)),
    "objects": npy(descr="|O"),
    "records": npy(descr=[("a", "<f4")], shape=(0,)),
    "code": npy(descr="__import__('os').abort()"),
    "whole numbers": npy(descr="<i4", shape=(0, 4)),
    "complex": npy(descr="<c8", shape=(0, 4)),
    "a deep header": b"\x93NUMPY\x02\x00" + (60_000).to_bytes(4, "little") + b"(" * 60_000,
    "a later version": b"\x93NUMPY\x09\x00" + npy()[8:],
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.npy").write_bytes(HOSTILE[name])
    refused(capsys, "pool", "x.npy", *POOL)
    with zipfile.ZipFile("x.npz", "w") as archive:
        archive.writestr("x.npy", HOSTILE[name])
    refused(capsys, "pool", "x.npz", *POOL)
    Path("bare.npz").write_bytes(HOSTILE[name])
    refused(capsys, "pool", "bare.npz", *POOL)
    assert not Path("sprung").exists()
    assert not Path("y.npy").exists()


def test_a_member_that_promises_more_than_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    for shape in ((2**26,), (3,)):
        with zipfile.ZipFile("x.npz", "w") as archive:
            archive.writestr("x.npy", npy(shape=shape) + bytes(16))
        assert f"float32 of shape {shape}" in refused(capsys, "pool", "x.npz", *POOL)
    zipfile.ZipFile("none.npz", "w").close()
    assert "holds no array" in refused(capsys, "pool", "none.npz", *POOL)


def test_a_scalar_has_no_axes(capsys: pytest.CaptureFixture[str]) -> None:
    saved("x.npy", np.array(3, np.float32))
    assert "rank 0" in refused(capsys, "pool", "x.npy", *POOL)


def test_pickled_objects_are_not_opened(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.array([Trap(), None], dtype=object), allow_pickle=True)
    np.savez("x.npz", x=np.array([Trap(), None], dtype=object))
    for name in ("x.npy", "x.npz"):
        assert "Python objects" in (said := refused(capsys, "pool", name, *POOL)) or "Object arrays" in said
    assert not Path("sprung").exists()


def test_damaged_headers_never_crash() -> None:
    rng = np.random.default_rng(8)
    whole = npy() + random((4, 4)).tobytes()
    compressed = io.BytesIO()
    np.savez_compressed(compressed, x=random((4, 4)))
    for name, plain, count in (("x.npy", whole, 128), ("x.npz", compressed.getvalue(), 400)):
        for _ in range(250):
            damaged = bytearray(plain)
            for at in rng.integers(0, min(count, len(damaged)), rng.integers(1, 4)):
                damaged[at] = rng.integers(256)
            Path(name).write_bytes(damaged)
            with contextlib.suppress(PoolGradError, OSError):
                open_source(name).close()


def test_places_that_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    saved("x.npy", random((6, 9)))
    before = Path("x.npy").read_bytes()
    Path("folder.npy").mkdir()
    Path("soft.npy").symlink_to("x.npy")
    os.link("x.npy", "hard.npy")
    for output, reason in [
        ("x.npy", "is the input itself"),
        ("soft.npy", "is the input itself"),
        ("hard.npy", "is the input itself"),
        ("folder.npy", "is a folder"),
        ("no/such/y.npy", "there is no folder"),
        ("y.txt", "must end in .npy or .npz"),
        ("y", "must end in .npy or .npz"),
    ]:
        assert reason in refused(capsys, "pool", "x.npy", "--window", "2", "-o", output)
    assert Path("x.npy").read_bytes() == before
    assert "files are .npy or .npz" in refused(capsys, "pool", __file__, *POOL)
    assert "--key names an array" in refused(capsys, "pool", "x.npy", "--key", "a", *POOL)


def test_output_through_a_link_keeps_the_link() -> None:
    x = saved("x.npy", random((6, 9)))
    Path("real.npy").write_bytes(b"old")
    Path("link.npy").symlink_to("real.npy")
    good("pool", "x.npy", "--window", "2", "-o", "link.npy")
    assert Path("link.npy").is_symlink()
    support.assert_same_bits(np.load("real.npy"), poolgrad.avg_pool(x, 2, layout="HW"))


@pytest.mark.parametrize(
    ("failure", "code"),
    [(KeyboardInterrupt(), 130), (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), 2), (MemoryError("no room"), 2)],
    ids=["interrupted", "full disk", "no memory"],
)
@pytest.mark.parametrize("output", ["y.npy", "y.npz"])
def test_a_failure_leaves_the_old_result(
    failure: BaseException, code: int, output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    saved("x.npy", random((6, 9)))
    Path(output).write_bytes(b"old")
    cut_small(monkeypatch, 8)
    calls = 0

    class Fails(Call):
        def __call__(self, *args: Any) -> Array:
            nonlocal calls
            calls += 1
            if calls == 3:
                raise failure
            return super().__call__(*args)

    monkeypatch.setattr(run, "Call", Fails)
    assert main(["pool", "x.npy", "--window", "2", "-o", output]) == code
    assert calls == 3
    assert Path(output).read_bytes() == b"old"
    assert sorted(os.listdir()) == ["x.npy", output]
    assert "Traceback" not in capsys.readouterr().err


def test_a_result_that_the_disk_cannot_hold(capsys: pytest.CaptureFixture[str]) -> None:
    saved("dy.npy", np.zeros((1, 1, 1, 1), np.float32))
    said = refused(capsys, "grad", "dy.npy", "--input-shape", f"1,{2**27},{2**27},1", "--output-size", "1", "-o", "dx.npy")
    assert "bytes; " in said
    assert "are free" in said


SAID_WRONG = {
    "no kind": ([], "one of --window, --output-size, --sequence or --dialect"),
    "two kinds": (["--window", "2", "--output-size", "3"], "one of --window"),
    "stray": (["--output-size", "2", "--stride", "2"], "stride"),
    "a word": (["--window", "two"], "window"),
    "an option with a dialect": (["--dialect", "torch", "--window", "2"], "--window is poolgrad's own"),
    "no dialect": (["kernel_size=2"], "say which with --dialect"),
    "unknown dialect": (["--dialect", "caffe", "k=2"], "'caffe'"),
    "no equals sign": (["--dialect", "torch", "kernel_size"], "NAME=VALUE"),
    "twice": (["--dialect", "torch", "kernel_size=2", "kernel_size=3"], "given twice"),
    "unknown argument": (["--dialect", "torch", "op=avg_pool1d", "kernel_size=2", "colour=red"], "colour"),
    "layout": (["--window", "2", "--layout", "NHWC"], "'NHWC'"),
    "padding": (["--window", "2", "--padding", "some"], "'some'"),
    "nested too deep": (["--window", "(" * 5000], "window"),
}


@pytest.mark.parametrize("name", SAID_WRONG)
def test_a_pooling_said_wrong(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    saved("x.npy", random((6, 9)))
    options, reason = SAID_WRONG[name]
    assert reason in refused(capsys, "pool", "x.npy", "-o", "y.npy", *options)


@pytest.mark.parametrize("shape", ["", "a,b", "2,12,17", "-2,12,17,3", "2,12.5,17,3", "2,15,17,3", "2,12,17,4", "1" * 400])
def test_an_input_shape_that_does_not_fit(shape: str, capsys: pytest.CaptureFixture[str]) -> None:
    saved("dy.npy", random((2, 4, 5, 3)))
    said = refused(capsys, "grad", "dy.npy", "--input-shape", shape, "--window", "3", "-o", "dx.npy")
    assert "shape" in said
