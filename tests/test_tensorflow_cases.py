"""Calls that the real TensorFlow 2.21 has answered (`cases/tensorflow.npz`, `cases/tensorflow_errors.json`).

An answer agrees within the rounding of its type, with TensorFlow's own roundings allowed for where the file has no
float64 truth; integers and sequences agree exactly. A call that TensorFlow crashes on, corrupts memory on or answers by
guessing is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import Array

from poolgrad import PoolGradError, raw_ops

CASES = Path(__file__).parent / "cases"
SAVED = np.load(CASES / "tensorflow.npz")
ANSWERED = json.loads(SAVED["meta"].tobytes())["cases"]
ATTEMPTED = json.loads((CASES / "tensorflow_errors.json").read_text(encoding="utf-8"))
DTYPES = {name: np.dtype(getattr(ml_dtypes if name == "bfloat16" else np, name)) for name in
          ("float16", "bfloat16", "float32", "float64", "int32", "int64")}  # fmt: skip
DISAGREEING = {150: "batch 1 for a shape of batch 2", 132: "rows [0, 3, 1]", 143: "rows [0, 3, 1], overlapping"}


def saved(kind: str, case: dict[str, Any]) -> Array:
    """bfloat16 is stored as float32."""
    values = SAVED[f"{kind}_{case['id']:03d}"]
    return values if kind == "ref" else values.astype(DTYPES[case["dtype"]])


def answer(case: dict[str, Any], fed: Array) -> Any:
    op = getattr(raw_ops, case["op"])
    if case["op"] == "FractionalAvgPool":
        drawn = {name: case[name] for name in ("pseudo_random", "overlapping", "seed", "seed2")}
        return op(fed, case["ratio"], deterministic=True, **drawn)
    if case["op"] == "FractionalAvgPoolGrad":
        return op(case["shape"], fed, case["rows"], case["cols"], overlapping=case["overlapping"])
    window = {name: case[name] for name in ("ksize", "strides", "padding", "data_format")}
    return op(case["shape"], fed, **window) if case["op"].endswith("Grad") else op(fed, **window)


def assert_within(got: Array, want: Array, size: Array, units: float) -> None:
    """Within `units` of the last place of `got`'s type at `size`, the same sum over absolute values."""
    assert got.shape == want.shape
    finite = np.isfinite(want)
    np.testing.assert_array_equal(got[~finite].astype(np.float64), want[~finite].astype(np.float64))
    size = abs(size[finite])
    unit = np.nextafter(size, np.array(np.inf, dtype=size.dtype)).astype(np.float64) - size.astype(np.float64)
    error = abs(got[finite].astype(np.float64) - want[finite].astype(np.float64))
    assert (error <= units * unit).all(), f"{(error / unit).max()} units of the last place, {units} allowed"


def terms(case: dict[str, Any]) -> int:
    """How many numbers TensorFlow may have added up in its own type."""
    return int(np.prod(case["ksize"])) if "ksize" in case else 9


@pytest.mark.parametrize("case", ANSWERED, ids=lambda case: f"{case['id']:03d}-{case['op']}-{case['dtype']}")
def test_answer_of_tensorflow(case: dict[str, Any]) -> None:
    fed, theirs = saved("in", case), saved("out", case)
    if case["id"] in DISAGREEING:
        with pytest.raises(PoolGradError):
            answer(case, fed)
        return
    ours = answer(case, fed)
    if case["op"] == "FractionalAvgPool":
        np.testing.assert_array_equal(ours.row_pooling_sequence, SAVED[f"row_{case['id']:03d}"])
        np.testing.assert_array_equal(ours.col_pooling_sequence, SAVED[f"col_{case['id']:03d}"])
        assert ours.row_pooling_sequence.dtype == ours.col_pooling_sequence.dtype == np.int64
        ours, size = ours.output, answer(case, abs(fed)).output
    else:
        size = answer(case, abs(fed))
    assert ours.dtype == theirs.dtype
    if ours.dtype.kind == "i":
        np.testing.assert_array_equal(ours, theirs)
        return
    truth = f"ref_{case['id']:03d}" in SAVED
    if truth:
        assert_within(ours, saved("ref", case), size, 2)
    if case.get("native_divisor_bug"):
        with pytest.raises(AssertionError):
            assert_within(theirs, saved("ref", case), size, 1000)
    else:
        assert_within(ours, theirs, size, 2 * terms(case) + 4)


def test_every_case_is_there() -> None:
    assert len(ANSWERED) == len(ATTEMPTED) == 128
    assert sum(f"ref_{case['id']:03d}" in SAVED for case in ANSWERED) > 80
    assert sum(bool(case.get("native_divisor_bug")) for case in ANSWERED) >= 4
    assert {case["id"] for case in ANSWERED} >= set(DISAGREEING)


def results_digest() -> str:
    """A digest of every answer's bits."""
    digest = hashlib.sha256()
    for case in ANSWERED:
        if case["id"] not in DISAGREEING:
            ours = answer(case, saved("in", case))
            digest.update(np.ascontiguousarray(ours if isinstance(ours, np.ndarray) else ours.output).tobytes())
    return digest.hexdigest()


@pytest.mark.parametrize("engine", ["native", "numpy"])
def test_every_engine_gives_the_same_bits(engine: str) -> None:
    if engine == "native":
        pytest.importorskip("poolgrad.engines._native")
    environment = {**os.environ, "POOLGRAD_ENGINE": engine, "PYTHONPATH": os.pathsep.join(sys.path)}
    script = "import test_tensorflow_cases; print(test_tensorflow_cases.results_digest())"
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [results_digest()]


# TensorFlow refuses (one engine or both); these are right and served here.
SERVED = {
    "AP NCHW f32": "channels first",
    "AP NCHW f64": "channels first",
    "AP NCHW f32 graph": "channels first",
    "AP3G NCDHW": "channels first",
    "AP3 f64": "a dtype without a 3-D kernel",
    "AP3G f16": "a dtype without a 3-D kernel",
    "FP f16": "a half type",
    "FG f16": "a half type",
    "AP k>in VALID in3 k6 s2 graph": "an empty result, as in eager mode",
    "FG [0,0,4] nonov (end=-1)": "an empty first cell, as an empty later one",
}

# TensorFlow answers (one engine or both); there is no right answer, and these are refused here.
REFUSED = {
    "AP ksize len5": "ksize of 5",
    "AP depthwise k": "channels",
    "AP3 kdepth": "channels",
    "APG ksize0": "ksize 0",
    "APG ksize0 SAME": "ksize 0",
    "APG ksize-2 SAME": "ksize -2",
    "APG s len5": "strides of 5",
    "APG h0 grad anything": "shapes disagree",
    "APG batch0 grad nonempty": "shapes disagree",
    "APG VALID k>n grad nonempty": "the output is empty, grad is not",
    "APG grad batch fewer": "shapes disagree",
    "APG xla wrong grad shape": "shapes disagree",
    "AP3G VALID k>n ones": "the output is empty, grad is not",
    "AP3G f32 FPE issue": "the output is empty, grad is not",
    "AP3G grad spatial too big 5": "shapes disagree",
    "AP3G grad too big k1s1 9": "shapes disagree",
    "AP3G grad empty": "shapes disagree",
    "FG nonmonotonic [0,3,1]": "a decreasing sequence",
    "FG nonmonotonic ov [0,3,1]": "a decreasing sequence",
    "FG depth fewer": "shapes disagree",
}


def attempt(call: dict[str, Any]) -> Any:
    call = {name: value for name, value in call.items() if name != "mode"}
    op, dtype, fill = getattr(raw_ops, call.pop("op")), DTYPES[call.pop("dtype")], call.pop("val")
    shape = call.pop("grad_shape", None)
    forwards = shape is None
    # Without a copy: some of these arrays are large.
    array = np.broadcast_to(np.array(fill).astype(dtype), call.pop("shape") if forwards else shape)
    name = ("input" if op is raw_ops.AvgPool3D else "value") if forwards else ("grad" if "ksize" in call else "out_backprop")
    return op(**{name: array}, **call)


@pytest.mark.parametrize("case", ATTEMPTED, ids=lambda case: case["name"].replace(" ", "-"))
def test_attempt_ends_well(case: dict[str, Any]) -> None:
    engines = [case["native"], case["onednn"]]
    answered = [engine for engine in engines if engine[0] == "OK"]
    if case["memory_unsafe"] or case["name"] in REFUSED or (not answered and case["name"] not in SERVED):
        with pytest.raises(PoolGradError) as refusal:
            attempt(case["call"])
        assert len(str(refusal.value)) > 20
        return
    assert len(answered) == 2 or case["name"] in SERVED
    result = attempt(case["call"])
    ours = result.output if case["call"]["op"] == "FractionalAvgPool" else result
    for _, shape, dtype, values in answered:
        assert (ours.shape, ours.dtype) == (tuple(shape), DTYPES[dtype])
        np.testing.assert_allclose(ours.ravel()[: len(values)].astype(np.float64), values, rtol=0, atol=1e-6)
    if case["name"] in SERVED:
        check_served(case["call"], ours)


def check_served(call: dict[str, Any], ours: Array) -> None:
    """The average of a constant is the constant; a gradient hands on all it got, but for an empty cell's share."""
    assert ours.dtype == DTYPES[call["dtype"]]
    if "grad_shape" not in call:
        np.testing.assert_array_equal(ours.astype(np.float64), call["val"])
        return
    lost = 0.5 if call.get("row_pooling_sequence") == [0, 0, 4] else 1.0
    assert float(ours.astype(np.float64).sum()) == pytest.approx(lost * call["val"] * np.prod(call["grad_shape"]))


def test_the_lists_of_exceptions_name_real_attempts() -> None:
    names = {case["name"]: case for case in ATTEMPTED}
    assert {*SERVED, *REFUSED} <= set(names)
    for name in REFUSED:
        assert "OK" in (names[name]["native"][0], names[name]["onednn"][0])
    for name in SERVED:
        assert "OK" not in (names[name]["native"][0], names[name]["onednn"][0]) or "NC" in name


def zeros(*shape: int, dtype: Any = np.float32) -> Array:
    return np.zeros(shape, dtype=dtype)


BOXES = {"ksize": [1, 1, 1, 1], "strides": [1, 1, 1, 1]}
CUBES = {"ksize": [1, 1, 1, 1, 1], "strides": [1, 1, 1, 1, 1]}
HALVES = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
TRIGGERS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any]]] = {
    "CVE-2021-29577": ("AvgPool3DGrad", ([10, 6, 3, 7, 7], zeros(3, 1, 1, 1, 1) + 0.01), {**CUBES, "padding": "SAME"}),
    "CVE-2021-29578": ("FractionalAvgPoolGrad", ([1, 3, 2, 3], zeros(1, 1, 1, 1, dtype=np.int64) + 2, [1], [1]), {}),
    "CVE-2021-37651": (
        "FractionalAvgPoolGrad", ([0, 1, 2, 3], zeros(1, 2, 2, 1) + 541, [0] * 5, [-2, 0, 0, 2, 0]), {"overlapping": True}
    ),
    "CVE-2021-41196-zero": ("AvgPool3D", (zeros(1, 4, 4, 4, 1), [1, 0, 0, 0, 1], [1, 1, 1, 1, 1], "VALID"), {}),
    "CVE-2021-41196-negative": ("AvgPool", (zeros(1, 4, 4, 1), [1, -1, 2, 1], [1, 1, 1, 1], "SAME"), {}),
    "CVE-2022-21725": (
        "AvgPoolGrad", ([1, 1, 1, 1], zeros(3, 1, 3, 1), [1, 1, 1, 1], [1, 1, 1, 0], "VALID", "NCHW"), {}
    ),
    "CVE-2022-21730": (
        "FractionalAvgPoolGrad",
        ([2, 2, 2, 2], np.arange(1, 13, dtype=np.int32).reshape(1, 2, 3, 2), [-10, 1, 2, 3], [1, 2, 3, 4]),
        {"overlapping": True},
    ),
    "CVE-2022-35941-float": ("AvgPool", (zeros(1, 1, 1, 1), [1, 1e20, 1, 1], [1, 1, 1, 1], "SAME"), {}),
    "CVE-2022-35941-int": ("AvgPool", (zeros(1, 1, 1, 1), [1, 10**20, 1, 1], [1, 1, 1, 1], "SAME"), {}),
    "CVE-2022-35959": ("AvgPool3DGrad", ([-536870912] * 5, zeros(1, 3, 5, 4, 1)), {**CUBES, "padding": "VALID"}),
    "CVE-2022-35963": (
        "FractionalAvgPoolGrad",
        ([-1879048192] * 4, zeros(0, 0, 0, 0, dtype=np.float64), [1] * 4, [1] * 4),
        {"overlapping": True},
    ),
    "CVE-2022-35968": ("AvgPoolGrad", ([-536870912] * 4, zeros(1, 5, 7, 1, dtype=np.float64) + 0.089), HALVES),
    "CVE-2022-41900-half": ("FractionalAvgPool", (zeros(3, 30, 30, 3), [1, 0.5, 1, 1]), {}),
    "CVE-2022-41900-negative": ("FractionalAvgPool", (zeros(3, 30, 30, 3), [1, -1, 1, 1]), {}),
    "CVE-2023-25664": (
        "AvgPoolGrad", ([11, 9, 78, 9], zeros(16, 16, 16, 16), [1, 40, 128, 1], [1, 128, 128, 30], "SAME"), {}
    ),
    "CVE-2023-25669": (
        "AvgPoolGrad", ([1, 0, 0, 0], zeros(1, 1, 1, 1), [1, 0, 0, 0], [1, 0, 0, 0], "SAME", "NCHW"), {}
    ),
    "CVE-2023-25801-batch": ("FractionalAvgPool", (zeros(3, 30, 50, 3), [2, 2, 1, 1]), {}),
    "CVE-2023-25801-channels": ("FractionalAvgPool", (zeros(3, 30, 50, 3), [1, 3, 1.5, 2]), {}),
    "issue-63353": ("AvgPoolGrad", ([1, 28, 28, 3], zeros(1, 14, 14, 6, dtype=np.float64)), HALVES),
    "issue-64642": ("AvgPoolGrad", ([2, 2, 2, 2], zeros(2, 3, 3, 3)), {**BOXES, "padding": "VALID"}),
    "issue-107123": ("FractionalAvgPoolGrad", ([1, 3, 3, 1], zeros(4, 1, 1, 1), [1, 2, 3], [1, 2, 3]), {}),
    "issue-94119": (
        "AvgPool3DGrad", ([6, 8, 5, 1, 4], zeros(6, 8, 5, 1, 4), [1, 2, 2, 2, 1], [1, 1, 1, 1, 1], "VALID"), {}
    ),
    "issue-110797": ("AvgPool3DGrad", ([2, 3, 3, 3, 3], zeros(6, 2)), {**CUBES, "padding": "VALID"}),
    "issue-74956": ("AvgPool3DGrad", (1879048192, zeros()), {**CUBES, "padding": "SAME"}),
    "shape-of-rank-0": ("AvgPoolGrad", (np.int32(4), zeros(1, 2, 2, 1)), HALVES),
    "shape-of-rank-2": ("AvgPoolGrad", (np.array([[1, 4, 4, 1]], np.int32), zeros(1, 2, 2, 1)), HALVES),
    "empty-output-non-empty-grad": (
        "AvgPoolGrad", ([1, 3, 3, 1], zeros(1, 1, 1, 1), [1, 4, 4, 1], [1, 1, 1, 1], "VALID"), {}
    ),
    "grad-too-small": ("AvgPoolGrad", ([1, 4, 4, 1], zeros(1, 1, 2, 1)), HALVES),
}  # fmt: skip


@pytest.mark.parametrize("trigger", TRIGGERS)
def test_trigger_is_refused(trigger: str) -> None:
    op, arguments, named = TRIGGERS[trigger]
    with pytest.raises(PoolGradError) as refusal:
        getattr(raw_ops, op)(*arguments, **named)
    assert len(str(refusal.value)) > 20


def test_same_with_a_window_larger_than_the_input_divides_rightly() -> None:
    """Issue 48773: TensorFlow's own kernel answers [.75, 1.0833, 1.0833, 1.0833]."""
    ours = raw_ops.AvgPoolGrad([1, 1, 4, 1], np.ones((1, 1, 4, 1)), [1, 1, 5, 1], [1, 1, 1, 1], "SAME")
    np.testing.assert_allclose(ours.ravel(), [5 / 6, 7 / 6, 7 / 6, 5 / 6], rtol=1e-15)
