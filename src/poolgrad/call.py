"""A call: one pooling of arrays of given shapes, in one direction, whatever kind of array they are.

Planned once and kept (ops.py); the engine, the GPU or Dask is chosen when the arrays come in.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from math import prod
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from . import far
from .arrays import DTYPES, check_device_out, check_fits, check_out, check_source, gpu_framework, is_dask
from .engines import engine
from .errors import PoolGradTypeError, PoolGradValueError
from .geometry import Pool, Region, integer
from .layout import placed, spatial_positions

__all__ = ["Array", "Call"]

Array = npt.NDArray[Any]

_PLAIN = frozenset(DTYPES)


class Call:
    """A pooling in one direction, bound to the shapes of its arrays; `region` limits it to a part of the result."""

    def __init__(self, pool: Pool, source_shape: tuple[int, ...], layout: str, forwards: bool, region: Region | None = None):
        self.pool, self.source_shape, self.layout, self.name = pool, source_shape, layout, "x" if forwards else "dy"
        self.elements = sum(pool.input_size) + sum(pool.output_size)
        self.spatial = spatial_positions(layout, len(source_shape))
        if len(self.spatial) != len(pool.axes):
            raise PoolGradValueError(f"layout {layout!r} has {len(self.spatial)} spatial axes, the pooling {len(pool.axes)}")
        whole = pool.output_size if forwards else pool.input_size
        boxes = [slice(*(r or slice(None)).indices(n)) for r, n in zip(region or [None] * len(whole), whole, strict=True)]
        self.region = region = None if region is None else boxes
        self.result_shape = placed(source_shape, self.spatial, tuple(len(range(part.start, part.stop)) for part in boxes))
        self.pieces = (pool.forward_pieces if forwards else pool.gradient_pieces)(region)
        self._bind: Callable[[], None] | None = self._bind_cpu
        self._quick: Callable[..., Array] | None = None
        self._threads: Callable[[], int] = lambda: 1
        self._large = prod(self.result_shape) > 2**27
        self._on_gpu: list[Any] = []
        self.given: tuple[Any, ...] = ()  # the arguments of its last use, and the kinds of all that it was used with
        self.kinds: set[Hashable] = set()

    def _bind_cpu(self) -> None:
        """On the first call with host arrays: the engine's own form of this call, if it has one."""
        if hasattr(engine(), "operation") and self._is_whole():
            bound = engine().operation(self.pieces[0].sums, self.spatial, self.source_shape, self.result_shape)
            self._quick, self._threads = bound.run, engine().default_threads
        self._bind = None

    def __call__(self, source: Array, out: Array | None, accumulate: bool, num_threads: int | None) -> Array:
        if type(source) is not np.ndarray and (framework := gpu_framework(source)) is not None:
            answer: Array = self._device_call(framework, source, out, accumulate)
            return answer
        if type(source) is not np.ndarray and is_dask(source):
            return cast(Array, self._lazy_call(source, out, accumulate, num_threads))
        if self._bind is not None:
            self._bind()
        if type(source) is not np.ndarray or source.dtype not in _PLAIN:
            source = check_source(self.name, source)
        if accumulate is not False and accumulate is not True:
            raise PoolGradTypeError(f"accumulate must be True or False, got {accumulate!r}")
        if num_threads is not None:
            num_threads = min(integer("num_threads", num_threads, 1), 1024)
        if out is not None:
            result = check_out(out, source, self.result_shape)
        elif accumulate:
            raise PoolGradValueError("accumulate=True adds to out; give an out array")
        else:
            if self._large:
                check_fits("the result", self.result_shape, source.dtype)
            if self._quick is not None:
                return self._quick(source, None, False, num_threads or self._threads())
            result = np.empty(self.result_shape, dtype=source.dtype)
        if self._quick is not None:
            self._quick(source, result, accumulate, num_threads or self._threads())
        else:
            for piece in self.pieces:
                part, place = self._view(source, piece.take), self._view(result, piece.put)
                far.run(piece.sums, part, place, self.spatial, accumulate=accumulate, threads=num_threads)
        return out if out is not None else result

    def _device_call(self, framework: Any, array: Any, out: Any, accumulate: bool) -> Any:
        """The same on a GPU: planned once, launched on the caller's stream, the result an array of the same kind."""
        if accumulate is not False and accumulate is not True:
            raise PoolGradTypeError(f"accumulate must be True or False, got {accumulate!r}")
        source = framework.describe(self.name, array)
        if out is not None:
            result, place = out, check_device_out(out, framework, source, self.result_shape)
        elif accumulate:
            raise PoolGradValueError("accumulate=True adds to out; give an out array")
        else:
            result = framework.empty(array, source, self.result_shape)
            place = framework.describe("the result", result)
        if not self._on_gpu:
            from .engines.gpu import Operation

            self._on_gpu = [Operation(piece.sums, self.spatial) for piece in self.pieces]
        held: list[Any] = [array]

        def scratch(size: int) -> Any:
            held.append(framework.scratch(array, size))
            return held[-1]

        for piece, operation in zip(self.pieces, self._on_gpu, strict=True):
            part, there = source.part(self.spatial, piece.take), place.part(self.spatial, piece.put)
            operation.run(part, there, accumulate=accumulate, scratch=scratch)
        return framework.finish(result, source, held)

    def device_launch(self, array: Any, out: Any) -> Any:
        """What the call just made on these GPU arrays launches, for more of its kind; None if it does several things."""
        framework = gpu_framework(array)
        if framework is None or not self._is_whole() or 0 in self.result_shape:
            return None
        return self._on_gpu[0].bound(framework.describe(self.name, array), framework.describe("out", out))

    def _lazy_call(self, source: Any, out: Any, accumulate: bool, num_threads: int | None) -> Any:
        """The same on a Dask array: nothing is computed before the result is asked for."""
        if out is not None or accumulate is not False:
            raise PoolGradTypeError("out and accumulate are not for Dask arrays, whose results are lazy; use the result instead")
        if num_threads is not None:
            num_threads = min(integer("num_threads", num_threads, 1), 1024)
        from .dask import lazily

        return lazily(source, self.pool, self.layout, self.region, forwards=self.name == "x", threads=num_threads)

    def _is_whole(self) -> bool:
        """Whether one engine call on the arrays themselves does all of it: no residue classes to pick out."""
        if len(self.pieces) != 1 or far.is_far(self.pieces[0].sums):
            return False
        tables = zip(self.pieces[0].sums.tables, self.spatial, strict=True)
        return all((t.rows, t.positions) == (self.source_shape[p], self.result_shape[p]) for t, p in tables)

    def _view(self, array: Array, parts: tuple[slice, ...]) -> Array:
        index = [slice(None)] * array.ndim
        for position, part in zip(self.spatial, parts, strict=True):
            index[position] = part
        return array[tuple(index)]
