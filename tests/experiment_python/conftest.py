"""Fixtures of the tests of the Python package."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from framework.linked import in_this_process


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with in_this_process(monkeypatch, "cgroup-freeze", "experiment", "status"):
        yield
