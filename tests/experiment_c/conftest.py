"""Fixtures of the tests of the C interfaces."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from framework import lorentz, needs


@pytest.fixture(autouse=True)
def _experiments() -> Iterator[None]:
    """Needs the machine's features for experiments. At the end, removes TimeKeeper's one
    experiment, and containers whose programs and monitors the test has ended."""
    needs.root()
    needs.feature("cgroup-freeze")
    yield
    lorentz.call("experiment", "rm", "timekeeper")
    for container in lorentz.ps():
        done = lorentz.call("rm", "--force", container["name"])
        # A container whose last program has just ended removes itself.
        assert done.returncode == 0 or "no such container" in done.stderr, done.stderr
