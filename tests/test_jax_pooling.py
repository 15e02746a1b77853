"""`poolgrad.jax` against the core: the same bits from the kernel, a few ulps from JAX's own operations, clear refusals."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import checks
import numpy as np
import pytest
import support
from hypothesis import given, settings
from hypothesis import strategies as st

import poolgrad
from poolgrad import Axis, Pool, PoolGradTypeError, PoolGradValueError, exact
from poolgrad.layout import spatial_positions

jax = pytest.importorskip("jax", minversion="0.8")
jnp = jax.numpy

import poolgrad.jax as pj  # noqa: E402
from poolgrad.far import FAR  # noqa: E402
from poolgrad.jax.composition import composed  # noqa: E402
from poolgrad.jax.local import has_kernel  # noqa: E402
from poolgrad.jax.parts import _runs, encode, has_far, uncut  # noqa: E402
from poolgrad.jax.primitive import linear  # noqa: E402

ROWS = [[0, 2, 3, 7], [0, 1, 4, 6]]
CALLS: dict[str, tuple[str, tuple[Any, ...], dict[str, Any], str]] = {
    "window": ("avg_pool", ((3, 2),), {"stride": (2, 3), "padding": ((1, 0), (0, 1))}, "NHWC"),
    "dilated": ("avg_pool", ((2, 3),), {"stride": 1, "padding": "same", "dilation": (3, 2)}, "NCHW"),
    "ceil": ("avg_pool", ((3, 2),), {"stride": 2, "padding": 1, "ceil_mode": True, "count": "padded"}, "CWHN"),
    "divisor": ("avg_pool", ((2, 2),), {"stride": 1, "divisor": -7}, "HWC"),
    "adaptive": ("adaptive_avg_pool", ((3, None),), {}, "NCHW"),
    "fractional": ("fractional_avg_pool", (ROWS,), {"overlapping": True}, "NHWC"),
}
EXTENTS = {"N": 2, "C": 3, "H": 7, "W": 6}


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    with jax.enable_x64(True):
        yield


def test_the_kernel_is_here() -> None:
    """Built without jaxlib's headers, everything else here would test JAX's own operations alone."""
    assert has_kernel()


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize("name", CALLS)
def test_functions_give_the_bits_of_the_core(name: str, dtype: np.dtype[Any]) -> None:
    function, arguments, options, layout = CALLS[name]
    x = support.random_array(1, [EXTENTS[letter] for letter in layout], dtype, "special")
    y = getattr(pj, function)(jnp.asarray(x), *arguments, layout=layout, **options)
    assert isinstance(y, jax.Array)
    support.assert_same_bits(np.asarray(y), getattr(poolgrad, function)(x, *arguments, layout=layout, **options))
    dy = support.random_array(2, y.shape, dtype, "special")
    rest = arguments if function != "adaptive_avg_pool" else ()
    dx = getattr(pj, f"{function}_grad")(jnp.asarray(dy), x.shape, *rest, layout=layout, **options)
    support.assert_same_bits(np.asarray(dx), getattr(poolgrad, f"{function}_grad")(dy, x.shape, *rest, layout=layout, **options))


def drawn(data: st.DataObject, sizes: dict[int, int]) -> tuple[Pool, str, Any, bool]:
    pool, forwards = data.draw(support.pools(most_axes=3, sizes=sizes)), data.draw(st.booleans())
    layout = data.draw(support.layouts(len(pool.axes)))
    shape = support.source_shape(pool, layout, 2, data.draw(st.sampled_from([1, 3, 17])), forwards=forwards)
    return pool, layout, support.random_array(data.draw(support.seeds), shape, data.draw(support.dtypes)), forwards


@pytest.mark.parametrize("sizes", [support.SMALL, support.LARGE], ids=["small", "large"])
@settings(max_examples=40)
@given(data=st.data())
def test_any_pooling_gives_the_bits_of_the_core(sizes: dict[int, int], data: st.DataObject) -> None:
    pool, layout, source, forwards = drawn(data, sizes)
    spatial = spatial_positions(layout, source.ndim)
    got = jax.jit(lambda s: linear(s, pool, spatial, forwards))(source)
    support.assert_same_bits(np.asarray(got), support.compute("native", pool, source, layout, forwards=forwards), pool)


@settings(max_examples=40)
@given(data=st.data())
def test_the_composition_is_within_ulps(data: st.DataObject) -> None:
    pool, layout, source, forwards = drawn(data, support.SMALL)
    spatial = spatial_positions(layout, source.ndim)
    options = {"pool": pool, "spatial": spatial, "forwards": forwards, "cuts": uncut(pool, forwards)}
    got = jax.jit(partial(composed, **options))(source, np.zeros(len(spatial), dtype=np.int32))
    assert_near(np.asarray(got), pool, source, layout, forwards)


def assert_near(got: Any, pool: Pool, source: Any, layout: str, forwards: bool) -> None:
    true = exact.forward if forwards else exact.gradient
    allowed = checks.tolerance(pool, source.dtype, forwards=forwards) + 1  # XLA may multiply by a reciprocal
    checks.assert_close(got, true(pool, source, layout), true(pool, abs(source), layout), allowed)


LONG = [Axis.regular(700, 63, stride=2), Axis.regular(700, 200, stride=1, padding="same"), Axis.whole(700)]


@pytest.mark.parametrize("axis", LONG)
def test_the_composition_of_long_windows(axis: Axis) -> None:
    pool = Pool((axis,))
    for forwards in (True, False):
        shape = support.source_shape(pool, "NLC", 2, 3, forwards=forwards)
        source = support.random_array(5, shape, np.dtype(np.float32))
        call = partial(composed, pool=pool, spatial=(1,), forwards=forwards, cuts=uncut(pool, forwards))
        assert_near(np.asarray(jax.jit(call)(source, np.zeros(1, np.int32))), pool, source, "NLC", forwards)
        # About five additions per element, not one for each cell of the window.
        assert str(jax.make_jaxpr(call)(source, np.zeros(1, np.int32))).count(" add ") < 120


def test_intervals_too_long_for_the_kernel() -> None:
    pool = Pool((Axis.regular(40000, 30000, stride=9000),))
    assert has_far(pool, True)
    x = support.random_array(6, (2, 40000), np.dtype(np.float64))
    got = np.asarray(jax.jit(lambda x: linear(x, pool, (1,), True))(x))
    np.testing.assert_allclose(got, poolgrad.forward(pool, x, layout="NL"), rtol=1e-12)


@pytest.mark.parametrize("threads", support.THREADS)
def test_the_number_of_threads_does_not_show(threads: int) -> None:
    from poolgrad.engines import _native, native

    x = support.random_array(12, (3, 150, 130, 3), np.dtype(np.float32))
    _native.set_xla_threads(threads)
    try:
        got = np.asarray(jax.jit(lambda x: pj.avg_pool(x, (11, 4), stride=(1, 2), padding="same"))(x))
    finally:
        _native.set_xla_threads(native.default_threads())
    support.assert_same_bits(got, poolgrad.avg_pool(x, (11, 4), stride=(1, 2), padding="same", num_threads=1))


def test_callers_do_not_meet() -> None:
    """Several Python threads in the kernel at once; the pool of threads serves one, the others run on their own."""
    x = support.random_array(7, (2, 190, 170, 5), np.dtype(np.float32))
    want = poolgrad.avg_pool(x, 9, stride=1, padding="same", num_threads=1)
    call = jax.jit(lambda x: pj.avg_pool(x, 9, stride=1, padding="same"))
    for answer in support.in_threads(lambda: np.asarray(call(x))):
        support.assert_same_bits(answer, want)


def test_tables_are_short_however_long_the_axis() -> None:
    short, long = ((Pool((Axis.regular(n, 9, stride=3, padding="same"),)), n) for n in (60, 60000))
    for forwards in (True, False):
        sizes = [len(encode(pool, (1,), forwards, uncut(pool, forwards))) for pool, _ in (short, long)]
        assert sizes[0] == sizes[1] < 100


@given(st.lists(st.integers(0, 5), max_size=40))
def test_runs_say_the_column_again(steps: list[int]) -> None:
    column = np.cumsum(np.array(steps, dtype=np.int64))
    count, *numbers = _runs(column)
    rows = np.array(numbers).reshape(count, 4)
    made = [np.repeat(first + step * np.arange(n), each) for first, step, n, each in rows]
    assert np.concatenate([*made, np.zeros(0, int)]).tolist() == column.tolist()


def called(tables: Any, x: Any, shape: tuple[int, ...], places: Any = (0,)) -> Any:
    call = jax.ffi.ffi_call("poolgrad_avg_pool", jax.ShapeDtypeStruct(shape, x.dtype))
    return jax.block_until_ready(jax.jit(lambda x: call(x, jnp.asarray(places, jnp.int32), tables=np.asarray(tables)))(x))


def test_the_kernel_believes_no_table() -> None:
    """A program may come from anywhere: whatever its numbers say, nothing outside the buffers is touched."""
    pool = Pool((Axis.regular(9, 3, stride=2, dilation=2),))
    tables = encode(pool, (1,), True, uncut(pool, True))
    x = jnp.asarray(support.random_array(8, (2, 9, 3), np.dtype(np.float32)))
    called(tables, x, (2, 3, 3))
    rng = np.random.default_rng(0)
    refusals = []
    for _ in range(80):
        bad = tables.copy()
        bad[rng.integers(len(bad))] = rng.choice([-1, 0, 1, 2, 3, 5, 9, 10, 2**31, 2**62, -(2**62)])
        try:
            called(bad[: rng.integers(len(bad) + 1)] if rng.random() < 0.3 else bad, x, (2, 3, 3))
        except jax.errors.JaxRuntimeError as refusal:
            refusals.append(str(refusal))
    assert len(refusals) > 30
    assert all("poolgrad" in refusal for refusal in refusals)
    for shape, places in [((2, 2, 3), (0,)), ((2, 3, 3), (1,)), ((2, 3, 3), (0, 0)), ((2, 3, 4), (0,))]:
        with pytest.raises(jax.errors.JaxRuntimeError, match="poolgrad"):
            called(tables, x, shape, places)


def column(*numbers: int) -> list[int]:
    return [len(numbers), *(n for number in numbers for n in (number, 0, 1, 1))]


def one_class(rows: int, lo: list[int], hi: list[int], counts: list[int]) -> list[int]:
    return [0, 1, rows, 0, 1, len(lo), 0, 1, 4, *column(*lo), *column(*hi), *counts]


@pytest.mark.parametrize(("first", "last"), [(3, 1), (3, 3 - 2**32), (2**63 - 1, 0), (2**62, 2**62)])
@pytest.mark.parametrize("wrong", range(3))
def test_the_kernel_believes_no_interval(first: int, last: int, wrong: int) -> None:
    """An interval that ends before it begins, or begins where there is nothing, names no memory at all."""
    tables = [1, 0, 1, 1, 3]
    for axis in range(3):
        lo, hi = ([first] * 4, [last] * 4) if axis == wrong else ([0, 1, 2, 3], [1, 2, 3, 4])
        tables += [axis + 1, 1, 1, *one_class(4, lo, hi, column(1, 1, 1, 1))]
    for channels in (1, 32):
        x = jnp.ones((64, 4, 4, 4, channels), jnp.float32)
        with pytest.raises(jax.errors.JaxRuntimeError, match="poolgrad"):
            called(tables, x, x.shape, (0, 0, 0))


def test_the_classes_of_a_part_make_every_position_once() -> None:
    """Else positions would stay as the memory was, or a few numbers would ask for pieces without end."""
    x = jnp.ones(2, jnp.float32)
    first, both = (one_class(2, [0] * n, [1] * n, column(*[1] * n)) for n in (1, 2))
    assert called([1, 0, 1, 1, 1, 0, 1, 1, *both], x, (2,)).tolist() == [1, 1]
    for classes, words in [((), "out"), ((first,), "out"), ((first, first), "share"), ((both, both), "share")]:
        with pytest.raises(jax.errors.JaxRuntimeError, match=rf"poolgrad.*{words}"):
            called([1, 0, 1, 1, 1, 0, 1, len(classes), *(n for numbers in classes for n in numbers)], x, (2,))
    many = 40
    twice = one_class(1, [0], [1], column(1)) * 2
    tables = [1, 0, 1, 1, many, *(n for axis in range(many) for n in (axis, 1, 2, *twice))]
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"poolgrad.*share"):
        called(tables, jnp.ones((1,) * many, jnp.float32), (1,) * many, (0,) * many)


def test_the_kernel_refuses_intervals_that_are_never_sent_to_it() -> None:
    """Scratch grows with the longest one."""
    for window, refused in [(FAR, False), (FAR + 1, True)]:
        pool = Pool((Axis.regular(FAR + 9, window, stride=5),))
        assert has_far(pool, True) == refused
        x = jnp.ones((FAR + 9, 1), jnp.float32)
        tables = encode(pool, (0,), True, uncut(pool, True))
        with pytest.raises(jax.errors.JaxRuntimeError, match="poolgrad") if refused else nullcontext():
            called(tables, x, (pool.output_size[0], 1))


def test_an_empty_source_allows_no_table() -> None:
    """Its shape may name any number of rows, for it has none of them."""
    rows = 2**39
    none, all_of = one_class(0, [0], [0], [0]), one_class(rows, [0], [1], [1, 1, 0, 1, rows])
    x = jnp.zeros((0, rows), jnp.float32)
    assert called([1, 1, 1, 1, 2, 0, 1, 1, *none, 1, 1, 1, *all_of], x, (1, 3), (0, 0)).tolist() == [[0, 0, 0]]


def test_numpy_arrays_are_taken() -> None:
    x = support.random_array(9, (2, 5, 4, 3), np.dtype(np.float32))
    assert isinstance(pj.avg_pool(x, 2), jax.Array)


def test_numbers_of_jax_describe_windows() -> None:
    x = support.random_array(9, (2, 5, 4, 3), np.dtype(np.float32))
    size, plain = jnp.asarray(3), pj.avg_pool(x, 3, stride=(2, 1), divisor=3)
    support.assert_same_bits(pj.avg_pool(x, size, stride=jnp.asarray([2, 1]), divisor=size), plain)
    dx = pj.avg_pool_grad(plain, [jnp.asarray(n) for n in x.shape], size, stride=[jnp.asarray(2), 1], divisor=3)
    support.assert_same_bits(dx, pj.avg_pool_grad(plain, x.shape, 3, stride=(2, 1), divisor=3))


@pytest.mark.parametrize(
    ("error", "words", "call"),
    [
        (PoolGradTypeError, "dy must be a JAX or NumPy array, got builtins.list", lambda x: pj.avg_pool_grad([1.0], (2,), 2)),
        (PoolGradTypeError, "dtype float16, bfloat16, float32, float64, got int32", lambda x: pj.avg_pool(x.astype("int32"), 2)),
        (PoolGradTypeError, "got complex64", lambda x: pj.adaptive_avg_pool(x.astype("complex64"), 2)),
        (PoolGradValueError, "window 9", lambda x: pj.avg_pool(x, 9)),
        (PoolGradTypeError, "window must be an integer", lambda x: pj.avg_pool(x, 2.0)),
        (PoolGradValueError, "layout 'NHW' names 3 axes", lambda x: pj.avg_pool(x, 2, layout="NHW")),
        (PoolGradValueError, "dy must have shape", lambda x: pj.avg_pool_grad(x, (2, 5, 4, 3), 2)),
        (PoolGradTypeError, "input_shape must be a sequence", lambda x: pj.avg_pool_grad(x, 5, 2)),
        (PoolGradTypeError, "must be known when the program is made", lambda x: jax.jit(pj.avg_pool)(x, 2)),
        (PoolGradTypeError, "must be known when", lambda x: jax.jit(lambda s: pj.fractional_avg_pool(x, [s, s]))(jnp.arange(3))),
        (PoolGradValueError, "never decrease", lambda x: pj.fractional_avg_pool(x, [[0, 3, 2], [0, 4]])),
    ],
)
def test_refusals(error: type[Exception], words: str, call: Any) -> None:
    with pytest.raises(error, match=words):
        call(jnp.zeros((2, 5, 4, 3), jnp.float32))


def test_float64_needs_x64() -> None:
    with jax.enable_x64(False):
        assert pj.avg_pool(np.ones((1, 2, 2, 1), np.float32), 2).dtype == np.float32
        with pytest.raises(PoolGradTypeError, match="jax_enable_x64"):
            pj.avg_pool(np.ones((1, 2, 2, 1)), 2)


def test_without_the_kernel_it_says_so_once() -> None:
    """A build without the kernel: one warning, and the answer all the same."""
    code = """
import warnings, sys, numpy as np
from poolgrad.engines import _native
del _native.xla_handler
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import poolgrad, poolgrad.jax as pj
    x = np.random.default_rng(0).random((1, 9, 8, 2), np.float32)
    for window in (2, 3):
        assert np.allclose(pj.avg_pool(x, window, stride=1), poolgrad.avg_pool(x, window, stride=1))
said = [str(w.message) for w in said if "kernel for XLA is absent" in str(w.message)]
assert len(said) == 1, said
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)


def test_the_benchmark(tmp_path: Path) -> None:
    command = ["-m", "poolgrad.bench.jax", "--quick", "--cases", "3x3s1,fractional", "--rounds", "1", "--output", str(tmp_path)]
    subprocess.run([sys.executable, *command], check=True, capture_output=True, timeout=300)
    rows = json.loads((tmp_path / "jax.json").read_text())["rows"]
    assert [row["layout"] for row in rows] == ["NHWC", "NCHW"] * 2
    assert [row["jax_ms"] is None for row in rows] == [False, False, True, True]
    assert all(row["ours_ms"] > 0 for row in rows)


def test_jax_is_not_imported_unless_asked_for() -> None:
    code = "import sys, poolgrad, poolgrad.dialects.jax; assert 'jax' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=300)
