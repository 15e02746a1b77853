"""Timing: every contestant in turn, round after round.

A machine's memory has quicker and slower seconds, here by half, and other work slows everybody alike. So what is compared
stands in the same round: a multiple is the median, over the rounds, of the quotient of two times that were taken within the
same moment. Each turn is a few calls in a row, of which the best counts, so that a contestant is not charged for the caches
or the spinning threads that the one before it left behind; short calls are more, since arrays that just fit a shared cache need
several to be in it. A slow peer leaves the rounds once it has used up its time.
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


SHORT_TURN, LONG_TURN = 0.005, 0.1
"""Seconds that a turn takes at least, and after which it has no further calls."""


@dataclass(frozen=True)
class Settings:
    threads: int
    rounds: int
    allocate: bool = False
    seconds_per_peer: float = 3.0


@dataclass
class Timed:
    """A contestant, and the seconds of its turns; infinite once it has left."""

    name: str
    call: Callable[[], Any]
    limit: float
    turns: list[float] = field(default_factory=list)
    spent: float = 0.0
    known: float | None = None
    """The time of a call so long that it must do for the first turn."""

    @property
    def best(self) -> float:
        return min(self.turns, default=float("inf"))

    def turn(self, calls: int) -> None:
        took, self.known = [self.known] if self.known else [], None
        while (len(took) < calls or sum(took) < SHORT_TURN) and sum(took) < LONG_TURN and self.spent <= self.limit:
            begin = time.perf_counter()
            result = self.call()
            took.append(time.perf_counter() - begin)
            del result
            self.spent += took[-1]
        self.turns.append(min(took, default=float("inf")))


@dataclass
class Measured:
    """One row's results: the milliseconds of every round, errors in units of the last place, and what peers refused."""

    row: Row
    rounds: dict[str, Array] = field(default_factory=dict)
    ulps: float | None = None
    peer_ulps: dict[str, float | None] = field(default_factory=dict)
    differs: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)

    def ms(self, name: str) -> float:
        times = self.rounds[name]
        return float(np.median(times[np.isfinite(times)]))

    def times(self, name: str, of: str) -> float:
        """How many times as long as `of` this contestant takes: the median of the rounds that both took part in."""
        one, other = self.rounds[name], self.rounds[of]
        both = np.isfinite(one) & np.isfinite(other)
        return float(np.median(one[both] / other[both]))

    def at_best(self, name: str, of: str) -> float:
        """The same of the best round of each, whenever they were."""
        return float(self.rounds[name].min() / self.rounds[of].min())

    @property
    def peers(self) -> list[str]:
        return [name for name in self.rounds if name not in ("floor", "poolgrad")]

    @property
    def fastest(self) -> str | None:
        return min(self.peers, key=lambda name: self.times(name, "poolgrad"), default=None)


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


def measure(row: Row, peers: list[Peer], settings: Settings) -> Measured:
    source, out = aligned_empty(row.source_shape, DTYPES[row.dtype]), aligned_empty(row.result_shape, DTYPES[row.dtype])
    source[...] = row.source()
    done = Measured(row)
    ours = our_call(row, source, None if settings.allocate else out, settings.threads)
    answer = ours()
    images = sorted({0, row.case.batch // 2, row.case.batch - 1})
    expected = [sample(row, answer, i).astype(np.float64) for i in images]
    want = truth(row.case.pool(), sample(row, source), forward=row.forward)
    if want is not None:
        done.ulps = worst_ulps(sample(row, answer), want, DTYPES[row.dtype])
    del answer

    contestants = [Timed("floor", call, float("inf")) for call in floor_calls(source, out, settings.threads)]
    contestants.append(Timed("poolgrad", ours, float("inf")))
    for peer in peers:
        contestants += _peer(peer, row, source, settings, done, images, expected, want)
    for _ in range(settings.rounds):
        for contestant in contestants:
            contestant.turn(3)
    for name in dict.fromkeys(c.name for c in contestants):
        done.rounds[name] = 1e3 * np.min([c.turns for c in contestants if c.name == name], axis=0)
    return done


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
            timed.known = timed.spent = first
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
