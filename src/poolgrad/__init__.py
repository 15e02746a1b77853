"""Average pooling and, above all, its gradient: one answer to the bit, at the speed of memory.

>>> import numpy as np, poolgrad
>>> dy = np.array([[1, 2], [3, 4]], dtype=np.float32)
>>> poolgrad.avg_pool_grad(dy, (3, 3), 2, stride=1, layout="HW")
array([[0.25, 0.75, 0.5 ],
       [1.  , 2.5 , 1.5 ],
       [0.75, 1.75, 1.  ]], dtype=float32)
"""

from importlib import import_module
from types import ModuleType

from .errors import (
    PoolGradDeviceError,
    PoolGradError,
    PoolGradMemoryError,
    PoolGradTypeError,
    PoolGradValueError,
)
from .explain import explain
from .geometry import Axis, Pool
from .ops import (
    adaptive_avg_pool,
    adaptive_avg_pool_grad,
    avg_pool,
    avg_pool_grad,
    forward,
    fractional_avg_pool,
    fractional_avg_pool_grad,
    gradient,
)

__version__ = "0.1.0"

_MODULES = ("conformance", "dialects", "directml", "enuspace", "exact", "raw_ops", "volumes")


def __getattr__(name: str) -> ModuleType:
    """Modules that are imported when they are first asked for."""
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})


__all__ = [
    "Axis",
    "Pool",
    "PoolGradDeviceError",
    "PoolGradError",
    "PoolGradMemoryError",
    "PoolGradTypeError",
    "PoolGradValueError",
    "adaptive_avg_pool",
    "adaptive_avg_pool_grad",
    "avg_pool",
    "avg_pool_grad",
    "explain",
    "forward",
    "fractional_avg_pool",
    "fractional_avg_pool_grad",
    "gradient",
]
