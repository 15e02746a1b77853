"""One browser for all, a server of its own for each test, and a tab that must not complain in its console."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chromium import Chromium
from web_support import Hands, ServerProcess


@pytest.fixture(scope="session")
def browser() -> Iterator[Chromium]:
    made = Chromium()
    yield made
    made.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    made = ServerProcess(tmp_path)
    yield made
    made.close()


@pytest.fixture
def hands(browser: Chromium, server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[Hands]:
    made = Hands(browser, server.address, request.node.name.removeprefix("test_"))
    yield made
    errors = made.tab.errors()
    made.tab.call("Page.close")
    assert errors == []
