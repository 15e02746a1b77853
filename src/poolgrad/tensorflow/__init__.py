"""Average pooling for TensorFlow: its six raw ops with derivatives of every order, and Keras layers.

>>> import tensorflow as tf, poolgrad.tensorflow as pt
>>> x = tf.reshape(tf.range(6.0), (1, 2, 3, 1))
>>> with tf.GradientTape() as tape:
...     tape.watch(x)
...     y = pt.AvgPool(value=x, ksize=[1, 2, 2, 1], strides=[1, 1, 1, 1], padding="SAME")
>>> tape.gradient(y, x).numpy().reshape(2, 3)
array([[0.25, 0.5 , 0.75],
       [0.75, 1.5 , 2.25]], dtype=float32)

The layers (`AveragePooling1D`, `2D`, `3D`, `FractionalAveragePooling2D`) import Keras when they are first asked for.
"""

from importlib import import_module
from typing import Any

from .fractional import FractionalAvgPool, FractionalAvgPoolGrad, FractionalAvgPoolOutput, fractional_avg_pool_at
from .ops import AvgPool, AvgPool3D, AvgPool3DGrad, AvgPoolGrad, avg_pool

_LAYERS = ("AveragePooling1D", "AveragePooling2D", "AveragePooling3D", "FractionalAveragePooling2D")


def __getattr__(name: str) -> Any:
    if name in _LAYERS:
        return getattr(import_module(".layers", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAYERS})


__all__ = [
    "AveragePooling1D",
    "AveragePooling2D",
    "AveragePooling3D",
    "AvgPool",
    "AvgPool3D",
    "AvgPool3DGrad",
    "AvgPoolGrad",
    "FractionalAveragePooling2D",
    "FractionalAvgPool",
    "FractionalAvgPoolGrad",
    "FractionalAvgPoolOutput",
    "avg_pool",
    "fractional_avg_pool_at",
]
