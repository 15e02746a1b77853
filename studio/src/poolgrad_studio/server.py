"""Starting the studio: a port on this computer only, a token, a browser."""

from __future__ import annotations

import contextlib
import sys
import threading
import webbrowser
from pathlib import Path

import uvicorn

from .address import HOST, listen, take_address
from .failure import Failure
from .limits import LIMITS
from .studio import STATE, Studio

__all__ = ["make_server", "serve"]


def serve(page: str | Path | None = None, *, port: int = 0, browser: bool = True, token: str | None = None) -> None:
    """Serve the folder of `page`, or the current one, until interrupted. Port 0 takes any that is free.

    `page` may be a folder too. The address is printed, and opened unless `browser` is false.
    """
    folder, start = _split(page)
    studio = Studio(folder, start)
    try:
        listener, token = take_address(studio.folder.root, port) if token is None else (listen(port), token)
        number = listener.getsockname()[1]
        address = f"http://{HOST}:{number}/{token}/"
        print(f"poolgrad studio: {address}\nfolder: {studio.folder.root}\nCtrl-C ends it; pages are kept.", flush=True)
        if not studio.autosaves:
            print("This folder cannot be written: pages are not kept when the studio ends.", file=sys.stderr, flush=True)
        for name in studio.documents.broken:
            print(
                f"A page that was kept could not be read; it is put aside as {STATE}/pages/{name}.", file=sys.stderr, flush=True
            )
        if browser:
            threading.Timer(0.3, webbrowser.open, [address]).start()
        with contextlib.suppress(KeyboardInterrupt):
            make_server(studio, token, number).run(sockets=[listener])
    finally:
        studio.close()


def make_server(studio: Studio, token: str, port: int) -> uvicorn.Server:
    """The server of a studio. Nothing is compressed: it would cost more than it saves on one computer."""
    from .app import make_app

    config = uvicorn.Config(
        make_app(studio, token, port),
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws_max_size=4 * LIMITS["message"],  # what is over the limit, but not by far, still gets an answer
        ws_per_message_deflate=False,
        timeout_graceful_shutdown=2,
        limit_concurrency=256,
    )
    return uvicorn.Server(config)


def _split(page: str | Path | None) -> tuple[Path, str | None]:
    """The folder to serve and the page in it to open first."""
    if page is None:
        return Path.cwd(), None
    place = Path(page)
    if place.is_dir():
        return place, None
    if not place.is_file():
        raise Failure("file", f"there is no page or folder {str(page)!r}")
    return place.parent, place.name
