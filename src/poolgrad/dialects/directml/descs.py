"""DirectML's descriptions, with its own field names. They hold what was said; `checks` says whether it holds together.

Tensors are described in the logical order N, C, (D,) H, W; `Strides` of a tensor, in elements, say where its elements lie
in memory. Arrays of an operator follow the order (D,) H, W. `DimensionCount` may be left out: it is the number of entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from .enums import TensorDataType, TensorFlags

__all__ = [
    "AveragePooling1GradOperatorDesc",
    "AveragePooling1OperatorDesc",
    "AveragePoolingGradOperatorDesc",
    "AveragePoolingOperatorDesc",
    "BufferTensorDesc",
    "OperatorDesc",
    "interleaved_channel_strides",
]


@dataclass(frozen=True, kw_only=True)
class BufferTensorDesc:
    """DML_BUFFER_TENSOR_DESC: where the elements of a tensor lie in a buffer.

    `DataType` and `Flags` are a member, a number or a name, such as ``"FLOAT32"``. Without `Strides` the elements are packed
    in row-major order. Without `TotalTensorSizeInBytes` it is the least that holds them, rounded up to four bytes.
    """

    DataType: TensorDataType | str | int
    Sizes: Sequence[int]
    Strides: Sequence[int] | None = None
    TotalTensorSizeInBytes: int | None = None
    GuaranteedBaseOffsetAlignment: int = 0
    Flags: TensorFlags | str | int = TensorFlags.NONE
    DimensionCount: int | None = None


@dataclass(frozen=True, kw_only=True)
class OperatorDesc:
    """What the four descriptions share."""

    operator: ClassVar[str]
    input_field: ClassVar[str] = "InputTensor"
    output_field: ClassVar[str] = "OutputTensor"
    forwards: ClassVar[bool] = True
    has_dilations: ClassVar[bool] = False
    is_extension: ClassVar[bool] = False

    Strides: Sequence[int]
    WindowSize: Sequence[int]
    StartPadding: Sequence[int]
    EndPadding: Sequence[int]
    IncludePadding: bool
    DimensionCount: int | None = None


@dataclass(frozen=True, kw_only=True)
class AveragePoolingOperatorDesc(OperatorDesc):
    """DML_AVERAGE_POOLING_OPERATOR_DESC (operator 56, feature level 1.0)."""

    operator = "DML_OPERATOR_AVERAGE_POOLING"
    InputTensor: BufferTensorDesc
    OutputTensor: BufferTensorDesc


@dataclass(frozen=True, kw_only=True)
class AveragePooling1OperatorDesc(OperatorDesc):
    """DML_AVERAGE_POOLING1_OPERATOR_DESC (feature level 6.2): average pooling with dilation."""

    operator = "DML_OPERATOR_AVERAGE_POOLING1"
    has_dilations = True
    InputTensor: BufferTensorDesc
    OutputTensor: BufferTensorDesc
    Dilations: Sequence[int]


@dataclass(frozen=True, kw_only=True)
class AveragePoolingGradOperatorDesc(OperatorDesc):
    """DML_AVERAGE_POOLING_GRAD_OPERATOR_DESC (operator 130, feature level 3.0).

    `InputGradientTensor` is dY, with the sizes of the forward's output; `OutputGradientTensor` is dX, with those of its input.
    """

    operator = "DML_OPERATOR_AVERAGE_POOLING_GRAD"
    input_field, output_field, forwards = "InputGradientTensor", "OutputGradientTensor", False
    InputGradientTensor: BufferTensorDesc
    OutputGradientTensor: BufferTensorDesc


@dataclass(frozen=True, kw_only=True)
class AveragePooling1GradOperatorDesc(OperatorDesc):
    """The gradient of AVERAGE_POOLING1. An extension: DirectML has no such operator."""

    operator = "DML_OPERATOR_AVERAGE_POOLING1_GRAD"
    input_field, output_field, forwards = "InputGradientTensor", "OutputGradientTensor", False
    has_dilations = True
    is_extension = True
    InputGradientTensor: BufferTensorDesc
    OutputGradientTensor: BufferTensorDesc
    Dilations: Sequence[int]


def interleaved_channel_strides(sizes: Sequence[int]) -> tuple[int, ...]:
    """Strides of a tensor of these N, C, (D,) H, W sizes that lies in memory as NHWC or NDHWC.

    >>> interleaved_channel_strides((2, 3, 5, 7))
    (105, 1, 21, 3)
    """
    spatial = [sizes[1] * prod(sizes[k + 1 :]) for k in range(2, len(sizes))]
    return (prod(sizes[1:]), 1, *spatial)
