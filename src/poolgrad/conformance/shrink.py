"""From a failing case to the smallest one that still fails in the same way.

Greedy: the proposals for a case are tried from the boldest to the most timid, the first that still fails takes its place,
and so on until none does or the time is up. Every proposal is smaller by `Case.size`, or simpler at the same size, so it ends.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from ..dialects.pooling import Adaptive, Fractional, Pooling, Regular
from ..errors import PoolGradError
from ..layout import spatial_positions
from .case import Case, shape_of_dy

__all__ = ["shrink", "smaller"]


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float) -> Case:
    """The smallest case found within `seconds` for which `fails` holds."""
    end = time.monotonic() + seconds
    seen = {case}
    progressed = True
    while progressed:
        progressed = False
        for candidate in smaller(case):
            if time.monotonic() > end:
                return case
            if candidate in seen:
                continue
            seen.add(candidate)
            if fails(candidate):
                case, progressed = candidate, True
                break
    return case


def smaller(case: Case) -> Iterator[Case]:
    """Simpler versions of a case, legal if it is legal and hostile if it is hostile.

    >>> from .suite import suite
    >>> next(smaller(suite(["wide"])[0])).input_shape[:2]
    (1, 1)
    """
    hostile = case.pool is None
    for candidate in _hostile(case) if hostile else _legal(case):
        if candidate != case and (candidate.pool is None) == hostile:
            yield candidate


def _legal(case: Case) -> Iterator[Case]:
    layout = case.pooling.layout
    outer = [p for p, letter in enumerate(layout) if letter in "NC" and case.input_shape[p] > 1]
    for chosen in (outer, *([p] for p in outer)):
        yield from _rebuilt(case, case.pooling, [1 if p in chosen else n for p, n in enumerate(case.input_shape)])
    for pooling, sizes in _poolings(case.pooling, case.pooling.sizes(case.input_shape)):
        shape = list(case.input_shape)
        for position, n in zip(spatial_positions(layout, len(shape)), sizes, strict=True):
            shape[position] = n
        yield from _rebuilt(case, pooling, shape)
    if case.values != "counting":
        yield replace(case, values="counting")
    if case.dtype != "float32":
        yield replace(case, dtype="float32")


def _rebuilt(case: Case, pooling: Pooling, shape: Sequence[int]) -> Iterator[Case]:
    """`case` with this pooling and input shape, if they go together."""
    try:
        yield replace(case, pooling=pooling, input_shape=tuple(shape), dy_shape=shape_of_dy(pooling, shape))
    except PoolGradError:
        return


Sizes = tuple[int, ...]


def _poolings(pooling: Pooling, sizes: Sizes) -> Iterator[tuple[Pooling, Sizes]]:
    if isinstance(pooling, Regular):
        yield from _regulars(pooling, sizes)
    elif isinstance(pooling, Adaptive):
        for k, (n, m) in enumerate(zip(sizes, pooling.output_size, strict=True)):
            for size, cells in ((1, 1), (n // 2, min(m, n // 2)), (n - 1, m), (n, m - 1)):
                if min(size, cells) > 0:
                    yield replace(pooling, output_size=_at(pooling.output_size, k, cells)), _at(sizes, k, size)
    elif isinstance(pooling, Fractional):
        for k, row in enumerate(pooling.sequences):
            if len(row) > 2:
                yield replace(pooling, sequences=_at(pooling.sequences, k, (*row[:-2], row[-1]))), sizes
            if row[-1] > row[-2] + 1:
                yield replace(pooling, sequences=_at(pooling.sequences, k, (*row[:-1], row[-1] - 1))), _at(sizes, k, sizes[k] - 1)


def _regulars(pooling: Regular, sizes: Sizes) -> Iterator[tuple[Pooling, Sizes]]:
    """An axis to nothing, half or one less; then window, stride, padding and dilation; then the plainer options."""
    dilation = pooling.dilation or (1,) * len(sizes)
    for k, n in enumerate(sizes):
        if (n, pooling.window[k]) != (1, 1):
            flat = replace(pooling, window=_at(pooling.window, k, 1), stride=_at(pooling.stride, k, 1))
            yield replace(flat, padding=_at(pooling.padding, k, (0, 0)), dilation=_at(dilation, k, 1)), _at(sizes, k, 1)
        for fewer in sorted({n // 2, n - 1} - {0, n}):
            yield pooling, _at(sizes, k, fewer)
    for k, (window, stride) in enumerate(zip(pooling.window, pooling.stride, strict=True)):
        before, after = pooling.padding[k]
        for pads in sorted({(0, 0), (max(before - 1, 0), after), (before, max(after - 1, 0))} - {(before, after)}):
            yield replace(pooling, padding=_at(pooling.padding, k, pads)), sizes
        for less in sorted({1, 2, window - 1} - {0, window}):
            if less < window:
                yield replace(pooling, window=_at(pooling.window, k, less)), sizes
                yield (
                    replace(pooling, window=_at(pooling.window, k, less)),
                    _at(sizes, k, max(1, sizes[k] - (window - less) * dilation[k])),
                )
        for other in sorted({1, 2} - {stride}):
            if other < stride:
                yield replace(pooling, stride=_at(pooling.stride, k, other)), sizes
        if dilation[k] > 1:
            yield replace(pooling, dilation=_at(dilation, k, 1)), sizes
    for plainer in ({"ceil_mode": False}, {"divisor": None}, {"count": "inside"}):
        yield replace(pooling, **plainer), sizes


def _at(values: tuple[object, ...], k: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:k], value, *values[k + 1 :])


def _hostile(case: Case) -> Iterator[Case]:
    """One of everything that is not at fault: first all of it together, then axis by axis."""
    pooling, layout = case.pooling, case.pooling.layout
    assert isinstance(pooling, Regular)
    fits = case.fits or case.input_shape
    right = shape_of_dy(pooling, fits)
    spatial = spatial_positions(layout, len(layout))
    innocent = [p for p in range(len(layout)) if case.input_shape[p] == fits[p] and case.dy_shape[p] == right[p] and fits[p] > 1]
    for chosen in (innocent, *([p] for p in innocent)):
        window, stride, pads = list(pooling.window), list(pooling.stride), list(pooling.padding)
        for k, position in enumerate(spatial):
            if position in chosen:
                window[k], stride[k], pads[k] = 1, 1, (0, 0)

        def ones(shape: Sequence[int], chosen: Sequence[int] = chosen) -> tuple[int, ...]:
            return tuple(1 if p in chosen else n for p, n in enumerate(shape))

        simple = replace(pooling, window=tuple(window), stride=tuple(stride), padding=tuple(pads))
        shapes = {"input_shape": ones(case.input_shape), "dy_shape": ones(case.dy_shape), "fits": case.fits and ones(case.fits)}
        yield replace(case, pooling=simple, **shapes)  # type: ignore[arg-type]
    yield replace(case, values="counting")
