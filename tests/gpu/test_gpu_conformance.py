"""The whole conformance suite on a GPU: every case, forward and gradient, to the bit of the NumPy engine.

Each case goes through the public functions of the core on CUDA tensors, and again through `poolgrad.torch` where PyTorch's
arguments can say it. Run by `make test-gpu`; needs PyTorch and a CUDA device, and is skipped elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device_support import DEVICE, Array, definition, difference, random, to_device, to_host

import poolgrad
from poolgrad import PoolGradError
from poolgrad.conformance.case import Case, dtype_of
from poolgrad.conformance.suite import GROUPS, suite
from poolgrad.dialects.pooling import Adaptive, Fractional, Regular

torch = pytest.importorskip("torch")
if DEVICE == "cuda" and not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)
import poolgrad.torch as pt  # noqa: E402

ANSWERED = [name for name in GROUPS if name != "hostile"]
SAID = [name for name in ANSWERED if name != "layouts"]
"""Those that PyTorch's arguments can say: batch, channels and axes in its order, or in channels_last."""


def cases(group: str) -> list[Case]:
    found = suite([group])
    assert found
    return found


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's, where a sum of the definition overflows
@pytest.mark.parametrize("group", ANSWERED)
def test_engine(group: str) -> None:
    off = []
    for case in cases(group):
        pool, layout = case.pool, case.pooling.layout
        assert pool is not None
        x, dy = random(case.seed, case.input_shape, dtype_of(case.dtype), case.values == "special"), case.dy()
        for name, function, source in (("forward", poolgrad.forward, x), ("gradient", poolgrad.gradient, dy)):
            want = definition(pool, source, layout, forwards=name == "forward")
            found = difference(to_host(function(pool, to_device(source), layout=layout)), want)
            off += [f"{case.name} {name}: {found}"] if found else []
    assert not off, "\n".join(off)


def in_torch(case: Case) -> Callable[[Any], Any] | None:
    """The case as a function of poolgrad.torch of a tensor whose channels come second, or None where it has no such words."""
    pooling = case.pooling
    if isinstance(pooling, Adaptive):
        return lambda x: pt.adaptive_avg_pool(x, pooling.output_size)
    if isinstance(pooling, Fractional):
        return lambda x: pt.fractional_avg_pool(x, sequences=pooling.sequences, overlapping=pooling.overlapping)
    assert isinstance(pooling, Regular)
    if pooling.count == "window":
        return None
    rest = (pooling.window, pooling.stride, pooling.padding, pooling.ceil_mode, pooling.count == "padded", pooling.divisor)
    return lambda x: pt.avg_pool(x, *rest, dilation=pooling.dilation or 1)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("group", SAID)
def test_poolgrad_torch(group: str) -> None:
    off, said = [], 0
    for case in cases(group):
        function, layout = in_torch(case), case.pooling.layout
        if function is None:
            continue
        said += 1
        assert case.pool is not None
        x, dy = random(case.seed, case.input_shape, dtype_of(case.dtype), case.values == "special"), case.dy()
        last = layout[-1] == "C"
        leaf = _second(to_device(x), last).requires_grad_()
        y = function(leaf)
        (dx,) = torch.autograd.grad(y, leaf, _second(to_device(dy), last))
        for name, got, source in (("forward", y, x), ("gradient", dx, dy)):
            found = difference(_back(got, last), definition(case.pool, source, layout, forwards=name == "forward"))
            off += [f"{case.name} {name}: {found}"] if found else []
    assert not off, "\n".join(off)
    assert said >= len(cases(group)) // 3, "most of the group could not be said"


def _second(tensor: Any, last: bool) -> Any:
    return tensor.movedim(-1, 1) if last else tensor


def _back(tensor: Any, last: bool) -> Array:
    return to_host(tensor.movedim(1, -1) if last else tensor)


def test_hostile() -> None:
    """Calls that have no answer end in our own error, on the device too, which goes on working."""
    for case in cases("hostile"):
        pooling, dy = case.pooling, to_device(np.zeros(case.dy_shape, dtype_of(case.dtype)))
        assert isinstance(pooling, Regular)
        options = {"stride": pooling.stride, "padding": pooling.padding, "layout": pooling.layout}
        try:
            got = poolgrad.avg_pool_grad(dy, case.input_shape, pooling.window, **options)
        except PoolGradError:
            continue
        assert 0 in case.dy_shape, f"{case.name} was answered"
        assert got.shape == case.input_shape
        assert not got.any(), case.name
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def test_a_seeded_bug_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient that puts one number into the wrong place is found."""
    own = poolgrad.gradient
    monkeypatch.setattr(poolgrad, "gradient", lambda *given, **options: own(*given, **options).flip(0).contiguous())
    with pytest.raises(AssertionError, match="gradient: "):
        test_engine("overlap 2-D")
