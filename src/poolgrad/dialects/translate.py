"""From one dialect's arguments to another's, or why there are none. Right means equal tables, and is checked each time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..arguments import as_sizes
from ..errors import PoolGradError, PoolGradTypeError, PoolGradValueError
from ..geometry import places
from ..layout import default_layout, spatial_positions
from .fit import Form, fit, is_adaptive, place
from .pooling import Adaptive, Fractional, NoTranslation, Pooling, Regular
from .registry import dialect
from .tables import LIMIT, Tables, cell_text, difference, identity, letters

__all__ = ["translate"]


def translate(
    arguments: Mapping[str, Any], source: str, target: str, input_shape: Sequence[int], *, transpose: bool = False
) -> dict[str, Any]:
    """The arguments of dialect `target` that mean what `arguments` mean in dialect `source`, on inputs of `input_shape`.

    A translation keeps the array as it is, so a layout that the target cannot say is refused. With ``transpose=True`` it
    is not: the result then holds ``"transpose"``, the permutation for ``numpy.transpose`` (to be undone on the output).

    >>> keras = {"pool_size": 3, "strides": 2, "padding": "same", "data_format": "channels_first"}
    >>> translate(keras, "keras", "torch", (1, 3, 9, 7))
    {'op': 'avg_pool2d', 'kernel_size': (3, 3), 'stride': (2, 2), 'padding': (1, 1), 'count_include_pad': False}
    """
    if not isinstance(arguments, Mapping):
        raise PoolGradTypeError(f"arguments must be a dict of {source}'s arguments, got {arguments!r}")
    dialect(target)  # an unknown name is a mistake, not a lack of words
    shape = as_sizes("input_shape", input_shape)
    pooling = _renamed(dialect(source).read(arguments, shape), len(shape))
    _check_length(pooling, shape)
    try:
        return _written(pooling, shape, target)
    except NoTranslation as refusal:
        refusals = [str(refusal)]
    for permutation in _permutations(pooling, len(shape)) if transpose else ():
        layout = "".join(pooling.layout[p] for p in permutation)
        try:
            said = _written(_renamed(replace(pooling, layout=layout), len(shape)), tuple(shape[p] for p in permutation), target)
            return {**said, "transpose": permutation}
        except NoTranslation as refusal:
            refusals.append(str(refusal))
    why = refusals[:2][-1]  # channels first, which every dialect but Flax has, tells more than a layout that is not there
    raise NoTranslation(f"{source} to {target}: {why}")


def _check_length(pooling: Pooling, shape: tuple[int, ...]) -> None:
    """Refuse tables too long to compare, before one is made."""
    longest = max([*pooling.sizes(shape), *_cells(pooling, shape)], default=0)
    if longest > LIMIT:
        raise PoolGradValueError(
            f"input_shape must have at most {LIMIT} inputs and output cells along a pooled axis to be translated, "
            f"got {shape} with an axis of {longest}; shorten it by a multiple of the stride"
        )


def _cells(pooling: Pooling, shape: tuple[int, ...]) -> Iterator[int]:
    if isinstance(pooling, Regular):
        for k, n in enumerate(pooling.sizes(shape)):
            dilation = pooling.dilation[k] if pooling.dilation else 1
            yield places(n, pooling.window[k], pooling.stride[k], pooling.padding[k], dilation, pooling.ceil_mode)[2]
    elif isinstance(pooling, Adaptive):
        yield from pooling.output_size
    elif isinstance(pooling, Fractional):
        yield from map(len, pooling.sequences)


def _written(pooling: Pooling, shape: tuple[int, ...], target: str) -> dict[str, Any]:
    """What the target writes for this pooling in any of its wordings, once it reads back as the same tables."""
    tables = Tables.of(pooling, shape)
    attempts = (_attempt(wording, tables, shape, target) for wording in _wordings(pooling, shape))
    refusals = []
    for said in attempts:
        if isinstance(said, dict):
            return said
        refusals.append(said)
    raise NoTranslation(refusals[0])


def _attempt(pooling: Pooling, tables: Tables, shape: tuple[int, ...], target: str) -> dict[str, Any] | str:
    """What the target writes if it reads back as `tables`, else why not. What it refuses is no translation either."""
    try:
        said = dialect(target).write(pooling, shape)
        read = Tables.of(dialect(target).read(said, shape), shape)
    except PoolGradError as refusal:
        return str(refusal)
    return said if read == tables else _parted(tables, read, shape, target)


def _wordings(pooling: Pooling, shape: tuple[int, ...]) -> Iterator[Pooling]:
    """The same tables in other words: other axes called N and C, other numbers, other kinds of pooling."""
    yield pooling
    for layout in _layouts(len(shape)):
        try:
            placed = place(pooling, shape, spatial_positions(layout, len(shape)), "")
        except NoTranslation:
            continue
        for count in ("inside", "window"):
            try:
                found = fit(placed, [Form("pairs", count, dilation=True)], "")
            except NoTranslation:
                continue
            yield Regular(layout, found.window, found.stride, found.padding, found.dilation, count)
        if is_adaptive(placed):
            yield Adaptive(layout, tuple(axis.cells for axis in placed.axes))


def _layouts(rank: int) -> tuple[str, ...]:
    return (default_layout(rank), "NC" + letters(rank - 2)) if 3 <= rank <= 12 else ()


def _renamed(pooling: Pooling, rank: int) -> Pooling:
    """With the usual letters if the pooled axes are in the usual places, so that 'CNWH' is nobody's excuse."""
    spatial = spatial_positions(pooling.layout, rank)
    usual = next((layout for layout in _layouts(rank) if spatial_positions(layout, rank) == spatial), pooling.layout)
    return replace(pooling, layout=usual)


def _permutations(pooling: Pooling, rank: int) -> Iterator[tuple[int, ...]]:
    """Channels first, then channels last, the pooled axes in their logical order."""
    pooled = spatial_positions(pooling.layout, rank)
    others = sorted((p for p in range(rank) if p not in pooled), key=lambda p: pooling.layout[p] != "N")
    yield (*others, *pooled)
    if len(others) == 2:
        yield (others[0], *pooled, others[1])


def _parted(tables: Tables, read: Tables, shape: tuple[int, ...], target: str) -> str:
    """Where two tables part, as a sentence."""
    for position, pair in enumerate(zip(tables.axes, read.axes, strict=True)):
        if pair[0] != pair[1]:
            ours, theirs = (axis or identity(shape[position]) for axis in pair)
            o = difference(ours, theirs)
            return f"cell {o} of axis {position} {cell_text(ours, o)}; as {target} reads the axes, it {cell_text(theirs, o)}"
    return f"windows divide by a multiple of {tables.scale}; as {target} reads it, of {read.scale}"
