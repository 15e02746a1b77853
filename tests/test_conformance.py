"""The conformance kit: the suite is what it says, the judge sees what it should, and every planted mistake is caught."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import kernels
import ml_dtypes
import numpy as np
import pytest
from rich.console import Console

import poolgrad
from poolgrad import PoolGradValueError, exact
from poolgrad.conformance import GROUPS, NoTarget, Report, check, kit, suite
from poolgrad.conformance.case import Case, dtype_of, from_json
from poolgrad.conformance.judge import allowed, error, judge
from poolgrad.conformance.runner import Answer, Ended, Raised, Runner
from poolgrad.conformance.shrink import shrink, smaller
from poolgrad.conformance.targets import target_named
from poolgrad.conformance.worker import repeated
from poolgrad.dialects.pooling import Regular


@pytest.fixture(autouse=True)
def _kernels_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers look for the user's module where they are started."""
    monkeypatch.chdir(Path(__file__).parent)


def outcomes(report: Report) -> Counter[str]:
    return Counter(result.verdict.outcome for result in report.results)


# The suite.


def test_the_suite_is_fixed() -> None:
    """The same cases and numbers for everybody: a change of the suite is a change of this line."""
    digest = hashlib.sha256()
    for case in suite():
        digest.update(json.dumps(case.to_json()).encode() + case.dy().tobytes())
    assert digest.hexdigest()[:16] == "d22c401732ab3d2f"
    assert suite(seed=1) != suite()


@pytest.mark.parametrize("seed", range(3))
def test_the_suite_holds_what_it_says(seed: int) -> None:
    cases = suite(seed=seed)
    assert {case.group for case in cases} == set(GROUPS)
    assert len({case.name for case in cases}) == len(cases)
    regular = [case for case in cases if isinstance(case.pooling, Regular) and case.pool is not None]
    for case in cases:
        assert (case.pool is None) == (case.group == "hostile"), case
        sizes = case.pooling.sizes(case.input_shape)
        assert case.group == "cubic" or len(set(sizes)) == len(sizes) or case.group == "hostile", case
        if case.values == "plain" and case.dtype in ("float32", "float64") and case.dy().size < 300:
            assert np.unique(case.dy()).size == case.dy().size
    assert {len(case.pooling.window) for case in regular} == {1, 2, 3}
    assert {case.dtype for case in regular} == {"float16", "bfloat16", "float32", "float64"}
    assert {case.pooling.count for case in regular} == {"inside", "padded", "window"}
    assert any(case.pooling.ceil_mode for case in regular)
    assert any(case.pooling.divisor for case in regular)
    assert any(np.isnan(case.dy().astype(float)).any() for case in cases)
    assert any(0 in case.input_shape for case in regular)
    large = [case for case in regular if case.group == "large window"]
    assert all(k > n for case in large for k, n in zip(case.pooling.window, case.pooling.sizes(case.input_shape), strict=True))


def test_every_case_survives_json() -> None:
    for case in suite():
        assert from_json(json.loads(json.dumps(case.to_json()))) == case


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "max"}, "kind must be one of"),
        ({"colour": 3}, "not one of this format"),
        ({"dtype": "int8"}, "not known"),
        ({"input_shape": [1, -2, 3]}, "input_shape"),
        ({"dy_shape": [10**6, 10**6, 1]}, "more than poolgrad.exact takes"),
    ],
)
def test_a_record_that_is_no_case_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(poolgrad.PoolGradError, match=said):
        from_json({**suite(["tiled 1-D"])[0].to_json(), **change})


@pytest.mark.parametrize("arguments", [{"groups": ["no such"]}, {"groups": []}, {"limit": 0}])
def test_a_suite_that_does_not_exist_is_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PoolGradValueError, match=r"groups must be|limit must be"):
        suite(**arguments)


# The judge.


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_is_allowed_is_just_enough(dtype: str) -> None:
    """A result at the limit is right, the next one beyond it is not."""
    case = next(c for c in suite(["bfloat16" if dtype == "bfloat16" else "overlap 2-D"]) if c.terms > 3)
    case = replace(case, dtype=dtype)
    want, unit = case.want(), float(ml_dtypes.finfo(dtype_of(dtype)).eps)
    assert want is not None
    at = np.unravel_index(int(np.argmax(case.weight())), want.shape)
    step = 2.0 ** np.floor(np.log2(case.weight()[at])) * unit
    for ulps, outcome in ((allowed(case), "right"), (allowed(case) + 1, "wrong")):
        got = want.copy()
        got[at] = (np.float64(want[at]) - np.sign(np.float64(want[at])) * ulps * step).astype(want.dtype)
        verdict = judge(case, Answer((got,), 0.0), ())
        assert verdict.outcome == outcome, verdict
        assert verdict.ulps == pytest.approx(ulps, abs=0.51)


def test_what_is_allowed_follows_from_the_terms() -> None:
    """3×2 windows over an input at most, and two axes: 6 + 2·2; a 16-bit type has its own limit."""
    case = Case("x/0", Regular("NHWC", (5, 2), (2, 1), ((1, 2), (0, 0))), (1, 9, 7, 1), (1, 4, 6, 1))
    assert case.pool is not None
    assert case.terms == 6
    assert allowed(case) == allowed(replace(case, dtype="float64")) == 10
    assert allowed(replace(case, dtype="float16")) == allowed(replace(case, dtype="bfloat16")) == 2


@pytest.mark.parametrize("wrong", [np.nan, np.inf, 0.0])
def test_nan_and_infinity_have_their_places(wrong: float) -> None:
    case = next(c for c in suite(["special"]) if c.dtype == "float32")
    want = case.want()
    assert want is not None
    for kind in (np.isnan, np.isinf, np.isfinite):
        for at in np.argwhere(kind(want))[:1]:
            got = want.copy()
            if not np.array_equal(got[tuple(at)], np.float32(wrong), equal_nan=True):
                got[tuple(at)] = wrong
                assert error(got, want, case.weight())[tuple(at)] > (0 if wrong == 0.0 and np.isfinite(want[tuple(at)]) else 1e30)


def test_a_hostile_call_must_be_refused() -> None:
    case = suite(["hostile"])[0]
    zeros = np.zeros(case.input_shape, dtype=case.dtype)
    assert judge(case, Raised(("ValueError", "Exception"), "no"), ()).outcome == "right"
    assert judge(case, Ended("killed by SIGFPE"), ()).outcome == "crashed"
    empty, full = (next(c for c in suite(["hostile"]) if (0 in c.dy_shape) == none) for none in (True, False))
    assert judge(empty, Answer((np.zeros(empty.input_shape, empty.dtype),), 0.0), ()).outcome == "right"
    assert judge(empty, Answer((np.ones(empty.input_shape, empty.dtype),), 0.0), ()).outcome == "wrong"
    assert judge(full, Answer((np.zeros(full.input_shape, full.dtype),), 0.0), ()).outcome == "wrong"
    assert zeros.shape == case.input_shape


# The whole kit on kernels of the user's own.


def test_the_right_kernel_is_right() -> None:
    report = check("kernels:right", limit=4)
    assert report.ok, [r.verdict.note for r in report.results if r.verdict.outcome in ("wrong", "crashed")]
    assert outcomes(report)["right"] > 80
    assert not report.reproducers


def test_our_own_is_right() -> None:
    """Every case of the suite, and the times are those of both."""
    report = check("poolgrad:avg_pool_grad")
    assert report.ok
    assert outcomes(report)["unsupported"] == sum(not isinstance(case.pooling, Regular) for case in suite())
    assert all(group.seconds > 0 and group.ours > 0 for group in report.groups if group.right and group.group != "hostile")


@pytest.mark.parametrize("name", kernels.BUGS)
def test_each_planted_mistake_is_caught(name: str) -> None:
    """And the reproducer, made small, fails on its own for the same reason."""
    report = check(f"kernels:{name}", limit=2)
    assert not report.ok
    assert outcomes(report)["crashed"] == 0
    made = report.reproducers[0]
    assert made.case.size <= min(r.case.size for r in report.results if r.verdict.outcome == "wrong")
    with pytest.raises(AssertionError):
        exec(compile(made.script, "reproducer", "exec"), {})


EXPECTED = {
    "right_the_first_time": ("wrong", "elements are off"),
    "ceil_ignored": ("wrong", "elements are off"),
    "changes_dy": ("wrong", "changed the array dy"),
    "wrong_shape": ("wrong", "returned shape"),
    "wrong_dtype": ("wrong", "returned dtype"),
    "not_an_array": ("wrong", "returned builtins.list"),
    "raises": ("crashed", "raised IndexError"),
    "crashes": ("crashed", "killed by SIGSEGV"),
    "exits": ("crashed", "exited with code 7: leaving early"),
    "hangs": ("crashed", "did not return within 1 seconds"),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_each_misbehaviour_is_a_result(name: str) -> None:
    outcome, note = EXPECTED[name]
    report = check(f"kernels:{name}", groups=["ceil", "overlap 2-D"], limit=5, timeout=1, shrinking=False)
    found = [result for result in report.results if result.verdict.outcome == outcome]
    assert found
    assert all(note in result.verdict.note for result in found)
    assert outcomes(report)["right"] > 0 or name not in ("crashes", "hangs", "ceil_ignored")


def test_what_a_kernel_does_not_serve_is_no_failure() -> None:
    report = check("kernels:float32_only", groups=["tiled 2-D", "tiled 3-D"])
    assert report.ok
    assert outcomes(report) == {"right": 8, "unsupported": 16}


def test_a_kernel_that_serves_nothing_is_not_ok() -> None:
    report = check("kernels:float32_only", groups=["float16"], limit=2)
    assert (report.ok, report.verdict) == (False, "nothing tested")


def test_a_limit_of_no_cases_is_refused() -> None:
    with pytest.raises(PoolGradValueError, match="limit must be at least 1"):
        check("kernels:right", limit=0)


def test_a_budget_takes_a_case_of_every_group_first(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = replace(target_named("kernels:right"), limit=2, budget=1e9)
    monkeypatch.setattr(kit, "target_named", lambda _: slow)
    report = check("slow", groups=["cubic", "gaps"])
    assert [result.case.group for result in report.results] == ["cubic", "gaps", "cubic", "gaps"]
    assert report.notes[0].startswith("Left out: 26 of 30 cases")
    monkeypatch.setattr(kit, "target_named", lambda _: replace(slow, budget=0.0))
    report = check("slow", groups=["cubic", "gaps"])
    assert not report.ok
    assert "of cubic, gaps none was tried" in report.notes[0]
    report = check("slow", groups=["cubic", "gaps"], limit=1)
    assert (len(report.results), report.notes) == (2, ())


# Shrinking.


def test_shrinking_finds_the_essence() -> None:
    """The smallest case with a stride below its window and an end padding, whatever else it began with."""

    def fails(case: Case) -> bool:
        pooling = case.pooling
        assert isinstance(pooling, Regular)
        rows = zip(pooling.window, pooling.stride, pooling.padding, strict=True)
        return any(k > s and pads[1] for k, s, pads in rows)

    start = next(case for case in suite(["asymmetric"]) if fails(case) and len(case.pooling.window) == 3)
    small = shrink(start, fails, 30)
    assert fails(small)
    assert sorted(small.pooling.window) == [1, 1, 2]
    assert small.input_shape == (1,) * 5
    assert small.values == "counting"


def test_what_is_proposed_keeps_its_kind() -> None:
    for case in suite(limit=3):
        for candidate in smaller(case):
            assert (candidate.pool is None) == (case.pool is None)
            assert candidate != case


# Workers, targets, reports.


def test_a_crash_after_a_spoiled_call_is_blamed_on_neither() -> None:
    """A worker that dies is replaced, and the call is tried again alone."""
    source = "import os, sys\nstate = sys.modules\ndef grad(dy):\n    if 'spoiled' in state: os._exit(9)\n    return dy"
    spoil = "import sys\ndef grad(dy):\n    sys.modules['spoiled'] = sys\n    return dy"
    dy = np.ones(2)
    with Runner() as runner:
        assert isinstance(runner.call(spoil, dy, 30), Answer)
        assert isinstance(runner.call(source, dy, 30), Answer)


def test_a_slow_call_is_made_twice_and_a_quick_one_more_often() -> None:
    assert len(repeated(lambda: time.sleep(0.03))[0]) == 2
    assert len(repeated(lambda: None)[0]) == 20


def test_bfloat16_travels() -> None:
    dy = np.array([1.5, np.nan, -0.0], dtype=ml_dtypes.bfloat16)
    with Runner() as runner:
        outcome = runner.call("def grad(dy): return dy[::-1]", dy, 30)
    assert isinstance(outcome, Answer)
    assert outcome.arrays[0].dtype == dy.dtype
    assert outcome.arrays[0].view(np.uint16).tolist() == dy.view(np.uint16)[::-1].tolist()


@pytest.mark.parametrize(
    ("target", "python", "error", "said"),
    [
        ("nothing", None, PoolGradValueError, "target must be one of 'torch'"),
        ("kernels:", None, PoolGradValueError, "package.module:function"),
        ("os;x:y", None, PoolGradValueError, "package.module:function"),
        ("kernels:missing", None, NoTarget, "cannot import name 'missing'"),
        ("no_such_module:grad", None, NoTarget, "No module named 'no_such_module'"),
        ("kernels:right", "/no/such/python", NoTarget, "cannot start /no/such/python"),
        ("kernels:right", "/bin/true", NoTarget, "cannot run the worker"),
    ],
)
def test_a_target_that_cannot_run_is_refused(target: str, python: str | None, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        check(target, python=python, groups=["cubic"])


def test_reports_say_it_all(capsys: pytest.CaptureFixture[str]) -> None:
    report = check("kernels:dropped_pad", groups=["same", "layouts", "adaptive"], limit=3)
    record = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert record["schema"] == 1
    assert not record["ok"]
    assert [row["group"] for row in record["groups"]] == ["same", "layouts", "adaptive", "all"]
    assert record["groups"][-1]["right"] + record["groups"][-1]["wrong"] + record["groups"][-1]["unsupported"] == 9
    assert all(from_json(row["case"]) for row in record["results"])
    assert record["reproducers"][0]["script"] == report.reproducers[0].script
    page = report.to_html()
    for text in ("dropped_pad", "elements are off", "Smallest failing cases", "import kernels as kernel"):
        assert text in page
    assert "http" not in page
    assert "<script" not in page
    report.print()
    said = capsys.readouterr().out
    for text in ("same", "unsupported", "worst ulps", "Smallest case: wrong", "functions are called with regular windows only"):
        assert text in said


def test_the_page_quotes_what_it_is_told() -> None:
    report = check("kernels:raises", groups=["cubic"], limit=1, shrinking=False)
    result = report.results[0]
    hostile = replace(report, results=(replace(result, verdict=replace(result.verdict, note="<script>alert(1)</script>")),))
    assert "<script" not in hostile.to_html()


def test_the_judge_agrees_with_the_oracle() -> None:
    case = suite(["overlap 2-D"])[0]
    assert case.pool is not None
    dy = case.dy()
    assert (case.want() == exact.gradient(case.pool, dy, case.pooling.layout)).all()


def test_the_reproducer_on_the_terminal_can_be_pasted() -> None:
    report = check("kernels:ceil_ignored", groups=["ceil"], limit=6)
    console = Console(width=40, file=io.StringIO())
    report.print(console)
    assert report.reproducers[0].script in console.file.getvalue()  # type: ignore[attr-defined]


def test_what_cannot_be_called_is_no_target() -> None:
    with pytest.raises(NoTarget, match="os:path is no function"):
        check("os:path", limit=1)
