"""`poolgrad.tensorflow` on tensors that have their values: the bits of `poolgrad.raw_ops`, without a copy, or a refusal."""

from __future__ import annotations

import importlib.util
import inspect
from typing import Any

import numpy as np
import pytest
import support
import tensorflow_peer as peer
from test_tensorflow_cases import ATTEMPTED, DTYPES, attempt

import poolgrad.ops
from poolgrad import PoolGradError, PoolGradTypeError, PoolGradValueError, raw_ops

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed", allow_module_level=True)

import tensorflow as tf

import poolgrad.tensorflow as pt
from poolgrad.tensorflow import host, linear

OPS = ("AvgPool", "AvgPool3D", "AvgPoolGrad", "AvgPool3DGrad", "FractionalAvgPool", "FractionalAvgPoolGrad")
TENSORS = ("value", "input", "grad", "out_backprop")
WINDOW = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 3, 1], "padding": "SAME"}


def in_tensors(given: dict[str, Any]) -> dict[str, Any]:
    return {name: tf.constant(value) if name in TENSORS else value for name, value in given.items()}


def test_bits_of_the_raw_ops() -> None:
    for op, given in peer.calls(seed=41, count=60):
        ours, want = getattr(pt, op)(**in_tensors(given)), getattr(raw_ops, op)(**given)
        pairs = zip(ours, want, strict=True) if op == "FractionalAvgPool" else [(ours, want)]
        for got, expected in pairs:
            assert isinstance(got, tf.Tensor)
            if expected.dtype.kind == "i":
                np.testing.assert_array_equal(got.numpy(), expected)
            else:
                support.assert_same_bits(got.numpy(), expected, (op, given))


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize("first", [False, True])
def test_every_dtype_in_every_layout(dtype: np.dtype[Any], first: bool) -> None:
    for rank in (4, 5):
        op, grad = ("AvgPool", "AvgPoolGrad") if rank == 4 else ("AvgPool3D", "AvgPool3DGrad")
        sizes, ksize, strides = (7, 9, 6)[: rank - 2], (3, 2, 4)[: rank - 2], (2, 3, 1)[: rank - 2]

        def placed(outer: tuple[int, int], inner: tuple[int, ...], first: bool = first) -> list[int]:
            return [outer[0], outer[1], *inner] if first else [outer[0], *inner, outer[1]]

        space = "DHW"[5 - rank :]
        given: dict[str, Any] = {"ksize": placed((1, 1), ksize), "strides": placed((1, 1), strides)}
        given |= {"padding": "SAME", "data_format": f"NC{space}" if first else f"N{space}C"}
        x = support.random_array(3, placed((2, 5), sizes), dtype)
        y = getattr(raw_ops, op)(x, **given)
        dy = support.random_array(4, y.shape, dtype)
        support.assert_same_bits(getattr(pt, op)(tf.constant(x), **given).numpy(), y)
        support.assert_same_bits(
            getattr(pt, grad)(tf.constant(x.shape), tf.constant(dy), **given).numpy(),
            getattr(raw_ops, grad)(x.shape, dy, **given),
        )


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize("sizes", [(5, 7, 3), (300, 260, 8)], ids=["small", "large"])
def test_nothing_is_copied(dtype: np.dtype[Any], sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine reads the tensor's memory, and its result's memory is the memory of the tensor that comes back."""
    seen: dict[str, int] = {}
    gradient, tensor_of = poolgrad.ops.gradient, host.tensor_of

    def watched(pool: Any, array: Any, **rest: Any) -> Any:
        seen["source"] = array.ctypes.data
        return gradient(pool, array, **rest)

    def leaving(array: Any) -> Any:
        seen["result"] = array.ctypes.data
        return tensor_of(array)

    monkeypatch.setattr(poolgrad.ops, "gradient", watched)
    monkeypatch.setattr(host, "tensor_of", leaving)
    linear.pooling.cache_clear()
    height, width, channels = sizes
    dy = tf.constant(support.random_array(5, (2, -(-height // 2), -(-width // 3), channels), dtype))
    dx = pt.AvgPoolGrad([2, *sizes], dy, **WINDOW)
    linear.pooling.cache_clear()
    assert seen["source"] == np.asarray(dy).ctypes.data
    assert seen["result"] == np.asarray(dx).ctypes.data
    assert dx.dtype == dy.dtype


def test_results_lie_where_tensorflow_can_take_them() -> None:
    """TensorFlow ends the process on a tensor off a cache line; every size here is used by an op of its own."""
    for n in [*range(1, 40), 700, 9001]:
        for dtype in support.DTYPES:
            pooled = pt.avg_pool(tf.ones((1, n, 2), dtype), 1)
            assert np.asarray(pooled).ctypes.data % 64 == 0
            assert float(tf.reduce_sum(tf.cast(pooled + 1, tf.float64))) == 4 * n


def test_an_array_off_a_cache_line_is_copied() -> None:
    array = support.in_memory(support.random_array(6, (3, 5), np.dtype(np.float32)), "misaligned")
    tensor = host.tensor_of(array)
    assert np.asarray(tensor).ctypes.data % 64 == 0
    support.assert_same_bits(tensor.numpy(), np.array(array))
    assert float(tf.reduce_sum(tensor + 1)) == pytest.approx(float(array.sum()) + 15)


def test_signatures() -> None:
    for op in OPS:
        ours, theirs = (inspect.signature(getattr(module, op)).parameters for module in (pt, tf.raw_ops))
        assert list(ours) == list(theirs)
        assert {n: p.default for n, p in ours.items() if p.default is not p.empty} == {
            n: p.default for n, p in theirs.items() if p.default is not p.empty
        }


def test_beside_tensorflow() -> None:
    x = tf.constant(support.random_array(7, (2, 7, 9, 5), np.dtype(np.float32)))
    theirs = tf.raw_ops.AvgPool(value=x, **WINDOW)
    np.testing.assert_allclose(pt.AvgPool(x, **WINDOW), theirs, rtol=1e-5, atol=1e-5)
    dy = tf.constant(support.random_array(8, theirs.shape, np.dtype(np.float32)))
    want = tf.raw_ops.AvgPoolGrad(orig_input_shape=x.shape, grad=dy, **WINDOW)
    np.testing.assert_allclose(pt.AvgPoolGrad(x.shape, dy, **WINDOW), want, rtol=1e-5, atol=1e-4)
    drawn = {"pooling_ratio": [1, 1.44, 1.73, 1], "overlapping": True, "deterministic": True, "seed": 5, "seed2": 7}
    ours, real = pt.FractionalAvgPool(x, **drawn), tf.raw_ops.FractionalAvgPool(value=x, **drawn)
    for got, expected in zip(ours, real, strict=True):
        assert got.dtype == expected.dtype
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-4)


def test_fresh_sequences_differ() -> None:
    x = tf.ones((1, 40, 50, 1))
    drawn = [pt.FractionalAvgPool(x, [1, 1.5, 1.5, 1]).row_pooling_sequence.numpy().tolist() for _ in range(4)]
    assert len(set(map(tuple, drawn))) == 4


def as_call(call: dict[str, Any], symbolic: bool) -> Any:
    """The attempt of `test_tensorflow_cases` with a tensor instead of an array, or while a graph is traced."""
    call = {name: value for name, value in call.items() if name != "mode"}
    op, dtype, fill = call.pop("op"), DTYPES[call.pop("dtype")], call.pop("val")
    shape = call.pop("grad_shape", None)
    forwards = shape is None
    shape = call.pop("shape") if forwards else shape
    name = ("input" if op == "AvgPool3D" else "value") if forwards else ("grad" if "ksize" in call else "out_backprop")

    def run(tensor: Any) -> Any:
        return getattr(pt, op)(**{name: tensor}, **call)

    if symbolic:
        return tf.function(run).get_concrete_function(tf.TensorSpec(shape, dtype))
    return run(tf.constant(np.broadcast_to(np.array(fill).astype(dtype), shape)))


def test_attempts_end_as_in_the_raw_ops() -> None:
    """Calls that TensorFlow refuses, crashes on or answers by guessing: every refusal is one here, in graphs too."""
    refused = answered = 0
    for case in ATTEMPTED:
        try:
            want = attempt(case["call"])
        except PoolGradError as refusal:
            for symbolic in (True, False):
                with pytest.raises(type(refusal)):
                    as_call(case["call"], symbolic)
            refused += 1
            continue
        got = as_call(case["call"], False)
        got, want = (got.output, want.output) if case["call"]["op"] == "FractionalAvgPool" else (got, want)
        assert got.shape == want.shape
        np.testing.assert_array_equal(got.numpy(), want)
        as_call(case["call"], True)
        answered += 1
    assert refused > 60
    assert answered > 30


X = tf.ones((1, 4, 4, 1))
SQUARE = ([1, 2, 2, 1], [1, 2, 2, 1], "VALID")


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: pt.AvgPool(tf.ones((1, 4, 4, 1), tf.int32), *SQUARE), PoolGradTypeError, "int32"),
        (lambda: pt.AvgPool(tf.complex(X, X), *SQUARE), PoolGradTypeError, "complex64"),
        (lambda: pt.AvgPool(tf.ragged.constant([[1.0], [2.0, 3.0]]), *SQUARE), PoolGradTypeError, "RaggedTensor"),
        (lambda: pt.AvgPool(tf.sparse.from_dense(X), *SQUARE), PoolGradTypeError, "SparseTensor"),
        (lambda: pt.AvgPool("a word", *SQUARE), PoolGradTypeError, "string"),
        (lambda: pt.AvgPool(object(), *SQUARE), PoolGradTypeError, "object"),
        (lambda: pt.AvgPool(X[0], *SQUARE), PoolGradValueError, "4 axes"),
        (lambda: pt.AvgPoolGrad(tf.constant([1.0, 4, 4, 1]), X, *SQUARE), PoolGradTypeError, "int32, int64"),
        (lambda: pt.AvgPoolGrad(tf.constant([1, 4, 4]), X, *SQUARE), PoolGradValueError, "exactly 4"),
        (lambda: pt.AvgPoolGrad(tf.TensorShape([1, 4, 4]), X, *SQUARE), PoolGradValueError, "exactly 4"),
        (lambda: pt.AvgPoolGrad(tf.constant([1, -4, 4, 1]), X, *SQUARE), PoolGradValueError, "at least 0"),
        (lambda: pt.AvgPoolGrad([1, 4, 4, 1], X, *SQUARE), PoolGradValueError, r"\(1, 2, 2, 1\)"),
        (lambda: pt.avg_pool(X, 5), PoolGradValueError, "larger than the padded input"),
        (lambda: pt.avg_pool(X, 2, count="all"), PoolGradValueError, "count must be one of"),
        (lambda: pt.avg_pool(X, 2, layout="NHW"), PoolGradValueError, "layout"),
        (lambda: pt.avg_pool(X, 1, padding=2**40), PoolGradValueError, "at most"),
        (lambda: pt.fractional_avg_pool_at(X, [0, 3, 2], [0, 4]), PoolGradValueError, "never decrease"),
        (lambda: pt.fractional_avg_pool_at(X, tf.constant([0.0, 4]), [0, 4]), PoolGradTypeError, "row_pooling_sequence"),
    ],
)
def test_refusals_name_what_is_wrong(call: Any, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        call()


def test_what_becomes_a_tensor_is_taken() -> None:
    variable = tf.Variable(X)
    with tf.GradientTape() as tape:
        pooled = pt.AvgPool(variable, *SQUARE)
    np.testing.assert_array_equal(tape.gradient(pooled, variable), np.full((1, 4, 4, 1), 0.25))
    np.testing.assert_array_equal(pt.AvgPool(X.numpy().tolist(), *SQUARE), pooled)
    np.testing.assert_array_equal(pt.AvgPool(X.numpy(), *SQUARE), pooled)


def test_benchmark_measures_every_mode(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("poolgrad.engines._native")
    from poolgrad.bench import tensorflow as bench
    from poolgrad.bench.cases import TINY, Row

    row = Row(TINY, "NHWC", "float32")
    best = bench.measure(tf, row, rounds=1)
    assert list(best) == [f"{mode} {name}" for mode in bench.MODES for name in ("ours", "TensorFlow")]
    assert bench.text(row, best).count("×") == 3 + row.case.title.count("×")
    assert capsys.readouterr().err == ""
