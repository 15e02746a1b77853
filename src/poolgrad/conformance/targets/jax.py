"""JAX on the CPU, compiled: the transpose of Flax's `avg_pool`, or of a mean over `lax.reduce_window` where Flax has no words."""

from __future__ import annotations

from math import prod
from typing import Any

from ..case import Case
from .base import Target, keywords, written

__all__ = ["TARGET"]


def source(case: Case) -> str:
    arguments = written("jax", case)
    flax = arguments.pop("op") == "avg_pool"
    lines = ["import jax", "import jax.numpy as jnp", "import numpy as np"]
    lines += ["from flax import linen"] if flax else ["from jax import lax"]
    # Said every time: many cases share a process, and Flax's results depend on it.
    lines += ["", f'jax.config.update("jax_enable_x64", {case.dtype == "float64"})']
    lines += ["", "", "def pool(x):", *(_flax(arguments) if flax else _lax(arguments)), "", ""]
    lines += ["@jax.jit", "def pull(dy):", f"    _, back = jax.vjp(pool, jnp.zeros({case.input_shape}, jnp.{case.dtype}))"]
    return "\n".join([*lines, "    return back(dy)[0]", "", "", "def grad(dy):", "    return np.asarray(pull(dy))", ""])


def _flax(arguments: dict[str, Any]) -> list[str]:
    return [f"    return linen.avg_pool(x, {keywords(arguments)})"]


def _lax(arguments: dict[str, Any]) -> list[str]:
    include, divisor = arguments.pop("count_include_pad", True), arguments.pop("divisor", None)
    window = {"window_dimensions": arguments["window_dimensions"], "window_strides": arguments["window_strides"]}
    said = keywords({**window, **arguments})
    lines = [f"    total = lax.reduce_window(x, np.zeros((), x.dtype), lax.add, {said})"]
    if divisor is None and not include:
        return [*lines, f"    return total / lax.reduce_window(jnp.ones_like(x), np.zeros((), x.dtype), lax.add, {said})"]
    return [*lines, f"    return total / {prod(window['window_dimensions']) if divisor is None else divisor}"]


TARGET = Target(
    name="jax",
    source=source,
    imports="import jax\nimport flax.linen",
    version="jax.__version__",
    refusals=("NotImplementedError", "ValueError", "TypeError", "XlaRuntimeError"),
    environment={"JAX_PLATFORMS": "cpu"},
)
