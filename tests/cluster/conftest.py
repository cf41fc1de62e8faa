"""Two hosts, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.cluster import AHEAD, Host


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[tuple[Host, Host]]:
    """Hosts a and b, of different CLOCK_MONOTONIC; nothing is left on them."""
    pair = Host(tmp_path, "a", 0), Host(tmp_path, "b", AHEAD)
    yield pair
    for host in pair:
        for name in host.left():
            host.run("rm", "--force", name)
        assert host.left() == []
