"""What repeats in a table: the form in which a kernel can be written down for it.

A short table (`Pattern`) is cut into tiles of a few positions; if every tile is the same but for a shift, and cells beyond
the edge are left out, one text serves them all. A long table is cut into large tiles that may look a few different ways
(`Variant`), since the order of additions at an edge is the clipped interval's own.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from ...tables import BLOCK, Ints, Table

__all__ = ["Pattern", "Variant", "Variants", "is_regular", "pattern", "variants"]

Bools = npt.NDArray[np.bool_]

MOST_VARIANTS = 5
MOST_CELLS = 640
"""Cells and positions of all variants together: the length of a text that still compiles quickly."""


class Pattern(NamedTuple):
    """Tile q makes positions q·tile … and needs the `box` cells from q·advance + offset on; intervals are relative to the box."""

    tile: int
    advance: int
    offset: int
    box: int
    lo: tuple[int, ...]
    hi: tuple[int, ...]
    positions: int
    rows: int
    masked: bool
    ragged: bool
    covered: tuple[int, int] | None
    """The positions that have any cell, if not all have."""

    @property
    def at_once(self) -> int:
        """Most positions whose sums are open at the same time."""
        return max(sum(lo <= j < hi for lo, hi in zip(self.lo, self.hi, strict=True)) for j in range(self.box))


def pattern(table: Table, tile: int) -> Pattern | None:
    """The pattern of `table` in tiles of so many positions, or None if it has none."""
    lo, hi, n, rows = table.lo, table.hi, table.positions, table.rows
    count = -(-n // tile)
    middle = (count - 1) // 2
    a, b = middle * tile, min((middle + 1) * tile, n)
    advance = int(lo[b] - lo[a]) if b < n else 0
    shift = middle * advance
    first = np.resize(lo[a:b] - shift, tile)
    stop = np.resize(hi[a:b] - shift, tile)
    i = np.arange(n)
    tile_lo, tile_hi = first[i % tile] + i // tile * advance, stop[i % tile] + i // tile * advance
    clipped_lo, clipped_hi = np.clip(tile_lo, 0, rows), np.clip(tile_hi, 0, rows)
    full = lo < hi
    if (full != (clipped_lo < clipped_hi)).any() or (lo[full] != clipped_lo[full]).any() or (hi[full] != clipped_hi[full]).any():
        return None
    used = first < stop
    if not used.any() or b - a < tile <= n:
        return None
    offset = int(first[used].min())
    box = int(stop[used].max()) - offset
    starts = offset + advance * np.arange(count)
    masked = bool((starts < 0).any() or (starts + box > rows).any())
    return Pattern(
        tile,
        advance,
        offset,
        box,
        tuple(np.where(used, first - offset, 0).tolist()),
        tuple(np.where(used, stop - offset, 0).tolist()),
        n,
        rows,
        masked,
        n % tile > 0,
        _covered(full, tile_lo < tile_hi),
    )


def is_regular(table: Table) -> bool:
    """Whether both edges move evenly, so that a text written for the table is likely to be asked for again."""
    return table.base == 0 and _even(table.lo) and _even(table.hi)


def _even(edge: Ints) -> bool:
    """Whether `edge` grows by equal jumps at equal distances; its first and last jump may be clipped."""
    jumps = np.diff(edge)
    at = np.flatnonzero(jumps)
    gaps, inner = np.diff(at), jumps[at[1:-1]]
    return bool((gaps == gaps[:1]).all() and (inner == inner[:1]).all())


def _covered(full: Bools, drawn: Bools) -> tuple[int, int] | None:
    """The range outside of which positions have no cell although their tile draws one."""
    if (full == drawn).all():
        return None
    hits = np.flatnonzero(full)
    return int(hits[0]), int(hits[-1]) + 1


class Variant(NamedTuple):
    """The intervals of a tile, relative to its first cell."""

    lo: tuple[int, ...]
    hi: tuple[int, ...]


class Variants(NamedTuple):
    """The ways a tile can look, and the tiles: (which way, first cell, first position)."""

    looks: tuple[Variant, ...]
    tiles: tuple[tuple[int, int, int], ...]

    @property
    def open_cells(self) -> int:
        """Longest interval in cells: about what a thread must remember."""
        return max(max(b - a for a, b in zip(look.lo, look.hi, strict=True)) for look in self.looks)


def variants(table: Table) -> Variants | None:
    """`table` in the fewest kinds of tiles, or None if its tiles are all different or too long to write down."""
    n = table.positions
    step = BLOCK ** (len(table.reach) - 1)
    for tile in (n, 128, 64, 96, 32):
        if tile > 160 or tile > n:
            continue
        found = _cut(table.lo, table.hi, n, tile, step)
        size = sum(len(look.lo) + max(look.hi) for look in found.looks)
        if len(found.looks) <= MOST_VARIANTS and size <= MOST_CELLS:
            return found
    return None


def _cut(lo: Ints, hi: Ints, n: int, tile: int, step: int) -> Variants:
    looks: dict[Variant, int] = {}
    tiles = []
    for a in range(0, n, tile):
        b = min(a + tile, n)
        base = int(lo[a]) // step * step
        look = Variant(tuple((lo[a:b] - base).tolist()), tuple((hi[a:b] - base).tolist()))
        tiles.append((looks.setdefault(look, len(looks)), base, a))
    return Variants(tuple(looks), tuple(tiles))
