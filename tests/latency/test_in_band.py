"""Timestamps that travel with the packets."""

from __future__ import annotations

import json
import subprocess
import time

import pytest
from framework import needs
from framework.latency import REMOTE, TIMEOUT, Watch, check_pairs, matched, number

COUNT = 200


def times_of_device(packets, exchanges):
    """As `check_pairs`, for latencies that begin and end at the container's device."""
    numbers = {exchange["number"]: exchange for exchange in exchanges}
    for packet in packets:
        exchange = numbers[number(packet)]
        assert packet["call_ns"] >= exchange["sent_before"]
        if packet["direction"] == "egress":
            assert packet["call_ns"] < packet["outer_ns"]
        else:
            assert packet["outer_ns"] < packet["call_ns"] <= exchange["read_after"]
        assert packet["device_ns"] == packet["latency_ns"]


@pytest.mark.parametrize("family", [4, 6])
@pytest.mark.parametrize("protocol", ["raw", "ping", "udp"])
def test_each_datagram(network, protocol, family):
    with Watch(network, "--json", "--in-band") as watch:
        exchanges = network.probe(protocol, family, count=COUNT)
        packets = [packet for packet in watch.stop() if packet["payload"]]
    times_of_device(packets, exchanges)
    for way in ("egress", "ingress"):
        assert 0.98 * COUNT <= len(matched(packets, way)) <= COUNT


def test_tcp_on_its_way_out_is_counted_and_not_measured(network):
    with Watch(network, "--json", "--in-band") as watch:
        network.probe("tcp", count=COUNT)
        known = json.loads(watch.order("on").stdout)[0]
        packets = watch.stop()
    assert not matched(packets, "egress")
    assert known["unclaimed"] >= COUNT
    assert len(matched(packets, "ingress")) >= 0.98 * COUNT


def test_so_timestamp_is_the_arrival_at_the_outer_device(network):
    """The kernel gives the program the outer device's time, to a microsecond."""
    script = (
        "import socket, struct, sys\n"
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
        "s.setsockopt(socket.SOL_SOCKET, 35, 1)\n"  # SO_TIMESTAMPNS
        f"s.connect(('{REMOTE[4]}', 7007)); s.settimeout(5)\n"
        "for n in range(1, 51):\n"
        "    s.send(n.to_bytes(4, 'big') + b'abcdefgh')\n"
        "    data, extra, _, _ = s.recvmsg(100, 200)\n"
        "    secs, nanos = struct.unpack('qq', extra[0][2])\n"
        "    print(int.from_bytes(data[:4], 'big'), secs * 10**9 + nanos)\n"
    )
    with Watch(network, "--json", "--in-band") as watch:
        network.run(network.inside, "python3", "-c", script)
        out = network.run(network.inside, "python3", "-c", script).stdout
        packets = matched(watch.stop(), "ingress")
    stamps = dict(map(int, line.split()) for line in out.splitlines())
    arrivals = {number(packet): packet["wall_ns"] for packet in packets}
    common = stamps.keys() & arrivals.keys()
    assert len(common) >= 48
    # The wall clock is adjusted now and then; the test reads the two clocks within a second.
    apart = sorted(abs(stamps[one] - arrivals[one]) for one in common)
    latencies = sorted(packet["latency_ns"] for packet in packets)
    assert apart[len(apart) // 2] < latencies[len(latencies) // 2]


def test_nothing_is_left_after_sigkill(network):
    needs.tool("bpftool")
    with Watch(network, "--json", "--in-band") as watch:
        assert _attached(network) >= 2
        watch.process.kill()
        watch.process.wait(TIMEOUT)
        deadline = time.monotonic() + TIMEOUT
        while _attached(network):
            assert time.monotonic() < deadline
            time.sleep(0.1)


def _attached(network):
    """tcx programs on the host's devices, as the kernel's own links list them."""
    done = subprocess.run(
        ["bpftool", "-j", "prog", "list"], capture_output=True, text=True, timeout=TIMEOUT
    )
    names = [entry.get("name", "") for entry in json.loads(done.stdout)]
    return sum(name in ("leave_outer", "arrive_outer") for name in names)


def test_off_is_off(network):
    with Watch(network, "--json", "--in-band") as watch:
        watch.order("off")
        network.probe("raw", first=1, count=10)
        watch.order("on")
        exchanges = network.probe("raw", first=101, count=10)
        packets = watch.stop()
    assert {number(packet) for packet in packets} <= {exchange["number"] for exchange in exchanges}
    assert len(packets) >= 19


def test_traced_beside_in_band(network):
    """Two ways at once: neither disturbs the other."""
    with Watch(network, "--json") as traced, Watch(network, "--json", "--in-band") as stamped:
        exchanges = network.probe("raw", count=100)
        check_pairs(traced.stop(), exchanges)
        times_of_device(stamped.stop(), exchanges)
