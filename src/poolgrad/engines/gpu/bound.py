"""A plan bound to a device: kernels compiled, tables uploaded, arguments packed but for the pointers of a call."""

from __future__ import annotations

import ctypes
import struct
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from .view import Launch, Plan, Pointer

__all__ = ["Bound"]


class Bound:
    """What is left to do for a call: put the pointers in and launch."""

    def __init__(self, plan: Plan, device: Any, captured: bool = False) -> None:
        self.device, self.scratch = device, plan.scratch
        self._tables: list[Any] = []
        self._launches = [self._bind(launch) for launch in plan.launches]
        for table in self._tables:
            table.pinned = captured  # a graph may read it as long as the process lives
        self._packing = threading.Lock()  # the packed arguments are one for all threads

    def _bind(self, launch: Launch) -> tuple[Any, list[tuple[int, Any]]]:
        """The launch made ready, and the places of the pointers in it."""
        kernel = self.device.kernel(launch.source, launch.name, launch.shared)
        places, packed = [], bytearray()
        for argument in launch.arguments:
            if isinstance(argument, Pointer):
                places.append((len(packed), argument.which))
                argument = 0
            if isinstance(argument, np.ndarray):
                argument = self._uploaded(argument)
            packed += struct.pack("<d" if isinstance(argument, float) else "<q", argument)
        arguments = ctypes.create_string_buffer(bytes(packed), len(packed))
        grid = -(-launch.threads // launch.block)
        ready = self.device.ready(kernel, grid, launch.block, launch.shared, arguments)
        return ready, [(which, ctypes.c_uint64.from_buffer(arguments, at)) for at, which in places]

    def _uploaded(self, table: npt.NDArray[Any]) -> int:
        self._tables.append(self.device.upload(table))
        pointer: int = self._tables[-1].pointer
        return pointer

    def run(self, pointers: list[int], stream: int) -> None:
        """Launch on `stream`; `pointers` are those of the source, the result and the scratch."""
        if self.device.is_current():
            return self._run(pointers, stream)
        with self.device.current():
            return self._run(pointers, stream)

    def _run(self, pointers: list[int], stream: int) -> None:
        with self._packing:
            for ready, places in self._launches:
                for which, place in places:
                    place.value = pointers[which]
                self.device.launch(ready, stream)
