"""PyTorch's dialect beside PyTorch: forward and aten's own backward, every dtype, batched or not; and its limits."""

from __future__ import annotations

from typing import Any

import beside
import ml_dtypes
import numpy as np
import pytest
import support
from hypothesis import given
from hypothesis import strategies as st

from poolgrad import PoolGradError
from poolgrad.dialects import torch as ours
from poolgrad.dialects.pooling import Adaptive, Regular

theirs = pytest.importorskip("torch")
BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def tensor(array: support.Array) -> Any:
    copy = np.array(array)
    return theirs.from_numpy(copy.view(np.uint16)).view(theirs.bfloat16) if copy.dtype == BFLOAT16 else theirs.from_numpy(copy)


def array(tensor: Any) -> support.Array:
    if tensor.dtype == theirs.bfloat16:
        return np.asarray(tensor.view(theirs.uint16).numpy().view(BFLOAT16))
    return np.asarray(tensor.numpy())


@st.composite
def calls(draw: st.DrawFn) -> tuple[int, tuple[int, ...], dict[str, Any]]:
    """Dimensions, an input shape and arguments that PyTorch takes."""
    dims = draw(st.sampled_from([1, 2, 3]))
    ceil_mode = draw(st.booleans())
    window, stride, padding, sizes = [], [], [], []
    for _ in range(dims):
        k, s = draw(st.integers(1, 6)), draw(st.integers(1, 4))
        p = draw(st.integers(0, k // 2))
        least = k if dims == 3 else max(1, k - 2 * p - (s - 1 if ceil_mode else 0))
        for values, value in ((window, k), (stride, s), (padding, p), (sizes, draw(st.integers(least, least + 5)))):
            values.append(value)
    arguments: dict[str, Any] = {"kernel_size": tuple(window)}
    if draw(st.booleans()):
        arguments |= {"stride": tuple(stride), "padding": tuple(padding), "ceil_mode": ceil_mode}
    else:
        sizes = [max(n, k) for n, k in zip(sizes, window, strict=True)]
    arguments["count_include_pad"] = draw(st.booleans())
    if dims > 1 and draw(st.integers(0, 3)) == 0:
        arguments["divisor_override"] = draw(st.sampled_from([1, 3, 7, -5]))
    return dims, (*draw(st.sampled_from([(2, 3), (3,)])), *sizes), arguments


@given(call=calls(), dtype=support.dtypes, seed=support.seeds)
def test_windows(call: tuple[int, tuple[int, ...], dict[str, Any]], dtype: np.dtype[Any], seed: int) -> None:
    dims, shape, arguments = call
    op = f"avg_pool{dims}d"
    pooling = ours.read({"op": op, **arguments}, shape)
    x, dy = beside.arrays(pooling, shape, seed, dtype)
    mine = getattr(ours, op)(x, **arguments), getattr(ours, f"{op}_backward")(dy, x, **arguments)
    beside.check(pooling, x, dy, mine, answers(op, x, dy, arguments))


def answers(op: str, x: support.Array, dy: support.Array, arguments: dict[str, Any]) -> tuple[support.Array, ...] | None:
    """What PyTorch says, or None for the one case it lacks: float16 and bfloat16 in 3-D on CPU."""
    leaf = tensor(x).requires_grad_()
    try:
        y = getattr(theirs.nn.functional, op)(leaf, **arguments)
    except NotImplementedError:
        assert op == "avg_pool3d"
        assert x.dtype.itemsize == 2
        return None
    y.backward(tensor(dy))
    return array(y.detach()), array(leaf.grad)


@given(data=st.data(), dims=st.sampled_from([1, 2, 3]), dtype=support.dtypes, seed=support.seeds)
def test_adaptive(data: st.DataObject, dims: int, dtype: np.dtype[Any], seed: int) -> None:
    sizes = data.draw(st.tuples(*[st.integers(1, 7)] * dims))
    cells = data.draw(st.tuples(*[(st.integers(1, 9) | st.none()) if dims > 1 else st.integers(1, 9)] * dims))
    shape = (*data.draw(st.sampled_from([(2, 3), (3,)])), *sizes)
    op = f"adaptive_avg_pool{dims}d"
    pooling = ours.read({"op": op, "output_size": cells}, shape)
    x, dy = beside.arrays(pooling, shape, seed, dtype)
    mine = getattr(ours, op)(x, cells), getattr(ours, f"{op}_backward")(dy, shape)
    beside.check(pooling, x, dy, mine, answers(op, x, dy, {"output_size": cells}))


@pytest.mark.parametrize("dims", [2, 3])
def test_arguments_as_in_aten(dims: int) -> None:
    """Positional, in aten's order, with an empty stride for the window's."""
    rng = np.random.default_rng(3)
    shape, window, pads = (2, 3, 5, 6, 7)[: dims + 2], (3, 2, 4)[:dims], (1, 1, 2)[:dims]
    x = rng.standard_normal(shape).astype(np.float32)
    for divisor in (None, 5):
        given = (window, (), pads, True, False, divisor)
        y = ours.__dict__[f"avg_pool{dims}d"](x, *given)
        dy = rng.standard_normal(y.shape).astype(np.float32)
        mine = ours.__dict__[f"avg_pool{dims}d_backward"](dy, x, *given)
        aten = getattr(theirs.ops.aten, f"avg_pool{dims}d_backward")
        other = aten(tensor(dy), tensor(x), list(window), [], list(pads), True, False, divisor)
        assert np.allclose(mine, other.numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("include", [True, False])
def test_a_ceil_window_larger_than_the_padded_input(include: bool) -> None:
    x = support.random_array(1, (2, 3, 4), np.dtype(np.float32))
    given = {"kernel_size": 7, "stride": 3, "padding": 1, "ceil_mode": True, "count_include_pad": include}
    other = theirs.nn.functional.avg_pool1d(tensor(x), **given).numpy()
    assert other.shape == (2, 3, 1)
    assert np.allclose(ours.avg_pool1d(x, **given), other, rtol=1e-6)


REFUSED = [
    ("avg_pool2d", (1, 1, 4, 4), {"kernel_size": 3, "padding": 2}, "at most half"),
    ("avg_pool2d", (1, 1, 4, 4), {"kernel_size": 2, "divisor_override": 0}, "divisor_override must not be 0"),
    ("avg_pool2d", (1, 1, 4, 4), {"kernel_size": (3, 2, 2)}, "kernel_size must be"),
    ("avg_pool2d", (1, 1, 4, 4), {"kernel_size": 2, "stride": 0}, "stride must be at least 1"),
    ("avg_pool2d", (1, 1, 4, 4), {"kernel_size": 2, "padding": -1}, "padding must be at least 0"),
    ("avg_pool2d", (1, 1, 4, 4), {"kernel_size": 0}, "kernel_size must be at least 1"),
    ("avg_pool2d", (4, 4), {"kernel_size": 2}, "input must have rank 3 or 4"),
    ("avg_pool1d", (4,), {"kernel_size": 2}, "input must have rank 2 or 3"),
    ("avg_pool2d", (1, 1, 3, 3), {"kernel_size": 4}, "larger than the padded input"),
    ("avg_pool3d", (1, 1, 3, 3, 3), {"kernel_size": 4, "padding": 1}, "must not exceed the input"),
    ("avg_pool2d", (1, 1, 4, 4), {"kernel_size": 2.0}, "kernel_size must be an integer"),
    ("avg_pool2d", (1, 1, 4, 4), {"kernel_size": 2, "ceil_mode": "no"}, "ceil_mode must be True or False"),
    ("adaptive_avg_pool2d", (1, 1, 4, 4), {"output_size": (3,)}, "output_size must be"),
    ("adaptive_avg_pool2d", (1, 1, 4, 4), {"output_size": -1}, "output_size must be at least 0"),
    ("adaptive_avg_pool2d", (2, 1, 0, 4), {"output_size": 3}, "non-empty input axis"),
]


@pytest.mark.parametrize(("op", "shape", "arguments", "said"), REFUSED, ids=lambda value: str(value)[:40])
def test_both_refuse(op: str, shape: tuple[int, ...], arguments: dict[str, Any], said: str) -> None:
    with pytest.raises((RuntimeError, TypeError, IndexError)):
        getattr(theirs.nn.functional, op)(theirs.zeros(shape), **arguments)
    with pytest.raises(PoolGradError, match=said):
        getattr(ours, op)(np.zeros(shape, np.float32), **arguments)
    with pytest.raises(PoolGradError, match=said):
        ours.read({"op": op, **arguments}, shape).pool(shape)


def test_dy_of_another_shape_is_refused() -> None:
    with pytest.raises(PoolGradError, match=r"dy must have shape \(1, 1, 2, 2\)"):
        ours.avg_pool2d_backward(np.zeros((1, 1, 2, 3), np.float32), (1, 1, 4, 4), 2)
    with pytest.raises(PoolGradError, match="rank 3 or 4"):
        ours.adaptive_avg_pool2d_backward(np.zeros((2, 2), np.float32), (1, 1, 4, 4))


def test_read_tells_the_function() -> None:
    assert ours.read({"kernel_size": 2}, (1, 3, 8)) == Regular("NCL", (2,), (2,), ((0, 0),), None, "padded")
    assert ours.read({"kernel_size": (2, 2)}, (3, 8, 8)).layout == "CHW"
    assert ours.read({"op": "avg_pool2d", "kernel_size": 2}, (3, 8, 8)).layout == "CHW"
    assert ours.read({"output_size": 3}, (1, 2, 8, 8)) == Adaptive("NCHW", (3, 3))
    with pytest.raises(PoolGradError, match="no argument 'strides'"):
        ours.read({"kernel_size": 2, "strides": 2}, (1, 2, 8, 8))
    with pytest.raises(PoolGradError, match="needs the argument 'kernel_size'"):
        ours.read({"stride": 2}, (1, 2, 8, 8))
    with pytest.raises(PoolGradError, match="no argument 'divisor_override'"):
        ours.read({"kernel_size": 2, "divisor_override": 2}, (1, 2, 8))
    with pytest.raises(PoolGradError, match="op must be one of"):
        ours.read({"op": "max_pool2d", "kernel_size": 2}, (1, 2, 8, 8))
