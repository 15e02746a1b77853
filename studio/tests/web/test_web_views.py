"""What the studio shows, in a real Chromium: windows that light up, errors on the field, long tables, heat maps, examples,
and work that survives a server that dies."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
from chromium import CTRL, SHIFT
from web_support import NEEDS, ROOT, Hands, ServerProcess

from poolgrad.enuspace import Page, save_page

pytestmark = NEEDS


def gradient_page(folder: Path) -> Page:
    """Windows 3x2 with strides 2x1 and SAME over 5x6 inputs: overlapping, and different on both axes."""
    page = Page("windows")
    rng = np.random.default_rng(5)
    page.add("Const", "shape", at=(40, 40), val=np.array([1, 5, 6, 1], np.int32))
    page.add("Const", "dy", at=(40, 220), val=rng.integers(-9, 9, (1, 3, 6, 1)).astype(np.float32))
    page.add("AvgPoolGrad", "pool", at=(340, 90), ksize="1,3,2,1", strides="1,2,1,1", padding="SAME")
    page.add("ClientSession", "session", at=(640, 110))
    page.connect("shape", "output", "pool", "orig_input_shape")
    page.connect("dy", "output", "pool", "grad")
    page.connect("pool", "output", "session", "fetch_outputs")
    save_page(page, folder / "windows.svg")
    return page


def open_file(hands: Hands, name: str) -> None:
    tab = hands.tab
    tab.key("o", modifiers=CTRL)
    script = f"[...document.querySelectorAll('dialog li button')].find(b => b.innerText.includes({json.dumps(name)}))"
    tab.wait(script, f"{name} in the list")
    tab.run(f"({script}).setAttribute('data-wanted', '')")
    tab.click("[data-wanted]")
    tab.wait("!document.querySelector('dialog') && document.querySelector('.block')", f"{name} open")
    hands.fitted()


def point(hands: Hands, side: str, row: int, column: int) -> str:
    """Hover a cell of a grid; gives what is said about it."""
    tab = hands.tab
    left, top, _, _ = tab.box(f".grid.{side}")
    cell = float(tab.run(f"document.querySelector('.grid.{side}').dataset.cell"))
    tab.move(left + (column + 0.5) * cell, top + (row + 0.5) * cell)
    wanted = f"({row}, {column})"
    return str(tab.wait(f"(t => t.includes({json.dumps(wanted)}) && t)(document.querySelector('.windows-said').innerText)"))


def colour(hands: Hands, side: str, row: int, column: int) -> str:
    """What the corner of a cell is painted: yellow, green or dark."""
    script = f"""(() => {{
        const grid = document.querySelector('.grid.{side}'), n = Number(grid.dataset.cell);
        const context = grid.querySelector('canvas').getContext('2d');
        return [...context.getImageData({column} * n + 5, {row} * n + 5, 1, 1).data]; }})()"""
    red, green, blue, _ = hands.tab.run(script)
    return "yellow" if red > 120 and green > 100 and blue < 90 else "green" if green > red + 60 else "dark"


def test_windows_light_up(hands: Hands, server: ServerProcess) -> None:
    gradient_page(server.folder)
    tab = hands.tab
    open_file(hands, "windows.svg")
    hands.choose("pool")
    tab.key("g")
    tab.wait("document.querySelector('.grid.inputs canvas')", "the grids")
    # Windows 3 with stride 2 over 5: SAME pads one row on each side. The first window holds rows 0 and 1.
    said = point(hands, "cells", 0, 2)
    assert said == "dY(0, 2) is shared among 4 inputs (H 0…1, W 2…3): each of them gets 1/4"
    hands.shot("cell")
    lit = {(r, c) for r in range(5) for c in range(6) if colour(hands, "inputs", r, c) == "yellow"}
    assert lit == {(0, 2), (0, 3), (1, 2), (1, 3)}
    assert point(hands, "cells", 1, 5) == "dY(1, 5) is shared among 3 inputs (H 1…3, W 5): each of them gets 1/3"
    said = point(hands, "inputs", 1, 2)
    assert said.startswith("dX(1, 2) = 1/4·dY(0, 1) + 1/4·dY(0, 2) + 1/6·dY(1, 1) + 1/6·dY(1, 2)")
    assert "4 cells feed it" in said
    lit = {(r, c) for r in range(3) for c in range(6) if colour(hands, "cells", r, c) == "green"}
    assert lit == {(0, 1), (0, 2), (1, 1), (1, 2)}
    hands.shot("input")
    tab.run("document.querySelector('.grid.cells').focus()")
    tab.move(5, 5)
    tab.key("ArrowRight", "ArrowRight", "ArrowDown")
    tab.wait("document.querySelector('.windows-said').innerText.startsWith('dY(1, 1)')", "the arrow keys to move over the cells")


def test_windows_of_a_big_picture_show_their_weights(hands: Hands, server: ServerProcess) -> None:
    page = Page("big")
    page.add("Const", "x", at=(40, 40), val=np.zeros((1, 300, 200, 1), np.float32))
    page.add("AvgPool", "pool", at=(340, 90), ksize="1,3,2,1", strides="1,2,1,1", padding="VALID")
    page.connect("x", "output", "pool", "value")
    save_page(page, server.folder / "big.svg")
    tab = hands.tab
    open_file(hands, "big.svg")
    hands.choose("pool")
    tab.key("g")
    tab.wait("document.querySelector('.grid.inputs canvas')", "the grids")
    assert point(hands, "cells", 1, 2) == "Y(1, 2) is a sum of 6 inputs (H 2…4, W 2…3): each of them counts 1/6"
    # The weight is written in the middle of the cell: not every pixel on the line through it has the colour of the light.
    script = """(() => {
        const grid = document.querySelector('.grid.inputs'), n = Number(grid.dataset.cell);
        const context = grid.querySelector('canvas').getContext('2d');
        const row = context.getImageData(2 * n + 3, Math.round(2.5 * n), n - 6, 1).data;
        return [...row].filter((_, k) => k % 4 === 0 && row[k] < 120).length; })()"""
    assert tab.run(script) > 0
    hands.shot("big")


def test_a_window_cannot_be_lost(hands: Hands, server: ServerProcess) -> None:
    gradient_page(server.folder)
    tab = hands.tab
    open_file(hands, "windows.svg")
    hands.watch("dy", "val")
    left, top, width, height = tab.box(".middle")
    start = tab.middle(".panel.watch header h2")
    tab.drag(start, (left + width + 200, top + height + 150))
    x, y, _, _ = tab.box(".panel.watch")
    assert x > start[0]
    assert x <= left + width - 100
    assert y <= top + height - 30
    tab.drag((x + 40, y + 15), (x - 200, y - 200))
    back = tab.box(".panel.watch")
    assert back[0] < x - 150
    assert back[1] < y - 150


def test_a_broken_property(hands: Hands, server: ServerProcess) -> None:
    gradient_page(server.folder)
    tab = hands.tab
    open_file(hands, "windows.svg")
    assert hands.run() == "done"
    hands.choose("pool")
    hands.set("pool", "ksize", "1,3,x,1")
    assert tab.text(".field.bad .error").startswith("item 3 of '1,3,x,1' is not an integer: 'x'")
    assert "write 4 integers in the order of data_format_" in tab.text(".field.bad .legal")
    assert tab.run(f"document.querySelector(\"{hands.field('pool', 'ksize')}\").getAttribute('aria-invalid')") == "true"
    hands.kept()
    hands.state("pool", "stale")
    hands.state("session", "stale")
    hands.state("dy", "done")
    tab.wait("document.querySelector('.pin.bad[data-pin=ksize]')", "the pin to be marked")
    hands.shot("broken")
    assert hands.run() == "failed"
    hands.set("pool", "padding", "same")
    tab.click(".field.bad .legal button")
    tab.wait(f"document.querySelector(\"{hands.field('pool', 'padding')}\").value === 'SAME'", "the legal form to be taken")
    hands.set("pool", "ksize", "1,3,2,1")
    tab.wait("!document.querySelector('.field.bad')", "no error any more")
    assert hands.run() == "done"


def test_step_and_stop(hands: Hands, server: ServerProcess) -> None:
    page = gradient_page(server.folder)
    loop = page.block("session").pin("INFINITE_LOOP")
    assert loop
    loop.value = "TRUE"
    save_page(page, server.folder / "windows.svg")
    tab = hands.tab
    open_file(hands, "windows.svg")
    tab.key("Enter", modifiers=CTRL | SHIFT)
    tab.wait("document.querySelector('[data-run=paused]')", "one step")
    hands.state("shape", "done")
    hands.state("pool", "idle")
    tab.key("Enter", modifiers=CTRL | SHIFT)
    hands.state("dy", "done")
    hands.shot("step")
    tab.click(".tool.go")
    tab.wait("document.querySelector('[data-run=done]')", "the rest of the run")
    tab.click(".tool.go")
    tab.wait("document.querySelector('[data-run=running]')?.innerText.includes('cycle')", "an endless run")
    tab.click(".tool.halt")
    tab.wait("document.querySelector('[data-run=cancelled]')", "the run to stop")


def test_a_million_rows(hands: Hands, server: ServerProcess) -> None:
    values = np.random.default_rng(3).standard_normal((1000, 1000)).astype(np.float32)
    np.save(server.folder / "big.npy", values)
    tab = hands.tab
    hands.begin()
    tab.click(".palette-item[data-symbol='input npy']")
    tab.wait("[...document.querySelectorAll('dialog li button')].some(b => b.innerText.includes('big.npy'))")
    tab.click("dialog li button")
    tab.wait("document.querySelector('.block')", "a block with the array")
    shown = hands.watch("ID_1", "val")
    assert shown[0][:2] == ["float", "val[0][0]"]
    assert len(shown) < 60
    tab.fill(".goto input", "[765][432]")
    tab.key("Enter")
    rows = "[...document.querySelectorAll('.table-row')]"
    script = f"{rows}.find(r => r.children[1].innerText === 'val[765][432]')?.children[2].innerText"
    assert np.float32(tab.wait(script, "the row of one element")) == values[765, 432]
    tab.run("document.querySelector('.table').scrollTop = 1e9")
    tab.wait("[...document.querySelectorAll('.table-row')].at(-1).children[1].innerText === 'val[999][999]'", "the last row")
    tab.click(".watch-tabs [role=tab]:nth-child(2)")
    tab.wait("document.querySelector('.picture canvas')?.width === 1000", "the heat map")
    tab.wait("performance.getEntriesByName('heat map drawn').length")
    hands.shot("heat")
    tab.click(".watch-tabs [role=tab]:nth-child(3)")
    tab.wait("document.querySelector('.plot-box path.curve')", "the line")
    hands.shot("line")
    tab.click(".watch-tabs [role=tab]:nth-child(4)")
    assert "1,000,000" in tab.text(".stats dl")
    hands.shot("statistics")
    hrefs = tab.run("[...document.querySelectorAll('.saves a')].map(a => a.href)")
    sizes = tab.run(f"Promise.all({json.dumps(hrefs[:1] + hrefs[2:])}.map(u => fetch(u).then(r => r.blob()).then(b => b.size)))")
    assert sizes[0] == (server.folder / "big.npy").stat().st_size
    assert sizes[1] > 1000


def test_the_example_and_its_twin(hands: Hands) -> None:
    tab = hands.tab
    tab.click(".topbar .tool[aria-label=Example]")
    assert "mistake" in tab.text(".example h2")
    hands.fitted()
    assert hands.run() == "failed"
    tab.click(".badge.failed")
    assert "to mend it" in tab.text(".block-error")
    hands.shot("documented")
    tab.click(".example .primary")
    tab.wait("document.querySelector('.example h2').innerText.includes('put right')")
    hands.fitted()
    assert hands.run() == "done"
    assert tab.text("[data-block=pool] [data-pin=result_output]").split("\n") == ["result_output[2][1][1][1][2]", "1, 3, 5, 7"]
    assert [row[2] for row in hands.watch("pool", "result_output")] == ["1", "3", "5", "7"]
    tab.run("document.activeElement.blur()")
    tab.key("k")
    code = tab.text("pre.code")
    names: dict[str, object] = {}
    exec(code, names)
    assert np.asarray(names["pool"]).ravel().tolist() == [1, 3, 5, 7]
    hands.shot("code")
    tab.key("Escape")
    tab.wait("!document.querySelector('dialog')")
    tab.click(".tool[aria-label='light colours']")
    hands.shot("light")


def test_an_unknown_block_is_kept(hands: Hands, server: ServerProcess) -> None:
    shutil.copy(ROOT / "tests" / "cases" / "enuspace" / "basic.svg", server.folder / "basic.svg")
    tab = hands.tab
    open_file(hands, "basic.svg")
    tab.wait("document.querySelector('.block.unknown')", "the block nobody can run")
    assert "press L to lay them out" in tab.text(".toasts")
    tab.key("l")
    lefts = "new Set([...document.querySelectorAll('.block')].map(b => Math.round(b.getBoundingClientRect().left))).size"
    tab.wait(f"{lefts} === 3", "three columns")
    assert hands.run() == "failed"
    assert "cannot run here; these can: Const" in tab.text(".log-body")
    hands.shot("page")


def test_a_server_that_dies_loses_nothing(hands: Hands, server: ServerProcess) -> None:
    tab = hands.tab
    hands.begin()
    first = hands.drop("AvgPool", 80, 60)
    hands.kept()
    server.kill()
    tab.wait("document.querySelector('.kept.bad')", "the loss to be noticed")
    second = hands.drop("ClientSession", 420, 60)
    hands.shot("away")
    server.start()
    hands.kept()
    assert hands.blocks() == [first, second]
    hands.wire(first, "output", second, "fetch_outputs")
    hands.kept()
    tab.events.clear()  # the console said that the server was away
    tab.reload()
    tab.wait("document.querySelectorAll('.block').length === 2", "the page again")
    tab.wait("document.querySelectorAll('.wire').length === 1", "its wire")


def test_a_new_server_knows_no_results(hands: Hands, server: ServerProcess) -> None:
    page = gradient_page(server.folder)
    tab = hands.tab
    open_file(hands, "windows.svg")
    assert hands.run() == "done"
    hands.state("pool", "done")
    server.kill()
    tab.wait("document.querySelector('.kept.bad')", "the loss to be noticed")
    server.start()
    hands.state("pool", "idle")
    assert tab.text("[data-block=pool] [data-pin=result_output]") == "result_output"
    assert hands.blocks() == [block.id for block in page.blocks]
    assert hands.run() == "done"
    tab.events.clear()  # the console said that the server was away


def test_the_keyboard_reaches_a_const_whose_values_are_kept_apart(hands: Hands, server: ServerProcess) -> None:
    np.save(server.folder / "many.npy", np.arange(50_000, dtype=np.float32))
    tab = hands.tab
    hands.begin()
    tab.click(".palette-item[data-symbol='input npy']")
    tab.wait("document.querySelector('dialog li button')")
    tab.click("dialog li button")
    tab.wait("document.querySelector('.block')", "a block with the array")
    tab.run("document.activeElement.blur()")
    tab.key("Escape", "n", "e")
    tab.wait("document.activeElement?.dataset.field === 'ID_1.val.shape'", "the first field that can be typed in")
    time.sleep(0.2)
    tab.wait("document.activeElement?.dataset.field === 'ID_1.val.shape'", "the focus that no earlier key takes away")
