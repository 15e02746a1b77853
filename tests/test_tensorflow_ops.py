"""The laws of `poolgrad.raw_ops`: exactness, adjointness, integers, sequences, refusals."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, repeat
from typing import Any

import checks
import ml_dtypes
import numpy as np
import pytest
import support
from hypothesis import given, settings
from hypothesis import strategies as st
from support import Array

from poolgrad import Axis, Pool, PoolGradError, PoolGradMemoryError, PoolGradTypeError, PoolGradValueError, exact, raw_ops

LAYOUTS = {2: ("NHWC", "NCHW"), 3: ("NDHWC", "NCDHW")}


@st.composite
def regular_calls(draw: st.DrawFn) -> tuple[str, Pool, list[int], dict[str, Any]]:
    """Which op, its tables, the input's shape and the arguments; windows may be larger than the input with SAME."""
    rank = draw(st.sampled_from([2, 3]))
    layout, padding = draw(st.sampled_from(LAYOUTS[rank])), draw(st.sampled_from(["SAME", "VALID"]))
    shape, ksize, strides, axes = [2] * (rank + 2), [1] * (rank + 2), [1] * (rank + 2), []
    shape[layout.index("C")] = 3
    for letter in "DHW"[3 - rank :]:
        n = draw(st.integers(1, 9 if rank == 2 else 6))
        k, s = draw(st.integers(1, 2 * n if padding == "SAME" else n)), draw(st.integers(1, 4))
        position = layout.index(letter)
        shape[position], ksize[position], strides[position] = n, k, s
        axes.append(Axis.regular(n, k, stride=s, padding=padding.lower()))
    op = "AvgPool" if rank == 2 else "AvgPool3D"
    return op, Pool(tuple(axes)), shape, {"ksize": ksize, "strides": strides, "padding": padding, "data_format": layout}


@given(call=regular_calls(), dtype=support.dtypes, seed=support.seeds)
def test_regular_ops_are_exact_to_the_rounding(call: Any, dtype: np.dtype[Any], seed: int) -> None:
    op, pool, shape, arguments = call
    layout = arguments["data_format"]
    x = support.random_array(seed, shape, dtype)
    dy = support.random_array(seed + 1, support.result_shape(pool, shape, layout, forwards=True), dtype)
    y, dx = getattr(raw_ops, op)(x, **arguments), getattr(raw_ops, op + "Grad")(shape, dy, **arguments)
    assert y.dtype == dx.dtype == dtype
    forward, backward = exact.forward(pool, x, layout), exact.gradient(pool, dy, layout)
    checks.assert_close(y, forward, exact.forward(pool, abs(x), layout), checks.tolerance(pool, dtype, forwards=True))
    checks.assert_close(dx, backward, exact.gradient(pool, abs(dy), layout), checks.tolerance(pool, dtype))


@given(call=regular_calls(), seed=support.seeds)
def test_regular_gradients_are_adjoint(call: Any, seed: int) -> None:
    op, pool, shape, arguments = call
    whole = int(np.prod([np.lcm.reduce(axis.count) for axis in pool.axes]))
    x = support.random_array(seed, shape, np.dtype(np.float64), "whole") * whole
    cells = support.result_shape(pool, shape, arguments["data_format"], forwards=True)
    y = support.random_array(seed + 1, cells, np.dtype(np.float64), "whole") * whole
    left = np.vdot(getattr(raw_ops, op)(x, **arguments), y)
    assert left == np.vdot(x, getattr(raw_ops, op + "Grad")(shape, y, **arguments))


@st.composite
def sequences(draw: st.DrawFn, size: int) -> list[int]:
    """Any sequence that never decreases: late, early, beyond the end, repeated."""
    return sorted(draw(st.lists(st.integers(0, size + 3), min_size=2, max_size=7)))


@st.composite
def fractional_calls(draw: st.DrawFn) -> tuple[Pool, tuple[int, ...], tuple[list[int], list[int], bool]]:
    sizes = draw(st.tuples(st.integers(1, 9), st.integers(1, 9)))
    rows, cols, overlapping = draw(sequences(sizes[0])), draw(sequences(sizes[1])), draw(st.booleans())
    edges = zip(sizes, (rows, cols), strict=True)
    axes = tuple(Axis.fractional(n, row, overlapping=overlapping, allow_empty=True) for n, row in edges)
    return Pool(axes), (2, *sizes, 3), (rows, cols, overlapping)


@given(call=fractional_calls(), dtype=support.dtypes, seed=support.seeds)
def test_fractional_ops_are_exact_to_the_rounding(call: Any, dtype: np.dtype[Any], seed: int) -> None:
    pool, shape, arguments = call
    x = support.random_array(seed, shape, dtype)
    dy = support.random_array(seed + 1, (2, *pool.output_size, 3), dtype)
    y, dx = raw_ops.fractional_avg_pool_at(x, *arguments), raw_ops.FractionalAvgPoolGrad(shape, dy, *arguments)
    forward, backward = exact.forward(pool, x), exact.gradient(pool, dy)
    checks.assert_close(y, forward, exact.forward(pool, abs(x)), checks.tolerance(pool, dtype, forwards=True))
    checks.assert_close(dx, backward, exact.gradient(pool, abs(dy)), checks.tolerance(pool, dtype))


@given(call=fractional_calls(), seed=support.seeds)
def test_fractional_gradient_is_adjoint(call: Any, seed: int) -> None:
    pool, shape, arguments = call
    whole = int(np.prod([np.lcm.reduce(axis.count) for axis in pool.axes]))
    x = support.random_array(seed, shape, np.dtype(np.float64), "whole") * whole
    y = support.random_array(seed + 1, (2, *pool.output_size, 3), np.dtype(np.float64), "whole") * whole
    left = np.vdot(raw_ops.fractional_avg_pool_at(x, *arguments), y)
    assert left == np.vdot(x, raw_ops.FractionalAvgPoolGrad(shape, y, *arguments))


def by_hand(pool: Pool, shape: tuple[int, ...], source: Array, forwards: bool) -> Array:
    """TensorFlow's loops with Python's own numbers: wrap around and truncate, or add doubles and truncate."""
    bits, (rows, cols) = source.itemsize * 8, pool.axes
    totals = np.zeros(shape, dtype=np.float64)
    result = np.zeros((shape[0], *pool.output_size, shape[3]) if forwards else shape, dtype=source.dtype)
    for b, i, j, c in np.ndindex(shape[0], rows.cells, cols.cells, shape[3]):
        window = (b, slice(rows.start[i], rows.stop[i]), slice(cols.start[j], cols.stop[j]), c)
        count = totals[window].size
        if forwards and count:
            total = (sum(int(v) for v in source[window].flat) + 2 ** (bits - 1)) % 2**bits - 2 ** (bits - 1)
            result[b, i, j, c] = abs(total) // count * (1 if total >= 0 else -1)
        elif count:
            totals[window] += float(int(source[b, i, j, c])) / count
    if not forwards:
        limits = np.iinfo(source.dtype)
        flat = [min(max(int(v), int(limits.min)), int(limits.max)) for v in totals.flat]
        result = np.array(flat, dtype=source.dtype).reshape(shape)
    return result


@settings(max_examples=100)
@given(call=fractional_calls(), dtype=st.sampled_from([np.int32, np.int64]), shift=st.integers(0, 40), seed=support.seeds)
def test_integers_follow_tensorflow(call: Any, dtype: Any, shift: int, seed: int) -> None:
    pool, shape, arguments = call
    rng, most = np.random.default_rng(seed), np.iinfo(dtype).max >> (shift % (np.iinfo(dtype).bits - 4))
    x = rng.integers(-most - 1, most, shape, dtype=dtype, endpoint=True)
    dy = rng.integers(-most - 1, most, (2, *pool.output_size, 3), dtype=dtype, endpoint=True)
    ours = raw_ops.fractional_avg_pool_at(x[:, ::-1][:, ::-1], *arguments)
    np.testing.assert_array_equal(ours, by_hand(pool, shape, x, forwards=True))
    ours = raw_ops.FractionalAvgPoolGrad(shape, dy, *arguments)
    assert ours.dtype == dtype
    np.testing.assert_array_equal(ours, by_hand(pool, shape, dy, forwards=False))


@np.errstate(invalid="raise")
def test_integers_saturate_where_tensorflow_has_no_answer() -> None:
    for dtype in (np.int32, np.int64):
        limits = np.iinfo(dtype)
        for edge in (limits.max, limits.min):
            one = np.full((1, 1, 1, 1), edge, dtype=dtype)
            assert raw_ops.FractionalAvgPoolGrad([1, 1, 1, 1], one, [0, 1], [0, 1]).item() == edge
            twice = np.full((1, 2, 1, 1), edge, dtype=dtype)
            assert raw_ops.FractionalAvgPoolGrad([1, 1, 1, 1], twice, [0, 0, 1], [0, 1], True).item() == edge


def test_half_types_add_in_float32() -> None:
    """TensorFlow's own kernels answer 1.666 and 2.0 here, and 0.0625 for the cube."""
    for dtype in (np.float16, ml_dtypes.bfloat16):
        square = np.full((1, 32, 32, 1), 1.5, dtype=dtype)
        assert raw_ops.AvgPool(square, [1, 32, 32, 1], [1, 32, 32, 1], "VALID").item() == 1.5
    cube = np.ones((1, 16, 16, 16, 1), dtype=ml_dtypes.bfloat16)
    assert raw_ops.AvgPool3D(cube, [1, 16, 16, 16, 1], [1, 1, 1, 1, 1], "VALID").item() == 1


def test_three_dimensional_forward_is_not_shifted_and_drops_no_value() -> None:
    """TensorFlow's own kernel answers index 1 for the first, and leaves the lowest float out of the second."""
    x = np.arange(3, dtype=np.float32).reshape(1, 3, 1, 1, 1)
    assert raw_ops.AvgPool3D(x, [1, 1, 1, 1, 1], [1, 3, 1, 1, 1], "SAME").item() == 0
    low = np.array([np.finfo(np.float32).min, np.finfo(np.float32).max, 0, 0], dtype=np.float32).reshape(1, 1, 2, 2, 1)
    assert raw_ops.AvgPool3D(low, [1, 1, 2, 2, 1], [1, 1, 2, 2, 1], "VALID").item() == 0


def test_philox_has_the_published_numbers() -> None:
    """Known answers of Philox4x32-10: counter and key all zeros, and all ones."""
    assert list(islice(raw_ops.philox(0, 0), 4)) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    from poolgrad.dialects.tensorflow import sequences as module

    ones = (2**32 - 1, 2**32 - 1)
    last = module._blocks(ones, ones, 2**64 - module.BLOCKS)[-4:].tolist()
    assert last == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@given(size=st.integers(1, 300), data=st.data(), pseudo_random=st.booleans(), seed=st.integers(-(2**63), 2**63 - 1))
def test_drawn_cells_have_two_neighbouring_lengths(size: int, data: st.DataObject, pseudo_random: bool, seed: int) -> None:
    cells = data.draw(st.integers(1, size))
    row = raw_ops.pooling_sequence(size, cells, raw_ops.philox(seed, 1), pseudo_random=pseudo_random)
    assert (len(row), row[0], row[-1]) == (cells + 1, 0, size)
    assert set(np.diff(row)) <= {size // cells, size // cells + 1}


def test_cells_of_one_length_need_no_numbers() -> None:
    row = raw_ops.pooling_sequence(6, 3, repeat(0), pseudo_random=True)
    np.testing.assert_array_equal(row, [0, 2, 4, 6])


def test_the_number_of_cells_is_a_float32_quotient() -> None:
    """In float64 both quotients are a little less than the whole number; in float32 the first is the number itself."""
    assert raw_ops.pooled_size(8, 8 / 3) == 3 > 8 / float(np.float32(8 / 3))
    assert raw_ops.pooled_size(8, 8 / 7) == 6


def test_seeds() -> None:
    x, ratios = np.zeros((1, 90, 91, 1), dtype=np.float32), [1, 1.37, 1.61, 1]

    def rows(**given: Any) -> bytes:
        return bytes(raw_ops.FractionalAvgPool(x, ratios, **given).row_pooling_sequence.tobytes())

    assert rows(deterministic=True, seed=3, seed2=4) == rows(deterministic=True, seed=3, seed2=4)
    assert rows(deterministic=True, seed=3, seed2=4) != rows(deterministic=True, seed=4, seed2=3)
    assert rows(deterministic=True) == rows(deterministic=True)
    assert len({rows() for _ in range(4)}) > 1
    plain = raw_ops.fractional_avg_pool(x, ratios, seed=0), raw_ops.fractional_avg_pool(x, ratios, seed=0)
    assert plain[0].row_pooling_sequence.tobytes() != plain[1].row_pooling_sequence.tobytes()


X = np.zeros((1, 4, 5, 2), dtype=np.float32)
DY = np.zeros((1, 2, 2, 2), dtype=np.float32)
BOX = {"ksize": [1, 2, 2, 1], "strides": [1, 2, 2, 1], "padding": "VALID"}
BAD_WINDOWS: list[tuple[dict[str, Any], str]] = [
    ({"ksize": 2}, "ksize"),
    ({"ksize": "1221"}, "ksize"),
    ({"ksize": None}, "ksize"),
    ({"ksize": [1, 2.0, 2, 1]}, "ksize"),
    ({"ksize": [True, 2, 2, 1]}, "ksize"),
    ({"ksize": [1, [2], 2, 1]}, "ksize"),
    ({"ksize": np.array([1, 2, 2, 1], np.uint8)}, "ksize"),
    ({"ksize": [1, 2**31, 2, 1]}, "ksize"),
    ({"ksize": [1, 2**70, 2, 1]}, "ksize"),
    ({"strides": [1, 2, 2]}, "strides"),
    ({"strides": [1, 0, 2, 1]}, "strides"),
    ({"strides": [2, 2, 2, 1]}, "strides"),
    ({"padding": "same"}, "padding"),
    ({"padding": ["SAME"]}, "padding"),
    ({"padding": None}, "padding"),
    ({"data_format": "NDHWC"}, "data_format"),
    ({"data_format": {}}, "data_format"),
]


@pytest.mark.parametrize(("change", "named"), BAD_WINDOWS, ids=lambda value: str(value)[:40])
def test_a_bad_window_is_named(change: dict[str, Any], named: str) -> None:
    for call in (lambda: raw_ops.AvgPool(X, **{**BOX, **change}), lambda: raw_ops.AvgPoolGrad(X.shape, DY, **{**BOX, **change})):
        with pytest.raises(PoolGradError, match=named):
            call()


def test_a_stride_over_channels_means_nothing_in_2d_and_is_refused_in_3d() -> None:
    plain = raw_ops.AvgPool(X + 1, [1, 2, 2, 1], [1, 2, 2, 1], "SAME")
    support.assert_same_bits(raw_ops.AvgPool(X + 1, [1, 2, 2, 1], [1, 2, 2, 7], "SAME"), plain)
    with pytest.raises(PoolGradValueError, match="strides"):
        raw_ops.AvgPool3D(X[..., np.newaxis], [1, 1, 1, 1, 1], [1, 1, 1, 1, 2], "SAME")


@pytest.mark.parametrize("shape", [4, [1, 4, 5], [[1, 4, 5, 2]], [1.0, 4, 5, 2], "1452", None, [1, -4, 5, 2], [1, 4, 5, 2**64],
                                   np.zeros(4), np.zeros(4, bool), np.zeros(4, np.int16), [True, 4, 5, 2], {}])  # fmt: skip
def test_a_bad_shape_is_named(shape: Any) -> None:
    with pytest.raises((PoolGradTypeError, PoolGradValueError), match="orig_input_shape"):
        raw_ops.AvgPoolGrad(shape, DY, **BOX)
    with pytest.raises((PoolGradTypeError, PoolGradValueError), match="orig_input_tensor_shape"):
        raw_ops.FractionalAvgPoolGrad(shape, DY, [0, 2, 4], [0, 2, 5])


def test_good_shapes_of_every_kind_are_taken() -> None:
    for shape in ([1, 4, 5, 2], (1, 4, 5, 2), np.array([1, 4, 5, 2], np.int32), np.array([1, 4, 5, 2]), [np.int32(1), 4, 5, 2]):
        assert raw_ops.AvgPoolGrad(shape, DY, **BOX).shape == (1, 4, 5, 2)


@pytest.mark.parametrize("change", [
    {"grad": np.zeros((1, 2, 2))}, {"grad": DY.astype(np.int32)}, {"grad": DY.tolist()}, {"grad": None},
    {"grad": DY.astype(">f4")}, {"grad": np.zeros((1, 2, 3, 2))}, {"grad": np.zeros((2, 2, 2, 2))},
    {"grad": np.zeros((1, 2, 2, 1))},
])  # fmt: skip
def test_a_bad_grad_is_named(change: dict[str, Any]) -> None:
    with pytest.raises((PoolGradTypeError, PoolGradValueError), match="grad"):
        raw_ops.AvgPoolGrad([1, 4, 5, 2], ksize=BOX["ksize"], strides=BOX["strides"], padding="VALID", **change)


def test_bad_input_after_good_input_is_refused() -> None:
    """What is kept from one call must not let another through: 2.0 and True equal 2 and 1."""
    raw_ops.AvgPoolGrad([1, 4, 5, 2], DY, **BOX)
    for bad in ([1.0, 4, 5, 2], [True, 4, 5, 2]):
        with pytest.raises(PoolGradTypeError):
            raw_ops.AvgPoolGrad(bad, DY, **BOX)
    with pytest.raises(PoolGradTypeError):
        raw_ops.AvgPoolGrad([1, 4, 5, 2], DY, [1, 2.0, 2, 1], [1, 2, 2, 1], "VALID")


FRACTIONAL_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"row_pooling_sequence": [0, 2]}, "row_pooling_sequence"),
    ({"col_pooling_sequence": [0, 2]}, "col_pooling_sequence"),
    ({"row_pooling_sequence": [0, 3, 2]}, "row_pooling_sequence"),
    ({"col_pooling_sequence": [-1, 3, 5]}, "col_pooling_sequence"),
    ({"row_pooling_sequence": [0.0, 2, 4]}, "row_pooling_sequence"),
    ({"row_pooling_sequence": None}, "row_pooling_sequence"),
    ({"row_pooling_sequence": []}, "row_pooling_sequence"),
    ({"overlapping": 1}, "overlapping"),
    ({"out_backprop": DY[..., :1]}, "out_backprop"),
    ({"out_backprop": DY.astype(np.int16)}, "out_backprop"),
    ({"out_backprop": DY[:, :0]}, "out_backprop"),
    ({"orig_input_tensor_shape": [1, 0, 5, 2]}, "orig_input_tensor_shape"),
    ({"orig_input_tensor_shape": [1, 2**31, 2**31, 2]}, "orig_input_tensor_shape"),
]


@pytest.mark.parametrize(("change", "named"), FRACTIONAL_REFUSALS, ids=lambda value: str(value)[:40])
def test_a_bad_fractional_gradient_is_named(change: dict[str, Any], named: str) -> None:
    good = {"orig_input_tensor_shape": [1, 4, 5, 2], "out_backprop": DY, "row_pooling_sequence": [0, 2, 4],
            "col_pooling_sequence": [0, 2, 5]}  # fmt: skip
    assert raw_ops.FractionalAvgPoolGrad(**good).shape == (1, 4, 5, 2)
    with pytest.raises(PoolGradError, match=named):
        raw_ops.FractionalAvgPoolGrad(**{**good, **change})


@pytest.mark.parametrize("change", [
    {"pooling_ratio": [1, 1.5, 1.5]}, {"pooling_ratio": [1, float("nan"), 1, 1]}, {"pooling_ratio": [1, float("inf"), 1, 1]},
    {"pooling_ratio": "1221"}, {"pooling_ratio": 2}, {"pooling_ratio": [1, 4.1, 1, 1]}, {"pooling_ratio": [1, 1e300, 1, 1]},
    {"seed": 1}, {"deterministic": True, "seed": 2**63}, {"deterministic": True, "seed": 1.5}, {"pseudo_random": None},
    {"deterministic": 0}, {"value": X[:0]}, {"value": X[0]}, {"value": X.astype(bool)},
])  # fmt: skip
def test_a_bad_fractional_forward_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(PoolGradError, match=next(iter(reversed(change)))):
        raw_ops.FractionalAvgPool(**{"value": X, "pooling_ratio": [1, 1.5, 1.5, 1], **change})


def test_empty_results() -> None:
    """VALID where n < k < n + 2·s has no cells: an empty forward, a gradient of zeros."""
    arguments = {"ksize": [1, 5, 1, 1], "strides": [1, 2, 1, 1], "padding": "VALID"}
    assert raw_ops.AvgPool(X, **arguments).shape == (1, 0, 5, 2)
    dx = raw_ops.AvgPoolGrad(X.shape, np.zeros((1, 0, 5, 2)), **arguments)
    assert dx.dtype == np.float64
    assert dx.shape == X.shape
    assert not dx.any()
    with pytest.raises(PoolGradValueError, match="at least 5"):
        raw_ops.AvgPool(X, [1, 8, 1, 1], [1, 2, 1, 1], "VALID")
    with pytest.raises(PoolGradValueError, match="addressing"):
        raw_ops.AvgPoolGrad([0, 2**31 - 1, 2**31 - 1, 1], np.zeros((0, 2**31 - 1, 1, 1)), [1] * 4, [1, 1, 2**31 - 1, 1], "SAME")


def test_a_result_that_cannot_exist_is_refused_at_once() -> None:
    dy = np.zeros((1, 1, 1, 1), dtype=np.float32)
    with pytest.raises(PoolGradMemoryError):
        raw_ops.AvgPoolGrad([1, 2**28, 2**20, 1], dy, [1, 1, 1, 1], [1, 2**28, 2**20, 1], "SAME")
    with pytest.raises(PoolGradMemoryError):
        raw_ops.FractionalAvgPoolGrad([1, 2**28, 2**20, 1], dy, [0, 2], [0, 2])
    with pytest.raises(PoolGradMemoryError):
        raw_ops.FractionalAvgPool(np.broadcast_to(dy, (1, 2**28, 2**20, 1)), [1, 1.5, 1.5, 1])
    with pytest.raises(PoolGradValueError, match="value"):
        raw_ops.FractionalAvgPool(np.broadcast_to(dy, (1, 2**33, 1, 1)), [1, 32, 1, 1])


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: raw_ops.philox(1.5), "seed must be an integer"),
        (lambda: raw_ops.philox(1, "a"), "seed2 must be an integer"),
        (lambda: raw_ops.pooled_size(6, 0), "ratio must be a number from 1 to the size 6, got 0"),
        (lambda: raw_ops.pooled_size(6, float("nan")), "ratio must be a number"),
        (lambda: raw_ops.pooled_size(6, "x"), "ratio must be a number"),
        (lambda: raw_ops.pooling_sequence(10, 6, iter([1, 2])), "numbers must yield 8 integers for 6 cells, got 2"),
        (lambda: raw_ops.pooling_sequence(2**40, 2**39 + 1, raw_ops.philox(1)), "size must be at most"),
    ],
)
def test_the_generator_refuses_by_name(call: Callable[[], Any], said: str) -> None:
    with pytest.raises(PoolGradError, match=said):
        call()
