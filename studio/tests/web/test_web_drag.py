"""Blocks under the mouse, in a real Chromium: they and their wires follow it, React draws nothing of it, and where they are
let go they are."""

from __future__ import annotations

import numpy as np
from chromium import CTRL
from test_web_views import open_file
from web_support import NEEDS, Hands, ServerProcess

from poolgrad.enuspace import Page, save_page

pytestmark = NEEDS

Place = tuple[float, float]
LONG = "a_name_that_is_longer_than_any_block_is_wide_and_goes_on_until_its_end"


def page(server: ServerProcess) -> None:
    made = Page("three")
    made.add("Const", "x", at=(40, 40), val=np.arange(16, dtype=np.float32).reshape(1, 4, 4, 1))
    made.add("AvgPool", LONG, at=(340, 90), ksize="1,2,2,1", padding="SAME")
    made.add("ClientSession", "session", at=(660, 140))
    made.connect("x", "output", LONG, "value")
    made.connect(LONG, "output", "session", "fetch_outputs")
    save_page(made, server.folder / "three.svg")


def ends(hands: Hands, wire: int) -> tuple[Place, Place]:
    """Where a wire begins and where the tip of its arrow is, on the screen."""
    script = f"""(w => [w.querySelector('.wire-start'), w.querySelector('.wire-end')].map(e => e.getBoundingClientRect())
        .map((r, k) => [k ? r.right : r.left + r.width / 2, r.top + r.height / 2]))
        (document.querySelectorAll('.wire')[{wire}])"""
    start, end = hands.tab.run(script)
    return (start[0], start[1]), (end[0], end[1])


def near(a: Place, b: Place, within: float = 10) -> bool:
    return abs(a[0] - b[0]) < within and abs(a[1] - b[1]) < within


def wired(hands: Hands) -> bool:
    first, second = ends(hands, 0), ends(hands, 1)
    return (
        near(first[0], hands.handle("x", "output"))
        and near(first[1], hands.handle(LONG, "value"))
        and near(second[0], hands.handle(LONG, "output"))
        and near(second[1], hands.handle("session", "fetch_outputs"))
    )


def carry(hands: Hands, by: Place) -> tuple[Place, Place]:
    """Drag the pooling without letting go; gives where its title was and is."""
    title = f"[data-block='{LONG}'] .block-title"
    before = hands.tab.middle(title)
    end = before[0] + by[0], before[1] + by[1]
    hands.tab.drag(before, end, hold=True)
    hands.tab.wait("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))")
    return before, hands.tab.middle(title)


def test_one_block_and_its_wires_follow_the_mouse(hands: Hands, server: ServerProcess) -> None:
    page(server)
    tab = hands.tab
    open_file(hands, "three.svg")
    assert wired(hands)
    place = f"document.querySelector(`.react-flow__node[data-id='{LONG}']`).style.transform"
    rest = tab.run(place)
    before, now = carry(hands, (50, 160))
    assert now[1] > before[1] + 120
    assert wired(hands)
    assert tab.run(place) == rest, "React drew the block while it was on its way"
    hands.shot("held")
    tab.release(before[0] + 50, before[1] + 160)
    tab.wait(f"{place} !== {rest!r}", "the block to stay there")
    assert near(tab.middle(f"[data-block='{LONG}'] .block-title"), now, 2)
    assert wired(hands)
    tab.key("z", modifiers=CTRL)
    tab.wait(f"{place} === {rest!r}", "undo to bring it back")
    assert wired(hands)


def test_all_blocks_move_together(hands: Hands, server: ServerProcess) -> None:
    page(server)
    tab = hands.tab
    open_file(hands, "three.svg")
    tab.key("a", modifiers=CTRL)
    tab.wait("document.querySelectorAll('.react-flow__node.selected').length === 3")
    x = tab.middle("[data-block='x'] .block-title")
    before, now = carry(hands, (-30, 120))
    by = now[0] - before[0], now[1] - before[1]
    assert by[1] > 90
    assert near(tab.middle("[data-block='x'] .block-title"), (x[0] + by[0], x[1] + by[1]), 1)
    assert wired(hands)
    tab.release(before[0] - 30, before[1] + 120)
    hands.kept()
    assert near(tab.middle("[data-block='x'] .block-title"), (x[0] + by[0], x[1] + by[1]), 2)
    assert wired(hands)
    tab.reload()
    tab.wait("document.querySelectorAll('.wire').length === 2", "the page again")
    hands.fitted()
    assert wired(hands)


def test_a_long_name_does_not_widen_its_block(hands: Hands, server: ServerProcess) -> None:
    page(server)
    tab = hands.tab
    open_file(hands, "three.svg")
    shown = tab.text(f"[data-block='{LONG}'] .block-id")
    assert shown.startswith("a_name_that")
    assert shown.endswith("its_end")
    assert "…" in shown
    assert tab.run(f"document.querySelector(`[data-block='{LONG}'] .block-id`).title") == LONG
    right = tab.box(f"[data-block='{LONG}']")
    assert right[0] + right[2] < tab.box("[data-block='session']")[0], "it hides its neighbour"


def test_a_wire_cannot_begin_at_a_pin_that_takes_none(hands: Hands, server: ServerProcess) -> None:
    page(server)
    tab = hands.tab
    open_file(hands, "three.svg")
    before = tab.middle("[data-block='x'] .block-title")
    for name, why in (("result_output", "wire output instead"), ("val", "type its value instead"), ("scope", "never wired")):
        start = hands.handle("x", name)
        tab.drag(start, (start[0] + 40, start[1] + 60))
        tab.wait(f"document.querySelector('.toasts').innerText.includes({why!r})", f"the reason why {name} is not wired")
    assert near(tab.middle("[data-block='x'] .block-title"), before, 1), "the block was dragged instead"
    said = "document.querySelectorAll('.toast').length"
    count = tab.run(said)
    tab.click("[data-block='x'] [data-pin='val'] .dot", times=2)
    tab.wait("document.querySelector('.panel.watch .table-row')", "a double click to watch it all the same")
    assert tab.run(said) <= count
