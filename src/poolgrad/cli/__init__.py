"""The command line: `poolgrad COMMAND`, one file a command.

Requirements: it may be started where Typer and Rich are absent, and says so in one line; `poolgrad --help` imports no
framework; what a program would read goes to standard output, what a person would read meanwhile to standard error.

Exit codes: 0 good, 1 a check failed or a question was answered with no, 2 bad usage or input, 130 interrupted, 141 when
nobody reads the output any more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line, this process's own by default, and return its exit code."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # the caller closed it
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif (stream.encoding or "").lower() not in ("utf-8", "utf8") and hasattr(stream, "reconfigure"):
            stream.reconfigure(encoding="utf-8")
    try:
        import rich  # noqa: F401
        import typer  # noqa: F401
    except ImportError as missing:
        print(f"poolgrad: the command line needs Typer and Rich ({missing}): pip install 'poolgrad[cli]'", file=sys.stderr)
        return 2
    try:
        from .app import app

        app(args=None if arguments is None else list(arguments), prog_name="poolgrad")
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else int(done.code is not None)
    except KeyboardInterrupt:
        return 130
    return 0
