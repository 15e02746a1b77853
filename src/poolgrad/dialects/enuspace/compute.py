"""What each block computes: its properties and inputs, given to TensorFlow's op of the same name.

A refusal names the pin as enuSpace does and says how to mend the page, not the call.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...errors import PoolGradError, PoolGradValueError
from .. import tensorflow
from ..pooling import NoTranslation
from .check import property_value
from .grammar import MOST_AXES, Array, format_list, format_shape
from .page import Block

__all__ = ["evaluate"]

WHOLE = ("orig_input_shape", "orig_input_tensor_shape", "row_pooling_sequence", "col_pooling_sequence")
SHAPES = ("orig_input_shape", "orig_input_tensor_shape")


def evaluate(block: Block, inputs: Mapping[str, Array], most_elements: int | None = None) -> dict[str, Array]:
    """The outputs of a block, by pin; each of at most so many elements."""
    if most_elements is not None:
        _check_size(inputs, most_elements)
    if block.symbol in ("Const", "Const_ex"):
        return {"output": property_value(block, "val")[0]}
    definition = block.definition
    if definition is None:
        raise PoolGradValueError(f"the block {block.symbol} cannot run here")
    arguments = {pin.name: property_value(block, pin.name)[0] for pin in definition.of_kind("const")}
    arguments |= arguments.pop("attrs")
    try:
        made = getattr(tensorflow, block.symbol)(**inputs, **arguments)
    except PoolGradError as error:
        raise PoolGradValueError(f"{error}{_mend(block, inputs, arguments)}") from None
    return dict(made._asdict()) if isinstance(made, tensorflow.FractionalAvgPoolOutput) else {"output": made}


def _check_size(inputs: Mapping[str, Array], most: int) -> None:
    """Only a gradient can be larger than what comes in, and an input says how large."""
    for name in SHAPES:
        if name in inputs and inputs[name].dtype.kind == "i" and inputs[name].size <= MOST_AXES:
            shape = inputs[name].ravel().tolist()
            size = math.prod(shape)
            if size > most:
                raise PoolGradValueError(f"{name} {format_list(shape)} means {size} elements; at most {most} are made")


def _mend(block: Block, inputs: Mapping[str, Array], arguments: Mapping[str, Any]) -> str:
    """What to change on the page, where it can be told."""
    for name, array in inputs.items():
        if name in WHOLE and array.dtype.kind != "i":
            wide = "Const_ex with dtype DT_INT64 or a Const of type int"
            return f"; to mend it, feed {name} from a {wide}"
        if name not in WHOLE and array.dtype.kind in "biT" and not (block.symbol.startswith("Frac") and array.dtype.kind == "i"):
            return f"; to mend it, set the type of the Const that feeds {name} to float"
    if block.symbol in ("AvgPoolGrad", "AvgPool3DGrad"):
        return _mend_shapes(inputs, arguments)
    return ""


def _mend_shapes(inputs: Mapping[str, Array], arguments: Mapping[str, Any]) -> str:
    shape, grad = inputs["orig_input_shape"].ravel().tolist(), inputs["grad"]
    rank = len(arguments["ksize"])
    if len(shape) != rank or grad.ndim != rank:
        return f"; to mend it, give orig_input_shape {rank} values and grad {rank} axes"
    try:
        said = tensorflow.read(arguments, shape)
        cells = said.pool(shape).output_size
    except (PoolGradError, NoTranslation):
        return ""
    spatial = [k for k, letter in enumerate(said.layout) if letter not in "NC"]
    wanted, could = list(shape), list(grad.shape)
    for position, m in zip(spatial, cells, strict=True):
        wanted[position] = m
        k, s, n = arguments["ksize"][position], arguments["strides"][position], grad.shape[position]
        could[position] = n * s if arguments["padding"] == "SAME" else (n - 1) * s + k
    if tuple(wanted) == grad.shape:
        return ""
    other = f", or make orig_input_shape {format_list(could)}" if np.prod(could) else ""
    return f"; to mend it, give grad the shape {format_shape(wanted)}, one value for each output of the pooling{other}"
