"""The kit on the real frameworks: it finds by itself what is known to be wrong in them, and nothing wrong where nothing is.

ONNX Runtime's training build has an environment of its own (`make test` makes it): POOLGRAD_ORT_TRAINING names its Python.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from poolgrad.conformance import Case, Report, check
from poolgrad.dialects.pooling import Regular

ROOT = Path(__file__).resolve().parents[1]
ORT = Path(os.environ.get("POOLGRAD_ORT_TRAINING", ROOT / ".venv-ort" / "bin" / "python"))


def counts(report: Report, group: str) -> tuple[int, int]:
    (row,) = [row for row in report.groups if row.group == group]
    return row.right, row.wrong


def fails_alone(script: str) -> bool:
    try:
        exec(compile(script, "reproducer", "exec"), {})
    except AssertionError:
        return True
    return False


def failures(report: Report) -> list[tuple[Case, str]]:
    return [(r.case, r.verdict.note) for r in report.results if r.verdict.outcome in ("wrong", "crashed")]


def test_pytorch() -> None:
    """Both memory formats, every group; nothing wrong but that it adds 16-bit types in themselves."""
    pytest.importorskip("torch")
    report = check("torch", limit=5)
    assert all(case.group in ("float16", "bfloat16") and case.terms > 20 for case, _ in failures(report)), failures(report)
    right = [r.case for r in report.results if r.verdict.outcome == "right" and r.case.pool is not None]
    assert len(right) > 70
    assert {case.pooling.layout for case in right} >= {"NCL", "NLC", "NCHW", "NHWC", "NCDHW", "NDHWC"}
    assert {case.dtype for case in right} == {"float16", "bfloat16", "float32", "float64"}


def test_pytorch_compiled() -> None:
    """One case through Inductor; a check of more takes minutes."""
    pytest.importorskip("torch")
    report = check("torch.compile", groups=["overlap 2-D"], limit=1, shrinking=False)
    assert [r.verdict.outcome for r in report.results] == ["right"], report.results


def test_jax() -> None:
    pytest.importorskip("jax")
    pytest.importorskip("flax")
    report = check("jax", limit=1)
    assert all(case.group in ("float16", "bfloat16") and case.terms > 20 for case, _ in failures(report)), failures(report)
    assert report.total.right > 15


def test_tensorflow_native_has_a_wrong_divisor() -> None:
    """For SAME with a window larger than the input, and for no smaller one."""
    pytest.importorskip("tensorflow")
    report = check("tensorflow-native", groups=["same", "large window"])
    assert counts(report, "same")[0] > 5
    assert counts(report, "same")[1] == 0
    assert counts(report, "large window")[1] > 0
    made = report.reproducers[0]
    assert made.outcome == "wrong"
    assert isinstance(made.case.pooling, Regular)
    sizes = made.case.pooling.sizes(made.case.input_shape)
    assert any(k > n for k, n in zip(made.case.pooling.window, sizes, strict=True))
    assert "padding='SAME'" in made.script


def test_tensorflow_dies_of_a_window_larger_than_a_volume() -> None:
    """SIGFPE for 3-D VALID, with the default settings."""
    pytest.importorskip("tensorflow")
    report = check("tensorflow", groups=["hostile"], shrinking=False)
    dead = [r.case for r in report.results if "SIGFPE" in r.verdict.note]
    assert any(len(case.input_shape) == 5 and case.fits is not None for case in dead)
    assert report.results[-1].verdict.outcome != "crashed"


@pytest.mark.skipif(not ORT.exists(), reason=f"no environment with onnxruntime-training at {ORT}")
def test_onnxruntime_training_is_wrong_in_3d() -> None:
    """For overlapping windows and for shapes that are not cubic; right in one and two dimensions and on cubes."""
    groups = [f"{kind} {rank}-D" for kind in ("tiled", "overlap") for rank in (1, 2, 3)]
    report = check("onnxruntime-training", python=ORT, groups=[*groups, "cubic"])
    for group in groups:
        right, wrong = counts(report, group)
        assert (wrong > 0) == ("3-D" in group), group
        assert right > 0 or "3-D" in group
    assert counts(report, "cubic")[0] > 0
    assert counts(report, "cubic")[1] == 0
    assert {made.group for made in report.reproducers} == {"tiled 3-D", "overlap 3-D"}
    tiled, overlap = (made.case for made in sorted(report.reproducers, key=lambda made: made.group == "overlap 3-D"))
    assert isinstance(tiled.pooling, Regular)
    assert isinstance(overlap.pooling, Regular)
    assert any(k > s for k, s in zip(overlap.pooling.window, overlap.pooling.stride, strict=True))
    assert len(set(tiled.input_shape[2:])) > 1


def test_a_reproducer_stands_alone() -> None:
    """What the kit prints for TensorFlow fails when it is pasted into a script."""
    pytest.importorskip("tensorflow")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    report = check("tensorflow", groups=["large window"])
    wrong = [made for made in report.reproducers if made.outcome == "wrong"]
    assert wrong, "float64 is always native in two dimensions"
    assert fails_alone(wrong[0].script)
