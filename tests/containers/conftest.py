"""Fixtures of the container tests."""

from __future__ import annotations

import fcntl

import pytest
from framework import needs
from framework.build import REPO
from framework.containers import Podman


@pytest.fixture(autouse=True)
def _root():
    needs.root()


@pytest.fixture
def only_newcomers():
    """The kernel holds one newcomer at a time on two processors, whichever containers they enter:
    tests in which programs enter take turns."""
    with (REPO / "build" / "newcomers.lock").open("w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        yield


@pytest.fixture(scope="session")
def podman():
    made = Podman()
    yield made
    made.close()
