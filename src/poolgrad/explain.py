"""A pooling as a table that a person can read: what every window covers and divides by, what every input gets."""

from __future__ import annotations

from fractions import Fraction

from .errors import PoolGradTypeError
from .geometry import Axis, Pool

__all__ = ["explain"]

NAMES = {1: "L", 2: "HW", 3: "DHW"}


def explain(pool: Pool) -> str:
    """Every window of `pool`, axis by axis.

    >>> print(explain(Pool((Axis.fractional(5, [0, 2, 4], overlapping=True),))))
    axis L: 5 inputs, 2 cells
      cell  inputs  divides by
         0  0..2    3
         1  2..4    3
      input  gets
          0  1/3·dy[0]
          1  1/3·dy[0]
          2  1/3·dy[0] + 1/3·dy[1]
          3  1/3·dy[1]
          4  1/3·dy[1]
    """
    if not isinstance(pool, Pool):
        raise PoolGradTypeError(f"pool must be a poolgrad.Pool, got {pool!r}")
    names = NAMES.get(len(pool.axes), "".join(str(k % 10) for k in range(len(pool.axes))))
    parts = [_axis(name, axis, pool.divisor is None) for name, axis in zip(names, pool.axes, strict=True)]
    if pool.divisor is not None:
        parts.append(f"every window divides by {pool.divisor}")
    elif len(pool.axes) > 1:
        parts.append("a window divides by the product of its axes' divisors; the shares of an input multiply likewise")
    return "\n".join(parts)


def _axis(name: str, axis: Axis, counted: bool) -> str:
    covers = [_range(axis, o) for o in range(axis.cells)]
    width = max([6, *map(len, covers)])
    lines = [f"axis {name}: {axis.size} inputs, {axis.cells} cells" + (f", every {axis.step}" if axis.step > 1 else "")]
    lines.append(f"  cell  {'inputs':<{width}}" + ("  divides by" if counted else ""))
    for o, text in enumerate(covers):
        lines.append(f"  {o:>4}  {text:<{width}}" + (f"  {axis.count[o]}" if counted else "").rstrip())
    lines.append("  input  gets")
    gets: list[list[str]] = [[] for _ in range(axis.size)]
    for o in range(axis.cells):
        share = f"{Fraction(1, int(axis.count[o]))}·" if counted else ""
        for i in range(int(axis.start[o]), int(axis.stop[o]), axis.step):
            gets[i].append(f"{share}dy[{o}]")
    lines += [f"  {i:>5}  {' + '.join(terms) or '0'}" for i, terms in enumerate(gets)]
    return "\n".join(line.rstrip() for line in lines)


def _range(axis: Axis, o: int) -> str:
    first, last = int(axis.start[o]), int(axis.stop[o]) - 1
    if last < first:
        return "none"
    step = f" step {axis.step}" if axis.step > 1 and last > first else ""
    return f"{first}..{last}{step}" if last > first else f"{first}"
