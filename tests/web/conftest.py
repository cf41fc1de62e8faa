"""A server of the page and a client of it, for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.web import Browser, Server


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("web")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with Server(folder) as server:
        yield server


@pytest.fixture(scope="module")
def browser(server: Server) -> Browser:
    return server.browser()
