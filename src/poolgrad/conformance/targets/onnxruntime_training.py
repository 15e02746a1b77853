"""ONNX Runtime's training build: its AveragePoolGrad, a model of one node.

It cannot be installed beside ONNX Runtime itself; run it from an environment of its own with `python=`.
"""

from __future__ import annotations

from ...dialects.pooling import NoTranslation
from ..case import Case
from .base import Target, keywords, written

__all__ = ["TARGET"]

TYPES = {"float16": "FLOAT16", "bfloat16": "BFLOAT16", "float32": "FLOAT", "float64": "DOUBLE"}

# The package itself would import torch.
IMPORTS = """\
import importlib.util
import onnx, onnxruntime
if importlib.util.find_spec("onnxruntime.training") is None:
    raise ImportError("onnxruntime " + onnxruntime.__version__ + " is not a training build; install onnxruntime-training")
"""


def source(case: Case) -> str:
    arguments = written("onnx", case)
    if arguments.pop("op") != "AveragePool":
        raise NoTranslation("ONNX Runtime has a gradient op for AveragePool, and none for GlobalAveragePool")
    arguments.pop("opset")
    kind = f"TensorProto.{TYPES[case.dtype]}"
    given = f'[helper.make_tensor_value_info("dY", {kind}, {list(case.dy_shape)})]'
    made = f'[helper.make_tensor_value_info("dX", {kind}, {list(case.input_shape)})]'
    return f"""\
import onnxruntime
from onnx import TensorProto, helper

node = helper.make_node("AveragePoolGrad", ["dY"], ["dX"], {keywords(arguments)})
graph = helper.make_graph([node], "gradient", {given}, {made})
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 14)], ir_version=8)
session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])


def grad(dy):
    return session.run(None, {{"dY": dy}})[0]
"""


TARGET = Target(
    name="onnxruntime-training",
    source=source,
    imports=IMPORTS,
    version="onnxruntime.__version__",
    refusals=("NotImplemented", "InvalidGraph", "InvalidArgument", "Fail"),
)
