"""Packets through a tunnel are matched by the header inside it."""

from __future__ import annotations

import pytest
from framework.latency import OVERLAY, Network, Watch, check_covered, check_pairs

pytestmark = pytest.mark.patient

COUNT = 200


KINDS = ["vxlan", "geneve", "gre"]


@pytest.fixture(
    scope="module",
    params=[(kind, underlay) for kind in KINDS for underlay in (4, 6)],
    ids=lambda param: f"{param[0]} through IPv{param[1]}",
)
def tunnelled(request):
    """A tunnel that carries frames of Ethernet."""
    kind, underlay = request.param
    with Network() as network:
        network.tunnel(underlay, kind)
        network.serve("udp")
        network.serve("tcp")
        yield network


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("protocol", ["raw", "udp", "tcp"])
def test_each_packet_through_a_tunnel(tunnelled, protocol, family):
    with Watch(tunnelled, "--json") as watch:
        exchanges = tunnelled.probe(protocol, family, to=OVERLAY[family], count=COUNT)
        packets = watch.stop()
    assert len(exchanges) == COUNT
    if protocol != "tcp":
        check_pairs(packets, exchanges)
    check_covered(packets, COUNT)


def test_a_tunnel_in_a_namespace_of_its_own():
    """As the overlay networks of Docker have it: only the tunnel's socket is in the host's."""
    with Network() as network:
        network.tunnel(apart=True)
        with Watch(network, "--json") as watch:
            exchanges = network.probe("raw", to=OVERLAY[4], count=COUNT)
            packets = watch.stop()
        check_pairs(packets, exchanges)
        check_covered(packets, COUNT)


def test_one_container_has_both_ways(tunnelled):
    """The tunnel has packets of the one, and the masquerade changes those of the other."""
    with Watch(tunnelled, "--json") as watch:
        inner = tunnelled.probe("raw", to=OVERLAY[4], count=COUNT, first=1)
        plain = tunnelled.probe("raw", count=COUNT, first=10001)
        packets = watch.stop()
    check_pairs(packets, inner + plain)
    check_covered(packets, 2 * COUNT)
