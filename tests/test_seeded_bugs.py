"""The checks catch what they are for: each known mistake, planted in a right implementation, fails at least one of them.

The implementation makes its own windows from the arguments and turns them round by brute force, so that a mistake can be
planted anywhere; without one it passes every check to the bit. A check that catches nothing would be a defect.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, reduce
from typing import Any, NamedTuple

import checks
import numpy as np
import pytest
import support
from checks import CASES, Case, Gradient

from poolgrad import Axis, Pool
from poolgrad.engines import engine
from poolgrad.tables import Sums, Table, reach_of


class Windows(NamedTuple):
    """One axis: what each cell covers and divides by."""

    size: int
    start: list[int]
    stop: list[int]
    count: list[int]


def windows(case: Case, k: int, bug: str) -> Windows:
    size, window, stride, (before, after) = case.sizes[k], case.window[k], case.stride[k], case.pads[k]
    cells = (size + before + after - window) // stride + 1
    begins = [o * stride - (0 if bug == "dropped pad" else before) for o in range(cells)]
    ends = [b + window + {"stop one too far": 1, "stop one short": -1}.get(bug, 0) for b in begins]
    start = [min(max(b, 0), size) for b in begins]
    stop = [max(min(e, size), a) for e, a in zip(ends, start, strict=True)]
    inside = [max(min(b + window, size) - max(b, 0), 1) for b in begins]
    padded = [min(b + window, size + after) - b for b in begins]
    count = {"inside": inside, "padded": padded, "window": [window] * cells}[case.count]
    return Windows(size, start, stop, [window] * cells if bug == "full-window divisor" else count)


def turned(axis: Windows, bug: str) -> Table:
    """Per input the run of cells over it."""
    over = [[o for o in range(len(axis.start)) if axis.start[o] <= i < axis.stop[o]] for i in range(axis.size)]
    lo = np.array([cells[0] if cells else 0 for cells in over], dtype=np.int64)
    hi = np.array([cells[-1] + 1 if cells else 0 for cells in over], dtype=np.int64)
    lo, hi = np.maximum.accumulate(np.where(hi > lo, lo, 0)), np.maximum.accumulate(hi)
    lo = np.where([bool(cells) for cells in over], lo, hi)
    reach = (8,) if bug == "other order of additions" else reach_of(lo, hi)
    return Table(lo, hi, 0, len(axis.start), np.array(axis.count, dtype=np.int64), reach)


def gradient(case: Case, dy: support.Array, bug: str = "none") -> support.Array:
    ends = range(-len(case.sizes), 0)
    axes = [windows(case, k, bug) for k in range(len(case.sizes))]
    source = np.moveaxis(dy, case.spatial, ends)
    outer, cells = source.shape[: -len(axes)], source.shape[-len(axes) :]
    if bug == "permuted axes":
        axes, source = axes[::-1], np.ascontiguousarray(source).reshape(*outer, *cells[::-1])
    if bug == "divisor of the other axis":
        borrowed = [np.resize(other.count, len(axis.count)).tolist() for axis, other in zip(axes, axes[::-1], strict=True)]
        axes = [axis._replace(count=count) for axis, count in zip(axes, borrowed, strict=True)]
    tables = tuple(turned(axis, bug) for axis in axes)
    result = np.zeros((*outer, *(axis.size for axis in axes)), dtype=dy.dtype)
    compute(tables, source, result, bug)
    made = np.empty(case.input_shape, dtype=dy.dtype)
    np.moveaxis(made, case.spatial, ends)[...] = result.reshape(*outer, *case.sizes)
    if bug == "skipped tail":
        whole = made.shape[-1] // 8 * 8
        made[..., whole:] = 0
    return made


def compute(tables: tuple[Table, ...], source: support.Array, result: support.Array, bug: str) -> None:
    spatial = tuple(range(source.ndim - len(tables), source.ndim))
    run = partial(engine("numpy").run, spatial=spatial, accumulate=False, threads=None)
    if bug == "running sum with subtraction":
        subtracting(tables, source, result)
    elif bug == "rounding at every step":
        stepwise(tables, source, result)
    elif bug == "wrong stripe edge":
        rows = source.shape[spatial[0]]
        for a in range(0, tables[0].positions, 4):
            table = tables[0]._replace(lo=tables[0].lo[a : a + 4], hi=tables[0].hi[a : a + 4])
            first = int(table.lo.min(initial=rows)) + (a > 0)
            table = table._replace(lo=np.maximum(table.lo, first), hi=np.maximum(table.hi, first))
            at = [slice(None)] * source.ndim
            at[spatial[0]] = slice(a, a + 4)
            run(Sums((table, *tables[1:]), True, None), source, result[tuple(at)])
    else:
        run(Sums(tables, True, None), source, result)


def subtracting(tables: tuple[Table, ...], source: support.Array, result: support.Array) -> None:
    t = source.astype(np.float64) / reduce(np.multiply.outer, [table.counts for table in tables])
    for axis, table in zip(range(-len(tables), 0), tables, strict=True):
        sums = np.cumsum(np.moveaxis(t, axis, 0), axis=0)
        sums = np.concatenate([np.zeros_like(sums[:1]), sums])
        t = np.moveaxis(sums[table.hi] - sums[table.lo], 0, axis)
    with np.errstate(all="ignore"):
        result[...] = t.astype(result.dtype)


def stepwise(tables: tuple[Table, ...], source: support.Array, result: support.Array) -> None:
    """Half types added in their own type."""
    divisor = reduce(np.multiply.outer, [table.counts for table in tables])
    t = (source.astype(np.float64) / divisor).astype(source.dtype)
    for axis, table in zip(range(-1, -len(tables) - 1, -1), reversed(tables), strict=True):
        rows = np.moveaxis(t, axis, 0)
        made = np.zeros((table.positions, *rows.shape[1:]), dtype=source.dtype)
        for i, (lo, hi) in enumerate(zip(table.lo, table.hi, strict=True)):
            for c in range(lo, hi):
                made[i] = (made[i].astype(np.float64) + rows[c].astype(np.float64)).astype(source.dtype)
        t = np.moveaxis(made, 0, axis)
    result[...] = t


def every_dtype(check: Callable[[Gradient, Case, Any], None]) -> Callable[[Gradient, Case], None]:
    def checked(implementation: Gradient, case: Case) -> None:
        for dtype in support.DTYPES:
            check(implementation, case, dtype)

    return checked


CHECKS = {
    "exact": checks.check_exact,
    "adjoint": checks.check_adjoint,
    "reach": checks.check_reach,
    "oracle": every_dtype(checks.check_oracle),
    "bits": every_dtype(checks.check_bits),
}

EVERY = {"exact", "adjoint", "reach", "oracle", "bits"}
VALUES = EVERY - {"reach"}
BUGS = {
    "permuted axes": EVERY,
    "dropped pad": EVERY,
    "full-window divisor": VALUES,
    "divisor of the other axis": VALUES,
    "stop one too far": EVERY,
    "stop one short": EVERY,
    "skipped tail": EVERY,
    "wrong stripe edge": EVERY,
    "other order of additions": {"bits"},
    "rounding at every step": {"oracle", "bits"},
    "running sum with subtraction": {"reach", "bits"},
}


def caught(check: Callable[[Gradient, Case], None], implementation: Gradient, case: Case) -> bool:
    try:
        check(implementation, case)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("case", CASES)
def test_the_right_one_passes(case: Case) -> None:
    checks.check_all(gradient, case)


@pytest.mark.parametrize("bug", BUGS)
def test_each_bug_is_caught(bug: str) -> None:
    """By every check that can see it, on at least one case each."""
    buggy = partial(gradient, bug=bug)
    found = {name for name, check in CHECKS.items() if any(caught(check, buggy, case) for case in CASES)}
    assert found >= BUGS[bug]


def test_each_check_catches_something_alone() -> None:
    assert set().union(*BUGS.values()) == set(CHECKS)


def mutated(piece: Any, mutation: str) -> Any:
    table = piece.sums.tables[0]
    change = {
        "lo": {"lo": np.minimum(table.lo + 1, table.hi)},
        "hi": {"hi": np.maximum(table.hi - 1, table.lo)},
        "counts": {"counts": table.counts + 1},
        "reach": {"reach": (8,)},
    }[mutation]
    return piece.sums._replace(tables=(table._replace(**change), *piece.sums.tables[1:]))


@pytest.mark.parametrize("mutation", ["lo", "hi", "counts", "reach"])
def test_each_wrong_table_is_caught(mutation: str) -> None:
    """The package's own tables, altered on their way to the engine."""
    case = CASES[5]
    (piece,) = case.pool.gradient_pieces()

    def altered(_: Case, dy: support.Array) -> support.Array:
        out = np.empty(case.input_shape, dtype=dy.dtype)
        engine("numpy").run(mutated(piece, mutation), dy, out, case.spatial, accumulate=False, threads=None)
        return out

    with pytest.raises(AssertionError):
        checks.check_all(altered, case)


def test_a_region_with_its_own_reach_is_caught() -> None:
    """Blocks chosen by a part's longest interval, not the axis's, would make the bits depend on the cut."""
    pool = Pool((Axis.regular(64, 20, stride=1),))
    dy = support.random_array(9, pool.output_size, np.dtype(np.float32))
    whole = support.compute("numpy", pool, dy, "L", forwards=False)
    region = [slice(57, 64)]
    (piece,) = pool.gradient_pieces(region)
    (table,) = piece.sums.tables
    wrong = piece.sums._replace(tables=(table._replace(reach=reach_of(table.lo, table.hi)),))
    for sums, right in ((piece.sums, True), (wrong, False)):
        out = np.empty(7, dtype=dy.dtype)
        engine("numpy").run(sums, dy[pool.cells_for(region)], out, (0,), accumulate=False, threads=None)
        assert support.same_bits(out, whole[57:]) == right
