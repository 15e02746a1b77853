"""TensorFlow's own kernels: the same calls with oneDNN switched off."""

from __future__ import annotations

from dataclasses import replace

from . import tensorflow
from .base import Target

__all__ = ["TARGET"]

TARGET: Target = replace(
    tensorflow.TARGET,
    name="tensorflow-native",
    environment={**tensorflow.TARGET.environment, "TF_ENABLE_ONEDNN_OPTS": "0"},
)
