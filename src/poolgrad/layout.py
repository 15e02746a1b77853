"""Layout strings: which axis of an array is batch, channels or space.

`N` and `C` are optional; spatial letters are `D`, `H`, `W` (or `L` alone) or digits, in any order. Per-axis arguments
always follow the logical order D, H, W (0, 1, 2, …), whatever the order in the array.
"""

from __future__ import annotations

from functools import lru_cache

from .errors import PoolGradTypeError, PoolGradValueError

__all__ = ["default_layout", "placed", "spatial_positions"]


def default_layout(rank: int) -> str:
    """Channels last.

    >>> default_layout(4), default_layout(6)
    ('NHWC', 'N0123C')
    """
    named = {3: "NLC", 4: "NHWC", 5: "NDHWC"}
    if rank < 3:
        raise PoolGradValueError(
            f"an array of rank {rank} has no default layout (channels last needs rank 3 or more); name one, such as layout='HW'"
        )
    return named.get(rank, "N" + "".join(map(str, range(min(rank - 2, 10)))) + "C")


def spatial_positions(layout: str, rank: int) -> tuple[int, ...]:
    """Positions of the spatial axes in the array, in logical order.

    >>> spatial_positions("NCHW", 4), spatial_positions("CWHN", 4)
    ((2, 3), (2, 1))
    """
    if not isinstance(layout, str):
        raise PoolGradTypeError(f"layout must be a string such as 'NHWC', got {layout!r}")
    return _positions(layout, rank)


def placed(shape: tuple[int, ...], spatial: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
    """`shape` with these extents at the spatial positions.

    >>> placed((2, 3, 9, 8), (2, 3), (5, 4))
    (2, 3, 5, 4)
    """
    result = list(shape)
    for position, n in zip(spatial, sizes, strict=True):
        result[position] = n
    return tuple(result)


@lru_cache(maxsize=256)
def _positions(layout: str, rank: int) -> tuple[int, ...]:
    if len(layout) != rank:
        raise PoolGradValueError(f"layout {layout!r} names {len(layout)} axes, but the array has {rank}")
    letters = sorted(set(layout) - set("NC"))
    digits = "".join(letters).isdecimal()
    known = letters == ["L"] or set(letters) <= set("DHW") or digits
    if len(set(layout)) != rank or not letters or not known:
        raise PoolGradValueError(
            f"layout must be made of N, C (both optional) and D, H, W or L or digits, each once, got {layout!r}"
        )
    return tuple(layout.index(letter) for letter in letters)
