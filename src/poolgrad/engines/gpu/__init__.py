"""The GPU engine: what `numpy.py` defines, at the speed of the device's memory, with the same bits.

Arrays are `DeviceArray` records: a pointer, a shape, strides, a dtype, a device and the caller's stream. A call is planned once
for its shapes (`written`, `general`), bound once to its device (`bound`), and launched on the caller's stream; nothing waits for
the device. Kernels are CUDA C++, compiled at run time by NVRTC; no framework is needed. How PyTorch, CuPy and JAX arrays come
here stands in `frameworks`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...tables import Sums
from . import general, written
from .bound import Bound
from .record import DeviceArray
from .view import Plan, view_of

__all__ = ["WORTH_WRITING", "DeviceArray", "Operation", "plan", "run"]

WORTH_WRITING = 1 << 15
"""Elements of a result from which on a kernel of its own is compiled."""

MOST_SHARED = 227 * 1024
"""Bytes of shared memory that a block may have on the devices we know best."""

MOST_BOUND = 64
"""Arrangements of arrays whose launches are kept."""

Scratch = Callable[[int], Any]


def plan(
    sums: Sums,
    source: DeviceArray,
    out: DeviceArray,
    spatial: tuple[int, ...],
    *,
    accumulate: bool,
    shared: int = MOST_SHARED,
    captured: bool = False,
) -> Plan:
    """The launches that sum `source` over the tables into `out`, on a device whose blocks may have `shared` bytes.

    A call that a graph captures is worth a kernel of its own, whatever its size.
    """
    if 0 in out.shape:
        return Plan((), ())
    wide = np.dtype(np.float64 if source.dtype == np.float64 else np.float32)
    views = view_of(source, 0), view_of(out, 1)
    made = None
    if 0 not in source.shape and (captured or views[1].size >= WORTH_WRITING):
        made = written.plan(sums, *views, spatial, wide, accumulate, shared)
    return made or general.plan(sums, *views, spatial, wide, accumulate)


class Operation:
    """Sums bound to nothing yet; what was planned for one arrangement of arrays is kept for the next call."""

    def __init__(self, sums: Sums, spatial: tuple[int, ...]) -> None:
        self.sums, self.spatial = sums, spatial
        self._bound: dict[Any, Bound] = {}

    def bound(self, source: DeviceArray, out: DeviceArray, accumulate: bool = False, device: Any = None) -> Bound:
        """The call on arrays that lie like these, on the stream of `out`; a captured one is the graph's for good."""
        if device is None:
            from .driver import device as device_of

            device = device_of(out.device)
        captured = device.is_capturing(out.stream)
        key = (source[1:5], out[1:5], source.pointer % 16, out.pointer % 16, accumulate, captured)
        bound = self._bound.get(key)
        if bound is None:
            options = {"accumulate": accumulate, "shared": device.shared, "captured": captured}
            made = plan(self.sums, source, out, self.spatial, **options)
            if len(self._bound) >= MOST_BOUND:
                self._bound.clear()
            bound = self._bound[key] = Bound(made, device, captured)
        return bound

    def run(self, source: DeviceArray, out: DeviceArray, *, accumulate: bool, scratch: Scratch, device: Any = None) -> None:
        """Launch on the stream of `out`. `scratch(bytes)` allocates on that stream; it returns an object with `pointer`."""
        bound = self.bound(source, out, accumulate, device)
        held = [scratch(size) for size in bound.scratch]
        bound.run([source.pointer, out.pointer, *(piece.pointer for piece in held)], out.stream)


def run(
    sums: Sums, source: DeviceArray, out: DeviceArray, spatial: tuple[int, ...], *, accumulate: bool, scratch: Scratch
) -> None:
    """Sum `source` over the tables into `out`; `spatial` are the positions of the axes, in the order of the tables."""
    Operation(sums, spatial).run(source, out, accumulate=accumulate, scratch=scratch)
