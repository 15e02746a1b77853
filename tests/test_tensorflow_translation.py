"""TensorFlow's arguments as the common record, and back: right means equal tables, found exactly where there are any."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
import support
from hypothesis import given
from test_tensorflow_ops import BOX, regular_calls

from poolgrad import Axis, Pool, PoolGradValueError, exact, raw_ops
from poolgrad.dialects.pooling import Adaptive, Fractional, NoTranslation, Pooling, Regular


@given(call=regular_calls())
def test_what_is_read_can_be_written(call: Any) -> None:
    _, pool, shape, arguments = call
    said = raw_ops.read(arguments, shape)
    assert said.pool(shape) == pool
    written = raw_ops.write(said, shape)
    assert raw_ops.read(written, shape).pool(shape) == pool
    assert (written["ksize"], written["strides"]) == (arguments["ksize"], arguments["strides"])


def test_sequences_are_read_and_written() -> None:
    arguments = {"row_pooling_sequence": [0, 2, 4], "col_pooling_sequence": [0, 3, 5], "overlapping": True}
    said = raw_ops.read(arguments, (1, 4, 5, 2))
    assert said == Fractional("NHWC", ((0, 2, 4), (0, 3, 5)), True)
    assert raw_ops.write(said, (1, 4, 5, 2)) == arguments


def test_a_translation_is_found_exactly_where_there_is_one() -> None:
    """Every window that PyTorch can say on a small axis, against a list of all that TensorFlow can say."""
    found = missed = 0
    for n in range(1, 8):
        options = product(range(1, 4 * n + 2), range(1, 2 * n + 1))
        made = {(Axis.regular(n, k, stride=s, padding=p)) for k, s in options for p in ("same", "valid") if p == "same" or k <= n}
        for k, s, p, ceil_mode in product(range(1, n + 3), range(1, n + 2), range(3), (False, True)):
            if 2 * p > k or k > n + 2 * p:
                continue
            said = Regular("NCHW", (k, k), (s, s), ((p, p), (p, p)), ceil_mode=ceil_mode)
            axis = said.pool((1, 1, n, n)).axes[0]
            if axis in made:
                written = raw_ops.write(said, (1, 1, n, n))
                assert raw_ops.read(written, (1, 1, n, n)).pool((1, 1, n, n)) == said.pool((1, 1, n, n))
                found += 1
            else:
                with pytest.raises(NoTranslation, match="ksize"):
                    raw_ops.write(said, (1, 1, n, n))
                missed += 1
    assert found > 100
    assert missed > 100


@dataclass(frozen=True)
class Tables(Pooling):
    """Windows without a word about how they were asked for."""

    axis: Axis

    def pool(self, input_shape: Any) -> Pool:
        return Pool((self.axis, self.axis))


def test_every_table_of_tensorflow_is_recognised() -> None:
    for n in range(1, 9):
        for k, s, padding in product(range(1, 3 * n + 2), range(1, n + 2), ("SAME", "VALID")):
            if padding == "SAME" or k <= n:
                shape, axis = (1, 1, n, n), Axis.regular(n, k, stride=s, padding=padding.lower())
                written = raw_ops.write(Tables("NCHW", axis), shape)
                assert raw_ops.read(written, shape).pool(shape) == Pool((axis, axis)), (n, k, s, padding, written)


@pytest.mark.parametrize("said", [
    Regular("NHWC", (2, 2), (2, 2), ((0, 0), (0, 0)), divisor=4),
    Adaptive("NHWC", (1, 1)),
    Adaptive("NHWC", (2, 3)),
    Adaptive("NHWC", (2, 2)),
    Regular("NHWC", (1, 1), (2, 2), ((0, 0), (0, 0)), dilation=(3, 3)),
])  # fmt: skip
def test_other_words_for_the_same_windows(said: Any) -> None:
    shape = (2, 6, 9, 1)
    written = raw_ops.write(said, shape)
    ours = raw_ops.read(written, shape).pool(shape)
    x = support.random_array(3, shape, np.dtype(np.float64), "whole")
    np.testing.assert_array_equal(exact.forward(ours, x), exact.forward(said.pool(shape), x))


@pytest.mark.parametrize(("said", "why"), [
    (Regular("NHWC", (2, 2), (2, 2), ((0, 0), (0, 0)), divisor=3), "constant"),
    (Regular("NHWC", (2, 3), (2, 3), ((1, 1), (0, 0)), divisor=3), "constant"),
    (Regular("NHWC", (3, 3), (2, 2), ((1, 1), (1, 1)), count="padded"), "counts"),
    (Regular("NHWC", (2, 2), (1, 1), ((0, 0), (0, 0)), dilation=(2, 2)), "dilation"),
    (Regular("NCHW", (3, 3), (2, 2), ((1, 0), (1, 0))), "padding"),
    (Regular("CNHW", (2, 2), (2, 2), ((0, 0), (0, 0))), "layouts"),
    (Fractional("NCHW", ((0, 1, 6), (0, 4, 9))), "NHWC"),
])  # fmt: skip
def test_no_words(said: Any, why: str) -> None:
    shape = (2, 1, 6, 9) if said.layout == "NCHW" else (2, 6, 9, 1)
    with pytest.raises(NoTranslation, match=why):
        raw_ops.write(said, shape)


def test_sequences_say_what_no_window_can() -> None:
    """PyTorch's adaptive windows of 7 to 5 overlap by one, and the middle one is longer."""
    said, shape = Adaptive("NHWC", (5, 5)), (1, 7, 7, 1)
    written = raw_ops.write(said, shape)
    assert written == {
        "row_pooling_sequence": [0, 1, 2, 4, 5, 7],
        "col_pooling_sequence": [0, 1, 2, 4, 5, 7],
        "overlapping": True,
    }
    assert raw_ops.read(written, shape).pool(shape) == said.pool(shape)


@pytest.mark.parametrize("arguments", [{}, {"ksize": [1, 2, 2, 1]}, {**BOX, "dilation": 2}, {"row_pooling_sequence": [0, 1]}])
def test_unknown_arguments_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(PoolGradValueError, match="arguments must be"):
        raw_ops.read(arguments, (1, 4, 4, 1))
