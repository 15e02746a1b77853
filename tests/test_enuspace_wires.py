"""Wires: which connections are refused and why, and what a page with impossible ones says when it runs."""

from __future__ import annotations

import pytest

from poolgrad.enuspace import Block, Page, Pin, Report, Runner, Wire, corrected_page, refusal
from poolgrad.errors import PoolGradValueError

TEXTS = {"ksize": "1,2,3,1", "strides": "1,2,3,1", "padding": "SAME"}


def errors(report: Report) -> dict[str, str]:
    return {entry.block: entry.message for entry in report.log if entry.severity == "error"}


REFUSED = [
    ("shape", "output", "pool", "output", "output is an output"),
    ("shape", "output", "pool", "ksize", "is a property"),
    ("shape", "output", "pool", "scope", "never wired"),
    ("shape", "result_output", "pool", "grad", "wire output instead"),
    ("shape", "val", "pool", "grad", "is a property"),
    ("shape", "output", "shape", "output", "cannot feed itself"),
    ("shape", "output", "pool", "grad", "wired to gradient.output already"),
    ("shape", "output", "pool", "nothing", "has no pin 'nothing'"),
    ("nobody", "output", "pool", "grad", "no block 'nobody'"),
    ("session", "status", "pool", "grad", "of type Status"),
    ("pool", "grad", "session", "fetch_outputs", "grad is an input"),
    ("pool", "output", "session", "fetch_outputs", "there already"),
    ("shape", "output", "session", "inputs", "FeedType"),
]


@pytest.mark.parametrize(("source", "source_pin", "target", "target_pin", "why"), REFUSED)
def test_refused_connections(source: str, source_pin: str, target: str, target_pin: str, why: str) -> None:
    page = corrected_page()
    assert why in str(refusal(page, source, source_pin, target, target_pin))
    with pytest.raises(PoolGradValueError, match="cannot be wired"):
        page.connect(source, source_pin, target, target_pin)


def test_allowed_connections() -> None:
    page = corrected_page()
    assert refusal(page, "shape", "output", "session", "fetch_outputs") is None
    assert refusal(page, "shape", "output", "session", "run_outputs") is None
    page.blocks.append(Block("odd", "Add", pins=[Pin("x", "input"), Pin("z", "output")]))
    assert refusal(page, "shape", "output", "odd", "x") is None


def test_loops_are_refused_and_reported() -> None:
    page = Page()
    a, b = page.add("AvgPool", "a", **TEXTS), page.add("AvgPool", "b", **TEXTS)
    page.connect(a, "output", b, "value")
    assert "close a loop" in str(refusal(page, "b", "output", "a", "value"))
    page.wires.append(Wire("b", "output", "a", "value"))
    page.connect(b, "output", page.add("ClientSession", "session"), "fetch_outputs")
    assert "loop of wires" in errors(Runner(page).run())["a"]


def test_two_wires_into_one_input_and_a_wire_from_nowhere() -> None:
    page = corrected_page()
    page.wires += [Wire("shape", "output", "pool", "grad"), Wire("gone", "output", "pool", "grad")]
    report = Runner(page).run()
    assert "wires end at grad" in errors(report)["pool"]
    assert any("no block 'gone'" in entry.message for entry in report.log if entry.severity == "warning")
