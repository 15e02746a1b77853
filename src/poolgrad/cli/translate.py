"""`poolgrad translate`: one dialect's arguments in another's words, or why there are none."""

from __future__ import annotations

import shlex
from typing import Annotated, Any

import typer

from ..dialects import NAMES, NoTranslation, dialect
from ..dialects import translate as translated
from .guard import say_json
from .options import dialect_names, named_values, shape_of

__all__ = ["as_text", "translate"]


def translate(
    source: Annotated[str, typer.Argument(metavar="FROM", help=f"One of {', '.join(NAMES)}.", autocompletion=dialect_names)],
    target: Annotated[str, typer.Argument(metavar="TO", help="Another of them.", autocompletion=dialect_names)],
    arguments: Annotated[list[str], typer.Argument(metavar="NAME=VALUE…", help="The arguments in the first dialect.")],
    input_shape: Annotated[str, typer.Option(help="The shape of the input, such as 2,3,9,8: what is the same depends on it.")],
    transpose: Annotated[bool, typer.Option("--transpose", help="Allow another layout, and name the permutation.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The arguments, or the reason why there are none, as JSON.")] = False,
) -> int:
    """One dialect's arguments in another's: the same windows and divisors, or why there are none (exit code 1).

    poolgrad translate torch onnx --input-shape 2,3,9,8 kernel_size=3,2 stride=2 padding=1,0
    """
    shape = shape_of(input_shape)
    given = named_values(arguments)
    for name in (source, target):
        dialect(name)
    try:
        said = translated(given, source, target, shape, transpose=transpose)
    except NoTranslation as reason:
        if as_json:
            say_json({"from": source, "to": target, "arguments": None, "reason": str(reason)})
        else:
            print(f"none: {reason}")
        return 1
    if as_json:
        say_json({"from": source, "to": target, "arguments": said, "reason": None})
    else:
        print(" ".join(shlex.quote(f"{name}={as_text(value)}") for name, value in said.items()))
    return 0


def as_text(value: Any) -> str:
    """A value as it is typed; `as_value` reads it back.

    >>> as_text((3, 2)), as_text([7]), as_text(True), as_text("SAME"), as_text([(0, 1), (1, 1)])
    ('3,2', '7,', 'true', 'SAME', '(0,1),(1,1)')
    """
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)) and value:
        return ",".join(repr(part).replace(" ", "") for part in value) + ("," if len(value) == 1 else "")
    return repr(value).replace(" ", "")
