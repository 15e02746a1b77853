"""DirectML's dialect under the name its users look for; see `poolgrad.dialects.directml`."""

from .dialects.directml import *  # noqa: F403
from .dialects.directml import __all__ as __all__
from .dialects.directml import dxdispatch as dxdispatch
