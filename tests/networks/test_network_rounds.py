"""Networks in rounds: nodes with clocks of their own go forward together, frames arrive exactly."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from framework import lorentz
from framework.networks import Capture, Lab, pair

MS = 1_000_000
ROUNDS = "rounds: true\n"

#: Two nodes on a learning switch.
STAR = """\
topology:
  nodes: {a: {}, b: {}, s: {kind: switch}}
  links:
    - {endpoints: ['a:eth0', 's:1'], ipv4: [10.0.0.1/24, null], delay: 3ms}
    - {endpoints: ['s:2', 'b:eth0'], ipv4: [null, 10.0.0.2/24], delay: 4ms}
"""

#: A router between two nodes.
CHAIN = """\
topology:
  nodes:
    a: {exec: [ip route add 10.0.1.0/24 via 10.0.0.9]}
    r: {sysctls: {net.ipv4.ip_forward: 1}}
    b: {exec: [ip route add 10.0.0.0/24 via 10.0.1.9]}
  links:
    - {endpoints: ['a:eth0', 'r:eth0'], ipv4: [10.0.0.1/24, 10.0.0.9/24], delay: 2500us}
    - {endpoints: ['r:eth1', 'b:eth0'], ipv4: [10.0.1.9/24, 10.0.1.2/24], delay: 10ms}
"""

#: Echo requests; prints by how many ns each round trip is longer than it should be, by the clock of
#: the program. The kernel of the other node answers.
PING = """
import socket,struct,sys,time
s=socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_ICMP); s.connect((sys.argv[1],0))
def request(number):
    data=struct.pack('>BBHHH',8,0,0,77,number)+bytes(8)
    total=sum(struct.unpack('>8H',data)); total=(total>>16)+(total&0xffff)
    return data[:2]+struct.pack('>H',~(total+(total>>16))&0xffff)+data[4:]
for number in range(int(sys.argv[3])):
    data=request(number); sent=time.monotonic_ns(); s.send(data)
    while s.recv(100)[20]!=0: pass
    print(time.monotonic_ns()-sent-int(sys.argv[2])); time.sleep(0.001)
"""


def ping(lab: Lab, to: str, wanted: int, count: int) -> list[int]:
    """Returns the time by which round trips exceed `wanted`, virtual ns, as node a measures it."""
    return [int(line) for line in lab.run("a", "python3", "-c", PING, to, wanted, count).split()]


@pytest.mark.parametrize(
    ("text", "to", "wanted"),
    [
        (pair("delay: 5ms"), "10.0.0.2", 10 * MS),
        # 98 bytes at 1 Mbit/s, both ways.
        (pair("delay: 5ms", "rate: 1mbit"), "10.0.0.2", 10 * MS + 2 * 98 * 8_000),
        (STAR, "10.0.0.2", 14 * MS),
        (CHAIN, "10.0.1.2", 25 * MS),
    ],
    ids=["link", "rate", "switch", "router"],
)
@pytest.mark.parametrize("tdf", ["1", "10"])
def test_round_trips_on_the_wire_are_exact_to_the_nanosecond(text, to, wanted, tdf):
    with Lab(f"{ROUNDS}tdf: {tdf}\n{text}") as lab:
        lab.silence_ipv6("a", "b")
        # Addresses are learned first.
        lab.ping("a", to, 1)
        capture = Capture(lab, "a:eth0")
        lab.ping("a", to, 5, 0.02)
        times, late = capture.round_trips(5), lab.status()["lateness"]
    assert times == [wanted] * 5
    # The emulator delivers frames while all clocks stand at exactly that instant.
    assert late["count"] >= 12 and late["max_ns"] == 0


def test_a_router_forwards_at_once_where_rounds_are_long():
    """The network's clock is ahead of the nodes: a round goes on beyond the shortest delay if no
    node has anything to do."""
    with Lab(f"{ROUNDS}rate: 100\ncompute: none\n{CHAIN}") as lab:
        lab.silence_ipv6("a", "r", "b")
        lab.ping("a", "10.0.1.2", 1)
        capture = Capture(lab, "a:eth0")
        lab.ping("a", "10.0.1.2", 20, 0.1)
        times = capture.round_trips(20)
    assert times == [25 * MS] * 20


def test_a_program_sees_the_delay_to_a_microsecond():
    # The node's own work between its clock and the wire counts, at its own TDF.
    nodes = pair("delay: 5ms").replace("a: {}", "a: {tdf: 200}")
    with Lab(ROUNDS + nodes) as lab:
        ping(lab, "10.0.0.2", 10 * MS, 1)
        longer = ping(lab, "10.0.0.2", 10 * MS, 50)
    assert len(longer) == 50
    assert 0 <= min(longer) <= 1_000


def test_what_is_on_its_way_stands_still_with_the_clock():
    with Lab(ROUNDS + pair("delay: 5s")) as lab:
        ends = [Capture(lab, "a:eth0"), Capture(lab, "b:eth0")]
        for end in ("a:eth0", "b:eth0"):
            assert lab.direction(end)["impairments"]["delay"] == "5s"
        lab.learn()
        lab.send("a", "10.0.0.2", 1, 100)
        lorentz.ok("freeze", lab.name)
        lab.wait_until(lambda: lab.status()["state"] == "frozen", "all nodes to stand")
        before = lab.status()
        in_flight = lab.direction("a:eth0")["in_flight"]
        time.sleep(1)
        after = lab.status()
        assert after["virtual_ns"] == before["virtual_ns"]
        assert after["rounds"]["count"] == before["rounds"]["count"]
        assert lab.direction("a:eth0")["in_flight"] == in_flight
        lorentz.ok("unfreeze", lab.name)
        (sent,), (arrived,) = (end.probes(1) for end in ends)
    assert arrived.at - sent.at == 5_000 * MS


def test_scheduled_changes_come_at_their_virtual_instants():
    schedule = """\
schedule:
  - {at: 2s, link: 'a:eth0', set: {delay: 30ms}, both: true}
  - {at: 3s, link: 'a:eth0', state: down}
  - {at: 4s, link: 'b:eth0', state: up}
"""
    with Lab(f"{ROUNDS}rate: 4\n" + pair("delay: 20ms") + schedule) as lab:

        def is_over() -> bool:
            # One answer is one instant.
            status = lab.status()
            link, since = status["links"][0], status["virtual_ns"] / 1e9
            delays = {way["impairments"]["delay"] for way in link["directions"]}
            assert delays == {"30ms" if since >= 2 else "20ms"}, since
            assert link["up"] == (not 3 <= since < 4), since
            return since > 4

        lab.wait_until(is_over, "four virtual seconds")
        lab.wait_for_carrier("a", "b")
        assert lab.ping("a", "10.0.0.2", 2)


def test_a_change_of_a_link_comes_between_rounds():
    with Lab(ROUNDS + pair("delay: 20ms")) as lab:
        lab.learn()
        lab.set("a:eth0", "--delay", "3ms", "--both")
        capture = Capture(lab, "a:eth0")
        lab.ping("a", "10.0.0.2", 3, 0.02)
        assert capture.round_trips(3) == [6 * MS] * 3
        for flags in (["--delay", "0"], ["--reorder", "1%"], ["--jitter", "3ms"]):
            done = lorentz.call("link", "set", "a:eth0", *flags, "--network", lab.name)
            assert done.returncode == 2 and "in rounds" in done.stderr, done
        assert lab.direction("a:eth0")["impairments"]["delay"] == "3ms"
        assert lab.status()["lateness"]["max_ns"] == 0


def test_nodes_have_tdfs_of_their_own():
    busy = "command: 'while :; do :; done'"
    nodes = pair("delay: 5ms").replace("a: {}", f"a: {{tdf: 8, {busy}}}")
    with Lab(ROUNDS + nodes.replace("b: {}", f"b: {{{busy}}}")) as lab:
        lab.wait_until(lambda: lab.status()["virtual_ns"] > 300 * MS, "some rounds")
        status = lorentz.json_of("experiment", "status", lab.name)
        lorentz.ok("dilate", lab.container("b"), "--tdf", "3")
        later = lorentz.json_of("experiment", "status", lab.name)
        words = ("--tdf", "2", "--at", "2100-01-01")
        refused = lorentz.call("dilate", lab.container("b"), *words)
        assert refused.returncode == 2 and "part of the experiment" in refused.stderr
    one, other = status["containers"]
    assert (one["name"], other["name"]) == (lab.container("a"), lab.container("b"))
    assert (one["tdf"], other["tdf"]) == (8, 1) and later["containers"][1]["tdf"] == 3
    assert one["virtual_ns"] == other["virtual_ns"]
    assert one["perceived_overshoot_ns"] == other["perceived_overshoot_ns"] == 0
    assert one["cpu_got_ns"] > other["cpu_got_ns"]
    # One container runs at a time.
    assert status["slowdown"] >= 1


def test_all_begin_at_the_instant_that_is_asked_for():
    tell = "command: [date, '+%s']"
    nodes = pair("delay: 5ms").replace("a: {}", f"a: {{{tell}}}")
    head = f"{ROUNDS}at: 2038-01-19T03:14:00Z\n"
    with Lab(head + nodes.replace("b: {}", f"b: {{{tell}}}")) as lab:
        lab.wait_until(lambda: lab.status()["rounds"]["ended"], "all nodes to end")
        outputs = [lorentz.json_of("inspect", lab.name)["nodes"][at]["output"] for at in (0, 1)]
        texts = [Path(output).read_text() for output in outputs]
        assert lab.status()["rounds"]["ended"] == "all nodes have ended"
    start = 2_147_483_640
    assert all(start <= int(text) < start + 60 for text in texts), texts


def test_a_flag_has_a_network_go_in_rounds(tmp_path):
    with Lab(pair("delay: 5ms")) as lab:
        assert lab.status()["rounds"] is None
        lorentz.ok("down", lab.name)
        lorentz.ok("up", "--rounds", str(lab.file))
        lab.wait_until(lambda: lab.status()["rounds"]["count"] > 2, "some rounds")
    # A delay that is too short is an error, also if --rounds and not the file asks for rounds.
    file = tmp_path / "lab.yaml"
    file.write_text(f"name: wrong-flag\n{pair('delay: 0s')}")
    done = lorentz.call("up", "--check", "--rounds", str(file))
    assert done.returncode == 2 and f"{file}:5:7: " in done.stderr, done


@pytest.mark.parametrize("whose", ["emulator", "experiment"])
def test_what_is_left_when_a_process_is_killed_goes_with_down(whose):
    with Lab(ROUNDS + pair("delay: 5ms")) as lab:
        pid = lab.status()["pid"]
        if whose == "experiment":
            pid = lorentz.json_of("experiment", "status", lab.name)["pid"]
        os.kill(pid, signal.SIGKILL)
        if whose == "experiment":
            lab.wait_until(lambda: lab.status()["rounds"]["ended"], "the rounds to end")
        else:
            lab.wait_until(
                lambda: lab.status()["state"] == "dead",
                "the emulator to be missed",
            )
        lorentz.ok("down", lab.name)
        assert not [one for one in lorentz.ps() if one["name"].startswith(lab.name)]
        assert lab.name not in str(lorentz.json_of("experiment", "status"))


def test_what_goes_on_by_itself_goes_with_down():
    with Lab(ROUNDS + pair("delay: 5ms")) as lab:
        lorentz.ok("experiment", "rm", lab.name)
        lab.wait_until(lambda: lab.status()["rounds"]["ended"], "the rounds to end")
        lorentz.ok("down", lab.name)
        assert not [one for one in lorentz.ps() if one["name"].startswith(lab.name)]


def test_a_node_with_a_date_of_its_own():
    """Only the node's wall clock differs: the nodes stand at one virtual time."""
    topology = pair("delay: 5ms").replace("{a: {}", "{a: {at: 2038-01-19T03:14:00Z}")
    with Lab(f"{ROUNDS}at: 2030-01-01T00:00:00Z\n{topology}") as lab:
        assert [lab.run(node, "date", "+%Y").strip() for node in "ab"] == ["2038", "2030"]
        lorentz.ok("freeze", lab.name)
        lab.wait_until(lambda: lab.status()["state"] == "frozen", "all nodes to stand")
        stood = [lorentz.json_of("time", lab.container(node))["monotonic_ns"] for node in "ab"]
        assert stood[0] == stood[1]


def test_a_date_of_its_own_needs_rounds(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text("name: l\ntopology: {nodes: {a: {at: 2038-01-19}}}\n")
    done = lorentz.call("up", str(file))
    assert done.returncode == 2, done
    assert ":2:28: node a: at of its own: expected 'rounds: true'" in done.stderr
