"""TensorFlow's raw gradient ops, eager, on the CPU, with its default settings (on x86 oneDNN serves float32 and bfloat16)."""

from __future__ import annotations

from ..case import Case
from .base import Target, keywords, written

__all__ = ["TARGET", "source"]


def source(case: Case) -> str:
    arguments = written("tensorflow", case)
    if "row_pooling_sequence" in arguments:
        op, given = "FractionalAvgPoolGrad", f"orig_input_tensor_shape={list(case.input_shape)}, out_backprop=dy"
    else:
        op = "AvgPoolGrad" if len(case.input_shape) == 4 else "AvgPool3DGrad"
        given = f"orig_input_shape={list(case.input_shape)}, grad=dy"
    call = f"tf.raw_ops.{op}({given}, {keywords(arguments)})"
    return f"import tensorflow as tf\n\n\ndef grad(dy):\n    return {call}.numpy()\n"


TARGET = Target(
    name="tensorflow",
    source=source,
    imports="import tensorflow as tf",
    version="tf.__version__",
    refusals=("InvalidArgumentError", "UnimplementedError", "NotFoundError"),
    environment={"TF_CPP_MIN_LOG_LEVEL": "2", "CUDA_VISIBLE_DEVICES": "-1"},
)
