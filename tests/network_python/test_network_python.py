"""Networks from Python: building, changes while they run, import of files and of Mininet
topologies."""

from __future__ import annotations

import math
import re
import time
import types
from collections.abc import Iterator
from datetime import datetime, timezone
from fractions import Fraction
from pathlib import Path

import pytest
from framework import needs
from framework.linked import in_this_process
from lorentz import Experiment, LorentzError, Network, WrongInputError

SCENARIOS = Path(__file__).parent.parent / "networks" / "scenarios"
ADDRESSES = ("10.0.0.1/24", "10.0.0.2/24")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with in_this_process(monkeypatch, "taps", "inspect"):
        yield


def ping(node, to: str, count: int = 3) -> list[float]:
    """Round-trip times in ms of virtual time."""
    done = node.run([needs.tool("ping"), "-c", str(count), "-i", "0.2", to], capture_output=True)
    assert done.returncode == 0, done
    return [float(ms) for ms in re.findall(rb"time=([\d.]+) ms", done.stdout)]


def test_a_network_is_built_and_changed_while_it_runs():
    network = Network(tdf=2)
    a, b = network.node("a"), network.node("b", env={"A": "1"})
    link = network.link(a, b, rate="10gbit", delay="5ms", ipv4=ADDRESSES)
    with network:
        assert link.ends == ("a:eth0", "b:eth0")
        assert min(ping(a, "10.0.0.2")) >= 10
        link.set(delay="20ms", loss="0%")
        assert min(ping(a, "10.0.0.2")) >= 40
        link.set(b, delay=0.05, rate=100_000_000)
        ways = {way["from"]: way["impairments"] for way in link.show()["directions"]}
        assert (ways["a:eth0"]["delay"], ways["a:eth0"]["rate"]) == ("20ms", "10gbit")
        assert (ways["b:eth0"]["delay"], ways["b:eth0"]["rate"]) == ("50ms", "100mbit")
        link.set(up=False)
        assert link.show()["up"] is False
        assert network.clock.time().tdf == 2 and a.time().tdf == 2
        network.clock.dilate(4)
        assert network.status()["state"] == "running" and b.time().tdf == 4
        before = link.show()["directions"]
        with pytest.raises(WrongInputError, match="percentage"):
            link.set(loss="2")
        with pytest.raises(WrongInputError, match="sender"):
            link.set("c", delay=1)
        after = link.show()["directions"]
        assert [w["impairments"] for w in before] == [w["impairments"] for w in after]


def test_changes_of_clocks_are_scheduled_and_taken_over():
    """One stands in the network's first file; others come while it runs."""
    network = Network(rounds=True, rate=4)
    a, b = network.node("a"), network.node("b")
    network.link(a, b, delay="5ms")
    network.schedule("1s", clock=a, fault={"bump": "+90s"})
    with network:
        deadline = time.monotonic() + 20
        while network.status()["changes_to_come"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert a.clock.show().offset_ns == 90 * 10**9 and b.clock.show().offset_ns == 0
        network.schedule("1h", clock="all", fault={"drift": "+200ppm", "for": "10m"})
        network.update()
        assert network.status()["changes_to_come"] == 2
        network.schedule("1ms", link="a:eth0", state="down")
        with pytest.raises(WrongInputError, match="at 1ms: is past"):
            network.update()


def test_a_network_in_rounds():
    network = Network(rounds=True)
    a, b = network.node("a", tdf=10), network.node("b")
    network.link(a, b, delay="5ms", ipv4=ADDRESSES)
    with network:
        assert min(ping(a, "10.0.0.2")) >= 10
        assert (a.time().tdf, b.time().tdf) == (10, 1)
        status = network.status()
        assert status["rounds"]["count"] > 0 and status["lateness"]["max_ns"] == 0


#: Sends a datagram and prints how long its echo took, ns.
ASK = """
import socket, time
channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
channel.connect(("10.0.0.2", 7))
time.sleep(0.1)
for _ in range(2):  # The first one asks for the other's address.
    sent = time.monotonic_ns()
    channel.send(b"x")
    channel.recv(9)
    took = time.monotonic_ns() - sent
print(took, flush=True)
"""
ECHO = """
import socket
channel = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
channel.bind(("", 7))
while True:
    channel.sendto(*channel.recvfrom(9))
"""


def test_computing_takes_no_time():
    """Programs see the delays of the link alone, to the nanosecond."""
    network = Network(rounds=True, compute="none")
    a = network.node("a", ["python3", "-c", ASK])
    b = network.node("b", ["python3", "-c", ECHO])
    network.node("c", ["sleep", "1000"], compute="real", parallel=1)
    network.link(a, b, delay="5ms", ipv4=ADDRESSES)
    with network:
        chosen = {
            one.name: one.compute for one in Experiment.open(network.name).status().containers
        }
        assert chosen == {f"{network.name}.{node}": "none" for node in "ab"} | {
            f"{network.name}.c": "real"
        }
        (output,) = (Path(one["output"]) for one in network.status()["nodes"] if one["name"] == "a")
        end = time.monotonic() + 30
        while not output.read_text().endswith("\n"):
            assert time.monotonic() < end, output.read_text()
            time.sleep(0.02)
        assert output.read_text() == "10000000\n"


def test_nodes_and_links_come_and_go_while_it_is_up():
    network = Network()
    a, b = network.node("a"), network.node("b")
    network.link(a, b, ipv4=ADDRESSES)
    with network:
        late = network.node("late", exec=["ip addr show eth0"])
        link = network.link(a, late, delay="5ms", ipv4=("10.1.0.1/24", "10.1.0.2/24"))
        network.update()
        assert min(ping(a, "10.1.0.2", 1)) >= 10
        link.set(delay="1ms")
        del network.topology["topology"]["nodes"]["late"]
        network.topology["topology"]["links"].pop()
        network.update()
        assert {one["name"] for one in network.status()["nodes"]} == {"a", "b"}


def test_a_node_with_a_date_of_its_own():
    network = Network(rounds=True, at="2030-01-01")
    a, b = network.node("a", at="2038-01-19"), network.node("b")
    network.link(a, b, delay="5ms")
    with network:
        dates = [node.run(["date", "+%Y"], capture_output=True).stdout for node in (a, b)]
        assert dates == [b"2038\n", b"2030\n"]


def test_an_image_that_is_not_there():
    network = Network()
    network.node("a", image="localhost/nosuch:1")
    with pytest.raises(WrongInputError, match=r"does not have: localhost/nosuch:1 \(a\)"):
        network.up()


def test_private_nodes():
    network = Network(isolation="private")
    a, b = network.node("a"), network.node("b", isolation="host")
    network.node("c", network_of=a)
    network.link(a, b, delay="1ms", ipv4=("10.0.0.1/24", "10.0.0.2/24"))
    with network:
        first = [node.run(["cat", "/proc/1/comm"], capture_output=True).stdout for node in (a, b)]
        assert first[0] == b"idle\n" != first[1]


def test_a_tdf_of_a_node_alone_needs_rounds():
    network = Network()
    network.node("a", tdf=2)
    with pytest.raises(WrongInputError, match="rounds"):
        network.up()


def test_options_of_the_clock():
    network = Network(rate=Fraction(1, 3), at=datetime(2038, 1, 19, 3, 14, tzinfo=timezone.utc))
    assert network.topology["rate"] == "1/3"
    assert network.topology["at"] == "2038-01-19T03:14:00Z"
    with pytest.raises(WrongInputError, match="tdf fast"):
        Network(tdf="fast")
    with pytest.raises(TypeError, match="'frozen'; expected one of at, rate, tdf"):
        Network(frozen=True)


def test_switches_and_interfaces():
    network = Network()
    hosts = [network.node(f"h{number}") for number in range(3)]
    switch = network.switch("s")
    for number, host in enumerate(hosts):
        network.link(host, switch, ipv4=(f"10.0.0.{number + 1}/24", None), delay="1ms")
    extra = network.link("h0", "h1")
    assert extra.ends == ("h0:eth1", "h1:eth1")
    with network:
        assert min(ping(hosts[0], "10.0.0.3")) >= 4
        assert set(network.nodes) == {"h0", "h1", "h2"} and len(network.links) == 4


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"rate": "fast"}, "8bit to 1tbit"),
        ({"rate": 3}, "8bit to 1tbit"),
        ({"delay": -1}, "from 0 to 1d"),
        ({"delay": "soon"}, "soon"),
        ({"loss": 3}, "percentage"),
        ({"colour": "red"}, "colour"),
        ({"ipv4": ["10.0.0.1"]}, "one for each end"),
        ({"reorder": "1%"}, "delay above 0"),
    ],
)
def test_what_makes_no_sense_is_not_made(options, words):
    network = Network()
    with pytest.raises(WrongInputError, match=words) as raised:
        network.link(network.node("a"), network.node("b"), **options)
        network.up()
    assert "/tmp" not in str(raised.value) and "topology.yaml" not in str(raised.value)


def test_nodes_have_names_of_their_own():
    network = Network()
    network.node("a")
    with pytest.raises(WrongInputError, match="there already"):
        network.switch("a")


def test_a_command_that_fails_leaves_nothing():
    network = Network()
    network.node("a", exec=["echo because; exit 3"])
    with pytest.raises(LorentzError, match="exit status 3: because"):
        network.up()


def test_a_scenario_of_another_emulator():
    network = Network.from_file(SCENARIOS / "campus.xml", "py-campus")
    assert len(network.left_out) == 4 and "campus.xml:7:5: " in network.left_out[0]
    with network:
        assert min(ping(network.nodes["pc"], "10.0.2.30")) >= 27


class Topo:
    """The methods of a Mininet Topo."""

    def __init__(self) -> None:
        self.info: dict[str, dict] = {}
        self.joined: list[tuple[str, str, dict]] = []

    def add(self, name: str, **options: object) -> None:
        self.info[name] = options

    def join(self, a: str, b: str, **options: object) -> None:
        ports = [sum(n in (x, y) for x, y, _ in self.joined) + self.isSwitch(n) for n in (a, b)]
        ends = {"node1": a, "node2": b, "port1": ports[0], "port2": ports[1]}
        self.joined.append((a, b, {**options, **ends}))

    def isSwitch(self, name: str) -> bool:  # noqa: N802
        return bool(self.info[name].get("isSwitch"))

    def hosts(self) -> list[str]:
        return sorted(name for name in self.info if not self.isSwitch(name))

    def switches(self) -> list[str]:
        return sorted(name for name in self.info if self.isSwitch(name))

    def nodeInfo(self, name: str) -> dict:  # noqa: N802
        return self.info[name]

    def links(self, withInfo: bool = False) -> list:  # noqa: N803
        # Ends in order of their names, as Mininet sorts them.
        return [(*sorted((a, b)), info) if withInfo else (a, b) for a, b, info in self.joined]


def test_a_mininet_topology():
    topo = Topo()
    topo.add("h1")
    topo.add("h2", ip="10.0.0.77", cpu=0.5)
    topo.add("s1", isSwitch=True)
    topo.join("s1", "h1", bw=10, delay="5ms", loss=0, max_queue_size=50)
    topo.join("h2", "s1", delay=3000, use_htb=True)
    network = Network.from_mininet(topo, tdf=1)
    first, second = network.topology["topology"]["links"]
    assert first["endpoints"] == ["s1:s1-eth1", "h1:h1-eth0"]
    assert first["rate"] == "10000000bit" and first["queue"] == {"packets": 50}
    assert first["ipv4"] == [None, "10.0.0.1/8"] and "loss" not in first
    assert second["ipv4"] == ["10.0.0.77/8", None]
    assert network.left_out == ["h2: cpu=0.5"]
    with network:
        assert min(ping(network.nodes["h1"], "10.0.0.77")) >= 16


class LinuxRouter:
    """As in Mininet's example linuxrouter.py."""

    def config(self) -> None:
        self.cmd("sysctl net.ipv4.ip_forward=1")


class Firewall:
    """A class that Lorentz knows nothing of."""


def test_a_mininet_router_with_addresses_of_its_links():
    topo = Topo()
    topo.add("r0", cls=LinuxRouter, ip="192.168.1.1/24")
    topo.add("h1", ip="192.168.1.100/24", defaultRoute="via 192.168.1.1")
    topo.add("h2", ip="172.16.0.100/12", defaultRoute="h2-eth0", cls=Firewall)
    topo.add("s1", isSwitch=True)
    topo.join("s1", "r0", intfName2="r0-eth1", params2={"ip": "192.168.1.1/24"})
    topo.join("h1", "s1")
    topo.join(
        "h2",
        "r0",
        intfName2="r0-eth2",
        params1={"bw": 5},
        params2={"ip": "172.16.0.1/12"},
        bw=10,
        latency_ms=20,
        enable_red=True,
        enable_ecn=True,
        use_tbf=True,
        delay="2ms",
    )
    network = Network.from_mininet(topo)
    links = network.topology["topology"]["links"]
    assert links[2]["endpoints"] == ["h2:h2-eth0", "r0:r0-eth2"]
    assert links[2]["queue"] == {"bytes": 25_000, "discipline": "red", "ecn": True}
    assert links[2]["from"] == {"h2:h2-eth0": {"rate": "5000000bit"}}
    assert network.left_out == ["h2: cls=Firewall"]
    with network:
        # The answer finds its way by h2's default route over an interface.
        network.nodes["h2"].run(
            ["ip", "route", "replace", "default", "via", "172.16.0.1"], check=True
        )
        assert min(ping(network.nodes["h1"], "172.16.0.100")) >= 4


def test_a_mininet_torus_has_a_spanning_tree():
    topo = Topo()
    for x in range(3):
        for y in range(3):
            topo.add(f"s{x}x{y}", isSwitch=True)
            topo.add(f"h{x}x{y}")
            topo.join(f"h{x}x{y}", f"s{x}x{y}")
    for x in range(3):
        for y in range(3):
            topo.join(f"s{x}x{y}", f"s{x}x{(y + 1) % 3}")
            topo.join(f"s{x}x{y}", f"s{(x + 1) % 3}x{y}")
    network = Network.from_mininet(topo)
    assert network.left_out == []
    with network:
        # ping waits for its last reply no longer than for the others: one request each.
        for node, to in (("h0x0", "10.0.0.9"), ("h2x1", "10.0.0.2")):
            for _ in range(3):
                assert len(ping(network.nodes[node], to, 1)) == 1


def test_what_is_no_topology():
    with pytest.raises(AttributeError):
        Network.from_mininet(types.SimpleNamespace())


def test_a_network_that_the_kernel_has_no_room_for_warns():
    room = int(Path("/proc/sys/net/ipv4/neigh/default/gc_thresh3").read_text())
    count = math.isqrt(room) + 2
    if count > 100:
        pytest.skip(f"this kernel has room for {room} neighbours, too many for a test's network")
    network = Network()
    switch = network.switch("s")
    for at in range(count):
        network.link(network.node(f"n{at}"), switch)
    with pytest.warns(RuntimeWarning, match=f"room for {room} in all"), network:
        assert len(network.status()["nodes"]) == count
