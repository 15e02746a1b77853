"""The page of the command line holds: its commands run in order, in a real shell, and say what it shows.

`…` in a line stands for anything. The `python` blocks between make the files that the commands read.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import poolgrad

for needed in ("typer", "rich", "matplotlib", "poolgrad.engines._native"):
    pytest.importorskip(needed)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "command-line.md"
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def shell(folder: Path, command: str) -> str:
    """What a command says; `poolgrad` is this package under this interpreter."""
    root = Path(poolgrad.__file__).parents[1]
    name = folder / "bin" / "poolgrad"
    if not name.exists():
        name.parent.mkdir()
        name.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m poolgrad "$@"\n')
        name.chmod(0o755)
    env = {**os.environ, "PATH": f"{name.parent}{os.pathsep}{os.environ['PATH']}", "PYTHONPATH": str(root), "NO_COLOR": "1"}
    done = subprocess.run(command, shell=True, cwd=folder, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.mark.skipif(os.name == "nt", reason="the page is written for a POSIX shell")
def test_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = 0
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), {})
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            said = shell(tmp_path, command)
            pattern = ".*".join(map(re.escape, shown.split("…")))
            assert re.fullmatch(pattern, said, re.DOTALL), f"{command}\n{said}"
            ran += 1
    assert ran >= 14
    for picture in ("windows.png", "volume.png", "gradient.png"):
        assert (tmp_path / picture).read_bytes().startswith(b"\x89PNG")
