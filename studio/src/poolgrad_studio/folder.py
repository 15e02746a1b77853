"""Files below one folder and nowhere else.

A path from outside is relative, with `/`. Every step of it is resolved, links included, before anything is opened, and what
lies outside is refused in the same words whether it exists or not. Hidden names are refused: the studio's own state and
other programs' settings are no pages. A file is written beside itself and put in place at once.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

from .failure import Failure

__all__ = ["Folder", "replace"]

KINDS = {".svg": "page", ".json": "page", ".npy": "array", ".png": "image", ".jpg": "image", ".jpeg": "image"}
MOST_ENTRIES = 2_000
RESERVED = {"con", "prn", "aux", "nul", *(f"{word}{k}" for word in ("com", "lpt") for k in range(1, 10))}


class Folder:
    """The folder that the studio was started in."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root).resolve(strict=True)
        if not self.root.is_dir():
            raise Failure("file", f"{root} is not a folder")

    def path(self, text: str) -> Path:
        """The place that a path from outside names, whether or not anything is there."""
        parts = text.split("/") if text else []
        if len(text) > 1024 or any(not _plain(part) for part in parts):
            raise Failure("file", f"{text[:60]!r} is not a path below the folder", "names separated by /, such as pages/pool.svg")
        place = self.root.joinpath(*parts)
        try:
            inside = Path(os.path.realpath(place)).is_relative_to(self.root)
        except (OSError, ValueError):
            inside = False
        if not inside:
            raise Failure("file", f"{text[:60]!r} lies outside the folder that the studio was started in")
        return place

    def existing(self, text: str, most: int) -> Path:
        """A file that is there and is not larger than `most` bytes."""
        place = self.path(text)
        if not place.is_file():
            raise Failure("file", f"there is no file {text[:60]!r} in the folder")
        size = place.stat().st_size
        if size > most:
            raise Failure("limit", f"{place.name} has {size} bytes; at most {most} are read")
        return place

    def entries(self, text: str) -> list[dict[str, Any]]:
        """What a dialog shows: folders, pages, arrays and images, in that order."""
        place = self.path(text)
        if not place.is_dir():
            raise Failure("file", f"there is no folder {text[:60]!r}")
        found = []
        with os.scandir(place) as scan:
            for entry in scan:
                kind = self._kind(entry)
                if kind:
                    stat = entry.stat()
                    found.append({"name": entry.name, "kind": kind, "size": stat.st_size, "modified": stat.st_mtime})
                if len(found) > MOST_ENTRIES:
                    raise Failure("limit", f"the folder has more than {MOST_ENTRIES} entries; move pages to one of their own")
        return sorted(found, key=lambda e: (e["kind"] != "folder", str(e["name"]).lower()))

    def _kind(self, entry: os.DirEntry[str]) -> str:
        try:
            if not _plain(entry.name) or not Path(os.path.realpath(entry.path)).is_relative_to(self.root):
                return ""
            if entry.is_dir():
                return "folder"
            return KINDS.get(Path(entry.name).suffix.lower(), "") if entry.is_file() else ""
        except OSError:
            return ""


def _plain(part: str) -> bool:
    """Whether a name means itself on every system: no climbing, no drive, no stream, no device, nothing hidden."""
    try:
        part.encode("utf-8")
    except UnicodeEncodeError:
        return False
    bad = any(c in '\\:*?"<>|' or ord(c) < 32 for c in part)
    return bool(part) and not bad and part[0] != "." and part[-1] not in ". " and part.split(".")[0].lower() not in RESERVED


def replace(place: Path, data: bytes) -> None:
    """Write a file so that its name never points at half of it."""
    target = Path(os.path.realpath(place))
    part = target.with_name(f".{target.name[:40]}.{secrets.token_hex(4)}.part")
    try:
        part.write_bytes(data)
        os.replace(part, target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
