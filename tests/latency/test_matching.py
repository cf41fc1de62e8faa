"""Every packet is matched, and with the right times: proved against the program's own log."""

from __future__ import annotations

import json

import pytest
from framework import build
from framework.latency import (
    REMOTE,
    Network,
    Watch,
    check_covered,
    check_pairs,
    check_times,
    matched,
    number,
)

COUNT = 200
SENDS = ("write", "writev", "send", "sendto", "sendmsg", "sendmmsg")
RECEIVES = ("read", "readv", "recv", "recvfrom", "recvmsg", "recvmmsg")


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("protocol", ["raw", "ping", "udp"])
def test_each_datagram(network, watch, protocol, family):
    exchanges = network.probe(protocol, family, count=COUNT)
    packets = watch.stop()
    assert len(exchanges) == COUNT
    check_pairs(packets, exchanges)
    check_covered(packets, COUNT)


@pytest.mark.parametrize("family", [4, 6])
def test_each_request_and_reply_of_tcp(network, watch, family):
    exchanges = network.probe("tcp", family, count=COUNT)
    packets = watch.stop()
    assert len(exchanges) == COUNT
    check_covered(packets, COUNT)
    # The numbers of their first bytes grow by the payload's length: they identify the exchange.
    ways = []
    for way in ("egress", "ingress"):
        way = matched(packets, way)
        begin = way[0]["tcp_seq"]
        ways.append({((p["tcp_seq"] - begin) % 2**32) / 56: p for p in way})
        assert all(at == int(at) < COUNT for at in ways[-1])
    for at, exchange in enumerate(exchanges):
        if at in ways[0] and at in ways[1]:
            check_times(ways[0][at], ways[1][at], exchange)


@pytest.mark.parametrize("protocol", ["raw", "ping", "udp", "tcp"])
def test_each_call(network, watch, protocol):
    calls = [*((send, "recvfrom") for send in SENDS), *(("sendto", read) for read in RECEIVES)]
    found = []
    for at, (send, receive) in enumerate(calls):
        first = 1000 * (at + 1)
        found += network.probe(protocol, count=10, first=first, send=send, receive=receive)
    packets = watch.stop()
    assert len(found) == 10 * len(calls)
    if protocol != "tcp":
        check_pairs(packets, found)
    check_covered(packets, len(found))


@pytest.mark.parametrize("size", [4, 16, 1472])
def test_each_size(network, watch, size):
    exchanges = network.probe("udp", size=size, count=COUNT)
    packets = watch.stop()
    assert len(exchanges) == COUNT
    check_covered(packets, COUNT)


@pytest.mark.parametrize("protocol", ["raw", "ping", "udp"])
def test_many_in_flight(network, watch, protocol):
    """Sent and read 50 at a time, by one call each."""
    exchanges = network.probe(
        protocol, count=500, burst=50, send="sendmmsg", receive="recvmmsg", pause=1000
    )
    packets = watch.stop()
    assert len(exchanges) == 500
    check_pairs(packets, exchanges)


@pytest.mark.parametrize("family", [4, 6])
def test_a_packet_that_waits_for_its_neighbours_address(network, watch, family):
    """The packet leaves after its call has returned: the first packet of most programs."""
    network.run(network.inside, "ip", "neigh", "flush", "all")
    exchanges = network.probe("udp", family, count=1)
    packets = watch.stop()
    (out,) = (packet for packet in matched(packets, "egress") if packet["protocol"] == "udp")
    (exchange,) = exchanges
    assert exchange["sent_before"] <= out["call_ns"] <= exchange["sent_after"]


def test_sequence_numbers_wrap(network, watch):
    exchanges = network.probe("raw", first=65500, count=100)
    packets = watch.stop()
    check_pairs(packets, exchanges)
    for packet in matched(packets, "egress"):
        assert packet["seq"] == number(packet) % 65536


def test_the_same_id_from_two_containers(network):
    """Masquerade changes the id of one of them: the identification of a packet must not depend on
    the id."""
    other = network.more(1)
    # One after another: masquerade gives two at once the same id, and the kernel drops one.
    for name in (network.inside, other):
        network.run(name, *_probe(id=77, count=1))
    with Watch(network, "--json", targets=[network.inside, other]) as watch:
        processes = [
            network.start(name, *_probe(id=77, first=first, count=100, pause=2000))
            for name, first in ((network.inside, 1), (other, 5001))
        ]
        outs = [process.communicate(timeout=30)[0] for process in processes]
        packets = watch.stop()
    assert [len(out.splitlines()) for out in outs] == [100, 100]
    for name, first, out in ((network.inside, 1, outs[0]), (other, 5001, outs[1])):
        own = [packet for packet in packets if packet["namespace"] == name]
        check_pairs(own, [json.loads(line) for line in out.splitlines()])
        assert all(first <= number(packet) < first + 100 for packet in own)
        assert {packet["id"] for packet in own} == {77}


def _probe(**options):
    words = [str(word) for pair in options.items() for word in pair]
    return [build.c("latency/probe"), "raw", REMOTE[4], *words]


@pytest.mark.parametrize("protocol", ["raw", "ping", "udp", "tcp"])
def test_macvlan(protocol):
    with Network("macvlan") as network:
        network.serve("udp")
        network.serve("tcp")
        with Watch(network, "--json") as watch:
            # The first packet of the container shows the kind of its device.
            network.run(network.inside, "ping", "-c1", REMOTE[4])
            exchanges = network.probe(protocol, first=100, count=COUNT)
            packets = watch.stop()
    packets = [p for p in packets if p["protocol"] != "icmp" or p["payload"] and number(p) >= 100]
    if protocol != "tcp":
        told_numbers = {exchange["number"] for exchange in exchanges}
        check_pairs([p for p in packets if p["payload"] and number(p) in told_numbers], exchanges)
    assert len(matched(packets, "ingress")) >= 0.98 * COUNT


def test_the_hosts_own_namespace(network):
    """Nothing between program and device but the host's own stack."""
    with Watch(network, "--json", targets=[f"/run/netns/{network.host}"]) as watch:
        exchanges = network.probe("raw", name=network.host, count=COUNT)
        packets = watch.stop()
    check_pairs(packets, exchanges)
