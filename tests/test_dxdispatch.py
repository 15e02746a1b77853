"""DxDispatch models: names and bindings, commands and their messages, files in and out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import support
from directml_support import cases, gradient, run, strides_in, tensor
from hypothesis import given
from hypothesis import strategies as st

from poolgrad import PoolGradError, PoolGradValueError, arrays, directml
from poolgrad.dialects.directml.dxdispatch.lenient import parse
from poolgrad.directml import dxdispatch

CASES = Path(__file__).parent / "cases" / "directml"
GOOD = CASES / "grad_3x3_end_padding.json"


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Models write beside the current folder."""
    monkeypatch.chdir(tmp_path)


def good(**changes: Any) -> dict[str, Any]:
    """The sample model as a dictionary, with sections replaced."""
    return {**parse(GOOD.read_text()), **changes}


def resource(values: Any, kind: str | None = "FLOAT32", **more: Any) -> dict[str, Any]:
    return {"initialValues": values, **({} if kind is None else {"initialValuesDataType": kind}), **more}


class TestFiles:
    def test_sample(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        said: list[str] = []
        assert dxdispatch.run_file(GOOD, write=said.append) == 0
        assert said[0].startswith("Running on 'poolgrad")
        assert said[1].startswith("Dispatch 'pool_back': 1 iterations, ")
        assert said[1].endswith(" ms median (CPU)")
        assert said[2] == "Resource 'dX': 0.25, 0.25, 1, 0.25, 0.25, 1, 1.5, 1.5, 4"
        assert said[3] == f"Resource 'dX' written to '{Path('out/dx.npy')}'"
        written = np.load(tmp_path / "out" / "dx.npy")
        assert (written.shape, written.dtype) == ((1, 1, 3, 3), np.float32)
        assert written.ravel().tolist() == [0.25, 0.25, 1, 0.25, 0.25, 1, 1.5, 1.5, 4]

    def test_short_names_strides_and_bindings(self, tmp_path: Path) -> None:
        said: list[str] = []
        assert dxdispatch.run_file(CASES / "pooling1_fp16_nhwc.json", output_path=tmp_path, write=said.append) == 0
        x = np.arange(0, 16, 0.5, dtype=np.float16).reshape(4, 4, 2)
        want = (x[:2, :2] + x[2:, :2] + x[:2, 2:] + x[2:, 2:]) / 4
        raw = np.fromfile(tmp_path / "y.bin", dtype=np.float16)
        assert np.isnan(raw[:8]).all()
        assert raw[8:].tolist() == want.ravel().tolist()
        lines = said[2].splitlines()
        assert lines[0] == "Resource 'y':"
        assert lines[1] == "[ 0] nan (0x7E00)"
        assert lines[9] == f"[ 8] {float(raw[8]):g} (0x{int(raw.view(np.uint16)[8]):4X})"
        assert len(lines) == 17

    def test_paths(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Inputs: beside the model, or in input_path, then here. Outputs: here, or in output_path, folders made."""
        model = good()
        model["resources"]["dY"] = resource({"sourcePath": "in/dy.npy"}, None)
        folders = [tmp_path / name for name in ("model", "given", "here", "out")]
        for k, folder in enumerate(folders[:3], 1):
            (folder / "in").mkdir(parents=True)
            np.save(folder / "in" / "dy.npy", np.array([k, 0, 0, 0], np.float32))
        (folders[0] / "m.json").write_text(json.dumps(model))
        monkeypatch.chdir(folders[2])
        path, quiet = folders[0] / "m.json", list[str]().append

        def corner(folder: Path) -> float:
            return float(np.load(folder / "out" / "dx.npy").ravel()[0]) * 4

        assert dxdispatch.run_file(path, write=quiet) == 0
        assert corner(folders[2]) == 1
        assert dxdispatch.run_file(path, input_path=folders[1], output_path=folders[3], write=quiet) == 0
        assert corner(folders[3]) == 2
        assert dxdispatch.run_file(path, input_path=tmp_path / "nowhere", write=quiet) == 0
        assert corner(folders[2]) == 3

    def test_failures_are_said_and_returned(self, tmp_path: Path) -> None:
        for text, says in (
            ('{"resources": {}', "JSON parse error at char offset:16, line:1, column:17"),
            ("[1]", "Expected a non-null JSON object"),
            ('{"resources": {}, "dispatchables": {}}', "Expected an array named 'commands'"),
        ):
            path, errors = tmp_path / "m.json", list[str]()
            path.write_text(text)
            assert dxdispatch.run_file(path, write_error=errors.append) == 2
            assert errors[0].startswith("Failed to parse the model: ")
            assert says in errors[0]
        for missing in (tmp_path / "none.json", tmp_path, tmp_path / "\0"):
            assert dxdispatch.run_file(missing, write_error=errors.append) == 2
        (tmp_path / "latin.json").write_bytes(b'{"\xff": 1}')
        assert dxdispatch.run_file(tmp_path / "latin.json", write_error=errors.append) == 2
        with pytest.raises(PoolGradValueError, match="dispatch_repeat must be at least 1"):
            dxdispatch.Options(dispatch_repeat=0)

    def test_resources_that_fit_one_by_one_must_fit_together(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(arrays, "_memory", lambda: 3 << 30)
        one = {"initialValuesDataType": "FLOAT32", "initialValues": [1], "sizeInBytes": 2 << 30}
        dxdispatch.parse_model(good(resources={**good()["resources"], "a": one}))
        with pytest.raises(dxdispatch.ModelError, match=r"resource b: .* this machine has"):
            dxdispatch.parse_model(good(resources={**good()["resources"], "a": one, "b": one}))
        many = {"initialValuesDataType": "FLOAT64", "initialValues": {"valueCount": 1 << 28, "value": 0}}
        with pytest.raises(dxdispatch.ModelError, match=r"resource a: .* this machine has"):  # its values, and their buffer
            dxdispatch.parse_model(good(resources={"a": many}))

    def test_a_file_that_cannot_be_written_does_not_end_the_run(self, tmp_path: Path) -> None:
        (tmp_path / "out").write_text("a file where a folder should be")
        said, errors = list[str](), list[str]()
        commands = [*good()["commands"], {"type": "print", "resource": "dY"}]
        (tmp_path / "m.json").write_text(json.dumps(good(commands=commands)))
        assert dxdispatch.run_file(tmp_path / "m.json", output_path=tmp_path, write=said.append, write_error=errors.append) == 2
        assert said[-1] == "Resource 'dY': 1, 2, 3, 4"
        assert errors[0].startswith("Failed to write resource to file ")


def changed(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    """A change of the sample model at a dotted path; `...` removes."""

    def change(model: dict[str, Any]) -> None:
        *parents, last = path.split(".")
        owner: Any = model
        for name in parents:
            owner = owner[int(name) if name.isdecimal() else name]
        if value is ...:
            del owner[last]
        else:
            owner[int(last) if last.isdecimal() else last] = value

    return change


OP = "dispatchables.pool_back"
REFUSED = [
    (
        changed(f"{OP}.type", "DML_OPERATOR_MAX_POOLING_GRAD"),
        "'DML_OPERATOR_MAX_POOLING_GRAD' is not an operator that poolgrad runs",
    ),
    (
        changed(f"{OP}.type", "average_pooling"),
        "DML_OPERATOR_AVERAGE_POOLING_GRAD, DML_OPERATOR_AVERAGE_POOLING, DML_OPERATOR_AVERAGE_POOLING1",
    ),
    (changed(f"{OP}.type", "hlsl"), "'hlsl' is not an operator"),
    (changed(f"{OP}.type", "ONNX"), "'ONNX' is not an operator"),
    (changed(f"{OP}.type", ...), "Field 'type' is required"),
    (changed(f"{OP}.type", "AVERAGE_POOLING1_GRAD"), "is an extension"),
    (changed(f"{OP}.desc.IncludePadding", 0), "Field 'IncludePadding': Expected true or false, got 0"),
    (changed(f"{OP}.desc.IncludePadding", ...), "Field 'IncludePadding' is required"),
    (changed(f"{OP}.desc.DimensionCount", ...), "Field 'DimensionCount' is required"),
    (changed(f"{OP}.desc.Strides", [1.0, 1]), "Field 'Strides': Expected an integer"),
    (changed(f"{OP}.desc.Strides", [1, 2**32]), "Field 'Strides'"),
    (changed(f"{OP}.desc.Strides", None), "Field 'Strides': Expected an array"),
    (changed(f"{OP}.desc.InputGradientTensor", None), "Field 'InputGradientTensor': Expected a non-null JSON object"),
    (changed(f"{OP}.desc.InputGradientTensor.Sizes", ...), "Field 'InputGradientTensor': Field 'Sizes' is required"),
    (changed(f"{OP}.desc.InputGradientTensor.DataType", 1), "Field 'InputGradientTensor': Field 'DataType': Expected a name"),
    (changed(f"{OP}.desc.InputGradientTensor.Type", "INVALID"), "BUFFER"),
    (changed(f"{OP}.desc.InputGradientTensor.Flags", "OWNED"), "NONE, OWNED_BY_DML"),
    (changed(f"{OP}.desc", []), "Field 'desc': Expected a non-null JSON object"),
    (changed(f"{OP}.dmlCompileType", "fast"), "DmlCompileOp or DmlCompileGraph"),
    (changed(f"{OP}.executionFlags", ["FAST"]), "ALLOW_HALF_PRECISION_COMPUTATION"),
    (changed(f"{OP}.bindings", {"InputGradientTensor": "z"}), "attempts to bind resource 'z'"),
    (changed("commands.0.dispatchable", "z"), "Command attempts to dispatch 'z', which does not exist"),
    (changed("commands.0.bindings", ...), "command at index 0: Field 'bindings' is required"),
    (changed("commands.0.bindings.InputGradientTensor", "z"), "Command attempts to bind resource 'z'"),
    (changed("commands.0.bindings.InputGradientTensor", 3), "Binding 'InputGradientTensor'"),
    (changed("commands.0.bindings.InputGradientTensor", {"elementOffset": 1}), "Field 'name' is required"),
    (changed("commands.0.bindings.InputGradientTensor", {"name": "dY", "elementOffset": -1}), "Field 'elementOffset'"),
    (changed("commands.0.threadGroupCount", [1, 1]), "three integers"),
    (changed("commands.1.resource", "z"), "Command attempts to print the resource 'z'"),
    (changed("commands.1.verbose", 1), "Field 'verbose'"),
    (changed("commands.2.resource", "z"), "write to a file the resource 'z'"),
    (changed("commands.2.targetPath", ...), "command at index 2: Field 'targetPath' is required"),
    (changed("commands.2.dimensions", [-1]), "Field 'dimensions'"),
    (changed("commands.2.type", "save"), "Unrecognized command 'save'"),
    (changed("commands.2", 5), "command at index 2: Expected a non-null"),
    (changed("resources", []), "Expected an object named 'resources'"),
]
FAILS = [
    (
        changed(f"{OP}.desc.WindowSize", [2]),
        r"ERROR creating dispatchable 'pool_back': DML_OPERATOR_AVERAGE_POOLING_GRAD: WindowSize must be 2 integers",
    ),
    (changed(f"{OP}.desc.EndPadding", [0, 0]), r"InputGradientTensor.Sizes\[2\]"),
    (changed(f"{OP}.desc.InputGradientTensor.DataType", "FLOAT64"), "FLOAT32 or FLOAT16"),
    (changed(f"{OP}.desc.InputGradientTensor.Flags", "OWNED_BY_DML"), "Nothing bound for required tensor 'InputGradientTensor'"),
    (changed("commands.0.bindings.OutputGradientTensor", ...), "Nothing bound for required tensor 'OutputGradientTensor'"),
    (changed("commands.0.bindings.OutputGradientTensor", ["dX", "dX"]), "requires 1 resources, but 2 were bound"),
    (changed("commands.0.bindings.OutputGradientTensor", "dY"), "at least 36 bytes"),
    (changed("commands.0.bindings.InputGradientTensor", {"name": "dY", "elementOffset": 1}), "multiple of 16"),
    (changed("commands.0.bindings.InputGradientTensor", {"name": "dY", "elementOffset": 4}), "at least 16 bytes"),
    (
        changed("commands.0.bindings.InputGradientTensor", {"name": "dY", "elementOffset": 2**60, "elementSizeInBytes": 2**60}),
        "Offset",
    ),
    (changed("resources.dX", resource([{"type": "UINT32", "value": 1}] * 9, None)), "Failed to print resource"),
]


class TestModels:
    @pytest.mark.parametrize(("change", "says"), REFUSED)
    def test_refused_at_load(self, change: Any, says: str) -> None:
        model = good()
        change(model)
        with pytest.raises(dxdispatch.ModelError) as caught:
            dxdispatch.parse_model(model)
        assert says in str(caught.value)

    @pytest.mark.parametrize(("change", "says"), FAILS)
    def test_failing_when_run(self, change: Any, says: str) -> None:
        model = good()
        change(model)
        with pytest.raises(dxdispatch.ModelError, match=says):
            dxdispatch.run_model(dxdispatch.parse_model(model), write=list[str]().append)

    def test_state_persists_between_commands(self) -> None:
        """The gradient is pooled again: two dispatchables, one after the other, on the same buffers."""
        model = good()
        op = {**model["dispatchables"]["pool_back"]["desc"]}
        op["InputTensor"], op["OutputTensor"] = op.pop("OutputGradientTensor"), op.pop("InputGradientTensor")
        model["dispatchables"]["pool"] = {"type": "AVERAGE_POOLING", "Desc": op, "desc": "Desc wins"}
        model["commands"] = [
            model["commands"][0],
            {"type": "dispatch", "dispatchable": "pool", "bindings": {"InputTensor": "dX", "OutputTensor": "dY"}},
        ]
        assert dxdispatch.run_model(model, write=list[str]().append)["dY"].tolist() == [0.25, 1, 1.5, 4]

    def test_owned_by_dml(self) -> None:
        model = good()
        model["dispatchables"]["pool_back"]["desc"]["InputGradientTensor"]["Flags"] = ["NONE", "DML_TENSOR_FLAG_OWNED_BY_DML"]
        model["dispatchables"]["pool_back"]["bindings"] = {"InputGradientTensor": ["dY"]}
        errors: list[str] = []
        found = dxdispatch.run_model(model, write=list[str]().append, write_error=errors.append)
        assert found["dX"].tolist() == [0.25, 0.25, 1, 0.25, 0.25, 1, 1.5, 1.5, 4]
        assert errors == ["Bind point 'InputGradientTensor' is not one of ['OutputGradientTensor'] and is ignored."]

    def test_extensions_on_request(self) -> None:
        model = good()
        op = model["dispatchables"]["pool_back"]
        op["type"], op["desc"]["Dilations"] = "AVERAGE_POOLING1_GRAD", [1, 1]
        for name in ("InputGradientTensor", "OutputGradientTensor"):
            op["desc"][name]["DataType"] = "FLOAT64"
        for name in ("dX", "dY"):
            model["resources"][name]["initialValuesDataType"] = "FLOAT64"
        options = dxdispatch.Options(allow_extension_types=True)
        found = dxdispatch.run_model(model, options, write=list[str]().append)
        assert found["dX"].dtype == np.float64
        assert found["dX"].tolist() == [0.25, 0.25, 1, 0.25, 0.25, 1, 1.5, 1.5, 4]

    def test_explicit_sizes_and_debug(self) -> None:
        model = good()
        model["dispatchables"]["pool_back"]["desc"] |= {"EndPadding": [0, 0], "WindowSize": [2, 2]}
        quiet = list[str]().append
        found = dxdispatch.run_model(model, dxdispatch.Options(allow_explicit_sizes=True), write=quiet)
        assert found["dX"].tolist() == [0.25, 0.25, 1, 0.25, 0.25, 1, 1.5, 1.5, 4]
        model["dispatchables"]["pool_back"]["desc"] |= {"EndPadding": [2, 2], "WindowSize": [1, 1], "Strides": [4, 4]}
        dxdispatch.run_model(model, write=quiet)
        with pytest.raises(dxdispatch.ModelError, match="strict"):
            dxdispatch.run_model(model, dxdispatch.Options(debug=True), write=quiet)

    @pytest.mark.parametrize(("verbosity", "lines"), [(0, 1), (1, 4), (2, 11)])
    def test_timings(self, verbosity: int, lines: int) -> None:
        said: list[str] = []
        options = dxdispatch.Options(dispatch_iterations=6, dispatch_repeat=2, warmup_samples=2, timing_verbosity=verbosity)
        dxdispatch.run_model(good(commands=good()["commands"][:1]), options, write=said.append)
        assert len(said) == lines
        if verbosity:
            assert said[0].startswith("Initialize 'pool_back': ")
            assert said[2].startswith("CPU Timings (Cold) : 2 samples, ")
            assert said[3].startswith("CPU Timings (Hot)  : 4 samples, ")
        if verbosity == 2:
            assert said[5].startswith("iteration 0: ")

    def test_commands_are_printed(self) -> None:
        said: list[str] = []
        dxdispatch.run_model(good(commands=good()["commands"][1:2]), dxdispatch.Options(print_commands=True), write=said.append)
        assert said[0] == '[StartCmd][0000]\t: {"type":"print","resource":"dX"}'
        assert said[2] == "[EndCmd][0000]\t: hr=0x00000000 "
        model = good()
        model["commands"][0]["bindings"]["OutputGradientTensor"] = "dY"
        with pytest.raises(dxdispatch.ModelError):
            dxdispatch.run_model(model, dxdispatch.Options(print_commands=True), write=said.append)
        assert said[-1].startswith("[EndCmd][0000]\t: hr=0x887a0005 Failed to execute dispatchable 'pool_back': ")

    def test_a_file_without_dimensions_is_one_row_of_the_whole_buffer(self, tmp_path: Path) -> None:
        owner = resource([1, 2, 3, 4, 5], "FLOAT16")
        commands = [
            {"type": "writeFile", "resource": "r", "targetPath": "r.npy", **more} for more in ({}, {"dimensions": [5, 1]})
        ]
        for command, want in zip(commands, ([1, 2, 3, 4, 5, 0], [[1], [2], [3], [4], [5]]), strict=True):
            dxdispatch.run_model(
                {"resources": {"r": owner}, "dispatchables": {}, "commands": [command]}, write=list[str]().append
            )
            assert np.load(tmp_path / "r.npy").tolist() == want

    def test_print_uses_six_digits(self) -> None:
        said: list[str] = []
        model = good(commands=[{"type": "print", "resource": "dY"}])
        model["resources"]["dY"] = resource([1 / 3, 1e-5, 123456789, "nan", -0.0, 100000, 1e6])
        dxdispatch.run_model(model, write=said.append)
        assert said == ["Resource 'dY': 0.333333, 1e-05, 1.23457e+08, nan, -0, 100000, 1e+06"]

    def test_a_model_runs_twice(self) -> None:
        model = dxdispatch.parse_model(good(commands=good()["commands"][:1]))
        first, second = (dxdispatch.run_model(model, write=list[str]().append)["dX"] for _ in range(2))
        assert first.tolist() == second.tolist()
        assert not np.shares_memory(first, second)

    @given(cases(), st.sampled_from(["FLOAT32", "FLOAT16"]))
    def test_emitted_models_give_what_the_description_gives(self, case: dict[str, Any], kind: str) -> None:
        inputs, outputs = (*case["outer"], *(row[0] for row in case["rows"])), (*case["outer"], *case["cells"])
        packed = case["seed"] % 2
        descs = [
            tensor(n, kind, Strides=None if packed else strides_in(order, gaps, n))
            for n, order, gaps in zip((outputs, inputs), case["orders"], case["gaps"], strict=True)
        ]
        _, window, stride, start, end, _ = zip(*case["rows"], strict=True)
        fields = {
            "WindowSize": window,
            "Strides": stride,
            "StartPadding": start,
            "EndPadding": end,
            "IncludePadding": case["include"],
        }
        desc = gradient(*descs, **fields)
        model = dxdispatch.model_for(desc, input_file="dy.npy", output_file="dx.npy", allow_explicit_sizes=True)
        dy = directml.new_buffer(descs[0], support.random_array(case["seed"], outputs, np.dtype(kind.lower())))
        dx = directml.new_buffer(descs[1])
        run(desc, dy, dx, allow_explicit_sizes=True)
        text = json.dumps(model)
        with TemporaryDirectory() as name:
            folder = Path(name)
            np.save(folder / "dy.npy", dy.view(kind.lower()))
            (folder / "m.json").write_text(text)
            options, quiet = dxdispatch.Options(allow_explicit_sizes=True), list[str]().append
            assert dxdispatch.run_file(folder / "m.json", options, input_path=folder, output_path=folder, write=quiet) == 0
            written = np.load(folder / "dx.npy")
        want = directml.tensor_view(descs[1], dx)
        assert not packed or written.shape == inputs
        if written.ndim > 1:
            support.assert_same_bits(written, np.ascontiguousarray(want))
        else:
            whole = directml.new_buffer(descs[1])
            whole[: written.nbytes] = written.view(np.uint8)
            support.assert_same_bits(np.ascontiguousarray(directml.tensor_view(descs[1], whole)), np.ascontiguousarray(want))

    def test_extensions_are_not_emitted(self) -> None:
        with pytest.raises(PoolGradError, match="extension"):
            dxdispatch.model_for(gradient((1, 1, 2, 2), (1, 1, 3, 3), Dilations=(1, 1)), input_file="a.npy", output_file="b.npy")
        wide = [tensor(n, "FLOAT64") for n in ((1, 1, 2, 2), (1, 1, 3, 3))]
        with pytest.raises(PoolGradError, match="FLOAT64"):
            dxdispatch.model_for(gradient(*wide), input_file="a.npy", output_file="b.npy")
