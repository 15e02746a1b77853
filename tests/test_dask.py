"""Dask arrays give the bits of one NumPy call, lazily, from exactly the cells each chunk needs."""

from __future__ import annotations

import itertools
import pickle
import subprocess
import sys
from math import prod
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import support
from dask._task_spec import DataNode
from dask.delayed import delayed
from hypothesis import given
from hypothesis import strategies as st

import poolgrad
from poolgrad import Axis, Pool, PoolGradMemoryError, PoolGradTypeError, PoolGradValueError
from poolgrad.dask.graph import Halo

ORIGINAL = dask.config.get("array.chunk-size")


def cut(rng: np.random.Generator, size: int) -> tuple[int, ...]:
    """An axis in random chunks; some may be empty."""
    edges = np.sort(rng.integers(0, size + 1, rng.integers(0, 5)))
    return tuple(int(n) for n in np.diff([0, *edges, size]))


def same(block: support.Array) -> support.Array:
    return block


def chunked(rng: np.random.Generator, array: support.Array) -> Any:
    """A Dask array of arrays that are there already, or of tasks that make them."""
    given = da.from_array(array, chunks=tuple(cut(rng, n) for n in array.shape))
    return given if rng.integers(2) else made_by_tasks(given)


def made_by_tasks(array: Any) -> Any:
    return array.map_blocks(same, dtype=array.dtype, meta=array._meta)


@st.composite
def calls(draw: st.DrawFn) -> tuple[Pool, str, bool, int, np.dtype[Any], int | None]:
    pool = draw(support.pools())
    layout = draw(support.layouts(len(pool.axes)))
    return pool, layout, draw(st.booleans()), draw(support.seeds), draw(support.dtypes), draw(st.sampled_from([None, 1, 6, 40]))


@given(calls())
def test_the_bits_of_one_call(call: tuple[Pool, str, bool, int, np.dtype[Any], int | None]) -> None:
    pool, layout, forwards, seed, dtype, largest = call
    source = support.random_array(seed, support.source_shape(pool, layout, 3, 2, forwards=forwards), dtype, "special")
    run = poolgrad.forward if forwards else poolgrad.gradient
    lazy = chunked(np.random.default_rng(seed), source)
    with dask.config.set({"array.chunk-size": largest * dtype.itemsize if largest else ORIGINAL}):
        result = run(pool, lazy, layout=layout)
    assert_exact(result, lazy)
    support.assert_same_bits(result.compute(scheduler="sync"), run(pool, source, layout=layout), result.chunks)


@given(calls(), st.data())
def test_regions(call: tuple[Pool, str, bool, int, np.dtype[Any], int | None], data: st.DataObject) -> None:
    pool, layout, forwards, seed, dtype, _ = call
    region = data.draw(support.regions(pool.output_size if forwards else pool.input_size))
    source = support.random_array(seed, support.source_shape(pool, layout, 3, 2, forwards=forwards), dtype)
    spatial = support.spatial_positions(layout, source.ndim)
    part = support.at(source, spatial, (pool.inputs_for if forwards else pool.cells_for)(region))
    run = poolgrad.forward if forwards else poolgrad.gradient
    result = run(pool, chunked(np.random.default_rng(seed), part), layout=layout, region=region)
    support.assert_same_bits(result.compute(scheduler="sync"), run(pool, part, layout=layout, region=region))


def assert_exact(result: Any, source: Any) -> None:
    """The pieces of every result chunk tile exactly what it needs, all but the first in cuts of their own."""
    graph = result.dask.layers[result.name]
    for task in graph.values():
        job, made, _, told, boxes, *pieces = task.args
        need = (job.pool.inputs_for if job.forwards else job.pool.cells_for)([slice(*span) for span in made])
        assert told == tuple((part.start, part.stop) for part in need)
        times = np.zeros([part.stop - part.start for part in need], dtype=int)
        for box in boxes:
            inside = [(max(a, part.start), min(b, part.stop)) for (a, b), part in zip(box, need, strict=True)]
            assert all(a < b for a, b in inside), "a piece of which nothing is needed"
            times[tuple(slice(a - part.start, b - part.start) for (a, b), part in zip(inside, need, strict=True))] += 1
        assert (times == 1).all()
        assert {piece.key for piece in pieces if not isinstance(piece, np.ndarray)} <= {*source.dask, *result.dask}


X = np.random.default_rng(5).standard_normal((3, 22, 29, 2)).astype(np.float32)
CHUNKS = (2, (5, 9, 8), (7, 13, 9), 1)
FUNCTIONS = {
    "avg_pool": (lambda a: poolgrad.avg_pool(a, (3, 4), stride=(2, 3), padding="same"), X),
    "dilated": (lambda a: poolgrad.avg_pool(a, (2, 3), stride=(1, 2), dilation=(3, 2), count="window"), X),
    "adaptive": (lambda a: poolgrad.adaptive_avg_pool(a, (5, 4)), X),
    "global": (lambda a: poolgrad.adaptive_avg_pool(a, 1), X),
    "fractional": (lambda a: poolgrad.fractional_avg_pool(a, [[0, 3, 9, 22], [0, 7, 8, 20, 29]], overlapping=True), X),
    "avg_pool_grad": (lambda a: poolgrad.avg_pool_grad(a, (3, 44, 86, 2), (3, 4), stride=(2, 3), padding=1), X),
    "wide windows": (lambda a: poolgrad.avg_pool_grad(a, X.shape, (5, 7), stride=1, padding="same"), X),
    "adaptive_grad": (lambda a: poolgrad.adaptive_avg_pool_grad(a, (3, 50, 61, 2)), X),
    "fractional_grad": (
        lambda a: poolgrad.fractional_avg_pool_grad(a, (3, 45, 60, 2), [range(0, 46, 2), range(0, 60, 2)], overlapping=True),
        X[:, :, :29],
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("scheduler", ["sync", "threads"])
@pytest.mark.parametrize("given", [True, False])
def test_every_function(name: str, scheduler: str, given: bool) -> None:
    function, array = FUNCTIONS[name]
    source = da.from_array(array, chunks=CHUNKS)
    lazy = function(source if given else made_by_tasks(source))
    assert isinstance(lazy, da.Array)
    want = function(array)
    assert (lazy.shape, lazy.dtype) == (want.shape, want.dtype)
    assert_same_and_again(lazy, want, scheduler)


def assert_same_and_again(lazy: Any, want: support.Array, scheduler: str) -> None:
    support.assert_same_bits(lazy.compute(scheduler=scheduler), want)
    support.assert_same_bits(lazy[1:, ::3].compute(scheduler=scheduler), want[1:, ::3])
    support.assert_same_bits((lazy + 1).sum(axis=0).compute(scheduler=scheduler), (want + 1).sum(axis=0))


def test_batch_and_channel_chunks_stay() -> None:
    y = poolgrad.avg_pool(da.from_array(X, chunks=CHUNKS), 3, stride=1, padding="same")
    assert y.chunks == ((2, 1), (5, 9, 8), (7, 13, 9), (1, 1))
    dx = poolgrad.avg_pool_grad(y, X.shape, 3, stride=1, padding="same")
    assert dx.chunks == y.chunks


def test_the_same_call_has_the_same_name() -> None:
    lazy = da.from_array(X, chunks=CHUNKS)
    names = [poolgrad.avg_pool(lazy, k).name for k in (2, 2, 3)]
    assert names[0] == names[1] != names[2]


def test_nothing_is_computed_before_it_is_asked_for() -> None:
    def fail(block: Any) -> Any:
        raise RuntimeError("computed")

    lazy = da.from_array(X, chunks=CHUNKS).map_blocks(fail, dtype=np.float32, meta=np.empty((0, 0, 0, 0), np.float32))
    y = poolgrad.avg_pool(lazy, 2)
    with pytest.raises(RuntimeError, match="computed"):
        y.compute(scheduler="sync")


def test_only_the_chunks_that_are_needed_are_computed() -> None:
    asked = set()

    def note(block: Any, block_info: Any = None) -> Any:
        asked.add(block_info[0]["chunk-location"])
        return block

    lazy = da.from_array(X, chunks=CHUNKS).map_blocks(note, dtype=np.float32, meta=np.empty((0, 0, 0, 0), np.float32))
    poolgrad.avg_pool(lazy, 3, stride=1, padding="same").blocks[1, 0, 2, 1].compute(scheduler="sync")
    assert asked == {(1, h, w, 1) for h in (0, 1) for w in (1, 2)}


def test_cuts_survive_optimisation() -> None:
    """After Dask's own rewriting a result chunk still touches one source chunk, and the rest arrives in cuts."""
    lazy = da.from_array(np.zeros((40, 50, 60), np.float32), chunks=(10, 25, 20)) + 1
    dx = poolgrad.gradient(Pool(tuple(Axis.regular(n, 3, stride=1, padding="same") for n in lazy.shape)), lazy, layout="DHW")
    (better,) = dask.optimize(dx)
    graph = dict(better.dask)
    cuts = {key for key, task in graph.items() if isinstance(task, Halo)}
    assert len(cuts) == len(dx.dask.layers[dx.dask.layers[dx.name][(dx.name, 0, 0, 0)].args[-1].key[0]])
    for at in itertools.product(*map(range, dx.numblocks)):
        needs = graph[(dx.name, *at)].dependencies
        neighbours = sum((i > 0) + (i + 1 < n) for i, n in zip(at, dx.numblocks, strict=True))
        assert len(needs) == 1 + neighbours
        assert len(needs - cuts) == 1


def test_of_arrays_that_are_there_each_result_chunk_is_one_task() -> None:
    """Cuts are views, made with the graph; Dask renames no task, which would cost it another."""
    array = np.random.default_rng(8).random((40, 50, 60), dtype=np.float32)
    source = da.from_array(array, chunks=(10, 25, 20))
    pool = Pool(tuple(Axis.regular(n, 3, stride=1, padding="same") for n in array.shape))
    for lazy in (source, made_by_tasks(source).persist(scheduler="sync")):
        dx = poolgrad.gradient(pool, lazy, layout="DHW")
        (better,) = dask.optimize(dx)
        tasks = [task for task in dict(better.dask).values() if not isinstance(task, DataNode)]
        assert len(tasks) == dx.npartitions
        held = dict(lazy.dask)
        for piece in itertools.chain(*(task.args[6:] for task in tasks)):
            assert any(np.shares_memory(piece, chunk) for chunk in held.values())
        support.assert_same_bits(dx.compute(scheduler="sync"), poolgrad.gradient(pool, array, layout="DHW"))


@pytest.mark.parametrize("wrong", [np.zeros((4, 5, 1), np.float32), np.zeros((4, 6), np.float32), np.zeros((4, 5))])
def test_given_chunks_that_are_not_what_was_promised(wrong: support.Array) -> None:
    chunks = {("given", i, j): np.zeros((4, 5), np.float32) for i in range(2) for j in range(2)}
    for at in chunks:
        lazy = da.Array(chunks | {at: wrong}, "given", ((4, 4), (5, 5)), dtype=np.float32)
        with pytest.raises((PoolGradValueError, PoolGradTypeError), match="a chunk of x must"):
            poolgrad.avg_pool(lazy, 3, stride=1, padding="same", layout="HW").compute(scheduler="sync")


def test_small_cuts_survive_optimisation() -> None:
    """Many result chunks from one source chunk: each gets its cut, not the chunk."""
    dy = da.from_array(X, chunks=(3, 22, 29, 2)) + 1
    with dask.config.set({"array.chunk-size": X.nbytes}):
        dx = poolgrad.avg_pool_grad(dy, (3, 88, 145, 2), (4, 5))
    (better,) = dask.optimize(dx)
    cuts = {key for key, task in dict(better.dask).items() if isinstance(task, Halo)}
    assert len(cuts) == dx.npartitions > 8
    assert all(better.dask[key].dependencies <= cuts for key in dask.core.flatten(better.__dask_keys__()))


def test_a_graph_grows_with_its_chunks_and_its_tasks_are_small() -> None:
    """Twelve thousand chunks: a fixed number of tasks each, none of which carries tables."""
    pool = Pool(tuple(Axis.regular(n, 5, stride=2, padding="same") for n in (46000, 52000, 50000)))
    dy = da.zeros(pool.output_size, chunks=tuple(-(-n // 23) for n in pool.output_size), dtype=np.float32)
    with dask.config.set({"array.chunk-size": "1 PiB"}):
        dx = poolgrad.gradient(pool, dy, layout="DHW")
    assert dx.npartitions == dy.npartitions == 23**3
    tasks = len(dx.dask) - len(dy.dask)
    assert tasks <= 11 * dx.npartitions
    at = (dx.name, 11, 11, 11)
    assert len(pickle.dumps(dx.dask.layers[dx.name][at])) < 3000
    rng = np.random.default_rng(3)
    edges = [sorted(rng.choice(40000, 12345, replace=False).tolist()) for _ in range(2)]
    y = poolgrad.fractional_avg_pool(da.zeros((40000, 40000), chunks=4000, dtype=np.float16), edges, layout="HW")
    assert len(pickle.dumps(y.dask.layers[y.name][(y.name, 5, 5)])) < 40000


@pytest.mark.parametrize("divisor", [None, -3])
def test_tasks_that_were_pickled_compute_the_same(divisor: int | None) -> None:
    pool = Pool((Axis.adaptive(31, 12), Axis.regular(29, 3, stride=3, padding=2, dilation=4, count="window")), divisor)
    lazy = da.from_array(X[:, :12, :9], chunks=(2, 5, 4, 1))
    dx = poolgrad.gradient(pool, lazy)
    graph = pickle.loads(pickle.dumps(dict(dx.dask)))
    got = da.Array(graph, dx.name, dx.chunks, dtype=dx.dtype).compute(scheduler="sync")
    support.assert_same_bits(got, poolgrad.gradient(pool, X[:, :12, :9]))


def test_results_far_larger_than_memory() -> None:
    """A petabyte is described at once; the gradient of a global pooling comes in chunks of a decent size."""
    dy = da.ones((1, 1, 1, 1, 2), dtype=np.float32)
    dx = poolgrad.adaptive_avg_pool_grad(dy, (1, 2000, 2000, 2000, 2))
    assert max(prod(sizes) for sizes in itertools.product(*dx.chunks)) * 4 <= 128 * 2**20
    x = da.zeros((2**17, 2**16, 2**16), chunks=2**13, dtype=np.float32)
    assert poolgrad.avg_pool(x, 2, layout="DHW").nbytes == 2**48
    back = poolgrad.avg_pool_grad(poolgrad.avg_pool(x, 2, layout="DHW"), x.shape, 2, layout="DHW")
    assert (back.shape, back.nbytes) == (x.shape, 2**51)


def test_one_thread_per_task(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    real = poolgrad.ops.forward

    def spy(*args: Any, num_threads: int | None, **options: Any) -> Any:
        seen.append(num_threads)
        return real(*args, num_threads=num_threads, **options)

    monkeypatch.setattr(poolgrad.ops, "forward", spy)
    lazy = da.from_array(X, chunks=CHUNKS)
    poolgrad.avg_pool(lazy, 2).compute(scheduler="sync")
    assert set(seen) == {1}
    poolgrad.avg_pool(lazy, 2, num_threads=3).compute(scheduler="sync")
    assert set(seen) == {1, 3}


def test_no_dask_without_dask_arrays() -> None:
    code = "import sys, numpy, poolgrad; poolgrad.avg_pool(numpy.zeros((1, 4, 4, 1)), 2); assert 'dask' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


LAZY = da.from_array(X, chunks=CHUNKS)
REFUSALS = [
    (lambda: poolgrad.avg_pool(LAZY[LAZY[:, 0, 0, 0] > 0], 2), PoolGradValueError, "known chunk sizes.*compute_chunk_sizes"),
    (lambda: poolgrad.avg_pool(LAZY.astype(np.int32), 2), PoolGradTypeError, "x must have dtype float16.*got int32"),
    (lambda: poolgrad.avg_pool(LAZY.astype(object), 2), PoolGradTypeError, "x must have dtype"),
    (lambda: poolgrad.avg_pool(LAZY.astype(">f4"), 2), PoolGradTypeError, "x must have dtype"),
    (lambda: poolgrad.avg_pool(da.ma.masked_less(LAZY, 0), 2), PoolGradTypeError, "of NumPy arrays, got one of .*MaskedArray"),
    (lambda: poolgrad.avg_pool(delayed(X), 2), PoolGradTypeError, "dask.array.Array, got dask.delayed.Delayed"),
    (lambda: poolgrad.avg_pool(LAZY, 2, out=np.empty((3, 11, 14, 2), np.float32)), PoolGradTypeError, "out and accumulate"),
    (lambda: poolgrad.avg_pool_grad(LAZY, (3, 44, 58, 2), 2, accumulate=True), PoolGradTypeError, "out and accumulate"),
    (lambda: poolgrad.avg_pool(X, 2, out=LAZY), PoolGradTypeError, "out must be a NumPy array"),
    (lambda: poolgrad.avg_pool(LAZY, 2, num_threads=0), PoolGradValueError, "num_threads"),
    (lambda: poolgrad.avg_pool(LAZY, 30), PoolGradValueError, "window 30"),
    (lambda: poolgrad.avg_pool_grad(LAZY, (3, 9, 9, 2), 2), PoolGradValueError, "dy must have shape"),
    (lambda: poolgrad.avg_pool(LAZY, 2, layout="NHW"), PoolGradValueError, "layout"),
    (
        lambda: poolgrad.adaptive_avg_pool(da.zeros((8, 700, 700, 700), chunks=(1, 100, 100, 100)), 1, layout="NDHW"),
        PoolGradMemoryError,
        r"a result chunk needs 2.55 GiB of x .* poolgrad.gather-limit is 1.00 GiB",
    ),
    (
        lambda: poolgrad.avg_pool_grad(da.zeros((2**10, 1, 2, 1)), (2**10, 2**27, 2**28, 1), 2**27),
        PoolGradValueError,
        "beyond 64-bit addressing",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), REFUSALS)
def test_refusals(call: Any, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_the_gather_limit_is_dasks_configuration() -> None:
    x = da.from_array(X, chunks=CHUNKS)
    with dask.config.set({"poolgrad.gather-limit": 1000}), pytest.raises(PoolGradMemoryError, match=r"limit is 0\.98 kiB"):
        poolgrad.adaptive_avg_pool(x, 1)
    poolgrad.avg_pool(x.rechunk({1: -1, 2: -1}), 2)


@pytest.mark.parametrize(
    ("lie", "message"),
    [
        (lambda b: b.astype(np.float64), "a chunk of x must be a NumPy array of float32, as promised, got float64"),
        (lambda b: b[:, 1:], "a chunk of x must have the spatial sizes promised"),
        (lambda b: b.tolist(), "a chunk of x must be a NumPy array of float32, as promised, got list"),
    ],
)
@pytest.mark.parametrize("stride", [2, 1])
def test_chunks_that_are_not_what_they_were_said_to_be(lie: Any, message: str, stride: int) -> None:
    wrong = da.from_array(X, chunks=CHUNKS).map_blocks(lie, dtype=np.float32, meta=np.empty((0, 0, 0, 0), np.float32))
    with pytest.raises((PoolGradTypeError, PoolGradValueError), match=message):
        poolgrad.avg_pool(wrong, 2, stride=stride).compute(scheduler="sync")


@pytest.mark.parametrize("shape", [(0, 6, 5, 2), (2, 6, 5, 0), (2, 6, 5, 2)])
def test_empty_arrays(shape: tuple[int, ...]) -> None:
    x = support.random_array(1, shape, np.dtype(np.float64))
    lazy = da.from_array(x, chunks=(1, (0, 4, 0, 2), (5, 0), 1))
    y = poolgrad.avg_pool(lazy, 2, padding="same")
    support.assert_same_bits(y.compute(scheduler="sync"), poolgrad.avg_pool(x, 2, padding="same"))
    none = poolgrad.adaptive_avg_pool(lazy, (0, 3))
    assert none.compute(scheduler="sync").shape == (shape[0], 0, 3, shape[3])


def test_query_planning_is_refused_by_name() -> None:
    code = """
import dask
dask.config.set({"array.query-planning": True})
import dask.array as da, poolgrad
try:
    poolgrad.avg_pool(da.ones((1, 4, 4, 1)), 2)
except poolgrad.PoolGradTypeError as refusal:
    assert "query-planning" in str(refusal), refusal
else:
    raise SystemExit("not refused")
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=120)


@pytest.mark.parametrize("limit", ["lots", None, [1]])
def test_a_limit_that_is_no_size(limit: Any) -> None:
    x = da.zeros((2, 9, 8, 3), chunks=4)
    with dask.config.set({"poolgrad.gather-limit": limit}), pytest.raises(PoolGradValueError, match="must be a size such as"):
        poolgrad.avg_pool(x, 3)
