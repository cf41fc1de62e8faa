"""Loss, duplicates, order, queues, cuts: counted by the emulator and seen by the nodes."""

from __future__ import annotations

import hashlib
import json
import time

import pytest
from framework import lorentz, needs, oracle
from framework.networks import Capture, Lab, pair

pytestmark = pytest.mark.long


def whole(way: dict) -> bool:
    """Whether every frame is accounted for."""
    counts = way["counts"]
    gone = counts["delivered"] + counts["lost"] + counts["dropped"] + counts["cut"]
    return counts["sent"] + counts["duplicated"] == gone + way["in_flight"]


def settled(lab: Lab, count: int) -> dict:
    """Returns the direction from a, once every frame sent is delivered or dropped."""
    lab.wait_until(lambda: lab.direction("a:eth0")["counts"]["sent"] >= count, "all frames")
    lab.wait_until(lambda: lab.direction("a:eth0")["in_flight"] == 0, "an empty link")
    way = lab.direction("a:eth0")
    assert whole(way), way
    return way


def test_loss_and_duplicates_are_as_many_as_asked():
    count = 2_000
    with Lab("seed: 3\n" + pair("loss: 10%", "duplicate: 20%")) as lab:
        lab.learn()
        capture = Capture(lab, "b:eth0")
        lab.send("a", "10.0.0.2", count, 60)
        counts = settled(lab, count)["counts"]
        # Five standard deviations about what is expected.
        assert 130 <= counts["lost"] <= 270, counts
        assert 270 <= counts["duplicated"] <= 450, counts
        probes = capture.probes(count - counts["lost"])
        numbers = [frame.number for frame in probes]
        assert numbers == sorted(numbers)


def test_frames_overtake_only_where_asked():
    for line, overtakes in (("jitter: 4ms", False), ("reorder: 30%", True)):
        with Lab(pair("delay: 5ms", line)) as lab:
            lab.learn()
            capture = Capture(lab, "b:eth0")
            lab.send("a", "10.0.0.2", 200, 60)
            numbers = [frame.number for frame in capture.probes(200)]
        assert sorted(numbers) == list(range(200))
        assert (numbers != sorted(numbers)) == overtakes


def test_a_full_queue_drops():
    with Lab(pair("rate: 100kbit", "queue: {packets: 10}")) as lab:
        lab.learn()
        lab.send("a", "10.0.0.2", 200, 1_000)
        lab.wait_until(lambda: lab.direction("a:eth0")["counts"]["dropped"] > 100, "drops")
        way = lab.direction("a:eth0")
        assert whole(way) and way["queued"] <= 10, way
        # Faster from here on: the queue is empty at once.
        lab.set("a:eth0", "--rate", "1gbit")
        settled(lab, 200)


def test_a_link_is_changed_while_it_is_saturated():
    needs.tool("iperf3")
    with Lab(pair("rate: 20mbit", "delay: 2ms")) as lab:
        server = lab.start("b", "iperf3", "-s", "-1", "--forceflush")
        assert "listening" in "".join(server.stdout.readline() for _ in range(2))
        client = lab.start("a", "iperf3", "-c", "10.0.0.2", "-t", "3", "-J")
        for rate in ("5mbit", "40mbit", "10mbit"):
            lab.set("a:eth0", "--rate", rate, "--delay", "3ms")
            assert lab.direction("a:eth0")["impairments"]["rate"] == rate
            assert lab.direction("b:eth0")["impairments"] == {"rate": "20mbit", "delay": "2ms"}
        out, _ = client.communicate(timeout=60)
        got = json.loads(out)["end"]["sum_received"]["bits_per_second"]
        # Not more than the fastest rate, and not nearly nothing.
        assert 1e6 < got < 40e6


@pytest.mark.parametrize("discipline", ["red, red-min: 10kb, red-max: 60kb", "codel"])
@pytest.mark.parametrize("understands", [True, False])
def test_a_queue_marks_packets_of_those_who_understand_it(discipline, understands):
    ect = 0b10
    queue = f"queue: {{packets: 400, discipline: {discipline}, ecn: true}}"
    # At this TDF the sender is far faster than the link, even if it is interrupted.
    with Lab("tdf: 10\n" + pair("rate: 20mbit", "delay: 10ms", queue)) as lab:
        lab.learn()
        # They fit into the queue, and stay there for up to 0.2 s.
        lab.send("a", "10.0.0.2", 390, 1400, tos=ect if understands else 0)
        settled(lab, 390)
        counts = lab.direction("a:eth0")["counts"]
        if understands:
            assert counts["marked"] > 0 and counts["dropped"] == 0, counts
        else:
            assert counts["marked"] == 0 and counts["dropped"] > 0, counts


@pytest.mark.parametrize("discipline", ["red, red-min: 10kb, red-max: 60kb", "codel"])
def test_a_connection_that_understands_marks(discipline):
    needs.tool("iperf3")
    queue = f"queue: {{packets: 400, discipline: {discipline}, ecn: true}}"
    with Lab(pair("rate: 20mbit", "delay: 10ms", queue)) as lab:
        for node in "ab":
            lab.run(node, "sysctl", "-qw", "net.ipv4.tcp_ecn=1")
        server = lab.start("b", "iperf3", "-s", "-1", "--forceflush")
        assert "listening" in "".join(server.stdout.readline() for _ in range(2))
        lab.run("a", "iperf3", "-c", "10.0.0.2", "-t", "4")
        way = lab.direction("a:eth0")
        assert whole(way) and way["counts"]["marked"] > 0 and way["counts"]["lost"] == 0


def test_a_cut_link_has_no_carrier_and_loses_what_was_on_its_way():
    with Lab(pair("delay: 30s")) as lab:
        lab.learn()
        lab.send("a", "10.0.0.2", 5, 100)
        lab.wait_until(lambda: lab.direction("a:eth0")["in_flight"] >= 5, "frames on their way")
        lab.set("b:eth0", "--down")
        way = lab.direction("a:eth0")
        assert way["in_flight"] == 0 and way["counts"]["cut"] >= 5 and whole(way)
        for node in "ab":
            lab.wait_until(lambda node=node: not lab.has_carrier(node), "no carrier")
        lab.set("a:eth0", "--up", "--delay", "0", "--both")
        lab.wait_for_carrier("a", "b")
        assert lab.ping("a", "10.0.0.2", 2)


SWITCHED = """\
topology:
  nodes: {{a: {{}}, b: {{}}, c: {{}}, d: {{}}, s: {{kind: {kind}}}, t: {{kind: switch}}}}
  links:
    - {{endpoints: ['a:eth0', 's:1'], ipv4: [10.0.0.1/24, null]}}
    - {{endpoints: ['b:eth0', 's:2'], ipv4: [10.0.0.2/24, null]}}
    - {{endpoints: ['c:eth0', 's:3'], ipv4: [10.0.0.3/24, null]}}
    - {{endpoints: ['d:eth0', 't:1'], ipv4: [10.0.0.4/24, null]}}
    - {{endpoints: ['s:9', 't:9'], delay: 2ms}}
"""


@pytest.mark.parametrize(("kind", "overheard"), [("switch", 0), ("hub", 3)])
def test_switches_learn_and_hubs_do_not(kind, overheard):
    with Lab(SWITCHED.format(kind=kind)) as lab:
        # Every switch has learned the address of a node that answers.
        assert min(lab.ping("a", "10.0.0.4", 2)) >= 4
        lab.ping("a", "10.0.0.2", 1)
        lab.ping("a", "10.0.0.3", 1)
        capture = Capture(lab, "c:eth0")
        lab.send("a", "10.0.0.2", 3, 100)
        # A frame that c gets comes after those that it should not.
        lab.send("a", "10.0.0.3", 1, 100)
        to_c = [frame for frame in capture.probes(1 + overheard) if frame.way == "in"]
        assert len(to_c) == 1 + overheard


def test_long_frames_pass_where_the_mtu_is_large():
    with Lab(pair("mtu: 9000")) as lab:
        lab.learn()
        capture = Capture(lab, "b:eth0")
        lab.send("a", "10.0.0.2", 1, 8_000)
        assert len(capture.probes(1)[0].data) == 8_042


@pytest.mark.parametrize("stands", [3, pytest.param(60, marks=pytest.mark.patient)])
def test_tcp_goes_on_after_a_freeze_as_if_nothing_had_been(stands: int):
    """stands: real seconds."""
    code = (
        "import socket,time,hashlib\n"
        "s=socket.create_server(('10.0.0.2',7000)); print('ready',flush=True)\n"
        "c,_=s.accept(); t=time.monotonic(); h=hashlib.md5(); n=0\n"
        "while d:=c.recv(65536): h.update(d); n+=len(d)\n"
        "print(n,h.hexdigest(),time.monotonic()-t)\n"
    )
    size = 2_000_000
    client = f"import socket;c=socket.create_connection(('10.0.0.2',7000));c.sendall(bytes({size}))"
    with Lab(pair("rate: 10mbit", "delay: 5ms")) as lab, oracle.HostNoise() as noise:
        server = lab.start("b", "python3", "-c", code)
        assert server.stdout.readline() == "ready\n"
        lab.start("a", "python3", "-c", client)
        lab.wait_until(lambda: lab.direction("a:eth0")["counts"]["delivered"] > 100, "traffic")
        lorentz.ok("freeze", lab.name)
        before = lab.status()["virtual_ns"]
        time.sleep(stands)
        assert lab.status()["virtual_ns"] == before
        lorentz.ok("unfreeze", lab.name)
        got, digest, seconds = server.communicate(timeout=60)[0].split()
    assert (int(got), digest) == (size, hashlib.md5(bytes(size)).hexdigest())
    # 1.6 s of the link's time, and none of the freeze; generous for a busy machine.
    assert 1.6 <= float(seconds) < 4.5 + noise.slack, noise.worst
