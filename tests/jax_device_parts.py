"""The custom call for CUDA devices where arrays are shared out: every device picks the call of its own part.

`test_jax_sharding.py` runs these checks in a process with eight simulated devices.
"""

from __future__ import annotations

from collections.abc import Iterator

import gpu_host
import jax
import jax_devices
import jax_host
import numpy as np
import pytest
import support
from jax.sharding import PartitionSpec as P
from jax_devices import POOLS, run, sharded

from poolgrad.jax.primitive import linear

if gpu_host.COMPILER is None:
    pytest.skip("needs a C++ compiler", allow_module_level=True)


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[jax_host.Bridge]:
    bridge = jax_host.Bridge(tmp_path_factory.mktemp("bridge"))
    with bridge.instead():
        yield bridge


SPECS = [P("b"), P(None, "s"), P("b", "s"), P(None, "s", "b"), P(None, ("b", "s"))]


@pytest.mark.parametrize("forwards", [True, False])
@pytest.mark.parametrize("name", POOLS)
def test_parts_give_the_bits_of_the_whole(bridge: jax_host.Bridge, name: str, forwards: bool) -> None:
    pool, before = POOLS[name], len(bridge.device.launches)
    for k, spec in enumerate(SPECS):
        source = support.random_array(k, support.source_shape(pool, "NHWC", 4, 8, forwards=forwards), support.DTYPES[k % 4])
        got, _ = run(lambda s: linear(s, pool, (1, 2), forwards), sharded(source, spec))
        support.assert_same_bits(np.asarray(got), support.compute("native", pool, source, "NHWC", forwards=forwards), spec)
        assert got.sharding.spec == spec
    assert len(bridge.device.launches) >= before + 8 * len(SPECS)
    assert bridge.library.bytes_held() == 0


def test_gradients_of_a_loss(bridge: jax_host.Bridge) -> None:
    x = support.random_array(2, (4, 32, 9, 4), np.dtype(np.float64))
    with jax.set_mesh(jax_devices.AUTO):
        got, _ = run(jax.grad(jax_devices.loss), sharded(x, P("b", "s")))
    np.testing.assert_allclose(np.asarray(got), np.asarray(jax.grad(jax_devices.loss)(x)), rtol=1e-12, atol=1e-14)
