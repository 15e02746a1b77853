"""How a pooling is shared out over devices: by batch and channels freely, by space with an exchange of borders.

Where the source is cut along a spatial axis, the result is cut along it into as many parts, and each device fetches from
its neighbours exactly the rows its own part still needs, however many neighbours that takes. A source that every device
has whole may have its result cut for nothing. Global pooling along a cut axis first sums the axes after it, then gathers
those few sums. Whatever else would need a whole axis on one device, or parts of different sizes, is refused: gathering an
array is the caller's decision. All of it adds in the order of the whole, so the result is that of one device, to the bit.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental.custom_partitioning import custom_partitioning
from jax.sharding import NamedSharding, PartitionSpec

from ..errors import PoolGradError, PoolGradTypeError, PoolGradValueError
from ..geometry import Axis, Pool
from .local import local
from .parts import Cut, uncut

__all__ = ["explicit_sharding", "partitioned"]

Names = tuple[str, ...]
Spec = list[Names]


def _whole(x: Any, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> Any:
    places = jnp.zeros(len(spatial), dtype=jnp.int32)
    return local(x, places, pool=pool, spatial=spatial, forwards=forwards, cuts=uncut(pool, forwards))


partitioned = custom_partitioning(_whole, static_argnums=(1, 2, 3))
"""The pooling, or its gradient, of an array that may be spread over devices."""


class Sharing(NamedTuple):
    """Where source and result lie, how each axis is cut, and which axis is gathered once those after it are summed."""

    source: Spec
    result: Spec
    cuts: tuple[Cut, ...]
    gathered: int | None


def _spec(array: Any) -> Spec:
    """The mesh axes that cut each axis of an array."""
    sharding = array.sharding
    if not hasattr(sharding, "spec"):
        raise PoolGradTypeError(
            f"a pooling is shared out by mesh axes (NamedSharding), got {sharding}; "
            "a shard_map around it must name every axis of its mesh"
        )
    entries = (*sharding.spec, *[None] * (len(array.shape) - len(sharding.spec)))
    return [() if entry is None else (entry,) if isinstance(entry, str) else tuple(entry) for entry in entries]


def _partition(pool: Pool, spatial: tuple[int, ...], forwards: bool, mesh: Any, sources: Any, result: Any) -> Any:
    """For XLA: how the source must lie, how the result will, and the program of each device."""
    sharing = _share(pool, spatial, forwards, mesh, _spec(sources[0]), _spec(result))

    def lower(x: Any) -> Any:
        with jax.sharding.use_abstract_mesh(jax.sharding.AbstractMesh((), ())):  # a device's part has no sharding of its own
            return _on_each_device(x, pool, spatial, forwards, sharing)

    def on_mesh(spec: Spec) -> NamedSharding:
        return NamedSharding(mesh, PartitionSpec(*(names or None for names in spec)))

    return mesh, lower, on_mesh(sharing.result), (on_mesh(sharing.source),)


def _rule(pool: Pool, spatial: tuple[int, ...], forwards: bool, mesh: Any, sources: Any, results: Any) -> Any:
    """For Shardy: every axis of the result lies like that of the source, spatial ones at the price of an exchange.

    A lone cell cannot be cut: that axis of the source and of the result have nothing to do with each other.
    """
    source = [f"d{k}" for k in range(len(sources[0].shape))]
    lone = {position for axis, position in zip(pool.axes, spatial, strict=True) if axis.cells == 1}
    result = [f"r{k}" if k in lone else name for k, name in enumerate(source)]
    exchanged = tuple(source[p] for p in spatial if p not in lone)
    return f"{' '.join(source)} -> {' '.join(result)}", {"permutation_factors": exchanged}


def _inferred(pool: Pool, spatial: tuple[int, ...], forwards: bool, mesh: Any, sources: Any, result: Any) -> Any:
    """For GSPMD, Shardy's predecessor, where it is still chosen. An error here would end the process: `_partition` says it."""
    try:
        return explicit_sharding(sources[0], pool, spatial, forwards)
    except PoolGradError:
        return NamedSharding(mesh, PartitionSpec())


partitioned.def_partition(partition=_partition, sharding_rule=_rule, infer_sharding_from_operands=_inferred)


def explicit_sharding(x: Any, pool: Pool, spatial: tuple[int, ...], forwards: bool) -> Any:
    """Where shardings are part of types: that of the result, or a refusal before anything is compiled."""
    spec = _spec(x)
    sharing = _share(pool, spatial, forwards, x.sharding.mesh, spec, [()] * len(spec))
    return x.sharding.update(spec=PartitionSpec(*(names or None for names in sharing.result)))


def _share(pool: Pool, spatial: tuple[int, ...], forwards: bool, mesh: Any, source: Spec, wanted: Spec) -> Sharing:
    """The result lies like the source; an axis that the source has whole may be cut as is wanted."""
    used = {name for names in source for name in names}
    there = [own or (() if used & set(asked) else asked) for own, asked in zip(source, wanted, strict=True)]
    here = [names if d in spatial else there[d] for d, names in enumerate(source)]
    cuts, gathered = [], None
    for k, (axis, position) in enumerate(zip(pool.axes, spatial, strict=True)):
        parts = prod(mesh.shape[name] for name in there[position])
        later = [(a, there[p]) for a, p in list(zip(pool.axes, spatial, strict=True))[k + 1 :]]
        if forwards and here[position] and parts > 1 and _is_gathered(axis, parts, later):
            gathered, there[position] = k, ()
            cuts.append(Cut(1, 0, 0, axis.size))
        else:
            cuts.append(_cut(axis, forwards, parts, whole=not here[position], position=position))
    return Sharing(here, there, tuple(cuts), gathered)


def _is_gathered(axis: Axis, parts: int, later: list[tuple[Axis, Names]]) -> bool:
    """Whether an axis becomes one cell, and the sums of the axes after it are no more than a device's share of the source."""
    shrinks = parts * prod(a.cells for a, _ in later) <= prod(a.size for a, _ in later)
    return axis.cells == 1 and axis.size % parts == 0 and shrinks and not any(names for _, names in later)


def _cut(axis: Axis, forwards: bool, parts: int, *, whole: bool, position: int) -> Cut:
    """The cut of an axis into `parts`, with the rows to fetch; `whole`: every device has all of the source."""
    rows, length = (axis.size, axis.cells) if forwards else (axis.cells, axis.size)
    if parts == 1:
        return Cut(1, 0, 0, rows)
    if length % parts or (rows % parts and not whole):
        raise PoolGradValueError(
            f"axis {position} cannot be shared by {parts} devices: its {rows} source rows and {length} result rows must both be "
            f"multiples of {parts}; choose windows that keep it so (padding 'same'), or gather that axis before pooling "
            "(jax.lax.with_sharding_constraint, jax.sharding.reshard)"
        )
    if whole:
        return Cut(parts, 0, 0, rows)
    own, box, alone = rows // parts, length // parts, Pool((axis,))
    before = after = 0
    for part in range(parts):
        region = [slice(part * box, (part + 1) * box)]
        (span,) = (alone.inputs_for if forwards else alone.cells_for)(region)
        if span.stop - span.start == rows:
            raise PoolGradValueError(
                f"axis {position} cannot be shared by {parts} devices: one of them would need all its {rows} source rows; gather "
                "that axis before pooling (jax.lax.with_sharding_constraint, jax.sharding.reshard), or cut another one"
            )
        if span.stop > span.start:
            before = max(before, part * own - span.start)
            after = max(after, span.stop - (part + 1) * own)
    return Cut(parts, own, before, before + own + after)


def _on_each_device(x: Any, pool: Pool, spatial: tuple[int, ...], forwards: bool, sharing: Sharing) -> Any:
    source, result, cuts, gathered = sharing
    dtype = x.dtype
    if gathered is not None:
        sizes = [x.shape[p] for p in spatial]
        first, pool = _in_two(pool, sizes, gathered)
        x = x.astype(jnp.promote_types(dtype, jnp.float32))
        x = _whole(x, first, spatial, True)
        x = jax.lax.all_gather(x, source[spatial[gathered]], axis=spatial[gathered], tiled=True)
    for k, (position, cut) in enumerate(zip(spatial, cuts, strict=True)):
        if source[position] and k != gathered:
            x = _with_borders(x, position, source[position], cut)
    if gathered is not None:  # sums of the later axes are the rows of what is left to do
        cuts = tuple(cut if k <= gathered else Cut(1, 0, 0, pool.axes[k].size) for k, cut in enumerate(cuts))
    places = [jax.lax.axis_index(result[p]) if result[p] else 0 for p in spatial]
    places_here = jnp.stack([jnp.asarray(place, dtype=jnp.int32) for place in places])
    return local(x, places_here, pool=pool, spatial=spatial, forwards=forwards, cuts=cuts).astype(dtype)


def _in_two(pool: Pool, sizes: list[int], k: int) -> tuple[Pool, Pool]:
    """A forward pooling as two: plain sums over the axes after `k`, of so many local rows; then the rest and the division."""
    first = [_rows_of(n, np.ones(n, dtype=np.int64)) if j <= k else pool.axes[j] for j, n in enumerate(sizes)]
    second = [axis if j <= k else _rows_of(axis.cells, axis.count) for j, axis in enumerate(pool.axes)]
    return Pool(tuple(first), 1), Pool(tuple(second), pool.divisor)


def _rows_of(n: int, count: Any) -> Axis:
    """Every row is a cell of its own."""
    o = np.arange(n, dtype=np.int64)
    return Axis(n, o, o + 1, count)


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
