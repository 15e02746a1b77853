"""Arrays made small enough to be seen: slices, lines, statistics.

A heat map's cell is the mean of its elements, so that one NaN shows however small its cell. A line's bin is its least and
greatest element, so that no spike is lost. Work goes through the array in parts; nothing of its size is made beside it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .answers import Binary
from .arrays import Array
from .failure import Failure

__all__ = ["grid", "heat", "line", "numeric", "statistics"]

PART = 1 << 20


def numeric(array: Array) -> Array:
    """The array if it holds numbers or truth values."""
    if array.dtype.kind == "T":
        raise Failure("value", "texts cannot be drawn; the watch table shows them")
    return array


def grid(array: Array, axes: Sequence[int], index: Sequence[int]) -> Array:
    """The two-dimensional slice of an array along `axes` (-1 first: a single row) at `index` elsewhere.

    >>> grid(np.arange(24).reshape(2, 3, 4), [1, 0], [0, 0, 2]).tolist()
    [[2, 14], [6, 18], [10, 22]]
    """
    row, column = _pair(axes)
    rank = array.ndim
    if rank == 0:
        return array.reshape(1, 1)
    if not 0 <= column < rank or not -1 <= row < rank or row == column:
        raise Failure("value", f"axes must be two different axes of {rank}, or -1 and one, got {list(axes)}")
    place = _place(array, index, (row, column))
    cut = array[tuple(slice(None) if k in (row, column) else place[k] for k in range(rank))]
    if row == -1:
        return cut.reshape(1, -1)
    return cut.T if row > column else cut


def _pair(axes: Sequence[int]) -> tuple[int, int]:
    if len(axes) != 2:
        raise Failure("value", f"axes must be two, got {len(axes)}")
    return axes[0], axes[1]


def _place(array: Array, index: Sequence[int], free: Sequence[int]) -> Sequence[int]:
    if len(index) != array.ndim:
        raise Failure("value", f"index must hold one number per axis, {array.ndim} of them, got {len(index)}")
    for k, (i, n) in enumerate(zip(index, array.shape, strict=True)):
        if k not in free and not 0 <= i < n:
            raise Failure("value", f"index[{k}] must be from 0 to {n - 1}, got {i}")
    return index


def heat(plane: Array, height: int, width: int, box: Sequence[int] | None) -> Binary:
    """A plane, or a box of it, as at most `height` × `width` numbers."""
    if box is not None:
        plane = plane[_box(plane, box)]
    low, high = _range(plane)
    rows, columns = plane.shape
    step = max(-(-rows // height), 1), max(-(-columns // width), 1)
    shrunk = _shrunk(plane, *step)
    full = {"full": [rows, columns], "step": list(step), "min": low, "max": high}
    return Binary({"dtype": "float32", "shape": list(shrunk.shape), **full}, shrunk)


def _box(plane: Array, box: Sequence[int]) -> tuple[slice, slice]:
    rows, columns = plane.shape
    if len(box) != 4 or not (0 <= box[0] < box[1] <= rows and 0 <= box[2] < box[3] <= columns):
        raise Failure("value", f"box must be top, bottom, left, right within {rows} and {columns}, got {list(box)}")
    return slice(box[0], box[1]), slice(box[2], box[3])


def _shrunk(plane: Array, down: int, across: int) -> Array:
    """Means of blocks of `down` × `across`; at the far edges of what is there."""
    rows, columns = plane.shape
    if down == across == 1:
        return _float32(plane)
    made = np.empty((-(-rows // down), -(-columns // across)), np.float32)
    starts = np.arange(0, columns, across)
    widths = np.diff(np.append(starts, columns))
    with np.errstate(all="ignore"):
        for k in range(len(made)):
            part = plane[k * down : (k + 1) * down].astype(np.float64)
            made[k] = np.add.reduceat(part.sum(axis=0), starts) / (widths * len(part))
    return made


def _float32(array: Array) -> Array:
    with np.errstate(all="ignore"):
        return array.astype(np.float32)


def _finite(array: Array) -> Array:
    wide = array.astype(np.float64) if array.dtype.kind not in "iub" else array
    return wide[np.isfinite(wide)] if wide.dtype.kind == "f" else wide.reshape(-1)


def _range(array: Array) -> tuple[float | None, float | None]:
    """Least and greatest finite element."""
    lows, highs = [], []
    for part in _parts(array):
        finite = _finite(part)
        if finite.size:
            lows.append(float(finite.min()))
            highs.append(float(finite.max()))
    return (min(lows), max(highs)) if lows else (None, None)


def _parts(array: Array) -> Iterator[Array]:
    """The array in runs of whole first-axis entries, none much larger than PART where that can be helped."""
    if array.ndim < 2:
        flat = array.reshape(-1)
        yield from (flat[k : k + PART] for k in range(0, flat.size, PART))
        return
    rows = max(PART // max(math.prod(array.shape[1:]), 1), 1)
    yield from (array[k : k + rows] for k in range(0, len(array), rows))


def line(array: Array, axis: int, index: Sequence[int], points: int, start: int, stop: int | None) -> Binary:
    """The elements along an axis (all of them for -1) as at most `points` bins."""
    if axis == -1 or array.ndim == 0:
        row = array.reshape(-1)
    elif 0 <= axis < array.ndim:
        place = _place(array, index, (axis,))
        row = array[tuple(slice(None) if k == axis else place[k] for k in range(array.ndim))]
    else:
        raise Failure("value", f"axis must be from -1 to {array.ndim - 1}, got {axis}")
    end = len(row) if stop is None else stop
    if not 0 <= start <= end <= len(row):
        raise Failure("value", f"start and stop must be within 0 and {len(row)}, got {start} and {end}")
    row = row[start:end]
    step = max(-(-len(row) // points), 1)
    low, high = _range(row)
    bins = _bins(row, step)
    head = {"dtype": "float32", "shape": list(bins.shape), "start": start, "stop": end, "step": step, "min": low, "max": high}
    return Binary(head, bins)


def _bins(row: Array, step: int) -> Array:
    if step == 1 or not len(row):
        values = _float32(row)
        return np.stack([values, values])
    starts = np.arange(0, len(row), step)
    values = _float32(row)
    return np.stack([np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)])


def statistics(array: Array) -> dict[str, Any]:
    """Counts of odd values; least, greatest, mean, deviation, sum and a histogram of the finite ones."""
    counts = {"nan": 0, "infinite": 0, "zeros": 0}
    finite, total, squares = 0, 0.0, 0.0
    low, high = _range(numeric(array))
    for part in _parts(array):
        wide = part.astype(np.float64)
        counts["nan"] += int(np.isnan(wide).sum())
        counts["infinite"] += int(np.isinf(wide).sum())
        counts["zeros"] += int((wide == 0).sum())
        kept = wide[np.isfinite(wide)]
        finite += kept.size
        with np.errstate(over="ignore", invalid="ignore"):
            total += float(kept.sum())
    mean = total / finite if finite else None
    if mean is not None and math.isfinite(mean):
        for part in _parts(array):
            with np.errstate(over="ignore", invalid="ignore"):
                squares += float(((_finite(part).astype(np.float64) - mean) ** 2).sum())
    deviation = math.sqrt(squares / finite) if finite and math.isfinite(squares) else None
    numbers = {"min": low, "max": high, "mean": _json(mean), "std": _json(deviation), "sum": _json(total) if finite else None}
    what = {"dtype": array.dtype.name, "shape": list(array.shape), "size": array.size, "bytes": array.nbytes}
    return what | counts | numbers | {"histogram": _histogram(array, low, high)}


def _json(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _histogram(array: Array, low: float | None, high: float | None, bins: int = 32) -> dict[str, Any] | None:
    if low is None or high is None or not math.isfinite(high - low):
        return None
    bins = bins if high - low > 64 * np.spacing(max(abs(low), abs(high))) else 1
    edges = np.linspace(low, high, bins + 1) if bins > 1 else np.array([low - 0.5, high + 0.5])
    counts = np.zeros(bins, np.int64)
    for part in _parts(array):
        counts += np.histogram(_finite(part).astype(np.float64), edges)[0]
    return {"counts": counts.tolist(), "edges": edges.tolist()}
