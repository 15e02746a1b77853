"""What breaks a compiled graph: the drawing of random sequences.

Apart from `sequences.py` because the mark imports PyTorch's compiler, which takes as long as PyTorch itself: this module is
imported while something compiles, when it is there already.
"""

from __future__ import annotations

import torch

from . import sequences

__all__ = ["draw"]

draw = torch.compiler.disable(sequences.draw)
