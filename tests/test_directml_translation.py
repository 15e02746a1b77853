"""DirectML's arguments into the common record and back: equal tables, or the reason why there are none."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
import support
from directml_support import cases
from hypothesis import given, reject
from hypothesis import strategies as st

from poolgrad import PoolGradError, directml, exact
from poolgrad.dialects.pooling import Adaptive, Fractional, NoTranslation, Regular


class TestTranslation:
    @given(cases())
    def test_read_and_write_give_equal_tables(self, case: dict[str, Any]) -> None:
        shape = (*case["outer"], *(row[0] for row in case["rows"]))
        _, window, stride, start, end, dilation = (list(column) for column in zip(*case["rows"], strict=True))
        arguments = {
            "WindowSize": window,
            "Strides": stride,
            "StartPadding": start,
            "EndPadding": end,
            "IncludePadding": case["include"],
        }
        if set(dilation) != {1}:
            arguments["Dilations"] = dilation
        pooling = directml.read(arguments, shape)
        try:
            pool = pooling.pool(shape)
        except PoolGradError:
            return  # a window in the padding alone has no table
        written = directml.write(pooling, shape)
        assert directml.read(written, shape).pool(shape) == pool
        assert {name: written[name] for name in ("WindowSize", "Strides", "StartPadding")} == {
            name: arguments[name] for name in ("WindowSize", "Strides", "StartPadding")
        }

    @given(st.integers(2, 12), st.integers(2, 12), st.booleans(), st.sampled_from(["inside", "padded", "window"]), st.data())
    def test_write_is_right_or_says_why(self, n: int, m: int, ceil: bool, count: str, data: st.DataObject) -> None:
        numbers = [
            data.draw(st.tuples(st.integers(1, 4), st.integers(1, 4), st.integers(0, 2), st.integers(0, 2))) for _ in range(2)
        ]
        k, s, p, q = zip(*numbers, strict=True)
        divisor = data.draw(st.sampled_from([None, None, prod(k), 7]))
        pooling = Regular("NHWC", k, s, tuple(zip(p, q, strict=True)), None, count, divisor, ceil)
        shape = (2, n, m, 3)
        try:
            pool = pooling.pool(shape)
        except PoolGradError:
            reject()
        try:
            written = directml.write(pooling, shape)
        except NoTranslation:
            assert divisor is not None or count == "padded"
            return
        x = support.random_array(n, (1, n, m, 2), np.dtype(np.float64))
        again = directml.read(written, (2, 3, n, m)).pool((2, 3, n, m))
        support.assert_same_bits(exact.forward(again, x, "NHWC"), exact.forward(pool, x, "NHWC"))

    @pytest.mark.parametrize(
        ("pooling", "want"),
        [
            (Adaptive("NCHW", (3, 1)), {"WindowSize": [2, 8], "Strides": [2, 8]}),
            (Adaptive("NCHW", (5, 4)), {"WindowSize": [2, 2], "Strides": [1, 2]}),
            (Fractional("NCHW", ((0, 2, 4, 6), (0, 4, 8))), {"WindowSize": [2, 4], "Strides": [2, 4]}),
        ],
    )
    def test_other_kinds_that_are_regular(self, pooling: Any, want: dict[str, Any]) -> None:
        shape = (1, 1, 6, 8)
        written = directml.write(pooling, shape)
        assert {name: written[name] for name in want} == want
        assert directml.read(written, shape).pool(shape) == pooling.pool(shape)

    @pytest.mark.parametrize(
        ("pooling", "shape", "says"),
        [
            (Adaptive("NCHW", (4, 4)), (1, 1, 6, 8), "evenly spaced"),
            (Fractional("NCHW", ((0, 2, 3), (0, 4, 8))), (1, 1, 6, 8), "evenly spaced"),
            (Regular("NCL", (2,), (2,), ((0, 0),)), (1, 1, 6), r"WindowSize \[1, 2\]"),
            (Regular("HW", (2, 2), (2, 2), ((0, 0), (0, 0)), divisor=3), (6, 8), "never by 3"),
            (
                Regular("NCHW", (3, 3), (3, 3), ((1, 1), (1, 1)), count="padded", ceil_mode=True),
                (1, 1, 6, 6),
                "passes the declared",
            ),
            (Regular("NCHW", (1, 1), (1, 1), ((0, 0), (0, 0))), (1, 1, 0, 4), "larger than the padded input"),
        ],
    )
    def test_no_translation(self, pooling: Any, shape: Any, says: str) -> None:
        with pytest.raises(PoolGradError, match=says):
            directml.write(pooling, shape)

    @pytest.mark.parametrize(
        "arguments",
        [
            {},
            {"WindowSize": [2, 2]},
            {"WindowSize": [2, 2], "Strides": [2]},
            {"WindowSize": [2, 2], "Strides": [1, 1], "Padding": 1},
        ],
    )
    def test_bad_arguments(self, arguments: Any) -> None:
        with pytest.raises(directml.DirectMLError):
            directml.read(arguments, (1, 1, 6, 8))
