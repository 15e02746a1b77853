"""Laws of the tables: every kind of pooling against its definition, and the kinds against each other."""

from __future__ import annotations

import pickle
from dataclasses import FrozenInstanceError
from itertools import product
from typing import Any

import numpy as np
import pytest
import support
from hypothesis import given
from hypothesis import strategies as st

from poolgrad import Axis, Pool, PoolGradValueError, explain
from poolgrad.geometry import COUNTS, Piece

Table = list[tuple[list[int], int]]


def table(axis: Axis) -> Table:
    """Per cell: the inputs it covers and what it divides by."""
    rows = zip(axis.start.tolist(), axis.stop.tolist(), axis.count.tolist(), strict=True)
    return [(list(range(a, b, axis.step)), c) for a, b, c in rows]


def defined(n: int, k: int, s: int, p: int, q: int, d: int, m: int, count: str) -> Table:
    """Regular windows straight from the definition."""
    cells = []
    for o in range(m):
        taps = [o * s - p + j * d for j in range(k)]
        inside = [t for t in taps if 0 <= t < n]
        counted = {"inside": inside, "padded": [t for t in taps if t < n + q], "window": taps}[count]
        cells.append((inside, len(counted)))
    return cells


SMALL = list(product([1, 2, 5, 8], [1, 2, 3, 4], [1, 2, 3, 5], [(0, 0), (1, 0), (0, 1), (1, 2), (2, 2)], [1, 2, 3]))


@pytest.mark.parametrize("count", COUNTS)
def test_explicit_padding_is_its_definition(count: str) -> None:
    for n, k, s, (p, q), d in SMALL:
        spare = n + p + q - (k - 1) * d - 1
        if spare < 0:
            with pytest.raises(PoolGradValueError, match="larger than the padded input"):
                Axis.regular(n, k, stride=s, padding=(p, q), dilation=d, count=count)
            continue
        want = defined(n, k, s, p, q, d, spare // s + 1, count)
        if not all(inside for inside, _ in want):
            with pytest.raises(PoolGradValueError, match="covers no input"):
                Axis.regular(n, k, stride=s, padding=(p, q), dilation=d, count=count)
            continue
        assert table(Axis.regular(n, k, stride=s, padding=(p, q), dilation=d, count=count)) == want


@pytest.mark.parametrize("count", COUNTS)
def test_same_is_explicit_padding(count: str) -> None:
    """⌈n/s⌉ cells; the odd cell of padding goes after, or before with same_lower."""
    for n, k, s, _, d in SMALL:
        cells = -(-n // s)
        total = max(0, (cells - 1) * s + (k - 1) * d + 1 - n)
        pads = {"same": (total // 2, total - total // 2), "same_lower": (total - total // 2, total // 2)}
        for name, (p, q) in pads.items():
            want = defined(n, k, s, p, q, d, cells, count)
            if all(inside for inside, _ in want):
                assert table(Axis.regular(n, k, stride=s, padding=name, dilation=d, count=count)) == want
            else:
                with pytest.raises(PoolGradValueError, match="covers no input"):
                    Axis.regular(n, k, stride=s, padding=name, dilation=d, count=count)


def test_ceil_mode_is_pytorchs_rule() -> None:
    for n, k, s, p in product(range(1, 10), range(1, 6), range(1, 7), range(3)):
        if n + 2 * p < k or p > k // 2:
            continue
        m = -(-(n + 2 * p - k) // s) + 1
        m -= (m - 1) * s >= n + p
        axis = Axis.regular(n, k, stride=s, padding=p, ceil_mode=True, count="padded")
        assert axis.cells == m
        for o in range(m):
            begin = o * s - p
            assert axis.count[o] == min(begin + k, n + p) - begin, "the overhang is not declared padding"


LAWS = [
    ("global is a window as large as the input", Axis.whole(7), Axis.regular(7, 7)),
    ("global is adaptive 1", Axis.whole(7), Axis.adaptive(7, 1)),
    ("global is one fractional cell", Axis.whole(7), Axis.fractional(7, [0, 7])),
    ("valid is no padding", Axis.regular(9, 4, stride=3), Axis.regular(9, 4, stride=3, padding=0)),
    ("one int pads both ends", Axis.regular(9, 4, padding=1), Axis.regular(9, 4, padding=(1, 1))),
    ("stride defaults to the window", Axis.regular(9, 4), Axis.regular(9, 4, stride=4)),
    ("adaptive to its own size is a window of 1", Axis.adaptive(6, 6), Axis.regular(6, 1)),
    ("adaptive to a divisor is regular", Axis.adaptive(12, 4), Axis.regular(12, 3)),
    ("adaptive beyond its size repeats inputs", Axis.adaptive(2, 4), Axis(2, [0, 0, 1, 1], [1, 1, 2, 2], [1, 1, 1, 1])),
    ("even fractional edges are regular", Axis.fractional(6, [0, 2, 4, 6]), Axis.regular(6, 2)),
    ("overlapping edges are shared", Axis.fractional(5, [0, 2, 4], overlapping=True), Axis.regular(5, 3, stride=2)),
    ("an overlapping last edge is clipped", Axis.fractional(4, [0, 2, 4], overlapping=True), Axis(4, [0, 2], [3, 4], [3, 2])),
    ("same with stride 1 and window 1 is nothing", Axis.regular(5, 1, padding="same"), Axis.regular(5, 1)),
    (
        "an even total makes same and same_lower one",
        Axis.regular(6, 3, stride=1, padding="same"),
        Axis.regular(6, 3, stride=1, padding="same_lower"),
    ),
    ("dilation of a window of 1 is nothing", Axis.regular(5, 1, dilation=3), Axis.regular(5, 1)),
    ("without padding every count is the window", Axis.regular(8, 3, stride=2, count="window"), Axis.regular(8, 3, stride=2)),
]


@pytest.mark.parametrize(("left", "right"), [law[1:] for law in LAWS], ids=[law[0] for law in LAWS])
def test_equal_tables(left: Axis, right: Axis) -> None:
    assert left == right
    assert hash(left) == hash(right)


DIFFERENT = [
    (Axis.regular(5, 2, stride=1, padding="same"), Axis.regular(5, 2, stride=1, padding="same_lower")),
    (Axis.regular(5, 3, padding=1), Axis.regular(5, 3, padding=1, count="window")),
    (Axis.regular(5, 3, padding=1, ceil_mode=True, count="padded"), Axis.regular(5, 3, padding=1, ceil_mode=True)),
    (Axis.regular(6, 2), Axis.regular(7, 2)),
    (Axis.regular(5, 2, stride=1, dilation=2), Axis.regular(5, 3, stride=1)),
    (Axis.fractional(5, [0, 2, 4]), Axis.fractional(5, [0, 2, 4], overlapping=True)),
]


@pytest.mark.parametrize(("left", "right"), DIFFERENT)
def test_different_tables(left: Axis, right: Axis) -> None:
    assert left != right


def test_counts() -> None:
    """One window, three divisors: two inputs, one declared cell, one cell of ceil overhang."""
    made = {c: Axis.regular(6, 4, stride=4, padding=(0, 1), count=c, ceil_mode=True) for c in COUNTS}
    assert {c: axis.count.tolist() for c, axis in made.items()} == {"inside": [4, 2], "padded": [4, 3], "window": [4, 4]}
    assert {tuple(axis.stop) for axis in made.values()} == {(4, 6)}


def test_adaptive_is_pytorchs_formula() -> None:
    for n, m in product(range(1, 14), range(1, 17)):
        want = [(list(range(o * n // m, -(-(o + 1) * n // m))), -(-(o + 1) * n // m) - o * n // m) for o in range(m)]
        assert table(Axis.adaptive(n, m)) == want


def test_empty_axes() -> None:
    assert Axis.regular(0, 2, padding="same").cells == 0
    assert Axis.adaptive(0, 0).cells == 0
    assert Axis.adaptive(4, 0).cells == 0
    holes = Axis.fractional(4, [0, 2, 2, 9, 9], allow_empty=True)
    assert table(holes) == [([0, 1], 2), ([], 1), ([2, 3], 2), ([], 1)]


def test_immutable() -> None:
    axis = Axis.regular(5, 2)
    pool = Pool((axis,))
    with pytest.raises(FrozenInstanceError):
        axis.size = 6  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        pool.divisor = 6  # type: ignore[misc]
    for values in (axis.start, axis.stop, axis.count):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1


def test_tables_are_not_the_callers() -> None:
    start = np.array([0, 2])
    axis = Axis(4, start, start + 2, np.array([2, 2]))
    start[0] = 3
    assert axis.start.tolist() == [0, 2]


def test_equality_and_hash() -> None:
    a = Pool((Axis.regular(5, 2), Axis.regular(7, 3)))
    b = Pool([Axis.regular(5, 2), Axis.regular(7, 3)])  # type: ignore[arg-type]
    assert a == b
    assert {a: "kept"}[b] == "kept"
    assert a != Pool((Axis.regular(5, 2), Axis.regular(7, 3)), divisor=6)
    assert a != Pool((Axis.regular(7, 3), Axis.regular(5, 2)))
    assert Axis.regular(5, 2) != "Axis"
    assert a != "Pool"


def test_pickle() -> None:
    pool = Pool((Axis.regular(5, 2, padding="same"), Axis.adaptive(7, 3)), 4)
    assert pickle.loads(pickle.dumps(pool)) == pool


def test_repr() -> None:
    assert repr(Axis.regular(5, 2, stride=1, dilation=2)) == "Axis(size=5, cells=3): [0:3:2)/2 [1:4:2)/2 [2:5:2)/2"
    assert repr(Axis.regular(16, 2)).endswith("[10:12)/2 …")
    assert repr(Pool((Axis.whole(3),), 5)) == "Pool(axes=(Axis(size=3, cells=1): [0:3)/3,), divisor=5)"


EXPLAINED = [
    (
        Pool((Axis.regular(3, 2, stride=1), Axis.regular(3, 2, padding=(0, 1)))),
        """axis H: 3 inputs, 2 cells
  cell  inputs  divides by
     0  0..1    2
     1  1..2    2
  input  gets
      0  1/2·dy[0]
      1  1/2·dy[0] + 1/2·dy[1]
      2  1/2·dy[1]
axis W: 3 inputs, 2 cells
  cell  inputs  divides by
     0  0..1    2
     1  2       1
  input  gets
      0  1/2·dy[0]
      1  1/2·dy[0]
      2  1·dy[1]
a window divides by the product of its axes' divisors; the shares of an input multiply likewise""",
    ),
    (
        Pool((Axis.regular(4, 2, stride=3, dilation=3),), divisor=7),
        """axis L: 4 inputs, 1 cells, every 3
  cell  inputs
     0  0..3 step 3
  input  gets
      0  dy[0]
      1  0
      2  0
      3  dy[0]
every window divides by 7""",
    ),
    (
        Pool((Axis.fractional(2, [0, 0, 2], allow_empty=True),)),
        """axis L: 2 inputs, 2 cells
  cell  inputs  divides by
     0  none    1
     1  0..1    2
  input  gets
      0  1/2·dy[1]
      1  1/2·dy[1]""",
    ),
]


@pytest.mark.parametrize(("pool", "text"), EXPLAINED)
def test_explain(pool: Pool, text: str) -> None:
    assert explain(pool) == text


def test_explain_names_many_axes() -> None:
    text = explain(Pool((Axis.whole(1),) * 5))
    assert [line for line in text.split("\n") if line.startswith("axis")] == [f"axis {k}: 1 inputs, 1 cells" for k in range(5)]


def incidence(axis: Axis) -> support.Array:
    matrix = np.zeros((axis.cells, axis.size), dtype=int)
    for o, (inputs, _) in enumerate(table(axis)):
        matrix[o, inputs] = 1
    return matrix


def hull(hits: support.Array) -> slice:
    found = np.flatnonzero(hits)
    return slice(int(found[0]), int(found[-1]) + 1) if len(found) else slice(0, 0)


@given(pool=support.pools(), data=st.data())
def test_needed_boxes_are_minimal(pool: Pool, data: st.DataObject) -> None:
    cells, inputs = data.draw(support.regions(pool.output_size)), data.draw(support.regions(pool.input_size))
    covers = [incidence(axis) for axis in pool.axes]
    assert pool.inputs_for(cells) == tuple(hull(m[box].any(axis=0)) for m, box in zip(covers, cells, strict=True))
    assert pool.cells_for(inputs) == tuple(hull(m[:, box].any(axis=1)) for m, box in zip(covers, inputs, strict=True))


def rebuilt(pieces: tuple[Piece, ...], needed: tuple[slice, ...], box: tuple[slice, ...]) -> support.Array:
    """The matrix of a one-axis pooling as its pieces make it: what each result position adds of the needed source rows."""
    matrix = np.zeros((box[0].stop - box[0].start, needed[0].stop - needed[0].start), dtype=int)
    for piece in pieces:
        part = matrix[piece.put[0], piece.take[0]]
        own: Any = piece.sums.tables[0]
        assert part.shape == (own.positions, own.rows)
        for i, (lo, hi) in enumerate(zip(own.lo, own.hi, strict=True)):
            part[i, max(lo - own.base, 0) : max(hi - own.base, 0)] += 1
            assert hi <= lo or own.base <= lo < hi <= own.base + own.rows, "a piece reaches beyond the cells it is given"
    return matrix


@given(axis=support.axes(largest=30), data=st.data())
def test_pieces_are_the_incidence_matrix(axis: Axis, data: st.DataObject) -> None:
    """The swapped tables say of every input exactly the cells that cover it, for any region."""
    pool, covers = Pool((axis,)), incidence(axis)
    cells, inputs = data.draw(support.regions(pool.output_size)), data.draw(support.regions(pool.input_size))
    needed = pool.inputs_for(cells)
    assert (rebuilt(pool.forward_pieces(cells), needed, cells) == covers[cells[0], needed[0]]).all()
    needed = pool.cells_for(inputs)
    assert (rebuilt(pool.gradient_pieces(inputs), needed, inputs) == covers[needed[0], inputs[0]].T).all()
