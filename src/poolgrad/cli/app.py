"""The commands under one name. To add one: write its file, add a line here."""

from __future__ import annotations

from typing import Annotated

import typer

from .. import __version__
from .bench import bench
from .check import check
from .demo import demo
from .explain import explain
from .grad import grad
from .guard import guarded
from .pool import pool
from .run import run
from .studio import studio
from .translate import translate

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (grad, pool, explain, translate, run, check, bench, demo, studio):
    app.command()(guarded(command))


def _version(asked: bool) -> None:
    if asked:
        print(f"poolgrad {__version__}")
        raise typer.Exit


def poolgrad(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """Average pooling and, above all, its gradient: one answer to the bit.

    Exit codes: 0 good, 1 a check failed, 2 bad usage or input.
    """


app.callback()(poolgrad)
