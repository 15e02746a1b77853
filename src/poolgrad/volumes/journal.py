"""What a job has finished, so that the same command can go on where it was killed.

One JSON object a line, only ever appended:

    {"poolgrad": 1, "job": {…}, "boxes": [64, 64, 64]}   what is made from what, and how it is cut
    {"boot": "…"}                                        a run begins; which start of the machine it is
    {"done": 17}                                         box 17 is written
    {"synced": [[0, 16], [18, 19]]}                      these boxes have reached the disk
    {"whole": [66305, 1234]}                             all have; the part, of this device and number, takes its name next

A killed process loses nothing that it handed to the system, so under the same start of the machine every `done` counts.
After a crash of the machine only `synced` does. A line that was cut short counts for nothing. The file is locked while a
job runs: two jobs never write one result.
"""

from __future__ import annotations

import errno
import json
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ..errors import PoolGradValueError
from .store import StoreError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

__all__ = ["Journal", "spans"]

VERSION = 1


def spans(numbers: Iterable[int]) -> list[list[int]]:
    """Whole numbers as runs of neighbours.

    >>> spans({5, 0, 1, 2, 9, 10})
    [[0, 2], [5, 5], [9, 10]]
    """
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


class Journal:
    """The journal at `path`, locked; `job` and `boxes` are None where there is no earlier run to go on with, or `anew`."""

    def __init__(self, path: Path, *, anew: bool = False) -> None:
        self.path = path
        self.job: dict[str, Any] | None = None
        self.boxes: tuple[int, ...] | None = None
        self.done: set[int] = set()
        self.synced: set[int] = set()
        self.whole: tuple[int, int] | None = None
        self._turn = threading.Lock()
        self._fd = _locked(path)
        try:
            if not anew:
                self._read()
        except BaseException:
            self.close()
            raise

    def _read(self) -> None:
        with open(self._fd, "rb", closefd=False) as file:
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        lost = not text.strip(b"\0")  # what a crash of the machine may leave of a file
        if not lost and not b'{"poolgrad": '.startswith(text[:13]):
            raise self._unreadable("it begins otherwise")
        if not whole:
            return
        try:
            head, *rest = (json.loads(line) for line in whole.splitlines())
            if head["poolgrad"] != VERSION:
                raise ValueError(f"version {head['poolgrad']!r}")
            self.job, self.boxes = dict(head["job"]), tuple(int(n) for n in head["boxes"])
            self._replay(rest)
        except (ValueError, KeyError, TypeError, AttributeError) as broken:
            self.job = self.boxes = None
            raise self._unreadable(broken) from None
        os.ftruncate(self._fd, len(whole))

    def _unreadable(self, reason: object) -> PoolGradValueError:
        return PoolGradValueError(f"{self.path} is not a journal that this version can read ({reason}); remove it to begin anew")

    def _replay(self, lines: Iterable[Mapping[str, Any]]) -> None:
        boot, here = None, _boot()
        for line in lines:
            if "boot" in line:
                boot = line["boot"]
            elif "done" in line and here is not None and boot == here:
                self.done.add(int(line["done"]))
            elif "whole" in line:
                self.whole = (int(line["whole"][0]), int(line["whole"][1]))
            elif "synced" in line:
                for first, last in line["synced"]:
                    self.synced.update(range(int(first), int(last) + 1))
        self.done |= self.synced

    def begin(self, job: Mapping[str, Any], boxes: tuple[int, ...]) -> None:
        """Forget what was before and begin with this job."""
        os.ftruncate(self._fd, 0)
        self.job, self.boxes = dict(job), boxes
        self.done, self.synced, self.whole = set(), set(), None
        self._append({"poolgrad": VERSION, "job": self.job, "boxes": boxes})
        self.resume()

    def resume(self) -> None:
        self._append({"boot": _boot()})

    def record(self, box: int) -> None:
        with self._turn:
            self._append({"done": box})
            self.done.add(box)

    def unsynced(self) -> set[int]:
        with self._turn:
            return self.done - self.synced

    def record_synced(self, new: set[int]) -> None:
        """Note boxes that have reached the disk, and bring the journal itself there."""
        with self._turn:
            if new:
                self._append({"synced": spans(new)})
                self.synced |= new
        os.fsync(self._fd)

    def record_whole(self, part: Path) -> None:
        seen = os.stat(part)
        with self._turn:
            self._append({"whole": [seen.st_dev, seen.st_ino]})
        os.fsync(self._fd)

    def is_placed(self, path: Path) -> bool:
        """Whether the earlier run got as far as giving the result its name."""
        try:
            seen = os.stat(path)
        except OSError:
            return False
        return self.whole == (seen.st_dev, seen.st_ino)

    def unwritten(self) -> bool:
        """Whether there is nothing in it, of any run."""
        return self._fd >= 0 and os.fstat(self._fd).st_size == 0

    def remove(self) -> None:
        if os.name == "nt":
            self.close()  # Windows removes no open files
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, line: Mapping[str, Any]) -> None:
        text = json.dumps(line).encode() + b"\n"
        end = os.lseek(self._fd, 0, os.SEEK_END)
        put = os.write(self._fd, text)
        if put < len(text):
            os.ftruncate(self._fd, end)
            raise StoreError(f"{self.path}: no room for another line")


def _locked(path: Path) -> int:
    """The open journal, ours alone."""
    while True:
        flags = [getattr(os, name, 0) for name in ("O_BINARY", "O_CLOEXEC", "O_NOFOLLOW")]
        fd = os.open(path, os.O_RDWR | os.O_CREAT | sum(flags), 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.exists(path) and os.path.samestat(os.fstat(fd), os.stat(path)):
                return fd
        except OSError as held:
            if held.errno in (errno.EWOULDBLOCK, errno.EAGAIN, errno.EACCES):
                os.close(fd)
                raise StoreError(f"another run is writing this result: it holds {path}") from None
            return fd  # a file system without locks
        os.close(fd)  # the other run finished, and removed it, in between


def _boot() -> str | None:
    """Which start of this machine this is; None where nothing tells."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None
