"""What the studio's tests share: a real server on a free port, and tabs that talk to it as a browser would."""

from __future__ import annotations

import contextlib
import json
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from poolgrad_studio.address import listen
from poolgrad_studio.server import make_server
from poolgrad_studio.studio import Studio

TOKEN = "token-of-the-tests"
PATIENCE = 60.0
Json = dict[str, Any]


class Refused(Exception):
    """An answer that says no."""

    def __init__(self, error: Json) -> None:
        super().__init__(error["message"])
        self.kind, self.legal = error["kind"], error.get("legal", "")


class Server:
    """A studio that serves a folder until it is closed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.studio = Studio(folder)
        self._browser = httpx.Client(timeout=PATIENCE, trust_env=False)
        listener = listen(0)
        self.port = listener.getsockname()[1]
        self.host = f"127.0.0.1:{self.port}"
        self.base = f"http://{self.host}/{TOKEN}/"
        self._server = make_server(self.studio, TOKEN, self.port)
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        until = time.monotonic() + PATIENCE
        while not self._server.started and time.monotonic() < until:
            time.sleep(0.01)

    def close(self) -> None:
        self._browser.close()
        self._server.should_exit = self._server.force_exit = True
        self._thread.join(PATIENCE)
        self.studio.close()

    def tab(self) -> Tab:
        return Tab(self)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return self._browser.get(self.base + path, headers=headers)

    def post(self, path: str, data: bytes, origin: str | None = None) -> httpx.Response:
        return self._browser.post(self.base + path, content=data, headers={"origin": origin or f"http://{self.host}"})


class Tab:
    """A connection. Events are kept in the order they came."""

    def __init__(self, server: Server) -> None:
        self._held = contextlib.ExitStack()
        address, origin = f"ws://{server.host}/{TOKEN}/ws", Origin(f"http://{server.host}")
        opening = connect(address, origin=origin, max_size=None, open_timeout=PATIENCE)
        self.socket: ClientConnection = self._held.enter_context(opening)
        self.events: list[Json] = []
        self._id = 0

    def close(self) -> None:
        self._held.close()

    def receive(self) -> Json | bytes:
        frame = self.socket.recv(timeout=PATIENCE)
        return frame if isinstance(frame, bytes) else json.loads(frame)

    def raw(self, text: str) -> Json:
        """The answer to a text that may be anything."""
        self.socket.send(text)
        while True:
            answer = self.receive()
            assert isinstance(answer, dict)
            if "event" not in answer:
                return answer
            self.events.append(answer)

    def ask(self, op: str, **fields: Any) -> Any:
        """What an operation answers; a `Refused` where it says no."""
        self._id += 1
        self.socket.send(json.dumps({"id": self._id, "op": op, **fields}))
        while True:
            answer = self.receive()
            if isinstance(answer, bytes):
                head, array = unpacked(answer)
                assert head["id"] == self._id
                return head["result"], array
            if "event" in answer:
                self.events.append(answer)
                continue
            assert answer["id"] == self._id
            if not answer["ok"]:
                raise Refused(answer["error"])
            return answer["result"]

    def wait(self, event: str, **wanted: Any) -> Json:
        """The first event of this name, kept or to come, whose fields hold these values."""
        for k in range(10_000):
            if k == len(self.events):
                got = self.receive()
                assert isinstance(got, dict), "an event is a text frame"
                assert "event" in got, f"an answer nobody asked for: {got}"
                self.events.append(got)
            found = self.events[k]
            if found["event"] == event and all(_within(found, name) == value for name, value in wanted.items()):
                return found
        raise AssertionError(f"no {event} with {wanted}")

    def ran(self, doc: str, **fields: Any) -> Json:
        """Run a page to its end and give the run's last state."""
        return self.ended(doc, self.ask("run", doc=doc, **fields)["run"])

    def ended(self, doc: str, number: int) -> Json:
        """The last state of a run, kept or to come."""
        for k in range(100_000):
            if k == len(self.events):
                self.events.append(_event(self.receive()))
            found = self.events[k]
            if found["event"] == "run" and found["doc"] == doc and _over(found["run"], number):
                run: Json = found["run"]
                return run
        raise AssertionError(f"run {number} does not end")


def _event(got: Json | bytes) -> Json:
    assert isinstance(got, dict)
    assert "event" in got
    return got


def _over(run: Json, number: int) -> bool:
    return run["run"] == number and run["state"] in ("done", "failed", "cancelled")


def _within(found: Json, name: str) -> Any:
    value: Any = found
    for part in name.split("__"):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def unpacked(frame: bytes) -> tuple[Json, npt.NDArray[np.float32]]:
    (length,) = struct.unpack_from("<I", frame)
    head = json.loads(frame[4 : 4 + length])
    assert (4 + length) % 8 == 0
    return head, np.frombuffer(frame, "<f4", offset=4 + length).reshape(head["result"]["shape"])


def find(page: Json, id: str) -> Json:
    return next(block for block in page["blocks"] if block["id"] == id)


def pin(page: Json, id: str, name: str) -> Json:
    found: Json = next(p for p in find(page, id)["pins"] if p["name"] == name)
    return found


def set_const(page: Json, id: str, made: Json) -> None:
    """Give a Const the values that `input` or an upload answered with."""
    block = find(page, id)
    block["symbol"] = made["symbol"]
    for name, fields in made["pins"].items():
        pin(page, id, name).update(fields)


def fresh_block(tab: Tab, symbol: str, id: str, **texts: str) -> Json:
    """A block as the client makes it from the catalogue."""
    kind = next(k for k in tab.ask("hello")["catalogue"] if k["name"] == symbol)
    pins = [{key: p[key] for key in ("name", "kind", "interface", "type")} for p in kind["pins"]]
    for made, defined in zip(pins, kind["pins"], strict=True):
        made |= {"shape": "", "value": texts.get(made["name"], defined["default"]), "data": None}
    return {"id": id, "symbol": symbol, "x": 10.0, "y": 20.0, "pins": pins, "keep": None}


def wire(source: str, source_pin: str, target: str, target_pin: str) -> Json:
    return {"source": source, "source_pin": source_pin, "target": target, "target_pin": target_pin, "id": "", "keep": None}


def served(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        yield server
    finally:
        server.close()
