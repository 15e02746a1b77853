"""The page about volumes holds: its commands run in order, in a real shell, beside its Python."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("zarr")
pytest.importorskip("h5py")

from test_cli_docs import BLOCK, shell

PAGE = Path(__file__).resolve().parents[1] / "docs" / "volumes.md"


@pytest.mark.skipif(os.name == "nt", reason="the page is written for a POSIX shell")
def test_commands_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    ran = 0
    for kind, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
        if kind == "python":
            exec(compile(text, str(PAGE), "exec"), names)
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            said = shell(tmp_path, command)
            assert re.fullmatch(".*".join(map(re.escape, shown.split("…"))), said, re.DOTALL), f"{command}\n{said}"
            ran += 1
    assert ran >= 3
