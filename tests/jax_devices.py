"""Checks of `poolgrad.jax` on eight devices; `test_jax_sharding.py` runs them in a process that has as many.

A sharded pooling gives the bits of the core on the whole array, and the compiled program gathers no array.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from math import prod
from typing import Any

import checks
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import support
from jax import export
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import poolgrad
import poolgrad.jax as pj
from poolgrad import Axis, Pool, PoolGradValueError, exact
from poolgrad.jax import local
from poolgrad.jax.primitive import linear

jax.config.update("jax_enable_x64", True)
FLOAT32 = np.dtype(np.float32)
AUTO = jax.make_mesh((2, 4), ("b", "s"), axis_types=(AxisType.Auto, AxisType.Auto))
EXPLICIT = jax.make_mesh((2, 4), ("b", "s"), axis_types=(AxisType.Explicit, AxisType.Explicit))
KINDS = "all-gather|all-to-all|all-reduce|collective-permute|reduce-scatter"
COLLECTIVE = re.compile(rf"= (\w+)\[([\d,]*)\][^=]* ({KINDS})(?:-start)?\(")


def sharded(array: Any, spec: P, mesh: Any = AUTO) -> Any:
    return jax.device_put(array, NamedSharding(mesh, spec))


def collectives(compiled: Any) -> Sent:
    """What the program sends between devices, with the elements of each result."""
    found = COLLECTIVE.findall(compiled.as_text())
    return [(kind, prod(int(n) for n in shape.split(",") if n)) for _, shape, kind in found]


Sent = list[tuple[str, int]]


def run(function: Callable[[Any], Any], x: Any, *allowed: str) -> tuple[Any, Sent]:
    """What a function makes of `x`; only exchanges of borders are allowed, or what is named."""
    compiled = jax.jit(function).lower(x).compile()
    sent = collectives(compiled)
    assert {kind for kind, _ in sent} <= set(allowed or ("collective-permute",)), sent
    return compiled(x), sent


def test_there_are_eight_devices() -> None:
    assert len(jax.devices()) == 8


SPECS = [P("b"), P(None, "s"), P(None, None, None, "s"), P("b", "s"), P(None, "s", "b"), P(None, None, "s"), P(None, ("b", "s"))]
ROWS = [*range(0, 16, 3), 17, 25, 32]
POOLS = {
    "overlapping": Pool((Axis.regular(32, 5, stride=2, padding="same"), Axis.regular(24, 3, stride=1, padding="same"))),
    "apart": Pool((Axis.regular(32, 2), Axis.regular(24, 3))),
    "asymmetric": Pool((Axis.regular(32, 4, stride=1, padding=(3, 0)), Axis.regular(24, 3, padding=(0, 2), count="window"))),
    "beyond a neighbour": Pool((Axis.regular(32, 19, stride=1, padding="same"), Axis.regular(24, 17, stride=2, padding="same"))),
    "dilated": Pool((Axis.regular(32, 3, stride=1, padding=3, dilation=3), Axis.regular(24, 2, stride=2, padding=2, dilation=4))),
    "adaptive": Pool((Axis.adaptive(32, 24), Axis.adaptive(24, 8))),
    "more cells than inputs": Pool((Axis.adaptive(32, 40), Axis.adaptive(24, 32))),
    "fractional": Pool((Axis.fractional(32, ROWS), Axis.fractional(24, range(0, 25, 3), overlapping=True))),
    "divisor": Pool((Axis.regular(32, 3, stride=1, padding="same"), Axis.regular(24, 2, stride=2)), 5),
}


@pytest.mark.parametrize("forwards", [True, False])
@pytest.mark.parametrize("name", POOLS)
def test_every_way_to_cut_gives_the_bits_of_the_whole(name: str, forwards: bool) -> None:
    pool = POOLS[name]
    for k, spec in enumerate(SPECS[forwards::2]):
        dtype = support.DTYPES[k % 4]
        source = support.random_array(k, support.source_shape(pool, "NHWC", 4, 8, forwards=forwards), dtype)
        got, sent = run(lambda s: linear(s, pool, (1, 2), forwards), sharded(source, spec))
        support.assert_same_bits(np.asarray(got), support.compute("native", pool, source, "NHWC", forwards=forwards), spec)
        assert got.sharding.spec == spec
        assert got.sharding.shard_shape(got.shape) != got.shape
        assert all(size < source.size for _, size in sent)


@pytest.mark.parametrize("name", ["beyond a neighbour", "dilated", "adaptive"])
def test_without_the_kernel_it_is_shared_out_as_well(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "has_kernel", lambda: False)
    pool = POOLS[name]
    for forwards in (True, False):
        source = support.random_array(3, support.source_shape(pool, "NHWC", 4, 8, forwards=forwards), FLOAT32)
        got, _ = run(lambda s, forwards=forwards: linear(s, pool, (1, 2), forwards), sharded(source, P("b", "s")))
        true = exact.forward if forwards else exact.gradient
        size = true(pool, abs(source), "NHWC")
        allowed = checks.tolerance(pool, FLOAT32, forwards=forwards) + 1
        checks.assert_close(np.asarray(got), true(pool, source, "NHWC"), size, allowed)


def test_only_borders_travel() -> None:
    """3 cells, stride 1: one row from each neighbour."""
    x = support.random_array(1, (2, 32, 10, 3), FLOAT32)
    _, sent = run(lambda x: pj.avg_pool(x, 3, stride=1, padding="same"), sharded(x, P(None, "s")))
    assert sent == [("collective-permute", 2 * 10 * 3)] * 2
    _, sent = run(lambda x: pj.avg_pool(x, 2), sharded(x, P(None, "s")))
    assert sent == []


def loss(x: Any) -> Any:
    y = pj.avg_pool(x, (3, 5), stride=(2, 1), padding="same")
    return (pj.adaptive_avg_pool(y, (12, 9)) ** 3).sum()


@pytest.mark.parametrize("mesh", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("spec", [P("b", "s", None, None), P("b", None, None, "s")])
def test_gradients_stay_where_the_array_is(mesh: Any, spec: P) -> None:
    x = support.random_array(2, (4, 32, 9, 4), np.dtype(np.float64))
    with jax.set_mesh(mesh):
        given = sharded(x, spec, mesh)
        got, _ = run(jax.grad(loss), given)
        assert got.sharding.shard_shape(got.shape) == given.sharding.shard_shape(given.shape)
    np.testing.assert_allclose(np.asarray(got), np.asarray(jax.grad(loss)(jnp.asarray(x))), rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("mesh", [AUTO, EXPLICIT], ids=["auto", "explicit"])
@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_global_pooling_gathers_no_more_than_a_share(mesh: Any, dtype: np.dtype[Any]) -> None:
    x = support.random_array(3, (4, 32, 24, 3), dtype)
    with jax.set_mesh(mesh):
        got, sent = run(lambda x: pj.adaptive_avg_pool(x, (1, 3)), sharded(x, P("b", "s", None, None), mesh), "all-gather")
    support.assert_same_bits(np.asarray(got), poolgrad.adaptive_avg_pool(x, (1, 3)))
    assert sent == [("all-gather", 2 * 32 * 3 * 3)]
    dy = support.random_array(4, got.shape, dtype)
    with jax.set_mesh(mesh):
        _, pullback = jax.vjp(lambda x: pj.adaptive_avg_pool(x, (1, 3)), sharded(x, P("b", "s", None, None), mesh))
        (dx,) = pullback(sharded(dy, P("b", None, None, None), mesh))
    support.assert_same_bits(np.asarray(dx), poolgrad.adaptive_avg_pool_grad(dy, x.shape))


def test_global_pooling_beside_an_exchange() -> None:
    """Two cut axes: one exchanges its borders, the other becomes a lone cell once the last one is summed."""
    pool = Pool((Axis.regular(8, 3, stride=1, padding="same"), Axis.whole(16), Axis.regular(12, 7, stride=5)))
    x = support.random_array(11, (2, 8, 16, 12, 3), np.dtype(np.float16))
    got, _ = run(lambda x: linear(x, pool, (1, 2, 3), True), sharded(x, P(None, "s", "b")), "all-gather", "collective-permute")
    support.assert_same_bits(np.asarray(got), support.compute("native", pool, x, "NDHWC", forwards=True))
    assert got.sharding.spec == P(None, "s")


def test_the_gradient_of_global_pooling_is_cut_for_nothing() -> None:
    dy = support.random_array(5, (4, 1, 1, 3), FLOAT32)
    call = jax.jit(lambda dy: pj.adaptive_avg_pool_grad(dy, (4, 32, 24, 3)), out_shardings=NamedSharding(AUTO, P("b", "s")))
    compiled = call.lower(sharded(dy, P("b"))).compile()
    assert collectives(compiled) == []
    support.assert_same_bits(np.asarray(compiled(sharded(dy, P("b")))), poolgrad.adaptive_avg_pool_grad(dy, (4, 32, 24, 3)))


def test_volumes_and_vmap() -> None:
    x = support.random_array(6, (3, 2, 8, 12, 16), FLOAT32)
    options = {"stride": (1, 2, 2), "padding": "same"}
    call = jax.vmap(lambda x: pj.avg_pool(x, (3, 3, 2), layout="CDHW", **options), spmd_axis_name=None)
    got, _ = run(call, sharded(x, P(None, None, "b", None, "s")))
    support.assert_same_bits(np.asarray(got), poolgrad.avg_pool(x, (3, 3, 2), layout="NCDHW", **options))
    assert got.sharding.spec == P(None, None, "b", None, "s")


def test_shard_map_is_left_alone() -> None:
    x = support.random_array(7, (4, 8, 6, 3), FLOAT32)
    mapped = jax.shard_map(lambda x: pj.avg_pool(x, 3, stride=1), mesh=AUTO, in_specs=P("b"), out_specs=P("b"))
    got, sent = run(mapped, sharded(x, P("b")))
    support.assert_same_bits(np.asarray(got), poolgrad.avg_pool(x, 3, stride=1))
    assert sent == []


def test_eager_calls_are_shared_out_too() -> None:
    x = support.random_array(8, (4, 16, 6, 3), FLOAT32)
    got = pj.avg_pool(sharded(x, P(None, "s")), 3, stride=1, padding="same")
    support.assert_same_bits(np.asarray(got), poolgrad.avg_pool(x, 3, stride=1, padding="same"))
    assert got.sharding.spec == P(None, "s")


REFUSED = {
    "parts of different sizes": ("must both be multiples of 4", lambda x: pj.avg_pool(x, 3, stride=1)),
    "the whole axis": ("would need all its 16 source rows", lambda x: pj.avg_pool(x, (31, 1), stride=1, padding="same")),
    "global, nothing summed before": ("must both be multiples of 4", lambda x: pj.adaptive_avg_pool(x, (1, None))),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name: str) -> None:
    words, call = REFUSED[name]
    x = support.random_array(9, (4, 16, 6, 3), FLOAT32)
    with pytest.raises(PoolGradValueError, match=words):
        call(sharded(x, P(None, "s")))
    with pytest.raises(jax.errors.JaxRuntimeError, match=f"PoolGradValueError.*{words}"):
        jax.jit(call)(sharded(x, P(None, "s")))
    with jax.set_mesh(EXPLICIT), pytest.raises(PoolGradValueError, match=words):
        jax.jit(call)(sharded(x, P(None, "s", None, None), EXPLICIT))


def test_the_older_partitioner() -> None:
    """GSPMD, which a program may still choose; a refusal must not end the process."""
    x = support.random_array(12, (4, 16, 6, 3), FLOAT32)
    jax.config.update("jax_use_shardy_partitioner", False)
    try:
        got, _ = run(lambda x: pj.avg_pool(x, 3, stride=1, padding="same"), sharded(x, P("b", "s")))
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"PoolGradValueError.*must both be multiples"):
            jax.jit(lambda x: pj.avg_pool(x, 3, stride=1))(sharded(x, P("b", "s")))
    finally:
        jax.config.update("jax_use_shardy_partitioner", True)
    support.assert_same_bits(np.asarray(got), poolgrad.avg_pool(x, 3, stride=1, padding="same"))
    assert got.sharding.spec == P("b", "s")


def test_half_a_shard_map_is_refused() -> None:
    x = support.random_array(10, (4, 8, 6, 3), FLOAT32)
    half = jax.shard_map(lambda x: pj.avg_pool(x, 2), mesh=AUTO, in_specs=P("b"), out_specs=P("b"), axis_names={"b"})
    with pytest.raises(jax.errors.JaxRuntimeError, match=r"PoolGradTypeError.*must name every axis"):
        jax.jit(half)(sharded(x, P("b", "s")))


def test_export_for_several_devices_is_refused() -> None:
    check = export.DisabledSafetyCheck.custom_call("poolgrad_avg_pool")
    given = jax.ShapeDtypeStruct((4, 8, 6, 3), np.float32, sharding=NamedSharding(AUTO, P("b")))
    with pytest.raises(PoolGradValueError, match="cannot be exported"):
        export.export(jax.jit(lambda x: pj.avg_pool(x, 2)), disabled_checks=[check])(given)
    mapped = jax.shard_map(lambda x: pj.avg_pool(x, 2), mesh=AUTO, in_specs=P("b"), out_specs=P("b"))
    assert export.export(jax.jit(mapped), disabled_checks=[check])(given).nr_devices == 8


