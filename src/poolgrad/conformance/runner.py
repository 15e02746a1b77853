"""The other end of the worker: starts it, hands it calls, and says how each one ended.

A worker serves many calls; one that dies or takes too long is replaced. After a death the call is tried again alone in a
fresh process, since an earlier call may have spoiled the memory of the first.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from ..errors import PoolGradError
from . import worker
from .case import Array

__all__ = ["Answer", "Ended", "NoTarget", "Raised", "Runner"]

START = 120.0
"""Seconds for a worker to start and to import what it tests."""


class NoTarget(PoolGradError, RuntimeError):
    """The target cannot be run at all: no interpreter, no such package or function."""


@dataclass(frozen=True)
class Answer:
    """What the call returned (every different result of its repetitions) and its best time."""

    arrays: tuple[Array, ...]
    seconds: float
    changed_dy: bool = False


@dataclass(frozen=True)
class Raised:
    """The call raised an exception; `types` names its class and bases."""

    types: tuple[str, ...]
    message: str


@dataclass(frozen=True)
class Ended:
    """The call did not return an array: it crashed, hung, or returned something else."""

    how: str
    fatal: bool = True
    hung: bool = False


Outcome = Answer | Raised | Ended


class Runner:
    """Runs sources in worker processes of one interpreter and environment.

    >>> import numpy as np
    >>> with Runner() as runner:
    ...     runner.call("def grad(dy): return dy / 2", np.array([3.0]), timeout=60).arrays
    (array([1.5]),)
    """

    def __init__(
        self, python: str | os.PathLike[str] | None = None, environment: Mapping[str, str] | None = None, imports: str = ""
    ):
        self.python = os.fspath(python or sys.executable)
        self.environment, self.imports = {**os.environ, **(environment or {})}, imports
        self._process: subprocess.Popen[bytes] | None = None
        self._replies: queue.Queue[Frame | None] = queue.Queue()
        self._said: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as this object
        self._fresh = True
        self._heard = 0
        self._hung = False
        self._end = ""

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop("stopped")
        self._said.close()

    def version(self, expression: str = "''") -> str:
        """What `expression` says once `imports` are done; raises `NoTarget` if they cannot be."""
        asked = self._ask({"source": self.imports, "version": expression}, b"", START)
        if asked is None:
            raise NoTarget(f"{self.python} could not import the target: {self._end}")
        if asked[0]["kind"] != "version":
            raise NoTarget(f"{self.python} cannot import the target: {asked[0]['message']}")
        return str(asked[0]["version"])

    def call(self, source: str, dy: Array, timeout: float, *, timed: bool = True) -> Outcome:
        """How `grad(dy)` of `source` ends; `timed` repeats it for a good time."""
        outcome = self._call(source, dy, timeout, timed)
        died = isinstance(outcome, Ended) and outcome.fatal and not outcome.hung
        if died and not self._fresh:
            outcome = self._call(source, dy, timeout, timed)
        self._fresh = False
        return outcome

    def _call(self, source: str, dy: Array, timeout: float, timed: bool) -> Outcome:
        if self._process is None:
            self.version()
        asked = self._ask({"source": source, "dtype": dy.dtype.name, "timed": timed}, worker.packed(dy), timeout)
        if asked is None:
            return Ended(self._end, hung=self._hung)
        reply, payload = asked
        if reply["kind"] == "raised":
            return Raised(tuple(reply["types"]), reply["message"])
        if reply["kind"] == "returned":
            return Ended(f"returned {reply['what']} instead of a NumPy array of numbers", fatal=False)
        arrays, at = [], 0
        for dtype, length in zip(reply["dtypes"], reply["lengths"], strict=True):
            arrays.append(worker.unpacked(payload[at : at + length], dtype))
            at += length
        return Answer(tuple(arrays), reply["seconds"], reply["changed_dy"])

    def _ask(self, header: dict[str, Any], payload: bytes, timeout: float) -> Frame | None:
        """The worker's reply; None if it died or had to be ended, and `_end` says how."""
        process = self._process or self._start()
        self._heard, self._hung = self._said.seek(0, os.SEEK_END), False
        try:
            worker.write_frame(process.stdin, header, payload)  # type: ignore[arg-type]
            reply = self._replies.get(timeout=timeout)
        except queue.Empty:
            self._stop(f"did not return within {timeout:g} seconds")
            self._hung = True
            return None
        except OSError:
            reply = None
        if reply is None:
            self._stop()
        return reply

    def _start(self) -> subprocess.Popen[bytes]:
        self._said.seek(0)
        self._said.truncate()
        command, pipe = [self.python, str(Path(worker.__file__))], subprocess.PIPE
        try:
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=self._said, env=self.environment)
        except OSError as wrong:
            raise NoTarget(f"cannot start {self.python}: {wrong}") from None
        self._process, self._replies, self._fresh, self._heard = process, queue.Queue(), True, 0
        threading.Thread(target=_listen, args=(process.stdout, self._replies), daemon=True).start()
        try:
            ready = self._replies.get(timeout=START)
        except queue.Empty:
            ready = None
        if ready is None:
            self._stop()
            raise NoTarget(f"{self.python} cannot run the worker, which needs Python 3.8 and NumPy: {self._end}")
        return process

    def _stop(self, why: str = "") -> None:
        """End the worker for the reason given, or let it die of its own."""
        process, self._process = self._process, None
        if process is None:
            return
        if why:
            process.kill()
        try:
            code = process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            code = process.wait()
        with contextlib.suppress(OSError):
            process.stdin.close()  # type: ignore[union-attr]
        self._end = why or _named_end(code) + self._last_words()

    def _last_words(self) -> str:
        """The last line that the call itself said."""
        self._said.seek(self._heard)
        lines = self._said.read().decode(errors="replace").strip().splitlines()
        return f": {lines[-1][:300]}" if lines else ""


Frame = tuple[dict[str, Any], bytes]


def _listen(stream: Any, replies: queue.Queue[Frame | None]) -> None:
    """Hands on every frame; None when the stream ends."""
    with contextlib.suppress(OSError, ValueError), stream:
        while (frame := worker.read_frame(stream)) is not None:
            replies.put(frame)
    replies.put(None)


def _named_end(code: int) -> str:
    """
    >>> _named_end(-8), _named_end(3)
    ('killed by SIGFPE', 'exited with code 3')
    """
    if code < 0:
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
    return f"exited with code {code}"
