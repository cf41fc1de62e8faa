"""What the tests of the C interfaces share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from framework import lorentz, needs


@pytest.fixture(autouse=True)
def _experiments() -> Iterator[None]:
    """Needs what experiments need; TimeKeeper's one experiment goes with the test, and containers
    whose programs and monitors the test has ended."""
    needs.root()
    needs.feature("cgroup-freeze")
    yield
    lorentz.call("experiment", "rm", "timekeeper")
    if left := [container["name"] for container in lorentz.ps()]:
        lorentz.ok("rm", "--force", *left)
