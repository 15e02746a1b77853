"""`poolgrad.jax` on a GPU: compiled programs give the bits of the NumPy engine, whatever JAX does to the function.

Run by `make test-gpu`; elsewhere these tests are skipped, and `test_jax_device.py` runs the same custom call on the host.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from device_support import DTYPES, definition, difference, placed
from device_support import POOLS as EVERY
from device_support import random as numbers

from poolgrad import Axis, Pool
from poolgrad.engines import gpu
from poolgrad.layout import spatial_positions

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # PyTorch's tests run in the same process
jax = pytest.importorskip("jax", minversion="0.8")
if jax.default_backend() != "gpu":
    pytest.skip("JAX sees no GPU", allow_module_level=True)

from jax import export  # noqa: E402

import poolgrad.jax as pj  # noqa: E402
from poolgrad.jax import device  # noqa: E402
from poolgrad.jax.primitive import linear  # noqa: E402

jnp = jax.numpy
Array = Any
R = Axis.regular
FLOAT32 = np.dtype(np.float32)
random = partial(numbers, special=True)
LEFT_OUT = ("63x40 same", "3x3x2 same", "long line", "four axes", "counts")
POOLS = {name: pool for name, pool in EVERY.items() if name not in LEFT_OUT} | {"far": Pool((R(20000, 17000, stride=700),))}
LAYOUTS = {1: ["NLC", "NCL"], 2: ["NHWC", "NCHW"], 3: ["NDHWC", "NCDHW"]}


@pytest.fixture(autouse=True)
def _doubles() -> Any:
    with jax.enable_x64(True):
        yield


def test_the_engine_is_here() -> None:
    """Else everything below would test JAX's own operations."""
    assert device.has_engine()
    x = jnp.ones((1, 8, 8, 4), jnp.float32)
    assert "poolgrad_avg_pool" in jax.jit(lambda x: pj.avg_pool(x, 2)).lower(x).compile().as_text()


def assert_same(got: Any, want: Array) -> None:
    found = difference(np.asarray(got), want)
    assert not found, found


def check(pool: Pool, layout: str, dtype: Any, forwards: bool) -> None:
    sizes = pool.input_size if forwards else pool.output_size
    source = random(1, placed(layout, sizes), dtype)
    spatial = spatial_positions(layout, len(layout))
    got = jax.jit(lambda s: linear(s, pool, spatial, forwards))(jnp.asarray(source))
    assert_same(got, definition(pool, source, layout, forwards=forwards))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", POOLS)
def test_general_kernels(name: str, dtype: Any) -> None:
    pool = POOLS[name]
    first, second = LAYOUTS[len(pool.axes)]
    for layout, forwards in ((first, True), (first, False), (second, False)):
        check(pool, layout, dtype, forwards)


@pytest.mark.parametrize("name", POOLS)
def test_written_kernels(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "WORTH_WRITING", 0)
    device._pieces.cache_clear()
    pool = POOLS[name]
    for k, layout in enumerate(LAYOUTS[len(pool.axes)]):
        check(pool, layout, DTYPES[k], False)
        check(pool, layout, DTYPES[k + 2], True)
    device._pieces.cache_clear()


def ours(x: Any) -> Any:
    return pj.avg_pool(x, (3, 2), stride=(2, 3), padding=((1, 0), (1, 1)))


OURS = Pool((R(7, 3, stride=2, padding=(1, 0)), R(6, 2, stride=3, padding=(1, 1))))
SHAPE = (2, 7, 6, 3)


def test_derivatives() -> None:
    """Each pooling is linear: derivatives of any order are poolings of what the definition pools."""
    x = random(2, SHAPE, np.dtype(np.float64), special=False)
    y = definition(OURS, x, "NHWC", forwards=True)
    squares = jax.jit(jax.grad(lambda x: (ours(x) ** 2).sum()))
    assert_same(squares(x), definition(OURS, 2 * y, "NHWC", forwards=False))
    v = random(3, SHAPE, np.dtype(np.float64), special=False)
    second = jax.jit(lambda x, v: jax.jvp(squares, (x,), (v,))[1])(x, v)
    assert_same(second, definition(OURS, 2 * definition(OURS, v, "NHWC", forwards=True), "NHWC", forwards=False))
    again = jax.jit(jax.grad(lambda x: (jax.grad(lambda x: (ours(x) ** 2).sum())(x) * v).sum()))(x)
    assert_same(again, np.asarray(second))


def test_vmap_and_loops() -> None:
    x = random(4, SHAPE, FLOAT32)
    want = definition(OURS, x, "NHWC", forwards=True)
    assert_same(jax.jit(jax.vmap(lambda x: ours(x[None])[0]))(x), want)
    assert_same(jax.jit(jax.vmap(lambda x: ours(x[..., None])[..., 0], in_axes=3, out_axes=3))(x), want)
    assert_same(jax.jit(lambda x: jax.lax.map(lambda image: ours(image[None])[0], x))(x), want)
    assert_same(jax.jit(lambda x: jax.lax.cond(x.size > 0, ours, lambda x: 2 * ours(x), x))(x), want)


def test_outside_jit() -> None:
    x = random(5, SHAPE, FLOAT32)
    y = ours(jnp.asarray(x))
    assert_same(y, definition(OURS, x, "NHWC", forwards=True))
    dx = pj.avg_pool_grad(y, SHAPE, (3, 2), stride=(2, 3), padding=((1, 0), (1, 1)))
    assert_same(dx, definition(OURS, np.asarray(y), "NHWC", forwards=False))
    assert ours(jnp.zeros((0, *SHAPE[1:]))).shape == (0, *y.shape[1:])


READ = """
import sys, numpy as np, poolgrad.jax
from jax import export
folder = sys.argv[1]
with open(folder + "/program", "rb") as file:
    program = export.deserialize(bytearray(file.read()))
np.save(folder + "/y.npy", np.asarray(program.call(np.load(folder + "/x.npy"))))
np.save(folder + "/dx.npy", np.asarray(program.vjp().call(np.load(folder + "/x.npy"), np.load(folder + "/dy.npy"))[0]))
"""


def test_an_exported_program_runs_in_another_process(tmp_path: Path) -> None:
    n, c = export.symbolic_shape("n, c")
    trusted = [export.DisabledSafetyCheck.custom_call("poolgrad_avg_pool")]
    program = export.export(jax.jit(ours), disabled_checks=trusted)(jax.ShapeDtypeStruct((n, 7, 6, c), np.float32))
    assert program.platforms == ("cuda",)
    (tmp_path / "program").write_bytes(program.serialize(vjp_order=1))
    x = random(6, SHAPE, FLOAT32)
    dy = random(7, ours(x).shape, FLOAT32)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "dy.npy", dy)
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, "-c", READ, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert_same(np.load(tmp_path / "y.npy"), definition(OURS, x, "NHWC", forwards=True))
    assert_same(np.load(tmp_path / "dx.npy"), definition(OURS, dy, "NHWC", forwards=False))


LARGE = {
    "3x3 s2": Pool((R(112, 3, stride=2, padding="same"), R(112, 3, stride=2, padding="same"))),
    "15x15": Pool((R(112, 15, stride=1, padding="same"), R(112, 15, stride=1, padding="same"))),
}


@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("name", LARGE)
def test_beyond_the_cache_with_many_calls_under_way(name: str, dtype: Any) -> None:
    """Scratch is given back while kernels still use it: what comes next on the stream must not disturb them."""
    pool = LARGE[name]
    dy = random(8, placed("NHWC", pool.output_size, 32, 64), dtype)
    call = jax.jit(lambda s: linear(s, pool, (1, 2), False))
    given = jnp.asarray(dy)
    answers = [call(given) for _ in range(4)]
    other = [jnp.zeros(given.shape, given.dtype) + k for k in range(4)]
    want = definition(pool, dy, "NHWC", forwards=False)
    for answer in answers:
        assert_same(answer, want)
    assert all(float(filled.ravel()[0]) == k for k, filled in enumerate(other))


def test_threads() -> None:
    pool = LARGE["15x15"]
    dy = random(9, placed("NHWC", pool.output_size, 2, 8), FLOAT32)
    want, call = definition(pool, dy, "NHWC", forwards=False), jax.jit(lambda s: linear(s, pool, (1, 2), False))
    answers: list[Any] = [None] * 6

    def work(k: int) -> None:
        for _ in range(10):
            answers[k] = np.asarray(call(dy))

    workers = [threading.Thread(target=work, args=(k,)) for k in range(len(answers))]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(timeout=120)
    for answer in answers:
        assert_same(answer, want)


def test_a_bad_program_is_refused() -> None:
    x = jnp.ones((2, 9, 3), jnp.float32)
    call = jax.ffi.ffi_call("poolgrad_avg_pool", jax.ShapeDtypeStruct((2, 4, 3), np.float32))
    with pytest.raises((jax.errors.JaxRuntimeError, ValueError), match="poolgrad: the tables end too soon"):
        jax.block_until_ready(jax.jit(lambda x: call(x, tables=np.array([1, 0, 0], np.int64)))(x))
    assert_same(ours(random(5, SHAPE, FLOAT32)), definition(OURS, random(5, SHAPE, FLOAT32), "NHWC", forwards=True))


def test_a_seeded_bug_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "_packed", lambda shape: tuple(int(n) for n in np.cumprod([1, *shape[:-1]])))
    device._pieces.cache_clear()
    with pytest.raises(AssertionError):
        check(POOLS["3x4 s1 same"], "NHWC", FLOAT32, False)
    device._pieces.cache_clear()
