"""The suite: the same cases for every target, made systematically from a seed.

Nothing here knows of any implementation. Each group fixes one property (windows side by side, overlapping, padding of
one kind, …) and draws the rest: every rank, channels first and last, all extents different (but for `cubic`), and window,
stride and padding different from axis to axis. Cotangents are random, never ones. The shapes are as small as the property
allows, so that the exact answer is quick and a failure is easy to read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import NamedTuple, TypeVar

from ..dialects.pooling import Adaptive, Fractional, Pooling, Regular
from ..errors import PoolGradValueError
from ..geometry import COUNTS, Axis, places
from .case import Case, shape_of_dy

__all__ = ["GROUPS", "suite"]

T = TypeVar("T")
SPACE = {1: "L", 2: "HW", 3: "DHW"}
HALVES = ("float16", "bfloat16")
UNUSUAL = (
    *("L", "CL", "LC", "LNC"),
    *("HW", "CHW", "HWC", "WH", "CWHN", "HCWN", "CHWN"),
    *("DHW", "CDHW", "DHWC", "WHDCN", "HNCDW"),
)


class Draw:
    """Choices from a stream that Python promises never to change."""

    def __init__(self, seed: int, group: str):
        self.random = Random(f"{seed} {group}")

    def of(self, options: Sequence[T]) -> T:
        return options[int(self.random.random() * len(options))]

    def between(self, least: int, most: int) -> int:
        return least + int(self.random.random() * (most - least + 1))


class Way(NamedTuple):
    """How one axis is pooled: input length, window, stride, padding before and after, dilation."""

    n: int
    k: int
    s: int
    pads: tuple[int, int] = (0, 0)
    d: int = 1


def tiled(draw: Draw, rank: int) -> Way:
    k = draw.between(1, 4)
    return Way(k * draw.between(1, 3) + draw.between(0, k - 1), k, k)


def overlapping(draw: Draw, rank: int) -> Way:
    k = draw.between(2, 5)
    return Way(k + draw.between(0, 6), k, draw.between(1, k - 1))


def gapped(draw: Draw, rank: int) -> Way:
    k = draw.between(1, 3)
    return Way(k + draw.between(0, 8), k, k + draw.between(1, 3))


def same(draw: Draw, rank: int, name: str = "same") -> Way:
    n, k, s = draw.between(2, 9), draw.between(1, 5), draw.between(1, 4)
    return _same(n, min(k, n), s, name)


def same_lower(draw: Draw, rank: int) -> Way:
    return same(draw, rank, "same_lower")


def symmetric(draw: Draw, rank: int) -> Way:
    k = draw.between(2, 5)
    p = draw.between(0, k // 2)
    return Way(draw.between(k, k + 6), k, draw.between(1, k + 1), (p, p))


def lopsided(draw: Draw, rank: int) -> Way:
    k = draw.between(2, 5)
    return Way(draw.between(k, k + 5), k, draw.between(1, k), (draw.between(0, k - 1), draw.between(0, k - 1)))


def overhanging(draw: Draw, rank: int) -> Way:
    """With `ceil_mode`, a last window that leaves the input and its padding."""
    k, s = draw.between(2, 5), draw.between(2, 4)
    p = draw.between(0, k // 2)
    n = k - 2 * p + s * draw.between(1, 2) + draw.between(1, s - 1)
    return Way(n, k, s, (p, p))


def dilated(draw: Draw, rank: int) -> Way:
    k, d = draw.between(2, 3), draw.between(1, 3)
    p = draw.between(0, k - 1)
    return Way((k - 1) * d + 1 + draw.between(0, 4), k, draw.between(1, 3), (p, draw.between(0, k - 1)), d)


def exceeding(draw: Draw, rank: int) -> Way:
    """A window larger than the input, padded as SAME pads it or alike on both sides."""
    n = draw.between(1, 5)
    k, s = n + draw.between(1, 4), draw.between(1, 3)
    if draw.of((True, True, False)):
        return _same(n, k, s, "same")
    p = min(k // 2, n + 1)
    return Way(n, k, s, (p, p)) if n + 2 * p >= k else _same(n, k, s, "same")


def spanning(draw: Draw, rank: int) -> Way:
    """Axes longer than vectors and tiles, in one dimension longer than in three."""
    n = draw.between(*{1: (130, 300), 2: (17, 40), 3: (9, 18)}[rank])
    k = draw.between(2, {1: 63, 2: 13, 3: 5}[rank])
    p = draw.between(0, k // 2)
    return Way(n, k, draw.between(1, k), (p, p))


def piled(draw: Draw, rank: int) -> Way:
    """Many windows over every input: long sums, without padding."""
    k = draw.between(*{1: (20, 40), 2: (7, 11), 3: (4, 5)}[rank])
    return Way(2 * k + draw.between(-2, 2), k, 1)


def _same(n: int, k: int, s: int, name: str) -> Way:
    before, after, _ = places(n, k, s, name, 1, False)
    return Way(n, k, s, (before, after))


Rule = Callable[[Draw, int], Way]


def _ways(draw: Draw, rule: Rule, rank: int) -> list[Way]:
    """One way per axis, all lengths different."""
    while True:
        ways = [rule(draw, rank) for _ in range(rank)]
        if len({way.n for way in ways}) == rank:
            return ways


def _layout(rank: int, last: bool) -> str:
    return f"N{SPACE[rank]}C" if last else f"NC{SPACE[rank]}"


def _shape(layout: str, sizes: Sequence[int], batch: int, channels: int) -> tuple[int, ...]:
    space = dict(zip(sorted(set(layout) - set("NC")), sizes, strict=True))
    return tuple({"N": batch, "C": channels, **space}[letter] for letter in layout)


class Made(NamedTuple):
    """A case before it has its name and seed."""

    pooling: Pooling
    input_shape: tuple[int, ...]
    dtype: str = "float32"
    values: str = "plain"
    dy_shape: tuple[int, ...] | None = None
    fits: tuple[int, ...] | None = None


def _regular(layout: str, ways: Sequence[Way], count: str = "inside", divisor: int | None = None, ceil: bool = False) -> Regular:
    window, stride = tuple(w.k for w in ways), tuple(w.s for w in ways)
    dilation = tuple(w.d for w in ways)
    return Regular(layout, window, stride, tuple(w.pads for w in ways), dilation, count, divisor, ceil)


def _case(draw: Draw, layout: str, ways: Sequence[Way], dtype: str = "float32", **options: object) -> Made:
    channels = draw.of((1, 2, 3, 5))
    shape = _shape(layout, [w.n for w in ways], draw.between(1, 3), channels)
    return Made(_regular(layout, ways, **options), shape, dtype)  # type: ignore[arg-type]


def plain(rule: Rule, ranks: Sequence[int], many: int = 12, dtypes: Sequence[str] = ("float32", "float32", "float64")) -> Maker:
    """Cases of one rule, channels first and last in turn."""

    def make(draw: Draw) -> Iterator[Made]:
        for rank in ranks:
            for k in range(many):
                yield _case(draw, _layout(rank, k % 2 == 1), _ways(draw, rule, rank), dtypes[k % len(dtypes)])

    return make


Maker = Callable[[Draw], Iterator[Made]]


def cubic(draw: Draw) -> Iterator[Made]:
    """All axes alike."""
    for rank in (2, 3):
        for k in range(6):
            way = tiled(draw, rank)
            yield _case(draw, _layout(rank, k % 2 == 1), [way] * rank)


def counting(draw: Draw) -> Iterator[Made]:
    """Every counting rule and a constant divisor, where windows leave the input."""
    said = [(rule, count, None) for rule in (symmetric, lopsided, overhanging) for count in COUNTS]
    for rank in (1, 2, 3):
        for rule, count, divisor in [*said, (symmetric, "inside", draw.between(2, 9))]:
            for last in (False, True):
                ways = _ways(draw, rule, rank)
                yield _case(draw, _layout(rank, last), ways, count=count, divisor=divisor, ceil=rule is overhanging)


def ceil(draw: Draw) -> Iterator[Made]:
    for rank in (1, 2, 3):
        for k in range(12):
            ways = _ways(draw, overhanging, rank)
            yield _case(draw, _layout(rank, k % 2 == 1), ways, count=COUNTS[k % 3], ceil=True)


def layouts(draw: Draw) -> Iterator[Made]:
    """Orders of axes beyond the two usual ones."""
    for layout in UNUSUAL:
        rank = len(set(layout) - set("NC"))
        for rule in (overlapping, symmetric):
            yield _case(draw, layout, _ways(draw, rule, rank))


def wide(draw: Draw) -> Iterator[Made]:
    """Many channels or long axes: where a vectorised, tiled or threaded kernel has its edges."""
    many = [(overlapping, channels) for channels in (7, 8, 17, 33, 67)]
    for rank in (1, 2, 3):
        for k, (rule, channels) in enumerate([(spanning, 1), (spanning, 1), (piled, 2), (piled, 3), *many]):
            layout = _layout(rank, (k + rank) % 2 == 1)
            ways = _ways(draw, rule, rank)
            yield Made(_regular(layout, ways), _shape(layout, [w.n for w in ways], draw.between(1, 2), channels))


def adaptive(draw: Draw) -> Iterator[Made]:
    """PyTorch's adaptive windows; one cell per axis is global pooling, and more cells than inputs are allowed."""
    for rank in (1, 2, 3):
        for k in range(8):
            sizes = [w.n for w in _ways(draw, tiled, rank)]
            cells = tuple(1 if k < 2 else draw.between(1, n + (2 if k == 7 else 0)) for n in sizes)
            layout = _layout(rank, k % 2 == 1)
            yield Made(Adaptive(layout, cells), _shape(layout, sizes, draw.between(1, 3), draw.of((1, 2, 5))))


def fractional(draw: Draw) -> Iterator[Made]:
    for rank in (1, 2, 3):
        for k in range(6):
            sizes = [w.n + 2 for w in _ways(draw, overlapping, rank)]
            rows = tuple(tuple(sorted({0, n, *(draw.between(1, n - 1) for _ in range(3))})) for n in sizes)
            layout = _layout(rank, True)
            yield Made(Fractional(layout, rows, k % 2 == 1), _shape(layout, sizes, draw.between(1, 3), draw.of((1, 2, 5))))


def half(dtype: str) -> Maker:
    """A 16-bit type: every usual geometry, and sums long enough to show in which type they are added."""

    def make(draw: Draw) -> Iterator[Made]:
        for rank in (1, 2, 3):
            for k, rule in enumerate((tiled, overlapping, same, symmetric, symmetric, spanning, piled, piled)):
                ways = _ways(draw, rule, rank)
                made = _case(draw, _layout(rank, (k + rank) % 2 == 1), ways, dtype, count="padded" if k == 4 else "inside")
                yield made._replace(values="spread" if rule is piled else "plain")

    return make


def special(draw: Draw) -> Iterator[Made]:
    """NaN and infinities must reach the inputs of their windows, and no others."""
    for dtype in ("float32", "float64", *HALVES):
        for rank in (1, 2, 3):
            for k, rule in enumerate((tiled, overlapping, same, symmetric)):
                made = _case(draw, _layout(rank, (k + rank) % 2 == 1), _ways(draw, rule, rank), dtype)
                yield made._replace(values="special")


def empty(draw: Draw) -> Iterator[Made]:
    """No batch, no channels, or no cells at all."""
    for rank in (1, 2, 3):
        for last in (False, True):
            layout, ways = _layout(rank, last), _ways(draw, overlapping, rank)
            sizes = [w.n for w in ways]
            yield Made(_regular(layout, ways), _shape(layout, sizes, 0, 3))
            yield Made(_regular(layout, ways), _shape(layout, sizes, 2, 0))
            yield Made(Adaptive(layout, (0,) * rank), _shape(layout, sizes, 2, 3))


def hostile(draw: Draw) -> Iterator[Made]:
    """Legal arguments on shapes they do not fit. There is no answer; the process must live to say so."""
    for rank in (1, 2, 3):
        for last in (False, True):
            layout = _layout(rank, last)
            for dtype in ("float32", "float64"):
                yield from _too_large(draw, layout, rank, dtype)
            yield from _disagreeing(draw, layout, rank)


def _too_large(draw: Draw, layout: str, rank: int, dtype: str) -> Iterator[Made]:
    """A window larger than an input without padding; `dy` has one cell there, or none."""
    ways = _ways(draw, overlapping, rank)
    axis = draw.between(0, rank - 1)
    pooling, batch, channels = _regular(layout, ways), draw.between(1, 3), draw.of((1, 2, 5))
    sizes = [w.n for w in ways]
    fits = _shape(layout, sizes, batch, channels)
    cells = [Axis.regular(w.n, w.k, stride=w.s).cells for w in ways]
    sizes[axis] = draw.between(1, ways[axis].k - 1)
    for there in (0, 1):
        cells[axis] = there
        dy_shape = _shape(layout, cells, batch, channels)
        yield Made(pooling, _shape(layout, sizes, batch, channels), dtype, "plain", dy_shape, fits)


def _disagreeing(draw: Draw, layout: str, rank: int) -> Iterator[Made]:
    """`dy` with one more or one less of something than the pooling makes."""
    for change in (-1, 1):
        for letter in ("N", "C", draw.of(SPACE[rank])):
            ways = _ways(draw, overlapping, rank)
            pooling, shape = _regular(layout, ways), _shape(layout, [w.n for w in ways], 2, 3)
            right = shape_of_dy(pooling, shape)
            at = layout.index(letter)
            yield Made(pooling, shape, dy_shape=(*right[:at], right[at] + change, *right[at + 1 :]))


GROUPS: dict[str, tuple[str, Maker]] = {
    **{f"tiled {r}-D": ("windows side by side, no padding", plain(tiled, [r])) for r in (1, 2, 3)},
    **{f"overlap {r}-D": ("stride smaller than the window, no padding", plain(overlapping, [r])) for r in (1, 2, 3)},
    "cubic": ("windows side by side, all axes alike", cubic),
    "gaps": ("stride larger than the window", plain(gapped, (1, 2, 3), 6)),
    "same": ("SAME padding, the odd cell after", plain(same, (1, 2, 3))),
    "same lower": ("SAME padding, the odd cell before", plain(same_lower, (1, 2, 3), 6)),
    "symmetric": ("explicit padding alike on both sides", plain(symmetric, (1, 2, 3))),
    "asymmetric": ("explicit padding, different on both sides", plain(lopsided, (1, 2, 3), 6)),
    "counting": ("which cells a window divides by, or a constant", counting),
    "ceil": ("output size rounded up", ceil),
    "dilation": ("windows with holes", plain(dilated, (1, 2, 3), 6)),
    "large window": ("windows larger than the input", plain(exceeding, (1, 2, 3), 18)),
    "wide": ("many channels, long axes", wide),
    "layouts": ("unusual orders of axes", layouts),
    "adaptive": ("a given number of cells; global pooling", adaptive),
    "fractional": ("cells between given boundaries", fractional),
    "float16": ("16-bit type, 11-bit significand", half("float16")),
    "bfloat16": ("16-bit type, 8-bit significand", half("bfloat16")),
    "special": ("NaN and infinity in dy", special),
    "empty": ("arrays without elements", empty),
    "hostile": ("calls that have no answer: a clean error is right", hostile),
}
"""What each group holds and how it is made. Hostile calls come last: what they break breaks nothing else."""


def suite(groups: Sequence[str] | None = None, *, seed: int = 0, limit: int | None = None) -> list[Case]:
    """The cases of the named groups (all by default), at most `limit` of each, drawn from all of the group.

    >>> len(suite(["cubic"])), len(suite(["cubic"], limit=3))
    (12, 3)
    """
    chosen = list(GROUPS) if groups is None else list(groups)
    unknown = [name for name in chosen if name not in GROUPS]
    if unknown or not chosen:
        raise PoolGradValueError(f"groups must be some of {', '.join(map(repr, GROUPS))}, got {groups!r}")
    if limit is not None and limit < 1:
        raise PoolGradValueError(f"limit must be at least 1 case per group, got {limit}")
    found = []
    for name in (group for group in GROUPS if group in chosen):
        cases = [_named(name, k, made, seed) for k, made in enumerate(GROUPS[name][1](Draw(seed, name)))]
        found += cases if limit is None else _few(cases, limit, Draw(seed, f"few of {name}"))
    return found


def _few(cases: list[Case], limit: int, draw: Draw) -> list[Case]:
    """One case from each of `limit` parts of the list: neighbours differ in layout and dtype, so not every so-manieth."""
    if limit >= len(cases):
        return cases
    edges = [k * len(cases) // limit for k in range(limit + 1)]
    return [cases[draw.between(a, b - 1)] for a, b in itertools.pairwise(edges)]


def _named(group: str, k: int, made: Made, seed: int) -> Case:
    dy_shape = shape_of_dy(made.pooling, made.input_shape) if made.dy_shape is None else made.dy_shape
    return Case(f"{group}/{k}", made.pooling, made.input_shape, dy_shape, made.dtype, made.values, seed * 1000 + k, made.fits)
