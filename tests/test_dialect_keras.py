"""Keras's dialect beside Keras 3 on TensorFlow: `keras.ops`, the layers, and gradients by a tape."""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import beside
import numpy as np
import pytest
import support
from hypothesis import given, settings
from hypothesis import strategies as st

from poolgrad import PoolGradError, exact
from poolgrad.dialects import keras as ours

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("KERAS_BACKEND", "tensorflow")


@cache
def framework(name: str) -> Any:
    return pytest.importorskip(name)


def answers(function: Any, x: support.Array, dy: support.Array) -> tuple[support.Array, support.Array]:
    tf = framework("tensorflow")
    leaf = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(leaf)
        y = function(leaf)
    return y.numpy(), tape.gradient(y, leaf, output_gradients=tf.constant(dy)).numpy()


@settings(max_examples=60)
@given(data=st.data(), dims=st.sampled_from([1, 2, 3]), padding=st.sampled_from(["valid", "same"]), seed=support.seeds)
def test_average_pool(data: st.DataObject, dims: int, padding: str, seed: int) -> None:
    """Both layouts ours, channels last theirs: TensorFlow's CPU kernels have no other for every rank."""
    keras = framework("keras")
    sizes = data.draw(st.tuples(*[st.integers(1, 8)] * dims))
    window = tuple(data.draw(st.integers(1, n)) for n in sizes)
    strides = data.draw(st.none() | st.tuples(*[st.integers(1, 3)] * dims))
    given = {"strides": strides, "padding": padding}
    shape = (2, *sizes, 3)
    pooling = ours.read({"pool_size": window, **given}, shape)
    x, dy = beside.arrays(pooling, shape, seed, np.dtype(np.float32))
    mine = ours.average_pool(x, window, **given), ours.average_pool_grad(dy, shape, window, **given)
    theirs = answers(lambda values: keras.ops.average_pool(values, window, data_format="channels_last", **given), x, dy)
    beside.check(pooling, x, dy, mine, theirs)
    first = np.ascontiguousarray(np.moveaxis(x, -1, 1))
    turned = ours.average_pool(first, window, data_format="channels_first", **given)
    support.assert_same_bits(np.ascontiguousarray(np.moveaxis(turned, 1, -1)), mine[0])


@settings(max_examples=30)
@given(data=st.data(), dims=st.sampled_from([1, 2, 3]), seed=support.seeds)
def test_adaptive(data: st.DataObject, dims: int, seed: int) -> None:
    keras = framework("keras")
    if not hasattr(keras.ops, "adaptive_average_pool"):
        pytest.skip("this Keras has no adaptive pooling")
    sizes = data.draw(st.tuples(*[st.integers(1, 7)] * dims))
    cells = data.draw(st.tuples(*[st.integers(1, 7)] * dims))
    shape = (2, *sizes, 3)
    pooling = ours.read({"output_size": cells}, shape)
    x, dy = beside.arrays(pooling, shape, seed, np.dtype(np.float32))
    mine = ours.adaptive_average_pool(x, cells), ours.adaptive_average_pool_grad(dy, shape, cells)
    theirs = answers(lambda values: keras.ops.adaptive_average_pool(values, cells, data_format="channels_last"), x, dy)
    beside.check(pooling, x, dy, mine, theirs)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_global_layers(dims: int, keepdims: bool, data_format: str) -> None:
    keras = framework("keras")
    sizes = (4, 5, 6)[:dims]
    shape = (2, *sizes, 3) if data_format == "channels_last" else (2, 3, *sizes)
    x = support.random_array(dims, shape, np.dtype(np.float32))
    layer = getattr(keras.layers, f"GlobalAveragePooling{dims}D")(data_format=data_format, keepdims=keepdims)
    y = ours.global_average_pool(x, data_format, keepdims)
    dy = support.random_array(9, y.shape, np.dtype(np.float32))
    dx = ours.global_average_pool_grad(dy, shape, data_format, keepdims)
    theirs = answers(layer, x, dy)
    assert y.shape == theirs[0].shape
    assert np.allclose(y, theirs[0], rtol=1e-5, atol=1e-5)
    assert np.allclose(dx, theirs[1], rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_layers(dims: int) -> None:
    """What the layer classes compute."""
    keras = framework("keras")
    x = support.random_array(dims, (*(2, 7, 6, 5)[: dims + 1], 3), np.dtype(np.float32))
    for padding in ("valid", "same"):
        theirs = getattr(keras.layers, f"AveragePooling{dims}D")(3, 2, padding)(x).numpy()
        assert np.allclose(ours.average_pool(x, 3, 2, padding), theirs, rtol=1e-6, atol=1e-6)


def test_dtypes() -> None:
    given = {"pool_size": (3, 2), "strides": (2, 3), "padding": "same"}
    pooling = ours.read(given, (2, 8, 7, 3))
    for dtype in support.DTYPES:
        x, dy = beside.arrays(pooling, (2, 8, 7, 3), 4, dtype)
        beside.check(pooling, x, dy, (ours.average_pool(x, **given), ours.average_pool_grad(dy, x.shape, **given)), None)
        y = ours.global_average_pool(x, keepdims=True)
        support.assert_same_bits(y, ours.adaptive_average_pool(x, 1))
        whole = ours.read({}, x.shape).pool(x.shape)
        assert np.allclose(y.astype(float), exact.forward(whole, x, "NHWC").astype(float), rtol=1e-2, atol=1e-2)


REFUSED = [
    ({"pool_size": (2, 2, 2)}, "pool_size must be an integer or 2 of them"),
    ({"pool_size": 0}, "pool_size must be at least 1"),
    ({"pool_size": 2, "strides": 0}, "strides must be at least 1"),
    ({"pool_size": 2, "padding": "full"}, "padding must be one of 'valid', 'same'"),
    ({"pool_size": 2, "data_format": "NCHW"}, "data_format must be one of"),
    ({"pool_size": 9}, "larger than the padded input"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=lambda value: str(value)[:50])
def test_refused(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PoolGradError, match=said):
        ours.average_pool(np.zeros((1, 5, 6, 2), np.float32), **arguments)
    with pytest.raises(PoolGradError, match=said):
        ours.read(arguments, (1, 5, 6, 2))


def test_shapes_must_agree() -> None:
    with pytest.raises(PoolGradError, match="inputs must have a batch, channels and 1 to 10 spatial axes"):
        ours.average_pool(np.zeros((5, 6), np.float32), 2)
    with pytest.raises(PoolGradError, match=r"dy must have shape \(1, 2\)"):
        ours.global_average_pool_grad(np.zeros((1, 3), np.float32), (1, 5, 6, 2))
    with pytest.raises(PoolGradError, match=r"dy must have shape \(1, 2, 3, 2\)"):
        ours.average_pool_grad(np.zeros((1, 3, 3, 2), np.float32), (1, 5, 6, 2), 2)
