"""Fixtures of the latency tests."""

from __future__ import annotations

import pytest
from framework import needs
from framework.latency import Container, Network, Watch


@pytest.fixture(scope="module")
def network():
    needs.root()
    with Network() as made:
        made.serve("udp")
        made.serve("tcp")
        yield made


@pytest.fixture
def watch(network):
    with Watch(network, "--json") as made:
        yield made


@pytest.fixture
def inside(network):
    container = Container(network, network.inside)
    yield container
    container.process.kill()
