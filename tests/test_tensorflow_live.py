"""The installed TensorFlow beside `poolgrad.raw_ops` on random calls, with its own kernels and with oneDNN's.

Sequences and integers agree to the element; floats within what TensorFlow may lose by adding in its own type. Where its
kernels are known to be wrong (`is_wrong`) they are not asked.
"""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

import numpy as np
import pytest
import tensorflow_peer as peer
from test_tensorflow_cases import assert_within

from poolgrad import raw_ops

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed", allow_module_level=True)

SEED, COUNT = 20, 300
CALLS = peer.calls(SEED, COUNT)


@pytest.fixture(scope="module", params=[False, True], ids=["native", "onednn"])
def theirs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    said = peer.answers(SEED, COUNT, request.param, tmp_path_factory.mktemp("tensorflow"))
    return {**said, "onednn": request.param}


def absolute(given: dict[str, Any]) -> dict[str, Any]:
    return {
        name: abs(value) if isinstance(value, np.ndarray) and value.dtype.kind != "i" else value for name, value in given.items()
    }


def is_wrong(op: str, given: dict[str, Any], onednn: bool) -> bool:
    """Whether TensorFlow's own kernels are known to be wrong here, both with SAME: the gradient's divisor where a window
    is larger than the input, and the 3-D forward, shifted where the windows leave two inputs or more uncovered."""
    source = next(value for value in given.values() if isinstance(value, np.ndarray))
    if given["padding"] != "SAME" or (onednn and source.dtype in peer.FLOATS[1:3]):
        return False
    shape = given.get("orig_input_shape", source.shape)
    rows = list(zip(shape, given["ksize"], given["strides"], strict=True))
    if op.endswith("Grad"):
        return any(k > n for n, k, _ in rows)
    return op == "AvgPool3D" and any((-(-n // s) - 1) * s + k <= n - 2 for n, k, s in rows)


def test_regular_ops(theirs: dict[str, Any]) -> None:
    compared = refused = 0
    for (op, given), said in zip(CALLS, theirs["answers"], strict=True):
        if "ksize" not in given or is_wrong(op, given, theirs["onednn"]):
            continue
        ours = getattr(raw_ops, op)(**given)
        if isinstance(said, str):
            assert not theirs["onednn"], said
            assert given["data_format"][1] == "C", said
            refused += 1
            continue
        assert ours.dtype == said.dtype
        assert_within(ours, said, getattr(raw_ops, op)(**absolute(given)), 2 * int(np.prod(given["ksize"])) + 4)
        compared += 1
    assert compared > COUNT // 2
    assert refused > COUNT // 20 or theirs["onednn"]


def test_drawn_sequences_and_their_averages(theirs: dict[str, Any]) -> None:
    compared = 0
    for (op, given), said in zip(CALLS, theirs["answers"], strict=True):
        if op == "FractionalAvgPool":
            ours = raw_ops.FractionalAvgPool(**given)
            np.testing.assert_array_equal(ours.row_pooling_sequence, said[1])
            np.testing.assert_array_equal(ours.col_pooling_sequence, said[2])
            if ours.output.dtype.kind == "i":
                np.testing.assert_array_equal(ours.output, said[0])
            else:
                window = int(np.diff(said[1]).max() + 1) * int(np.diff(said[2]).max() + 1)
                assert_within(ours.output, said[0], raw_ops.FractionalAvgPool(**absolute(given)).output, 2 * window + 4)
            compared += 1
    assert compared == COUNT


def test_gradients_of_any_sequences(theirs: dict[str, Any]) -> None:
    compared = 0
    for (op, given), said in zip(CALLS, theirs["answers"], strict=True):
        if op == "FractionalAvgPoolGrad":
            ours = raw_ops.FractionalAvgPoolGrad(**given)
            assert ours.dtype == said.dtype
            if ours.dtype.kind != "i":
                assert_within(ours, said, raw_ops.FractionalAvgPoolGrad(**absolute(given)), 40)
            else:
                # Out of the integers' range TensorFlow's cast is undefined; ours is the nearest integer.
                inside = abs(ours.astype(np.float64)) < np.iinfo(ours.dtype).max
                np.testing.assert_array_equal(ours[inside], said[inside])
                compared += int(inside.sum())
    assert compared > 1000


def test_seeds_of_tf_nn(theirs: dict[str, Any]) -> None:
    x = np.zeros((1, 40, 41, 1), np.float32)
    for (global_seed, seed), said in zip(peer.SEEDS, theirs["seeded"], strict=True):
        ours = raw_ops.fractional_avg_pool(x, [1, 1.3, 1.7, 1], seed=seed, global_seed=global_seed)
        np.testing.assert_array_equal(ours.row_pooling_sequence, said[0])
        np.testing.assert_array_equal(ours.col_pooling_sequence, said[1])


def test_names_and_defaults(theirs: dict[str, Any]) -> None:
    for op, parameters in theirs["signatures"].items():
        ours = inspect.signature(getattr(raw_ops, op)).parameters.values()
        assert [(p.name, p.default) for p in ours] == parameters, op
    assert raw_ops.FractionalAvgPoolOutput._fields == theirs["fields"]
