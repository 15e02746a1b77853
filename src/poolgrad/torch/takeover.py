"""One line for an existing model: PyTorch's own average-pooling backward, computed here.

The backward kernels behind `avg_pool1d/2d/3d` and `adaptive_avg_pool1d/2d/3d` are replaced in PyTorch's dispatcher, so
whatever calls them (modules, functions, scripted models, other people's code) is served without being changed. Forward
passes stay PyTorch's own. When the last acceleration is undone, PyTorch's kernels are back in their place.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import Any

import torch
from torch import Tensor

from .kernels import DTYPES, Kept, bound, is_channels_last
from .spec import ADAPTIVE, regular_spec

__all__ = ["Acceleration", "accelerate"]


CANNOT = (
    "adaptive_avg_pool2d/3d(x, 1): PyTorch computes it as a mean, whose backward is not a pooling",
    "graphs compiled by torch.compile: they carry their own backward",
    "tensors of other dtypes, layouts (mkldnn, sparse) or devices: PyTorch computes them as before",
)


class Acceleration:
    """What `accelerate` returns: a context manager, an `undo`, and a report in words (`print` it)."""

    def __init__(self, devices: tuple[str, ...]) -> None:
        self.devices = devices
        self.calls: dict[str, int] = dict.fromkeys(_OPERATORS, 0)
        self.left: dict[str, int] = dict.fromkeys(_OPERATORS, 0)

    def undo(self) -> None:
        """Give PyTorch its own backward back, unless another acceleration still holds; doing so twice is harmless."""
        _leave(self)

    @property
    def active(self) -> bool:
        return self in _active

    def __enter__(self) -> Acceleration:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.undo()

    def __str__(self) -> str:
        state = "active" if self.active else "undone"
        lines = [f"poolgrad.torch.accelerate on {' and '.join(self.devices)}, {state}", "took over:"]
        for name in _OPERATORS:
            left = f", {self.left[name]} left to PyTorch" if self.left[name] else ""
            lines.append(f"  aten::{name}: {self.calls[name]} calls{left}")
        return "\n".join([*lines, "cannot take over:", *(f"  {reason}" for reason in CANNOT)])


def accelerate() -> Acceleration:
    """Compute the backward of PyTorch's own average pooling here, until undone.

    >>> x = torch.arange(16.0).reshape(1, 1, 4, 4).requires_grad_()
    >>> with accelerate() as report:
    ...     torch.nn.functional.avg_pool2d(x, 3, stride=1).sum().backward()
    >>> report.calls["avg_pool2d_backward"], report.active
    (1, False)
    """
    devices = ("cpu", "cuda") if torch.cuda.is_available() else ("cpu",)
    acceleration = Acceleration(devices)
    with _lock:
        if not _active:
            _register(devices)
        _active.append(acceleration)
    return acceleration


_lock = threading.Lock()
_active: list[Acceleration] = []
_libraries: list[Any] = []
_maps = Kept()


def _leave(acceleration: Acceleration) -> None:
    with _lock:
        if acceleration in _active:
            _active.remove(acceleration)
            if not _active:
                _libraries.pop()._destroy()


def _register(devices: tuple[str, ...]) -> None:
    library = torch.library.Library("aten", "IMPL")
    for device in devices:
        for name, describe in _OPERATORS.items():
            own = torch.library.get_kernel(f"aten::{name}", device.upper())
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message=".*[Oo]verrid", category=UserWarning)
                library.impl(name, _kernel(name, describe, own), device.upper(), with_keyset=True)
    _libraries.append(library)


def _kernel(name: str, describe: Callable[..., str], own: Any) -> Callable[..., Tensor]:
    """A backward kernel with PyTorch's arguments; `own` is the one that it replaces."""
    axes = int(name[-len("2d_backward")])

    def backward(keys: Any, grad: Tensor, self: Tensor, *arguments: Any) -> Tensor:
        served = grad.dtype in DTYPES and self.dtype is grad.dtype and self.device == grad.device
        for acceleration in _active:
            counts = acceleration.calls if served else acceleration.left
            counts[name] += 1
        if not served:
            return own.call_boxed(keys, grad, self, *arguments)
        # PyTorch keeps channels_last in two dimensions alone, and compiled graphs rely on its strides.
        order = axes == 2 and is_channels_last(self, axes)
        key = (name, grad.shape, self.shape, order, repr(arguments))
        map = _maps.get(key)
        if map is None:
            shape, size = tuple(grad.shape), tuple(self.shape[-axes:])
            map = _maps.keep(key, bound(describe(*arguments), shape, size, False, order))
        return map(grad)

    return backward


def _regular2d(*arguments: Any) -> str:
    return regular_spec(2, *arguments)


def _regular3d(*arguments: Any) -> str:
    return regular_spec(3, *arguments)


def _adaptive() -> str:
    return ADAPTIVE


_OPERATORS: dict[str, Callable[..., str]] = {
    "avg_pool2d_backward": _regular2d,
    "avg_pool3d_backward": _regular3d,
    "_adaptive_avg_pool2d_backward": _adaptive,
    "_adaptive_avg_pool3d_backward": _adaptive,
}
