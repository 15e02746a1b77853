"""The dialects by name. A dialect is imported when it is asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Protocol, cast

from ..errors import PoolGradValueError
from .pooling import Pooling

__all__ = ["NAMES", "Dialect", "dialect"]

NAMES = {
    "poolgrad": "core",
    "tensorflow": "tensorflow",
    "directml": "directml",
    "enuspace": "enuspace",
    "torch": "torch",
    "onnx": "onnx",
    "jax": "jax",
    "keras": "keras",
}
"""The dialects and the modules that speak them; ``poolgrad`` is the core's own arguments."""


class Dialect(Protocol):
    """What every dialect's module offers to translation."""

    def read(self, arguments: Mapping[str, Any], input_shape: Sequence[int]) -> Pooling: ...

    def write(self, pooling: Pooling, input_shape: Sequence[int]) -> dict[str, Any]: ...


def dialect(name: str) -> Dialect:
    """The dialect of this name.

    >>> dialect("keras").read({"pool_size": 2}, (1, 6, 8, 3)).pool((1, 6, 8, 3)).output_size
    (3, 4)
    """
    if not isinstance(name, str) or name not in NAMES:
        raise PoolGradValueError(f"a dialect must be one of {', '.join(map(repr, NAMES))}, got {name!r}")
    return cast(Dialect, import_module(f".{NAMES[name]}", __package__))
