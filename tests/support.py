"""What the tests share: random poolings, layouts and arrays; engines called directly; comparison by bits.

Two results have the same bits when every element does; any NaN equals any NaN, and -0.0 differs from +0.0.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
from hypothesis import reject
from hypothesis import strategies as st

from poolgrad import Axis, Pool, PoolGradValueError
from poolgrad.engines import engine
from poolgrad.geometry import COUNTS
from poolgrad.layout import spatial_positions

Array = npt.NDArray[Any]

DTYPES = [np.dtype(t) for t in (np.float16, ml_dtypes.bfloat16, np.float32, np.float64)]
THREADS = (1, 2, 3, 7)
KINDS = ("valid", "same", "same_lower", "explicit", "ceil", "adaptive", "fractional", "whole", "empty")


def same_bits(a: Array, b: Array) -> bool:
    return a.shape == b.shape and a.dtype == b.dtype and not _differences(a, b).any()


def assert_same_bits(got: Array, want: Array, note: object = "") -> None:
    assert got.shape == want.shape, f"shape {got.shape}, not {want.shape} {note}"
    assert got.dtype == want.dtype, f"dtype {got.dtype}, not {want.dtype} {note}"
    differs = _differences(got, want)
    if differs.any():
        at = tuple(int(k) for k in np.argwhere(differs)[0])
        message = f"{differs.sum()} of {differs.size} differ, first at {at}: {got[at]!r}, not {want[at]!r}"
        raise AssertionError(f"{message} {note}")


def _differences(a: Array, b: Array) -> Array:
    bits = np.dtype(f"u{a.dtype.itemsize}")
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return (a.view(bits) != b.view(bits)) & ~(np.isnan(a) & np.isnan(b))


def compute(
    name: str,
    pool: Pool,
    source: Array,
    layout: str,
    *,
    forwards: bool,
    region: Sequence[slice] | None = None,
    out: Array | None = None,
    accumulate: bool = False,
    threads: int = 1,
) -> Array:
    """What the engine `name` makes of a pooling, without the public functions in between."""
    spatial = spatial_positions(layout, source.ndim)
    if out is None:
        out = np.full(result_shape(pool, source.shape, layout, forwards=forwards, region=region), 7, dtype=source.dtype)
    pieces = pool.forward_pieces(region) if forwards else pool.gradient_pieces(region)
    for piece in pieces:
        part, place = at(source, spatial, piece.take), at(out, spatial, piece.put)
        engine(name).run(piece.sums, part, place, spatial, accumulate=accumulate, threads=threads)
    return out


def result_shape(
    pool: Pool, shape: Sequence[int], layout: str, *, forwards: bool, region: Sequence[slice] | None = None
) -> tuple[int, ...]:
    sizes = pool.output_size if forwards else pool.input_size
    made = list(shape)
    for k, position in enumerate(spatial_positions(layout, len(made))):
        made[position] = sizes[k] if region is None else len(range(*region[k].indices(sizes[k])))
    return tuple(made)


def at(array: Array, spatial: Sequence[int], parts: Sequence[slice]) -> Array:
    """`array` cut along its spatial axes; the parts are in logical order."""
    index = [slice(None)] * array.ndim
    for position, part in zip(spatial, parts, strict=True):
        index[position] = part
    return array[tuple(index)]


@contextlib.contextmanager
def instruction_set(name: str) -> Iterator[None]:
    from poolgrad.engines import _native

    before = _native.isa()
    _native.set_isa(name)
    try:
        yield
    finally:
        _native.set_isa(before)


@contextlib.contextmanager
def past_the_caches(bytes: int = 1) -> Iterator[None]:
    """Results of so many bytes or more are written as if they were too large for the caches."""
    from poolgrad.engines import _native

    before = _native.streaming_bytes()
    _native.set_streaming_bytes(bytes)
    try:
        yield
    finally:
        _native.set_streaming_bytes(before)


def source_shape(pool: Pool, layout: str, batch: int, channels: int, *, forwards: bool) -> tuple[int, ...]:
    shape = [batch if letter == "N" else channels for letter in layout]
    sizes = pool.input_size if forwards else pool.output_size
    for position, size in zip(spatial_positions(layout, len(layout)), sizes, strict=True):
        shape[position] = size
    return tuple(shape)


def random_array(seed: int, shape: Sequence[int], dtype: np.dtype[Any], style: str = "plain") -> Array:
    """Values that no two mistakes leave alone: `plain` numbers, `whole` ones (exact sums), or `special` ones mixed in."""
    rng = np.random.default_rng(seed)
    if style == "whole":
        return np.asarray(rng.integers(-8, 9, shape) * 2.0).astype(dtype)
    values = rng.standard_normal(shape) * np.exp2(rng.integers(-6, 7, shape))
    if style == "special":
        tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal)
        odd = np.array([np.nan, np.inf, -np.inf, -0.0, 0.0, tiny, -3 * tiny, float(ml_dtypes.finfo(dtype).max)])
        chosen = rng.random(shape) < 0.15
        chosen[(len(chosen) + 1) // 2 :] = False  # a long window of them would see nothing but NaN
        values = np.where(chosen, odd[rng.integers(0, len(odd), shape)], values)
    return np.asarray(values).astype(dtype)


VIEWS = ("contiguous", "strided", "transposed", "reversed", "misaligned", "read-only")


def in_memory(array: Array, view: str) -> Array:
    """The same values in another arrangement of memory."""
    if view == "strided":
        wide = np.zeros([2 * n + 1 for n in array.shape], dtype=array.dtype)
        view_of = wide[tuple(slice(1, None, 2) for _ in array.shape)]
    elif view == "transposed":
        view_of = np.zeros(array.shape[::-1], dtype=array.dtype).T
    elif view == "reversed":
        view_of = np.zeros(array.shape, dtype=array.dtype)[tuple(slice(None, None, -1) for _ in array.shape)]
    elif view == "misaligned":
        raw = np.zeros(array.nbytes + 1, dtype=np.uint8)
        view_of = raw[1:].view(array.dtype).reshape(array.shape)
    else:
        view_of = np.zeros(array.shape, dtype=array.dtype)
    view_of[...] = array
    view_of.flags.writeable = view != "read-only"
    return view_of


@st.composite
def axes(draw: st.DrawFn, kinds: Sequence[str] = KINDS, largest: int = 12, smallest: int = 1) -> Axis:
    """Any axis of the given kinds."""
    kind, size = draw(st.sampled_from(kinds)), draw(st.integers(smallest, largest))
    if kind == "whole":
        return Axis.whole(size)
    if kind == "adaptive":
        return Axis.adaptive(size, draw(st.integers(1, size + 3) | st.integers(1, min(size, 9))))
    if kind == "empty":
        edges = sorted(draw(st.lists(st.integers(0, size + 2), min_size=2, max_size=6)))
        return Axis.fractional(size, edges, overlapping=draw(st.booleans()), allow_empty=True)
    if kind == "fractional":
        edges = sorted(draw(st.sets(st.integers(0, size), min_size=2, max_size=max(6, size // 3))))
        return Axis.fractional(size, edges, overlapping=draw(st.booleans()))
    return draw(_regular_axes(kind, size))


@st.composite
def _regular_axes(draw: st.DrawFn, kind: str, size: int) -> Axis:
    dilation = draw(st.sampled_from([1, 1, 1, 2, 3]))
    padding: str | tuple[int, int] = kind
    if kind in ("same", "same_lower"):
        window = draw(st.integers(1, max(1, 2 * size // dilation)))
    else:
        window = draw(st.integers(1, (size - 1) // dilation + 1))
        padding = "valid"
    if kind in ("explicit", "ceil"):
        padding = (draw(st.integers(0, window)), draw(st.integers(0, window)))
    stride = draw(st.sampled_from([None, 1, 1, 2, 3]) | st.integers(1, window + 2))
    count = draw(st.sampled_from(COUNTS))
    ceil = kind == "ceil"
    try:
        return Axis.regular(size, window, stride=stride, padding=padding, dilation=dilation, count=count, ceil_mode=ceil)
    except PoolGradValueError:
        reject()


SMALL = {1: 40, 2: 12, 3: 6, 4: 4}
LARGE = {1: 3000, 2: 130, 3: 28, 4: 12}


@st.composite
def pools(
    draw: st.DrawFn, kinds: Sequence[str] = KINDS, most_axes: int = 4, signed: bool = True, sizes: dict[int, int] = SMALL
) -> Pool:
    """Any pooling; by default small enough for the oracle."""
    rank = draw(st.sampled_from([n for n in (1, 2, 2, 3, 4) if n <= most_axes]))
    smallest = 1 if sizes is SMALL else sizes[rank] // 3
    chosen = tuple(draw(axes(kinds, sizes[rank], smallest)) for _ in range(rank))
    holes = any((axis.stop <= axis.start).any() for axis in chosen)
    divisors = [*range(1, 20), *(range(-5, 0) if signed and not holes else ())]
    return Pool(chosen, draw(st.sampled_from([None] * 24 + divisors)))


@st.composite
def layouts(draw: st.DrawFn, rank: int) -> str:
    """Any layout with `rank` spatial axes."""
    named = {1: ["L", "W", "0"], 2: ["HW", "DW", "01"], 3: ["DHW", "012"]}
    letters = draw(st.sampled_from(named.get(rank, ["0123456789"[:rank]]))) + draw(st.sampled_from(["NC", "NC", "N", "C", ""]))
    return "".join(draw(st.permutations(letters)))


@st.composite
def regions(draw: st.DrawFn, sizes: Sequence[int]) -> tuple[slice, ...]:
    """A box within these sizes; it may be empty."""
    bounds = [sorted((draw(st.integers(0, n)), draw(st.integers(0, n)))) for n in sizes]
    return tuple(slice(a, b) for a, b in bounds)


seeds = st.integers(0, 2**32 - 1)
dtypes = st.sampled_from(DTYPES)


def in_threads(call: Callable[[], Any], threads: int = 6, calls: int = 5) -> list[Any]:
    """The last answer of each of several threads that call at once."""
    answers: list[Any] = [None] * threads

    def work(k: int) -> None:
        for _ in range(calls):
            answers[k] = call()

    workers = [threading.Thread(target=work, args=(k,)) for k in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    return answers
