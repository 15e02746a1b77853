"""What stays on the server while the page travels: big values, and what a file held beyond blocks and wires.

Everything here is bytes or text named by its content, so a name never changes its meaning and may be copied between pages.
It is written to disk the moment it arrives, once; what no kept document mentions is removed when the studio starts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

from .failure import Failure
from .folder import replace
from .limits import MOST_BLOBS

__all__ = ["Vault"]

Blob = bytes | str


class Vault:
    """Values by name; `folder` is where they survive a restart, or None where nothing can be written. `safe` says whether
    all of them could be written so far."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._blobs: dict[str, Blob] = {}
        self._bytes = 0
        self.safe = True

    def store(self, value: Blob) -> str:
        """The name of a value, which is there from now on."""
        data = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
        name = ("t" if isinstance(value, str) else "b") + hashlib.sha256(data).hexdigest()
        if name not in self._blobs:
            if self._bytes + len(data) > MOST_BLOBS:
                raise Failure("limit", f"the pages hold more than {MOST_BLOBS} bytes of values; close some and start again")
            self._write(name, data)
            self._blobs[name] = value
            self._bytes += len(data)
        return name

    def _write(self, name: str, data: bytes) -> None:
        if self._folder is not None and not (self._folder / name).exists():
            try:
                replace(self._folder / name, data)
            except OSError:
                self.safe = False

    def fetch(self, name: str) -> Blob:
        """The value of this name."""
        if name not in self._blobs:
            self._load(name)
        return self._blobs[name]

    def _load(self, name: str) -> None:
        known = len(name) == 65 and name[0] in "tb" and set(name[1:]) <= set("0123456789abcdef")
        place = self._folder / name if known and self._folder is not None else None
        if place is None or not place.is_file():
            raise Failure("value", f"there is no value {name[:12]!r} on the server: give the pin its value again")
        data = place.read_bytes()
        self._blobs[name] = data.decode("utf-8", "surrogatepass") if name[0] == "t" else data
        self._bytes += len(data)

    def sweep(self, used: Iterable[str]) -> None:
        """Remove from disk every value but these."""
        if self._folder is not None:
            wanted = set(used)
            for place in self._folder.iterdir():
                if place.name not in wanted:
                    place.unlink(missing_ok=True)
