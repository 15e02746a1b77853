"""One studio: its folder, its documents, and who listens to which of them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any

from poolgrad.enuspace import Page, check_page, open_page

from .documents import Document, Documents, Stamp
from .failure import Failure
from .folder import Folder
from .limits import LIMITS

__all__ = ["STATE", "Session", "Studio", "checks", "stamp_of"]

STATE = ".poolgrad-studio"
PULSE, REST = 0.25, 0.04
"""Seconds: a run tells where it stands at least, and at most, so often."""


class Session:
    """A tab, as the operations see it: where to send events, and which documents it follows."""

    def __init__(self, studio: Studio, send: Callable[[dict[str, Any]], None]) -> None:
        self.studio, self.send = studio, send
        self.follows: set[str] = set()


class Studio:
    """What all tabs share. `start` is the page named on the command line, relative to the folder."""

    def __init__(self, folder: str | Path, start: str | None = None) -> None:
        self.folder = Folder(folder)
        self.start = start
        self.sessions: set[Session] = set()
        self._lock: IO[bytes] | None = None
        self._checking: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.documents = Documents(self._state())

    @property
    def autosaves(self) -> bool:
        return self._lock is not None

    def _state(self) -> Path | None:
        """The folder for autosaves, ours alone; None where the folder cannot be written."""
        state = self.folder.root / STATE
        try:
            state.mkdir(exist_ok=True)
            if state.is_symlink():
                raise Failure("file", f"{state} is a link; remove it, so that nothing is written elsewhere")
            (state / ".gitignore").write_text("*\n", encoding="ascii")
            self._lock = (state / "lock").open("ab")
        except OSError:
            return None
        if not _locked(self._lock):
            where = self.folder.root
            raise Failure("busy", f"a studio runs in {where} already: use its address, stop it, or start in another folder")
        return state

    def close(self) -> None:
        """Stop what runs and let another studio have the folder."""
        for info in self.documents.list():
            run = self.documents.get(info["doc"]).run
            if run is not None:
                run.stop()
        if self._lock is not None:
            self._lock.close()

    def tell(self, document: Document, event: str, but: Session | None = None, **fields: Any) -> None:
        """Send an event to every tab that follows the document."""
        for session in self.sessions:
            if session is not but and document.id in session.follows:
                session.send({"event": event, "doc": document.id, **fields})

    def check_soon(self, document: Document) -> None:
        """Judge the page in a thread and tell the tabs; of several edits in a row only the last is judged."""
        if document.id not in self._checking:
            self._checking.add(document.id)
            self._start(self._check(document))

    async def _check(self, document: Document) -> None:
        revision = 0
        try:
            while revision != document.revision:
                revision = document.revision
                found = await asyncio.to_thread(checks, document)
        finally:
            self._checking.discard(document.id)
        self.tell(document, "checks", **found)

    def watch_run(self, document: Document) -> Callable[[], None]:
        """Tell the tabs about the run that is about to begin; the run calls what this returns, from its thread."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        self._start(self._follow(document, woken))

        def wake() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(woken.set)

        return wake

    async def _follow(self, document: Document, woken: asyncio.Event) -> None:
        await asyncio.sleep(0)
        run = document.run
        assert run is not None
        told: tuple[Any, ...] = ()
        active = True
        while active:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(woken.wait(), PULSE)
            woken.clear()
            active = run.active
            for event, key, items in run.take():
                fields: dict[str, Any] = {"run": run.number, key: items}
                self.tell(document, event, None, **fields)
            progress = run.progress()
            now = tuple(value for key, value in progress.items() if key != "seconds")
            if now != told or progress["state"] == "running":
                self.tell(document, "run", run=progress)
            told = now
            await asyncio.sleep(REST)
        self.check_soon(document)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def open(self, path: str) -> Document:
        """The document of a file; one that is open already, unless the file changed since."""
        place = self.folder.existing(path, LIMITS["upload"])
        beside = self.folder.path(str(Path(path).with_suffix(".dat").as_posix()))
        if beside.exists():
            self.folder.existing(beside.relative_to(self.folder.root).as_posix(), 1 << 31)
        stamp = stamp_of(place)
        held = self.documents.of_file(path)
        if held is not None and (held.stamp == stamp or held.dirty):
            return held
        page: Page = open_page(place)
        if held is not None:
            self.documents.remove(held)
        return self.documents.add(page, file=path, stamp=stamp)


def checks(document: Document) -> dict[str, Any]:
    """What is wrong with the page as far as it shows without a run, and which results it has outgrown."""
    page, run, revision = document.page, document.run, document.revision
    stale = run.stale(page) if run is not None else []
    return {"revision": revision, "log": [asdict(entry) for entry in check_page(page)], "stale": stale}


def stamp_of(place: Path) -> Stamp:
    stat = place.stat()
    return f"{stat.st_mtime_ns} {stat.st_size}"


def _locked(file: IO[bytes]) -> bool:
    """Take the lock of an open file; the system gives it back when this process ends, however it ends."""
    try:
        if os.name == "nt":
            import msvcrt

            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
