"""A pooling or its gradient from store to store, box by box: the same bits as one call.

Each worker reads what a box needs, computes it and writes it, into memory of its own that it uses again; a few of them keep the
disk and the cores busy together. A box is recorded in the journal when it is written; every few seconds what is recorded is
brought to the disk, and the source is looked at: one that changed ends the job.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import __version__
from ..call import Call
from ..errors import PoolGradValueError
from ..geometry import Pool
from .journal import Journal
from .plan import Plan, needed, plan
from .store import Box, Place, Source, StoreError, Target, cut

__all__ = ["DEFAULT_MEMORY", "Job", "Progress", "Report", "execute"]

Array = npt.NDArray[Any]
Progress = Callable[[int, int], None]
"""Called with the bytes of the result that are done, and all of them."""

DEFAULT_MEMORY = 1 << 30
SYNC_SECONDS = 5.0
WORTH_KEEPING = 64 << 20
"""A run that ends early with less than this done leaves nothing behind."""

ALLOWANCE = 48 << 20
"""Stacks of threads, what an allocator keeps, modules that are imported late."""


@dataclass(frozen=True)
class Job:
    """What is made from what."""

    pool: Pool
    layout: str
    source: Source
    target: Target
    forwards: bool

    @property
    def shape(self) -> tuple[int, ...]:
        return self.target.shape

    @property
    def size(self) -> int:
        return prod(self.shape) * self.source.dtype.itemsize

    def identity(self) -> dict[str, Any]:
        """Everything that an earlier run must share for its boxes to be of use."""
        digest = hashlib.sha256(f"{self.pool.divisor}".encode())
        for axis in self.pool.axes:
            digest.update(f"{axis.size} {axis.step} ".encode())
            for column in (axis.start, axis.stop, axis.count):
                digest.update(column.tobytes())
        return {
            "version of poolgrad": __version__,
            "direction": "forward" if self.forwards else "gradient",
            "pooling": digest.hexdigest()[:32],
            "layout": self.layout,
            "shape": list(self.shape),
            "dtype": self.source.dtype.name,
            "source": str(self.source.path.resolve()),
            "state of the source": self.source.state(),
            "form of the result": self.target.form,
        }


@dataclass(frozen=True)
class Report:
    """What was done."""

    output: str
    shape: tuple[int, ...]
    dtype: str
    bytes: int
    seconds: float
    boxes: int
    """Parts that the result was made in…"""
    resumed: int
    """…and how many of them an earlier run had made."""
    reread: float
    """Bytes of the source that were read, as a multiple of all it has."""


def execute(
    job: Job, *, memory: int, base: int, threads: int | None, restart: bool = False, progress: Progress | None = None
) -> Report:
    """Do a job, or what is left of it; `memory` is the ceiling, of which the process holds `base` already."""
    begin, place = time.perf_counter(), job.target.place
    with _named(place):
        journal = Journal(place.journal, anew=restart)
    try:
        identity = job.identity()
        extents = journal.boxes if _resumes(journal, identity, place, job.target) else None
        base += ALLOWANCE + job.source.held
        chosen = plan(
            job.pool, job.layout, job.source, job.target, job.shape,
            forwards=job.forwards, memory=memory, base=base, cores=threads or _cores(), extents=extents,
        )  # fmt: skip
        if extents is not None and journal.is_placed(place.path):
            resumed = len(journal.done)
            shutil.rmtree(place.old, ignore_errors=True)
        else:
            resumed = _open(job, journal, identity, chosen, extents is not None)
            _Run(job, chosen, journal, identity, progress).complete()
        journal.remove()
    except BaseException:
        if journal.unwritten():
            journal.remove()  # nothing was begun
        raise
    finally:
        journal.close()
        job.target.close()
    boxes = prod(-(-n // e) for n, e in zip(job.shape, chosen.extents, strict=True))
    whole = prod(job.source.shape) * job.source.dtype.itemsize
    reread = round(chosen.reads / whole, 4) if whole else 1.0
    seconds = round(time.perf_counter() - begin, 6)
    return Report(str(place.path), job.shape, job.source.dtype.name, job.size, seconds, boxes, resumed, reread)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class _named:
    """Errors of the system, with the name that the user gave in them."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, OSError) and not isinstance(error, StoreError):
            raise StoreError(f"--output {self._place.path} cannot be written: {error.strerror or error}") from error


def _resumes(journal: Journal, identity: dict[str, Any], place: Place, target: Target) -> bool:
    """Whether an earlier run's boxes can be used; refused if they cannot and are worth something."""
    if journal.job is None or target.in_order:
        return False
    if journal.job == identity:
        return True
    differs = [name for name, value in identity.items() if journal.job.get(name) != value]
    if not journal.done or place.taken() < WORTH_KEEPING:
        return False
    raise PoolGradValueError(
        f"an earlier run began {place.path} with another {', '.join(differs)} and made a part of it; "
        "give its command again to go on with it, or --restart to throw it away"
    )


def _open(job: Job, journal: Journal, identity: dict[str, Any], chosen: Plan, going_on: bool) -> int:
    """Open the part to go on with, or make one; how many boxes it has."""
    place = job.target.place
    if going_on:
        with suppress(StoreError, FileNotFoundError):  # the part is gone or is not ours: make it anew
            job.target.resume()
            journal.resume()
            return len(journal.done)
    try:
        with _named(place):
            journal.begin(identity, chosen.extents)
            job.target.begin()
    except BaseException:
        _discard(place, journal)
        raise
    return 0


def _discard(place: Place, journal: Journal) -> None:
    if place.part.is_dir():
        shutil.rmtree(place.part, ignore_errors=True)
    else:
        place.part.unlink(missing_ok=True)
    journal.remove()


class _Run:
    """The boxes that are left, through the workers."""

    def __init__(self, job: Job, chosen: Plan, journal: Journal, identity: dict[str, Any], progress: Progress | None) -> None:
        self.job, self.plan, self.journal, self.identity = job, chosen, journal, identity
        self.progress = progress or (lambda done, all: None)
        self.failure: BaseException | None = None
        self.stop = threading.Event()
        self._turn = threading.Lock()
        self._state_seconds = 0.0
        self.done = 0
        before, unsynced = set(journal.done), journal.unsynced()
        for number, box in enumerate(cut(job.shape, chosen.extents)) if before else ():
            self.done += _bytes(box, job.source.dtype) if number in before else 0
            if number in unsynced:
                job.target.written(box)
        numbered = enumerate(cut(job.shape, chosen.extents))
        self._left: Iterator[tuple[int, Box]] = ((number, box) for number, box in numbered if number not in before)

    def complete(self) -> None:
        """All of it, or an error with everything that is done recorded."""
        try:
            self.progress(self.done, self.job.size)
            syncing = threading.Thread(target=self._keep_synced, daemon=True)
            syncing.start()
            try:
                if self.plan.workers == 1:
                    self._work(self._one_done)
                else:
                    self._work_together()
            finally:
                self.stop.set()
                syncing.join()
            if self.failure is not None:
                raise self.failure
            self._check_source()
            self._sync()
            self.journal.record_whole(self.job.target.place.part)
            self.job.target.finish()
        except BaseException as failure:
            raise self._ended(failure) from None

    def _one_done(self) -> None:
        self.progress(self.done, self.job.size)

    def _work_together(self) -> None:
        workers = [threading.Thread(target=self._work_safely, daemon=True) for _ in range(self.plan.workers)]
        for worker in workers:
            worker.start()
        try:
            for worker in workers:
                while worker.is_alive():
                    worker.join(0.1)
                    self.progress(self.done, self.job.size)
        finally:
            self.stop.set()
            for worker in workers:
                worker.join()

    def _work_safely(self) -> None:
        try:
            self._work(lambda: None)
        except BaseException as failure:
            self._fail(failure)

    def _fail(self, failure: BaseException) -> None:
        self.failure = self.failure or failure
        self.stop.set()

    def _work(self, after: Callable[[], None]) -> None:
        job = self.job
        source = np.empty(self.plan.source_bytes, np.uint8)
        result = np.empty(self.plan.result_bytes, np.uint8)
        while not self.stop.is_set():
            with self._turn:
                number, box = next(self._left, (-1, ()))
            if number < 0:
                return
            region, part = needed(job.pool, job.layout, box, forwards=job.forwards)
            taken, made = _shaped(source, part, job.source.dtype), _shaped(result, box, job.source.dtype)
            self._read(part, taken)
            Call(job.pool, taken.shape, job.layout, job.forwards, region)(taken, made, False, self.plan.threads)
            job.target.write(box, made)
            self.journal.record(number)
            with self._turn:
                self.done += made.nbytes
            after()

    def _read(self, part: Box, taken: Array) -> None:
        source = self.job.source
        try:
            source.read(part, taken)
        except StoreError:
            raise
        except OSError as broken:  # of the source, where others are of the target
            raise StoreError(f"{broken.filename or source.path} cannot be read: {broken.strerror or broken}") from None

    def _keep_synced(self) -> None:
        looked = time.monotonic()
        try:
            while not self.stop.wait(SYNC_SECONDS):
                self._sync()
                if time.monotonic() - looked > 20 * self._state_seconds:
                    self._check_source()
                    looked = time.monotonic()
        except BaseException as failure:
            self._fail(failure)

    def _sync(self) -> None:
        done = self.journal.unsynced()
        self.job.target.sync()
        self.journal.record_synced(done)

    def _check_source(self) -> None:
        begin, state = time.monotonic(), None
        with suppress(FileNotFoundError):
            state = self.job.source.state()
        if state != self.identity["state of the source"]:
            raise StoreError(
                f"{self.job.source.path} changed while it was read, so the result would be of neither state: "
                "give the command again with --restart when it is at rest"
            )
        self._state_seconds = time.monotonic() - begin

    def _ended(self, failure: BaseException) -> BaseException:
        """Keep what is worth keeping, and say so."""
        place = self.job.target.place
        kept = self.done >= WORTH_KEEPING and not self.job.target.in_order
        self.job.target.close()
        if kept:
            with suppress(OSError):
                self.journal.record_synced(set())
        else:
            _discard(place, self.journal)
        if not isinstance(failure, OSError) or isinstance(failure, StoreError):
            return failure
        ending = "what is done is kept, and the same command goes on from there" if kept else "nothing is left behind"
        reason = failure.strerror or failure
        return StoreError(f"{place.path}: {reason}, after {self.done:,} of {self.job.size:,} bytes; {ending}")


def _bytes(box: Box, dtype: np.dtype[Any]) -> int:
    return int(prod(part.stop - part.start for part in box) * dtype.itemsize)


def _shaped(memory: Array, box: Box, dtype: np.dtype[Any]) -> Array:
    """The beginning of `memory` as an array of a box's shape."""
    return memory[: _bytes(box, dtype)].view(dtype).reshape([part.stop - part.start for part in box])
