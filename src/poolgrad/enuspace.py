"""enuSpace's pages under the name their users look for: `poolgrad.dialects.enuspace`."""

from .dialects.enuspace import *  # noqa: F403
from .dialects.enuspace import __all__ as __all__
