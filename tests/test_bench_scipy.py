"""The benchmark of the SciPy operator: every rival gives our answer, and every row has its times."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("scipy")

from poolgrad.bench.scipy import Case, by_hand


@pytest.mark.parametrize("case", [Case((12, 18), 3, False), Case((12, 17), 5, True), Case((9, 10, 11), 3, True)], ids=str)
def test_what_is_written_by_hand_is_the_same_map(case: Case) -> None:
    operator, rng = case.operator(np.float64), np.random.default_rng(0)
    _, pool, spread = by_hand(case, operator)
    x, y = rng.standard_normal(operator.shape[1]), rng.standard_normal(operator.shape[0])
    np.testing.assert_allclose(pool(x), operator @ x, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(spread(y), operator.H @ y, rtol=1e-12, atol=1e-12)


def test_the_benchmark(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "poolgrad.bench.scipy", "--quick", "--cases", "2x2x2,9x9x9", "--output", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    rows = json.loads((tmp_path / "scipy.json").read_text())["rows"]
    assert [row["product"] for row in rows] == ["A @ x", "A.H @ y"] * 2
    assert ["sparse ms" in row for row in rows] == [True, True, False, False]
    assert all(row["ours ms"] > 0 and row["by hand ms"] > 0 for row in rows)
