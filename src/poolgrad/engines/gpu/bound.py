"""A plan bound to a device: kernels compiled, tables uploaded, arguments packed but for the pointers of a call."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from .view import Launch, Plan, Pointer

__all__ = ["Bound"]


class Bound:
    """What is left to do for a call: put the pointers in and launch."""

    def __init__(self, plan: Plan, device: Any) -> None:
        self.device, self.scratch = device, plan.scratch
        self._tables: list[Any] = []
        self._launches = [self._bind(launch) for launch in plan.launches]

    def _bind(self, launch: Launch) -> tuple[Any, int, int, int, bytes, list[tuple[int, int]]]:
        kernel = self.device.kernel(launch.source, launch.name, launch.shared)
        holes, packed = [], bytearray()
        for argument in launch.arguments:
            if isinstance(argument, Pointer):
                holes.append((len(packed), argument.which))
                argument = 0
            if isinstance(argument, np.ndarray):
                argument = self._uploaded(argument)
            packed += struct.pack("<d" if isinstance(argument, float) else "<q", argument)
        grid = -(-launch.threads // launch.block)
        return kernel, grid, launch.block, launch.shared, bytes(packed), holes

    def _uploaded(self, table: npt.NDArray[Any]) -> int:
        self._tables.append(self.device.upload(table))
        pointer: int = self._tables[-1].pointer
        return pointer

    def run(self, pointers: list[int], stream: int) -> None:
        """Launch on `stream`; `pointers` are those of the source, the result and the scratch."""
        with self.device.current():
            if self.device.is_capturing(stream):
                for table in self._tables:
                    table.pinned = True
            for kernel, grid, block, shared, packed, holes in self._launches:
                arguments = bytearray(packed)
                for at, which in holes:
                    struct.pack_into("<Q", arguments, at, pointers[which])
                self.device.launch(kernel, grid, block, shared, stream, bytes(arguments))
