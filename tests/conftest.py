"""The same examples each run; POOLGRAD_TEST_PROFILE=explore draws new ones, POOLGRAD_TEST_EXAMPLES says how many."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

_EXAMPLES = int(os.environ.get("POOLGRAD_TEST_EXAMPLES", "150"))
_COMMON = {"max_examples": _EXAMPLES, "deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("default", derandomize=True, **_COMMON)
settings.register_profile("explore", print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("POOLGRAD_TEST_PROFILE", "default"))

# By their own names only, in processes that have the devices or the ranks that these need; or where JAX is.
collect_ignore = ["jax_devices.py", "jax_device_parts.py", "jax_host.py", "dtensor_ranks.py"]


def _names() -> list[str]:
    try:
        from poolgrad.engines import _native
    except ImportError:
        return []
    return list(_native.isas())


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests that take `isa` run once for each instruction set of this machine."""
    if "isa" in metafunc.fixturenames:
        metafunc.parametrize("isa", _names())
