"""ONNX's dialect: ONNX's own backend test cases, ONNX Runtime on random nodes of every opset, the gradient against the oracle."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import beside
import numpy as np
import pytest
import support
from hypothesis import given
from hypothesis import strategies as st

from poolgrad import PoolGradError
from poolgrad.dialects import onnx as ours

onnx = pytest.importorskip("onnx")


def backend_cases() -> list[Any]:
    """The cases that ONNX ships for AveragePool and GlobalAveragePool: importing their modules makes them."""
    for module in ("averagepool", "globalaveragepool"):
        import_module(f"onnx.backend.test.case.node.{module}")
    made = import_module("onnx.backend.test.case.node")._NodeTestCases
    return [case for case in made if case.model.graph.node[0].op_type in ("AveragePool", "GlobalAveragePool")]


CASES = {case.name: case for case in backend_cases()}


def attributes(node: Any) -> dict[str, Any]:
    found = {attribute.name: onnx.helper.get_attribute_value(attribute) for attribute in node.attribute}
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in found.items()}


def test_all_of_the_backend_cases_are_here() -> None:
    assert len(CASES) >= 22
    assert {"test_globalaveragepool", "test_averagepool_2d_ceil_last_window_starts_on_pad"} <= set(CASES)


@pytest.mark.parametrize("name", sorted(CASES))
def test_backend_case(name: str) -> None:
    case = CASES[name]
    node = case.model.graph.node[0]
    opset = {} if node.op_type == "GlobalAveragePool" else {"opset": case.model.opset_import[0].version}
    for inputs, outputs in case.data_sets:
        y = getattr(ours, node.op_type)(*inputs, **attributes(node), **opset)
        assert y.dtype == outputs[0].dtype
        np.testing.assert_allclose(y, outputs[0], rtol=case.rtol, atol=case.atol)
        pooling = ours.read({"op": node.op_type, **attributes(node), **opset}, inputs[0].shape)
        dy = np.random.default_rng(5).standard_normal(y.shape).astype(y.dtype)
        dx = getattr(ours, f"{node.op_type}Grad")(dy, inputs[0].shape, **attributes(node), **opset)
        left, right = np.vdot(y.astype(np.float64), dy), np.vdot(inputs[0].astype(np.float64), dx)
        assert abs(left - right) <= 1e-4 * max(1.0, np.vdot(abs(y), abs(dy)))
        assert pooling.pool(inputs[0].shape).output_size == y.shape[2:]


@st.composite
def nodes(draw: st.DrawFn) -> tuple[tuple[int, ...], dict[str, Any]]:
    """An input shape and attributes within what ONNX Runtime takes: padding smaller than the kernel."""
    dims, opset = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([7, 10, 11, 19, 22]))
    auto_pad = draw(st.sampled_from(["NOTSET", "NOTSET", "NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER"]))
    ceil = opset >= 10 and auto_pad in ("NOTSET", "VALID") and draw(st.booleans())
    dilated = opset >= 19 and not auto_pad.startswith("SAME") and draw(st.booleans())
    rows = []
    for _ in range(dims):
        k, s, d = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 3)) if dilated else 1
        p, q = (draw(st.integers(0, k - 1)), draw(st.integers(0, k - 1))) if auto_pad == "NOTSET" else (0, 0)
        s = min(s, k) if auto_pad.startswith("SAME") else s  # else the runtime makes its padding negative
        least = 1 if auto_pad.startswith("SAME") else max(1, (k - 1) * d + 1 - p - q - (s - 1 if ceil else 0))
        rows.append((k, s, d, p, q, draw(st.integers(least, least + 6))))
    kernel, strides, dilations, begins, ends, sizes = map(list, zip(*rows, strict=True))
    said: dict[str, Any] = {"kernel_shape": kernel, "strides": strides, "opset": opset}
    said |= {"pads": begins + ends} if auto_pad == "NOTSET" else {"auto_pad": auto_pad}
    said |= {"dilations": dilations} if dilated else {}
    said |= {"ceil_mode": 1} if ceil else {}
    said |= {"count_include_pad": 1} if draw(st.booleans()) else {}
    return (2, 3, *sizes), said


def run(x: support.Array, opset: int, **attributes: Any) -> support.Array:
    ort = pytest.importorskip("onnxruntime")
    ort.set_default_logger_severity(4)
    make = onnx.helper
    kind = make.np_dtype_to_tensor_dtype(x.dtype)
    ends = [make.make_tensor_value_info("x", kind, x.shape)], [make.make_tensor_value_info("y", kind, None)]
    graph = make.make_graph([make.make_node("AveragePool", ["x"], ["y"], **attributes)], "one", *ends)
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", opset)], ir_version=8)
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(None, {"x": x})[0])


@given(node=nodes(), seed=support.seeds)
def test_onnx_runtime(node: tuple[tuple[int, ...], dict[str, Any]], seed: int) -> None:
    shape, arguments = node
    try:
        pooling = ours.read(arguments, shape)
        x, dy = beside.arrays(pooling, shape, seed, np.dtype(np.float32))
    except PoolGradError as refusal:  # dilation can make a window of which every tap lies in the padding
        if "covers no input" not in str(refusal):
            raise
        return
    mine = ours.AveragePool(x, **arguments), ours.AveragePoolGrad(dy, shape, **arguments)
    beside.check(pooling, x, dy, mine, (run(x, **arguments), None))


def test_dtypes() -> None:
    for dtype in support.DTYPES:
        pooling = ours.read({"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "strides": [2, 3]}, (2, 3, 7, 8))
        x, dy = beside.arrays(pooling, (2, 3, 7, 8), 4, dtype)
        given = {"kernel_shape": [3, 2], "pads": [1, 0, 2, 1], "strides": [2, 3]}
        beside.check(pooling, x, dy, (ours.AveragePool(x, **given), ours.AveragePoolGrad(dy, x.shape, **given)), None)


def test_the_ceil_window_in_the_end_padding_is_dropped_in_every_opset() -> None:
    """Shape inference counts it before opset 22, the runtime drops it in all of them: it covers no input."""
    x = np.arange(1, 6, dtype=np.float32).reshape(1, 1, 5)
    for opset in (10, 11, 19, 22):
        given = {"kernel_shape": [2], "strides": [5], "pads": [0, 1], "ceil_mode": 1, "opset": opset}
        assert ours.AveragePool(x, **given).tolist() == [[[1.5]]] == run(x, **given).tolist()


def test_a_ceil_window_larger_than_the_input_covers_all_of_it() -> None:
    x = np.arange(1, 7, dtype=np.float32).reshape(1, 1, 6)
    given = {"kernel_shape": [7], "strides": [4], "ceil_mode": 1, "opset": 22}
    assert ours.AveragePool(x, **given).tolist() == [[[3.5]]] == run(x, **given).tolist()
    padded = {"kernel_shape": [9], "pads": [1, 1], "count_include_pad": 1}
    assert ours.AveragePool(x, **{**given, **padded}).tolist() == [[[2.625]]] == run(x, **{**given, **padded}).tolist()
    dilated = {"kernel_shape": [5], "dilations": [2], "pads": [1, 1], "count_include_pad": 1}
    assert ours.AveragePool(x, **{**given, **dilated}).tolist() == [[[3.0]]] == run(x, **{**given, **dilated}).tolist()


REFUSED = [
    ({"kernel_shape": [2], "ceil_mode": 1, "opset": 9}, "ceil_mode exists from opset 10"),
    ({"kernel_shape": [2], "dilations": [2], "opset": 18}, "dilations exists from opset 19"),
    ({"kernel_shape": [2], "count_include_pad": 1, "opset": 6}, "count_include_pad exists from opset 7"),
    ({"kernel_shape": [2, 2]}, "kernel_shape must hold 1 integers"),
    ({"kernel_shape": 2}, "kernel_shape must hold 1 integers"),
    ({"kernel_shape": [2], "pads": [1]}, "pads must hold 2 integers"),
    ({"kernel_shape": [2], "pads": [0, 1], "auto_pad": "SAME_UPPER"}, "pads cannot be used with auto_pad"),
    ({"kernel_shape": [2], "auto_pad": "SAME"}, "auto_pad must be one of"),
    ({"kernel_shape": [2], "strides": [0]}, r"strides\[0\] must be at least 1"),
    ({"kernel_shape": [9]}, "larger than the padded input"),
    ({"kernel_shape": [2], "pads": [2, 0]}, "covers no input"),
    ({"kernel_shape": [2], "count_include_pad": 2}, "count_include_pad must be True or False"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=lambda value: str(value)[:50])
def test_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PoolGradError, match=said):
        ours.AveragePool(np.zeros((1, 1, 6), np.float32), **arguments)
    with pytest.raises(PoolGradError, match=said):
        ours.read(arguments, (1, 1, 6)).pool((1, 1, 6))


def test_ranks() -> None:
    with pytest.raises(PoolGradError, match="X must have a batch, channels and 1 to 10 spatial axes"):
        ours.GlobalAveragePool(np.zeros((3, 4), np.float32))
    x = np.random.default_rng(1).standard_normal((2, 3, 2, 3, 2, 4)).astype(np.float32)
    assert np.allclose(ours.GlobalAveragePool(x), x.mean(axis=(2, 3, 4, 5), keepdims=True), atol=1e-6)
