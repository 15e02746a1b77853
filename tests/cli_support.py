"""What the tests of the command line share: calls in this process, and real processes."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import poolgrad
from poolgrad.cli import main


def said(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert main(list(arguments)) == code, capsys.readouterr().err
    return capsys.readouterr().out


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(list(arguments)) == 2
    complaint = capsys.readouterr().err
    assert complaint.count("\n") == 1
    return complaint


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("POOLGRAD_")}
    return {**kept, "PYTHONPATH": str(Path(poolgrad.__file__).parents[1]), "NO_COLOR": "1", **more}


def process(*arguments: str, script: Sequence[str] = ("-m", "poolgrad"), **more: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, *script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment(**more))


def blocked(*modules: str) -> str:
    """A program that is the command line where these modules are not installed."""
    return f"import sys\nsys.modules.update(dict.fromkeys({modules!r}))\nfrom poolgrad.cli import main\nsys.exit(main())"


def picture(path: str) -> tuple[int, int, Any]:
    """Width, height and the pixels of a PNG."""
    from matplotlib.image import imread

    width, height = struct.unpack(">II", Path(path).read_bytes()[16:24])
    return width, height, imread(path)
