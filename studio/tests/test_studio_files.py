"""Files: what is opened and saved says the same; what was not saved is there after a crash."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from poolgrad.enuspace import Page, corrected_page, open_page, read_svg, run_file, save_page, write_svg
from poolgrad_studio.light import lighten, restore
from poolgrad_studio.vault import Vault
from studio_support import Refused, Server, Tab, find, pin, served, set_const
from test_studio_protocol import built

BASIC = Path(__file__).resolve().parents[2] / "tests" / "cases" / "enuspace"


@pytest.mark.parametrize("name", ["basic.svg", "basic.json"])
def test_enuspace_s_own_files_round_trip(server: Server, tab: Tab, name: str) -> None:
    data = (BASIC / name).read_bytes()
    (server.folder / name).write_bytes(data)
    opened = tab.ask("open", path=name)
    assert {b["symbol"] for b in opened["page"]["blocks"]} == {"Const", "Add", "ClientSession"}
    assert any(" Add " in e["message"] for e in opened["checks"])
    [unknown] = [b["id"] for b in opened["page"]["blocks"] if b["symbol"] == "Add"]
    assert {row["pin"] for row in tab.ask("watch", doc=opened["doc"], block=unknown)["rows"]} >= {"x", "y"}
    tab.ask("put", doc=opened["doc"], revision=1, page=opened["page"])
    form = "svg" if name.endswith("svg") else "export"
    tab.ask("save", doc=opened["doc"], path=name, form=form)
    want, got = open_page(BASIC / name), open_page(server.folder / name)
    assert got.to_dict() == want.to_dict()
    if form == "svg":
        assert (server.folder / name).read_bytes() == write_svg(read_svg(data, "basic"))[0]


def test_what_travels_and_comes_back_is_the_same_page() -> None:
    vault = Vault(None)
    for page in (open_page(BASIC / "basic.svg"), open_page(BASIC / "basic.json"), corrected_page()):
        again = restore(lighten(page, vault), page, vault)
        assert again.to_dict() == page.to_dict()
        assert write_svg(again) == write_svg(page), "in the same order too"


def test_a_wire_is_drawn_anew_where_a_block_moved_and_as_before_where_it_moved_back(server: Server, tab: Tab) -> None:
    (server.folder / "basic.svg").write_bytes((BASIC / "basic.svg").read_bytes())
    opened = tab.ask("open", path="basic.svg")
    doc, page = opened["doc"], opened["page"]
    wire = page["wires"][0]
    moved = find(page, wire["source"])
    moved["x"] += 40
    revision = tab.ask("put", doc=doc, revision=1, page=page)["revision"]
    before = {w.ends: w for w in open_page(BASIC / "basic.svg").wires}
    tab.ask("save", doc=doc, path="moved.svg", form="svg")
    after = {w.ends: w for w in open_page(server.folder / "moved.svg").wires}
    for ends, old in before.items():
        assert (after[ends].svg["points"] == old.svg["points"]) == (wire["source"] not in (ends[0], ends[2]))
        assert after[ends].link == old.link
    moved["x"] -= 40
    tab.ask("put", doc=doc, revision=revision, page=page)
    tab.ask("save", doc=doc, path="back.svg", form="svg")
    assert {w.ends: w.svg for w in open_page(server.folder / "back.svg").wires} == {e: w.svg for e, w in before.items()}


def test_a_keep_on_another_wire_or_block_changes_nothing_but_looks(server: Server, tab: Tab) -> None:
    (server.folder / "basic.svg").write_bytes((BASIC / "basic.svg").read_bytes())
    opened = tab.ask("open", path="basic.svg")
    page = opened["page"]
    first, second = page["wires"][:2]
    first["keep"], second["keep"] = second["keep"], page["blocks"][0]["keep"]
    find(page, page["blocks"][0]["id"])["keep"] = page["blocks"][1]["keep"]
    tab.ask("put", doc=opened["doc"], revision=1, page=page)
    tab.ask("save", doc=opened["doc"], path="basic.svg", form="svg")
    want, got = open_page(BASIC / "basic.svg"), open_page(server.folder / "basic.svg")
    assert sorted(w.ends for w in got.wires) == sorted(w.ends for w in want.wires)
    assert sorted((b.id, b.symbol, b.x, b.y) for b in got.blocks) == sorted((b.id, b.symbol, b.x, b.y) for b in want.blocks)
    page["wires"][0]["keep"] = "t" + "0" * 64
    with pytest.raises(Refused, match="no value"):
        tab.ask("put", doc=opened["doc"], revision=2, page=page)


def test_deleting_and_undoing_keeps_what_the_file_said(server: Server, tab: Tab) -> None:
    (server.folder / "basic.svg").write_bytes((BASIC / "basic.svg").read_bytes())
    opened = tab.ask("open", path="basic.svg")
    page = opened["page"]
    without = {**page, "blocks": page["blocks"][1:], "wires": []}
    tab.ask("put", doc=opened["doc"], revision=1, page=without)
    tab.ask("put", doc=opened["doc"], revision=2, page=page)
    tab.ask("save", doc=opened["doc"], path="basic.svg", form="svg")
    assert open_page(server.folder / "basic.svg").to_dict() == open_page(BASIC / "basic.svg").to_dict()


@pytest.mark.parametrize(("form", "name"), [("svg", "made.svg"), ("export", "made.json"), ("own", "made.page.json")])
@pytest.mark.parametrize("shape", [(2, 7, 5, 3), (1, 120, 100, 1)])
def test_a_saved_page_runs_headless_to_the_same_numbers(
    server: Server, tab: Tab, form: str, name: str, shape: tuple[int, ...]
) -> None:
    opened = built(tab, shape)
    tab.ran(opened["doc"])
    said = tab.ask("save", doc=opened["doc"], path=name, form=form, results=True)
    assert (said["file"], said["dirty"]) == ((None, True) if form == "export" else (name, False))
    report = run_file(server.folder / name, elements=8)
    assert report.ok
    want = tab.ask("rows", doc=opened["doc"], block="pool", pin="result_output", start=0, stop=8)["rows"]
    rows = [row for row in report.watch if row.block == "pool" and row.name.startswith("result_output")][1:]
    assert [[row.type, row.name, row.value] for row in rows] == want
    again = (
        tab.ask("open", path=name)["page"]
        if form != "own"
        else Page.from_dict(json.loads((server.folder / name).read_text())).to_dict()
    )
    values = pin(again, "pool", "result_output")
    assert values["value"] or values["data"], "the results are saved too"


def test_nothing_is_overwritten_unasked(server: Server, tab: Tab) -> None:
    save_page(corrected_page(), server.folder / "page.svg")
    first = tab.ask("example", which="documented")["doc"]
    with pytest.raises(Refused, match="there already") as refused:
        tab.ask("save", doc=first, path="page.svg", form="svg")
    assert refused.value.kind == "exists"
    doc = tab.ask("open", path="page.svg")["doc"]
    tab.ask("save", doc=doc, path="page.svg", form="svg")
    time.sleep(0.02)
    (server.folder / "page.svg").write_bytes((server.folder / "page.svg").read_bytes() + "\n".encode("utf-16-le"))
    with pytest.raises(Refused, match="changed since"):
        tab.ask("save", doc=doc, path="page.svg", form="svg")
    tab.ask("save", doc=doc, path="page.svg", form="svg", overwrite=True)
    (server.folder / "other.dat").write_bytes(b"somebody's")
    big = built(tab, (1, 200, 100, 1))["doc"]
    with pytest.raises(Refused, match=r"other\.dat"):
        tab.ask("save", doc=big, path="other.svg", form="svg")
    assert (server.folder / "other.dat").read_bytes() == b"somebody's"
    for path, form in (("a.txt", "svg"), ("a.svg", "own"), ("none/a.svg", "svg")):
        with pytest.raises(Refused):
            tab.ask("save", doc=doc, path=path, form=form)


def test_a_file_that_is_open_is_the_same_document(server: Server, tab: Tab) -> None:
    save_page(corrected_page(), server.folder / "page.svg")
    doc = tab.ask("open", path="page.svg")["doc"]
    assert tab.ask("open", path="page.svg")["doc"] == doc
    time.sleep(0.02)
    page = corrected_page()
    page.remove("session")
    save_page(page, server.folder / "page.svg")
    fresh = tab.ask("open", path="page.svg")
    assert len(fresh["page"]["blocks"]) == 3


@pytest.mark.parametrize(
    "content", [b"", b"<svg", b"{}", b'{"blocks": 1}', b'{"object": [1]}', b"\xff\xfe", b"<!DOCTYPE svg><svg/>"]
)
@pytest.mark.parametrize("name", ["bad.svg", "bad.json"])
def test_a_broken_page_is_refused(server: Server, tab: Tab, name: str, content: bytes) -> None:
    (server.folder / name).write_bytes(content)
    with pytest.raises(Refused) as refused:
        tab.ask("open", path=name)
    assert refused.value.kind in ("file", "value")


def test_a_page_is_uploaded_and_downloaded(server: Server, tab: Tab) -> None:
    said = server.post("upload?kind=page&name=basic.svg", (BASIC / "basic.svg").read_bytes())
    page = tab.ask("attach", doc=said.json()["doc"])
    assert len(page["page"]["blocks"]) == 4
    got = server.get(f"page.json?doc={page['doc']}")
    assert "attachment" in got.headers["content-disposition"]
    assert Page.from_dict(got.json()).to_dict() == open_page(BASIC / "basic.svg").to_dict()
    assert server.post("upload?kind=page&name=again.json", got.content).status_code == 200


def test_unsaved_work_outlives_the_server(tmp_path: Path) -> None:
    for server in served(tmp_path):
        tab = server.tab()
        opened = built(tab, (1, 120, 100, 1))
        pin(opened["page"], "pool", "ksize")["value"] = "broken on purpose"
        tab.ask("put", doc=opened["doc"], revision=opened["revision"], page=opened["page"])
        tab.close()
    for server in served(tmp_path):
        tab = server.tab()
        [info] = tab.ask("hello")["documents"]
        assert info["dirty"]
        found = tab.ask("attach", doc=info["doc"])
        assert found["page"] == opened["page"]
        assert found["revision"] == opened["revision"] + 1
        pin(found["page"], "pool", "ksize")["value"] = "1,3,2,1"
        tab.ask("put", doc=info["doc"], revision=found["revision"], page=found["page"])
        assert tab.ran(info["doc"])["state"] == "done"
        tab.ask("close", doc=info["doc"])
        tab.close()
    for server in served(tmp_path):
        tab = server.tab()
        assert tab.ask("hello")["documents"] == []
        tab.close()
        assert list((tmp_path / ".poolgrad-studio" / "values").iterdir()) == [], "values nobody needs are removed"


def test_unsaved_edits_of_a_file_keep_what_the_file_said(tmp_path: Path) -> None:
    (tmp_path / "basic.svg").write_bytes((BASIC / "basic.svg").read_bytes())
    for server in served(tmp_path):
        tab = server.tab()
        opened = tab.ask("open", path="basic.svg")
        tab.ask("put", doc=opened["doc"], revision=1, page=opened["page"])
        tab.close()
    for server in served(tmp_path):
        tab = server.tab()
        [info] = tab.ask("hello")["documents"]
        assert info["file"] == "basic.svg"
        tab.ask("save", doc=info["doc"], path="basic.svg", form="svg")
        tab.close()
    assert (tmp_path / "basic.svg").read_bytes() == write_svg(open_page(BASIC / "basic.svg"))[0]


def test_a_killed_server_loses_nothing_that_was_answered(tmp_path: Path) -> None:
    roots = [str(Path(p).resolve()) for p in sys.path if p]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(roots), "XDG_STATE_HOME": str(tmp_path / ".home")}
    command = [sys.executable, "-m", "poolgrad_studio", str(tmp_path), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        token, host = address.rstrip("/").rsplit("/", 1)[1], address.split("/")[2]
        assert len(token) >= 32
        page = _put_something(host, token)
    finally:
        process.kill()
        process.wait()
    for server in served(tmp_path):
        tab = server.tab()
        [info] = tab.ask("hello")["documents"]
        assert tab.ask("attach", doc=info["doc"])["page"] == page
        tab.close()


def _put_something(host: str, token: str) -> dict:
    from websockets.sync.client import connect

    with connect(f"ws://{host}/{token}/ws", origin=f"http://{host}") as socket:  # type: ignore[arg-type]
        socket.send(json.dumps({"id": 1, "op": "example", "which": "documented"}))
        opened = json.loads(socket.recv(timeout=60))["result"]
        opened["page"]["name"] = "edited"
        socket.send(json.dumps({"id": 2, "op": "put", "doc": opened["doc"], "revision": 1, "page": opened["page"]}))
        while json.loads(socket.recv(timeout=60)).get("id") != 2:
            pass
        return opened["page"]


@pytest.mark.parametrize("content", [b"", b"[]", b'{"head": 1, "page": 2}', b'{"head": {}, "page": {}}', b"[" * 5000])
def test_a_broken_autosave_is_put_aside(tmp_path: Path, content: bytes) -> None:
    kept = tmp_path / ".poolgrad-studio" / "pages"
    kept.mkdir(parents=True)
    (kept / "0123456789abcdef.json").write_bytes(content)
    for server in served(tmp_path):
        tab = server.tab()
        assert tab.ask("hello")["documents"] == []
        tab.close()
    assert (kept / "0123456789abcdef.broken").read_bytes() == content
    for _ in served(tmp_path):
        assert (kept / "0123456789abcdef.broken").exists(), "it stays until somebody takes it away"


def test_a_folder_that_cannot_be_written_is_served_without_autosave(tmp_path: Path) -> None:
    (tmp_path / ".poolgrad-studio").write_text("in the way")
    for server in served(tmp_path):
        tab = server.tab()
        assert tab.ask("hello")["autosave"] is False
        assert tab.ran(tab.ask("example", which="corrected")["doc"])["state"] == "done"
        tab.close()


def test_a_full_disk_does_not_stop_the_work(tab: Tab, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(place: Path, data: bytes) -> None:
        raise OSError(28, "No space left on device")

    opened = built(tab)
    monkeypatch.setattr("poolgrad_studio.documents.replace", full)
    said = tab.ask("put", doc=opened["doc"], revision=opened["revision"], page=opened["page"])
    assert said == {"revision": opened["revision"] + 1, "kept": False}
    assert tab.ran(opened["doc"])["state"] == "done"
    monkeypatch.setattr("poolgrad_studio.ops_files.replace", full)
    with pytest.raises(Refused, match="No space left"):
        tab.ask("save", doc=opened["doc"], path="a.svg", form="svg")
    monkeypatch.undo()
    assert tab.ask("put", doc=opened["doc"], revision=said["revision"], page=opened["page"])["kept"]


def test_values_may_be_copied_between_pages(tab: Tab) -> None:
    first, second = built(tab, (1, 120, 100, 1)), tab.ask("example", which="corrected")
    page = second["page"]
    copied = pin(first["page"], "x", "val")
    set_const(page, "gradient", {"symbol": "Const", "pins": {"val": {k: copied[k] for k in ("type", "shape", "value", "data")}}})
    tab.ask("put", doc=second["doc"], revision=1, page=page)
    got = tab.ask("statistics", doc=second["doc"], block="gradient", pin="val")
    x = np.random.default_rng(5).standard_normal((1, 120, 100, 1)).astype(np.float32)
    assert got["max"] == float(x.max())
    pin(page, "gradient", "val")["data"]["ref"] = "b" + "0" * 64
    with pytest.raises(Refused, match="no value"):
        tab.ask("put", doc=second["doc"], revision=2, page=page)
