"""Fixtures of the container tests."""

from __future__ import annotations

import pytest
from framework import needs
from framework.containers import Podman


@pytest.fixture(autouse=True)
def _root():
    needs.root()


@pytest.fixture(scope="session")
def podman():
    made = Podman()
    yield made
    made.close()
