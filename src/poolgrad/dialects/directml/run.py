"""Running an operator on buffers: linear memory, read and written in place through the strides of its tensors.

A buffer is anything with the buffer protocol: bytes, a bytearray, a memoryview, mmap, a contiguous NumPy array of bytes or
of the tensor's own type. No tensor is copied, whatever its strides; only the elements of the output are written, never the
gaps between them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from ... import ops
from ...arrays import check_fits, check_out
from ...errors import PoolGradValueError
from ...geometry import Pool
from .checks import MINIMUM_BUFFER_TENSOR_ALIGNMENT, Plan, Tensor, check_operator, check_tensor
from .descs import BufferTensorDesc, OperatorDesc
from .errors import DXGI_ERROR_DEVICE_REMOVED, DirectMLError

__all__ = ["BufferBinding", "CompiledOperator", "compile_operator", "new_buffer", "tensor_view"]

Array = npt.NDArray[Any]
_LAYOUTS = {4: "NCHW", 5: "NCDHW"}


@dataclass(frozen=True)
class BufferBinding:
    """DML_BUFFER_BINDING: a range of a buffer, in bytes; without `SizeInBytes` up to its end."""

    Buffer: Any
    Offset: int = 0
    SizeInBytes: int | None = None


def compile_operator(
    desc: OperatorDesc, *, allow_extension_types: bool = False, allow_explicit_sizes: bool = False, strict: bool = False
) -> CompiledOperator:
    """Check a description and make it ready to run.

    Parameters
    ----------
    desc
        One of the OperatorDesc classes.
    allow_extension_types
        Serve FLOAT64 and BFLOAT16 too, which DirectML does not.
    allow_explicit_sizes
        Let the pooled tensor have sizes other than the documented formula's; larger ones are ceil rounding.
    strict
        Refuse windows with no tap inside the input, whose mean is undefined; otherwise they are 0 and give nothing.

    Examples
    --------
    >>> import numpy as np
    >>> from poolgrad import directml
    >>> op = directml.compile_operator(directml.AveragePoolingGradOperatorDesc(
    ...     InputGradientTensor=directml.BufferTensorDesc(DataType="FLOAT32", Sizes=(1, 1, 2, 2)),
    ...     OutputGradientTensor=directml.BufferTensorDesc(DataType="FLOAT32", Sizes=(1, 1, 3, 3)),
    ...     Strides=(1, 1), WindowSize=(2, 2), StartPadding=(0, 0), EndPadding=(0, 0), IncludePadding=False))
    >>> dy, dx = np.array([1, 2, 3, 4], np.float32), np.zeros((3, 3), np.float32)
    >>> op.execute({"InputGradientTensor": dy, "OutputGradientTensor": dx})
    >>> dx
    array([[0.25, 0.75, 0.5 ],
           [1.  , 2.5 , 1.5 ],
           [0.75, 1.75, 1.  ]], dtype=float32)
    """
    plan = check_operator(
        desc, allow_extension_types=allow_extension_types, allow_explicit_sizes=allow_explicit_sizes, strict=strict
    )
    return CompiledOperator(desc, plan)


class CompiledOperator:
    """A checked operator. `execute` binds its buffers and runs it."""

    def __init__(self, desc: OperatorDesc, plan: Plan) -> None:
        self.desc, self.plan = desc, plan
        self._owned: Array | None = None

    @cached_property
    def pool(self) -> Pool:
        """The tables of its windows."""
        return self.plan.pool()

    def initialize(self, bindings: Mapping[str, Any]) -> None:
        """Take a copy of the data of an input that is OWNED_BY_DML, as DirectML does."""
        source = self.plan.source
        self._names(bindings, {source.field} if source.owned_by_dml else set())
        if source.owned_by_dml:
            self._owned = self._bound(source, bindings).copy()

    def execute(self, bindings: Mapping[str, Any], *, num_threads: int | None = None) -> None:
        """Run on these buffers, by tensor field: each a buffer or a `BufferBinding`."""
        source, result = self.plan.source, self.plan.result
        self._names(bindings, {result.field} if source.owned_by_dml else {source.field, result.field})
        if source.owned_by_dml:
            if self._owned is None:
                self._refuse(source.field, "bound by initialize() before execute(), being OWNED_BY_DML", "nothing")
            taken = self._owned
        else:
            taken = self._bound(source, bindings)
        out = self._bound(result, bindings)
        if not out.flags.writeable:
            self._refuse(result.field, "bound to a writeable buffer", "a read-only one")
        try:
            check_out(out, taken, out.shape)
        except PoolGradValueError:
            self._refuse(result.field, f"bound to places other than those of {source.field}", "overlapping ones")
        run = ops.forward if self.plan.forwards else ops.gradient
        run(self.pool, taken, layout=_LAYOUTS[taken.ndim], out=out, num_threads=num_threads)

    def _names(self, bindings: Mapping[str, Any], wanted: set[str]) -> None:
        if not isinstance(bindings, Mapping) or set(bindings) != wanted:
            given = sorted(map(str, bindings)) if isinstance(bindings, Mapping) else bindings
            self._refuse("bindings", f"exactly for {sorted(wanted)}", given)

    def _bound(self, tensor: Tensor, bindings: Mapping[str, Any]) -> Array:
        binding = bindings[tensor.field]
        if not isinstance(binding, BufferBinding):
            binding = BufferBinding(binding)
        return _view(tensor, binding, self.plan.operator)

    def _refuse(self, field: str, expected: str, given: object) -> NoReturn:
        raise DirectMLError(self.plan.operator, field, expected, given, DXGI_ERROR_DEVICE_REMOVED)


def tensor_view(desc: BufferTensorDesc, buffer: Any) -> Array:
    """The elements of a tensor in a buffer (or `BufferBinding`), as an array of its sizes that shares the buffer's memory.

    >>> import numpy as np
    >>> desc = BufferTensorDesc(DataType="FLOAT16", Sizes=(1, 2, 1, 3), Strides=(6, 1, 6, 2))
    >>> tensor_view(desc, np.arange(6, dtype=np.float16)).tolist()
    [[[[0.0, 2.0, 4.0]], [[1.0, 3.0, 5.0]]]]
    """
    binding = buffer if isinstance(buffer, BufferBinding) else BufferBinding(buffer)
    return _view(check_tensor(desc), binding, "DML_BUFFER_TENSOR_DESC")


def new_buffer(desc: BufferTensorDesc, values: Any = None) -> npt.NDArray[np.uint8]:
    """A zeroed buffer of the tensor's total size, with `values` in the places of its elements if given.

    >>> desc = BufferTensorDesc(DataType="FLOAT16", Sizes=(1, 1, 1, 3))
    >>> len(new_buffer(desc, [[[[1, 2, 3]]]]))  # three halves take six bytes, rounded up to four
    8
    """
    tensor = check_tensor(desc)
    check_fits("a buffer of bytes", (tensor.total_size,), np.dtype(np.uint8))
    buffer = np.zeros(tensor.total_size, dtype=np.uint8)
    if values is not None:
        given = np.asarray(values)
        if given.shape != tensor.sizes:
            raise PoolGradValueError(f"values must have the tensor's Sizes {tensor.sizes}, got shape {given.shape}")
        tensor_view(desc, buffer)[...] = given
    return buffer


def _view(tensor: Tensor, binding: BufferBinding, operator: str) -> Array:
    def refuse(expected: str, given: object) -> NoReturn:
        raise DirectMLError(operator, tensor.field, expected, given, DXGI_ERROR_DEVICE_REMOVED)

    memory = _bytes_of(binding.Buffer, tensor)
    if memory is None:
        refuse(f"bound to contiguous memory of bytes or of {tensor.data_type.name}", _kind(binding.Buffer))
    offset, size = binding.Offset, binding.SizeInBytes
    alignment = tensor.alignment or MINIMUM_BUFFER_TENSOR_ALIGNMENT
    if not _is_integer(offset) or not 0 <= offset <= len(memory) or offset % alignment:
        refuse(f"bound at an Offset within the buffer that is a multiple of {alignment}", offset)
    rest = len(memory) - offset
    if size is not None and (not _is_integer(size) or not 0 <= size <= rest):
        refuse(f"bound to a SizeInBytes within the {rest} bytes from Offset {offset}", size)
    if (rest if size is None else size) < tensor.total_size:
        refuse(f"bound to at least {tensor.total_size} bytes (TotalTensorSizeInBytes)", rest if size is None else size)
    view: Array = np.ndarray(tensor.sizes, tensor.dtype, buffer=memory, offset=int(offset), strides=tensor.strides)
    return view


def _bytes_of(buffer: Any, tensor: Tensor) -> npt.NDArray[np.uint8] | None:
    """The memory itself, or None if it is not contiguous or holds another type."""
    if not isinstance(buffer, np.ndarray):
        try:
            buffer = np.asarray(memoryview(buffer))
        except (TypeError, ValueError, BufferError):
            return None
    typed = buffer.dtype == tensor.dtype or (buffer.dtype.itemsize == 1 and not buffer.dtype.hasobject)
    if not typed or not buffer.flags.c_contiguous:
        return None
    memory: npt.NDArray[np.uint8] = buffer.reshape(-1).view(np.uint8, np.ndarray)
    return memory


def _kind(buffer: Any) -> str:
    if isinstance(buffer, np.ndarray):
        return f"an array of {buffer.dtype} with shape {buffer.shape} and strides {buffer.strides}"
    return type(buffer).__name__


def _is_integer(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)
