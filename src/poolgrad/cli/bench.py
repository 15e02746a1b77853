"""`poolgrad bench`: ours beside the frameworks installed here, with the floor and the error of every row."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer

from ..bench.cases import CASES, DTYPES
from ..errors import PoolGradValueError
from .guard import need, say_json

__all__ = ["bench"]

PEERS = ("torch", "tensorflow", "jax")
DIRECTIONS = ("gradient", "forward")


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="An eighth of the batch and few rounds: does it work?")] = False,
    cases: Annotated[str, typer.Option(help=f"Which rows: {', '.join(CASES)}.", show_default=False)] = ",".join(CASES),
    dtype: Annotated[str, typer.Option(help=f"Some of {', '.join(DTYPES)}.")] = "float32",
    direction: Annotated[str, typer.Option(help="gradient, forward or both.")] = "gradient",
    batch_divisor: Annotated[int, typer.Option(min=1, help="Divide the batch: 8 fits the rows into cache.")] = 1,
    allocate: Annotated[bool, typer.Option("--allocate", help="Every call allocates its result.")] = False,
    tiny: Annotated[bool, typer.Option("--tiny", help="Only the cost of a tiny call, in microseconds.")] = False,
    windows: Annotated[bool, typer.Option("--windows", help="Only time against window size.")] = False,
    threads: Annotated[int | None, typer.Option(min=1, help="All cores by default.", show_default=False)] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="How often each contestant has its turn.", show_default=False)] = None,
    peers: Annotated[str, typer.Option(help="Whom to measure beside; what is not installed is left out.")] = ",".join(PEERS),
    no_peers: Annotated[bool, typer.Option("--no-peers", help="Only ours and the floor.")] = False,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="A folder for the numbers and the plots.")] = None,
    docs: Annotated[bool, typer.Option("--docs", help="Rewrite the measured tables of poolgrad's own documentation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The numbers as JSON; the table goes to standard error.")] = False,
) -> None:
    """Speed and error beside the frameworks installed here. Several values are separated by commas.

    poolgrad bench --quick --cases 2x2,3x3s2
    """
    chosen = {
        "cases": _some("--cases", cases, CASES),
        "dtypes": _some("--dtype", dtype, DTYPES),
        "directions": _some("--direction", direction, DIRECTIONS),
        "peers": () if no_peers else _some("--peers", peers, PEERS),
    }
    if output is not None or docs:
        need("matplotlib", "plot", "a plot")
    try:
        from ..engines import _native  # noqa: F401
    except ImportError as missing:
        raise PoolGradValueError(f"the floor is measured by the compiled core, which is absent ({missing})") from None
    from ..bench.runs import Asked, cores, run

    asked = Asked(
        threads or cores(),
        **chosen,
        rounds=rounds,
        batch_divisor=batch_divisor,
        quick=quick,
        allocate=allocate,
        tiny=tiny,
        windows=windows,
        docs=docs,
        output=output,
    )
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        measured = run(asked)
    if as_json:
        say_json(measured)


def _some(option: str, text: str, allowed: object) -> tuple[str, ...]:
    """The names in a comma-separated list, each one of those allowed."""
    names = tuple(text.split(","))
    known = list(allowed)  # type: ignore[call-overload]
    for name in names:
        if name not in known:
            raise PoolGradValueError(f"{option} takes some of {', '.join(known)}, separated by commas; got {name!r}")
    return names
