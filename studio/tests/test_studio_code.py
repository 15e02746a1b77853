"""The code that is shown runs as shown, and computes what the page computes."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from poolgrad.directml import dxdispatch
from studio_support import Refused, Server, Tab, find, fresh_block, pin, set_const, wire
from test_studio_protocol import built


def ran(text: str) -> dict[str, Any]:
    """The names of a program after it ran."""
    names: dict[str, Any] = {}
    with contextlib.redirect_stdout(io.StringIO()) as said:
        exec(compile(text, "shown", "exec"), names)
    assert said.getvalue(), "it prints what the session fetches"
    return names


def result(server: Server, tab: Tab, doc: str, block: str = "pool") -> Any:
    assert tab.ran(doc)["state"] == "done"
    return np.load(io.BytesIO(server.get(f"array.npy?doc={doc}&block={block}&pin=result_output").content))


def fetch(server: Server, code: dict[str, Any], folder: Path) -> None:
    for file in code["files"]:
        (folder / file["name"]).write_bytes(server.get(file["url"]).content)


@pytest.mark.parametrize("shape", [(2, 7, 5, 3), (1, 40, 30, 1), (1, 300, 200, 2)])
@pytest.mark.parametrize("type", ["float", "double", "half", "bfloat16"])
def test_the_python_runs_to_the_same_bits(
    server: Server, tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shape: tuple[int, ...], type: str
) -> None:
    opened = built(tab, shape)
    page = opened["page"]
    made = tab.ask("input", kind="random", shape=list(shape), type=type, seed=9, distribution="normal")
    find(page, "x")["pins"] = fresh_block(tab, made["symbol"], "x")["pins"]
    set_const(page, "x", made)
    tab.ask("put", doc=opened["doc"], revision=opened["revision"], page=page)
    code = tab.ask("code", doc=opened["doc"], kind="python")
    assert bool(code["files"]) == (shape[1] == 300)
    fetch(server, code, tmp_path)
    monkeypatch.chdir(tmp_path)
    got = ran(code["text"])["pool"]
    want = result(server, tab, opened["doc"])
    assert got.tobytes() == want.tobytes()


def test_a_chain_with_odd_names_and_values_runs(server: Server, tab: Tab) -> None:
    opened = tab.ask("new", name="'''\n\"\"\" \\ #")
    page = opened["page"]
    ids = ["lambda", "1st one", "np", "print", "a-b", "a b"]
    attrs = "deterministic_ = true; seed_ = 3;"
    page["blocks"] = [
        fresh_block(tab, "Const", ids[0]),
        fresh_block(tab, "FractionalAvgPool", ids[1], pooling_ratio="1,1.4,1.5,1", attrs=attrs),
        fresh_block(tab, "AvgPool", ids[2], ksize="1,2,3,1", strides="1,1,2,1", padding="VALID"),
        fresh_block(tab, "ClientSession", ids[3]),
        fresh_block(tab, "Const", ids[4]),
        fresh_block(tab, "FractionalAvgPoolGrad", ids[5]),
    ]
    x = np.random.default_rng(8).standard_normal((1, 9, 8, 1)).astype(np.float32)
    x[0, 0, :4, 0] = [np.nan, np.inf, -np.inf, -0.0]
    values = ";".join(str(v) for v in x.ravel())
    pin(page, ids[0], "val").update(type="float", shape="[1][9][8][1]", value=values)
    pin(page, ids[4], "val").update(type="int", shape="[4]", value="1;9;8;1")
    sequences = ("row_pooling_sequence", "col_pooling_sequence")
    page["wires"] = [
        wire(ids[0], "output", ids[1], "value"),
        wire(ids[1], "output", ids[2], "value"),
        wire(ids[2], "output", ids[3], "fetch_outputs"),
        wire(ids[4], "output", ids[5], "orig_input_tensor_shape"),
        wire(ids[1], "output", ids[5], "out_backprop"),
        *(wire(ids[1], name, ids[5], name) for name in sequences),
        wire(ids[5], "output", ids[3], "fetch_outputs"),
    ]
    tab.ask("put", doc=opened["doc"], revision=1, page=page)
    names = ran(tab.ask("code", doc=opened["doc"], kind="python")["text"])
    for name, id in (("np_2", ids[2]), ("a_b_2", ids[5])):
        np.testing.assert_array_equal(names[name], result(server, tab, opened["doc"], id))


def test_numbers_are_written_long_where_short_would_change_them() -> None:
    from poolgrad_studio.code import _literals

    with np.printoptions(legacy="1.13"):  # NumPy's short texts lose digits then
        assert str(np.float64(0.1) + np.float64(0.2)) == "0.3"
        assert _literals(np.array([0.1]) + 0.2) == ["0.30000000000000004"]
    assert _literals(np.array([0.1], np.float32)) == ["0.1"]


def test_text_on_the_page_is_never_code(tab: Tab, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    evil = f"x'\n\")\n__import__('pathlib').Path({str(mark)!r}).touch()\n#"
    opened = tab.ask("example", which="corrected")
    page = opened["page"]
    page["name"] = evil
    for block in page["blocks"]:
        old, block["id"] = block["id"], f"{block['id']}{evil}"
        for joined in page["wires"]:
            joined["source"] = block["id"] if joined["source"] == old else joined["source"]
            joined["target"] = block["id"] if joined["target"] == old else joined["target"]
    tab.ask("put", doc=opened["doc"], revision=1, page=page)
    text = tab.ask("code", doc=opened["doc"], kind="python")["text"]
    ran(text)
    assert not mark.exists()
    assert "import pathlib" not in text


@pytest.mark.parametrize("type", ["float", "half"])
@pytest.mark.parametrize("shape", [(2, 7, 5, 3), (1, 40, 30, 1)])
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_the_directml_model_runs_to_the_same_bits(
    server: Server, tab: Tab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, type: str, shape: tuple[int, ...], layout: str
) -> None:
    opened = built(tab, shape)
    page = opened["page"]
    made = tab.ask("input", kind="random", shape=list(shape), type=type, seed=9, distribution="normal")
    find(page, "x")["pins"] = fresh_block(tab, made["symbol"], "x")["pins"]
    set_const(page, "x", made)
    second = fresh_block(tab, "AvgPool", "second", ksize="1,2,2,1", strides="1,1,2,1", padding="SAME")
    page["blocks"].append(second)
    page["wires"] += [wire("pool", "output", "second", "value"), wire("second", "output", "s", "fetch_outputs")]
    if layout == "NCHW":
        for id, ksize in (("pool", "1,1,3,2"), ("second", "1,1,2,2")):
            pin(page, id, "attrs")["value"] = "data_format_ = NCHW;"
            pin(page, id, "ksize")["value"], pin(page, id, "strides")["value"] = ksize, "1,1,2,1"
            pin(page, id, "padding")["value"] = "SAME"
    tab.ask("put", doc=opened["doc"], revision=opened["revision"], page=page)
    want = {id: result(server, tab, opened["doc"], id) for id in ("pool", "second")}
    code = tab.ask("code", doc=opened["doc"], kind="directml")
    fetch(server, code, tmp_path)
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    found = dxdispatch.run_model(code["text"], write=said.append)
    for id, array in want.items():
        assert found[id].tobytes() == array.tobytes(), id
    assert sum(line.startswith("Resource") for line in said) == 2


def test_the_directml_model_of_a_gradient_runs(tab: Tab) -> None:
    doc = tab.ask("example", which="corrected")["doc"]
    found = dxdispatch.run_model(tab.ask("code", doc=doc, kind="directml")["text"], write=lambda line: None)
    assert found["pool"].tolist() == [1, 3, 5, 7]


def test_what_cannot_be_code_says_why(server: Server, tab: Tab) -> None:
    opened = tab.ask("example", which="documented")
    page = opened["page"]
    with pytest.raises(Refused, match="the pooling has"):
        tab.ask("code", doc=opened["doc"], kind="directml")
    tab.ran(opened["doc"])
    assert any("pool fails" in note for note in tab.ask("code", doc=opened["doc"], kind="python")["notes"])
    pin(page, "pool", "padding")["value"] = "AROUND"
    tab.ask("put", doc=opened["doc"], revision=1, page=page)
    for kind in ("python", "directml"):
        with pytest.raises(Refused, match="AROUND"):
            tab.ask("code", doc=opened["doc"], kind=kind)
    double = built(tab)
    made = tab.ask("input", kind="random", shape=[1, 4, 4, 1], type="double", seed=1, distribution="normal")
    set_const(double["page"], "x", made)
    tab.ask("put", doc=double["doc"], revision=double["revision"], page=double["page"])
    with pytest.raises(Refused, match="float64"):
        tab.ask("code", doc=double["doc"], kind="directml")
