"""Timing: every contestant in turn, round after round, the best of its calls counts.

Other work on the machine slows all contestants alike within a round, and the best of many rounds is what the machine
can do; rounds are added until the best stays the best. Each turn is a few calls in a row, so that a contestant is not
charged for the caches or the spinning threads that the one before it left behind. A slow peer leaves the rounds once it
has used up its time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from .. import avg_pool, avg_pool_grad, forward, gradient
from ..engines import _native
from .accuracy import sample, truth, worst_ulps
from .cases import DTYPES, Row
from .peers import Peer, Unsupported, Way

__all__ = ["Measured", "Settings", "floor_calls", "measure", "microseconds", "our_call", "public_call"]

Array = npt.NDArray[Any]

TOLERANCE = {"float64": 1e-12, "float32": 1e-4, "float16": 2e-2, "bfloat16": 1e-1}
"""Beyond this relative difference a peer's answer is marked as another answer, not as rounding."""


@dataclass(frozen=True)
class Settings:
    threads: int
    rounds: int
    allocate: bool = False
    seconds_per_peer: float = 3.0


@dataclass
class Timed:
    """A contestant and its best time so far."""

    name: str
    call: Callable[[], Any]
    limit: float
    best: float = float("inf")
    spent: float = 0.0

    def turn(self, calls: int) -> None:
        for _ in range(calls):
            if self.spent > self.limit:
                return
            begin = time.perf_counter()
            result = self.call()
            took = time.perf_counter() - begin
            del result
            self.best, self.spent = min(self.best, took), self.spent + took


@dataclass
class Measured:
    """One row's results: milliseconds, errors in units of the last place, and what peers refused."""

    row: Row
    floor: float = 0.0
    ours: float = 0.0
    ulps: float | None = None
    peers: dict[str, float] = field(default_factory=dict)
    peer_ulps: dict[str, float | None] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def fastest(self) -> str | None:
        return min(self.peers, key=self.peers.__getitem__) if self.peers else None


def our_call(row: Row, source: Array, out: Array | None, threads: int) -> Callable[[], Array]:
    """The row through a `Pool`, the form that serves every kind of pooling."""
    pool, layout = row.case.pool(), row.layout
    if row.forward:
        return lambda: forward(pool, source, layout=layout, out=out, num_threads=threads)
    return lambda: gradient(pool, source, layout=layout, out=out, num_threads=threads)


def public_call(row: Row, source: Array) -> Callable[[], Array]:
    """The same through `avg_pool` and `avg_pool_grad`, arguments and all, as a user types it."""
    case, shape = row.case, row.input_shape
    assert case.window is not None
    window = case.window
    kwargs: dict[str, Any] = {"stride": case.stride, "padding": case.padding, "layout": row.layout}
    if row.forward:
        return lambda: avg_pool(source, window, **kwargs)
    return lambda: avg_pool_grad(source, shape, window, **kwargs)


def floor_calls(source: Array, out: Array, threads: int) -> list[Callable[[], None]]:
    """Plain kernels that read the source's bytes once and write the result's once; the best of them is the floor."""

    def mover(streaming: bool, parts: int) -> Callable[[], None]:
        return lambda: _native.move(source, out, streaming, parts, threads)

    return [mover(streaming, parts) for streaming in (True, False) for parts in (threads, 64 * threads)]


def aligned_empty(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """An array that begins on a cache line and whose pages exist: nobody is charged for the first touch."""
    size = int(np.prod(shape)) * dtype.itemsize
    block = np.ones(size + 64, dtype=np.uint8)
    begin = -block.ctypes.data % 64
    return block[begin : begin + size].view(dtype).reshape(shape)


PLACES, MOST_PLACES, PLACED = 3, 12, 1 << 29
"""Pairs of arrays for the floor and for ours, more of them where they are small, up to so many bytes in all: where memory lies
can double a time, and a peer that allocates its result draws a new place with every call."""


def measure(row: Row, peers: list[Peer], settings: Settings) -> Measured:
    source = aligned_empty(row.source_shape, DTYPES[row.dtype])
    source[...] = row.source()
    places = [(source, aligned_empty(row.result_shape, source.dtype))]
    pairs = max(PLACES, min(MOST_PLACES, PLACED // (source.nbytes + places[0][1].nbytes + 1)))
    for _ in range(pairs - 1):
        places.append((aligned_empty(source.shape, source.dtype), aligned_empty(row.result_shape, source.dtype)))
        places[-1][0][...] = source
    done = Measured(row)
    ours = [our_call(row, given, None if settings.allocate else out, settings.threads) for given, out in places]
    answer = ours[0]()
    images = sorted({0, row.case.batch // 2, row.case.batch - 1})
    expected = [sample(row, answer, i).astype(np.float64) for i in images]
    want = truth(row.case.pool(), sample(row, source), forward=row.forward)
    if want is not None:
        done.ulps = worst_ulps(sample(row, answer), want, DTYPES[row.dtype])
    del answer

    floors = [call for place in places for call in floor_calls(*place, settings.threads)]
    contestants = [Timed("floor", call, float("inf")) for call in floors]
    contestants += [Timed("ours", call, float("inf")) for call in ours]
    for peer in peers:
        contestants += _peer(peer, row, source, settings, done, images, expected, want)
    _race(contestants, settings.rounds)
    done.floor = 1e3 * min(c.best for c in contestants if c.name == "floor")
    done.ours = 1e3 * min(c.best for c in contestants if c.name == "ours")
    for peer in peers:
        best = [c.best for c in contestants if c.name == peer.name]
        if best:
            done.peers[peer.name] = 1e3 * min(best)
    return done


def _race(contestants: list[Timed], rounds: int) -> None:
    """So many rounds, and more (up to four times as many) while the floor or ours still get better."""
    patience, last = max(2, rounds // 3), 0
    for k in range(4 * rounds):
        before = [c.best for c in contestants if c.name in ("floor", "ours")]
        for contestant in contestants:
            contestant.turn(3)
        after = [c.best for c in contestants if c.name in ("floor", "ours")]
        if any(new < 0.99 * old for old, new in zip(before, after, strict=True)):
            last = k
        if k + 1 >= rounds and k - last >= patience:
            return


def _peer(
    peer: Peer,
    row: Row,
    source: Array,
    settings: Settings,
    done: Measured,
    images: list[int],
    expected: list[Array],
    want: Array | None,
) -> list[Timed]:
    """A peer's ways through the job, each called once and compared with our answer; wrong ones race only if all are.

    The first call warms up and is not timed, unless it takes so long that it must do for all.
    """
    try:
        ways = [way for way in peer.ways(row, source) if way.allocates or not settings.allocate]
    except Unsupported as refusal:
        done.refused[peer.name] = str(refusal)
        return []
    right: list[tuple[Timed, Array]] = []
    wrong: list[tuple[Timed, Array]] = []
    for way in ways:
        timed = Timed(peer.name, way.call, settings.seconds_per_peer)
        answer, first = _first_call(way)
        slow = first > settings.seconds_per_peer
        if slow:
            timed.best = timed.spent = first
        far = max(_distance(sample(row, answer, i), e) for i, e in zip(images, expected, strict=True))
        (right if far <= TOLERANCE[row.dtype] else wrong).append((timed, answer))
        if right and slow:
            break
    if not right:
        done.differs.append(peer.name)
    chosen = right or wrong
    if want is not None and chosen:
        done.peer_ulps[peer.name] = worst_ulps(sample(row, chosen[0][1]), want, DTYPES[row.dtype])
    return [timed for timed, _ in chosen]


def _distance(a: Array, b: Array) -> float:
    return float(np.max(np.abs(a - b), initial=0.0) / max(float(np.max(np.abs(b), initial=0.0)), 1e-300))


def _first_call(way: Way) -> tuple[Array, float]:
    begin = time.perf_counter()
    result = way.call()
    took = time.perf_counter() - begin
    return way.read(result), took


def microseconds(contestants: dict[str, Callable[[], Any]], calls: int = 1000, rounds: int = 30) -> dict[str, float]:
    """The best mean of many calls in a row, for calls too short to time one by one."""
    best = dict.fromkeys(contestants, float("inf"))
    for _ in range(rounds):
        for name, call in contestants.items():
            begin = time.perf_counter()
            for _ in range(calls):
                call()
            best[name] = min(best[name], 1e6 * (time.perf_counter() - begin) / calls)
    return best
