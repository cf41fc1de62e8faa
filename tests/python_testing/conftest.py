"""Fixtures of the tests of Python programs that change their own time."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from framework import lorentz


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """The container of a process ends with the process: its monitor removes it a moment later."""
    yield
    deadline = time.monotonic() + 10
    while left := lorentz.ps():
        assert time.monotonic() < deadline, f"left behind: {left}"
        time.sleep(0.02)
