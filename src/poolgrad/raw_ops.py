"""TensorFlow's raw ops under the name their users look for: `poolgrad.dialects.tensorflow`."""

from .dialects.tensorflow import *  # noqa: F403
from .dialects.tensorflow import __all__ as __all__
