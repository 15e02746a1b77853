"""The fractional ops of `poolgrad.tensorflow` in graphs: known, computed and drawn sequences, floats and integers."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import support
import tensorflow_peer as peer

from poolgrad import PoolGradError, PoolGradTypeError, PoolGradValueError, raw_ops

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed", allow_module_level=True)

import tensorflow as tf

import poolgrad.tensorflow as pt
from poolgrad.tensorflow.sequences import draw, even

RATIO = [1, 1.44, 1.73, 1]
SHAPE = (2, 9, 11, 3)
EDGES = ([0, 2, 3, 3, 7, 9], [1, 4, 5, 9, 14])
"""Boundaries as the ops allow them: a repeated one, a late start, an end beyond the input."""
TYPES = [*support.DTYPES, np.dtype(np.int32), np.dtype(np.int64)]


def numbers(seed: int, shape: Any, dtype: np.dtype[Any]) -> Any:
    return peer.numbers(np.random.default_rng(seed), shape, dtype)


def assert_near(got: Any, want: Any) -> None:
    assert got.dtype == want.dtype
    if want.dtype.kind == "i":
        np.testing.assert_array_equal(got, want)
        return
    scale = {2: 2**-7 if want.dtype.name == "bfloat16" else 2**-9, 4: 1e-6, 8: 1e-14}[want.dtype.itemsize]
    got, want = got.astype(np.float64), want.astype(np.float64)
    np.testing.assert_allclose(got, want, rtol=scale, atol=scale * abs(want).max())


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("known", [False, True], ids=["computed", "known"])
@pytest.mark.parametrize("overlapping", [False, True])
def test_given_sequences(known: bool, overlapping: bool, jit: bool) -> None:
    rows, cols = (np.array(row) for row in EDGES)
    for dtype in TYPES[2:6:2] if jit else TYPES:
        x, dy = numbers(1, SHAPE, dtype), numbers(2, (2, 5, 4, 3), dtype)

        @tf.function(jit_compile=jit)
        def both(x: Any, dy: Any, a: Any, b: Any) -> Any:
            a, b = (rows, cols) if known else (a, b)
            back = pt.FractionalAvgPoolGrad(tf.shape(x, out_type=tf.int64), dy, a, b, overlapping)
            return pt.fractional_avg_pool_at(x, a, b, overlapping), back

        forward, gradient = both(x, dy, tf.constant(rows), tf.constant(cols))
        assert_near(forward.numpy(), raw_ops.fractional_avg_pool_at(x, rows, cols, overlapping))
        assert_near(gradient.numpy(), raw_ops.FractionalAvgPoolGrad(SHAPE, dy, rows, cols, overlapping))


def test_random_gradients_of_integers() -> None:
    """Truncation shows the slightest other order of additions, or a division that is not one."""
    calls = [given for op, given in peer.calls(seed=43, count=120) if op == "FractionalAvgPoolGrad"]
    compared = 0
    for given in calls:
        if given["out_backprop"].dtype.kind == "i" and compared < 12:
            known = {name: value for name, value in given.items() if name != "out_backprop"}
            got = tf.function(lambda dy, known=known: pt.FractionalAvgPoolGrad(out_backprop=dy, **known))(given["out_backprop"])
            np.testing.assert_array_equal(got, raw_ops.FractionalAvgPoolGrad(**given))
            compared += 1
    assert compared == 12


def test_order_of_the_additions_of_integers() -> None:
    """Beyond 2^53 another order of the four covering cells shows in the low bits."""
    rng = np.random.default_rng(6)
    dy = rng.integers(-(2**62), 2**62, (3, 4, 4, 5))
    edges = tf.constant([0, 2, 5, 7, 9])
    graph = tf.function(lambda dy, edges: pt.FractionalAvgPoolGrad((3, 9, 9, 5), dy, edges, edges, overlapping=True))
    np.testing.assert_array_equal(
        graph(dy, edges), raw_ops.FractionalAvgPoolGrad((3, 9, 9, 5), dy, edges.numpy(), edges.numpy(), True)
    )


def test_deterministic_graphs_draw_tensorflows_sequences() -> None:
    x = support.random_array(3, SHAPE, np.dtype(np.float32))
    drawn = {"pseudo_random": True, "overlapping": True, "deterministic": True, "seed": 5, "seed2": 7}
    ours = tf.function(lambda x: pt.FractionalAvgPool(x, RATIO, **drawn))(x)
    theirs = tf.raw_ops.FractionalAvgPool(value=x, pooling_ratio=RATIO, **drawn)
    np.testing.assert_array_equal(ours[1], theirs.row_pooling_sequence)
    np.testing.assert_array_equal(ours[2], theirs.col_pooling_sequence)
    np.testing.assert_allclose(ours[0], theirs.output, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("pseudo_random", [False, True])
def test_graphs_draw_afresh_each_time(pseudo_random: bool, jit: bool) -> None:
    @tf.function(jit_compile=jit, input_signature=[tf.TensorSpec((None, 9, 11, None))])
    def step(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y, rows, cols = pt.FractionalAvgPool(x, RATIO, pseudo_random=pseudo_random, overlapping=True)
            loss = tf.reduce_sum(y**3)
        return y, rows, cols, tape.gradient(loss, x)

    x = support.random_array(4, SHAPE, np.dtype(np.float32))
    seen = set()
    for _ in range(8):
        y, rows, cols, dx = (t.numpy() for t in step(x))
        seen.add((tuple(rows), tuple(cols)))
        want = raw_ops.fractional_avg_pool_at(x, rows, cols, overlapping=True)
        assert_near(y, want)
        assert_near(dx, raw_ops.FractionalAvgPoolGrad(SHAPE, 3 * want**2, rows, cols, overlapping=True))
    assert len(seen) > 2


def test_the_global_seed_repeats_the_draws_of_a_graph() -> None:
    def run() -> list[Any]:
        tf.random.set_seed(11)
        step = tf.function(lambda x: pt.FractionalAvgPool(x, RATIO))
        return [step(tf.ones(SHAPE)).row_pooling_sequence.numpy().tolist() for _ in range(4)]

    first = run()
    assert first == run()
    assert len(set(map(tuple, first))) > 1


@pytest.mark.parametrize("pseudo_random", [False, True])
def test_drawn_sequences(pseudo_random: bool) -> None:
    """They start at 0 and end at the size, and every cell has one of two neighbouring lengths."""
    rng = np.random.default_rng(5)
    for _ in range(60):
        size = int(rng.integers(1, 60))
        cells = int(rng.integers(1, size + 1))
        edges = draw(size, cells, pseudo_random, rng.integers(0, 2**31 - 1, 2).astype(np.int32)).numpy()
        assert edges.dtype == np.int64
        lengths = np.diff(edges)
        assert (edges[0], edges[-1], len(lengths)) == (0, size, cells)
        assert set(lengths) <= {size // cells, size // cells + 1}


def test_random_cells_have_no_favourite_order() -> None:
    """Two long cells among five: each of the ten orders comes up about as often."""
    orders = [tuple(np.diff(draw(7, 5, False, (k, 3)).numpy())) for k in range(1000)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 10
    assert 50 < min(counts) < max(counts) < 160


def test_even_cells() -> None:
    for size in range(1, 40):
        for cells in range(1, size + 1):
            lengths = np.diff(even(size, cells))
            assert lengths.sum() == size
            assert set(lengths) <= {size // cells, size // cells + 1}


def test_what_a_graph_cannot_know_is_refused() -> None:
    x, row = tf.TensorSpec(SHAPE), tf.TensorSpec((None,), tf.int64)
    with pytest.raises(PoolGradValueError, match="row_pooling_sequence must have a known length"):
        tf.function(lambda x, r: pt.fractional_avg_pool_at(x, r, [0, 4])).get_concrete_function(x, row)
    with pytest.raises(PoolGradTypeError, match="float32"):
        tf.function(lambda x, r: pt.fractional_avg_pool_at(x, r, [0, 4])).get_concrete_function(x, tf.TensorSpec((3,)))
    with pytest.raises(PoolGradValueError, match="value must have known spatial sizes"):
        tf.function(lambda x: pt.FractionalAvgPool(x, RATIO)).get_concrete_function(tf.TensorSpec((2, None, 9, 1)))
    with pytest.raises(PoolGradValueError, match="out_backprop must have known spatial sizes"):
        tf.function(lambda dy: pt.FractionalAvgPoolGrad(SHAPE, dy, *EDGES)).get_concrete_function(tf.TensorSpec((2, None, 4, 3)))
    with pytest.raises(PoolGradValueError, match="at least 4 integers, got 3"):
        tf.function(lambda r, dy: pt.FractionalAvgPoolGrad(SHAPE, dy, r, r)).get_concrete_function(
            tf.TensorSpec((3,), tf.int64), tf.TensorSpec((2, 3, 3, 3))
        )
    with pytest.raises(PoolGradError, match="pooling_ratio"):
        tf.function(lambda x: pt.FractionalAvgPool(x, [1, 0.5, 1, 1])).get_concrete_function(x)


def test_a_sequence_that_decreases_is_found_when_the_graph_runs() -> None:
    graph = tf.function(lambda r: pt.fractional_avg_pool_at(tf.ones(SHAPE), r, [0, 4]))
    assert graph(tf.constant([0, 3, 9])).shape == (2, 2, 1, 3)
    for wrong in ([0, 5, 3], [-1, 3, 9]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="row_pooling_sequence must start at 0 or above"):
            graph(tf.constant(wrong))
    # XLA leaves such checks out; nothing is read out of bounds there.
    compiled = tf.function(lambda r: pt.fractional_avg_pool_at(tf.ones(SHAPE), r, [0, 4]), jit_compile=True)
    assert np.isfinite(compiled(tf.constant([-7, 2**40, 3])).numpy()).all()
