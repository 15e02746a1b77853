"""The cases that Vitest holds the browser to are what `poolgrad.enuspace` says today."""

from __future__ import annotations

import runpy
from pathlib import Path

WEB = Path(__file__).resolve().parents[1] / "web"


def test_cases_are_the_law() -> None:
    made = runpy.run_path(str(WEB / "scripts" / "cases.py"))["text"]()
    kept = (WEB / "test" / "cases.json").read_text(encoding="utf-8")
    assert made == kept, "run studio/web/scripts/cases.py and look at the difference"
