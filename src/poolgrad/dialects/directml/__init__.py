"""DirectML's average pooling on any machine: its three operators, checked as it checks them, on buffers with its strides.

`compile_operator(desc)` checks a description, `execute` runs it on buffers in place. `dxdispatch` runs DxDispatch models.
The gradient of AVERAGE_POOLING1, FLOAT64 and BFLOAT16 are extensions of ours, and have to be asked for.
"""

from .descs import (
    AveragePooling1GradOperatorDesc,
    AveragePooling1OperatorDesc,
    AveragePoolingGradOperatorDesc,
    AveragePoolingOperatorDesc,
    BufferTensorDesc,
    interleaved_channel_strides,
)
from .enums import ExecutionFlags, TensorDataType, TensorFlags
from .errors import DirectMLError
from .run import BufferBinding, CompiledOperator, compile_operator, new_buffer, tensor_view
from .translation import read, write

__all__ = [
    "AveragePooling1GradOperatorDesc",
    "AveragePooling1OperatorDesc",
    "AveragePoolingGradOperatorDesc",
    "AveragePoolingOperatorDesc",
    "BufferBinding",
    "BufferTensorDesc",
    "CompiledOperator",
    "DirectMLError",
    "ExecutionFlags",
    "TensorDataType",
    "TensorFlags",
    "compile_operator",
    "interleaved_channel_strides",
    "new_buffer",
    "read",
    "tensor_view",
    "write",
]
