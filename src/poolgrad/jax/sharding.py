"""How a pooling is shared out over devices: by batch and channels freely, by space with an exchange of borders.

Where the source is cut along a spatial axis, the result is cut along it into as many parts, and each device fetches from
its neighbours exactly the rows its own part still needs, however many neighbours that takes. A source that every device
has whole may have its result cut for nothing. What would need the whole axis on one device, or parts of different sizes,
is refused: gathering is the caller's decision.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.extend.core import Primitive
from jax.interpreters import mlir
from jax.sharding import NamedSharding, PartitionSpec

from ..errors import PoolGradTypeError, PoolGradValueError
from ..geometry import Axis, Pool
from .local import local
from .parts import Cut, uncut

__all__ = ["check_explicit", "partitioned", "result_shape"]

Names = tuple[str, ...]

local_p = Primitive("poolgrad_avg_pool_local")
local_p.def_abstract_eval(
    lambda x, places, *, pool, spatial, forwards, cuts: x.update(shape=result_shape(x.shape, pool, spatial, forwards, cuts))
)
mlir.register_lowering(local_p, mlir.lower_fun(local, multiple_results=False))


def result_shape(
    shape: Sequence[Any], pool: Pool, spatial: tuple[int, ...], forwards: bool, cuts: tuple[Cut, ...]
) -> tuple[Any, ...]:
    made = list(shape)
    for axis, position, cut in zip(pool.axes, spatial, cuts, strict=True):
        made[position] = (axis.cells if forwards else axis.size) // cut.parts
    return tuple(made)


def _whole(x: Any, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> Any:
    places = jnp.zeros(len(spatial), dtype=jnp.int32)
    return local_p.bind(x, places, pool=pool, spatial=spatial, forwards=forwards, cuts=uncut(pool, forwards))


partitioned = custom_partitioning(_whole, static_argnums=(1, 2, 3))
"""The pooling, or its gradient, of an array that may be spread over devices."""


def _names(entry: Any) -> Names:
    return () if entry is None else (entry,) if isinstance(entry, str) else tuple(entry)


def _spec(array: Any) -> list[Names]:
    sharding = array.sharding
    if not isinstance(sharding, NamedSharding):
        raise PoolGradTypeError(
            f"a pooling is shared out by mesh axes (NamedSharding), got {sharding}; a shard_map around it must name every axis of "
            "its mesh"
        )
    return [_names(entry) for entry in (*sharding.spec, *[None] * (len(array.shape) - len(sharding.spec)))]


def _result_spec(source: Sequence[Names], wanted: Sequence[Names]) -> list[Names]:
    """Where the result lies: cut like the source; an axis that the source has whole may be cut as is wanted."""
    used = {name for names in source for name in names}
    return [own or tuple(n for n in asked if not used & set(asked)) for own, asked in zip(source, wanted, strict=True)]


def _partition(pool: Pool, spatial: tuple[int, ...], forwards: bool, mesh: Any, sources: Any, result: Any) -> Any:
    source = _spec(sources[0])
    there = _result_spec(source, _spec(result))
    here = [there[d] if d not in spatial else names for d, names in enumerate(source)]
    cuts = _cuts(pool, spatial, forwards, mesh, here, there)

    def lower(x: Any) -> Any:
        for position, cut in zip(spatial, cuts, strict=True):
            if here[position]:
                x = _with_borders(x, position, here[position], cut)
        places = [jax.lax.axis_index(there[p]) if there[p] else 0 for p in spatial]
        whole = jnp.stack([jnp.asarray(place, dtype=jnp.int32) for place in places])
        return local_p.bind(x, whole, pool=pool, spatial=spatial, forwards=forwards, cuts=cuts)

    def on_mesh(spec: list[Names]) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*(names or None for names in spec)))

    return mesh, lower, on_mesh(there), (on_mesh(here),)


def check_explicit(x: Any, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> None:
    """Where shardings are part of types, refuse before anything is compiled."""
    spec = _spec(x)
    _cuts(pool, spatial, forwards, x.sharding.mesh, spec, spec)


def _cuts(
    pool: Pool, spatial: tuple[int, ...], forwards: bool, mesh: Any, here: list[Names], there: list[Names]
) -> tuple[Cut, ...]:
    """How each axis is cut, with the source lying as `here` says and the result as `there` says."""
    cuts = []
    for axis, position in zip(pool.axes, spatial, strict=True):
        parts = prod(mesh.shape[name] for name in there[position])
        cuts.append(_cut(axis, forwards, parts, whole=not here[position], position=position))
    return tuple(cuts)


def _cut(axis: Axis, forwards: bool, parts: int, *, whole: bool, position: int) -> Cut:
    """The cut of an axis into `parts`, with the rows to fetch; `whole`: every device has all of the source."""
    rows, length = (axis.size, axis.cells) if forwards else (axis.cells, axis.size)
    if parts == 1:
        return Cut(1, 0, 0, rows)
    if length % parts or (rows % parts and not whole):
        raise PoolGradValueError(
            f"axis {position} cannot be shared by {parts} devices: its {rows} source rows and {length} result rows must both be "
            f"multiples of {parts}; choose windows that keep it so (padding 'same'), or gather that axis before pooling "
            "(jax.lax.with_sharding_constraint)"
        )
    if whole:
        return Cut(parts, 0, 0, rows)
    own, box = rows // parts, length // parts
    alone = Pool((axis,))
    before = after = 0
    for part in range(parts):
        region = [slice(part * box, (part + 1) * box)]
        (span,) = (alone.inputs_for if forwards else alone.cells_for)(region)
        if span.stop - span.start == rows:
            raise PoolGradValueError(
                f"axis {position} cannot be shared by {parts} devices: one of them would need all its {rows} source rows; gather "
                "that axis before pooling (jax.lax.with_sharding_constraint), or cut another one"
            )
        if span.stop > span.start:
            before = max(before, part * own - span.start)
            after = max(after, span.stop - (part + 1) * own)
    return Cut(parts, own, before, before + own + after)


def _with_borders(x: Any, position: int, names: Names, cut: Cut) -> Any:
    """`x` between the rows that its neighbours hold, as far as `cut` says; what lies beyond the axis is 0, and never used."""
    own, after = cut.step, cut.rows - cut.step - cut.before
    fetched = [x]
    for hop in range(1, cut.parts):
        if (width := min(own, cut.before - (hop - 1) * own)) > 0:
            last = jax.lax.slice_in_dim(x, own - width, own, axis=position)
            fetched.insert(0, jax.lax.ppermute(last, names, [(p, p + hop) for p in range(cut.parts - hop)]))
        if (width := min(own, after - (hop - 1) * own)) > 0:
            first = jax.lax.slice_in_dim(x, 0, width, axis=position)
            fetched.append(jax.lax.ppermute(first, names, [(p, p - hop) for p in range(hop, cut.parts)]))
    return jnp.concatenate(fetched, axis=position) if len(fetched) > 1 else x


def _rule(pool: Pool, spatial: tuple[int, ...], forwards: bool, mesh: Any, sources: Any, results: Any) -> Any:
    """For Shardy: every axis of the result lies like that of the source, spatial ones at the price of an exchange."""
    names = [f"d{k}" for k in range(len(sources[0].shape))]
    axes = " ".join(names)
    return f"{axes} -> {axes}", {"permutation_factors": tuple(names[p] for p in spatial)}


partitioned.def_partition(partition=_partition, sharding_rule=_rule)
