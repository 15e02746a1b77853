"""One answer: the bits of the NumPy engine for every engine, instruction set, thread count, layout, region and memory.

Small cases (`checks.py`) and large ones (`large.py`); `test_beyond_the_cache.py` has those that are larger still.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import support
from checks import CASES, Case, check_all, cuts
from hypothesis import given
from hypothesis import strategies as st
from large import KINDS, SPLIT, defined

import poolgrad
from poolgrad import Pool
from poolgrad.layout import spatial_positions

native = pytest.importorskip("poolgrad.engines.native")


def through_native(case: Case, dy: support.Array) -> support.Array:
    return support.compute("native", case.pool, dy, case.layout, forwards=False, threads=3)


@pytest.mark.parametrize("case", CASES)
def test_laws(case: Case, isa: str) -> None:
    with support.instruction_set(isa):
        check_all(through_native, case)


@pytest.mark.parametrize("forwards", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("name", SPLIT)
def test_threads_and_instruction_sets(name: str, forwards: bool) -> None:
    from poolgrad.engines import _native

    split = SPLIT[name]
    for dtype in support.DTYPES:
        source, want = defined(name, dtype, forwards)
        assert source.size + want.size > 32768
        for isa in _native.isas():
            for threads in support.THREADS:
                with support.instruction_set(isa):
                    got = support.compute("native", split.pool, source, split.layout, forwards=forwards, threads=threads)
                support.assert_same_bits(got, want, (name, dtype, isa, threads))


@pytest.mark.parametrize("forwards", [False, True], ids=["gradient", "forward"])
@pytest.mark.parametrize("name", SPLIT)
def test_regions_of_large_arrays(name: str, forwards: bool) -> None:
    """Uneven stripes of the result, each from exactly the cells it needs."""
    split, dtype = SPLIT[name], np.dtype(np.float32)
    source, want = defined(name, dtype, forwards)
    spatial = spatial_positions(split.layout, source.ndim)
    sizes = split.pool.output_size if forwards else split.pool.input_size
    edges = sorted({0, 1, sizes[0] // 3, sizes[0] // 3 + 5, sizes[0]})
    for a, b in pairwise(edges):
        region = [slice(a, min(b, sizes[0])), *(slice(n // 5, n) for n in sizes[1:])]
        part = support.at(source, spatial, (split.pool.inputs_for if forwards else split.pool.cells_for)(region))
        run = poolgrad.forward if forwards else poolgrad.gradient
        for piece in (part, np.ascontiguousarray(part)):
            got = run(split.pool, piece, layout=split.layout, region=region, num_threads=2)
            support.assert_same_bits(got, np.ascontiguousarray(support.at(want, spatial, region)), (name, region))


@given(pool=support.pools(), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_any_pooling(pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool) -> None:
    from poolgrad.engines import _native

    layout = data.draw(support.layouts(len(pool.axes)))
    style, batch = data.draw(st.sampled_from(["plain", "special"])), data.draw(st.sampled_from([1, 2, 3]))
    channels = data.draw(st.sampled_from([1, 3, 4, 7, 8, 15, 16, 17, 33]))
    source = support.random_array(seed, support.source_shape(pool, layout, batch, channels, forwards=forwards), dtype, style)
    want = support.compute("numpy", pool, source, layout, forwards=forwards)
    with support.instruction_set(data.draw(st.sampled_from(_native.isas()))):
        support.assert_same_bits(support.compute("native", pool, source, layout, forwards=forwards), want)
    run = poolgrad.forward if forwards else poolgrad.gradient
    support.assert_same_bits(run(pool, source, layout=layout), want)


@given(pool=support.pools(sizes=support.LARGE), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_any_large_pooling(pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool) -> None:
    """Enough channels to be worth several threads, whatever the geometry."""
    from poolgrad.engines import _native

    layout = data.draw(support.layouts(len(pool.axes)))
    batch, channels = data.draw(st.sampled_from([1, 2, 5])), data.draw(st.sampled_from([1, 2, 3, 5, 8, 12, 16, 31, 65, 260]))
    while batch * channels > 1 and batch * channels * np.prod(pool.input_size) > 300_000:
        batch, channels = 1, (channels + 1) // 2
    shape = support.source_shape(pool, layout, batch, channels, forwards=forwards)
    source = support.random_array(seed, shape, dtype)
    want = support.compute("numpy", pool, source, layout, forwards=forwards)
    isa, threads = data.draw(st.sampled_from(_native.isas())), data.draw(st.sampled_from(support.THREADS))
    with support.instruction_set(isa):
        got = support.compute("native", pool, source, layout, forwards=forwards, threads=threads)
    support.assert_same_bits(got, want)


@given(pool=support.pools(), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_any_memory(pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool) -> None:
    """Strided, transposed, reversed, misaligned and read-only sources; the same for results; added to or replaced."""
    layout = data.draw(support.layouts(len(pool.axes)))
    channels, accumulate = data.draw(st.sampled_from([1, 3, 17])), not forwards and data.draw(st.booleans())
    source = support.random_array(seed, support.source_shape(pool, layout, 2, channels, forwards=forwards), dtype)
    old = support.random_array(seed + 1, support.result_shape(pool, source.shape, layout, forwards=forwards), dtype)
    want = support.compute("numpy", pool, source, layout, forwards=forwards, out=old.copy(), accumulate=accumulate)
    arranged = support.in_memory(source, data.draw(st.sampled_from(support.VIEWS)))
    out = support.in_memory(old, data.draw(st.sampled_from(support.VIEWS[:-1])))
    if forwards:
        assert poolgrad.forward(pool, arranged, layout=layout, out=out) is out
    else:
        assert poolgrad.gradient(pool, arranged, layout=layout, out=out, accumulate=accumulate) is out
    support.assert_same_bits(np.ascontiguousarray(out), want)
    support.assert_same_bits(np.ascontiguousarray(arranged), source, "the source has changed")


@pytest.mark.parametrize("out_view", support.VIEWS[:-1])
@pytest.mark.parametrize("view", support.VIEWS)
@pytest.mark.parametrize("name", [*KINDS, "3x3 s2 same NHWC", "3x3 s1 same three channels", "window 15 NCHW", "three axes"])
def test_memory_of_large_arrays(name: str, view: str, out_view: str) -> None:
    split = SPLIT[name]
    for forwards in (False, True):
        source, want = defined(name, np.dtype(np.float32), forwards)
        out = support.in_memory(np.zeros_like(want), out_view)
        arranged = support.in_memory(source, view)
        support.compute("native", split.pool, arranged, split.layout, forwards=forwards, out=out, threads=3)
        support.assert_same_bits(np.ascontiguousarray(out), want)


def test_a_strided_result_leaves_its_gaps_alone() -> None:
    split = SPLIT["3x3 s2 same NHWC"]
    source, want = defined("3x3 s2 same NHWC", np.dtype(np.float32), False)
    wide = np.full([n + 3 for n in want.shape], 5, dtype=want.dtype)
    inner = (slice(1, -2),) * want.ndim
    support.compute("native", split.pool, source, split.layout, forwards=False, out=wide[inner], threads=2)
    support.assert_same_bits(np.ascontiguousarray(wide[inner]), want)
    wide[inner] = 5
    assert (wide == 5).all()


@given(pool=support.pools(), data=st.data(), dtype=support.dtypes, seed=support.seeds, forwards=st.booleans())
def test_any_region(pool: Pool, data: st.DataObject, dtype: np.dtype[Any], seed: int, forwards: bool) -> None:
    layout = data.draw(support.layouts(len(pool.axes)))
    source = support.random_array(seed, support.source_shape(pool, layout, 2, 5, forwards=forwards), dtype, "special")
    spatial = spatial_positions(layout, source.ndim)
    whole = support.compute("numpy", pool, source, layout, forwards=forwards)
    needed, run = (pool.inputs_for, poolgrad.forward) if forwards else (pool.cells_for, poolgrad.gradient)
    sizes = pool.output_size if forwards else pool.input_size
    for region in [data.draw(support.regions(sizes)), *cuts(sizes)][:12]:
        got = run(pool, support.at(source, spatial, needed(region)), layout=layout, region=region)
        support.assert_same_bits(got, np.ascontiguousarray(support.at(whole, spatial, region)), region)


@pytest.mark.parametrize("name", KINDS)
def test_accumulating(name: str) -> None:
    split = SPLIT[name]
    for dtype in support.DTYPES:
        dy, plain = defined(name, dtype, False)
        old = support.random_array(7, plain.shape, dtype)
        want = support.compute("numpy", split.pool, dy, split.layout, forwards=False, out=old.copy(), accumulate=True)
        got = poolgrad.gradient(split.pool, dy, layout=split.layout, out=old, accumulate=True, num_threads=2)
        support.assert_same_bits(got, want, (name, dtype))
