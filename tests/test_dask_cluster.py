"""Dask arrays on a real cluster: several worker processes on this machine, one of which is killed in mid-run."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
import support
from distributed import Client, LocalCluster, wait

import poolgrad
from poolgrad import Axis, Pool, PoolGradMemoryError
from poolgrad.bench.dask import Bare, Case, blocks, exact_halo, fetched, forget_transfers, handed_on

WAIT = 300


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with processes(3, "2GiB") as cluster, Client(cluster) as client:
        client.wait_for_workers(3, timeout=WAIT)
        yield client


def processes(workers: int, memory: str) -> LocalCluster:
    """Worker processes of one thread each, reached through loopback alone."""
    return LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address="127.0.0.1:0", memory_limit=memory)


POOL = Pool((Axis.regular(43, 4, stride=3, padding=(1, 2)), Axis.adaptive(50, 17), Axis.regular(38, 3, stride=1, dilation=2)))


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
@pytest.mark.parametrize("forwards", [True, False])
def test_the_bits_of_one_call(client: Client, dtype: np.dtype[Any], forwards: bool) -> None:
    source = support.random_array(7, support.source_shape(POOL, "NDHWC", 3, 2, forwards=forwards), dtype, "special")
    run = poolgrad.forward if forwards else poolgrad.gradient
    lazy = run(POOL, da.from_array(source, chunks=(2, 15, 18, 13, 2)))
    support.assert_same_bits(client.compute(lazy).result(timeout=WAIT), run(POOL, source))


def placed(client: Client, source: support.Array, chunks: Any) -> Any:
    """A Dask array whose chunks lie on the workers in turn."""
    lazy = da.from_array(source, chunks=chunks)
    workers = sorted(client.nthreads())
    blocks = [client.scatter(source[index], workers=[workers[k % len(workers)]]) for k, index in enumerate(slices(lazy.chunks))]
    keys = [(f"placed-{id(source)}", *at) for at in np.ndindex(*lazy.numblocks)]
    return da.Array(dict(zip(keys, blocks, strict=True)), keys[0][0], lazy.chunks, dtype=source.dtype)


def slices(chunks: tuple[tuple[int, ...], ...]) -> Iterator[tuple[slice, ...]]:
    edges = [np.cumsum([0, *row]) for row in chunks]
    for at in np.ndindex(*(len(row) for row in chunks)):
        yield tuple(slice(int(e[i]), int(e[i + 1])) for e, i in zip(edges, at, strict=True))


WINDOWS = {
    "gradient": (Pool(tuple(Axis.regular(n, k, stride=1, padding="same") for n, k in ((80, 3), (90, 5), (100, 4)))), False),
    "forward": (Pool(tuple(Axis.regular(n, k, stride=2) for n, k in ((80, 5), (90, 3), (100, 4)))), True),
    "no halo": (Pool(tuple(Axis.regular(n, 2) for n in (80, 60, 80))), True),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_only_the_halo_travels(client: Client, name: str) -> None:
    pool, forwards = WINDOWS[name]
    source = support.random_array(3, support.source_shape(pool, "DHW", 1, 1, forwards=forwards), np.dtype(np.float32))
    lazy = client.persist(placed(client, source, (20, 30, 40)))
    wait(lazy, timeout=WAIT)
    run = poolgrad.forward if forwards else poolgrad.gradient
    forget_transfers(client)
    result = client.persist(run(pool, lazy, layout="DHW"))
    wait(result, timeout=WAIT)
    moved, exact = fetched(client), exact_halo(client, pool, lazy, result, forwards=forwards)
    assert (exact == 0) == (name == "no halo")
    assert exact <= moved <= 1.05 * exact, f"{moved} bytes fetched, {exact} needed"
    support.assert_same_bits(client.compute(result).result(timeout=WAIT), run(pool, source, layout="DHW"))


def test_idle_workers_leave_tasks_where_their_input_lies() -> None:
    """Moving the input would take longer than the task; that of a gradient with far more elements than its source would not."""
    with processes(2, "4GiB") as cluster, Client(cluster) as client:
        client.wait_for_workers(2, timeout=WAIT)
        full, _ = sorted(client.nthreads())
        dy = support.random_array(5, (64, 32, 128, 64), np.dtype(np.float32))
        chunks = [client.scatter(block, workers=[full]) for block in np.split(dy, 64)]
        keys = {("one", k, 0, 0, 0): chunk for k, chunk in enumerate(chunks)}
        lazy = da.Array(keys, "one", ((1,) * 64, (32,), (128,), (64,)), dtype=dy.dtype)
        near = client.persist(poolgrad.avg_pool_grad(lazy, (64, 64, 256, 64), 2))
        far = client.persist(poolgrad.adaptive_avg_pool_grad(lazy[:, :1, :1], (64, 64, 128, 64)))
        wait([near, far], timeout=WAIT)
        assert set(client.who_has(near).values()) == {(full,)}
        assert client.run_on_scheduler(held_to, near.name) == {(full,)}
        assert client.run_on_scheduler(held_to, far.name) == {()}
        support.assert_same_bits(near[7].compute(), poolgrad.avg_pool_grad(dy[7:8], (1, 64, 256, 64), 2)[0])


def held_to(name: str, dask_scheduler: Any) -> set[tuple[str, ...]]:
    """The workers that the tasks of an array may not leave."""
    tasks = [task for key, task in dask_scheduler.tasks.items() if key[0] == name]
    return {tuple(task.worker_restrictions or ()) for task in tasks}


def test_arrays_of_this_process_go_to_the_workers(client: Client) -> None:
    x = support.random_array(6, (2, 40, 50, 3), np.dtype(np.float32))
    lazy = poolgrad.avg_pool(da.from_array(x, chunks=(1, 11, 17, 3)), (5, 4), stride=(2, 1), padding="same")
    want = poolgrad.avg_pool(x, (5, 4), stride=(2, 1), padding="same")
    support.assert_same_bits(client.compute(lazy).result(timeout=WAIT), want)


@pytest.mark.parametrize("forwards", [True, False])
def test_the_ways_of_the_benchmark_make_the_same(forwards: bool) -> None:
    case = Case("", 3, 1, forwards, (2, 3, 2), (5, 7, 6))
    source = case.source()
    lazy = case.run(source)
    whole, bare = lazy.compute(scheduler="sync"), Bare(case, source, 1)
    beginnings = [whole[tuple(slice(a, a + 1) for a, _ in box)] for _, box in blocks(lazy)]
    handed = handed_on(lazy, 2).dask
    ways = bare.all_in_place(), bare.all_from_chunks(), [handed[(lazy.name, *at)] for at, _ in blocks(lazy)]
    for made in ways:
        for got, want in zip(made, beginnings, strict=True):
            support.assert_same_bits(got, want)
    for region, need, parts in bare.wanted:
        made = case.run(bare.gathered(need, parts), region=region)
        support.assert_same_bits(made, whole[tuple(region)])


def slowly(block: Any) -> Any:
    time.sleep(0.05)
    return block


def test_a_killed_worker_is_made_up_for(client: Client) -> None:
    pool = Pool((Axis.regular(120, 5, stride=2, padding="same"), Axis.regular(90, 3, stride=1, padding="same")))
    dy = support.random_array(9, (2, *pool.output_size, 3), np.dtype(np.float32))
    lazy = da.from_array(dy, chunks=(1, 12, 15, 3)).map_blocks(slowly, dtype=dy.dtype, meta=np.empty((0,) * 4, dy.dtype))
    future = client.compute(poolgrad.gradient(pool, lazy))
    victims = client.run(os.getpid)
    address, pid = min(victims.items())
    deadline = time.monotonic() + WAIT
    while not results_held(client, address):
        assert time.monotonic() < deadline
        assert not future.done(), "the run was over before a worker could be killed"
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    support.assert_same_bits(future.result(timeout=WAIT), poolgrad.gradient(pool, dy))
    assert address not in client.nthreads(), "the worker lived on"
    client.wait_for_workers(3, timeout=WAIT)


def results_held(client: Client, address: str) -> int:
    return sum(str(key).startswith("('poolgrad-gradient") for key in client.has_what().get(address, ()))


def test_a_task_that_cannot_fit_its_worker_is_refused() -> None:
    """It fails once and says why; the worker lives and goes on."""
    with processes(1, "400MiB") as cluster, Client(cluster) as client:
        (pid,) = client.run(os.getpid).values()
        dy = da.ones((1, 1, 1, 1), dtype=np.float32)
        with dask.config.set({"array.chunk-size": "1 GiB"}):
            dx = poolgrad.adaptive_avg_pool_grad(dy, (1, 12000, 12000, 1))
        assert dx.npartitions == 1
        with pytest.raises(PoolGradMemoryError, match=r"549\.32 MiB, more than this worker's memory limit of 400\.00 MiB"):
            client.compute(dx).result(timeout=WAIT)
        small = client.compute(poolgrad.adaptive_avg_pool_grad(dy, (1, 30, 30, 1))).result(timeout=WAIT)
        assert small.sum() == pytest.approx(1)
        assert list(client.run(os.getpid).values()) == [pid]
