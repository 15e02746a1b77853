"""Pooling sequences as TensorFlow draws them: Philox4x32-10 numbers made into the boundaries of cells.

A sequence has one more entry than there are cells. It starts at 0 and ends at the size; a cell is as long as
`size // cells` or one longer. Equal seeds give TensorFlow's own sequence, to the element.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
import numpy.typing as npt

from ...errors import PoolGradValueError
from ...geometry import MAX_LENGTH, integer

__all__ = ["philox", "pooled_size", "pooling_sequence"]

Sequence64 = npt.NDArray[np.int64]

WORD = (1 << 32) - 1
BLOCKS = 64
ROUNDS = 10
MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
KEY_STEPS = 0x9E3779B9, 0xBB67AE85


def philox(seed: int, seed2: int = 0) -> Iterator[int]:
    """TensorFlow's stream of 32-bit numbers: the key is `seed`, the upper half of the 128-bit counter is `seed2`.

    >>> from itertools import islice
    >>> list(islice(philox(1, 2), 3))
    [3878945999, 2364392915, 1057429302]
    """
    return _stream(_halves(integer("seed", seed, -(2**63))), _halves(integer("seed2", seed2, -(2**63))))


def _stream(key: tuple[int, int], upper: tuple[int, int]) -> Iterator[int]:
    for block in range(0, 1 << 64, BLOCKS):
        yield from _blocks(key, upper, block).tolist()
    raise AssertionError("a stream of 2^66 numbers has been used up")


def _halves(value: int) -> tuple[int, int]:
    return value & WORD, (value >> 32) & WORD


def _blocks(key: tuple[int, int], upper: tuple[int, int], first: int) -> npt.NDArray[np.uint64]:
    """The numbers of the blocks `first … first + BLOCKS - 1`, four each; words are kept in 64 bits for the products."""
    count = np.arange(first, first + BLOCKS, dtype=np.uint64)
    word, shift = np.uint64(WORD), np.uint64(32)
    a, b = count & word, count >> shift
    c, d = np.full(BLOCKS, upper[0], dtype=np.uint64), np.full(BLOCKS, upper[1], dtype=np.uint64)
    for k in range(ROUNDS):
        x, y = (np.uint64((key[j] + k * KEY_STEPS[j]) & WORD) for j in (0, 1))
        p, q = a * MULTIPLIERS[0], c * MULTIPLIERS[1]
        a, b, c, d = (q >> shift) ^ b ^ x, q & word, (p >> shift) ^ d ^ y, p & word
    return np.stack([a, b, c, d], axis=1).ravel()


def pooled_size(size: int, ratio: float) -> int:
    """How many cells an axis of this size is pooled to: the quotient in float32, rounded down.

    >>> pooled_size(10, 1.44), pooled_size(6, 6)
    (6, 1)
    """
    if not isinstance(ratio, (int, float, np.integer, np.floating)) or not 1 <= ratio <= integer("size", size, 1):
        raise PoolGradValueError(f"ratio must be a number from 1 to the size {size}, got {ratio!r}")
    return int(np.floor(np.float32(size) / np.float32(ratio)))


def pooling_sequence(size: int, cells: int, numbers: Iterator[int], *, pseudo_random: bool = False) -> Sequence64:
    """The boundaries of `cells` cells on an axis of `size`, drawn from a stream of 32-bit numbers.

    A pseudo-random sequence takes one block of four numbers from the stream, a random one four for every four cells
    begun. The next axis goes on where this one stopped.

    >>> numbers = philox(5, 7)
    >>> pooling_sequence(10, 6, numbers), pooling_sequence(7, 4, numbers, pseudo_random=True)
    (array([ 0,  1,  3,  4,  6,  8, 10]), array([0, 2, 3, 5, 7]))
    """
    size = integer("size", size, 1)
    if integer("cells", cells, 1) > size:
        raise PoolGradValueError(f"cells must be at most the size {size}, got {cells}")
    if size > MAX_LENGTH:
        raise PoolGradValueError(f"size must be at most {MAX_LENGTH}, got {size}")
    needed = 4 if pseudo_random else -(-cells // 4) * 4
    drawn = list(islice(numbers, needed))
    if len(drawn) < needed:
        raise PoolGradValueError(f"numbers must yield {needed} integers for {cells} cells, got {len(drawn)}")
    if size % cells == 0:
        return np.arange(cells + 1, dtype=np.int64) * (size // cells)
    inner = _pseudo_random(size, cells, drawn) if pseudo_random else _random(size, cells, drawn)
    return np.concatenate([[0], inner, [size]]).astype(np.int64)


def _pseudo_random(size: int, cells: int, drawn: list[int]) -> npt.NDArray[np.float64]:
    """Graham's ceil(alpha·(i + u)), with u small enough that no cell is longer than `shortest + 1`."""
    shortest, alpha = size // cells, size / cells
    most = min((shortest + 2) / alpha - 1, (size + 1 - shortest) / alpha - (cells - 1))
    u = ((drawn[0] & 0xFFFFF) * 2**32 + drawn[1]) / 2**52 * most
    return np.asarray(np.ceil(alpha * (np.arange(1, cells) + u)) - 1)


def _random(size: int, cells: int, drawn: list[int]) -> Sequence64:
    """The longer cells first, then shuffled from the front."""
    lengths = [size // cells + (k < size % cells) for k in range(cells)]
    for i in range(cells - 1):
        j = i + drawn[i] % (cells - i)
        lengths[i], lengths[j] = lengths[j], lengths[i]
    return np.cumsum(lengths[:-1], dtype=np.int64)
