"""DirectML's arguments and the common record between dialects: `read` and `write`.

Arguments are the fields of an operator without its tensors: `WindowSize`, `Strides`, `StartPadding`, `EndPadding`,
`IncludePadding` and, for AVERAGE_POOLING1, `Dilations`. Sizes follow N, C, (D,) H, W; where the elements lie in memory is
said by the strides of the tensors, so a layout is no argument.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from ...arguments import as_sizes
from ...geometry import Axis, Pool
from ..pooling import NoTranslation, Pooling, Regular
from .checks import check_operator
from .descs import AveragePooling1OperatorDesc, BufferTensorDesc
from .errors import DirectMLError
from .windows import Row, make_pool

__all__ = ["read", "write"]

_FIELDS = ("WindowSize", "Strides", "StartPadding", "EndPadding", "Dilations", "IncludePadding", "DimensionCount")


def read(arguments: Mapping[str, Any], input_shape: Sequence[int]) -> Pooling:
    """What these arguments say of an input of this N, C, (D,) H, W shape.

    Without `StartPadding` and `EndPadding` there is none, without `Dilations` they are 1, without `IncludePadding` it is FALSE.

    >>> read({"WindowSize": [2, 3], "Strides": [2, 1], "IncludePadding": True}, (1, 2, 6, 8))  # doctest: +NORMALIZE_WHITESPACE
    Regular(layout='NCHW', window=(2, 3), stride=(2, 1), padding=((0, 0), (0, 0)), dilation=(1, 1), count='window',
            divisor=None, ceil_mode=False)
    """
    for name in arguments:
        if name not in _FIELDS:
            raise DirectMLError("DML_OPERATOR_AVERAGE_POOLING", "arguments", f"among {', '.join(_FIELDS)}", name)
    for name in ("WindowSize", "Strides"):
        if name not in arguments:
            raise DirectMLError("DML_OPERATOR_AVERAGE_POOLING", name, "given", None)
    shape = as_sizes("input_shape", input_shape)
    axes = max(len(shape) - 2, 0)
    defaults = {"StartPadding": (0,) * axes, "EndPadding": (0,) * axes, "Dilations": (1,) * axes, "IncludePadding": False}
    tensor = BufferTensorDesc(DataType="FLOAT32", Sizes=shape)
    desc = AveragePooling1OperatorDesc(InputTensor=tensor, OutputTensor=tensor, **{**defaults, **arguments})
    plan = check_operator(desc, allow_explicit_sizes=True)
    return Regular(
        layout="NCHW" if axes == 2 else "NCDHW",
        window=tuple(row.window for row in plan.rows),
        stride=tuple(row.stride for row in plan.rows),
        padding=tuple((row.start, row.end) for row in plan.rows),
        dilation=tuple(row.dilation for row in plan.rows),
        count="window" if plan.include_padding else "inside",
    )


def write(pooling: Pooling, input_shape: Sequence[int]) -> dict[str, Any]:
    """DirectML's arguments for the same tables; ceil rounding becomes `EndPadding`, since DirectML has no flag for it.

    >>> write(Regular("NCHW", (3, 3), (2, 2), ((1, 1), (0, 0)), ceil_mode=True), (1, 2, 6, 8))
    {'WindowSize': [3, 3], 'Strides': [2, 2], 'StartPadding': [1, 0], 'EndPadding': [2, 1], 'IncludePadding': False}
    """
    pool = pooling.pool(input_shape)
    if any(size == 0 for size in (*pool.input_size, *pool.output_size)):
        raise NoTranslation(f"DirectML has no empty tensors, and the sizes are {pool.input_size} to {pool.output_size}")
    rows = _rows(pooling, pool)
    for include in (False, True):
        if _same(make_pool(rows, include), pool):
            break
    else:
        raise NoTranslation(_reason(pooling, pool))
    if len(rows) not in (2, 3):
        hint = ""
        if len(rows) == 1:
            hint = f"; as [N, C, 1, {rows[0].size}] it is WindowSize [1, {rows[0].window}], Strides [1, {rows[0].stride}]"
        raise NoTranslation(f"DirectML pools tensors with 2 or 3 spatial axes, this pooling has {len(rows)}{hint}")
    arguments: dict[str, Any] = {
        "WindowSize": [row.window for row in rows],
        "Strides": [row.stride for row in rows],
        "StartPadding": [row.start for row in rows],
        "EndPadding": [row.end for row in rows],
    }
    if any(row.dilation != 1 for row in rows):
        arguments["Dilations"] = [row.dilation for row in rows]
    for name, values in arguments.items():
        if max(values) > 2**32 - 1:
            raise NoTranslation(f"DirectML's {name} are 32-bit numbers, this pooling needs {values}")
    return arguments | {"IncludePadding": include}


def _rows(pooling: Pooling, pool: Pool) -> tuple[Row, ...]:
    """Windows that may make the tables of `pool`: as a regular pooling says them, or as the first two cells suggest."""
    if not isinstance(pooling, Regular):
        return tuple(_guess(axis) for axis in pool.axes)
    dilations = pooling.dilation or (1,) * len(pool.axes)
    said = zip(pool.axes, pooling.window, pooling.stride, pooling.padding, dilations, strict=True)
    return tuple(_ended(Row(axis.size, axis.cells, k, s, start, end, d)) for axis, k, s, (start, end), d in said)


def _guess(axis: Axis) -> Row:
    window = int(axis.stop[0] - axis.start[0])
    stride = int(axis.start[1] - axis.start[0]) if axis.cells > 1 else window
    return _ended(Row(axis.size, axis.cells, max(window, 1), max(stride, 1), 0, 0, 1))


def _ended(row: Row) -> Row:
    """`row` with the end padding that makes the documented formula give its number of cells."""
    if row.documented_cells == row.cells:
        return row
    return row._replace(end=max((row.cells - 1) * row.stride + row.reach - row.size - row.start, 0))


def _same(candidate: Pool, pool: Pool) -> bool:
    if pool.divisor is None:
        return candidate == pool
    windows = [(axis.size, axis.step, axis.start.tolist(), axis.stop.tolist()) for axis in candidate.axes]
    if windows != [(axis.size, axis.step, axis.start.tolist(), axis.stop.tolist()) for axis in pool.axes]:
        return False
    constant = all((axis.count == axis.count[0]).all() for axis in candidate.axes)
    return constant and prod(int(axis.count[0]) for axis in candidate.axes) == pool.divisor


def _reason(pooling: Pooling, pool: Pool) -> str:
    if not isinstance(pooling, Regular):
        uneven = next(axis for axis in pool.axes if make_pool((_guess(axis),), False).axes != (axis,))
        return f"DirectML has only evenly spaced windows of one size, unlike {uneven}"
    if pool.divisor is not None:
        whole = prod(pooling.window)
        return f"DirectML divides by the taps inside the input or by the whole window ({whole}), never by {pool.divisor}"
    return (
        f"DirectML counts the taps inside the input or the whole window; count={pooling.count!r} differs from both here, "
        "where a window passes the declared padding"
    )
