"""Events of networks and containers during measurement."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from framework import needs
from framework.latency import (
    REMOTE,
    TIMEOUT,
    Network,
    Watch,
    check_pairs,
    matched,
    misses,
    number,
    programs,
)


def test_background_senders(network):
    """Coverage stays, and nothing is matched wrongly, while other containers flood."""
    with Network() as crowded, Watch(crowded, "--json") as watch:
        crowded.flood(8)
        exchanges = crowded.probe("raw", count=300)
        packets = watch.stop()
        check_pairs(packets, exchanges)


def test_fragments_are_misses_or_right(network, watch):
    """Conntrack reassembles fragments and cuts them anew: the programs cannot follow such
    packets."""
    found = network.probe("raw", count=20, size=4000)
    packets = watch.stop()
    assert len(found) == 20
    assert misses(packets), "fragments through masquerade are new packets"
    exchanges = {exchange["number"]: exchange for exchange in found}
    for packet in matched(packets, "egress"):
        if packet["payload"]:
            exchange = exchanges[number(packet)]
            assert exchange["sent_before"] <= packet["call_ns"] <= exchange["sent_after"]


def test_retransmissions_belong_to_no_call(network):
    """A segment that TCP sends again has no send call; it is not taken for another's."""
    with Network() as lossy:
        lossy.serve("tcp")
        rule = "add table ip lossy; add chain ip lossy in { type filter hook input priority 0; };"
        drop = "add rule ip lossy in tcp dport 7007 meta length > 80 numgen inc mod 5 == 0 drop"
        lossy.run(lossy.remote, "nft", rule + drop)
        with Watch(lossy, "--json") as watch:
            exchanges = lossy.probe("tcp", count=20)
            known = json.loads(watch.order("on").stdout)[0]
            packets = watch.stop()
    assert len(exchanges) == 20
    assert known["unclaimed"] > 5, "connection and retransmissions"
    firsts = [packet["tcp_seq"] for packet in matched(packets, "egress")]
    assert len(firsts) == len(set(firsts)) <= 20
    for packet, exchange in zip(matched(packets, "egress"), exchanges, strict=False):
        assert packet["latency_ns"] < 1e9 + exchange["sent_after"] - exchange["sent_before"]


LATE = """
import json, socket, sys, time
s = socket.socket(socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
s.setsockopt(socket.SOL_SOCKET, 32, 4 << 20)  # SO_SNDBUFFORCE: room for all of it
s.connect((sys.argv[1], 7008))
for _ in range(20):
    before = time.monotonic_ns()
    s.sendall(b"x" * 100000)
    print(json.dumps([before, time.monotonic_ns()]))
# All data is written: now the server may read.
socket.create_connection((sys.argv[1], 7008)).close()
s.shutdown(socket.SHUT_WR)
s.recv(1)
"""
SLOW = """
import socket
server = socket.create_server(("::", 7008), family=socket.AF_INET6, dualstack_ipv6=True)
print("ready", flush=True)
connection, _ = server.accept()
server.accept()
while connection.recv(65536): pass
connection.close()
"""


@pytest.mark.parametrize("family", [4, 6])
def test_segments_that_leave_later_than_their_call(network, watch, family):
    """If the peer does not read, TCP sends when there is room: the bytes are still that call's."""
    slow = network.start(network.remote, "python3", "-c", SLOW)
    assert "ready" in slow.stdout.readline()
    try:
        done = network.run(network.inside, "python3", "-c", LATE, REMOTE[family])
    finally:
        slow.kill()
    calls = [json.loads(line) for line in done.stdout.splitlines()]
    packets = [packet for packet in watch.stop() if packet["direction"] == "egress"]
    begin = packets[0]["tcp_seq"]
    late = 0
    for packet in matched(packets, "egress"):
        call = (packet["tcp_seq"] - begin) % 2**32 // 100000
        before, after = calls[call]
        assert before <= packet["call_ns"] <= after, (call, packet)
        late += packet["outer_ns"] > after
    assert late >= 5, "some left later than their call"
    assert len(matched(packets, "egress")) >= 10
    shared = [packet for packet in packets if packet["outcome"] == "shared"]
    for packet in shared:
        begins = (packet["tcp_seq"] - begin) % 2**32 % 100000
        assert begins + packet["length"] > 100000, "all of it is one call's"


MIXED = """
import os, socket, sys, tempfile
s = socket.create_connection((sys.argv[1], 7007))
s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
with tempfile.TemporaryFile() as file:
    file.write(b"y" * 3000)
    file.flush()
    for _ in range(30):
        s.send(b"x" * 1000)
        assert os.sendfile(s.fileno(), file.fileno(), 0, 3000) == 3000
        got = 0
        while got < 4000: got += len(s.recv(4000 - got))
"""


def test_what_sendfile_sends_is_not_the_call_before(network, watch):
    """The programs do not follow sendfile: its bytes belong to no call, also not to the write
    before."""
    network.run(network.inside, "python3", "-c", MIXED, REMOTE[4])
    known = json.loads(watch.order("on").stdout)[0]
    packets = [packet for packet in watch.stop() if packet["direction"] == "egress"]
    begin = packets[0]["tcp_seq"]
    found = [
        ((p["tcp_seq"] - begin) % 2**32 % 4000, p) for p in packets if p["outcome"] != "kernel"
    ]
    assert len(found) >= 28
    for begins, packet in found:
        assert begins < 1000, packet
        whole = begins + packet["length"] - 52 <= 1000
        assert packet["outcome"] == ("matched" if whole else "shared"), packet
    assert known["unclaimed"] >= 28


def test_bulk_is_counted_and_never_guessed(network, watch):
    """Segments joined by GSO and GRO: each is matched, shared, the kernel's, or a miss."""
    script = (
        "import socket; s = socket.create_connection(('10.9.0.2', 7007)); n = 0\n"
        "s.sendall(b'x' * 300000)\n"
        "while n < 300000: n += len(s.recv(65536))\n"
    )
    network.run(network.inside, "python3", "-c", script)
    known = json.loads(watch.order("on").stdout)[0]
    packets = watch.stop()
    assert packets and all(packet["protocol"] == "tcp" for packet in packets)
    for packet in packets:
        assert (packet["latency_ns"] is not None) == (packet["outcome"] in ("matched", "again"))
    found = sum(sum(row["outcomes"].values()) for row in known["rows"])
    assert found <= len(packets)


def test_a_container_that_ends_in_mid_flight(network):
    with Network() as network, Watch(network, "--summary") as watch:
        pinging = network.start(network.inside, "ping", "-f", "-q", REMOTE[4])
        deadline = time.monotonic() + TIMEOUT
        while len(_directions(json.loads(watch.order("on").stdout)[0])) < 2:
            assert time.monotonic() < deadline, "no packets both ways"
            time.sleep(0.05)
        subprocess.run(["ip", "netns", "del", network.inside], timeout=TIMEOUT, check=True)
        pinging.kill()
        pinging.wait(TIMEOUT)
        # No namespace is left to watch: it ends by itself and prints the statistics.
        assert watch.process.wait(TIMEOUT) == 0
        known = json.loads(watch.finish())
    assert _directions(known) == {"egress", "ingress"}


def _directions(known):
    """The directions of which there are statistics."""
    return {row["direction"] for row in known["rows"]}


def test_an_outer_device_that_is_renamed_or_goes():
    with Network() as network, Watch(network, "--json") as watch:
        network.run(network.host, "ip", "link", "set", "eth0", "name", "wan0")
        exchanges = network.probe("raw", count=50)
        network.run(network.host, "ip", "link", "del", "wan0")
        assert watch.process.wait(TIMEOUT) == 1
        assert watch.process.stderr.read() == "lorentz: eth0: the outer device is gone\n"
        packets = [json.loads(line) for line in watch.output().splitlines()]
        check_pairs(packets, exchanges)


def test_a_ring_that_overflows_counts_what_it_loses(network):
    """Stopped readers lose records: the printed packets stay right, and the loss is counted."""
    with Watch(network, "--json", "--ring", "4096") as watch:
        watch.process.send_signal(signal.SIGSTOP)
        _lorentz_of(watch, signal.SIGSTOP)
        exchanges = network.probe("raw", count=500)
        _lorentz_of(watch, signal.SIGCONT)
        watch.process.send_signal(signal.SIGCONT)
        known = json.loads(watch.order("on").stdout)[0]
        packets = watch.stop()
    assert known["dropped"] > 0
    both = len(matched(packets, "egress")) + len(matched(packets, "ingress"))
    assert both + known["dropped"] >= 0.98 * 1000
    numbers = {number(packet) for packet in packets}
    check_pairs(
        packets, [e for e in exchanges if e["number"] in numbers and _both(packets, e["number"])]
    )


def _both(packets, wanted):
    return len([p for p in packets if number(p) == wanted and p["outcome"] == "matched"]) == 2


def _lorentz_of(watch, number):
    """Signals the command itself, where `ip netns exec` is not replaced by it."""
    for pid in _family(watch.process.pid)[:-1]:
        os.kill(pid, number)


def test_two_watchers_see_the_same(network):
    with Watch(network, "--json") as one, Watch(network, "--json") as other:
        exchanges = network.probe("udp", count=100)
        seen = [one.stop(), other.stop()]
    for packets in seen:
        check_pairs(packets, exchanges)


def test_namespaces_that_come_and_go_leave_nothing_in_the_maps(network):
    needs.tool("bpftool")
    before = set(_maps())
    with Watch(network, "--json"):
        own = [one for one in _maps() if one not in before]
        sizes = {}
        for round in range(3):
            for number in range(30, 34):
                name = network.more(number)
                network.probe("raw", name=name, count=20)
                subprocess.run(["ip", "netns", "del", name], timeout=TIMEOUT, check=True)
                network.extra.remove(name)
            time.sleep(1.5)
            sizes[round] = {one: _entries(one) for one in own}
        spaces = [[sizes[r][one] for r in sizes] for one in own if _name(one) == "spaces"]
        assert spaces == [[1] * 3]
        # The command takes out of the others what is old, now and then.
        others = [one for one in own if _name(one) != "spaces"]
        deadline = time.monotonic() + TIMEOUT
        while any(_entries(one) > 64 for one in others):
            assert time.monotonic() < deadline, [(_name(one), _entries(one)) for one in others]
            time.sleep(0.1)


def _bpftool(*words):
    done = subprocess.run(
        ["bpftool", "-j", *words], capture_output=True, text=True, timeout=TIMEOUT
    )
    return json.loads(done.stdout or "[]")


def _maps():
    return [entry["id"] for entry in _bpftool("map", "list") if _known(entry.get("name", ""))]


def _known(name):
    return name in ("spaces", "leaving", "arrived", "delivered", "delays")


def _name(one):
    # Others on this machine may make a map without a name meanwhile.
    return _bpftool("map", "show", "id", str(one)).get("name", "")


def _entries(one):
    return len(_bpftool("map", "dump", "id", str(one)))


def test_nothing_is_left_after_sigkill(network):
    needs.tool("bpftool")
    with Watch(network, "--json") as watch:
        own = _programs_of(watch.process.pid)
        assert len(own) == 8 and own <= {one.split()[0] for one in programs()}
        for pid in _family(watch.process.pid):
            os.kill(pid, signal.SIGKILL)
        watch.process.wait(TIMEOUT)
        # The kernel frees unreferenced objects with some delay.
        deadline = time.monotonic() + TIMEOUT
        while own & {one.split()[0] for one in programs()}:
            assert time.monotonic() < deadline
            time.sleep(0.1)
    output = network.run(network.host, "cat", "/proc/net/unix").stdout
    assert f"lorentz-latency/{watch.process.pid}" not in output


def _programs_of(pid):
    """The ids of the BPF programs that a process has open."""
    texts = [file.read_text() for file in Path(f"/proc/{pid}/fdinfo").iterdir()]
    return {found[1] for text in texts if (found := re.search(r"^prog_id:\s+(\d+)$", text, re.M))}


def _family(pid):
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [*map(int, children.split()), pid]


def test_on_and_off_and_reset(network):
    with Watch(network, "--json") as watch:
        network.probe("raw", first=1, count=10)
        assert watch.order("off").returncode == 0
        network.probe("raw", first=101, count=10)
        assert json.loads(watch.order("reset").stdout)[0]["rows"] == []
        assert watch.order("on").returncode == 0
        network.probe("raw", first=201, count=10)
        time.sleep(0.2)
        (known,) = json.loads(watch.order("on").stdout)
        packets = watch.stop()
    numbers = {number(packet) for packet in packets}
    assert not numbers & set(range(101, 111)), "off is off"
    assert numbers & set(range(1, 11)) and numbers & set(range(201, 211))
    assert all(row["count"] <= 10 for row in known["rows"])


def test_an_order_that_nobody_takes(network):
    done = Watch(network).order("off", network.remote)
    assert done.returncode == 2
    assert "nobody watches it" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize("form", ["--summary", "--prometheus", "--histogram"])
def test_each_form(network, form):
    with Watch(network, form) as watch:
        network.probe("udp", count=50)
        text = watch.finish()
    if form == "--summary":
        rows = {(row["protocol"], row["direction"]): row for row in json.loads(text)["rows"]}
        for way in ("egress", "ingress"):
            row = rows["udp", way]
            assert 49 <= row["count"] <= 50
            assert 0 < row["median_ns"] <= row["p95_ns"] <= row["p99_ns"]
    elif form == "--prometheus":
        buckets = re.findall(r'_bucket\{.*"udp",direction="egress",le="(.*)"\} (\d+)', text)
        limits = [limit for limit, _ in buckets]
        assert limits[-1] == "+Inf" and limits[:-1] == [str(2**at) for at in range(len(limits) - 1)]
        counts = [int(count) for _, count in buckets]
        assert counts == sorted(counts) and counts[-1] >= 49
    else:
        assert "udp" in text and "up to" in text and "#" in text


def test_what_goes_on_inside_the_host_is_not_counted_as_egress(network, watch):
    """A packet to another container never reaches the outer device, and counts as a miss."""
    network.run(network.inside, "ping", "-c3", "-i0.2", "172.30.0.1")
    packets = watch.stop()
    assert not matched(packets, "egress") and not matched(packets, "ingress")
    assert {packet["outcome"] for packet in packets} == {"lost"}


def test_a_listener_is_not_taken_for_the_reader(network, watch):
    """A packet socket sees the packet first; the match belongs to the packet's receiver."""
    script = (
        "import socket; s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))\n"
        "print('ready', flush=True)\n"
        "while True: s.recv(2000)\n"
    )
    listener = network.start(network.inside, "python3", "-c", script)
    assert "ready" in listener.stdout.readline()
    exchanges = network.probe("udp", count=100)
    packets = watch.stop()
    check_pairs(packets, exchanges)
