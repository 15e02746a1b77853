"""The address of a folder's studio, remembered so that a tab finds its server again after a restart.

A tab may hold edits that a server which just ended never saw; it can only bring them back to the same port and token. They
are kept among the user's own files, readable by nobody else, and never in the folder itself: that may come from a stranger.
A remembered port that somebody else uses by now is given up together with its token.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import socket
import stat
import sys
import time
from pathlib import Path

from .failure import Failure

__all__ = ["HOST", "listen", "take_address"]

HOST = "127.0.0.1"
TOKEN = re.compile(r"[A-Za-z0-9_-]{32,64}")
WEEK = 7 * 24 * 3600


def listen(port: int) -> socket.socket:
    """A socket on this computer alone."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if sys.platform != "win32":
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
        listener.listen(128)  # from here on a browser may come, and waits until it is served
    except (OSError, OverflowError) as error:
        listener.close()
        raise Failure("value", f"port {port} cannot be used: {getattr(error, 'strerror', None) or error}") from None
    return listener


def take_address(folder: Path, port: int) -> tuple[socket.socket, str]:
    """A listening socket and a token: those of the folder's last studio where they can be had, fresh ones otherwise."""
    known = _remembered(folder)
    listener = None
    if known is not None and port in (0, known[0]):
        with contextlib.suppress(Failure):
            listener = listen(known[0])
    token = known[1] if known is not None and listener is not None else secrets.token_urlsafe(24)
    listener = listener or listen(port)
    with contextlib.suppress(OSError):
        _remember(folder, listener.getsockname()[1], token)
    return listener, token


def _place(folder: Path) -> Path:
    homes = {"win32": ("LOCALAPPDATA", "AppData/Local"), "darwin": ("", "Library/Application Support")}
    variable, usual = homes.get(sys.platform, ("XDG_STATE_HOME", ".local/state"))
    home = Path(os.environ.get(variable) or Path.home() / usual)
    return home / "poolgrad-studio" / (hashlib.sha256(os.fsencode(folder)).hexdigest()[:32] + ".json")


def _remember(folder: Path, port: int, token: str) -> None:
    place = _place(folder)
    place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    with os.fdopen(os.open(place, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w", encoding="ascii") as file:
        json.dump({"port": port, "token": token}, file)


def _remembered(folder: Path) -> tuple[int, str] | None:
    """Port and token, if the file that holds them is ours alone and not old."""
    try:
        place = _place(folder)
        about = place.lstat()
        private = os.name == "nt" or (about.st_uid == os.getuid() and not about.st_mode & 0o077)
        if not private or not stat.S_ISREG(about.st_mode) or about.st_size > 1000 or time.time() - about.st_mtime > WEEK:
            return None
        known = json.loads(place.read_bytes())
        port, token = known["port"], known["token"]
        fits = type(port) is int and 1024 <= port <= 65535 and isinstance(token, str) and TOKEN.fullmatch(token)
        return (port, token) if fits else None
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None
