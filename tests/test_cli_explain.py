"""`poolgrad explain` and `poolgrad translate`: what a pooling is, in words, in JSON, in pictures, and in another dialect."""

from __future__ import annotations

import json
import shlex
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support
from hypothesis import given, settings

pytest.importorskip("typer")
pytest.importorskip("rich")

from cli_support import picture, refused, said

import poolgrad
from poolgrad import Axis, Pool, dialects
from poolgrad.cli.describe import described
from poolgrad.cli.options import as_value, named_values
from poolgrad.cli.translate import as_text


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@given(pool=support.pools(signed=False))
@settings(max_examples=60)
def test_the_description_is_the_pooling(pool: Pool) -> None:
    """The gradient rebuilt from the JSON's weights is the exact one."""
    axes = json.loads(json.dumps(described(pool)))["axes"]
    dy = support.random_array(3, pool.output_size, np.dtype(np.float64), "whole") * 2.0**20
    dx = np.zeros(pool.input_size)
    for at in product(*(range(n) for n in pool.input_size)):
        total = Fraction(0)
        for terms in product(*(axis["inputs"][i]["gets"] for axis, i in zip(axes, at, strict=True))):
            share = Fraction(1, pool.divisor or 1)
            for term in terms:
                share *= Fraction(term["weight"] or 1)
            total += share * int(dy[tuple(term["cell"] for term in terms)])
        dx[at] = total
    layout = "0123"[: len(pool.axes)]
    support.assert_same_bits(dx, poolgrad.exact.gradient(pool, dy, layout) + 0.0)
    for axis, table in zip(axes, pool.axes, strict=True):
        for cell in axis["cells"]:
            assert cell["divides_by"] == (None if pool.divisor else int(table.count[cell["cell"]]))


def test_explain_lists_every_window(capsys: pytest.CaptureFixture[str]) -> None:
    pooling = ["--input-shape", "5,4,6", "--layout", "DHW", "--window", "2,3,2", "--stride", "1,2,3", "--padding", "same"]
    text = said(capsys, "explain", *pooling)
    assert "20 windows\n" in text
    pool = Pool(tuple(Axis.regular(n, k, stride=s, padding="same") for n, k, s in ((5, 2, 1), (4, 3, 2), (6, 2, 3))))
    rows = [line for line in text.splitlines() if line.startswith("(")]
    assert len(rows) == np.prod(pool.output_size)
    last = rows[-1].replace(" ", "")
    divisor = int(np.prod([axis.count[-1] for axis in pool.axes]))
    assert last.startswith("(4,1,1)4")
    assert last.endswith(f"1/{divisor}·dy[4,1,1]") or divisor == 1
    many = ["--input-shape", "9,10", "--window", "1"]
    assert "90 windows; --all lists every one" in said(capsys, "explain", *many)
    assert said(capsys, "explain", *many, "--all").count("\n(") == 90


def test_explain_a_constant_divisor(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "explain", "--input-shape", "5,4", "--window", "2", "--divisor", "-7")
    assert "every window divides by -7" in text
    assert "-1/7·dy[1, 1]" in text


KINDS = {
    "one axis": ["--input-shape", "20", "--window", "5", "--stride", "2", "--padding", "same"],
    "same": ["--input-shape", "12,17", "--window", "3", "--stride", "2", "--padding", "same"],
    "adaptive": ["--input-shape", "9,14", "--output-size", "4,5"],
    "global": ["--input-shape", "7,7", "--output-size", "1"],
    "fractional": ["--input-shape", "8,5", "--sequence", "0,2,5,8", "--sequence", "0,2,4", "--overlapping"],
    "dilated": ["--input-shape", "10,13", "--window", "3,2", "--stride", "2,1", "--dilation", "2,3", "--padding", "1,0"],
    "volume": ["--input-shape", "6,9,7", "--layout", "DHW", "--window", "2,3,3", "--padding", "same", "--axes", "D,W"],
    "single axis of a volume": ["--input-shape", "6,9,7", "--layout", "DHW", "--window", "2", "--axes", "H"],
    "dialect": ["--input-shape", "1,2,9,8", "--dialect", "torch", "kernel_size=3,2", "divisor_override=5"],
    "large": ["--input-shape", "64,80", "--window", "3", "--stride", "2"],
}


@pytest.mark.parametrize("kind", KINDS)
def test_pictures(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert said(capsys, "explain", *KINDS[kind], "--plot", "a.png") == "wrote a.png\n"
    width, height, pixels = picture("a.png")
    assert 600 <= width <= 2000
    assert 400 <= height <= 2000
    assert pixels.std() > 0.05
    border = [pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]]
    assert all((edge == 1).all() for edge in border), "something runs over the edge"


def test_pictures_show_the_chosen_axes(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    base = ["explain", *KINDS["volume"][:-2]]
    said(capsys, *base, "--plot", "hw.png")
    said(capsys, *base, "--plot", "dw.png", "--axes", "D,W")
    said(capsys, *base, "--plot", "hw2.svg", "--axes", "H,W")
    assert picture("hw.png")[:2] != picture("dw.png")[:2]
    said(capsys, *base, "--plot", "DW.SVG", "--axes", "D,W")
    drawn = {name: [f"axis {letter}:" in Path(name).read_text() for letter in "DHW"] for name in ("hw2.svg", "DW.SVG")}
    assert drawn == {"hw2.svg": [False, True, True], "DW.SVG": [True, False, True]}
    assert "every divisor times 2 along D" in Path("hw2.svg").read_text()
    report = json.loads(said(capsys, *base, "--plot", "hw.png", "--json"))
    assert report["plot"] == "hw.png"
    assert [axis["name"] for axis in report["axes"]] == ["D", "H", "W"]


EXPLAINED_WRONG = {
    "axes without a picture": (["--input-shape", "5,5", "--window", "2", "--axes", "H"], "--plot"),
    "unknown axis": (["--input-shape", "5,5", "--window", "2", "--axes", "D,W", "--plot", "a.png"], "'D,W'"),
    "one axis twice": (["--input-shape", "5,5", "--window", "2", "--axes", "H,H", "--plot", "a.png"], "'H,H'"),
    "no picture": (["--input-shape", "5,5", "--window", "2", "--plot", "a.npy"], "a.npy"),
    "picture too large": (["--input-shape", "5,5000", "--window", "2", "--plot", "a.png"], "512"),
    "empty picture": (["--input-shape", "5,5", "--output-size", "0,2", "--plot", "a.png"], "cells, got 0"),
    "too long": (["--input-shape", f"{2**27}", "--window", "1"], "1048576"),
    "too many meetings": (["--input-shape", "30000", "--window", "5000", "--stride", "1"], "1048576"),
    "too many windows": (["--input-shape", "2000,2000", "--window", "1", "--all"], "--all lists at most"),
    "too much padding": (["--input-shape", "5", "--window", "3", "--padding", f"{2**27}"], "1048576"),
}


@pytest.mark.parametrize("name", EXPLAINED_WRONG)
def test_explanations_that_are_refused(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    arguments, reason = EXPLAINED_WRONG[name]
    assert reason in refused(capsys, "explain", *arguments)


TORCH = {"kernel_size": (3, 2), "stride": (2, 2), "padding": (1, 0)}
WORDS = ["kernel_size=3,2", "stride=2,2", "padding=1,0"]


@pytest.mark.parametrize("target", ["onnx", "directml", "poolgrad", "torch"])
def test_translate(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What is printed can be typed, and means the same."""
    shape = (2, 3, 9, 8)
    common = ["translate", "torch", target, "--input-shape", "2,3,9,8", *WORDS]
    typed = named_values(shlex.split(said(capsys, *common)))
    assert dialects.dialect(target).read(typed, shape).pool(shape) == dialects.dialect("torch").read(TORCH, shape).pool(shape)
    want = dialects.translate(TORCH, "torch", target, shape)
    assert json.loads(said(capsys, *common, "--json"))["arguments"] == json.loads(json.dumps(want))


SAME = ["kernel_size=3,2", "stride=2,2", "padding=1,0", "count_include_pad=false"]


@pytest.mark.parametrize("target", dialects.NAMES)
def test_what_is_printed_can_be_typed(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    shape = ["--input-shape", "2,3,9,8"]
    want = json.loads(said(capsys, "explain", *shape, "--dialect", "torch", *SAME, "--json"))
    printed = said(capsys, "translate", "torch", target, *shape, *SAME)
    assert json.loads(said(capsys, "explain", *shape, "--dialect", target, *shlex.split(printed), "--json")) == want
    back = said(capsys, "translate", target, "torch", *shape, *shlex.split(printed))
    assert set(SAME) <= set(shlex.split(back))


def test_translate_into_another_layout(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["translate", "keras", "onnx", "--input-shape", "2,9,8,3", "pool_size=3,2", "strides=2"]
    assert "transpose" in said(capsys, *common, code=1)
    assert json.loads(said(capsys, *common, "--transpose", "--json"))["arguments"]["transpose"] == [0, 3, 1, 2]


def test_no_translation_is_an_answer(capsys: pytest.CaptureFixture[str]) -> None:
    common = ["translate", "torch", "keras", "--input-shape", "2,3,9,8", *WORDS]
    assert said(capsys, *common, code=1).startswith("none: ")
    report = json.loads(said(capsys, *common, "--json", code=1))
    assert report["arguments"] is None
    assert report["reason"]
    assert "'caffe'" in refused(capsys, "translate", "torch", "caffe", "--input-shape", "2,3,9,8", *WORDS)
    assert "kernel" in refused(capsys, "translate", "torch", "onnx", "--input-shape", "2,3,9,8", "stride=2")


@pytest.mark.parametrize("value", [3, -1, 2.5, True, False, None, "SAME", (3,), (3, 2), ((0, 1), (1, 1)), (1.0, 1.44), ()])
def test_values_are_read_as_they_are_written(value: Any) -> None:
    assert as_value(as_text(value)) == value
    assert type(as_value(as_text(value))) is type(value)


def test_words_in_a_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert as_value("3,none") == (3, None)
    assert as_value("(True,NULL),false") == ((True, None), False)
    assert as_value("'none'") == "none"
    kept = ["translate", "torch", "torch", "--input-shape", "2,3,10,12", "output_size=3,none"]
    assert said(capsys, *kept) == "op=adaptive_avg_pool2d output_size=3,12\n"
    assert "output_size 'three'" in refused(capsys, *kept[:-1], "output_size=three", "--input-shape", "2,3")
    assert "op='avg_pool2d'" in refused(capsys, "explain", "--dialect", "torch", "--input-shape", "5,6", "kernel_size=2")
