"""How it is computed. Each engine is a module with one function

    run(sums, source, out, spatial, *, accumulate, threads)

that sums NumPy array `source` over `sums.tables` (one per position in `spatial`) into `out`. `numpy` is the
definition; every other engine gives the same bits. To add one: write that module, add its name to `ENGINES`.
"""

from __future__ import annotations

import os
import warnings
from functools import cache
from importlib import import_module
from types import ModuleType

from ..errors import PoolGradValueError

__all__ = ["ENGINES", "engine"]

ENGINES = ("native", "numpy")


@cache
def engine(name: str | None = None) -> ModuleType:
    """The engine called `name`, or the one that POOLGRAD_ENGINE names, or the fastest one here."""
    asked = name or os.environ.get("POOLGRAD_ENGINE") or None
    if asked not in (None, *ENGINES):
        raise PoolGradValueError(f"POOLGRAD_ENGINE must be one of {', '.join(ENGINES)}, got {asked!r}")
    try:
        return import_module(f".{asked or 'native'}", __name__)
    except ImportError as missing:
        if asked:
            raise
        warnings.warn(
            f"poolgrad's compiled core is absent ({missing}); the NumPy engine gives the same bits, slowly",
            RuntimeWarning,
            stacklevel=2,
        )
        return import_module(".numpy", __name__)
