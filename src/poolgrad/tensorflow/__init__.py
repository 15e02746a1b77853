"""Average pooling for TensorFlow."""

from .fractional import FractionalAvgPool, FractionalAvgPoolGrad, FractionalAvgPoolOutput, fractional_avg_pool_at
from .ops import AvgPool, AvgPool3D, AvgPool3DGrad, AvgPoolGrad, avg_pool

__all__ = ["AvgPool", "AvgPool3D", "AvgPool3DGrad", "AvgPoolGrad", "FractionalAvgPool", "FractionalAvgPoolGrad", "FractionalAvgPoolOutput", "avg_pool", "fractional_avg_pool_at"]
