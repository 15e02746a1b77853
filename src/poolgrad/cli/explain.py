"""`poolgrad explain`: every window of a pooling, as tables, as JSON, or as a picture."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from math import prod
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..errors import PoolGradValueError
from ..geometry import Pool
from .describe import described, names, span
from .guard import need, say_json
from .options import Arguments, PoolingOptions, expanded, pooling, shape_of
from .tables import print_table

__all__ = ["explain"]

MOST = 1 << 20
"""Inputs, cells and their meetings that one explanation may list."""

FEW = 64
"""Windows that are listed unasked."""


@expanded
def explain(
    input_shape: Annotated[str, typer.Option(help="The shape of the input, such as 12,17 or 1,3,12,17.")],
    options: PoolingOptions,
    arguments: Arguments = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this picture (.png, .svg, .pdf).")] = None,
    axes: Annotated[str | None, typer.Option(help="Which two axes to draw, such as D,W; the last two by default.")] = None,
    every: Annotated[bool, typer.Option("--all", help=f"List every window, also when they are more than {FEW}.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as JSON.")] = False,
) -> None:
    """Every window: which inputs feed which output, what it divides by, and what each input's gradient gets.

    poolgrad explain --input-shape 12,17 --window 3 --stride 2 --padding same --plot windows.png
    """
    if axes is not None and plot is None:
        raise PoolGradValueError("--axes says which axes to draw: give --plot too")
    pool, _ = pooling(options, arguments, shape_of(input_shape), _check_lengths)
    _check_work(pool)
    if plot is not None:
        need("matplotlib", "plot", "a picture")
        from .picture import draw_pool

        draw_pool(pool, chosen(pool, axes), plot)
    if as_json:
        say_json({**described(pool), **({"plot": str(plot)} if plot else {})})
    elif plot is not None:
        print(f"wrote {plot}")
    else:
        show(pool, every)


def _check_lengths(layout: str, cells: tuple[int, ...]) -> None:
    if max(cells, default=0) > MOST:
        raise PoolGradValueError(f"an explanation lists at most {MOST} cells on an axis, got output sizes {cells}")


def _check_work(pool: Pool) -> None:
    for axis in pool.axes:
        terms = axis.size + axis.cells + int(np.maximum(-((axis.start - axis.stop) // axis.step), 0).sum())
        if terms > MOST:
            raise PoolGradValueError(f"an explanation lists at most {MOST} inputs, cells and meetings of an axis, got {terms}")


def chosen(pool: Pool, text: str | None) -> tuple[int, ...]:
    """Which axes to draw: the two that were named, or the last two."""
    letters = names(pool)
    if text is None:
        return tuple(range(len(letters)))[-2:]
    picked = text.split(",")
    if len(picked) > 2 or len(set(picked)) != len(picked) or not set(picked) <= set(letters):
        raise PoolGradValueError(f"--axes takes one or two of {', '.join(letters)}, separated by a comma; got {text!r}")
    return tuple(letters.index(letter) for letter in picked)


def show(pool: Pool, every: bool) -> None:
    """The tables: both sides of each axis, then every window if they are few or all are asked for."""
    said, windows, counted = described(pool), prod(pool.output_size), pool.divisor is None
    if every and windows > MOST:
        raise PoolGradValueError(f"--all lists at most {MOST} windows, got {windows}")
    for axis in said["axes"]:
        cells = [(c["cell"], span(c["inputs"]), *([c["divides_by"]] if counted else [])) for c in axis["cells"]]
        gets = [(i["input"], " + ".join(map(_term, i["gets"])) or "0") for i in axis["inputs"]]
        title = f"axis {axis['name']}: {axis['size']} inputs, {len(cells)} cells"
        print_table(title, ["cell", "inputs", *(["divides by"] if counted else [])], cells, numbers=(0, 2))
        print_table("", ["input", "its gradient gets"], gets, numbers=(0,))
    if pool.divisor is not None:
        print(f"every window divides by {pool.divisor}")
    elif len(pool.axes) > 1:
        print("a window divides by the product of its axes' divisors; the shares of an input multiply likewise")
    if len(pool.axes) > 1 and (every or windows <= FEW):
        heads = ["cell", *(f"inputs {axis['name']}" for axis in said["axes"]), "inside", "divides by", "each input gets"]
        print()
        print_table(f"{windows} windows", heads, _windows(pool, said), numbers=range(len(heads) - 3, len(heads) - 1))
    elif len(pool.axes) > 1:
        print(f"{windows} windows; --all lists every one")


def _windows(pool: Pool, said: dict[str, Any]) -> Iterator[list[object]]:
    for cell in product(*(axis["cells"] for axis in said["axes"])):
        at = tuple(part["cell"] for part in cell)
        divisor = pool.divisor or prod(part["divides_by"] for part in cell)
        inside = prod(len(part["inputs"]) for part in cell)
        share = f"{Fraction(1, divisor)}·dy{list(at)}" if inside else ""
        yield [at, *(span(part["inputs"]) for part in cell), inside, divisor, share]


def _term(got: dict[str, Any]) -> str:
    return f"dy[{got['cell']}]" if got["weight"] is None else f"{got['weight']}·dy[{got['cell']}]"
