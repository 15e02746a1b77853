"""PyTorch on the CPU, as its users differentiate: the forward, then autograd.

Channels last is the memory format of that name: the same axes in another order of memory.
"""

from __future__ import annotations

from ..case import Case
from .base import Target, keywords, moved, written

__all__ = ["TARGET", "source"]


def source(case: Case, compiled: bool = False) -> str:
    turned, there = moved(case, "NCLDHW")
    arguments = written("torch", turned)
    call = f"torch.nn.functional.{arguments.pop('op')}(x, {keywords(arguments)})"
    stays = there == tuple(range(len(there)))
    permute = "" if stays else f".permute{there}"
    back = "" if stays else f".permute{tuple(there.index(k) for k in range(len(there)))}"
    half = case.dtype == "bfloat16"
    given = "torch.from_numpy(dy.view(np.int16)).view(torch.bfloat16)" if half else "torch.from_numpy(dy)"
    taken = ".contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)" if half else ".numpy()"
    lines = ["import ml_dtypes", "import numpy as np"] if half else []
    lines += ["import torch", ""]
    if compiled:
        lines += ["", "@torch.compile", "def pool(x):", f"    return {call}", "", ""]
        call = "pool(x)"
    lines += [f"x = torch.zeros({case.input_shape}, dtype=torch.{case.dtype}){permute}.requires_grad_()", f"y = {call}", "", ""]
    lines += ["def grad(dy):", f"    (dx,) = torch.autograd.grad(y, x, {given}{permute}, retain_graph=True)"]
    return "\n".join([*lines, f"    return dx{back}{taken}", ""])


TARGET = Target(
    name="torch",
    source=source,
    imports="import torch",
    version="torch.__version__",
    refusals=("RuntimeError", "NotImplementedError"),
)
