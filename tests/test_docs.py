"""The documentation holds: its code runs as written, its links lead somewhere, its examples work.

Blocks of one page share their names, in order. A block with `>>>` is compared with the output it shows.
"""

from __future__ import annotations

import doctest
import re
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")])
EXAMPLES = sorted(ROOT.glob("examples/*.py"))
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
GUESTS = {"torch", "tensorflow", "jax", "dask", "distributed"}


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in PAGES if BLOCK.search(p.read_text(encoding="utf-8"))], ids=name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = page.read_text(encoding="utf-8")
    names: dict[str, Any] = {"__name__": page.stem}
    for found in BLOCK.finditer(text):
        line = text.count("\n", 0, found.start(1))
        try:
            run(found[1], names, page, line)
        except ModuleNotFoundError as missing:
            if missing.name not in GUESTS:
                raise


def run(source: str, names: dict[str, Any], page: Path, line: int) -> None:
    if ">>>" not in source:
        exec(compile("\n" * line + source, str(page), "exec"), names)
        return
    session = doctest.DocTestParser().get_doctest(source, names, name(page), str(page), line)
    said: list[str] = []
    runner = doctest.DocTestRunner(verbose=False)
    runner.run(session, out=said.append, clear_globs=False)
    names.update(session.globs)
    assert runner.failures == 0, "".join(said)


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = [t for t in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in t]
    missing = [t for t in targets if not (page.parent / t).exists()]
    assert not missing


@pytest.mark.parametrize("example", EXAMPLES, ids=name)
def test_examples_run(example: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(example), run_name="__main__")
    said = capsys.readouterr().out
    assert said
    assert "False" not in said
