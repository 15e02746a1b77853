"""Derivatives of `poolgrad.tensorflow`: every order, both modes, eager, in graphs and under XLA; the fractional ops too."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import support

from poolgrad import raw_ops

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed", allow_module_level=True)

import tensorflow as tf

import poolgrad.tensorflow as pt

DOUBLE = np.dtype(np.float64)
ROWS, COLS = [0, 2, 5, 7], [0, 3, 4, 8, 9]
REGULAR = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 3, 1], "padding": "SAME"}
CUBE = {"ksize": [1, 1, 2, 3, 2], "strides": [1, 1, 1, 2, 3], "padding": "VALID", "data_format": "NCDHW"}

Function = Callable[[Any], Any]
MODES: dict[str, Callable[[Function], Function]] = {
    "eager": lambda f: f,
    "graph": lambda f: tf.function(f, autograph=False),
    "xla": lambda f: tf.function(f, autograph=False, jit_compile=True),
}


class Linear:
    """An op as a linear map with its matrix, found by pooling every unit vector with the NumPy dialect."""

    def __init__(self, shape: tuple[int, ...], op: Function, reference: Function) -> None:
        self.shape, self.op = shape, op
        size = int(np.prod(shape))
        units = [reference(np.eye(size)[k].reshape(shape)).ravel() for k in range(size)]
        self.matrix = np.stack(units, axis=1)
        self.result = reference(np.zeros(shape)).shape


SHAPE, VOLUME, POOLED = (1, 7, 9, 2), (1, 2, 3, 5, 6), (1, 3, 4, 2)
LINEAR = {
    "AvgPool": Linear(SHAPE, lambda x: pt.AvgPool(x, **REGULAR), lambda x: raw_ops.AvgPool(x, **REGULAR)),
    "AvgPoolGrad": Linear(
        (1, 4, 3, 2), lambda y: pt.AvgPoolGrad(SHAPE, y, **REGULAR), lambda y: raw_ops.AvgPoolGrad(SHAPE, y, **REGULAR)
    ),
    "AvgPool3D": Linear(VOLUME, lambda x: pt.AvgPool3D(x, **CUBE), lambda x: raw_ops.AvgPool3D(x, **CUBE)),
    "FractionalAvgPoolGrad": Linear(
        POOLED,
        lambda y: pt.FractionalAvgPoolGrad(SHAPE, y, ROWS, COLS, overlapping=True),
        lambda y: raw_ops.FractionalAvgPoolGrad(SHAPE, y, ROWS, COLS, overlapping=True),
    ),
    "FractionalAvgPoolGrad of computed sequences": Linear(
        POOLED,
        lambda y: pt.FractionalAvgPoolGrad(SHAPE, y, tf.sort(ROWS), tf.sort(COLS), overlapping=True),
        lambda y: raw_ops.FractionalAvgPoolGrad(SHAPE, y, ROWS, COLS, overlapping=True),
    ),
}


def powers(map_: Linear, x: Any) -> tuple[Any, Any, Any]:
    """The first three derivatives of Σ (A x)⁴ along nothing, then along x: gradients of gradients of gradients."""
    with tf.GradientTape() as third:
        third.watch(x)
        with tf.GradientTape() as second:
            second.watch(x)
            with tf.GradientTape() as first:
                first.watch(x)
                loss = tf.reduce_sum(map_.op(x) ** 4)
            one = first.gradient(loss, x)
            along = tf.reduce_sum(one * tf.stop_gradient(x))
        two = second.gradient(along, x)
        again = tf.reduce_sum(two * tf.stop_gradient(x))
    return one, two, third.gradient(again, x)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LINEAR)
def test_three_orders(name: str, mode: str) -> None:
    map_ = LINEAR[name]
    x = support.random_array(3, map_.shape, DOUBLE)
    a, y = map_.matrix, map_.matrix @ x.ravel()
    want = [a.T @ (4 * y**3), a.T @ (12 * y**3), a.T @ (24 * y**3)]
    for got, expected in zip(MODES[mode](lambda x: powers(map_, x))(tf.constant(x)), want, strict=True):
        np.testing.assert_allclose(got.numpy().ravel(), expected, rtol=1e-10, atol=1e-10 * abs(expected).max())


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LINEAR)
def test_forward_mode(name: str, mode: str) -> None:
    map_ = LINEAR[name]
    x, v = (tf.constant(support.random_array(seed, map_.shape, DOUBLE)) for seed in (4, 5))

    def derivative(x: Any) -> Any:
        with tf.autodiff.ForwardAccumulator(x, v) as accumulator:
            y = map_.op(x) ** 2
        return accumulator.jvp(y)

    want = 2 * (map_.matrix @ x.numpy().ravel()) * (map_.matrix @ v.numpy().ravel())
    np.testing.assert_allclose(MODES[mode](derivative)(x).numpy().ravel(), want, rtol=1e-11, atol=1e-11 * abs(want).max())


def test_jacobians() -> None:
    map_ = LINEAR["AvgPool"]
    x = tf.constant(support.random_array(6, map_.shape, DOUBLE))
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(x)
        y = map_.op(x)
    for pfor in (True, False):
        jacobian = tape.jacobian(y, x, experimental_use_pfor=pfor).numpy()
        np.testing.assert_allclose(jacobian.reshape(map_.matrix.shape), map_.matrix, rtol=1e-12, atol=1e-15)


def test_eager_gradients_have_the_engines_bits() -> None:
    for dtype in support.DTYPES:
        x = tf.constant(support.random_array(7, SHAPE, dtype))
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = pt.AvgPool(x, **REGULAR)
        dy = tf.constant(support.random_array(8, y.shape, dtype))
        dx = tape.gradient(y, x, output_gradients=dy)
        support.assert_same_bits(dx.numpy(), raw_ops.AvgPoolGrad(SHAPE, dy.numpy(), **REGULAR))


def test_gradient_of_a_drawn_pooling_in_eager_mode() -> None:
    x = tf.constant(support.random_array(9, (2, 9, 11, 3), np.dtype(np.float32)))
    with tf.GradientTape() as tape:
        tape.watch(x)
        y, rows, cols = pt.FractionalAvgPool(x, [1, 1.44, 1.73, 1], overlapping=True)
    dy = tf.constant(support.random_array(10, y.shape, np.dtype(np.float32)))
    want = raw_ops.FractionalAvgPoolGrad(x.shape, dy.numpy(), rows.numpy(), cols.numpy(), overlapping=True)
    support.assert_same_bits(tape.gradient(y, x, output_gradients=dy).numpy(), want)


def test_gradient_check_by_differences() -> None:
    x = support.random_array(11, SHAPE, DOUBLE)
    theory, numeric = tf.test.compute_gradient(lambda x: pt.AvgPool(x, **REGULAR) ** 2, [tf.constant(x)])
    np.testing.assert_allclose(theory[0], numeric[0], rtol=1e-4, atol=1e-4 * abs(numeric[0]).max())
