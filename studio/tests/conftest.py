"""One server for the tests that ask for it; each finds it without documents and its folder empty.

STUDIO_FUZZ=2000 draws that many new examples instead of the same few.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

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


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    yield from served(tmp_path_factory.mktemp("studio"))


@pytest.fixture
def server(shared: Server) -> Iterator[Server]:
    yield shared
    tab = shared.tab()
    for info in tab.ask("documents")["documents"]:
        tab.ask("close", doc=info["doc"])
    tab.close()
    for place in shared.folder.iterdir():
        if place.is_file():
            place.unlink()


@pytest.fixture
def tab(server: Server) -> Iterator[Tab]:
    made = server.tab()
    yield made
    made.close()
