"""What every average pooling is: per spatial axis, a table of intervals.

Cell `o` of an `Axis` covers the inputs `start[o], start[o]+step, … < stop[o]` and divides by `count[o]`. Regular,
same, explicit, ceil, adaptive, global and fractional pooling differ only in how that table is made. With `step` 1 both
edges never decrease with `o`, so the cells over one input are again one interval: the gradient is the same sum on the
swapped table. With a larger step (dilation) this holds within each residue class of the inputs.

Invariants, checked when an `Axis` is made: edges in range, never decreasing (within a class), counts at least 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from .errors import PoolGradTypeError, PoolGradValueError
from .tables import Ints, Sums, Table, reach_of

__all__ = ["COUNTS", "MAX_LENGTH", "Axis", "Piece", "Pool", "Region", "integer", "places"]

COUNTS = ("inside", "padded", "window")
MAX_LENGTH = 1 << 28
"""Longest axis served: a table holds a few 64-bit numbers for each of its elements."""

MAX_SPAN = 1 << 60
"""Widest window or padded axis, so that positions fit 64-bit integers."""

Region = Sequence["slice | None"]


def integer(name: str, value: object, least: int) -> int:
    """`value` as an int that is at least `least`, or an error that names the argument."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise PoolGradTypeError(f"{name} must be an integer, got {value!r} ({type(value).__name__})")
    if value < least:
        raise PoolGradValueError(f"{name} must be at least {least}, got {value}")
    if value > 2**63 - 1:
        raise PoolGradValueError(f"{name} must fit a 64-bit integer, got {value}")
    return int(value)


def _length(name: str, value: object, least: int) -> int:
    length = integer(name, value, least)
    if length > MAX_LENGTH:
        raise PoolGradValueError(f"{name} must be at most {MAX_LENGTH}, got {length}")
    return length


def _integers(name: str, values: object) -> Ints:
    """A column of a table: a copy of `values` in 64-bit integers, refused if that would change them."""
    try:
        given = np.asarray(values)
    except ValueError:
        given = np.asarray(None)
    if given.ndim != 1 or (len(given) and given.dtype.kind not in "iu") or (given > 2**63 - 1).any():
        raise PoolGradTypeError(f"{name} must be integers in one row, got {values!r}")
    return given.astype(np.int64)


@dataclass(frozen=True, eq=False)
class Axis:
    """One spatial axis: its size and, per output cell, what the cell covers and divides by.

    >>> Axis.regular(5, 3, stride=2, padding="same")
    Axis(size=5, cells=3): [0:2)/2 [1:4)/3 [3:5)/2
    """

    size: int
    start: Ints
    stop: Ints
    count: Ints
    step: int = 1
    allow_empty: bool = False

    def __post_init__(self) -> None:
        _length("size", self.size, 0)
        integer("step", self.step, 1)
        for name in ("start", "stop", "count"):
            values = _integers(name, getattr(self, name))
            if values.shape != np.shape(self.start):
                raise PoolGradValueError(f"{name} must hold one number per cell, got shape {values.shape}")
            values.flags.writeable = False
            object.__setattr__(self, name, values)
        self._check()

    def _check(self) -> None:
        start, stop = self.start, self.stop
        empty = stop <= start
        if empty.any() and not self.allow_empty:
            o = int(np.argmax(empty))
            raise PoolGradValueError(
                f"cell {o} covers no input: start {start[o]}, stop {stop[o]} on an axis of size {self.size}; "
                "every window must hold at least one input (use less padding or a larger window)"
            )
        if (start < 0).any() or (stop[~empty] > self.size).any():
            raise PoolGradValueError(f"cells must lie within [0, {self.size}], got {start.tolist()[:8]}…")
        if (self.count < 1).any():
            raise PoolGradValueError(f"count must be at least 1 for every cell, got {int(self.count.min())}")
        apart = self.cell_step  # neighbours within a residue class
        if (start[apart:] < start[:-apart]).any() or (stop[apart:] < stop[:-apart]).any():
            raise PoolGradValueError("start and stop must never decrease from one cell to the next")

    @classmethod
    def regular(
        cls,
        size: int,
        window: int,
        *,
        stride: int | None = None,
        padding: str | int | tuple[int, int] = "valid",
        dilation: int = 1,
        count: str = "inside",
        ceil_mode: bool = False,
    ) -> Axis:
        """Evenly spaced windows: what TensorFlow, PyTorch, ONNX, DirectML and JAX call average pooling."""
        before, after, cells = places(size, window, stride, padding, dilation, ceil_mode)
        if not isinstance(count, str) or count not in COUNTS:
            raise PoolGradValueError(f"count must be one of {', '.join(map(repr, COUNTS))}, got {count!r}")
        stride = min(window if stride is None else stride, MAX_SPAN)  # a larger one has a single cell
        begin = np.arange(cells, dtype=np.int64) * stride - before
        first = np.maximum(0, -(begin // dilation))
        last = np.minimum(window - 1, (size - 1 - begin) // dilation)
        taps = np.maximum(last - first + 1, 0)
        start = begin + first * dilation
        if count == "padded":
            counted = np.minimum(window, (size + after - 1 - begin) // dilation + 1)
        else:
            counted = taps if count == "inside" else np.full(cells, window, dtype=np.int64)
        step = dilation if window > 1 else 1
        stop = np.where(taps > 0, start + (taps - 1) * step + 1, start)
        return cls(size, start, stop, np.maximum(counted, 1), step)

    @classmethod
    def adaptive(cls, size: int, cells: int) -> Axis:
        """PyTorch's adaptive windows: cell `o` of `m` covers ⌊o·n/m⌋ … ⌈(o+1)·n/m⌉ − 1."""
        size, cells = _length("input size", size, 0), _length("output size", cells, 0)
        if cells and not size:
            raise PoolGradValueError(f"output size {cells} needs a non-empty input axis, got size 0")
        o = np.arange(cells, dtype=np.int64)
        start, stop = o * size // max(cells, 1), -((o + 1) * -size // max(cells, 1))
        return cls(size, start, stop, stop - start)

    @classmethod
    def fractional(cls, size: int, sequence: Iterable[int], *, overlapping: bool = False, allow_empty: bool = False) -> Axis:
        """Cells between given boundaries; `overlapping` makes the right boundary belong to both of its cells.

        >>> Axis.fractional(5, [0, 2, 4], overlapping=True)
        Axis(size=5, cells=2): [0:3)/3 [2:5)/3
        """
        size = _length("input size", size, 0)
        try:
            edges = _integers("a pooling sequence", sequence)
        except PoolGradTypeError as refusal:
            raise PoolGradValueError(str(refusal)) from None
        if len(edges) < 2:
            raise PoolGradValueError(f"a pooling sequence must hold two or more integers, got {sequence!r}")
        if (edges < 0).any() or (np.diff(edges) < 0).any():
            raise PoolGradValueError(f"a pooling sequence must start at 0 or above and never decrease, got {edges.tolist()}")
        start = np.minimum(edges[:-1], size)
        stop = np.maximum(np.minimum(np.minimum(edges[1:], size) + int(overlapping), size), start)
        return cls(size, start, stop, np.maximum(stop - start, 1), allow_empty=allow_empty)

    @classmethod
    def whole(cls, size: int) -> Axis:
        """Global pooling: one cell over the whole axis."""
        return cls.adaptive(size, 1)

    @property
    def cells(self) -> int:
        return len(self.start)

    @cached_property
    def cell_step(self) -> int:
        """Cells this far apart begin in the same residue class of the inputs."""
        if self.step == 1 or self.cells < 2:
            return 1
        return self.step // gcd(self.step, abs(int(self.start[-1] - self.start[-2])))

    @cached_property
    def _key(self) -> tuple[int, int, bytes, bytes, bytes]:
        return (self.size, self.step, self.start.tobytes(), self.stop.tobytes(), self.count.tobytes())

    def __eq__(self, other: object) -> bool:
        return self._key == other._key if isinstance(other, Axis) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key)

    def __repr__(self) -> str:
        step = f":{self.step}" if self.step > 1 else ""
        rows = zip(self.start[:6], self.stop[:6], self.count[:6], strict=True)
        cells = " ".join(f"[{a}:{b}{step})/{c}" for a, b, c in rows)
        return f"Axis(size={self.size}, cells={self.cells}): {cells}{' …' if self.cells > 6 else ''}"

    @cached_property
    def classes(self) -> tuple[_Class, ...]:
        """The residue classes of a dilated axis, each a plain axis of its own; one class without dilation."""
        if self.step == 1:
            return (_Class(slice(None), slice(None), self.start, self.stop, self.size),)
        found = []
        owner = {int(self.start[k]) % self.step: k for k in range(min(self.cell_step, self.cells))}
        for residue in sorted({*range(min(self.step, self.size)), *owner}):  # cells of a class without inputs are empty
            inputs = slice(residue, None, self.step)
            size = len(range(residue, self.size, self.step))
            if residue in owner:
                cells = slice(owner[residue], None, self.cell_step)
                start = (self.start[cells] - residue) // self.step
                stop = np.maximum(-((residue - self.stop[cells]) // self.step), start)
            else:
                cells, start, stop = slice(0, 0), self.start[:0], self.stop[:0]
            found.append(_Class(inputs, cells, start, stop, size))
        return tuple(found)

    @cached_property
    def over(self) -> tuple[Ints, Ints]:
        """For every input the smallest run `lo … hi-1` that holds all cells over it.

        >>> [edge.tolist() for edge in Axis.regular(7, 3, stride=2).over]
        [[0, 0, 0, 1, 1, 2, 2], [1, 1, 2, 2, 3, 3, 3]]
        """
        if self.step == 1:
            return self.classes[0].swapped[:2]
        lo, hi = np.zeros((2, self.size), dtype=np.int64)
        for cls in self.classes:
            a, b, _ = cls.swapped
            first, _, step = cls.cells.indices(self.cells)
            lo[cls.inputs] = first + a * step
            hi[cls.inputs] = np.where(a < b, first + (b - 1) * step + 1, lo[cls.inputs])
        return lo, hi


@dataclass(frozen=True, eq=False)
class _Class:
    """A plain axis inside a dilated one: which inputs, which cells, and the intervals in the class's own numbers."""

    inputs: slice
    cells: slice
    start: Ints
    stop: Ints
    size: int

    @cached_property
    def windows(self) -> tuple[Ints, Ints, tuple[int, ...]]:
        """Per cell its run of inputs `lo … hi-1`, and their reach."""
        return self.start, np.maximum(self.start, self.stop), reach_of(self.start, self.stop)

    @cached_property
    def swapped(self) -> tuple[Ints, Ints, tuple[int, ...]]:
        """Per input the run `lo … hi-1` of the cells over it, and their reach."""
        i = np.arange(self.size, dtype=np.int64)
        lo = np.searchsorted(self.stop, i, side="right").astype(np.int64)
        hi = np.maximum(np.searchsorted(self.start, i, side="right").astype(np.int64), lo)
        return lo, hi, reach_of(lo, hi)


class Piece(NamedTuple):
    """One call of an engine: sums over `source[take]` written to `result[put]` (spatial slices, logical order)."""

    take: tuple[slice, ...]
    put: tuple[slice, ...]
    sums: Sums


@dataclass(frozen=True)
class Pool:
    """An average pooling: its spatial axes in the logical order D, H, W, and a constant divisor or None.

    >>> pool = Pool((Axis.regular(3, 2, stride=1), Axis.regular(3, 2, stride=1)))
    >>> pool.input_size, pool.output_size
    ((3, 3), (2, 2))
    """

    axes: tuple[Axis, ...]
    divisor: int | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.axes, Sequence) or not all(isinstance(axis, Axis) for axis in self.axes):
            raise PoolGradTypeError(f"axes must be a sequence of Axis, got {self.axes!r}")
        object.__setattr__(self, "axes", tuple(self.axes))
        if not self.axes:
            raise PoolGradValueError("a pooling needs at least one spatial axis, got none")
        if self.divisor is not None:
            object.__setattr__(self, "divisor", integer("divisor", self.divisor, -(2**63) + 1))
            if self.divisor == 0:
                raise PoolGradValueError("divisor must not be 0")
            if self.divisor < 0 and any((axis.stop <= axis.start).any() for axis in self.axes):
                raise PoolGradValueError(f"divisor must be positive where a window may hold no input, got {self.divisor}")
        elif prod(int(axis.count.max(initial=1)) for axis in self.axes) > 2**63 - 1:
            raise PoolGradValueError("the product of the window counts must fit a 64-bit integer")

    @property
    def input_size(self) -> tuple[int, ...]:
        return tuple(axis.size for axis in self.axes)

    @property
    def output_size(self) -> tuple[int, ...]:
        return tuple(axis.cells for axis in self.axes)

    def inputs_for(self, region: Region) -> tuple[slice, ...]:
        """The smallest box of inputs that the output cells of `region` are made of.

        >>> Pool((Axis.regular(9, 3, stride=2),)).inputs_for([slice(1, 3)])
        (slice(2, 7, None),)
        """
        return tuple(_hull(a.start[r], a.stop[r]) for a, r in self._boxes(region, self.output_size))

    def cells_for(self, region: Region) -> tuple[slice, ...]:
        """The smallest box of output cells that the gradient over the inputs of `region` is made of.

        >>> Pool((Axis.regular(9, 3, stride=2),)).cells_for([slice(3, 5)])
        (slice(1, 3, None),)
        """
        return tuple(_hull(a.over[0][r], a.over[1][r]) for a, r in self._boxes(region, self.input_size))

    def forward_pieces(self, region: Region | None = None) -> tuple[Piece, ...]:
        """Engine calls that make the output cells of `region` from exactly the inputs `inputs_for(region)`."""
        return self._pieces(region, self.output_size, forward=True)

    def gradient_pieces(self, region: Region | None = None) -> tuple[Piece, ...]:
        """Engine calls that make the gradient over `region` from exactly the cells `cells_for(region)`."""
        return self._pieces(region, self.input_size, forward=False)

    def check_region(self, region: Region, *, forwards: bool) -> None:
        """Refuse what is no region of the output cells, or of the inputs."""
        self._boxes(region, self.output_size if forwards else self.input_size)

    def _boxes(self, region: Region, sizes: tuple[int, ...]) -> list[tuple[Axis, slice]]:
        if not isinstance(region, Sequence) or not all(part is None or _plain(part) for part in region):
            raise PoolGradTypeError(f"region must be a sequence of slices (or None for a whole axis), got {region!r}")
        if len(region) != len(self.axes):
            raise PoolGradValueError(f"region must hold one slice per spatial axis ({len(self.axes)}), got {len(region)}")
        boxes = []
        for axis, part, size in zip(self.axes, region, sizes, strict=True):
            a, b, step = (part or slice(None)).indices(size)
            if step != 1:
                raise PoolGradValueError(f"region must be made of slices with step 1, got {part}")
            boxes.append((axis, slice(a, max(a, b))))
        return boxes

    def _pieces(self, region: Region | None, sizes: tuple[int, ...], *, forward: bool) -> tuple[Piece, ...]:
        boxes = self._boxes(region or [None] * len(self.axes), sizes)
        spans = (self.inputs_for if forward else self.cells_for)([box for _, box in boxes])
        if region is None:
            spans = tuple(slice(0, size) for size in (self.input_size if forward else self.output_size))
        make = _forward_table if forward else _gradient_table
        pieces = [Piece((), (), Sums((), not forward, self.divisor))]
        for (axis, box), span in zip(boxes, spans, strict=True):
            parts = [part for cls in axis.classes if (part := make(axis, cls, box, span)) is not None]
            pieces = [
                Piece((*piece.take, take), (*piece.put, put), piece.sums._replace(tables=(*piece.sums.tables, table)))
                for piece in pieces
                for take, put, table in parts
            ]
        return tuple(pieces)


def _plain(part: object) -> bool:
    bounds = (part.start, part.stop, part.step) if isinstance(part, slice) else ("not a slice",)
    return all(bound is None or isinstance(bound, (int, np.integer)) for bound in bounds)


def places(
    size: int, window: int, stride: int | None, padding: str | int | tuple[int, int], dilation: int, ceil_mode: bool
) -> tuple[int, int, int]:
    """Padding before, padding after, and the number of cells of a regular axis, before any table is made."""
    size = _length("input size", size, 0)
    window = integer("window", window, 1)
    stride = window if stride is None else integer("stride", stride, 1)
    dilation = integer("dilation", dilation, 1)
    before, after, cells = _padded(size, window, stride, padding, dilation, ceil_mode)
    if cells > MAX_LENGTH:
        raise PoolGradValueError(f"an axis may have at most {MAX_LENGTH} cells, got {cells}")
    return before, after, cells


def _padded(
    size: int, window: int, stride: int, padding: str | int | tuple[int, int], dilation: int, ceil_mode: bool
) -> tuple[int, int, int]:
    reach = (window - 1) * dilation + 1
    if reach > MAX_SPAN:
        raise PoolGradValueError(f"window {window} with dilation {dilation} spans {reach} inputs; at most {MAX_SPAN} are allowed")
    if isinstance(padding, str) and padding in ("same", "same_lower"):
        cells = -(-size // stride)
        total = max(0, (cells - 1) * stride + reach - size)
        before = (total + (padding == "same_lower")) // 2
        return before, total - before, cells
    if isinstance(padding, str):
        if padding != "valid":
            raise PoolGradValueError(
                f"padding must be 'valid', 'same', 'same_lower', an int or (before, after) pairs, got {padding!r}"
            )
        padding = 0
    pair = (padding, padding) if isinstance(padding, (int, np.integer)) else padding
    if not isinstance(pair, (Sequence, np.ndarray)) or (isinstance(pair, np.ndarray) and pair.ndim != 1) or len(pair) != 2:
        raise PoolGradTypeError(f"padding of an axis must be an integer or a (before, after) pair, got {padding!r}")
    before, after = integer("padding", pair[0], 0), integer("padding", pair[1], 0)
    spare = size + before + after - reach
    if spare > MAX_SPAN:
        raise PoolGradValueError(f"padding may add at most {MAX_SPAN} inputs to an axis, got ({before}, {after})")
    if spare < 0:
        raise PoolGradValueError(
            f"window {window} (dilation {dilation}: {reach} wide) is larger than the padded input {size} + {before} + {after}"
        )
    cells = (-(-spare // stride) if ceil_mode else spare // stride) + 1
    if ceil_mode and (cells - 1) * stride >= size + before:
        cells -= 1
    return before, after, cells


def _hull(start: Ints, stop: Ints) -> slice:
    full = start < stop
    return slice(int(start[full].min()), int(stop[full].max())) if full.any() else slice(0, 0)


def _within(cls_slice: slice, box: slice, length: int) -> tuple[int, int, slice]:
    """Which members of a residue class lie in `box`, as a range of class numbers and as a slice relative to the box."""
    first, _, step = cls_slice.indices(length)
    if cls_slice == slice(0, 0):
        return 0, 0, slice(0, 0)
    a, b = len(range(first, box.start, step)), len(range(first, box.stop, step))
    return a, b, slice(first + a * step - box.start, None, step) if b > a else slice(0, 0)


def _forward_table(axis: Axis, cls: _Class, box: slice, span: slice) -> tuple[slice, slice, Table] | None:
    a, b, put = _within(cls.cells, box, axis.cells)
    base, end, take = _within(cls.inputs, span, axis.size)
    if a == b:
        return None
    lo, hi, reach = cls.windows
    return take, put, Table(lo[a:b], hi[a:b], base, end - base, axis.count[cls.cells][a:b], reach)


def _gradient_table(axis: Axis, cls: _Class, box: slice, span: slice) -> tuple[slice, slice, Table] | None:
    a, b, put = _within(cls.inputs, box, axis.size)
    base, end, take = _within(cls.cells, span, axis.cells)
    if a == b:
        return None
    lo, hi, reach = cls.swapped
    return take, put, Table(lo[a:b], hi[a:b], base, end - base, axis.count[cls.cells][base:end], reach)
