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
from poolgrad_studio.address import listen, take_address

PATHS = os.pathsep.join(str(Path(p).resolve()) for p in sys.path if p)


def start(home: Path, *arguments: str, module: str = "poolgrad") -> subprocess.Popen[str]:
    """The studio in a process; what it remembers stays in `home`."""
    env = {**os.environ, "XDG_STATE_HOME": str(home), "LOCALAPPDATA": str(home), "PYTHONPATH": PATHS, "NO_COLOR": "1"}
    command = [sys.executable, "-m", module, *(["studio"] if module == "poolgrad" else []), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env)


@pytest.mark.skipif(os.name == "nt", reason="sends SIGINT")
@pytest.mark.parametrize("module", ["poolgrad", "poolgrad_studio"])
def test_it_starts_serves_its_page_and_ends(tmp_path: Path, module: str) -> None:
    pytest.importorskip("typer")
    save_page(corrected_page(), tmp_path / "page.svg")
    process = start(tmp_path, str(tmp_path / "page.svg"), "--no-browser", module=module)
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
    process = start(tmp_path, "--no-browser", *arguments)
    said = process.communicate(timeout=60)
    assert process.returncode == 2
    assert reason in said[1]


def test_a_port_that_is_taken_is_refused(tmp_path: Path) -> None:
    from poolgrad_studio.failure import Failure

    with listen(0) as first, pytest.raises(Failure, match="cannot be used"):
        listen(first.getsockname()[1])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("XDG_STATE_HOME", "LOCALAPPDATA", "HOME"):
        monkeypatch.setenv(name, str(tmp_path / "home"))
    return tmp_path / "home"


def taken(folder: Path, port: int = 0) -> tuple[int, str]:
    listener, token = take_address(folder, port)
    with listener:
        return listener.getsockname()[1], token


def test_a_restart_has_the_same_address(home: Path, tmp_path: Path) -> None:
    first = taken(tmp_path / "a")
    assert taken(tmp_path / "a") == first
    assert taken(tmp_path / "b")[1] != first[1], "each folder has its own"
    with listen(first[0]):
        port, token = taken(tmp_path / "a")
    assert port != first[0]
    assert token != first[1], "whoever has the port now may have heard the token"
    assert taken(tmp_path / "a", 0)[1] == token
    other = next(p for p in range(20_000, 60_000) if p != port)
    assert taken(tmp_path / "a", other)[1] != token


@pytest.mark.skipif(os.name == "nt", reason="judges permissions")
def test_an_address_that_others_could_read_or_write_is_not_trusted(home: Path, tmp_path: Path) -> None:
    first = taken(tmp_path / "a")
    [place] = home.rglob("*.json")
    assert place.stat().st_mode & 0o777 == 0o600
    place.chmod(0o644)
    second = taken(tmp_path / "a")
    assert second[1] != first[1]
    text = place.read_text()
    for content in ("", "[]", '{"port": 80, "token": "x"}', text.replace(second[1], "short"), "x" * 5000):
        place.write_text(content)
        place.chmod(0o600)
        assert taken(tmp_path / "a")[1] != second[1]
    place.write_text(text)
    place.chmod(0o600)
    assert taken(tmp_path / "a")[1] == second[1]
    place.write_text(text)
    os.utime(place, (0, 0))
    assert taken(tmp_path / "a")[1] != second[1]
    place.unlink()
    (tmp_path / "elsewhere").write_text(text)
    (tmp_path / "elsewhere").chmod(0o600)
    place.symlink_to(tmp_path / "elsewhere")
    assert taken(tmp_path / "a")[1] != second[1]
    assert (tmp_path / "elsewhere").read_text() == text
