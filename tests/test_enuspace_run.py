"""Pages that run: their results are poolgrad's own, their mistakes are named with block, cause and cure."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from support import assert_same_bits, random_array

import poolgrad
from poolgrad import raw_ops
from poolgrad.enuspace import (
    Block,
    LogEntry,
    Page,
    Report,
    Runner,
    block_rows,
    corrected_page,
    documented_page,
    element_rows,
    open_page,
    read,
    run_file,
    save_page,
)
from poolgrad.errors import PoolGradValueError

CASES = Path(__file__).parent / "cases" / "enuspace"


def page_of(symbol: str, inputs: dict[str, Any], **properties: str) -> Page:
    """A page with one block, its inputs from Const blocks, and a session."""
    page = Page("test")
    target = page.add(symbol, "target", **properties)
    for name, array in inputs.items():
        page.connect(constant(page, name, array), "output", target, name)
    page.connect(target, "output", page.add("ClientSession", "session"), "fetch_outputs")
    return page


def constant(page: Page, name: str, array: Any) -> Block:
    if array.dtype in (np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.int32)):
        return page.add("Const", f"in_{name}", val=array)
    block = page.add("Const_ex", f"in_{name}", val=array, dtype=DATATYPE[array.dtype])
    return block


DATATYPE = {
    np.dtype(np.int64): "DT_INT64",
    np.dtype(np.float16): "DT_HALF",
    np.dtype(ml_dtypes.bfloat16): "DT_BFLOAT16",
    np.dtype(np.bool_): "DT_BOOL",
}


def errors(report: Report) -> dict[str, str]:
    return {entry.block: entry.message for entry in report.log if entry.severity == "error"}


def outcome(page: Page) -> dict[str, str]:
    return errors(Runner(page).run())


@pytest.mark.parametrize("name", ["basic.svg", "basic.json"])
def test_the_samples_open_and_name_the_block_that_cannot_run(name: str) -> None:
    report = run_file(CASES / name)
    assert not report.ok
    assert "the block Add cannot run here" in errors(report)["ID_1hvgdT0"]
    assert "ID_1hvgdT0" in errors(report)["ID_1hvfQR0"]
    states = {state.block: state.state for state in report.blocks}
    assert states == {"ID_1hvfQR0": "blocked", "ID_1hvfQV0": "done", "ID_1hvgd641": "done", "ID_1hvgdT0": "failed"}
    rows = [(row.type, row.name, row.value) for row in report.watch if row.block == "ID_1hvfQV0"]
    assert rows[:3] == [("double", "val[2][2]", "4 elements"), ("double", "val[0][0]", "1"), ("double", "val[0][1]", "2")]


def test_the_documented_page_is_told_its_mistake() -> None:
    message = outcome(documented_page())["pool"]
    assert "got (2, 2, 2, 2, 2)" in message
    assert "give grad the shape [2][1][1][1][2]" in message
    assert "make orig_input_shape 2,8,6,4,2" in message


def test_both_cures_work() -> None:
    runner = Runner(corrected_page())
    assert runner.run().ok
    assert runner.value("pool", "output").ravel().tolist() == [1, 3, 5, 7]
    other = documented_page()
    other.block("shape").pins[1].value = "2,8,6,4,2"
    runner = Runner(other)
    assert runner.run().ok
    grad = np.arange(1, 33, dtype=np.float32).reshape(2, 2, 2, 2, 2)
    want = poolgrad.avg_pool_grad(grad, (2, 8, 6, 4, 2), (4, 3, 2), stride=(4, 3, 2), padding="same", layout="NDHWC")
    assert_same_bits(runner.value("pool", "output"), want)


REGULAR = [
    ("AvgPool", "NHWC", (2, 7, 5, 3), (3, 2), (2, 1), "SAME"),
    ("AvgPool", "NCHW", (2, 3, 7, 5), (2, 3), (1, 2), "VALID"),
    ("AvgPool3D", "NDHWC", (1, 4, 7, 5, 3), (2, 3, 4), (1, 2, 3), "SAME"),
    ("AvgPool3D", "NCDHW", (1, 3, 4, 7, 5), (3, 2, 4), (2, 1, 1), "VALID"),
]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize(("symbol", "layout", "shape", "window", "stride", "padding"), REGULAR)
def test_results_are_the_cores_to_the_bit(
    symbol: str, layout: str, shape: tuple[int, ...], window: Any, stride: Any, padding: str, dtype: Any
) -> None:
    def spread(values: tuple[int, ...]) -> str:
        rest = iter(values)
        return ",".join(str(1 if letter in "NC" else next(rest)) for letter in layout)

    texts = {"ksize": spread(window), "strides": spread(stride), "padding": padding, "attrs": f"data_format_ = {layout};"}
    options: Any = {"stride": stride, "padding": padding.lower(), "layout": layout}
    x = random_array(3, shape, np.dtype(dtype))
    y = poolgrad.avg_pool(x, window, **options)
    runner = Runner(page_of(symbol, {"value" if symbol == "AvgPool" else "input": x}, **texts))
    assert runner.run().ok, runner.log
    assert_same_bits(runner.value("target", "result_output"), y)

    dy = random_array(5, y.shape, np.dtype(dtype))
    sizes = tuple(n for n, letter in zip(shape, layout, strict=True) if letter not in "NC")
    want = poolgrad.avg_pool_grad(dy, shape, window, **options)
    runner = Runner(page_of(f"{symbol}Grad", {"orig_input_shape": np.array(shape, np.int32), "grad": dy}, **texts))
    assert runner.run().ok, runner.log
    assert_same_bits(runner.value("target", "output"), want)
    rows = zip(sizes, window, stride, strict=True)
    axes = tuple(poolgrad.Axis.regular(n, k, stride=s, padding=padding.lower()) for n, k, s in rows)
    assert read(texts, shape).pool(shape) == poolgrad.Pool(axes)


def test_the_fractional_pair() -> None:
    x = random_array(7, (2, 11, 9, 3), np.dtype(np.float64))
    page = Page("fractional")
    pool = page.add(
        "FractionalAvgPool",
        "pool",
        pooling_ratio="1.0,1.44,1.73,1.0",
        attrs="pseudo_random_ = true; overlapping_ = true; deterministic_ = true; seed_ = 5; seed2_ = 9;",
    )
    grad = page.add("FractionalAvgPoolGrad", "grad", attrs="overlapping_ = true;")
    session = page.add("ClientSession", "session")
    page.connect(constant(page, "value", x), "output", pool, "value")
    page.connect(constant(page, "shape", np.array(x.shape, np.int64)), "output", grad, "orig_input_tensor_shape")
    for pin in ("row_pooling_sequence", "col_pooling_sequence"):
        page.connect(pool, pin, grad, pin)
    page.connect(pool, "output", grad, "out_backprop")
    page.connect(grad, "output", session, "fetch_outputs")
    runner = Runner(page)
    assert runner.run().ok, runner.log
    direct = raw_ops.FractionalAvgPool(
        x, [1.0, 1.44, 1.73, 1.0], pseudo_random=True, overlapping=True, deterministic=True, seed=5, seed2=9
    )
    for pin, want in direct._asdict().items():
        assert_same_bits(runner.value("pool", pin), want)
        assert ("pool", f"result_{pin}") in runner.results()
    sequences = (direct.row_pooling_sequence, direct.col_pooling_sequence)
    want = poolgrad.fractional_avg_pool_grad(direct.output, x.shape, sequences, overlapping=True, layout="NHWC")
    assert_same_bits(runner.value("grad", "output"), want)


def test_a_page_gives_what_tensorflow_gives() -> None:
    tf = pytest.importorskip("tensorflow")
    dy = random_array(1, (1, 2, 3, 3, 2), np.dtype(np.float32))
    arguments: Any = {"ksize": [1, 2, 3, 2, 1], "strides": [1, 2, 2, 2, 1], "padding": "SAME"}
    want = tf.raw_ops.AvgPool3DGrad(orig_input_shape=[1, 4, 6, 5, 2], grad=dy, **arguments).numpy()
    inputs = {"orig_input_shape": np.array([1, 4, 6, 5, 2], np.int32), "grad": dy}
    page = page_of("AvgPool3DGrad", inputs, ksize="1,2,3,2,1", strides="1,2,2,2,1", padding="SAME")
    runner = Runner(page)
    assert runner.run().ok
    np.testing.assert_allclose(runner.value("target", "output"), want, rtol=1e-6)


SHAPE, GRAD = np.array([1, 4, 5, 2], np.int32), random_array(2, (1, 2, 2, 2), np.dtype(np.float32))
TEXTS = {"ksize": "1,2,3,1", "strides": "1,2,3,1", "padding": "SAME"}
MISTAKES: list[tuple[str, Any, Any, dict[str, str], str]] = [
    ("floats for a shape", SHAPE.astype(np.float64), GRAD, {}, "feed orig_input_shape from a Const_ex"),
    ("integers for a gradient", SHAPE, GRAD.astype(np.int32), {}, "Const that feeds grad to float"),
    ("booleans for a gradient", SHAPE, GRAD > 0, {}, "Const that feeds grad to float"),
    ("a short shape", SHAPE[:3], GRAD, {}, "give orig_input_shape 4 values"),
    ("a flat gradient", SHAPE, GRAD.ravel(), {}, "grad 4 axes"),
    ("a wrong batch", np.array([3, 4, 5, 2], np.int32), GRAD, {}, "give grad the shape [3][2][2][2]"),
    ("a negative size", np.array([1, -4, 5, 2], np.int32), GRAD, {}, "orig_input_shape"),
    ("a huge size", np.array([1, 2**30, 2**30, 2], np.int32), GRAD, {}, "grad"),
    ("a window over channels", SHAPE, GRAD, {"ksize": "1,2,3,2"}, "channels"),
    ("an empty ksize", SHAPE, GRAD, {"ksize": ""}, "ksize is empty"),
    ("a bad number", SHAPE, GRAD, {"strides": "1,2,x,1"}, "item 3 of '1,2,x,1' is not an integer"),
    ("no padding", SHAPE, GRAD, {"padding": ""}, "SAME or VALID"),
    ("a 3-D format", SHAPE, GRAD, {"attrs": "data_format_ = NDHWC;"}, "write data_format_ = NHWC;"),
]


@pytest.mark.parametrize(("what", "shape", "grad", "changed", "said"), MISTAKES, ids=[m[0] for m in MISTAKES])
def test_mistakes_are_named_with_their_cure(what: str, shape: Any, grad: Any, changed: dict[str, str], said: str) -> None:
    found = outcome(page_of("AvgPoolGrad", {"orig_input_shape": shape, "grad": grad}, **{**TEXTS, **changed}))
    assert said in found["target"], found


def test_3d_default_runs_and_enuspaces_own_does_not() -> None:
    page = corrected_page()
    assert page.block("pool").text("attrs") == "data_format_ = NDHWC;"
    pin = page.block("pool").pin("attrs")
    assert pin is not None
    pin.value = "data_format_ = NHWC;"
    assert "write data_format_ = NDHWC;" in outcome(page)["pool"]


def test_an_undersized_value_list_and_a_bad_number() -> None:
    page = corrected_page()
    pin = page.block("gradient").pin("val")
    assert pin is not None
    pin.value = "1;3;5"
    assert "3 values for the shape [2][1][1][1][2]" in outcome(page)["gradient"]
    pin.value = "1;3;5;x"
    found = outcome(page)
    assert "item 4" in found["gradient"]
    assert "needs gradient, which failed" in found["pool"]
    assert "needs pool, which did not run" in found["session"]


def test_one_mistake_does_not_hide_the_rest() -> None:
    page = corrected_page()
    other = page.add("Const", "other", val=np.float32([2.5]))
    page.connect(other, "output", page.add("ClientSession", "second"), "fetch_outputs")
    pool = page.block("pool").pin("ksize")
    assert pool is not None
    pool.value = "x"
    runner = Runner(page)
    assert not runner.run().ok
    assert runner.value("other", "output").tolist() == [2.5]


def test_what_no_session_needs_is_a_warning() -> None:
    page = corrected_page()
    page.add("AvgPool", "spare")
    page.blocks.append(Block("odd", "MatMul"))
    runner = Runner(page)
    report = runner.run()
    assert report.ok
    said = [entry.message for entry in report.log if entry.block in ("spare", "odd") and entry.severity == "warning"]
    assert any("no wire leads from it" in message for message in said)
    assert any("MatMul cannot run" in message for message in said)
    assert any("nothing is wired to value" in message for message in said)


def test_a_page_without_a_session_or_with_an_idle_one() -> None:
    page = Page()
    page.add("Const", val=np.float32([1]))
    assert "place a ClientSession" in outcome(page)[""]
    page.add("ClientSession")
    report = Runner(page).run()
    assert any("wire an output to fetch_outputs" in entry.message for entry in report.log)


def test_results_fill_upstream_of_fetch_only() -> None:
    page = corrected_page()
    spare = page.add("Const", "spare", val=np.float32([4]))
    page.connect(spare, "output", "session", "run_outputs")
    runner = Runner(page)
    assert runner.run().ok
    assert set(runner.results()) == {(id, "result_output") for id in ("shape", "gradient", "pool")}
    assert runner.value("spare", "output").tolist() == [4]
    runner.fill()
    filled = page.block("pool").pin("result_output")
    assert filled is not None
    assert (filled.type, filled.shape, filled.value) == ("float", "[2][1][1][1][2]", "1;3;5;7")


@pytest.mark.parametrize(("looping", "cycles", "ran"), [("FALSE", 5, 1), ("TRUE", 5, 5), ("TRUE", 1, 1)])
def test_infinite_loop_is_bounded(looping: str, cycles: int, ran: int) -> None:
    page = corrected_page()
    pin = page.block("session").pin("INFINITE_LOOP")
    assert pin is not None
    pin.value = looping
    runner = Runner(page, cycles=cycles)
    steps = list(runner.steps())
    report = runner.report()
    assert report.ok
    assert report.cycles == ran
    assert len(steps) == 4 * ran
    assert [e.message for e in report.log] == [f"cycle {k}" for k in range(1, ran + 1)]


@pytest.mark.parametrize("cycles", [0, -1, 1.5, "3"])
def test_cycles_must_be_a_count(cycles: Any) -> None:
    with pytest.raises(PoolGradValueError, match="cycles"):
        Runner(corrected_page(), cycles=cycles)


def test_show_debug() -> None:
    page = corrected_page()
    pin = page.block("session").pin("SHOW_DEBUG")
    assert pin is not None
    pin.value = "TRUE"
    said = [entry.message for entry in Runner(page).run().log if entry.block == "pool"]
    assert said[0] == "pool.result_output[0] = 1.000000"
    assert said[4] == "pool.result_output[2][1][1][1][2] of type float32, 4 elements"


def test_editing_makes_downstream_stale() -> None:
    page = corrected_page()
    page.connect("shape", "output", "session", "run_outputs")
    runner = Runner(page)
    assert runner.stale() == []
    runner.run()
    assert runner.stale() == []
    page.move("pool", 5, 6)
    assert runner.stale() == []
    pin = page.block("gradient").pin("val")
    assert pin is not None
    pin.value = "2;3;5;7"
    assert set(runner.stale()) == {"gradient", "pool", "session"}
    runner.run()
    assert runner.stale() == []
    page.wires = [wire for wire in page.wires if wire.target_pin != "grad"]
    assert set(runner.stale()) == {"pool", "session"}


def test_steps_and_cancellation() -> None:
    runner = Runner(corrected_page())
    seen = []
    for state in runner.steps():
        seen.append((state.block, state.state))
        if state.block == "gradient":
            runner.cancel()
    assert seen == [("shape", "done"), ("gradient", "done"), ("pool", "cancelled")]
    report = runner.report()
    assert not report.ok
    assert "cancelled" in report.log[-1].message
    assert runner.run().ok


def test_a_run_says_where_it_stands() -> None:
    runner = Runner(corrected_page())
    seen = [(state.block, runner.current, runner.planned) for state in runner.steps()]
    assert seen == [(id, id, 4) for id in ("shape", "gradient", "pool", "session")]


def test_an_edited_copy_makes_results_stale() -> None:
    runner, edited = Runner(corrected_page()), corrected_page()
    runner.run()
    assert runner.stale(edited) == []
    edited.block("gradient").pin("val").value = "1;3;5;8"
    assert runner.stale(edited) == ["gradient", "pool", "session"]
    assert runner.stale() == []


@pytest.mark.parametrize(("most", "ok"), [(3, False), (4, True)])
def test_a_gradient_larger_than_allowed_is_refused_unmade(most: int, ok: bool) -> None:
    report = Runner(corrected_page(), most_elements=most).run()
    assert report.ok == ok
    assert ok or "2,1,1,1,2 means 4 elements; at most 3 are made" in errors(report)["pool"]


def test_reports_are_plain_data() -> None:
    for page in (documented_page(), corrected_page()):
        text = json.dumps(dataclasses.asdict(Runner(page).run()))
        assert page.name in text


def test_watch_tables() -> None:
    page = corrected_page()
    runner = Runner(page)
    runner.run()
    rows = [(row.type, row.name, row.value) for row in block_rows(page.block("pool"), runner.results())]
    assert rows[0] == ("string", "ksize", "1,4,3,2,1")
    assert rows[-1] == ("float", "result_output[1][0][0][0][1]", "7")
    assert [row.value for row in block_rows(page.block("pool"), runner.results(), elements=2)][4:] == [
        "4 elements, the first 2 shown",
        "1",
        "3",
    ]
    million = np.arange(10**6, dtype=np.float64).reshape(1000, 1000)
    assert element_rows("b", "p", million, 999_999)[0].name == "p[999][999]"
    text = Page()
    text.add("Const", "t", val=np.array(["a\x01", "b"], np.dtypes.StringDType()))
    assert [row.value for row in block_rows(text.block("t"), {})][1:] == ["6101", "b"]


def test_big_results_are_saved_as_binary(tmp_path: Path) -> None:
    x = random_array(1, (1, 120, 101, 1), np.dtype(np.float32))
    page = page_of("AvgPool", {"value": x}, ksize="1,1,1,1", strides="1,1,1,1", padding="VALID")
    runner = Runner(page)
    assert runner.run().ok
    runner.fill()
    for name in ("page.svg", "page.json"):
        save_page(page, tmp_path / name)
        assert (tmp_path / "page.dat").stat().st_size == 3 * x.nbytes
        again = Runner(open_page(tmp_path / name))
        assert again.run().ok
        assert_same_bits(again.value("target", "output"), x)


def test_adding_blocks_is_checked() -> None:
    page = Page()
    with pytest.raises(PoolGradValueError, match="known: Const"):
        page.add("MatMul")
    with pytest.raises(PoolGradValueError, match="has no property"):
        page.add("AvgPool", value="1")
    page.add("Const", "a")
    with pytest.raises(PoolGradValueError, match="is taken"):
        page.add("Const", "a")
    assert page.add("Const").id == "ID_1"
    page.remove("a")
    with pytest.raises(PoolGradValueError, match="no block 'a'"):
        page.block("a")
    with pytest.raises(PoolGradValueError, match="finite"):
        page.move("ID_1", float("nan"), 0)


def test_log_entries_name_pins() -> None:
    page = corrected_page()
    pin = page.block("pool").pin("attrs")
    assert pin is not None
    pin.value = "data_format = NCDHW;"
    report = Runner(page).run()
    warning = "attrs: the unknown key 'data_format' is ignored; did you mean data_format_?"
    assert LogEntry("warning", "pool", warning, "attrs") in report.log
    assert report.ok


def test_wide_integers_are_never_cut() -> None:
    wide = np.arange(2**40, 2**40 + 20_000, dtype=np.int64)
    for array, dtype in ((wide, "DT_INT64"), (wide - 2**40, "DT_INT64"), (wide[:1] * 1.0, "DT_INT32")):
        page = Page()
        block = page.add("Const_ex", "c", val=array, dtype=dtype)
        page.connect(block, "output", page.add("ClientSession"), "fetch_outputs")
        runner = Runner(page)
        if dtype == "DT_INT32":
            assert "does not fit 32 bits" in errors(runner.run())["c"]
        else:
            assert runner.run().ok, runner.log
            got = runner.value("c", "output")
            assert got.dtype == np.int64
            assert (got == array).all()


def test_dtype_holds_for_binary_pins() -> None:
    page = Page()
    block = page.add("Const_ex", "c", dtype="DT_HALF")
    page.connect(block, "output", page.add("ClientSession"), "fetch_outputs")
    pin, dtype = block.pin("val"), block.pin("dtype")
    assert pin is not None
    assert dtype is not None
    pin.set(np.float32([1.5, np.nan]), binary_from=0)
    runner = Runner(page)
    assert runner.run().ok, runner.log
    assert runner.value("c", "output").dtype == np.float16
    for text in ("DT_INT32", "DT_BOOL", "DT_STRING"):
        dtype.value = text
        assert "cannot" in outcome(page)["c"]
