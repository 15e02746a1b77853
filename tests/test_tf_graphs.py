"""`poolgrad.tensorflow` where TensorFlow computes: composed graphs, XLA, saved models; within units of the last place."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checks
import numpy as np
import pytest
import support
from hypothesis import given, settings
from hypothesis import strategies as st

from poolgrad import Axis, Pool, PoolGradTypeError, PoolGradValueError, exact, raw_ops
from poolgrad.layout import spatial_positions

if importlib.util.find_spec("tensorflow") is None:
    pytest.skip("TensorFlow is not installed", allow_module_level=True)

import tensorflow as tf

import poolgrad.tensorflow as pt
from poolgrad.tensorflow import compose, linear

WINDOW = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 3, 1], "padding": "SAME"}
SPEC = tf.TensorSpec((None, 7, 9, None))
BASIC = {"AddV2", "ConcatV2", "Const", "GatherV2", "Mul", "Pad", "RealDiv", "StridedSlice"}
BASIC |= {"Identity", "IdentityN", "Placeholder"}


def run_in_graph(pool: Pool, layout: str, forwards: bool, source: Any, jit: bool = False) -> Any:
    spatial = spatial_positions(layout, source.ndim)
    graph = tf.function(lambda t: compose.pooled(pool, spatial, forwards, t), jit_compile=jit, autograph=False)
    return graph(tf.constant(source)).numpy()


@settings(max_examples=80)
@given(st.data())
def test_composition_of_any_pooling(data: st.DataObject) -> None:
    pool = data.draw(support.pools())
    layout, forwards = data.draw(support.layouts(len(pool.axes))), data.draw(st.booleans())
    dtype, seed = data.draw(support.dtypes), data.draw(support.seeds)
    source = support.random_array(seed, support.source_shape(pool, layout, 2, 3, forwards=forwards), dtype)
    got = compose.pooled(pool, spatial_positions(layout, source.ndim), forwards, tf.constant(source)).numpy()
    truth = exact.forward if forwards else exact.gradient
    allowed = checks.tolerance(pool, dtype, forwards=forwards) + 1
    assert got.dtype == dtype
    checks.assert_close(got, truth(pool, source, layout), truth(pool, abs(source), layout), allowed)


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
@pytest.mark.parametrize("case", checks.CASES, ids=lambda case: case.layout)
def test_laws_in_graphs(case: checks.Case, jit: bool) -> None:
    def gradient(case: checks.Case, dy: Any) -> Any:
        return run_in_graph(case.pool, case.layout, False, dy, jit)

    for dtype in support.DTYPES[1:3] if jit else support.DTYPES:
        dy = support.random_array(11, case.dy_shape, dtype)
        got, want = gradient(case, dy), exact.gradient(case.pool, dy, case.layout)
        assert got.dtype == dtype
        checks.assert_close(got, want, exact.gradient(case.pool, abs(dy), case.layout), checks.tolerance(case.pool, dtype) + 1)
    if case.layout in ("NHWC", "HWC"):
        checks.check_reach(gradient, case)


def test_half_types_are_added_in_float32() -> None:
    """Almost correctly rounded, and no sum overflows where the mean does not."""
    window = {"ksize": [1, 37, 41, 1], "strides": [1, 1, 1, 1], "padding": "VALID"}
    mean = tf.function(lambda t: pt.AvgPool(t, **window))
    for dtype in support.DTYPES[:2]:
        x = abs(support.random_array(8, (1, 39, 44, 1), dtype))
        want = exact.avg_pool(x.astype(np.float64), (37, 41), stride=1)
        assert exact.ulps(mean(tf.constant(x)).numpy(), want) < 0.51
    large = tf.fill((1, 37, 41, 1), tf.constant(60000, tf.float16))
    assert float(mean(large)[0, 0, 0, 0]) == 60000


def test_mean_of_many_ones_is_one() -> None:
    pool = Pool((Axis.whole(4096), Axis.whole(8192)))
    assert compose.pooled(pool, (0, 1), True, tf.ones((4096, 8192))).numpy() == 1


def ops_of(function: Callable[..., Any], *specs: Any) -> list[str]:
    definition = tf.function(function).get_concrete_function(*specs).graph.as_graph_def()
    nodes = [*definition.node, *(node for f in definition.library.function for node in f.node_def)]
    return [node.op for node in nodes]


def test_graphs_hold_basic_ops_alone() -> None:
    def both(x: Any) -> Any:
        with tf.GradientTape() as tape:
            tape.watch(x)
            y = pt.AvgPool(x, **WINDOW)
        return tape.gradient(y, x)

    assert set(ops_of(lambda x: pt.AvgPool(x, **WINDOW), SPEC)) <= BASIC
    assert not [op for op in ops_of(both, SPEC) if "Pool" in op or "PyFunc" in op]


def test_work_grows_with_the_logarithm_of_the_window() -> None:
    def additions(window: int) -> int:
        square = {"ksize": [1, window, window, 1], "strides": [1, 1, 1, 1], "padding": "SAME"}
        return ops_of(lambda dy: pt.AvgPoolGrad([1, 200, 300, 1], dy, **square), tf.TensorSpec((1, 200, 300, 1))).count("AddV2")

    assert additions(3) == 4
    assert additions(64) == 12
    assert additions(127) == 24


@pytest.mark.parametrize("jit", [False, True], ids=["graph", "xla"])
def test_unknown_batch_and_channels(jit: bool) -> None:
    @tf.function(input_signature=[SPEC], jit_compile=jit)
    def both(x: Any) -> Any:
        y = pt.AvgPool(x, **WINDOW)
        extents = tf.shape(x)
        shapes = (extents, [extents[0], 7, 9, extents[3]], x.shape, tf.shape(x, out_type=tf.int64))
        return y, [pt.AvgPoolGrad(shape, y, **WINDOW) for shape in shapes]

    for batch, channels in ((2, 5), (3, 1)):
        x = support.random_array(1, (batch, 7, 9, channels), np.dtype(np.float32))
        y, gradients = both(x)
        want = raw_ops.AvgPool(x, **WINDOW)
        np.testing.assert_allclose(y, want, rtol=1e-6, atol=1e-5)
        for dx in gradients:
            np.testing.assert_allclose(dx, raw_ops.AvgPoolGrad(x.shape, want, **WINDOW), rtol=1e-5, atol=1e-5)


def test_unknown_space_is_refused() -> None:
    for shape in ((2, None, 9, 5), (2, 7, None, 5), (None, None, None, None)):
        with pytest.raises(PoolGradValueError, match=r"known spatial sizes.*None"):
            tf.function(lambda x: pt.AvgPool(x, **WINDOW)).get_concrete_function(tf.TensorSpec(shape))
    with pytest.raises(PoolGradValueError, match="known rank"):
        tf.function(lambda x: pt.AvgPool(x, **WINDOW)).get_concrete_function(tf.TensorSpec(None))
    shape = tf.TensorSpec((4,), tf.int32)
    with pytest.raises(PoolGradValueError, match=r"orig_input_shape must have known spatial sizes"):
        tf.function(lambda s, dy: pt.AvgPoolGrad(s, dy, **WINDOW)).get_concrete_function(shape, tf.TensorSpec((2, 4, 3, 5)))
    with pytest.raises(PoolGradValueError, match="one row of 4"):
        tf.function(lambda s, dy: pt.AvgPoolGrad(s, dy, **WINDOW)).get_concrete_function(
            tf.TensorSpec((None,), tf.int32), tf.TensorSpec((2, 4, 3, 5))
        )


def test_arguments_that_are_tensors_of_the_graph() -> None:
    numbers = tf.TensorSpec((4,), tf.int32)
    with pytest.raises(PoolGradTypeError, match="ksize and strides must be known"):
        tf.function(lambda k: pt.AvgPool(tf.ones((1, 4, 4, 1)), k, [1, 1, 1, 1], "SAME")).get_concrete_function(numbers)
    with pytest.raises(PoolGradTypeError, match="pooling_ratio must be known"):
        tf.function(lambda r: pt.FractionalAvgPool(tf.ones((1, 4, 4, 1)), r)).get_concrete_function(tf.TensorSpec((4,)))
    edge = tf.function(lambda n: pt.fractional_avg_pool_at(tf.ones((1, 4, 4, 1)), [0, n, 4], [0, 4]))
    assert edge(tf.constant(3)).shape == (1, 2, 1, 1)


def test_a_gradient_of_unknown_size_takes_that_of_the_output() -> None:
    graph = tf.function(lambda dy: pt.AvgPoolGrad([2, 7, 9, 5], dy, **WINDOW), input_signature=[tf.TensorSpec((None,) * 4)])
    dy = support.random_array(2, (2, 4, 3, 5), np.dtype(np.float32))
    assert graph.get_concrete_function().output_shapes == (2, 7, 9, 5)
    np.testing.assert_allclose(graph(dy), raw_ops.AvgPoolGrad([2, 7, 9, 5], dy, **WINDOW), rtol=1e-5, atol=1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError):
        graph(dy[:, 1:])


def test_a_batch_that_disagrees_is_found_when_the_graph_runs() -> None:
    graph = tf.function(lambda n, dy: pt.AvgPoolGrad([n, 7, 9, 5], dy, **WINDOW))
    dy = tf.ones((2, 4, 3, 5))
    assert graph(tf.constant(2), dy).shape == (2, 7, 9, 5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="same batch and channels"):
        graph(tf.constant(3), dy)


def test_vectorized_map_and_datasets() -> None:
    x = tf.constant(support.random_array(3, (4, 2, 7, 9, 3), np.dtype(np.float32)))
    want = np.stack([raw_ops.AvgPool(part.numpy(), **WINDOW) for part in x])
    np.testing.assert_allclose(tf.vectorized_map(lambda t: pt.AvgPool(t, **WINDOW), x), want, rtol=1e-6, atol=1e-5)
    mapped = list(tf.data.Dataset.from_tensor_slices(x).map(lambda t: pt.AvgPool(t, **WINDOW)))
    np.testing.assert_allclose(np.stack(mapped), want, rtol=1e-6, atol=1e-5)


def test_other_devices_get_the_composition(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that does not lie in this machine's memory is not brought here."""
    x = tf.constant(support.random_array(4, (2, 7, 9, 3), np.dtype(np.float32)))
    monkeypatch.setattr(linear, "is_host", lambda tensor: False)
    monkeypatch.setattr(linear, "on_host", None)
    linear.pooling.cache_clear()
    np.testing.assert_allclose(pt.AvgPool(x, **WINDOW), raw_ops.AvgPool(x.numpy(), **WINDOW), rtol=1e-6, atol=1e-5)


class Module(tf.Module):  # type: ignore[misc]
    @tf.function(input_signature=[SPEC])
    def regular(self, x: Any) -> Any:
        y = pt.AvgPool(x, **WINDOW)
        return y, pt.AvgPoolGrad(tf.shape(x), y, **WINDOW)

    @tf.function(input_signature=[SPEC, tf.TensorSpec((4,), tf.int64)])
    def fractional(self, x: Any, rows: Any) -> Any:
        return pt.fractional_avg_pool_at(x, rows, [0, 4, 9], overlapping=True)


LOADER = """
import sys
sys.modules["poolgrad"] = None
import numpy as np, tensorflow as tf
folder = sys.argv[1]
x = tf.constant(np.load(folder + "/x.npy"))
module = tf.saved_model.load(folder + "/saved")
with tf.GradientTape() as tape:
    tape.watch(x)
    y, again = module.regular(x)
    loss = tf.reduce_sum(y ** 3)
first = tape.gradient(loss, x)
cells = module.fractional(x, tf.constant([0, 2, 5, 7], tf.int64))
np.savez(folder + "/out.npz", y=y, again=again, first=first, cells=cells)
"""


def test_saved_model_without_poolgrad(tmp_path: Path) -> None:
    """The same numbers, and the derivative, in a process where poolgrad cannot be imported."""
    module = Module()
    options = tf.saved_model.SaveOptions(experimental_custom_gradients=True)
    tf.saved_model.save(module, str(tmp_path / "saved"), options=options)
    x = support.random_array(5, (3, 7, 9, 2), np.dtype(np.float32))
    np.save(tmp_path / "x.npy", x)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run([sys.executable, "-c", LOADER, str(tmp_path)], env=environment, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    loaded = np.load(tmp_path / "out.npz")
    y, again = module.regular(x)
    support.assert_same_bits(loaded["y"], y.numpy())
    support.assert_same_bits(loaded["again"], again.numpy())
    support.assert_same_bits(loaded["cells"], module.fractional(x, tf.constant([0, 2, 5, 7], tf.int64)).numpy())
    want = raw_ops.AvgPool(x, **WINDOW)
    first = raw_ops.AvgPoolGrad(x.shape, 3 * want**2, **WINDOW)
    np.testing.assert_allclose(loaded["first"], first, rtol=1e-4, atol=1e-4 * abs(first).max())
