"""PyTorch through `torch.compile` (Inductor), forward and backward compiled for each case.

Compiling takes seconds a case, so by default a few cases of every group are tried, for some minutes.
"""

from __future__ import annotations

from functools import partial

from . import torch
from .base import Target

__all__ = ["TARGET"]

TARGET = Target(
    name="torch.compile",
    source=partial(torch.source, compiled=True),
    imports="import torch\nimport torch._inductor",
    version="torch.__version__",
    refusals=("RuntimeError", "NotImplementedError"),
    # Compiles in the worker itself, so that ending the worker ends everything.
    environment={"TORCHINDUCTOR_COMPILE_THREADS": "1"},
    timeout=60.0,
    limit=2,
    budget=90.0,
)
