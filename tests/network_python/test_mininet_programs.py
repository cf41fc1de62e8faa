"""Programs that use Mininet: each is read without Mininet, comes up and carries packets. The
programs in scenarios/mininet are ours; each holds one thing that programs for Mininet have."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.linked import in_this_process
from lorentz import Network, WrongInputError

PROGRAMS = Path(__file__).parent.parent / "networks" / "scenarios" / "mininet"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with in_this_process(monkeypatch, "taps", "inspect"):
        yield


@dataclass(frozen=True)
class Program:
    """A program for Mininet, and the network expected from it."""

    #: Numbers of nodes and links.
    size: tuple[int, int]
    #: Node, and the address that it can reach.
    pings: tuple[str, str] | None = ("h1", "10.0.0.2")
    left_out: tuple[str, ...] = ()
    #: Parts of the topology.
    has: tuple[str, ...] = ()
    #: Words of each warning of `up`.
    warns: tuple[str, ...] = ()
    #: A part of the kernel that it needs.
    kernel: str = ""


NAT_RULE = "iptables -t nat -A POSTROUTING -s {0} ! -d {0} -j MASQUERADE"

TABLE = {
    "single-switch": Program((5, 4), ("h1", "10.0.0.4")),
    "linear": Program((6, 5), ("h1", "10.0.0.3")),
    "tree": Program((7, 6), ("h1", "10.0.0.4")),
    "torus": Program((18, 27), ("h1x1", "10.0.0.9"), has=("'stp': True",)),
    "custom-topos": Program((4, 3)),
    "class-of-a-topology": Program((2, 1)),
    "linux-router": Program((5, 4), ("h1", "172.16.0.100"), has=("sysctl net.ipv4.ip_forward=1",)),
    "nat-nodes": Program(
        (8, 7), ("h1", "10.0.0.1"), has=(NAT_RULE.format("192.168.1.0/24"),), kernel="nat"
    ),
    "add-nat": Program(
        (6, 5), left_out=("nat0: its way out",), has=("default via 10.0.0.5",), kernel="nat"
    ),
    "without-a-topo": Program((3, 2)),
    "link-options": Program(
        (3, 2),
        None,
        has=(
            "'rate': '10000000bit', 'delay': '5000000ns'",
            "'loss': '1%', 'queue': {'packets': 1000}",
            "'jitter': '1000000ns'",
            "'queue': {'discipline': 'red'}",
        ),
    ),
    "asymmetric-link": Program(
        (3, 2), has=("'from': {'h1:h1-eth0': {'rate': '1000000bit', 'delay': '15ms'}}",)
    ),
    "default-link-options": Program((3, 2), has=("'rate': '10000000bit', 'delay': '7000000ns'",)),
    "interface-options": Program((3, 2), has=("'rate': '5000000bit', 'delay': '3000000ns'",)),
    "several-links": Program((3, 4), has=("'h1:h1-eth1'",)),
    "limited-processors": Program(
        (3, 2), left_out=("h1: cpu", "h1: cores", "h2: cpu", "h2: cores")
    ),
    "vlan-hosts": Program((3, 2), None, has=("name h1-eth0.100 type vlan id 100",), kernel="vlan"),
    "remote-controller": Program((3, 2), left_out=("c0: a remote controller",)),
    "hardware-addresses": Program((2, 1), has=("00:00:00:00:00:02",)),
    "commands-after-the-start": Program(
        (3, 2), ("h1", "10.2.0.2"), has=("ip route replace default via 10.1.0.1",)
    ),
    "several-networks": Program((3, 2)),
    "private-directories": Program((3, 2), left_out=("h1: privateDirs", "h2: privateDirs")),
}


def test_each_program_is_in_the_table():
    # One has no network: see below.
    assert {file.stem for file in PROGRAMS.glob("*.py")} == {*TABLE, "no-network"}
    assert len(TABLE) >= 20


@pytest.mark.parametrize("name", TABLE)
def test_a_program_is_read_and_comes_up(name):
    expected = TABLE[name]
    network = Network.from_mininet_program(PROGRAMS / f"{name}.py")
    topology = network.topology["topology"]
    assert (len(topology["nodes"]), len(topology["links"])) == expected.size
    assert len(network.left_out) == len(expected.left_out), network.left_out
    for one, words in zip(network.left_out, expected.left_out, strict=True):
        assert one.startswith(words)
    for part in expected.has:
        assert part in str(topology), topology
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        network.up()
    try:
        # Lines fail where the kernel has no NAT or no VLANs. Nothing else may.
        lines = [str(one.message) for one in told]
        if expected.kernel and lines:
            pytest.skip(f"this kernel has no {expected.kernel}: {lines[0]}")
        # Not every machine has `route`, and the program only prints what it says.
        assert not [one for one in lines if "exec: route: exit status 127" not in one]
        if expected.pings:
            node, address = expected.pings
            words = [needs.tool("ping"), "-c", "3", "-i", "0.2", "-W", "5", address]
            done = network.nodes[node].run(words, capture_output=True, text=True)
            assert re.search(r"[123] received", done.stdout), done
    finally:
        network.down()


def test_one_of_several_topologies_is_chosen(tmp_path):
    file = tmp_path / "two.py"
    file.write_text(
        "from mininet.topo import LinearTopo, SingleSwitchTopo\n"
        "topos = {'row': lambda: LinearTopo(3), 'star': lambda: SingleSwitchTopo(5)}\n"
    )
    counts = {
        name: len(Network.from_mininet_program(file, topo=name).topology["topology"]["nodes"])
        for name in ("row", "star", None)
    }
    assert counts == {"row": 6, "star": 6, None: 6}
    with pytest.raises(WrongInputError, match=r"two\.py:1:1: .*'ring'.*one of: row, star"):
        Network.from_mininet_program(file, topo="ring")


def test_a_program_counts_until_it_needs_what_its_network_says(tmp_path):
    file = tmp_path / "polls.py"
    file.write_text(
        "from mininet.net import Mininet\nfrom mininet.node import Node\n"
        "from mininet.topo import SingleSwitchTopo\nfrom mininet.util import pmonitor\n"
        "net = Mininet(SingleSwitchTopo(2))\n"
        "net.addLink(Node('root', inNamespace=False), net['s1'])\nnet.start()\n"
        "for host, line in pmonitor({host: host.popen('uptime') for host in net.hosts}):\n"
        "    print(line)\n"
    )
    network = Network.from_mininet_program(file)
    assert network.left_out == [
        "root: inNamespace=False: it is a host",
        f"the program from here on: {file}:8:1: TypeError: 'NoneType' object is not iterable",
    ]
    nodes = network.topology["topology"]["nodes"]
    assert set(nodes) == {"h1", "h2", "root", "s1"} and nodes["h1"]["exec"] == ["uptime &"]
    file.write_text("\n".join(file.read_text().splitlines()[:7]) + "\n")
    assert len(Network.from_mininet_program(file).topology["topology"]["nodes"]) == 4


WRONG = {
    "no network": ("print(1)\n", "1:1", "expected a program that starts a network"),
    "not Python": ("import os\ndef (\n", "2:5", "SyntaxError"),
    "a failure": (
        "from mininet.net import Mininet\n\nMininet().get('h9')\n",
        "3:1",
        "KeyError: 'h9'",
    ),
    "a topology that fails": (
        "from mininet.topo import Topo\nclass T(Topo):\n    def build(self):\n"
        "        self.addLink('a', 'b')\ntopos = {'t': T}\n",
        "4:9",
        "KeyError: 'a'",
    ),
    "a missing module": ("import nosuchmodule\n", "1:1", "No module named 'nosuchmodule'"),
    "a file that is not there": (None, "1:1", "No such file"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_program_is_one_line(case, tmp_path):
    text, at, words = WRONG[case]
    file = tmp_path / "wrong.py"
    if text is not None:
        file.write_text(text)
    with pytest.raises(WrongInputError) as error:
        Network.from_mininet_program(file)
    told = str(error.value)
    assert told.startswith(f"{file}:{at}: ") and words in told and "\n" not in told, told


def sent(link: dict, end: str) -> dict:
    """The impairments of what an end sends."""
    both = {key: link[key] for key in ("rate", "delay", "loss", "queue") if key in link}
    return {**both, **link.get("from", {}).get(end, {})}


def test_an_exported_network_reads_back(tmp_path):
    """As a program for Mininet it builds the same network."""
    lab = tmp_path / "lab.yaml"
    lab.write_text(
        "name: lab\ntopology:\n"
        "  nodes:\n"
        "    r1: {sysctls: {net.ipv4.ip_forward: 1}}\n"
        "    pc: {exec: ['echo \"a b\" > /dev/null']}\n"
        "    web: {command: [sleep, '1000']}\n"
        "    s1: {kind: switch, stp: true}\n"
        "  links:\n"
        "    - {endpoints: ['pc:eth0', 's1:p1'], ipv4: [10.0.0.2/24, null],"
        " mac: ['02:00:00:00:00:07', null]}\n"
        "    - {endpoints: ['r1:eth0', 's1:p2'], ipv4: [10.0.0.1/24, null], rate: 10mbit,"
        " delay: 5ms, loss: 0.5%, queue: {packets: 50}}\n"
        "    - {endpoints: ['web:eth0', 'r1:eth1'], ipv4: [10.1.0.2/24, 10.1.0.1/24],"
        " from: {'web:eth0': {delay: 1ms}, 'r1:eth1': {delay: 2ms}}}\n"
    )
    program = tmp_path / "lab.py"
    done = lorentz.call("export", str(lab), "--format", "mininet", "--write", str(program))
    assert done.returncode == 0 and "left out" not in done.stderr, done.stderr
    network = Network.from_mininet_program(program)
    assert network.left_out == []
    again = tmp_path / "again.yaml"
    again.write_text(json.dumps(network.topology))
    links = {
        name: lorentz.json_of("import", str(file))["topology"]["topology"]["links"]
        for name, file in (("first", lab), ("again", again))
    }
    # Mininet names the interfaces of switches, which are the host's there.
    assert [one["endpoints"] for one in links["again"]] == [
        ["pc:eth0", "s1:s1-eth1"],
        ["r1:eth0", "s1:s1-eth2"],
        ["web:eth0", "r1:eth1"],
    ]
    for first, second in zip(links["first"], links["again"], strict=True):
        assert second.get("ipv4") == first.get("ipv4") and second.get("mac") == first.get("mac")
        for ends in zip(first["endpoints"], second["endpoints"], strict=True):
            own = [sent(link, end) for link, end in zip((first, second), ends, strict=True)]
            assert own[0] == own[1], (ends, own)
    nodes = network.topology["topology"]["nodes"]
    assert nodes["s1"] == {"kind": "switch", "stp": True}
    assert nodes["r1"]["exec"][0].startswith("sysctl net.ipv4.ip_forward=1")
    assert 'echo "a b" > /dev/null' in nodes["pc"]["exec"]
    assert "sleep 1000 &" in nodes["web"]["exec"]
