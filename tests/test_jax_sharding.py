"""`poolgrad.jax` over devices: eight simulated ones, which only a process of its own can have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("jax", minversion="0.8")

HERE = Path(__file__).parent
RUNS = {
    "checks": ["jax_devices.py"],
    "the call for CUDA": ["jax_device_parts.py"],
    "the page of the documentation": ["test_docs.py", "-k", "runs and jax"],
}


@pytest.mark.parametrize("what", RUNS)
def test_on_eight_devices(what: str) -> None:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    name, *options = RUNS[what]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / name), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
