"""Every refusal this package makes, under one root.

A message names the argument, the value it had and what is allowed, so that the caller can mend the call without
reading our source.
"""

from __future__ import annotations

__all__ = ["PoolGradDeviceError", "PoolGradError", "PoolGradMemoryError", "PoolGradTypeError", "PoolGradValueError"]


class PoolGradError(Exception):
    """Root of every error raised on purpose by poolgrad."""


class PoolGradValueError(PoolGradError, ValueError):
    """An argument has a value that the operation cannot honour."""


class PoolGradTypeError(PoolGradError, TypeError):
    """An argument has a type that the operation cannot honour."""


class PoolGradMemoryError(MemoryError, PoolGradError):
    """The result does not fit this machine; nothing was touched."""

    # MemoryError comes first: it allocates itself, and with another first base `__new__` refuses, which the pickling of
    # exceptions with their tracebacks (tblib, hence Dask) calls.


class PoolGradDeviceError(PoolGradError, RuntimeError):
    """The GPU, its driver or its compiler is missing or refused to work."""
