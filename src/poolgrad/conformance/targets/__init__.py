"""The implementations that can be tested by name, one file each; a file is read when its target is asked for."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from ...errors import PoolGradValueError
from .base import Target
from .function import function_target

__all__ = ["TARGETS", "Target", "target_named"]

TARGETS = {
    "torch": "torch",
    "torch.compile": "torch_compile",
    "tensorflow": "tensorflow",
    "tensorflow-native": "tensorflow_native",
    "jax": "jax",
    "onnxruntime-training": "onnxruntime_training",
}
"""The names and the modules that hold them."""


def target_named(name: str) -> Target:
    """The target of this name, or the user's function.

    >>> target_named("poolgrad:avg_pool_grad").refusals
    ('NotImplementedError',)
    """
    if not isinstance(name, str) or not (name in TARGETS or ":" in name):
        known = ", ".join(map(repr, TARGETS))
        raise PoolGradValueError(f"target must be one of {known}, or 'package.module:function', got {name!r}")
    if name not in TARGETS:
        return function_target(name)
    return cast(Target, import_module(f".{TARGETS[name]}", __package__).TARGET)
