"""Whatever JAX does to a function: derivatives of every order and mode, vmap, transposition, scan, remat, export.

The reference is the same pooling written with `lax.reduce_window` under the same transformation, in float64.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import support

import poolgrad
from poolgrad import PoolGradTypeError, PoolGradValueError

jax = pytest.importorskip("jax", minversion="0.8")
from jax import export, lax  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import poolgrad.jax as pj  # noqa: E402

jnp = jax.numpy
Function = Callable[[Any], Any]
FLOAT64 = np.dtype(np.float64)
SHAPE = (2, 7, 6, 3)
ROWS = [[0, 2, 3, 7], [0, 1, 4, 6]]


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    with jax.enable_x64(True):
        yield


def ours(x: Any) -> Any:
    return pj.avg_pool(x, (3, 2), stride=(2, 3), padding=((1, 0), (1, 1)))


def theirs(x: Any) -> Any:
    def sums(values: Any) -> Any:
        return lax.reduce_window(values, 0.0, lax.add, (1, 3, 2, 1), (1, 2, 3, 1), ((0, 0), (1, 0), (1, 1), (0, 0)))

    return sums(x) / sums(jnp.ones_like(x))


OURS: dict[str, Function] = {
    "window": ours,
    "dilated same": lambda x: pj.avg_pool(x, 2, stride=1, padding="same", dilation=2),
    "channels first": lambda x: pj.avg_pool(x, (2, 1), stride=(1, 2), layout="NCHW"),
    "adaptive": lambda x: pj.adaptive_avg_pool(x, (3, 4)),
    "fractional": lambda x: pj.fractional_avg_pool(x, ROWS, overlapping=True),
}


@pytest.mark.parametrize("name", OURS)
def test_derivatives_of_every_order_in_both_modes(name: str) -> None:
    x = support.random_array(1, SHAPE, FLOAT64) / 32
    order = 3 if name == "dilated same" else 2
    check_grads(lambda x: jnp.sin(OURS[name](x)), (x,), order=order, modes=("fwd", "rev"), rtol=2e-2, atol=2e-2)


def cubed(k: Function) -> Function:
    return lambda x: (k(x) ** 3).sum()


v0 = support.random_array(2, SHAPE, FLOAT64)
TRANSFORMS: dict[str, Callable[[Function], Function]] = {
    "jit": jax.jit,
    "vmap over images": lambda k: jax.vmap(lambda x: k(x[None])),
    "vmap over the last axis": lambda k: jax.vmap(lambda x: k(x[..., None]), in_axes=3, out_axes=1),
    "vmap over an axis where space begins": lambda k: lambda x: jax.vmap(k, in_axes=1, out_axes=2)(jnp.stack([x, 2 * x], axis=1)),
    "vmap of vmap": lambda k: jax.vmap(jax.vmap(lambda x: k(x[None, ..., None]), in_axes=2), in_axes=0),
    "jvp": lambda k: lambda x: jax.jvp(k, (x,), (v0,))[1],
    "vjp": lambda k: lambda x: jax.vjp(k, x)[1](k(v0))[0],
    "linear transpose": lambda k: lambda x: jax.linear_transpose(k, x)(k(v0))[0],
    "transpose twice": lambda k: lambda x: jax.linear_transpose(lambda y: jax.linear_transpose(k, x)(y)[0], k(v0))(x)[0],
    "grad": lambda k: jax.grad(cubed(k)),
    "grad of grad": lambda k: jax.grad(lambda x: (jax.grad(cubed(k))(x) ** 2).sum()),
    "forward over reverse": lambda k: lambda x: jax.jvp(jax.grad(cubed(k)), (x,), (v0,))[1],
    "vmap of grad": lambda k: jax.vmap(jax.grad(lambda x: cubed(k)(x[None]))),
    "remat": lambda k: jax.grad(lambda x: cubed(jax.checkpoint(k))(x)),
    "scan": lambda k: lambda x: lax.scan(lambda carry, image: (carry + 1, k(image[None])), 0, x)[1],
    "cond": lambda k: lambda x: lax.cond(x[0, 0, 0, 0] > 0, k, lambda x: 2 * k(x), x),
    "linearize": lambda k: lambda x: jax.linearize(lambda x: k(x) ** 2, x)[1](v0),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms(name: str) -> None:
    x = support.random_array(3, SHAPE, FLOAT64)
    transform = TRANSFORMS[name]
    got, want = jax.jit(transform(ours))(x), jax.jit(transform(theirs))(x)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("dtype", support.DTYPES, ids=str)
def test_gradients_are_the_core_s_to_the_bit(dtype: np.dtype[Any]) -> None:
    x, options = support.random_array(4, SHAPE, dtype), {"stride": (2, 3), "padding": ((1, 0), (1, 1))}
    y, pullback = jax.vjp(ours, jnp.asarray(x))
    dy = support.random_array(5, y.shape, dtype)
    support.assert_same_bits(np.asarray(pullback(jnp.asarray(dy))[0]), poolgrad.avg_pool_grad(dy, SHAPE, (3, 2), **options))


def test_x64_off() -> None:
    x = support.random_array(6, SHAPE, np.dtype(np.float32))
    with jax.enable_x64(False):
        got = jax.jit(jax.grad(cubed(ours)))(x)
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, jax.grad(cubed(theirs))(x.astype(np.float64)), rtol=2e-4, atol=1e-2)


def test_vmap_leaves_the_axes_alone() -> None:
    """A mapped axis is one more of those that are not looked at: no transposition, no reshape."""
    mapped = jax.vmap(lambda x: pj.avg_pool(x, 2, layout="CHW"), in_axes=2, out_axes=2)
    text = str(jax.make_jaxpr(mapped)(np.zeros((3, 4, 5, 6), np.float32)))
    assert "poolgrad_avg_pool" in text
    assert "transpose" not in text
    assert "reshape" not in text


SAFE = [export.DisabledSafetyCheck.custom_call("poolgrad_avg_pool")]
READ = """
import sys, jax, numpy as np, poolgrad, poolgrad.jax
from jax import export
folder = sys.argv[1]
with open(folder + "/program", "rb") as file:
    program = export.deserialize(bytearray(file.read()))
x, dy = np.load(folder + "/x.npy"), np.load(folder + "/dy.npy")
options = {"stride": (2, 3), "padding": ((1, 0), (1, 1))}
y, dx = program.call(x), program.vjp().call(x, dy)[0]
assert np.array_equal(y, poolgrad.avg_pool(x, (3, 2), **options))
assert np.array_equal(dx, poolgrad.avg_pool_grad(dy, x.shape, (3, 2), **options))
print("same")
"""


def test_an_exported_program_runs_in_another_process(tmp_path: Path) -> None:
    x = support.random_array(7, SHAPE, np.dtype(np.float32))
    batch, channels = export.symbolic_shape("n, c")
    given = jax.ShapeDtypeStruct((batch, 7, 6, channels), np.float32)
    program = export.export(jax.jit(ours), disabled_checks=SAFE)(given).serialize(vjp_order=1)
    (tmp_path / "program").write_bytes(program)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "dy.npy", support.random_array(8, ours(x).shape, np.dtype(np.float32)))
    done = subprocess.run([sys.executable, "-c", READ, str(tmp_path)], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "same\n", done.stderr


def test_export_for_several_platforms() -> None:
    x = support.random_array(9, SHAPE, np.dtype(np.float32))
    program = export.export(jax.jit(ours), platforms=("cpu", "cuda", "tpu"), disabled_checks=SAFE)(x)
    support.assert_same_bits(np.asarray(export.deserialize(program.serialize()).call(x)), np.asarray(ours(x)))
    elsewhere = export.export(jax.jit(ours), platforms=("tpu",))(x)
    assert "@poolgrad_avg_pool" not in elsewhere.mlir_module()


def test_symbolic_sizes() -> None:
    n, h = export.symbolic_shape("n, h")
    exported = export.export(jax.jit(ours), disabled_checks=SAFE)
    with pytest.raises(PoolGradTypeError, match="known sizes along its spatial axes"):
        exported(jax.ShapeDtypeStruct((2, h, 6, 3), np.float32))

    def gradient(dy: Any) -> Any:
        return pj.avg_pool_grad(dy, (dy.shape[0], 8, 6, 3), 2)

    dy = support.random_array(10, (5, 4, 3, 3), np.dtype(np.float32))
    program = export.export(jax.jit(gradient), disabled_checks=SAFE)(jax.ShapeDtypeStruct((n, 4, 3, 3), np.float32))
    support.assert_same_bits(np.asarray(program.call(dy)), poolgrad.avg_pool_grad(dy, (5, 8, 6, 3), 2))
    with pytest.raises(PoolGradValueError, match="the same batch and channels"):
        export.export(jax.jit(lambda dy: pj.avg_pool_grad(dy, (7, 8, 6, 3), 2)), disabled_checks=SAFE)(
            jax.ShapeDtypeStruct((n, 4, 3, 3), np.float32)
        )


def test_it_runs_without_jit() -> None:
    x = jnp.asarray(support.random_array(3, (2, 7, 6, 3), np.dtype(np.float32)))
    gradient = jax.grad(lambda x: (pj.avg_pool(x, 3, stride=2, padding="same") ** 2).sum())
    with jax.disable_jit():
        found = gradient(x)
    support.assert_same_bits(np.asarray(found), np.asarray(gradient(x)))
