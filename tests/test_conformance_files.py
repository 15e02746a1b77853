"""Cases and answers as files: what is emitted can be graded, DxDispatch models included, and bad files are named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolgrad
from poolgrad.conformance import emit, grade
from poolgrad.conformance.case import from_json
from poolgrad.conformance.directml import open_points
from poolgrad.conformance.worker import packed, unpacked
from poolgrad.dialects.directml import dxdispatch

GROUPS = ["overlap 3-D", "counting", "layouts", "adaptive", "float16", "bfloat16", "special", "empty", "hostile"]


@pytest.fixture(scope="module")
def emitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("kit") / "cases"
    emit(directory, groups=GROUPS, limit=6)
    return directory


@pytest.fixture
def cases(emitted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(emitted, tmp_path / "cases"))


def index(directory: Path) -> list[dict[str, Any]]:
    return list(json.loads((directory / "cases.json").read_text())["cases"])


def answered(directory: Path) -> None:
    """Answers made from the files alone, as somebody else's program would."""
    for row in index(directory):
        case = from_json({k: v for k, v in row.items() if k not in ("file", "allowed_ulps", "dxdispatch")})
        assert case.pool is not None
        dy = unpacked((directory / "dy" / f"{row['file']}.npy").read_bytes(), row["dtype"])
        dx = poolgrad.gradient(case.pool, dy, layout=row["layout"])
        (directory / "dx" / f"{row['file']}.npy").write_bytes(packed(dx))


def test_without_answers_nothing_is_tested(cases: Path) -> None:
    report = grade(cases)
    assert not report.ok
    assert report.verdict == "nothing tested"
    assert "nothing tested" in report.to_html()
    assert report.to_json()["ok"] is False
    assert report.total.unsupported == len(index(cases)) == len(list((cases / "exact").iterdir()))
    assert "hostile" not in {row.group for row in report.groups}


def test_right_answers_are_right(cases: Path) -> None:
    answered(cases)
    report = grade(cases)
    assert report.ok
    assert report.total.right == len(index(cases))


def test_the_exact_answers_are_exact(cases: Path) -> None:
    shutil.rmtree(cases / "dx")
    (cases / "exact").rename(cases / "dx")
    report = grade(cases)
    assert (report.total.right, report.total.worst) == (len(index(cases)), 0)


def test_wrong_answers_are_found(cases: Path) -> None:
    """One element of one answer, a shape, a type, and a file that is no array."""
    answered(cases)
    rows = [row for row in index(cases) if row["name"].startswith("overlap 3-D")]
    paths = [cases / "dx" / f"{row['file']}.npy" for row in rows[:5]]
    arrays = [np.load(path) for path in paths[:3]]
    arrays[0].flat[-1] += 0.001
    for path, array in zip(paths, (arrays[0], arrays[1].T, arrays[2].astype(np.int32)), strict=False):
        np.save(path, array)
    paths[3].write_bytes(b"no array")
    paths[4].write_bytes(b"")
    wrong = [result for result in grade(cases).results if result.verdict.outcome == "wrong"]
    assert [result.case.name for result in wrong] == [row["name"] for row in rows[:5]]
    reasons = ("are off", "returned shape", "returned dtype", "is not an array", "is not an array")
    for result, said in zip(wrong, reasons, strict=True):
        assert said in result.verdict.note


def test_dxdispatch_models_run(cases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By our own DxDispatch: right in every case, channels first and last, and each open point answered as documented."""
    monkeypatch.chdir(cases)
    models = sorted(Path("dxdispatch").glob("*.json"))
    assert len(models) == sum(row["dxdispatch"] for row in index(cases)) + len(open_points())
    for model in models:
        assert dxdispatch.run_file(model, dxdispatch.Options(allow_explicit_sizes=True), write=lambda _: None) == 0
    report = grade(cases)
    assert report.ok
    assert report.total.right == len(models) - len(open_points())
    assert {r.case.pooling.layout for r in report.results if r.verdict.outcome == "right"} >= {"NCDHW", "NDHWC"}
    said = "\n".join(report.notes)
    for reading in ("TRUE: what does a window beyond the padding divide by? divides by the whole", "adds in float32", "is 0"):
        assert reading in said


@pytest.mark.parametrize("name", open_points())
def test_an_open_point_tells_its_readings_apart(name: str) -> None:
    point = open_points()[name]
    for reading, result in point.readings.items():
        assert point.reading_of(result) == reading
        assert point.reading_of(result.ravel()) == reading
        assert "something else" in point.reading_of(result + np.asarray(1, result.dtype))
        assert "another result" in point.reading_of(result[..., 1:])


def test_a_directory_in_use_is_left_alone(cases: Path) -> None:
    before = sorted(cases.rglob("*"))
    with pytest.raises(poolgrad.PoolGradValueError, match="new or empty directory"):
        emit(cases)
    assert sorted(cases.rglob("*")) == before


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot be read"),
        ("[]", "not an index of format 1"),
        ('{"format": 2, "cases": []}', "not an index of format 1"),
        ('{"format": 1, "cases": [3]}', "a case must be an object"),
        ('{"format": 1, "cases": [{"kind": "regular"}]}', "not one of this format"),
        ('{"format": 1, "cases": [{"kind": "adaptive", "layout": "NCL", "output_size": [2, 2], "name": "x/0", '
         '"input_shape": [1, 1, 4], "dy_shape": [1, 1, 2]}]}', "is not a pooling"),
        ('{"format": 1, "cases": [{"kind": "adaptive", "layout": "NCL", "output_size": [2], "name": "x/0", '
         '"input_shape": [1, 1, 4], "dy_shape": [1, 1, 3]}]}', "has no answer"),
    ],
)  # fmt: skip
def test_a_bad_index_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "cases.json").write_text(text)
    with pytest.raises(poolgrad.PoolGradError, match=said):
        grade(tmp_path)


def test_no_directory_is_no_cases(tmp_path: Path) -> None:
    with pytest.raises(poolgrad.PoolGradValueError, match="holds no cases"):
        grade(tmp_path / "nowhere")


def test_a_name_leads_nowhere_else(tmp_path: Path) -> None:
    """Whatever the index calls a case, its answer is looked for in dx/."""
    row = {"kind": "adaptive", "layout": "NCL", "output_size": [1], "name": "../../etc/passwd", "input_shape": [1, 1, 4]}
    (tmp_path / "cases.json").write_text(json.dumps({"format": 1, "cases": [{**row, "dy_shape": [1, 1, 1]}]}))
    (report,) = grade(tmp_path).results
    assert report.verdict.outcome == "unsupported"
