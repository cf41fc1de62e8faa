"""Packets through a tunnel are matched by the header inside it."""

from __future__ import annotations

import pytest
from framework.latency import OVERLAY, Network, Watch, check_covered, check_pairs, matched

COUNT = 200


@pytest.mark.parametrize("underlay", [4, 6])
@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("protocol", ["raw", "udp", "tcp"])
def test_each_packet_through_vxlan(protocol, family, underlay):
    with Network() as network:
        network.tunnel(underlay)
        if protocol != "raw":
            network.serve(protocol)
        with Watch(network, "--json") as watch:
            exchanges = network.probe(protocol, family, to=OVERLAY[family], count=COUNT)
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


def test_one_container_has_both_ways():
    """The tunnel has packets of the one, and the masquerade changes those of the other."""
    with Network() as network:
        network.tunnel()
        with Watch(network, "--json") as watch:
            tunnelled = network.probe("raw", to=OVERLAY[4], count=COUNT, first=1)
            plain = network.probe("raw", count=COUNT, first=10001)
            packets = watch.stop()
        check_pairs(packets, tunnelled + plain)
        assert {len(matched(packets, way)) <= 2 * COUNT for way in ("egress", "ingress")} == {True}
