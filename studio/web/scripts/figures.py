"""The studio's figures, measured in a headless Chromium on this computer.

    make studio && .venv/bin/python studio/web/scripts/figures.py

Each figure is taken several times; the table shows the best and the median. Nothing here is a test.
"""

from __future__ import annotations

import gzip
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "web"))
from chromium import CTRL, Chromium, Tab
from web_support import STATIC, Hands, ServerProcess

from poolgrad.enuspace import Page, save_page

ROUNDS = 7
FRAMES = """(window.frames = [], (function next(t) {
    frames.push(t); window.frame = requestAnimationFrame(next) })(performance.now()), true)"""
ENDS = """(window.ends = {}, new MutationObserver(() => {
    const s = document.querySelector('[data-run]')?.dataset;
    if (s?.run === 'done') window.ends[s.number] ??= performance.now();
}).observe(document.body, {subtree: true, childList: true, attributes: true}), true)"""
HELD = "[data-block='p12_0'] .block-title"
SIZES = "assets/app.js", "assets/app.css", "index.html"


def two_hundred(folder: Path) -> None:
    """Fifty rows of a Const, two poolings and a session, all wired."""
    page = Page("two hundred blocks")
    for k in range(50):
        x, y = 1240 * (k % 5), 300 * (k // 5)
        page.add("Const", f"c{k}", at=(x, y), val=np.ones((1, 4, 4, 1), np.float32))
        for n in range(2):
            page.add("AvgPool", f"p{k}_{n}", at=(x + 300 * (n + 1), y), ksize="1,2,2,1", padding="SAME")
        page.add("ClientSession", f"s{k}", at=(x + 900, y))
        page.connect(f"c{k}", "output", f"p{k}_0", "value")
        page.connect(f"p{k}_0", "output", f"p{k}_1", "value")
        page.connect(f"p{k}_1", "output", f"s{k}", "fetch_outputs")
    save_page(page, folder / "blocks.svg")


def picture(folder: Path) -> None:
    """A pooling whose result is a picture of 1,000 by 1,000."""
    page = Page("picture")
    x = np.random.default_rng(0).standard_normal((1, 1000, 1000, 1)).astype(np.float32)
    page.add("Const", "x", at=(40, 40), val=x)
    page.add("AvgPool", "pool", at=(340, 40), ksize="1,5,3,1", padding="SAME")
    page.add("ClientSession", "session", at=(640, 40))
    page.connect("x", "output", "pool", "value")
    page.connect("pool", "output", "session", "fetch_outputs")
    save_page(page, folder / "picture.svg")


def open_page(hands: Hands, name: str) -> None:
    hands.tab.key("o", modifiers=CTRL)
    find = f"[...document.querySelectorAll('dialog li button')].find(b => b.innerText.includes('{name}'))"
    hands.tab.wait(find)
    hands.tab.run(f"({find}).click()")
    hands.tab.wait("!document.querySelector('dialog') && document.querySelector('.block')")
    time.sleep(1)


def first_paint(browser: Chromium, address: str) -> list[float]:
    times = []
    for _ in range(ROUNDS):
        tab = browser.tab(address)
        times.append(float(tab.wait("performance.getEntriesByName('first-contentful-paint')[0]?.startTime")))
        tab.call("Page.close")
    return times


def busy(tab: Tab) -> float:
    """Milliseconds that the page's main thread has computed so far, whatever else the machine does."""
    metrics = tab.call("Performance.getMetrics")["metrics"]
    return 1000 * next(float(m["value"]) for m in metrics if m["name"] == "TaskDuration")


def drag(tab: Tab, start: tuple[float, float], seconds: float = 2.0) -> tuple[float, float]:
    """Frames a second, and computing time a frame, while a block, or all that are chosen, go round in circles."""
    x, y = start
    tab.call("Performance.enable", timeDomain="threadTicks")
    before = busy(tab)
    tab.move(x, y)
    tab.press(x, y)
    tab.run(FRAMES)
    begun, k = time.monotonic(), 0
    while time.monotonic() - begun < seconds:
        k += 1
        tab.mouse("Moved", x + 120 * np.sin(k / 20), y + 60 - 60 * np.cos(k / 20), button="left", buttons=1)
    moved = abs(tab.middle(HELD)[0] - x) + abs(tab.middle(HELD)[1] - y)
    tab.mouse("Moved", x, y, button="left", buttons=1)
    tab.release(x, y)
    assert moved > 5, "the block did not follow the mouse"
    frames = tab.run("(cancelAnimationFrame(window.frame), frames)")
    return 1000 * (len(frames) - 1) / (frames[-1] - frames[0]), (busy(tab) - before) / (len(frames) - 1)


def drags(hands: Hands) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    open_page(hands, "blocks.svg")
    one, all_ = [], []
    for _ in range(3):
        hands.tab.key("Escape")
        hands.tab.wait("!document.querySelector('.react-flow__node.selected')")
        one.append(drag(hands.tab, hands.tab.middle(HELD)))
        hands.tab.key("a", modifiers=CTRL)
        hands.tab.wait("document.querySelectorAll('.react-flow__node.selected').length === 200")
        all_.append(drag(hands.tab, hands.tab.middle(HELD)))
    return one, all_


def heat_maps(hands: Hands) -> tuple[list[float], list[float]]:
    """From the end of a run, and from the key that began it, to the picture."""
    tab = hands.tab
    open_page(hands, "picture.svg")
    hands.run()
    hands.watch("pool", "result_output")
    tab.click(".watch-tabs [role=tab]:nth-child(2)")
    tab.wait("document.querySelector('.picture canvas')?.width === 1000")
    tab.run(ENDS)
    tab.run("addEventListener('keydown', () => { window.pressed = performance.now() }, true)")
    after, whole = [], []
    for _ in range(ROUNDS):
        time.sleep(0.5)
        tab.run("performance.clearMarks()")
        hands.run()
        drawn = float(tab.wait("performance.getEntriesByName('heat map drawn').at(-1)?.startTime"))
        time.sleep(0.5)
        drawn = float(tab.run("performance.getEntriesByName('heat map drawn').at(-1).startTime"))
        after.append(drawn - float(tab.run("Object.values(window.ends).at(-1)")))
        whole.append(drawn - float(tab.run("window.pressed")))
    return after, whole


def jumps(hands: Hands) -> list[float]:
    """From a jump of the scroll bar to the rows of a million elements."""
    tab = hands.tab
    tab.click(".watch-tabs [role=tab]:nth-child(1)")
    times = []
    for k in range(ROUNDS):
        script = f"""new Promise(done => {{
            const table = document.querySelector('.panel .table'), begun = performance.now();
            table.scrollTop = table.scrollHeight * {(k + 1) / (ROUNDS + 1)};
            const there = () => table.querySelector('.table-row') && !table.querySelector('.table-row.coming');
            const look = () => there() ? done(performance.now() - begun) : requestAnimationFrame(look);
            requestAnimationFrame(() => requestAnimationFrame(look)); }})"""
        times.append(float(tab.run(script)))
    return times


def line(name: str, values: list[float], unit: str, goal: str, most: bool = False) -> None:
    best = max(values) if most else min(values)
    print(f"| {name} | {best:.0f} {unit} | {statistics.median(values):.0f} {unit} | {goal} |", flush=True)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        two_hundred(Path(folder))
        picture(Path(folder))
        server, browser = ServerProcess(Path(folder)), Chromium()
        try:
            print("| figure | best | median | goal |\n|---|---|---|---|")
            packed = sum(len(gzip.compress((STATIC / name).read_bytes(), 9)) for name in SIZES)
            print(f"| bundle, gzipped | {packed / 1000:.0f} kB | | under 400 kB |")
            line("first paint", first_paint(browser, server.address), "ms", "under 1,000 ms")
            hands = Hands(browser, server.address)
            one, everything = drags(hands)
            for what, found in (("one of 200 blocks dragged", one), ("200 blocks dragged at once", everything)):
                line(what, [rate for rate, _ in found], "frames/s", "at least 50", most=True)
                line(f"{what}: computing a frame", [cost for _, cost in found], "ms", "under 20 ms")
            after, whole = heat_maps(hands)
            line("1,000×1,000 heat map, after the end of a run", after, "ms", "under 300 ms")
            line("the same, after the key that began the run", whole, "ms", "")
            line("rows of a million elements, after a jump", jumps(hands), "ms", "")
        finally:
            browser.close()
            server.close()


if __name__ == "__main__":
    main()
