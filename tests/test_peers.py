"""The real PyTorch, TensorFlow and JAX, side by side on random arguments, forward and gradient.

They add in other orders, so what is compared is the error in units of the last place of the sum of absolute values,
within what an ascending sum over the window may lose.
"""

from __future__ import annotations

import os
from functools import cache
from typing import Any

import numpy as np
import pytest
import support
from hypothesis import given, settings
from hypothesis import strategies as st

import poolgrad
from poolgrad import Axis, Pool

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")


@cache
def framework(name: str) -> Any:
    return pytest.importorskip(name)


def assert_agree(ours: support.Array, theirs: Any, size: support.Array, terms: int) -> None:
    """`size` is the same sum over absolute values: an error in it cannot hide behind cancellation."""
    other = np.asarray(theirs)
    assert ours.shape == other.shape
    assert ours.dtype == other.dtype
    unit = np.spacing(np.maximum(size, np.finfo(ours.dtype).tiny))
    worst = float(np.max(abs(ours.astype(np.float64) - other.astype(np.float64)) / unit, initial=0.0))
    assert worst <= terms + 4, f"{worst} units of the last place apart over windows of {terms}"


def check(pool: Pool, layout: str, x: support.Array, dy: support.Array, theirs: Any, their_gradient: Any) -> None:
    terms = int(np.prod([(axis.stop - axis.start).max() for axis in pool.axes]))
    covering = int(np.prod([axis.cells for axis in pool.axes]))
    size = poolgrad.forward(pool, abs(x), layout=layout), poolgrad.gradient(pool, abs(dy), layout=layout)
    assert_agree(poolgrad.forward(pool, x, layout=layout), theirs, size[0], terms)
    assert_agree(poolgrad.gradient(pool, dy, layout=layout), their_gradient, size[1], min(terms, covering))


FLOATS = st.sampled_from([np.dtype(np.float32), np.dtype(np.float64)])


@st.composite
def torch_axes(draw: st.DrawFn, rank: int, ceil_mode: bool, include: bool) -> list[tuple[Axis, int, int, int]]:
    """Axes within PyTorch's limits: padding of at most half the window, and in 3-D no window larger than the input."""
    axes = []
    for _ in range(rank):
        k = draw(st.integers(1, 5))
        p, s = draw(st.integers(0, k // 2)), draw(st.integers(1, 4))
        n = draw(st.integers(k if rank == 3 else max(1, k - 2 * p), 9))
        count = "padded" if include else "inside"
        axes.append((Axis.regular(n, k, stride=s, padding=p, ceil_mode=ceil_mode, count=count), k, s, p))
    return axes


@given(data=st.data(), rank=st.sampled_from([1, 2, 3]), dtype=FLOATS, seed=support.seeds)
def test_pytorch(data: st.DataObject, rank: int, dtype: np.dtype[Any], seed: int) -> None:
    torch = framework("torch")
    ceil_mode, include = data.draw(st.booleans()), data.draw(st.booleans())
    axes = data.draw(torch_axes(rank, ceil_mode, include))
    divisor = data.draw(st.none() | st.integers(1, 9)) if rank > 1 else None
    pool, layout = Pool(tuple(row[0] for row in axes), divisor), "NC" + ("L", "HW", "DHW")[rank - 1]
    x = support.random_array(seed, (2, 3, *pool.input_size), dtype)
    dy = support.random_array(seed + 1, (2, 3, *pool.output_size), dtype)
    given_x = torch.from_numpy(x.copy()).requires_grad_()
    function = getattr(torch.nn.functional, f"avg_pool{rank}d")
    options = {} if rank == 1 else {"divisor_override": divisor}
    windows, strides, pads = zip(*(row[1:] for row in axes), strict=True)
    y = function(given_x, windows, strides, pads, ceil_mode, include, **options)
    y.backward(torch.from_numpy(dy))
    check(pool, layout, x, dy, y.detach().numpy(), given_x.grad.numpy())


@given(data=st.data(), rank=st.sampled_from([1, 2, 3]), dtype=FLOATS, seed=support.seeds)
def test_pytorch_adaptive(data: st.DataObject, rank: int, dtype: np.dtype[Any], seed: int) -> None:
    torch = framework("torch")
    sizes = data.draw(st.tuples(*[st.integers(1, 9)] * rank))
    cells = data.draw(st.tuples(*[st.integers(1, 11)] * rank))
    pool = Pool(tuple(Axis.adaptive(n, m) for n, m in zip(sizes, cells, strict=True)))
    x = support.random_array(seed, (2, 3, *sizes), dtype)
    dy = support.random_array(seed + 1, (2, 3, *cells), dtype)
    given_x = torch.from_numpy(x.copy()).requires_grad_()
    y = getattr(torch.nn.functional, f"adaptive_avg_pool{rank}d")(given_x, cells)
    y.backward(torch.from_numpy(dy))
    check(pool, "NC" + ("L", "HW", "DHW")[rank - 1], x, dy, y.detach().numpy(), given_x.grad.numpy())


@given(data=st.data(), rank=st.sampled_from([2, 3]), padding=st.sampled_from(["SAME", "VALID"]), seed=support.seeds)
def test_tensorflow(data: st.DataObject, rank: int, padding: str, seed: int) -> None:
    """float32, whose kernels divide rightly; a window larger than its input is left out (a known defect of theirs)."""
    tf = framework("tensorflow")
    sizes = data.draw(st.tuples(*[st.integers(1, 9)] * rank))
    windows = tuple(data.draw(st.integers(1, n)) for n in sizes)
    strides = data.draw(st.tuples(*[st.integers(1, 4)] * rank))
    rows = zip(sizes, windows, strides, strict=True)
    pool = Pool(tuple(Axis.regular(n, k, stride=s, padding=padding.lower()) for n, k, s in rows))
    x = support.random_array(seed, (2, *sizes, 3), np.dtype(np.float32))
    dy = support.random_array(seed + 1, (2, *pool.output_size, 3), np.dtype(np.float32))
    given_x = tf.constant(x)
    with tf.GradientTape() as tape:
        tape.watch(given_x)
        pooled = (tf.nn.avg_pool2d if rank == 2 else tf.nn.avg_pool3d)(given_x, windows, strides, padding)
    gradient = tape.gradient(pooled, given_x, output_gradients=tf.constant(dy))
    check(pool, "NHWC" if rank == 2 else "NDHWC", x, dy, pooled.numpy(), gradient.numpy())


@given(data=st.data(), overlapping=st.booleans(), dtype=FLOATS, seed=support.seeds)
def test_tensorflow_fractional(data: st.DataObject, overlapping: bool, dtype: np.dtype[Any], seed: int) -> None:
    """Sequences as TensorFlow draws them: cells of two neighbouring lengths, from 0 to the end."""
    tf = framework("tensorflow")
    sizes, sequences = data.draw(st.tuples(st.integers(2, 12), st.integers(2, 12))), []
    for n in sizes:
        cells = data.draw(st.integers(1, n))
        lengths = data.draw(st.permutations([n // cells + (k < n % cells) for k in range(cells)]))
        sequences.append([0, *np.cumsum(lengths).tolist()])
    pool = Pool(tuple(Axis.fractional(n, edges, overlapping=overlapping) for n, edges in zip(sizes, sequences, strict=True)))
    dy = support.random_array(seed, (2, *pool.output_size, 3), dtype)
    theirs = tf.raw_ops.FractionalAvgPoolGrad(
        orig_input_tensor_shape=tf.constant([2, *sizes, 3], tf.int64),
        out_backprop=tf.constant(dy),
        row_pooling_sequence=tf.constant(sequences[0], tf.int64),
        col_pooling_sequence=tf.constant(sequences[1], tf.int64),
        overlapping=overlapping,
    )
    ours = poolgrad.fractional_avg_pool_grad(dy, (2, *sizes, 3), sequences, overlapping=overlapping)
    assert_agree(ours, theirs.numpy(), poolgrad.gradient(pool, abs(dy)), 4)


@pytest.mark.parametrize("ratio", [1.44, 1.73, 2.0])
def test_tensorflow_draws_fractional_windows(ratio: float) -> None:
    """Its own forward pass, with the sequences it reports."""
    tf = framework("tensorflow")
    x = support.random_array(8, (2, 17, 23, 3), np.dtype(np.float32))
    for overlapping in (False, True):
        ratios = [1.0, ratio, ratio, 1.0]
        drawn = tf.raw_ops.FractionalAvgPool(
            value=tf.constant(x), pooling_ratio=ratios, overlapping=overlapping, deterministic=True, seed=5, seed2=7
        )
        sequences = [drawn.row_pooling_sequence.numpy(), drawn.col_pooling_sequence.numpy()]
        ours = poolgrad.fractional_avg_pool(x, sequences, overlapping=overlapping)
        size = poolgrad.fractional_avg_pool(abs(x), sequences, overlapping=overlapping)
        assert_agree(ours, drawn.output.numpy(), size, 16)


@settings(max_examples=40)
@given(data=st.data(), rank=st.sampled_from([1, 2, 3]), include=st.booleans(), seed=support.seeds)
def test_jax(data: st.DataObject, rank: int, include: bool, seed: int) -> None:
    """`reduce_window` with explicit pads and window dilation, over counts made by itself or over the whole window."""
    jax = framework("jax")
    axes, windows, strides, dilations, pads = [], [], [], [], []
    for _ in range(rank):
        n, d = data.draw(st.integers(1, 9)), data.draw(st.sampled_from([1, 1, 2]))
        k, s = data.draw(st.integers(1, (n - 1) // d + 1)), data.draw(st.integers(1, 3))
        p = (data.draw(st.integers(0, k - 1)), data.draw(st.integers(0, k - 1)))
        axes.append(Axis.regular(n, k, stride=s, padding=p, dilation=d, count="window" if include else "inside"))
        for values, value in ((windows, k), (strides, s), (dilations, d), (pads, p)):
            values.append(value)
    pool = Pool(tuple(axes))
    x = support.random_array(seed, (2, *pool.input_size, 3), np.dtype(np.float32))
    dy = support.random_array(seed + 1, (2, *pool.output_size, 3), np.dtype(np.float32))

    def summed(values: Any) -> Any:
        boxes = (1, *windows, 1), (1, *strides, 1), [(0, 0), *pads, (0, 0)]
        return jax.lax.reduce_window(values, 0.0, jax.lax.add, *boxes, window_dilation=(1, *dilations, 1))

    def pooled(values: Any) -> Any:
        return summed(values) / (float(np.prod(windows)) if include else summed(jax.numpy.ones_like(values)))

    y, pullback = jax.vjp(pooled, jax.numpy.asarray(x))
    check(pool, ("NLC", "NHWC", "NDHWC")[rank - 1], x, dy, y, pullback(jax.numpy.asarray(dy))[0])
