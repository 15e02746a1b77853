"""One call of a gradient, in the core's own terms: a pooling, the shapes, the dtype and the numbers in `dy`.

A case is a value: everything about it follows from its fields, on every machine and in every version of NumPy, since the
numbers come from Python's own generator, whose stream is fixed. A *hostile* case has no answer: its pooling does not
fit `input_shape` (but does fit `fits`), or `dy` is not of the pooling's shape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from math import inf, nan, prod
from random import Random
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from .. import exact
from ..arguments import as_sizes
from ..dialects.pooling import Adaptive, Fractional, Pooling, Regular
from ..errors import PoolGradError, PoolGradTypeError, PoolGradValueError
from ..geometry import Pool
from ..layout import spatial_positions

__all__ = ["DTYPES", "VALUES", "Array", "Case", "dtype_of", "from_json", "shape_of_dy"]

Array = npt.NDArray[Any]

DTYPES = ("float16", "bfloat16", "float32", "float64")
VALUES = ("plain", "special", "spread", "counting")
KINDS: dict[str, type[Pooling]] = {"regular": Regular, "adaptive": Adaptive, "fractional": Fractional}


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


def shape_of_dy(pooling: Pooling, input_shape: Sequence[int]) -> tuple[int, ...]:
    """The shape of the pooling's output."""
    shape = list(input_shape)
    cells = pooling.pool(input_shape).output_size
    for position, n in zip(spatial_positions(pooling.layout, len(shape)), cells, strict=True):
        shape[position] = n
    return tuple(shape)


@dataclass(frozen=True)
class Case:
    """A gradient to compute.

    >>> case = Case("overlap 1-D/0", Regular("NLC", (3,), (1,), ((0, 0),)), (1, 4, 1), (1, 2, 1), values="counting")
    >>> case.dy().ravel(), case.want().ravel()
    (array([1., 2.], dtype=float32), array([0.33333334, 1.        , 1.        , 0.6666667 ], dtype=float32))
    """

    name: str
    pooling: Pooling
    input_shape: tuple[int, ...]
    dy_shape: tuple[int, ...]
    dtype: str = "float32"
    values: str = "plain"
    seed: int = 0
    fits: tuple[int, ...] | None = None

    @property
    def group(self) -> str:
        return self.name.split("/")[0]

    @cached_property
    def pool(self) -> Pool | None:
        """The tables, or None for a hostile call."""
        try:
            pool, shape = self.pooling.pool(self.input_shape), shape_of_dy(self.pooling, self.input_shape)
        except PoolGradError:
            return None
        return pool if shape == self.dy_shape else None

    @property
    def terms(self) -> int:
        """The most cells over one input: how many numbers are added at most."""
        if self.pool is None:
            return 0
        over = 1
        for axis in self.pool.axes:
            depth = np.zeros(axis.size + 1, dtype=np.int64)
            for start, stop in zip(axis.start, axis.stop, strict=True):
                depth[start : max(stop, start) : axis.step] += 1
            over *= int(depth.max())
        return over

    @property
    def size(self) -> int:
        """What "smallest" means: fewer elements first, then smaller windows."""
        window = self.pooling.window if isinstance(self.pooling, Regular) else ()
        return 1000 * (prod(self.input_shape) + prod(self.dy_shape)) + 10 * prod(window) + len(self.input_shape)

    def dy(self) -> Array:
        random, n = Random(self.seed), prod(self.dy_shape)
        if self.values == "counting":
            numbers = [float(k % 97 + 1) for k in range(n)]
        else:
            numbers = [(2 * random.random() - 1) * 2.0 ** (int(13 * random.random()) - 6) for _ in range(n)]
        if self.values == "special":
            odd = (nan, inf, -inf, -0.0, 0.0)
            numbers = [odd[int(5 * random.random())] if random.random() < 0.15 else v for v in numbers]
        values = np.array(numbers).reshape(self.dy_shape)
        return (self._spread(values) if self.values == "spread" else values).astype(dtype_of(self.dtype))

    def _spread(self, values: Array) -> Array:
        """All positive, and the first and the last cell so large that a sum kept in the dtype does not notice the others."""
        spatial = spatial_positions(self.pooling.layout, values.ndim)
        scale = np.ones([n if p in spatial else 1 for p, n in enumerate(values.shape)])
        scale.flat[[0, -1][: scale.size]] = 2.0 ** (ml_dtypes.finfo(dtype_of(self.dtype)).nmant + 2)
        return (abs(values) / 64 + 1) * scale

    def want(self) -> Array | None:
        """The exact gradient rounded once, or None where there is none."""
        if self.pool is None:
            return None
        return exact.gradient(self.pool, self.dy(), self.pooling.layout)

    def weight(self) -> Array:
        """The sum of the absolute values of every element's terms, in float64: the scale of its rounding errors."""
        if self.pool is None:
            raise PoolGradValueError(f"{self.name} has no answer")
        dy = np.nan_to_num(abs(self.dy().astype(np.float64)), nan=0.0, posinf=0.0)
        return exact.gradient(self.pool, dy, self.pooling.layout)

    def to_json(self) -> dict[str, Any]:
        kind = next(k for k, made in KINDS.items() if isinstance(self.pooling, made))
        rest = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("name", "pooling")}
        return {"name": self.name, "kind": kind, **asdict(self.pooling), **rest}


def from_json(record: Mapping[str, Any]) -> Case:
    """The case that `to_json` wrote down.

    >>> case = Case("empty/0", Adaptive("NCL", (2,)), (0, 3, 7), (0, 3, 2))
    >>> from_json(case.to_json()) == case
    True
    """
    given = {key: _tuples(value) for key, value in record.items()}
    kind = given.pop("kind", None)
    if kind not in KINDS:
        raise PoolGradValueError(f"a case's kind must be one of {', '.join(KINDS)}, got {kind!r}")
    own = [f.name for f in fields(Case) if f.name != "pooling"]
    try:
        pooling = KINDS[kind](**{key: value for key, value in given.items() if key not in own})
        case = Case(pooling=pooling, **{key: value for key, value in given.items() if key in own})
    except TypeError as wrong:
        raise PoolGradTypeError(f"case {record.get('name')!r} is not one of this format: {wrong}") from None
    elements = prod(as_sizes("input_shape", case.input_shape)) + prod(as_sizes("dy_shape", case.dy_shape))
    if elements > exact.LIMIT:
        raise PoolGradValueError(f"case {case.name!r} has {elements} elements, more than poolgrad.exact takes ({exact.LIMIT})")
    if case.dtype not in DTYPES or case.values not in VALUES:
        raise PoolGradValueError(f"case {case.name!r} has dtype {case.dtype!r} and values {case.values!r}, which are not known")
    return replace(case, name=str(case.name))


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, (list, tuple)) else value
