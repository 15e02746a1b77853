"""A real Chromium without a window, driven over its own debugging protocol: no driver, no browser library.

Input goes in as mouse and key events of the browser itself, so that what is tested is what a user does. Every wait is for
a state of the page, with a generous limit: the machine may be slow, and no test here judges speed.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

__all__ = ["CTRL", "SHIFT", "Chromium", "Tab", "find_chromium"]

PATIENCE = 60.0
KEYS = {
    "Enter": (13, "\r"),
    "Escape": (27, ""),
    "Tab": (9, ""),
    "Backspace": (8, ""),
    "Delete": (46, ""),
    "ArrowLeft": (37, ""),
    "ArrowUp": (38, ""),
    "ArrowRight": (39, ""),
    "ArrowDown": (40, ""),
    "Home": (36, ""),
    "End": (35, ""),
    "PageDown": (34, ""),
}
SEEN = """[...document.querySelectorAll('.log-body, .toasts, dialog, .progress, .kept')]
    .map(e => e.innerText).join(' | ').slice(0, 900)"""
ALT, CTRL, META, SHIFT = 1, 2, 4, 8
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--disable-extensions",
    "--disable-dev-shm-usage",
    "--disable-features=Translate,MediaRouter,OptimizationHints",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-port=0",
)


def find_chromium() -> str | None:
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
    return os.environ.get("CHROMIUM") or next((path for path in map(shutil.which, names) if path), None)


class Chromium:
    """A browser with a profile of its own, gone when it is closed."""

    def __init__(self, width: int = 1400, height: int = 900) -> None:
        program = find_chromium()
        assert program, "no Chromium found; set CHROMIUM to its path"
        self.profile = Path(tempfile.mkdtemp(prefix="studio-chromium-"))
        size = f"--window-size={width},{height}"
        self.process = subprocess.Popen(
            [program, *FLAGS, size, f"--user-data-dir={self.profile}", "about:blank"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self.size = width, height
        note = self.profile / "DevToolsActivePort"
        _until(lambda: note.exists() and note.read_text().count("\n") >= 1, "Chromium did not start")
        port, path = note.read_text().split("\n")[:2]
        self.port = int(port)
        self._held = contextlib.ExitStack()
        self.socket = self._held.enter_context(connect(f"ws://127.0.0.1:{port}{path}", max_size=None))
        self.ids = 0

    def tab(self, address: str) -> Tab:
        """A new tab that shows `address`."""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        opening = connect(f"ws://127.0.0.1:{self.port}/devtools/page/{target}", max_size=None)
        tab = Tab(self._held.enter_context(opening), self.size)
        tab.go(address)
        return tab

    def _call(self, method: str, **given: Any) -> Any:
        self.ids += 1
        self.socket.send(json.dumps({"id": self.ids, "method": method, "params": given}))
        while True:
            answer = json.loads(self.socket.recv(timeout=PATIENCE))
            if answer.get("id") == self.ids:
                return answer["result"]

    def close(self) -> None:
        try:
            self._call("Browser.close")
            self._held.close()
            self.process.wait(20)
        except Exception:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.profile, ignore_errors=True)


class Tab:
    """One page: what it shows, and hands on its mouse and keyboard."""

    def __init__(self, socket: ClientConnection, size: tuple[int, int]) -> None:
        self.socket = socket
        self.ids = 0
        self.events: list[dict[str, Any]] = []
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")
        self.call("Page.bringToFront")
        self.call("Emulation.setFocusEmulationEnabled", enabled=True)
        width, height = size
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def call(self, method: str, **given: Any) -> Any:
        self.ids += 1
        self.socket.send(json.dumps({"id": self.ids, "method": method, "params": given}))
        while True:
            message = json.loads(self.socket.recv(timeout=PATIENCE))
            if message.get("id") != self.ids:
                self.events.append(message)
                continue
            assert "error" not in message, f"{method}: {message['error']}"
            return message["result"]

    def event(self, method: str) -> dict[str, Any]:
        """The next event of this kind."""
        while True:
            found = next((k for k, message in enumerate(self.events) if message.get("method") == method), None)
            if found is not None:
                return dict(self.events.pop(found)["params"])
            self.events.append(json.loads(self.socket.recv(timeout=PATIENCE)))

    def go(self, address: str) -> None:
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def reload(self) -> None:
        self.run("window.before = true")
        self.call("Page.reload")
        self.wait("!window.before && document.readyState === 'complete'")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression; an element counts as true."""
        whole = f"Promise.resolve({script}).then(v => v instanceof Node ? true : v)"
        made = self.call("Runtime.evaluate", expression=whole, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in made, f"{script}: {made['exceptionDetails']}"
        return made["result"].get("value")

    def wait(self, script: str, what: str = "") -> Any:
        """Waits until the expression is true; gives its value."""
        found: list[Any] = []

        def ready() -> bool:
            try:
                found[:] = [self.run(script)]
            except AssertionError as error:  # a page that is being replaced has no context for a moment
                if "context" not in str(error) and "navigated" not in str(error):
                    raise
                return False
            return bool(found[0])

        _until(ready, what or script, lambda: self.run(SEEN))
        return found[0]

    def text(self, selector: str) -> str:
        return str(self.wait(f"document.querySelector({json.dumps(selector)})?.innerText", selector))

    def errors(self) -> list[str]:
        """What the page complained about in its console."""
        self.run("1")
        said = [m["params"] for m in self.events if m.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded")]
        return [json.dumps(p) for p in said if p.get("entry", {}).get("level", "error") == "error"]

    def box(self, selector: str) -> tuple[float, float, float, float]:
        """Left, top, width and height of an element that is drawn and no longer moves."""
        script = f"""(() => {{
            const e = document.querySelector({json.dumps(selector)}); if (!e) return null;
            e.scrollIntoView({{block: 'nearest', inline: 'nearest'}});
            const r = e.getBoundingClientRect(); return r.width ? [r.left, r.top, r.width, r.height] : null; }})()"""
        last = None
        while True:
            now = self.wait(script, f"{selector} is not to be seen")
            if now == last:
                return now[0], now[1], now[2], now[3]
            last = now
            time.sleep(0.05)

    def middle(self, selector: str) -> tuple[float, float]:
        left, top, width, height = self.box(selector)
        return left + width / 2, top + height / 2

    def mouse(self, kind: str, x: float, y: float, **more: Any) -> None:
        self.call("Input.dispatchMouseEvent", type=f"mouse{kind}", x=x, y=y, **more)

    def move(self, x: float, y: float) -> None:
        self.mouse("Moved", x, y)

    def press(self, x: float, y: float, count: int = 1) -> None:
        self.mouse("Pressed", x, y, button="left", buttons=1, clickCount=count)

    def release(self, x: float, y: float, count: int = 1) -> None:
        self.mouse("Released", x, y, button="left", clickCount=count)

    def click(self, selector: str, times: int = 1) -> None:
        x, y = self.middle(selector)
        self.move(x, y)
        for count in range(1, times + 1):
            self.press(x, y, count)
            self.release(x, y, count)

    def drag(self, start: tuple[float, float], end: tuple[float, float], steps: int = 8, hold: bool = False) -> None:
        """Press at `start`, move to `end`, and let go unless `hold`."""
        (x, y), (u, v) = start, end
        self.move(x, y)
        self.press(x, y)
        for k in range(1, steps + 1):
            self.mouse("Moved", x + (u - x) * k / steps, y + (v - y) * k / steps, button="left", buttons=1)
        if not hold:
            self.release(u, v)

    def drop(self, selector: str, x: float, y: float) -> None:
        """Drag an element as browsers drag, with data, and drop it at a place."""
        self.call("Input.setInterceptDrags", enabled=True)
        left, top = self.middle(selector)
        self.move(left, top)
        self.press(left, top)
        for k in range(1, 6):
            self.mouse("Moved", left + 6 * k, top + 4 * k, button="left", buttons=1)
        data = self.event("Input.dragIntercepted")["data"]
        for kind in ("dragEnter", "dragOver", "drop"):
            self.call("Input.dispatchDragEvent", type=kind, x=x, y=y, data=data)
        self.release(x, y)
        self.call("Input.setInterceptDrags", enabled=False)

    def key(self, *names: str, modifiers: int = 0) -> None:
        """Press and release keys, one after another."""
        for name in names:
            code, text = KEYS.get(name, (ord(name.upper()) if len(name) == 1 else 0, name))
            given = {"key": name, "windowsVirtualKeyCode": code, "modifiers": modifiers, "code": name if name in KEYS else ""}
            if text and not modifiers & (CTRL | ALT | META):
                given |= {"text": text, "unmodifiedText": text}
            kind = "keyDown" if "text" in given else "rawKeyDown"
            self.call("Input.dispatchKeyEvent", type=kind, **given)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=name, windowsVirtualKeyCode=code, modifiers=modifiers)

    def type(self, text: str) -> None:
        self.call("Input.insertText", text=text)

    def fill(self, selector: str, text: str) -> None:
        """Replace what a field holds, as a user would: choose all of it and type."""
        found = f"document.querySelector({json.dumps(selector)})"
        self.wait(found, selector)
        self.run(f"(e => {{ e.scrollIntoView({{block: 'nearest'}}); e.focus(); e.select(); }})({found})")
        self.type(text) if text else self.key("Backspace")

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


def _until(ready: Callable[[], bool], what: str, more: Callable[[], object] | None = None) -> None:
    end = time.monotonic() + PATIENCE
    while not ready():
        assert time.monotonic() < end, f"waited in vain: {what}" + (f"\n{more()}" if more else "")
        time.sleep(0.03)
