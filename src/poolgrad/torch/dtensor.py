"""PyTorch's DTensor: every rank pools the shard that it holds.

Batch and channels do not meet in a pooling, so their shards are pooled apart; the map is linear, so the parts of a sum are
too. Invariants: nothing is communicated; the result is placed as the source is; a sharding along a pooled axis, whose
windows would reach into a neighbour's shard, is refused. (PyTorch's own rules gather a tensor that they cannot serve.)

Imported when the first DTensor comes, not before: `library.check_placement`.
"""

from __future__ import annotations

from typing import Any

from torch.distributed.tensor import DTensor, Partial, Placement, Replicate
from torch.distributed.tensor._op_schema import OpSpec, OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor.placement_types import _is_shard_like

from ..errors import PoolGradValueError
from .library import operators

__all__ = ["check"]

LINEAR = ("sum", "avg")


def check(name: str, spec: Any, axes: int) -> None:
    """Refuse what cannot be pooled shard by shard; `spec` says how a tensor of which the last `axes` are pooled is placed."""
    reasons = [_refusal(placement, spec.ndim - axes, spec.ndim - 1) for placement in spec.placements]
    if any(reasons):
        placements, reason = list(spec.placements), next(filter(None, reasons))
        nearest = [Replicate() if refused else placement for placement, refused in zip(placements, reasons, strict=True)]
        raise PoolGradValueError(
            f"{name} with placements {placements} cannot be pooled where it is: {reason}. Nothing is gathered unasked;"
            f" shard batch or channels, or use {name}.redistribute(placements={nearest})"
        )


def _refusal(placement: Placement, first: int, last: int) -> str | None:
    if _is_shard_like(placement) and placement.dim >= first:
        where = f"at the edge of a shard along axis {placement.dim}"
        return f"axes {first} to {last} are pooled, and {where} a window needs the next one"
    if isinstance(placement, Partial) and (type(placement) is not Partial or placement.reduce_op not in LINEAR):
        return f"the parts of a sum or a mean can be pooled apart, those of {placement} cannot"
    return None


def _strategy(op_schema: Any) -> OpStrategy:
    """One strategy: the result goes where the source is."""
    source, size = op_schema.args_schema[:2]
    spec = source.strategies[0].output_spec
    check("the source", spec, len(size))
    return OpStrategy([OpSpec(output_specs=spec, input_specs=[spec], redistribute_cost=[[0.0]])])


for _forwards in (True, False):
    # From argument 1 on everything counts when PyTorch remembers what it found out: sizes, the pooling, the order.
    DTensor._op_dispatcher.sharding_propagator.register_op_strategy(operators(_forwards), _strategy, RuntimeSchemaInfo(1))
