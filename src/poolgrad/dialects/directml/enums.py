"""DirectML's enumerations, with its values. A name may be written in full or without its prefix."""

from __future__ import annotations

from enum import IntEnum, IntFlag
from typing import Any, TypeVar

import ml_dtypes
import numpy as np

__all__ = ["NUMPY_TYPES", "ExecutionFlags", "TensorDataType", "TensorFlags", "TensorType", "lookup"]


class TensorDataType(IntEnum):
    """DML_TENSOR_DATA_TYPE. BFLOAT16 is ours: DirectML has no such type."""

    UNKNOWN = 0
    FLOAT32 = 1
    FLOAT16 = 2
    UINT32 = 3
    UINT16 = 4
    UINT8 = 5
    INT32 = 6
    INT16 = 7
    INT8 = 8
    FLOAT64 = 9
    UINT64 = 10
    INT64 = 11
    UINT4 = 12
    INT4 = 13
    BFLOAT16 = 0x10000


class TensorType(IntEnum):
    """DML_TENSOR_TYPE."""

    INVALID = 0
    BUFFER = 1


class TensorFlags(IntFlag):
    """DML_TENSOR_FLAGS. The data of an OWNED_BY_DML tensor is bound once, at initialisation."""

    NONE = 0
    OWNED_BY_DML = 1


class ExecutionFlags(IntFlag):
    """DML_EXECUTION_FLAGS. None of them changes a result here."""

    NONE = 0
    ALLOW_HALF_PRECISION_COMPUTATION = 1
    DISABLE_META_COMMANDS = 2
    DESCRIPTORS_VOLATILE = 4


_PREFIX: dict[type[IntEnum | IntFlag], str] = {
    TensorDataType: "DML_TENSOR_DATA_TYPE_",
    TensorType: "DML_TENSOR_TYPE_",
    TensorFlags: "DML_TENSOR_FLAG_",
    ExecutionFlags: "DML_EXECUTION_FLAG_",
}

NUMPY_TYPES: dict[TensorDataType, np.dtype[Any]] = {
    kind: np.dtype(kind.name.lower()) for kind in TensorDataType if kind.name not in ("UNKNOWN", "UINT4", "INT4", "BFLOAT16")
} | {TensorDataType.BFLOAT16: np.dtype(ml_dtypes.bfloat16)}

_E = TypeVar("_E", TensorDataType, TensorType, TensorFlags, ExecutionFlags)


def lookup(kind: type[_E], value: object) -> _E | None:
    """The member that `value` names (a member, its number, its name in full or short), or None.

    >>> lookup(TensorDataType, "DML_TENSOR_DATA_TYPE_FLOAT16") is lookup(TensorDataType, "FLOAT16") is lookup(TensorDataType, 2)
    True
    """
    if isinstance(value, str):
        return kind.__members__.get(value.removeprefix(_PREFIX[kind]))
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 0:
        return None
    try:
        found = kind(int(value))
    except ValueError:
        return None
    return found if isinstance(found, IntEnum) or found <= sum(kind) else None
