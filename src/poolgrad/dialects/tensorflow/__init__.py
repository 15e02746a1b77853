"""TensorFlow's average pooling: its raw ops, its fractional sequences, its integers.

`docs/tensorflow.md` says what is the same and what is better.
"""

from .fractional import (
    FractionalAvgPool,
    FractionalAvgPoolGrad,
    FractionalAvgPoolOutput,
    fractional_avg_pool,
    fractional_avg_pool_at,
)
from .ops import AvgPool, AvgPool3D, AvgPool3DGrad, AvgPoolGrad
from .sequences import philox, pooled_size, pooling_sequence
from .translation import read, write

__all__ = [
    "AvgPool",
    "AvgPool3D",
    "AvgPool3DGrad",
    "AvgPoolGrad",
    "FractionalAvgPool",
    "FractionalAvgPoolGrad",
    "FractionalAvgPoolOutput",
    "fractional_avg_pool",
    "fractional_avg_pool_at",
    "philox",
    "pooled_size",
    "pooling_sequence",
    "read",
    "write",
]
