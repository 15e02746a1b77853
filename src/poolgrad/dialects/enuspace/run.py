"""Running a page: every session once a cycle, block by block, each with its state, its time and its error.

A session runs what feeds it, each block after its sources, and shows a result on every block upstream of `fetch_outputs`.
A block that fails is reported once, and what depends on it is not run and says so. `INFINITE_LOOP` repeats a session for
as many cycles as the caller allows. Nothing is swallowed, and no state outlives the runner.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from ...errors import PoolGradError, PoolGradValueError
from .check import check_page, property_value
from .compute import evaluate
from .grammar import Array, format_shape
from .graph import Graph
from .page import LogEntry, Page
from .watch import Row, shown, watch

__all__ = ["BlockState", "Report", "Runner"]

DEBUG_ELEMENTS = 10


@dataclass(frozen=True)
class BlockState:
    """Where a block stands: idle, done, failed, blocked (a source failed) or cancelled."""

    block: str
    state: str
    seconds: float = 0.0
    error: str = ""
    cycle: int = 0


@dataclass
class Report:
    """What a run gave: the watch table, the log, the state of every block, and whether all went well."""

    page: str
    ok: bool
    cycles: int
    watch: list[Row] = field(default_factory=list)
    log: list[LogEntry] = field(default_factory=list)
    blocks: list[BlockState] = field(default_factory=list)


class Runner:
    """Runs a page, all at once or step by step.

    >>> import numpy as np
    >>> page = Page()
    >>> five = page.add("Const", val=np.float32([[5]])); session = page.add("ClientSession")
    >>> wire = page.connect(five, "output", session, "fetch_outputs")
    >>> runner = Runner(page)
    >>> [(state.block, state.state) for state in runner.steps()]
    [('ID_1', 'done'), ('ID_2', 'done')]
    >>> runner.value("ID_1", "output")
    array([[5.]], dtype=float32)
    """

    def __init__(self, page: Page, *, cycles: int = 1, most_elements: int | None = None) -> None:
        """`most_elements` bounds what one block may make; without it, the machine's memory does."""
        if not isinstance(cycles, int) or cycles < 1:
            raise PoolGradValueError(f"cycles must be an integer of at least 1, got {cycles!r}")
        self.page, self.cycles, self.most_elements = page, cycles, most_elements
        self.cycle = 0
        self.current, self.planned = "", 0
        self.log: list[LogEntry] = []
        self.states: dict[str, BlockState] = {}
        self._values: dict[tuple[str, str], Array] = {}
        self._fetched: set[str] = set()
        self._prints: dict[str, int] = {}
        self._cancelled = threading.Event()

    def run(self, *, elements: int = 100) -> Report:
        """Run to the end."""
        for _ in self.steps():
            pass
        return self.report(elements=elements)

    def cancel(self) -> None:
        """Stop before the next block; may be called from another thread."""
        self._cancelled.set()

    def steps(self) -> Iterator[BlockState]:
        """Run a block at a time, giving each one's state as it ends.

        Meanwhile `current` is the block that runs and `planned` the number of blocks of this cycle.
        """
        graph = Graph(self.page)
        self._begin(graph)
        sessions = [id for id in graph.order if graph.blocks[id].symbol == "ClientSession"]
        looping = {id for id in sessions if self._switch(graph, id, "INFINITE_LOOP")}
        for cycle in range(1, self.cycles + 1):
            again = sessions if cycle == 1 else [id for id in sessions if id in looping]
            if not again:
                break
            self.cycle = cycle
            self.planned = len(set(again).union(*(self._needed(graph, session) for session in again)))
            done: set[str] = set()
            for session in again:
                yield from self._session(graph, session, done)
                if self._cancelled.is_set():
                    self._cancelled.clear()
                    self.log.append(LogEntry("error", "", f"cancelled in cycle {self.cycle}"))
                    return
            self.log.append(LogEntry("info", "", f"cycle {self.cycle}"))

    def _begin(self, graph: Graph) -> None:
        self.cycle = 0
        self._values.clear()
        self._fetched.clear()
        self.log[:] = check_page(self.page)
        self.states = {id: BlockState(id, "idle") for id in graph.blocks}
        self._prints = fingerprints(graph)
        for entry in self.log:
            if entry.severity == "error" and entry.block in self.states:
                self.states[entry.block] = BlockState(entry.block, "failed", error=entry.message)

    def _switch(self, graph: Graph, session: str, name: str) -> bool:
        try:
            return bool(property_value(graph.blocks[session], name)[0])
        except PoolGradError:
            return False

    def _needed(self, graph: Graph, session: str) -> set[str]:
        targets = [source for pin in ("fetch_outputs", "run_outputs") for source in graph.sources.get((session, pin), [])]
        return graph.upstream(id for id, _ in targets)

    def _session(self, graph: Graph, session: str, done: set[str]) -> Iterator[BlockState]:
        needed = self._needed(graph, session)
        for id in [id for id in graph.order if id in needed and id not in done] + [session]:
            if self._cancelled.is_set():
                self.states[id] = BlockState(id, "cancelled", cycle=self.cycle)
                yield self.states[id]
                return
            done.add(id)
            self.current = id
            self.states[id] = self._block(graph, id)
            yield self.states[id]
        fetched = graph.upstream(id for id, _ in graph.sources.get((session, "fetch_outputs"), []))
        self._fetched |= fetched
        if self._switch(graph, session, "SHOW_DEBUG"):
            for id, pin in graph.sources.get((session, "fetch_outputs"), []):
                self._debug(id, pin)

    def _block(self, graph: Graph, id: str) -> BlockState:
        before = self.states[id]
        if before.state == "failed" and before.cycle == 0:
            return before
        broken = [source for source in graph.before[id] if self.states[source].state != "done"]
        if broken:
            how = "failed" if self.states[broken[0]].state == "failed" else "did not run"
            return self._fail(id, "blocked", f"not run: it needs {broken[0]}, which {how}", 0.0)
        block, start = graph.blocks[id], time.perf_counter()
        if block.symbol == "ClientSession":
            return BlockState(id, "done", cycle=self.cycle)
        try:
            inputs = {pin: self._values[source] for pin, source in self._inputs(graph, id)}
            made = evaluate(block, inputs, self.most_elements)
        except (PoolGradError, MemoryError) as error:
            return self._fail(id, "failed", str(error) or "out of memory", time.perf_counter() - start)
        self._values |= {(id, pin): array for pin, array in made.items()}
        return BlockState(id, "done", time.perf_counter() - start, cycle=self.cycle)

    def _inputs(self, graph: Graph, id: str) -> Iterator[tuple[str, tuple[str, str]]]:
        definition = graph.blocks[id].definition
        for pin in definition.of_kind("input") if definition else ():
            for source in graph.sources.get((id, pin.name), [])[:1]:
                yield pin.name, source

    def _fail(self, id: str, state: str, message: str, seconds: float) -> BlockState:
        if self.states[id].error != message:
            self.log.append(LogEntry("error", id, message))
        return BlockState(id, state, seconds, message, self.cycle)

    def _debug(self, id: str, pin: str) -> None:
        array = self._values.get((id, pin))
        if array is None:
            return
        for k, value in enumerate(array.ravel()[:DEBUG_ELEMENTS]):
            text = f"{float(value):.6f}" if array.dtype.kind not in "Tb" else shown(value)
            self.log.append(LogEntry("info", id, f"{id}.result_{pin}[{k}] = {text}"))
        said = f"{id}.result_{pin}{format_shape(array.shape)} of type {array.dtype}, {array.size} elements"
        self.log.append(LogEntry("info", id, said))

    def value(self, id: str, pin: str) -> Array:
        """What a block gave at an output pin, or its `result_` twin."""
        key = (id, pin.removeprefix("result_"))
        if key not in self._values:
            raise PoolGradValueError(f"{id}.{pin} has no value: run the page, and see the log for what failed")
        return self._values[key]

    def results(self) -> dict[tuple[str, str], Array]:
        """The values that show on result pins: those of every block upstream of a session's `fetch_outputs`."""
        return {(id, f"result_{pin}"): array for (id, pin), array in self._values.items() if id in self._fetched}

    def stale(self, page: Page | None = None) -> list[str]:
        """Blocks whose result no longer follows from the page, because it or something upstream was edited since.

        `page` is the edited page where that is not the one that was run.
        """
        now = fingerprints(Graph(page or self.page))
        return [id for id, state in self.states.items() if state.state == "done" and now.get(id) != self._prints.get(id)]

    def fill(self) -> None:
        """Write the results onto the page's result pins, as enuSpace saves them."""
        results = self.results()
        for block in self.page.blocks:
            for pin in block.pins:
                if (block.id, pin.name) in results:
                    pin.set(results[block.id, pin.name])

    def report(self, *, elements: int = 100) -> Report:
        """The run so far; an array unfolds into at most `elements` rows."""
        ok = bool(self.states) and not any(entry.severity == "error" for entry in self.log)
        table = watch(self.page, self.results(), elements=elements)
        return Report(self.page.name, ok, self.cycle, table, list(self.log), list(self.states.values()))


def fingerprints(graph: Graph) -> dict[str, int]:
    """A number for each block that changes with anything its result depends on: properties, wires, whatever is upstream."""
    made: dict[str, int] = {}
    for id in graph.order:
        block = graph.blocks[id]
        own = tuple((p.name, p.type, p.shape, p.value, p.data) for p in block.pins if p.kind == "const")
        names = [p.name for p in block.pins if p.kind == "input"]
        fed = tuple((n, s, made.get(s)) for n in names for s, _ in graph.sources.get((id, n), []))
        made[id] = hash((block.symbol, own, fed, tuple(p for n in names for _, p in graph.sources.get((id, n), []))))
    return made
