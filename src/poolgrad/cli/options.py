"""How a pooling is said on the command line, the same way for every command.

Either in the core's own words, as options (`--window 3 --stride 2 --padding same`), or in a dialect's, as that dialect's own
arguments (`--dialect onnx kernel_shape=3,3 pads=1,1,1,1`). Values are Python literals, or words: `3`, `3,3`, `"(0,1),(1,1)"`,
`true`, `SAME`.
"""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import wraps
from typing import Annotated, Any, get_type_hints

import typer

from ..arguments import as_sizes
from ..dialects import NAMES, Adaptive, Fractional, Pooling, Regular, dialect
from ..errors import PoolGradValueError
from ..geometry import Pool, places

__all__ = ["Arguments", "PoolingOptions", "as_value", "dialect_names", "expanded", "named_values", "pooling", "shape_of"]

Check = Callable[[str, tuple[int, ...]], None]
"""Sees the layout and the output sizes, and refuses them."""

PANEL = "The pooling, in poolgrad's own words"

Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="NAME=VALUE…", help="With --dialect: the pooling in its own arguments.", show_default=False),
]


def _option(text: str, *names: str) -> Any:
    return typer.Option(*names, help=text, rich_help_panel=PANEL, show_default=False)


def dialect_names() -> list[str]:
    return list(NAMES)


@dataclass(frozen=True)
class PoolingOptions:
    """The options that say a pooling; all of them are text until the input's shape is known."""

    dialect: Annotated[
        str | None,
        typer.Option(help=f"Read NAME=VALUE… as this dialect: {', '.join(NAMES)}.", autocompletion=dialect_names),
    ] = None
    window: Annotated[str | None, _option("Window: one number, or one per spatial axis (3 or 3,2).")] = None
    stride: Annotated[str | None, _option("Stride, likewise; the window by default.")] = None
    padding: Annotated[
        str | None,
        _option("valid (default), same, same_lower, a number, one per axis, or a pair per axis: '(0,1),(1,1)'."),
    ] = None
    dilation: Annotated[str | None, _option("Dilation, like the window; 1 by default.")] = None
    count: Annotated[str | None, _option("What a window divides by: inside (default), padded or window.")] = None
    divisor: Annotated[str | None, _option("Divide by this number instead.")] = None
    ceil_mode: Annotated[bool, _option("Round the output size up.", "--ceil-mode")] = False
    output_size: Annotated[str | None, _option("Adaptive pooling to this many cells per axis; 1 is global.")] = None
    sequence: Annotated[
        list[str] | None, _option("Fractional pooling: the boundaries of one axis (0,2,5); give it once per axis.")
    ] = None
    overlapping: Annotated[bool, _option("Fractional: a boundary belongs to both of its cells.", "--overlapping")] = False
    layout: Annotated[str | None, _option("Such as NHWC or NCDHW; channels last by default, L or HW below rank 3.")] = None

    def given(self) -> dict[str, Any]:
        """What was typed, by the core's names."""
        typed = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in typed.items() if value not in (None, False, [])}


def expanded(command: Callable[..., int | None]) -> Callable[..., int | None]:
    """A command that takes `options: PoolingOptions` becomes one that takes each of its fields as an option."""
    hints = get_type_hints(PoolingOptions, include_extras=True)
    own = inspect.signature(command, eval_str=True)
    extra = [
        inspect.Parameter(field.name, inspect.Parameter.KEYWORD_ONLY, default=field.default, annotation=hints[field.name])
        for field in fields(PoolingOptions)
    ]

    @wraps(command)
    def run(**kwargs: Any) -> int | None:
        options = PoolingOptions(**{field.name: kwargs.pop(field.name) for field in fields(PoolingOptions)})
        return command(options=options, **kwargs)

    kept = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own.parameters.values() if p.name != "options"]
    run.__signature__ = own.replace(parameters=[*kept, *extra])  # type: ignore[attr-defined]
    return run


WORDS = {"true": "True", "false": "False", "none": "None", "null": "None"}
"""Words that mean a value, in any case, as Python spells them."""


def as_value(text: str) -> Any:
    """What was typed, as Python sees it; a word that is no literal stays a word.

    >>> as_value("3"), as_value("3,2"), as_value("true"), as_value("7,none"), as_value("SAME")
    (3, (3, 2), True, (7, None), 'SAME')
    """
    spelled = text if text[:1] in ("'", '"') else re.sub(r"[A-Za-z]+", lambda word: WORDS.get(word[0].lower(), word[0]), text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.literal_eval(spelled)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def named_values(arguments: Sequence[str] | None) -> dict[str, Any]:
    """`name=value …` as a dictionary."""
    found: dict[str, Any] = {}
    for argument in arguments or ():
        name, equals, text = argument.partition("=")
        if not equals or not name.isidentifier():
            raise PoolGradValueError(f"arguments are written NAME=VALUE, such as kernel_size=3,3; got {argument!r}")
        if name in found:
            raise PoolGradValueError(f"{name} is given twice: {found[name]!r} and {text!r}")
        found[name] = as_value(text)
    return found


def shape_of(text: str) -> tuple[int, ...]:
    """A shape as it is typed: `8,112,112,64`."""
    value = as_value(text)
    shape = as_sizes("--input-shape", value if isinstance(value, (tuple, list)) else (value,))
    if not shape:
        raise PoolGradValueError("--input-shape must name at least one extent, such as 8,112,112,64")
    return shape


def pooling(options: PoolingOptions, arguments: Sequence[str] | None, shape: tuple[int, ...], check: Check) -> tuple[Pool, str]:
    """The tables of what was typed, for an input of this shape, and the layout; `check` comes before any table is made."""
    given = options.given()
    name = given.pop("dialect", None)
    if name is None:
        if arguments:
            raise PoolGradValueError(f"{arguments[0]!r}: NAME=VALUE arguments belong to a dialect; say which with --dialect")
        said = dialect("poolgrad").read(_own(given, len(shape)), shape)
    else:
        if given:
            option = next(iter(given)).replace("_", "-")
            raise PoolGradValueError(f"--{option} is poolgrad's own; with --dialect {name}, write its arguments as NAME=VALUE")
        said = dialect(name).read(named_values(arguments), shape)
    check(said.layout, _cells(said, shape))
    return said.pool(shape), said.layout


KINDS = ("window", "output_size", "sequences")


def _own(given: dict[str, Any], rank: int) -> dict[str, Any]:
    """The options as arguments of the core."""
    if "sequence" in given:
        given["sequences"] = [as_value(row) for row in given.pop("sequence")]
    if sum(kind in given for kind in KINDS) != 1:
        raise PoolGradValueError("a pooling is said by one of --window, --output-size, --sequence or --dialect NAME")
    if rank in (1, 2):
        given.setdefault("layout", "L" if rank == 1 else "HW")
    return {name: as_value(value) if isinstance(value, str) else value for name, value in given.items()}


def _cells(said: Pooling, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The output sizes, from the arguments alone."""
    if isinstance(said, Regular):
        ones = (1,) * len(said.window)
        rows = zip(said.sizes(shape), said.window, said.stride, said.padding, said.dilation or ones, strict=True)
        return tuple(places(*row, said.ceil_mode)[2] for row in rows)
    if isinstance(said, Adaptive):
        return said.output_size
    assert isinstance(said, Fractional)
    return tuple(len(sequence) - 1 for sequence in said.sequences)
