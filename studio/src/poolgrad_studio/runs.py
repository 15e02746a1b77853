"""A run of a page in a thread of its own, with everything a tab wants to know about it.

The thread goes through `Runner.steps` and leaves what happened here; the event loop collects it a few times a second. A run
goes on with the page it began with. Stopping counts at once: a block that computes just then ends by itself, and nobody
waits for it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from itertools import islice
from typing import Any

from poolgrad.dialects.enuspace.watch import shown, type_name
from poolgrad.enuspace import BlockState, Graph, LogEntry, Page, Runner
from poolgrad.errors import PoolGradError

from .arrays import Array
from .failure import Failure
from .limits import LIMITS, MOST_CYCLES

__all__ = ["Run"]

MOST_LINES = 2_000
"""Lines of the log that are kept; a run that repeats for hours says more."""

MOST_AT_ONCE = 500

FIRST, MOST_SHOWN = 8, 24
"""Elements that travel with a result, and characters of each: what its pin shows."""


class Run:
    """One run. `wake` is called from the thread whenever there is something to tell."""

    def __init__(self, number: int, page: Page, cycles: int, wake: Callable[[], None], *, stepping: bool) -> None:
        self.number, self.cycles, self._wake = number, cycles, wake
        self._runner = Runner(page, cycles=cycles or MOST_CYCLES, most_elements=LIMITS["elements"])
        self._graph = Graph(page)
        self._shown = self._fetched()
        self._lock = threading.Condition()
        self._allowed = 1 if stepping else None
        self._state, self._cycle, self._done, self._began = "running", 1, 0, time.perf_counter()
        self._seconds: float | None = None
        self._log: list[LogEntry] = []
        self._results: dict[tuple[str, str], Array] = {}
        self._fresh: dict[str, list[dict[str, Any]]] = {"blocks": [], "log": [], "results": []}
        self._left_out = 0
        self._failed = False
        threading.Thread(target=self._work, name=f"run {number}", daemon=True).start()

    def _fetched(self) -> set[str]:
        sessions = [id for id, block in self._graph.blocks.items() if block.symbol == "ClientSession"]
        fetched = [source for id in sessions for source, _ in self._graph.sources.get((id, "fetch_outputs"), [])]
        return self._graph.upstream(fetched)

    def _work(self) -> None:
        try:
            for state in self._runner.steps():
                self._take(state)
                if not self._may_go_on():
                    break
            self._end("failed" if self._failed else "done")
        except Exception as error:  # a mistake of ours must reach the log, not vanish with the thread
            self._runner.log.append(LogEntry("error", self._runner.current, f"the studio made a mistake: {error!r}"))
            self._failed = True
            self._end("failed")

    def _take(self, state: BlockState) -> None:
        with self._lock:
            if self._state == "cancelled":
                return
            if self._runner.cycle != self._cycle:
                self._cycle, self._done = self._runner.cycle, 0
            self._done += 1
            self._failed |= state.state in ("failed", "blocked")
            self._fresh["blocks"].append(asdict(state))
            if state.state == "done" and state.block in self._shown:
                self._take_results(state.block)
            self._take_log()
        self._wake()

    def _take_results(self, id: str) -> None:
        definition = self._graph.blocks[id].definition
        for pin in definition.of_kind("result") if definition else ():
            array = self._runner.value(id, pin.name)
            self._results[id, pin.name] = array
            self._fresh["results"].append(_result(id, pin.name, array))

    def _take_log(self) -> None:
        fresh, self._runner.log[:] = list(self._runner.log), []
        self._failed |= any(entry.severity == "error" for entry in fresh)
        self._log = (self._log + fresh)[-MOST_LINES:]
        room = max(MOST_AT_ONCE - len(self._fresh["log"]), 0)
        self._fresh["log"] += [asdict(entry) for entry in fresh[:room]]
        self._left_out += len(fresh[room:])

    def _may_go_on(self) -> bool:
        with self._lock:
            if self._allowed is not None:
                self._allowed -= 1
                if self._allowed <= 0 and self._state == "running":
                    self._state = "paused"
                    self._wake()
                    self._lock.wait_for(lambda: self._state != "paused")
            return self._state != "cancelled"

    def _end(self, state: str) -> None:
        with self._lock:
            if self._state != "cancelled":
                self._take_log()
                self._state = "failed" if self._failed else state
                self._seconds = time.perf_counter() - self._began
        self._wake()

    @property
    def active(self) -> bool:
        return self._state in ("running", "paused")

    def go_on(self, *, stepping: bool) -> None:
        """Continue a paused run, by one block or to the end."""
        with self._lock:
            if self._state == "running":
                raise Failure("busy", "the page is running: stop it first")
            self._allowed = 1 if stepping else None
            self._state = "running"
            self._lock.notify_all()

    def stop(self) -> bool:
        """Cancel the run; whether there was anything to cancel."""
        with self._lock:
            if not self.active:
                return False
            self._state, self._seconds = "cancelled", time.perf_counter() - self._began
            entry = LogEntry("warning", "", f"stopped in cycle {self._cycle}")
            self._log.append(entry)
            self._fresh["log"].append(asdict(entry))
            self._lock.notify_all()
        self._wake()
        return True

    def take(self) -> list[tuple[str, str, list[dict[str, Any]]]]:
        """What happened since the last call: the event that tells it, the name of its list, and the list."""
        with self._lock:
            fresh, self._fresh = self._fresh, {"blocks": [], "log": [], "results": []}
            if self._left_out:
                fresh["log"].append(asdict(LogEntry("warning", "", f"{self._left_out} lines were left out here")))
                self._left_out = 0
        latest = {(entry["block"], entry["pin"]): entry for entry in fresh["results"]}
        states = {entry["block"]: entry for entry in fresh["blocks"]}
        told = [
            ("results", "results", list(latest.values())),
            ("blocks", "states", list(states.values())),
            ("log", "entries", fresh["log"]),
        ]
        return [(event, key, items) for event, key, items in told if items]

    def progress(self) -> dict[str, Any]:
        seconds = self._seconds if self._seconds is not None else time.perf_counter() - self._began
        current = self._runner.current if self._state == "running" else None
        return {
            "run": self.number,
            "state": self._state,
            "current": current or None,
            "cycle": self._cycle,
            "cycles": self.cycles,
            "done": self._done,
            "total": self._runner.planned,
            "seconds": seconds,
        }

    def entries(self) -> list[dict[str, Any]]:
        with self._lock:
            return [asdict(entry) for entry in self._log]

    def states(self) -> list[dict[str, Any]]:
        return [asdict(state) for state in list(self._runner.states.values())]

    def results(self) -> list[dict[str, Any]]:
        with self._lock:
            return [_result(id, pin, array) for (id, pin), array in self._results.items()]

    def arrays(self) -> dict[tuple[str, str], Array]:
        """What shows on result pins."""
        with self._lock:
            return dict(self._results)

    def stale(self, page: Page) -> list[str]:
        """Blocks whose result does not follow from this page any more."""
        return self._runner.stale(page)

    def value(self, id: str, pin: str) -> Array:
        try:
            return self._runner.value(id, pin)
        except PoolGradError as error:
            raise Failure("value", str(error)) from None


def _result(id: str, pin: str, array: Array) -> dict[str, Any]:
    shape, dtype = list(array.shape), "string" if array.dtype.kind == "T" else array.dtype.name
    size = {"size": array.size, "bytes": array.nbytes}
    head = [shown(value)[:MOST_SHOWN] for value in islice(array.flat, FIRST)]
    return {"block": id, "pin": pin, "type": type_name(array), "dtype": dtype, "shape": shape, **size, "head": head}
