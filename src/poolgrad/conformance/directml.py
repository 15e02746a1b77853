"""Cases as DirectML's own operator, and models that settle what its documentation leaves open.

An open point has no right answer: it has readings, one of which DirectML's answer will agree with.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from math import prod
from typing import Any

import numpy as np

from .. import exact
from ..dialects.directml import AveragePoolingGradOperatorDesc, AveragePoolingOperatorDesc, BufferTensorDesc
from ..dialects.directml.descs import OperatorDesc
from ..dialects.directml.dxdispatch import model_for
from ..dialects.directml.windows import Row, make_pool
from ..dialects.pooling import NoTranslation, Regular
from .case import Array, Case
from .targets.base import moved, written

__all__ = ["OpenPoint", "model", "open_points"]

TYPES = {"float16": "FLOAT16", "float32": "FLOAT32"}


def model(case: Case, input_file: str, output_file: str) -> dict[str, Any]:
    """The DxDispatch model of a case, or `NoTranslation`."""
    layout = case.pooling.layout
    if case.dtype not in TYPES:
        raise NoTranslation(f"DirectML pools FLOAT16 and FLOAT32, not {case.dtype}")
    if not set("NC") <= set(layout) or 0 in case.input_shape + case.dy_shape:
        raise NoTranslation(f"DirectML's tensors have batch and channels and are not empty, got {layout} {case.input_shape}")
    turned, order = moved(case, "NCLDHW")
    arguments = written("directml", turned)
    if "Dilations" in arguments:
        raise NoTranslation("DirectML's gradient has no dilation")

    def tensor(shape: tuple[int, ...]) -> BufferTensorDesc:
        strides = tuple(prod(shape[p + 1 :]) for p in order)
        return BufferTensorDesc(DataType=TYPES[case.dtype], Sizes=tuple(shape[p] for p in order), Strides=strides)

    desc = AveragePoolingGradOperatorDesc(
        InputGradientTensor=tensor(case.dy_shape), OutputGradientTensor=tensor(case.input_shape), **arguments
    )
    return model_for(desc, input_file=input_file, output_file=output_file)


@dataclass(frozen=True)
class OpenPoint:
    """A question to DirectML: a call, and for each possible meaning of it the result."""

    name: str
    question: str
    desc: OperatorDesc
    given: Array
    readings: dict[str, Array]

    def model(self, input_file: str, output_file: str) -> dict[str, Any]:
        return model_for(self.desc, input_file=input_file, output_file=output_file, allow_explicit_sizes=True)

    def reading_of(self, answer: Array) -> str:
        """Which reading an answer agrees with."""
        shape = next(iter(self.readings.values())).shape
        if answer.size != prod(shape) or answer.dtype != self.given.dtype:
            return f"another result: {answer.dtype} of shape {answer.shape}"
        agreed = [name for name, result in self.readings.items() if _agree(answer.reshape(shape), result)]
        return " or ".join(agreed) or f"something else: {answer.ravel()[:8].tolist()}…"


def _agree(answer: Array, reading: Array) -> bool:
    """All terms are positive, so a relative error is a fair measure."""
    a, b = answer.astype(np.float64), reading.astype(np.float64)
    return bool(np.allclose(a, b, rtol=4 * float(np.finfo(reading.dtype).eps), atol=0, equal_nan=True))


def _numbers(shape: tuple[int, ...], dtype: str = "float32") -> Array:
    return np.array([(7 * k % 23 + 1) / 4 for k in range(prod(shape))]).astype(dtype).reshape(shape)


def _desc(rows: tuple[Row, ...], include: bool, forwards: bool = False, dtype: str = "float32") -> OperatorDesc:
    small, large = (
        BufferTensorDesc(DataType=TYPES[dtype], Sizes=(1, 2, *(getattr(row, name) for row in rows))) for name in ("cells", "size")
    )
    said = {
        "WindowSize": tuple(row.window for row in rows),
        "Strides": tuple(row.stride for row in rows),
        "StartPadding": tuple(row.start for row in rows),
        "EndPadding": tuple(row.end for row in rows),
        "IncludePadding": include,
    }
    if forwards:
        return AveragePoolingOperatorDesc(InputTensor=large, OutputTensor=small, **said)  # type: ignore[arg-type]
    return AveragePoolingGradOperatorDesc(InputGradientTensor=small, OutputGradientTensor=large, **said)  # type: ignore[arg-type]


def _overhang(include: bool) -> OpenPoint:
    """The last windows pass the input, and no padding is declared: 4 and 5 inputs, 2 and 3 cells."""
    rows, dy = (Row(4, 2, 3, 2, 0, 0, 1), Row(5, 3, 2, 2, 0, 0, 1)), _numbers((1, 2, 2, 3))
    padded = Regular("NCHW", (3, 2), (2, 2), ((0, 0), (0, 0)), count="padded", ceil_mode=True).pool((1, 2, 4, 5))
    readings = {
        "divides by the whole window": exact.gradient(make_pool(rows, True), dy, "NCHW"),
        "divides by the taps inside": exact.gradient(padded, dy, "NCHW"),
    }
    said = str(include).upper()
    question = f"dY larger than the formula, IncludePadding {said}: what does a window beyond the padding divide by?"
    return OpenPoint(f"overhang-{said.lower()}", question, _desc(rows, include), dy, readings)


def _no_tap(forwards: bool) -> OpenPoint:
    """The first row of windows lies in the padding altogether."""
    rows = (Row(4, 3, 2, 2, 2, 0, 1), Row(5, 4, 2, 1, 0, 0, 1))
    pool, desc = make_pool(rows, False), _desc(rows, False, forwards)
    question = "IncludePadding FALSE and a window without any input: what comes of 0/0?"
    if forwards:
        x = _numbers((1, 2, 4, 5))
        zero = exact.forward(pool, x, "NCHW")
        nan = zero.copy()
        nan[:, :, 0] = np.nan
        return OpenPoint("no-tap-forward", question, desc, x, {"is 0": zero, "is NaN": nan})
    dy = _numbers((1, 2, 3, 4))
    return OpenPoint("no-tap-gradient", question, desc, dy, {"adds nothing": exact.gradient(pool, dy, "NCHW")})


def _fewer() -> OpenPoint:
    rows, dy = (Row(7, 2, 2, 2, 0, 0, 1), Row(5, 2, 2, 1, 0, 0, 1)), _numbers((1, 2, 2, 2))
    readings = {"yes, those cells": exact.gradient(make_pool(rows, False), dy, "NCHW")}
    return OpenPoint("fewer-cells", "dY smaller than the formula: is it taken?", _desc(rows, False), dy, readings)


def _half() -> OpenPoint:
    """One large term and eighty that a sum in float16 does not notice."""
    rows = (Row(17, 9, 9, 1, 0, 0, 1),) * 2
    dy, pool = np.full((1, 2, 9, 9), 16, dtype=np.float16), make_pool(rows, False)
    dy[:, :, 0, 0] = 60000
    stepwise = np.zeros((1, 2, 17, 17), dtype=np.float16)
    for i, j in np.ndindex(9, 9):
        share = (dy[:, :, i : i + 1, j : j + 1].astype(np.float32) / np.float32(81)).astype(np.float16)
        stepwise[:, :, i : i + 9, j : j + 9] += share
    readings = {"adds in float32": exact.gradient(pool, dy, "NCHW"), "adds in float16": stepwise}
    return OpenPoint("float16-sum", "In which type are FLOAT16 terms added?", _desc(rows, False, dtype="float16"), dy, readings)


@cache
def open_points() -> dict[str, OpenPoint]:
    """The questions by name."""
    points = [_overhang(True), _overhang(False), _no_tap(True), _no_tap(False), _fewer(), _half()]
    return {point.name: point for point in points}
