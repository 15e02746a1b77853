"""What every command shares: refusals as one line, exit codes, JSON, and extras that may be absent."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import typer

from ..errors import PoolGradError, PoolGradValueError

__all__ = ["guarded", "need", "say_json"]


def guarded(command: Callable[..., int | None]) -> Callable[..., None]:
    """`command` with its refusals on one line; what it returns is the exit code."""

    @wraps(command)
    def run(*args: Any, **kwargs: Any) -> None:
        try:
            code = command(*args, **kwargs) or 0
            sys.stdout.flush()
        except KeyboardInterrupt:
            code = 130
        except BrokenPipeError:
            # The interpreter flushes once more at exit, and must not fail at that.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            code = 141
        except (PoolGradError, OSError, MemoryError) as refusal:
            print(f"poolgrad: {_worded(refusal)}", file=sys.stderr)
            code = 2
        if code:
            raise typer.Exit(code)

    return run


def _worded(refusal: Exception) -> str:
    if isinstance(refusal, OSError) and refusal.strerror:
        return f"{refusal.filename}: {refusal.strerror}" if refusal.filename else refusal.strerror
    return str(refusal) or type(refusal).__name__


def say_json(value: Any) -> None:
    """One JSON document on standard output."""
    print(json.dumps(value, ensure_ascii=False, default=_plain))


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays, as JSON can hold them."""
    return value.tolist() if hasattr(value, "tolist") else str(value)


def need(module: str, extra: str, purpose: str) -> Any:
    """The optional `module`, or a refusal that says what to install."""
    try:
        return importlib.import_module(module)
    except ImportError as missing:
        raise PoolGradValueError(f"{purpose} needs {module} ({missing}): pip install 'poolgrad[{extra}]'") from None
