"""The pictures of docs/studio.md, taken anew.

make studio && .venv/bin/python studio/web/scripts/screenshots.py docs/images
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "web"))
from chromium import CTRL, Chromium
from web_support import Hands, ServerProcess

from poolgrad.enuspace import Page, save_page


def gradient(folder: Path) -> None:
    page = Page("Overlapping windows")
    rng = np.random.default_rng(5)
    page.add("Const", "shape", at=(40, 40), val=np.array([1, 7, 8, 1], np.int32))
    page.add("Const", "dy", at=(40, 220), val=rng.integers(-9, 10, (1, 4, 8, 1)).astype(np.float32))
    page.add("AvgPoolGrad", "pool", at=(340, 90), ksize="1,3,2,1", strides="1,2,1,1", padding="SAME")
    page.add("ClientSession", "session", at=(640, 110))
    page.connect("shape", "output", "pool", "orig_input_shape")
    page.connect("dy", "output", "pool", "grad")
    page.connect("pool", "output", "session", "fetch_outputs")
    save_page(page, folder / "overlapping.svg")


def main(out: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="poolings-") as folder:
        gradient(Path(folder))
        server, browser = ServerProcess(Path(folder)), Chromium(1400, 880)
        try:
            hands = Hands(browser, server.address)
            tab = hands.tab
            tab.click(".topbar .tool[aria-label=Example]")
            tab.wait("document.querySelectorAll('.block').length === 4")
            hands.run()
            tab.click(".badge.failed")
            tab.wait("document.querySelector('.block-error')")
            time.sleep(1)
            tab.screenshot(out / "studio-example.png")

            tab.key("o", modifiers=CTRL)
            tab.click("dialog li button")
            tab.wait("document.querySelector('[data-block=dy]')")
            hands.run()
            hands.choose("pool")
            tab.key("g")
            tab.wait("document.querySelector('.grid.inputs canvas')")
            left, top, _, _ = tab.box(".grid.inputs")
            cell = float(tab.run("document.querySelector('.grid.inputs').dataset.cell"))
            time.sleep(1)
            tab.move(left + 3.5 * cell, top + 3.5 * cell)
            tab.wait("document.querySelector('.windows-said').innerText.startsWith('dX(')")
            time.sleep(1)
            tab.screenshot(out / "studio-windows.png")
        finally:
            browser.close()
            server.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
