"""`python -m poolgrad.bench.torch` measures what it says, in every way, and refuses layers that it does not know."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
from poolgrad.bench import torch as bench  # noqa: E402


def test_it_prints_and_writes_every_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = bench.Layer("small", (2, 3, 9, 8), 3, 2, 1, torch.bfloat16)
    monkeypatch.setitem(bench.LAYERS, "small", small)
    threads = torch.get_num_threads()
    file = tmp_path / "made" / "torch.json"
    monkeypatch.setattr(sys, "argv", ["bench", "--layer", "small", "--rounds", "1", "--output", str(file)])
    bench.main()
    torch.set_num_threads(threads)
    written = json.loads(file.read_text(encoding="utf-8"))
    assert [row["memory"] for row in written["layers"]] == ["NCHW", "channels_last"]
    assert [row["dtype"] for row in written["tiny"]] == ["float32", "float64", "float16", "bfloat16"]
    assert all(row[way] > 0 for row in written["layers"] + written["tiny"] for way in bench.WAYS)
    said = capsys.readouterr().out
    assert said.count("| small | 2×3×9×8 bfloat16 |") == 2


def test_a_way_that_differs_is_found() -> None:
    steps = bench.ways(bench.TINY)
    wrong = dict(steps, functions=lambda: 2 * steps["functions"]())
    with pytest.raises(AssertionError, match="functions differs"):
        bench.check(wrong, torch.float32)


def test_an_unknown_layer_is_refused(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["bench", "--layer", "2x2,nonsense"])
    with pytest.raises(SystemExit):
        bench.main()
    assert "nonsense" in capsys.readouterr().err
