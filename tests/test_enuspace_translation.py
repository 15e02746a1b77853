"""enuSpace's property texts into the common record and back."""

from __future__ import annotations

from typing import Any

import pytest

from poolgrad.dialects.pooling import Adaptive, Fractional, NoTranslation, Regular
from poolgrad.enuspace import BLOCKS, read, write
from poolgrad.errors import PoolGradError

POOLINGS: list[tuple[Any, tuple[int, ...]]] = [
    (Regular("NHWC", (2, 3), (1, 2), ((0, 0), (0, 0))), (1, 6, 7, 2)),
    (Regular("NCDHW", (2, 2, 2), (2, 2, 2), ((0, 0),) * 3), (1, 3, 4, 6, 8)),
    (Adaptive("NHWC", (1, 1)), (2, 5, 6, 3)),
    (Fractional("NHWC", ((0, 2, 5), (0, 3, 4, 7)), overlapping=True), (1, 5, 7, 2)),
]


@pytest.mark.parametrize(("pooling", "shape"), POOLINGS)
def test_translation_keeps_the_tables(pooling: Any, shape: tuple[int, ...]) -> None:
    texts = write(pooling, shape)
    assert all(isinstance(text, str) for text in texts.values())
    assert read(texts, shape).pool(shape) == pooling.pool(shape)
    assert texts["block"] in BLOCKS


def test_no_translation() -> None:
    with pytest.raises(NoTranslation, match="draws its boundaries"):
        read({"pooling_ratio": "1,2,2,1"}, (1, 4, 4, 1))
    with pytest.raises(NoTranslation):
        write(Regular("NHWC", (2, 2), (1, 1), ((1, 1), (0, 1)), count="window"), (1, 5, 5, 1))
    with pytest.raises(PoolGradError, match="has no property kernel"):
        read({"kernel": "2"}, (1, 4, 4, 1))
    with pytest.raises(PoolGradError, match="block must be"):
        read({"block": "MatMul"}, (1, 4, 4, 1))
