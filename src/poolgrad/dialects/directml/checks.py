"""Everything DirectML checks when an operator is created, and what its documentation requires, before any memory is touched.

`check_operator` turns a description into a `Plan`: numbers that hold together. A refusal names operator, field, what is
expected and what was given.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ...geometry import MAX_LENGTH, Pool
from .descs import BufferTensorDesc, OperatorDesc
from .enums import NUMPY_TYPES, TensorDataType, TensorFlags, lookup
from .errors import E_INVALIDARG, E_NOTIMPL, DirectMLError
from .windows import Row, make_pool

__all__ = ["MINIMUM_BUFFER_TENSOR_ALIGNMENT", "Plan", "Tensor", "check_operator", "check_tensor"]

MINIMUM_BUFFER_TENSOR_ALIGNMENT = 16
_UINT_MAX = 2**32 - 1
_UINT64_MAX = 2**64 - 1
_TYPES = (TensorDataType.FLOAT32, TensorDataType.FLOAT16)
_EXTENSION_TYPES = (*_TYPES, TensorDataType.FLOAT64, TensorDataType.BFLOAT16)


class Tensor(NamedTuple):
    """A checked tensor; strides in bytes. `extent` counts the elements from the first to the last, gaps included."""

    field: str
    data_type: TensorDataType
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    extent: int
    total_size: int
    alignment: int
    owned_by_dml: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        return NUMPY_TYPES[self.data_type]


class Plan(NamedTuple):
    """A checked operator."""

    operator: str
    forwards: bool
    source: Tensor
    result: Tensor
    rows: tuple[Row, ...]
    include_padding: bool

    def pool(self) -> Pool:
        return make_pool(self.rows, self.include_padding)


def check_operator(
    desc: OperatorDesc, *, allow_extension_types: bool = False, allow_explicit_sizes: bool = False, strict: bool = False
) -> Plan:
    """`desc` as numbers that hold together, or a `DirectMLError`. The options are those of `compile_operator`."""
    if not isinstance(desc, OperatorDesc):
        raise DirectMLError("an operator", "desc", "one of the OperatorDesc classes of poolgrad.directml", desc)
    to = _Refusal(desc.operator)
    source, result = (_pooled_tensor(to, desc, field, allow_extension_types) for field in (desc.input_field, desc.output_field))
    if result.owned_by_dml:
        to.refuse(f"{result.field}.Flags", "NONE for an output", "OWNED_BY_DML")
    if source.data_type != result.data_type:
        to.refuse(f"{result.field}.DataType", f"{source.data_type.name}, as for {source.field}", result.data_type.name)
    if len(source.sizes) != len(result.sizes):
        to.refuse(f"{result.field}.DimensionCount", f"{len(source.sizes)}, as for {source.field}", len(result.sizes))
    if source.sizes[:2] != result.sizes[:2]:
        to.refuse(f"{result.field}.Sizes", f"{source.sizes[:2]} in N and C, as for {source.field}", result.sizes)
    if _overlaps(result):
        to.refuse(f"{result.field}.Strides", "such that no two elements of an output share a place", _strides(result))
    rows = _rows(to, desc, source, result)
    include = to.boolean("IncludePadding", desc.IncludePadding)
    _check_sizes(to, desc, rows, explicit=allow_explicit_sizes)
    plan = Plan(desc.operator, desc.forwards, source, result, rows, include)
    if strict:
        _check_taps(to, plan)
    return plan


def check_tensor(desc: BufferTensorDesc, field: str = "Tensor", operator: str = "DML_BUFFER_TENSOR_DESC") -> Tensor:
    """A buffer tensor by itself, of any type that has a NumPy counterpart and any rank up to 8."""
    to = _Refusal(operator)
    if not isinstance(desc, BufferTensorDesc):
        to.refuse(field, "a BufferTensorDesc", desc)
    data_type = lookup(TensorDataType, desc.DataType)
    if data_type not in NUMPY_TYPES:
        to.refuse(f"{field}.DataType", "one of " + ", ".join(kind.name for kind in NUMPY_TYPES), desc.DataType)
    flags = lookup(TensorFlags, desc.Flags)
    if flags is None:
        to.refuse(f"{field}.Flags", "NONE or OWNED_BY_DML", desc.Flags)
    sizes = to.uints(f"{field}.Sizes", desc.Sizes, 1)
    if not 1 <= len(sizes) <= 8:
        to.refuse(f"{field}.Sizes", "1 to 8 sizes", desc.Sizes)
    if desc.DimensionCount is not None and to.uint(f"{field}.DimensionCount", desc.DimensionCount) != len(sizes):
        to.refuse(f"{field}.DimensionCount", f"{len(sizes)}, the number of Sizes", desc.DimensionCount)
    packed = tuple(prod(sizes[k + 1 :]) for k in range(len(sizes)))
    strides = packed if desc.Strides is None else to.uints(f"{field}.Strides", desc.Strides, 0, len(sizes))
    extent = 1 + sum((n - 1) * s for n, s in zip(sizes, strides, strict=True))
    if max(prod(sizes), extent) > _UINT_MAX:
        to.refuse(f"{field}.Sizes", f"at most {_UINT_MAX} elements, gaps included", max(prod(sizes), extent))
    itemsize = NUMPY_TYPES[data_type].itemsize
    least = -(-extent * itemsize // 4) * 4
    total = least
    if desc.TotalTensorSizeInBytes is not None:
        total = to.uint(f"{field}.TotalTensorSizeInBytes", desc.TotalTensorSizeInBytes, least, _UINT64_MAX)
    alignment = to.uint(f"{field}.GuaranteedBaseOffsetAlignment", desc.GuaranteedBaseOffsetAlignment)
    if alignment and (alignment & (alignment - 1) or alignment < itemsize):
        to.refuse(f"{field}.GuaranteedBaseOffsetAlignment", f"0 or a power of two of at least {itemsize}", alignment)
    steps = tuple(s * itemsize for s in strides)
    return Tensor(field, data_type, sizes, steps, extent, total, alignment, bool(flags & TensorFlags.OWNED_BY_DML))


class _Refusal:
    """Readers of single fields, for one operator."""

    def __init__(self, operator: str) -> None:
        self.operator = operator

    def refuse(self, field: str, expected: str, given: object, hresult: int = E_INVALIDARG) -> NoReturn:
        raise DirectMLError(self.operator, field, expected, given, hresult)

    def uint(self, field: str, value: object, least: int = 0, most: int = _UINT_MAX) -> int:
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or not least <= value <= most:
            self.refuse(field, f"an integer from {least} to {most}", value)
        return int(value)

    def uints(self, field: str, values: object, least: int, length: int | None = None) -> tuple[int, ...]:
        if isinstance(values, np.ndarray) and values.ndim == 1:
            values = values.tolist()
        if not isinstance(values, Sequence) or isinstance(values, (str, bytes)):
            self.refuse(field, "a sequence of integers", values)
        if length is not None and len(values) != length:
            self.refuse(field, f"{length} integers", values)
        return tuple(self.uint(f"{field}[{k}]", value, least) for k, value in enumerate(values))

    def boolean(self, field: str, value: object) -> bool:
        if not isinstance(value, (bool, int, np.bool_, np.integer)) or value not in (0, 1):
            self.refuse(field, "TRUE or FALSE (1 or 0)", value)
        return bool(value)


def _pooled_tensor(to: _Refusal, desc: OperatorDesc, field: str, extension: bool) -> Tensor:
    tensor = check_tensor(getattr(desc, field), field, to.operator)
    if tensor.data_type not in (_EXTENSION_TYPES if extension else _TYPES):
        expected = " or ".join(kind.name for kind in _TYPES)
        if tensor.data_type in _EXTENSION_TYPES:
            expected += f" ({tensor.data_type.name} with allow_extension_types=True)"
        to.refuse(f"{field}.DataType", expected, tensor.data_type.name)
    if len(tensor.sizes) not in (4, 5):
        to.refuse(f"{field}.DimensionCount", "4 or 5", len(tensor.sizes))
    for k, size in enumerate(tensor.sizes[2:], 2):
        if size > MAX_LENGTH:
            to.refuse(f"{field}.Sizes[{k}]", f"at most {MAX_LENGTH} here", size, E_NOTIMPL)
    return tensor


def _rows(to: _Refusal, desc: OperatorDesc, source: Tensor, result: Tensor) -> tuple[Row, ...]:
    axes = len(source.sizes) - 2
    if desc.DimensionCount is not None and to.uint("DimensionCount", desc.DimensionCount) != axes:
        to.refuse("DimensionCount", f"{axes}, the spatial axes of {len(source.sizes)}-D tensors", desc.DimensionCount)
    inputs, outputs = (source, result) if desc.forwards else (result, source)
    dilations = to.uints("Dilations", desc.Dilations, 1, axes) if desc.has_dilations else (1,) * axes  # type: ignore[attr-defined]
    columns = zip(
        inputs.sizes[2:],
        outputs.sizes[2:],
        to.uints("WindowSize", desc.WindowSize, 1, axes),
        to.uints("Strides", desc.Strides, 1, axes),
        to.uints("StartPadding", desc.StartPadding, 0, axes),
        to.uints("EndPadding", desc.EndPadding, 0, axes),
        dilations,
        strict=True,
    )
    return tuple(Row(*column) for column in columns)


def _check_sizes(to: _Refusal, desc: OperatorDesc, rows: tuple[Row, ...], *, explicit: bool) -> None:
    field = desc.output_field if desc.forwards else desc.input_field
    for k, row in enumerate(rows):
        padded = row.size + row.start + row.end
        if row.reach > padded:
            to.refuse(f"WindowSize[{k}]", f"such that the window fits the padded input of {padded}", f"{row.reach} wide")
        if not explicit and row.cells != row.documented_cells:
            formula = f"({row.size} + {row.start} + {row.end} - {row.reach}) / {row.stride} + 1 = {row.documented_cells}"
            to.refuse(f"{field}.Sizes[{k + 2}]", f"{formula} (or any with allow_explicit_sizes=True)", row.cells)
    if prod(row.window for row in rows) > 2**63 - 1:
        to.refuse("WindowSize", "a window of less than 2**63 elements", tuple(row.window for row in rows), E_NOTIMPL)


def _check_taps(to: _Refusal, plan: Plan) -> None:
    """A window without a tap inside the input divides nothing by nothing; the documentation does not say what comes out."""
    for k, (row, axis) in enumerate(zip(plan.rows, plan.pool().axes, strict=True)):
        for field, padding in (("StartPadding", row.start), ("EndPadding", row.end)):
            if padding >= row.reach:
                to.refuse(f"{field}[{k}]", f"less than the window ({row.reach} wide) in strict mode", padding)
        empty = np.flatnonzero(axis.stop <= axis.start)
        if len(empty):
            to.refuse(f"WindowSize[{k}]", "such that every window meets the input in strict mode", f"window {empty[0]} outside")


def _strides(tensor: Tensor) -> tuple[int, ...]:
    return tuple(s // tensor.dtype.itemsize for s in tensor.strides)


def _overlaps(tensor: Tensor) -> bool:
    """Whether two elements may share a place: sorted by stride, each axis must step over all that the smaller ones span."""
    span = tensor.dtype.itemsize
    for stride, size in sorted((s, n) for s, n in zip(tensor.strides, tensor.sizes, strict=True) if n > 1):
        if stride < span:
            return True
        span += stride * (size - 1)
    return False
