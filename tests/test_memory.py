"""The store of freed results: bounded, and what is not likely to be used soon the system may take back."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import poolgrad
from poolgrad.engines import _native

MIB = 1 << 20
ROLLUP = Path("/proc/self/smaps_rollup")


def results(count: int, mib: int) -> list[Any]:
    """As many results of `mib` MiB, all alive at once."""
    dy = np.random.default_rng(3).random((mib, 256, 256), dtype=np.float32)
    return [poolgrad.avg_pool_grad(dy, (mib, 512, 512), 2, layout="CHW") for _ in range(count)]


def held() -> int:
    return _native.held_bytes()


def test_a_freed_result_is_used_again():
    _native.release_held()
    (first,) = results(1, 32)
    address = first.ctypes.data
    del first
    assert held() == 32 * MIB
    (second,) = results(1, 32)
    assert second.ctypes.data == address
    assert held() == 0


def test_the_store_is_bounded():
    _native.release_held()
    made = results(5, 128)
    del made
    assert held() == 512 * MIB
    _native.release_held()
    assert held() == 0


@pytest.mark.skipif(not sys.platform.startswith("linux") or not ROLLUP.exists(), reason="Linux tells what it may take back")
def test_older_blocks_are_lent_to_the_system():
    _native.release_held()
    before = lent()
    made = results(4, 64)
    del made
    assert lent() - before < 16 * MIB, "what the next calls will take is not lent"
    made = results(7, 64)
    del made
    assert held() == 448 * MIB
    assert 128 * MIB < lent() - before <= 192 * MIB, "the three blocks given first"
    _native.release_held()


def lent() -> int:
    """Bytes of this process that the system may take back whenever it likes."""
    (kib,) = re.findall(r"^LazyFree:\s*(\d+) kB", ROLLUP.read_text(encoding="ascii"), re.MULTILINE)
    return int(kib) * 1024
