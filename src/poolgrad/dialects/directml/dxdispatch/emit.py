"""Writing models: a description as DxDispatch's JSON, for somebody with Windows to run."""

from __future__ import annotations

from typing import Any

from ..checks import Plan, Tensor, check_operator
from ..descs import OperatorDesc
from .lenient import ModelError

__all__ = ["model_for"]


def model_for(desc: OperatorDesc, *, input_file: str, output_file: str, allow_explicit_sizes: bool = False) -> dict[str, Any]:
    """A model that reads `input_file` (.npy, in the type of the tensor and the order of memory), runs `desc` once and writes
    `output_file` (.npy).

    A packed output is written with its sizes, one with strides as the row of its buffer. The output begins as NaN, so that
    an element the operator leaves alone shows.

    >>> from poolgrad import directml
    >>> x, y = (directml.BufferTensorDesc(DataType="FLOAT32", Sizes=(1, 1, n, n)) for n in (3, 2))
    >>> desc = directml.AveragePoolingOperatorDesc(InputTensor=x, OutputTensor=y, Strides=(1, 1), WindowSize=(2, 2),
    ...     StartPadding=(0, 0), EndPadding=(0, 0), IncludePadding=False)
    >>> model_for(desc, input_file="x.npy", output_file="y.npy")["commands"][1]
    {'type': 'writeFile', 'resource': 'output', 'targetPath': 'y.npy', 'dimensions': [1, 1, 2, 2]}
    """
    plan = check_operator(desc, allow_explicit_sizes=allow_explicit_sizes)
    if desc.is_extension:
        raise ModelError(f"{desc.operator} is an extension of poolgrad; DirectML cannot run a model of it")
    source, result = plan.source, plan.result
    output: dict[str, Any] = {
        "initialValuesDataType": result.data_type.name,
        "initialValues": {"valueCount": result.extent, "value": "nan"},
        "sizeInBytes": result.total_size,
    }
    packed = result.strides == _packed(result)
    return {
        "resources": {
            "input": {"initialValuesDataType": source.data_type.name, "initialValues": {"sourcePath": input_file}},
            "output": output,
        },
        "dispatchables": {"pool": {"type": plan.operator, "desc": _desc(desc, plan)}},
        "commands": [
            {"type": "dispatch", "dispatchable": "pool", "bindings": {source.field: "input", result.field: "output"}},
            {
                "type": "writeFile",
                "resource": "output",
                "targetPath": output_file,
                "dimensions": list(result.sizes) if packed else [result.extent],
            },
        ],
    }


def _desc(desc: OperatorDesc, plan: Plan) -> dict[str, Any]:
    """The fields in the order of the struct."""
    fields: dict[str, Any] = {tensor.field: _tensor(tensor) for tensor in (plan.source, plan.result)}
    fields |= {
        "DimensionCount": len(plan.rows),
        "Strides": [row.stride for row in plan.rows],
        "WindowSize": [row.window for row in plan.rows],
        "StartPadding": [row.start for row in plan.rows],
        "EndPadding": [row.end for row in plan.rows],
    }
    if desc.has_dilations:
        fields["Dilations"] = [row.dilation for row in plan.rows]
    return fields | {"IncludePadding": plan.include_padding}


def _tensor(tensor: Tensor) -> dict[str, Any]:
    said: dict[str, Any] = {"DataType": tensor.data_type.name, "Sizes": list(tensor.sizes)}
    if tensor.strides != _packed(tensor):
        said["Strides"] = [stride // tensor.dtype.itemsize for stride in tensor.strides]
    if tensor.alignment:
        said["GuaranteedBaseOffsetAlignment"] = tensor.alignment
    return said | {"TotalTensorSizeInBytes": tensor.total_size}


def _packed(tensor: Tensor) -> tuple[int, ...]:
    step, strides = tensor.dtype.itemsize, []
    for size in reversed(tensor.sizes):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))
