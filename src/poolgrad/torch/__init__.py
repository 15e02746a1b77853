"""Average pooling for PyTorch: its functions and modules with a faster, deterministic backward, and what it lacks.

>>> import torch, poolgrad.torch as pt
>>> x = torch.arange(6.0).reshape(1, 1, 2, 3).requires_grad_()
>>> y = pt.avg_pool2d(x, 2, stride=1, padding="same", count_include_pad=False)
>>> y.backward(torch.ones_like(y))
>>> x.grad
tensor([[[[0.2500, 0.5000, 0.7500],
          [0.7500, 1.5000, 2.2500]]]])

`accelerate()` gives an existing model our backward without changing it.
"""

from .functional import (
    adaptive_avg_pool,
    adaptive_avg_pool1d,
    adaptive_avg_pool2d,
    adaptive_avg_pool3d,
    avg_pool,
    avg_pool1d,
    avg_pool2d,
    avg_pool3d,
    fractional_avg_pool,
)
from .modules import (
    AdaptiveAvgPool,
    AdaptiveAvgPool1d,
    AdaptiveAvgPool2d,
    AdaptiveAvgPool3d,
    AvgPool,
    AvgPool1d,
    AvgPool2d,
    AvgPool3d,
    FractionalAvgPool,
)
from .takeover import Acceleration, accelerate

__all__ = [
    "Acceleration",
    "AdaptiveAvgPool",
    "AdaptiveAvgPool1d",
    "AdaptiveAvgPool2d",
    "AdaptiveAvgPool3d",
    "AvgPool",
    "AvgPool1d",
    "AvgPool2d",
    "AvgPool3d",
    "FractionalAvgPool",
    "accelerate",
    "adaptive_avg_pool",
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "avg_pool",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "fractional_avg_pool",
]
