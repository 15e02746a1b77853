"""The story of a page, message by message: opened, edited, checked, run, stepped, stopped, watched."""

from __future__ import annotations

import numpy as np
import pytest

from poolgrad.enuspace import BLOCKS, check_property, corrected_page
from poolgrad_studio.limits import LIMITS
from studio_support import Refused, Server, Tab, find, fresh_block, pin, set_const, wire

POOL = {"ksize": "1,3,2,1", "strides": "1,2,1,1", "padding": "SAME"}


def test_hello_has_all_that_a_client_draws_with(tab: Tab) -> None:
    said = tab.ask("hello")
    assert [block["name"] for block in said["catalogue"]] == list(BLOCKS)
    for block in said["catalogue"]:
        assert [p["name"] for p in block["pins"]] == [p.name for p in BLOCKS[block["name"]].pins]
        assert block["help"]
        for p in block["pins"]:
            assert p["hint"] or p["kind"] != "const" or p["form"] == "text", p
    assert {len(scale) for scale in said["palettes"].values()} == {1536}
    assert [kind["kind"] for kind in said["inputs"]] == ["npy", "image", "random"]
    assert "Input" in said["rules"]["allowed"]["Output"]


def test_the_corrected_example_runs(tab: Tab) -> None:
    page = tab.ask("example", which="corrected")
    assert page["explanation"]["twin"] == "documented"
    assert tab.ran(page["doc"])["state"] == "done"
    got = tab.ask("rows", doc=page["doc"], block="pool", pin="result_output", start=0, stop=4)
    assert got["rows"][3] == ["float", "result_output[1][0][0][0][1]", "7"]
    assert [row[2] for row in got["rows"]] == ["1", "3", "5", "7"]


def test_the_documented_example_says_what_is_wrong(tab: Tab) -> None:
    page = tab.ask("example", which="documented")
    assert "32 numbers" in " ".join(page["explanation"]["paragraphs"])
    assert tab.ran(page["doc"])["state"] == "failed"
    log = tab.wait("log", doc=page["doc"])["entries"]
    assert any(entry["block"] == "pool" and "[2][1][1][1][2]" in entry["message"] for entry in log)
    states = {s["block"]: s for e in tab.events if e["event"] == "blocks" for s in e["states"]}
    assert states["pool"]["state"] == "failed"
    assert states["session"]["state"] == "blocked"
    assert states["shape"]["state"] == "done"


def built(tab: Tab, shape: tuple[int, ...] = (2, 7, 5, 3)) -> dict:
    """A page from nothing, as a client makes it: random data, AvgPool, a session."""
    opened = tab.ask("new", name="made")
    page = opened["page"]
    page["blocks"] = [
        fresh_block(tab, "Const", "x"),
        fresh_block(tab, "AvgPool", "pool", **POOL),
        fresh_block(tab, "ClientSession", "s"),
    ]
    set_const(page, "x", tab.ask("input", kind="random", shape=list(shape), type="float", seed=5, distribution="normal"))
    page["wires"] = [wire("x", "output", "pool", "value"), wire("pool", "output", "s", "fetch_outputs")]
    opened["revision"] = tab.ask("put", doc=opened["doc"], revision=opened["revision"], page=page)["revision"]
    return opened


def test_a_page_from_nothing_gives_the_bits_of_the_library(tab: Tab) -> None:
    from poolgrad import raw_ops

    opened = built(tab)
    assert tab.wait("checks", doc=opened["doc"], revision=opened["revision"])["log"] == []
    assert tab.ran(opened["doc"])["state"] == "done"
    x = np.random.default_rng(5).standard_normal((2, 7, 5, 3)).astype(np.float32)
    want = raw_ops.AvgPool(x, [1, 3, 2, 1], [1, 2, 1, 1], "SAME")
    for c in range(3):
        _, got = tab.ask(
            "slice", doc=opened["doc"], block="pool", pin="output", axes=[1, 2], index=[1, 0, 0, c], height=99, width=99
        )
        np.testing.assert_array_equal(got, want[1, :, :, c])


def test_check_says_what_the_library_says(tab: Tab) -> None:
    for symbol, name, text in (
        ("AvgPool3D", "ksize", "1,2,2,1"),
        ("AvgPool3D", "attrs", "data_format_ = NHWC;"),
        ("AvgPool", "padding", "SAME"),
    ):
        want = check_property(symbol, name, text)
        got = tab.ask("check", symbol=symbol, pin=name, text=text)
        assert (got["ok"], got["message"], got["legal"]) == (want.ok, want.message, want.legal)
    assert tab.ask("check", symbol="Const", pin="val", text="1;2;3", type="int", shape="[3]")["ok"]
    assert not tab.ask("check", symbol="Const", pin="val", text="1;2", type="int", shape="[3]")["ok"]
    typed = {"symbol": "Const_ex", "pin": "val", "shape": "[1]"}
    assert tab.ask("check", text="0.5", dtype="DT_HALF", **typed)["ok"]
    assert "not an integer" in tab.ask("check", text="0.5", dtype="DT_INT64", **typed)["message"]
    assert "DT_NONE" in tab.ask("check", text="0.5", dtype="DT_NONE", **typed)["message"]
    with pytest.raises(Refused, match="no property"):
        tab.ask("check", symbol="AvgPool", pin="nothing", text="")


def test_refusals_of_all_pins_are_those_of_each(tab: Tab) -> None:
    doc = tab.ask("example", which="corrected")["doc"]
    every = tab.ask("refusals", doc=doc, source="pool", source_pin="output")["refusals"]
    for entry in every:
        one = tab.ask(
            "refusal", doc=doc, source="pool", source_pin="output", target=entry["target"], target_pin=entry["target_pin"]
        )
        assert one["refusal"] == entry["refusal"]
    said = {(e["target"], e["target_pin"]): e["refusal"] for e in every}
    assert said["session", "run_outputs"] is None
    assert "property" in said["pool", "ksize"] or "feed itself" in said["pool", "ksize"]
    assert "already" in said["session", "fetch_outputs"]


def test_edits_make_results_stale_downstream_only(tab: Tab) -> None:
    opened = built(tab)
    doc, page = opened["doc"], opened["page"]
    tab.ran(doc)
    page["name"] = "renamed"
    pin(page, "pool", "ksize")["value"] = "1,2,2,1"
    revision = tab.ask("put", doc=doc, revision=opened["revision"], page=page)["revision"]
    assert tab.wait("checks", doc=doc, revision=revision)["stale"] == ["pool", "s"]
    find(page, "x")["x"] += 5
    pin(page, "pool", "ksize")["value"] = POOL["ksize"]
    revision = tab.ask("put", doc=doc, revision=revision, page=page)["revision"]
    assert tab.wait("checks", doc=doc, revision=revision)["stale"] == []
    page["wires"] = page["wires"][1:]
    revision = tab.ask("put", doc=doc, revision=revision, page=page)["revision"]
    told = tab.wait("checks", doc=doc, revision=revision)
    assert told["stale"] == ["pool", "s"]
    assert any(e["block"] == "pool" and "value" in e["message"] for e in told["log"])


def test_step_pauses_after_each_block_and_run_goes_on(tab: Tab) -> None:
    doc = built(tab)["doc"]
    number = tab.ask("step", doc=doc)["run"]
    assert tab.wait("run", run__state="paused", run__done=1)["run"]["total"] == 3
    [result] = tab.wait("results", run=number)["results"]
    assert result["block"] == "x"
    rows = tab.ask("rows", doc=doc, block="x", pin="output", start=0, stop=8)["rows"]
    assert result["head"] == [value for _, _, value in rows]
    assert tab.ask("step", doc=doc)["run"] == number
    tab.wait("run", run__state="paused", run__done=2)
    assert tab.ask("rows", doc=doc, block="pool", pin="output", start=0, stop=1)["rows"]
    assert tab.ask("run", doc=doc)["run"] == number
    assert tab.ended(doc, number)["state"] == "done"
    assert tab.ask("step", doc=doc)["run"] == number + 1
    tab.wait("run", run__run=number + 1, run__state="paused")
    assert tab.ask("stop", doc=doc)["stopped"]
    assert tab.ended(doc, number + 1)["state"] == "cancelled"
    assert not tab.ask("stop", doc=doc)["stopped"]


def test_what_hangs_on_run_outputs_runs_without_showing(tab: Tab) -> None:
    opened = built(tab)
    page = opened["page"]
    page["wires"][1] = wire("pool", "output", "s", "run_outputs")
    tab.ask("put", doc=opened["doc"], revision=opened["revision"], page=page)
    assert tab.ran(opened["doc"])["state"] == "done"
    found = tab.ask("attach", doc=opened["doc"])
    assert {s["state"] for s in found["states"]} == {"done"}
    assert found["results"] == []


def endless(tab: Tab) -> dict:
    opened = built(tab)
    pin(opened["page"], "s", "INFINITE_LOOP")["value"] = "TRUE"
    opened["revision"] = tab.ask("put", doc=opened["doc"], revision=opened["revision"], page=opened["page"])["revision"]
    return opened


def test_a_long_run_shows_progress_answers_meanwhile_and_stops(tab: Tab) -> None:
    opened = endless(tab)
    doc = opened["doc"]
    number = tab.ask("run", doc=doc, cycles=0)["run"]
    with pytest.raises(Refused, match="running"):
        tab.ask("run", doc=doc)
    first = tab.wait("run", run__run=number, run__state="running")["run"]["cycle"]
    assert tab.ask("check", symbol="AvgPool", pin="padding", text="SAME")["ok"]
    pin(opened["page"], "pool", "padding")["value"] = "VALID"
    tab.ask("put", doc=doc, revision=opened["revision"], page=opened["page"])
    while not any(e["event"] == "run" and e["run"]["cycle"] > first for e in tab.events):
        tab.events.append(tab.receive())  # type: ignore[arg-type]
    assert tab.ask("stop", doc=doc)["stopped"]
    assert tab.ended(doc, number)["state"] == "cancelled"
    assert tab.ran(doc, cycles=3)["cycle"] == 3


def test_no_block_makes_more_than_the_limit(tab: Tab) -> None:
    opened = tab.ask("example", which="corrected")
    page = opened["page"]
    pin(page, "shape", "val").update(value="2;99999;99999;99999;2", shape="[5]")
    tab.ask("put", doc=opened["doc"], revision=1, page=page)
    assert tab.ran(opened["doc"])["state"] == "failed"
    said = " ".join(e["message"] for event in tab.events if event["event"] == "log" for e in event["entries"])
    assert f"at most {LIMITS['elements']} are made" in said


def test_two_tabs_edit_one_page(server: Server, tab: Tab) -> None:
    opened = built(tab)
    other = server.tab()
    same = other.ask("attach", doc=opened["doc"])
    assert same["page"] == opened["page"]
    same["page"]["name"] = "by the other"
    revision = other.ask("put", doc=opened["doc"], revision=same["revision"], page=same["page"])["revision"]
    assert tab.wait("page", doc=opened["doc"], revision=revision)["page"]["name"] == "by the other"
    with pytest.raises(Refused) as refused:
        tab.ask("put", doc=opened["doc"], revision=opened["revision"], page=opened["page"])
    assert refused.value.kind == "conflict"
    assert tab.ran(opened["doc"])["state"] == "done"
    assert other.ended(opened["doc"], 1)["state"] == "done"
    other.ask("close", doc=opened["doc"])
    tab.wait("closed", doc=opened["doc"])
    with pytest.raises(Refused, match="no document"):
        tab.ask("run", doc=opened["doc"])
    other.close()


def test_a_tab_that_comes_back_finds_everything(server: Server, tab: Tab) -> None:
    opened = built(tab)
    tab.ran(opened["doc"])
    tab.socket.close_socket()
    again = server.tab()
    assert [d["doc"] for d in again.ask("documents")["documents"]] == [opened["doc"]]
    found = again.ask("attach", doc=opened["doc"])
    assert found["page"] == opened["page"]
    assert {r["block"] for r in found["results"]} == {"x", "pool"}
    assert {s["state"] for s in found["states"]} == {"done"}
    assert found["run"]["state"] == "done"
    assert found["log"][-1]["message"] == "cycle 1"
    again.close()


def test_the_watch_table_lists_arrays_as_one_row(tab: Tab) -> None:
    opened = built(tab)
    tab.ran(opened["doc"])
    rows = {row["pin"]: row for row in tab.ask("watch", doc=opened["doc"], block="pool")["rows"]}
    assert rows["ksize"]["value"] == POOL["ksize"]
    assert rows["result_output"]["name"] == "result_output[2][4][5][3]"
    assert rows["result_output"]["array"] == {"shape": [2, 4, 5, 3], "size": 120, "dtype": "float32"}
    constant = tab.ask("watch", doc=opened["doc"], block="x")["rows"][0]
    assert constant["array"]["size"] == 210
    with pytest.raises(Refused, match="within 0 and 210"):
        tab.ask("rows", doc=opened["doc"], block="x", pin="val", start=0, stop=211)


def test_a_million_elements_scroll_by_their_visible_rows(tab: Tab) -> None:
    opened = built(tab, (1, 1000, 1000, 1))
    assert pin(opened["page"], "x", "val")["data"]["bytes"] == 4_000_000
    got = tab.ask("rows", doc=opened["doc"], block="x", pin="val", start=999_990, stop=1_000_000)
    assert got["size"] == 1_000_000
    assert got["rows"][-1][1] == "val[0][999][999][0]"
    x = np.random.default_rng(5).standard_normal((1, 1000, 1000, 1)).astype(np.float32)
    assert np.float32(got["rows"][-1][2]) == x[0, 999, 999, 0]
    with pytest.raises(Refused, match=f"from 1 to {LIMITS['rows']}"):
        tab.ask("rows", doc=opened["doc"], block="x", pin="val", start=0, stop=LIMITS["rows"] + 1)


def test_the_example_is_the_library_s_own(tab: Tab) -> None:
    page = tab.ask("example", which="corrected")["page"]
    want = corrected_page()
    assert [(b["id"], b["symbol"]) for b in page["blocks"]] == [(b.id, b.symbol) for b in want.blocks]
    assert len(page["wires"]) == 3
