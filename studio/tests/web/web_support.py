"""The studio as its users have it: a server of its own process, a Chromium, and hands that know where things are."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from chromium import CTRL, Chromium, Tab, find_chromium

import poolgrad_studio

__all__ = ["NEEDS", "Hands", "ServerProcess", "run_headless"]

ROOT = Path(__file__).resolve().parents[3]
SHOTS = os.environ.get("STUDIO_SCREENSHOTS")
STATIC = Path(poolgrad_studio.__file__).parent / "static"
NEEDS = [
    pytest.mark.skipif(find_chromium() is None, reason="there is no Chromium here; CHROMIUM may name one"),
    pytest.mark.skipif(not (STATIC / "index.html").exists(), reason="the client is not built: make studio"),
]


class ServerProcess:
    """`python -m poolgrad_studio` in a folder. It can be killed and started again at the same address."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, 0
        self.start()

    def start(self) -> None:
        command = [sys.executable, "-m", "poolgrad_studio", str(self.folder), "--no-browser", "--token", "test"]
        self.process = subprocess.Popen(
            [*command, "--port", str(self.port)],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout
        found = re.search(r"http://127\.0\.0\.1:(\d+)/\S+", self.process.stdout.readline())
        assert found, "the server did not start"
        self.address, self.port = found[0], int(found[1])

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()


class Hands:
    """A tab of the studio, and what a user does in it."""

    def __init__(self, browser: Chromium, address: str, name: str = "") -> None:
        self.tab: Tab = browser.tab(address)
        self.name = name
        self.tab.wait("document.querySelector('.palette-item')", "the palette")

    def shot(self, state: str) -> None:
        """A picture of this state, where somebody wants to look."""
        if SHOTS:
            time.sleep(0.4)
            self.tab.screenshot(Path(SHOTS) / f"{self.name}-{state}.png")

    def fitted(self) -> None:
        """A page that was just opened moves into sight once; until then nothing is where it seems."""
        self.tab.wait("location.hash.slice(1) && document.querySelector('.canvas').dataset.fitted === location.hash.slice(1)")

    def begin(self) -> None:
        """An empty page."""
        self.tab.click(".cards button:nth-child(4)")
        self.tab.wait("!document.querySelector('.welcome')")

    def blocks(self) -> list[str]:
        return list(self.tab.run("[...document.querySelectorAll('.block')].map(b => b.dataset.block)"))

    def drop(self, symbol: str, x: float, y: float) -> str:
        """Drag a block from the palette to a place on the page, given from the page's corner."""
        before = set(self.blocks())
        left, top, _, _ = self.tab.box(".canvas")
        self.tab.drop(f".palette-item[data-symbol='{symbol}']", left + x, top + y)
        return self._new(before)

    def place(self, symbol: str) -> str:
        """Place a block with the keyboard alone; it has the focus then."""
        before = set(self.blocks())
        self.tab.key("/")
        self.tab.wait("document.activeElement?.id === 'palette-search'")
        self.tab.run("document.activeElement.select()")
        self.tab.type(symbol)
        self.tab.wait(f"document.querySelector('.palette-item.active')?.dataset.symbol === {json.dumps(symbol)}")
        self.tab.key("Enter")
        made = self._new(before)
        self.tab.wait(f"document.activeElement?.dataset.id === {json.dumps(made)}", "the focus on the new block")
        return made

    def _new(self, before: set[str]) -> str:
        blocks = "[...document.querySelectorAll('.block')].map(b => b.dataset.block)"
        return str(self.tab.wait(f"{blocks}.find(b => !{json.dumps(sorted(before))}.includes(b))", "a new block"))

    def handle(self, block: str, pin: str) -> tuple[float, float]:
        return self.tab.middle(f"[data-block='{block}'] [data-pin='{pin}'] .dot")

    def wire(self, source: str, source_pin: str, target: str, target_pin: str) -> None:
        before = self.wires()
        self.tab.drag(self.handle(source, source_pin), self.handle(target, target_pin))
        self.tab.wait(f"document.querySelectorAll('.wire').length === {before + 1}", f"a wire to {target}.{target_pin}")

    def wire_by_keyboard(self, block: str, find: str, wanted: str) -> None:
        """With the block in focus: W, the pin to wire, Enter."""
        before = self.wires()
        self.tab.key("w")
        self.tab.wait("document.querySelector('dialog .choices')", "the dialog for wires")
        if find not in self.tab.text("dialog h2"):
            tabs = "[...document.querySelectorAll('dialog [role=tab]')]"
            self.tab.run(f"{tabs}.find(t => t.innerText === {json.dumps(find)}).focus()")
            self.tab.key("Enter")
            self.tab.run("document.querySelector('dialog input').focus()")
        self.tab.type(wanted)
        self.tab.wait(f"document.querySelector('dialog .choices .active span')?.innerText === {json.dumps(wanted)}")
        self.tab.key("Enter")
        self.tab.wait(f"document.querySelectorAll('.wire').length === {before + 1}", f"a wire of {block} with {wanted}")

    def wires(self) -> int:
        return int(self.tab.run("document.querySelectorAll('.wire').length"))

    def choose(self, block: str) -> None:
        self.tab.click(f"[data-block='{block}'] .block-title")
        self.tab.wait(f"document.querySelector(\".inspector [data-field^='{block}.']\")", f"the properties of {block}")

    def field(self, block: str, pin: str) -> str:
        return f".inspector [data-field='{block}.{pin}']"

    def set(self, block: str, pin: str, text: str) -> None:
        self.tab.fill(self.field(block, pin), text)

    def pick(self, block: str, pin: str, value: str) -> None:
        """Choose from a list by typing the beginning of the word, as browsers allow."""
        selector = self.field(block, pin)
        self.tab.run(f"document.querySelector({json.dumps(selector)}).focus()")
        self.tab.key(value[0])
        self.tab.wait(f"document.querySelector({json.dumps(selector)}).value === {json.dumps(value)}")

    def tensor(self, block: str, type: str, shape: str, values: str) -> None:
        """Fill a Const that is chosen."""
        self.pick(block, "val.type", type)
        self.set(block, "val.shape", shape)
        self.set(block, "val", values)

    def kept(self) -> None:
        self.tab.wait("document.querySelector('[data-kept=kept]')", "the page to be kept")

    def run(self) -> str:
        """Run by keyboard and wait for the end; gives how it ended."""
        self.kept()
        before = self.tab.run("Number(document.querySelector('[data-run]')?.dataset.number ?? 0)")
        self.tab.key("Enter", modifiers=CTRL)
        ended = f"(s => s && s.number > {before} && ['done', 'failed', 'cancelled'].includes(s.run) && s.run)"
        ended += "(document.querySelector('[data-run]')?.dataset)"
        return str(self.tab.wait(ended, "the end of the run"))

    def state(self, block: str, state: str) -> None:
        self.tab.wait(f"document.querySelector(\"[data-block='{block}']\").dataset.state === '{state}'", f"{block} {state}")

    def watch(self, block: str, pin: str) -> list[list[str]]:
        """Double-click a pin; gives the rows of its table, once they are all there."""
        self.tab.click(f"[data-block='{block}'] [data-pin='{pin}'] .pin-name", times=2)
        rows = "[...document.querySelectorAll('.panel.watch .table-row:not(.coming)')]"
        cells = f"(r => r.length && r)({rows}.map(r => [...r.children].map(c => c.innerText)))"
        return list(self.tab.wait(cells, f"the values of {block}.{pin}"))

    def save(self, name: str) -> None:
        self.tab.key("s", modifiers=CTRL)
        self.tab.fill("dialog input[data-first]", name)
        self.tab.key("Enter")
        self.tab.wait(f"document.querySelector('.kept').innerText === 'saved as {name}'", "the page to be saved")


def run_headless(page: Path) -> dict[str, Any]:
    """`poolgrad run page --json`, in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "poolgrad", "run", str(page), "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout))
