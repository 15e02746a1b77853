"""Who gets in: only this computer's browser, on our own page, with the token. And which files can be reached."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from poolgrad.enuspace import corrected_page, save_page
from poolgrad_studio.address import HOST, listen
from poolgrad_studio.failure import Failure
from poolgrad_studio.folder import Folder
from poolgrad_studio.studio import Studio
from studio_support import TOKEN, Refused, Server, Tab, served


def request(server: Server, *lines: str, method: str = "GET", path: str = f"/{TOKEN}/", body: str = "") -> bytes:
    """What the server says to a request made by hand."""
    with socket.create_connection((HOST, server.port), timeout=60) as wire:
        wire.sendall("\r\n".join([f"{method} {path} HTTP/1.1", *lines, "Connection: close", "", body]).encode("latin-1"))
        said = b""
        while part := wire.recv(65536):
            said += part
    return said


def status(said: bytes) -> int:
    return int(said.split(b" ")[1])


def test_it_listens_on_this_computer_alone() -> None:
    with listen(0) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost.evil.example:{port}",
        "0.0.0.0:{port}",
        "[::]:{port}",
        "",
    ],
)
def test_a_foreign_host_is_refused(server: Server, host: str) -> None:
    assert status(request(server, f"Host: {host.format(port=server.port)}")) in (400, 403)


def test_our_own_names_are_served(server: Server) -> None:
    for name in ("127.0.0.1", "localhost", "LOCALHOST", "[::1]"):
        assert status(request(server, f"Host: {name}:{server.port}")) in (200, 503)
    assert status(request(server, f"Host: {server.host}", f"Host: {server.host}")) in (400, 403)
    assert status(request(server)) in (400, 403)


@pytest.mark.parametrize(
    "path", ["/", "/ws", "/wrong/", f"/{TOKEN[:-1]}/", f"/{TOKEN}x/", f"//{TOKEN}/", f"/{TOKEN.upper()}/", "/%2e/", "/é/", "*"]
)
def test_without_the_token_there_is_nothing(server: Server, path: str) -> None:
    said = request(server, f"Host: {server.host}", path=path)
    assert status(said) in (400, 403)
    assert TOKEN.encode() not in said


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "null", "http://127.0.0.1", "https://{host}", "http://{host}.evil.example", "file://"]
)
def test_other_pages_are_refused(server: Server, origin: str) -> None:
    origin = origin.format(host=server.host)
    own = f"Host: {server.host}"
    for method, path in (("GET", "/"), ("GET", "/page.json"), ("POST", "/upload?kind=npy")):
        said = request(server, own, f"Origin: {origin}", "Content-Length: 0", method=method, path=f"/{TOKEN}{path}")
        assert status(said) == 403
        assert b"access-control" not in said.lower()
    with pytest.raises(InvalidStatus) as refused, connect(f"ws://{server.host}/{TOKEN}/ws", origin=origin):  # type: ignore[arg-type]
        pass
    assert refused.value.response.status_code == 403


def test_a_socket_or_a_post_must_say_where_it_comes_from(server: Server) -> None:
    with pytest.raises(InvalidStatus), connect(f"ws://{server.host}/{TOKEN}/ws"):
        pass
    with pytest.raises(InvalidStatus), connect(f"ws://{server.host}/wrong/ws", origin=f"http://{server.host}"):  # type: ignore[arg-type]
        pass
    assert (
        status(request(server, f"Host: {server.host}", "Content-Length: 0", method="POST", path=f"/{TOKEN}/upload?kind=npy"))
        == 403
    )


def test_a_fetch_from_another_site_is_refused(server: Server) -> None:
    own = f"Host: {server.host}"
    for site in ("cross-site", "same-site"):
        assert status(request(server, own, f"Sec-Fetch-Site: {site}", "Sec-Fetch-Mode: no-cors")) == 403
    assert status(request(server, own, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")) in (200, 503)


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_methods_are_refused(server: Server, method: str) -> None:
    assert status(request(server, f"Host: {server.host}", method=method)) in (400, 405)


def test_every_answer_carries_the_headers(server: Server) -> None:
    for said in (
        server.get(""),
        server.get("nothing"),
        httpx.get(f"http://{server.host}/wrong/"),
        server.post("upload?kind=npy", b"x"),
    ):
        policy = said.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "script-src 'self'" in policy
        assert "unsafe" not in policy
        assert said.headers["x-content-type-options"] == "nosniff"
        assert said.headers["x-frame-options"] == "DENY"
        assert said.headers["referrer-policy"] == "no-referrer"
        assert said.headers["cross-origin-resource-policy"] == "same-origin"
        assert said.headers["cache-control"] == "no-store"
        assert "server" not in said.headers or "poolgrad" not in said.headers["server"]


OUTSIDE = [
    "../secret.svg",
    "a/../../secret.svg",
    "/etc/passwd",
    "//etc/passwd",
    "..\\secret.svg",
    "C:\\secret.svg",
    "C:secret.svg",
    "\\\\host\\share\\x.svg",
    "~/x.svg",
    "./page.svg",
    "a//b.svg",
    "page.svg/",
    "page.svg.",
    "page.svg ",
    "page.svg::$DATA",
    "nul.svg",
    "CON",
    ".poolgrad-studio/lock",
    ".hidden.svg",
    "a\0b.svg",
    "\ud800.svg",
    "x" * 5000 + ".svg",
    "link/secret.svg",
    "link.svg",
    "loop/x.svg",
]


@pytest.fixture(scope="module")
def fenced(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose folder has links that lead out of it, to a page that must stay as it is."""
    outside = tmp_path_factory.mktemp("outside")
    inside = outside / "inside"
    inside.mkdir()
    save_page(corrected_page(), outside / "secret.svg")
    save_page(corrected_page(), inside / "page.svg")
    (inside / "link").symlink_to(outside)
    (inside / "link.svg").symlink_to(outside / "secret.svg")
    (inside / "loop").symlink_to(inside / "loop")
    yield from served(inside)


@pytest.mark.parametrize("path", OUTSIDE)
@pytest.mark.skipif(os.name == "nt", reason="makes symbolic links")
def test_nothing_outside_the_folder_can_be_reached(fenced: Server, path: str) -> None:
    outside = fenced.folder.parent
    tab = fenced.tab()
    doc = tab.ask("open", path="page.svg")["doc"]
    before, secret = sorted(outside.iterdir()), (outside / "secret.svg").read_bytes()
    writing = {"doc": doc, "form": "svg", "overwrite": True}
    for op, fields in (("open", {}), ("files", {}), ("input", {"kind": "file"}), ("save", writing)):
        with pytest.raises(Refused) as refused:
            tab.ask(op, path=path, **fields)
        assert refused.value.kind == "file", str(refused.value)
    assert (outside / "secret.svg").read_bytes() == secret
    assert sorted(outside.iterdir()) == before
    assert [e["name"] for e in tab.ask("files", path="")["entries"]] == ["page.svg"]
    tab.close()


@pytest.mark.skipif(os.name == "nt", reason="makes symbolic links")
def test_big_values_are_not_written_through_a_link(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "other.dat").write_bytes(b"other")
    (inside / "page.dat").symlink_to(tmp_path / "other.dat")
    with pytest.raises(Failure, match="outside"):
        Folder(inside).path("page.dat")
    server = Server(inside)
    try:
        tab = server.tab()
        doc = tab.ask("example", which="corrected")["doc"]
        with pytest.raises(Refused, match="outside"):
            tab.ask("save", doc=doc, path="page.svg", form="svg", overwrite=True)
        assert (tmp_path / "other.dat").read_bytes() == b"other"
        tab.close()
    finally:
        server.close()


def test_a_folder_has_one_studio(tmp_path: Path) -> None:
    first = Studio(tmp_path)
    with pytest.raises(Failure, match="already"):
        Studio(tmp_path)
    first.close()
    Studio(tmp_path).close()


@pytest.mark.skipif(os.name == "nt", reason="makes symbolic links")
def test_a_state_folder_that_leads_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / ".poolgrad-studio").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Failure, match="link"):
        Studio(tmp_path / "folder")


def test_the_socket_closes_on_bytes(tab: Tab) -> None:
    tab.socket.send(b"\x00\x01")
    with pytest.raises(Exception, match="1003"):
        tab.receive()
