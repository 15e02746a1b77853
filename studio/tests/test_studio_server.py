"""The studio as a user starts it: from the command line, with a page, until Ctrl-C."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect

from poolgrad.enuspace import corrected_page, save_page

ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p), "NO_COLOR": "1"}


def start(*arguments: str, module: str = "poolgrad") -> subprocess.Popen[str]:
    command = [sys.executable, "-m", module, *(["studio"] if module == "poolgrad" else []), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENV)


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
@pytest.mark.parametrize("module", ["poolgrad", "poolgrad_studio"])
def test_it_starts_serves_its_page_and_ends(tmp_path: Path, module: str) -> None:
    pytest.importorskip("typer")
    save_page(corrected_page(), tmp_path / "page.svg")
    process = start(str(tmp_path / "page.svg"), "--no-browser", module=module)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().split()[-1]
        assert address.startswith("http://127.0.0.1:")
        assert len(address.rstrip("/").rsplit("/", 1)[1]) >= 32, "a token that cannot be guessed"
        assert httpx.get(address, timeout=60, trust_env=False).status_code in (200, 503)
        with connect(address.replace("http", "ws") + "ws", origin=address[: address.index("/", 8)]) as socket:  # type: ignore[arg-type]
            socket.send(json.dumps({"id": 1, "op": "hello"}))
            assert json.loads(socket.recv(timeout=60))["result"]["start"] == "page.svg"
            process.send_signal(signal.SIGINT)
            said = process.communicate(timeout=60)
        assert process.returncode == 0, said
        assert said[1] == ""
    finally:
        process.kill()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [(["none.svg"], "no page or folder"), (["--port", "1"], "port 1 cannot be used"), (["--port", "70000"], "port")],
)
def test_what_cannot_start_says_why(tmp_path: Path, arguments: list[str], reason: str) -> None:
    pytest.importorskip("typer")
    if arguments[-1] == "1" and hasattr(os, "geteuid") and os.geteuid() == 0:
        pytest.skip("the superuser may use any port")
    process = start("--no-browser", *arguments)
    said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert reason in said[1]


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    from poolgrad_studio.failure import Failure
    from poolgrad_studio.server import listen

    with listen(0) as first, pytest.raises(Failure, match="cannot be used"):
        listen(first.getsockname()[1])
