"""A server for each test that asks for one, in an empty folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from studio_support import Server, Tab, served

settings.register_profile(
    "studio",
    derandomize=not os.environ.get("STUDIO_FUZZ"),
    deadline=None,
    max_examples=int(os.environ.get("STUDIO_FUZZ", "60")),
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("studio")


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    yield from served(tmp_path)


@pytest.fixture
def tab(server: Server) -> Iterator[Tab]:
    made = server.tab()
    yield made
    made.close()
