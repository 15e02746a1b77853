"""JAX's dialect beside Flax and `lax.reduce_window`: values, and gradients by `jax.vjp`."""

from __future__ import annotations

from functools import cache
from typing import Any

import beside
import numpy as np
import pytest
import support
from hypothesis import given, settings
from hypothesis import strategies as st

from poolgrad import PoolGradError
from poolgrad.dialects import jax as ours


@cache
def framework(name: str) -> Any:
    return pytest.importorskip(name)


def answers(function: Any, x: support.Array, dy: support.Array) -> tuple[support.Array, support.Array]:
    jax = framework("jax")
    y, pullback = jax.vjp(function, jax.numpy.asarray(x))
    return np.asarray(y), np.asarray(pullback(jax.numpy.asarray(dy))[0])


PADDINGS = st.sampled_from(["VALID", "SAME", "SAME_LOWER", None, None])


def pads(data: st.DataObject, name: str | None, window: tuple[int, ...]) -> Any:
    """The padding's name, or pairs smaller than the windows."""
    if name is not None:
        return name
    return tuple((data.draw(st.integers(0, k - 1)), data.draw(st.integers(0, k - 1))) for k in window)


@settings(max_examples=20)
@given(data=st.data(), dims=st.sampled_from([1, 2, 3]), name=PADDINGS, seed=support.seeds)
def test_flax(data: st.DataObject, dims: int, name: str | None, seed: int) -> None:
    flax = framework("flax.linen")
    window = data.draw(st.tuples(*[st.integers(1, 4)] * dims))
    strides = data.draw(st.none() | st.tuples(*[st.integers(1, 3)] * dims))
    sizes = tuple(k + data.draw(st.integers(0, 4)) for k in window)
    lead = data.draw(st.sampled_from([(), (2,), (2, 2)]))
    padding = pads(data, name, window)
    if not isinstance(padding, str) and len(lead) > 1:
        lead = lead[:1]  # Flax pads one batch axis only
    shape = (*lead, *sizes, 3)
    given = {"strides": strides, "padding": padding, "count_include_pad": data.draw(st.booleans())}
    pooling = ours.read({"window_shape": window, **given}, shape)
    x, dy = beside.arrays(pooling, shape, seed, np.dtype(np.float32))
    mine = ours.avg_pool(x, window, **given), ours.avg_pool_grad(dy, shape, window, **given)
    beside.check(pooling, x, dy, mine, answers(lambda values: flax.avg_pool(values, window, **given), x, dy))


@given(data=st.data(), dims=st.sampled_from([1, 2, 3]), name=PADDINGS, dtype=support.dtypes, seed=support.seeds)
def test_dtypes(data: st.DataObject, dims: int, name: str | None, dtype: np.dtype[Any], seed: int) -> None:
    window = data.draw(st.tuples(*[st.integers(1, 4)] * dims))
    shape = (2, *(k + data.draw(st.integers(0, 4)) for k in window), 3)
    given = {"strides": window[::-1], "padding": pads(data, name, window), "count_include_pad": data.draw(st.booleans())}
    pooling = ours.read({"window_shape": window, **given}, shape)
    x, dy = beside.arrays(pooling, shape, seed, dtype)
    mine = ours.avg_pool(x, window, **given), ours.avg_pool_grad(dy, shape, window, **given)
    beside.check(pooling, x, dy, mine, None)


@settings(max_examples=20)
@given(data=st.data(), rank=st.sampled_from([1, 2, 3, 4]), name=PADDINGS, seed=support.seeds)
def test_reduce_window(data: st.DataObject, rank: int, name: str | None, seed: int) -> None:
    """Windows on any axes, with dilation; the divisor is the whole window, what it holds, or a number."""
    jax = framework("jax")
    window = data.draw(st.tuples(*[st.integers(1, 3)] * rank))
    strides = data.draw(st.tuples(*[st.integers(1, 3)] * rank))
    dilation = data.draw(st.tuples(*[st.integers(1, 2)] * rank))
    shape = tuple((k - 1) * d + 1 + data.draw(st.integers(0, 3)) for k, d in zip(window, dilation, strict=True))
    padding = pads(data, name, window)
    rule = data.draw(st.sampled_from(["window", "inside", 5]))
    given: dict[str, Any] = {"divisor": rule} if isinstance(rule, int) else {"count_include_pad": rule == "window"}
    arguments = {"window_strides": strides, "padding": padding, "window_dilation": dilation, **given}
    pooling = ours.read({"window_dimensions": window, **arguments}, shape)
    try:
        x, dy = beside.arrays(pooling, shape, seed, np.dtype(np.float32))
    except PoolGradError as refusal:  # dilation can make a window of which every tap lies in the padding
        if "covers no input" not in str(refusal):
            raise
        return

    def summed(values: Any) -> Any:
        return jax.lax.reduce_window(values, 0.0, jax.lax.add, window, strides, padding, window_dilation=dilation)

    def pooled(values: Any) -> Any:
        held = {"window": float(np.prod(window)), "inside": summed(jax.numpy.ones_like(values))}
        return summed(values) / held.get(rule, rule)

    mine = ours.window_average(x, window, **arguments), ours.window_average_grad(dy, shape, window, **arguments)
    beside.check(pooling, x, dy, mine, answers(pooled, x, dy))


REFUSED = [
    ({"window_shape": 2}, "window_shape must hold 1 to 3 integers"),
    ({"window_shape": (2, 2, 2, 2)}, "window_shape must hold 1 to 3 integers"),
    ({"window_shape": (2,), "padding": "FULL"}, "padding must be one of 'VALID', 'SAME', 'SAME_LOWER'"),
    ({"window_shape": (2, 2), "padding": ((0, 1),)}, r"padding must be a name or 2 \(low, high\) pairs"),
    ({"window_shape": (2, 2), "padding": ((0, 1), (0,))}, r"padding\[1\] must hold 2 integers"),
    ({"window_shape": (2, 2), "strides": (1,)}, "strides must hold 2 integers"),
    ({"window_shape": (2, 2), "strides": (0, 1)}, r"strides\[0\] must be at least 1"),
    ({"window_dimensions": (1, 2, 2)}, "window_dimensions must hold 4 integers"),
    ({"window_dimensions": (1, 2, 2, 1), "divisor": 0}, "divisor must not be 0"),
    ({"window_dimensions": (1, 2, 2, 1), "padding": ((0, 0), (2, 0), (0, 0), (0, 0))}, "covers no input"),
    ({"window_dimensions": (1, 2, 9, 1)}, "larger than the padded input"),
]


@pytest.mark.parametrize(("arguments", "said"), REFUSED, ids=lambda value: str(value)[:50])
def test_refused(arguments: dict[str, Any], said: str) -> None:
    function = ours.avg_pool if "window_shape" in arguments else ours.window_average
    with pytest.raises(PoolGradError, match=said):
        function(np.zeros((1, 5, 6, 2), np.float32), **arguments)
    with pytest.raises(PoolGradError, match=said):
        ours.read(arguments, (1, 5, 6, 2)).pool((1, 5, 6, 2))


def test_a_window_of_one_changes_nothing() -> None:
    x = np.random.default_rng(2).standard_normal((2, 3, 4)).astype(np.float32)
    assert (ours.window_average(x, (1, 1, 1)) == x).all()
    assert (ours.window_average(x[0, 0], (1,)) == x[0, 0]).all()


@pytest.mark.parametrize("shape", [(2, 3, 7, 9, 4), (2, 3, 5, 7, 9, 4), (3, 7, 9, 4), (7, 9, 4)])
def test_what_is_written_for_flax_flax_takes(shape: tuple[int, ...]) -> None:
    """Flax takes pairs of padding beside one batch axis only."""
    rank = len(shape)
    window, stride = (1,) * (rank - 3) + (3, 2, 1), (1,) * (rank - 3) + (2, 3, 1)
    padding = ((0, 0),) * (rank - 3) + ((1, 2), (0, 1), (0, 0))
    means = {"window_dimensions": window, "window_strides": stride, "padding": padding, "count_include_pad": False}
    said = ours.write(ours.read(means, shape), shape)
    assert said.pop("op") == "avg_pool"
    x = np.random.default_rng(3).standard_normal(shape).astype(np.float32)
    theirs = np.asarray(framework("flax.linen").avg_pool(framework("jax.numpy").asarray(x), **said))
    np.testing.assert_allclose(theirs, ours.window_average(x, **means), rtol=1e-5, atol=1e-6)
