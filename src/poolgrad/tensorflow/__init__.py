"""Average pooling for TensorFlow."""

from .ops import AvgPool, AvgPool3D, AvgPool3DGrad, AvgPoolGrad, avg_pool

__all__ = ["AvgPool", "AvgPool3D", "AvgPool3DGrad", "AvgPoolGrad", "avg_pool"]
