"""Programs that use Mininet: each is read without Mininet, comes up and carries packets. The
programs in scenarios/mininet are ours; each holds one thing that programs for Mininet have."""

from __future__ import annotations

import json
import re
import subprocess
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
    "private-directories": Program((3, 2), has=("mkdir -p /var/log",)),
    "links-by-class": Program(
        (4, 3),
        ("h1", "10.0.0.9"),
        has=("'h2:up0'", "'h3:net0'", "{'h3:net0': {'delay': '2ms'}", "echo 0 up0 0"),
    ),
    "router-switches": Program((3, 2), ("h1", "10.2.0.1"), has=("'R1:R1-eth1'",)),
    "nodes-alone": Program((3, 2), has=("'s0': {'kind': 'switch'}",)),
    "one-shell": Program((3, 2), has=("'shell': 'bash'",)),
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
    begin = (
        "from mininet.net import Mininet\nfrom mininet.node import Node\n"
        "from mininet.topo import SingleSwitchTopo\nfrom mininet.util import pmonitor\n"
        "net = Mininet(SingleSwitchTopo(2))\n"
        "net.addLink(Node('root', inNamespace=False), net['s1'])\nnet.start()\n"
    )
    root = "root: inNamespace=False: it is a host"
    ends = {
        "for host, line in pmonitor({host: host.popen('uptime') for host in net.hosts}):\n"
        "    host.cmd('false')\n": "uptime &",
        "net['h1'].sendCmd('uptime')\nnet['h1'].waitOutput()\nnet['h1'].cmd('false')": "uptime &",
        "net['h1'].cmd('uptime')\nnet['h1'].waitOutput()": "uptime",
        "import time\nwhile True:\n    net['h1'].cmd('uptime')\n    time.sleep(1)": "uptime",
    }
    for end, line in ends.items():
        file.write_text(begin + end)
        network = Network.from_mininet_program(file, isolation="host")
        assert network.left_out == [root], end
        nodes = network.topology["topology"]["nodes"]
        assert set(nodes) == {"h1", "h2", "root", "s1"} and nodes["h1"]["exec"] == [line], end
    file.write_text(begin + "net['h1'].cmd('uptime')\nint(net['h1'].cmd('nproc'))\n")
    network = Network.from_mininet_program(file)
    failed = f"the program from here on: {file}:9:1: ValueError: invalid literal for int() with"
    assert network.left_out[0].startswith(failed) and network.left_out[1:] == [root]
    file.write_text(begin)
    assert len(Network.from_mininet_program(file).topology["topology"]["nodes"]) == 4


PYTHON_2 = """\
#!/usr/bin/python
'''A program in Python 2: print, except, and division.'''
import sys

from mininet.cli import CLI
from mininet.net import Mininet
from mininet.topo import Topo


class Leaves(Topo):
    def build(self, k=4):
        spine = self.addSwitch('s%d' % (k / 2 + 7))
\tprint "a tab, and", \\
            k / 2, "leaves",
        for n in xrange(k / 2):
            leaf = self.addSwitch('s%d' % (n + 1))
            self.addLink(spine, leaf)
            self.addLink(self.addHost('h%d' % (n + 1)), leaf)


if __name__ == '__main__':
    try:
        net = Mininet(topo=Leaves())
    except ValueError, error:
        print >>sys.stderr, error
        raise ValueError, "no network"
    net.start()
    if net.hosts: print 'running'; print
    CLI(net)
    net.stop()
"""


def test_a_program_in_python_2_is_read(tmp_path):
    file = tmp_path / "old.py"
    file.write_text(PYTHON_2)
    network = Network.from_mininet_program(file)
    assert network.left_out == []
    assert set(network.topology["topology"]["nodes"]) == {"s1", "s2", "s9", "h1", "h2"}
    # Only its division is that of Python 2.
    file.write_text(
        "from mininet.topo import SingleSwitchTopo\n"
        "topos = {'star': lambda k=4: SingleSwitchTopo(k / 2)}\n"
    )
    assert len(Network.from_mininet_program(file).topology["topology"]["nodes"]) == 3


def test_commands_of_the_host_do_not_run(tmp_path):
    file, mark = tmp_path / "host.py", tmp_path / "mark"
    file.write_text(
        "import multiprocessing, os, subprocess, time\n"
        "from mininet.net import Mininet\nfrom mininet.topo import SingleSwitchTopo\n"
        f"os.system('mn -c')\nos.system('touch {mark}')\n"
        f"assert subprocess.run(['touch', '{mark}'], capture_output=True).stdout == b''\n"
        f"assert subprocess.check_output('touch {mark}', shell=True, text=True) == ''\n"
        f"assert os.popen('touch {mark}').read() == ''\n"
        f"multiprocessing.Process(target=os.mkdir, args=['{mark}']).start()\n"
        "time.sleep(1000)\nMininet(SingleSwitchTopo(2)).start()\n"
    )
    network = Network.from_mininet_program(file)
    assert network.left_out == [f"the host: touch {mark}: does not run"] * 4
    assert not mark.exists()
    # Afterwards they run again.
    assert subprocess.run(["true"], check=True).returncode == 0


def test_mounts_of_a_node_do_not_reach_the_host(tmp_path):
    file, folder = tmp_path / "mounts.py", tmp_path / "own"
    folder.mkdir()
    file.write_text(
        "from mininet.net import Mininet\nfrom mininet.topo import SingleSwitchTopo\n"
        "net = Mininet(SingleSwitchTopo(2))\nnet.start()\n"
        f"net['h1'].cmd('mount -t tmpfs tmpfs {folder} && touch {folder}/mark')\n"
    )
    network = Network.from_mininet_program(file, isolation="host")
    with network:
        words = ["ls", str(folder)]
        assert network.nodes["h1"].run(words, capture_output=True, text=True).stdout == "mark\n"
        assert list(folder.iterdir()) == []


def test_a_private_node_has_all_directories_for_itself():
    network = Network.from_mininet_program(PROGRAMS / "private-directories.py")
    nodes = network.topology["topology"]["nodes"]
    assert nodes["h1"]["exec"] == [f"cd {PROGRAMS} && mkdir -p /var/log"]
    assert network.left_out == []


def test_lines_of_nodes_reach_the_programs_folder_and_no_other_of_the_host(tmp_path, monkeypatch):
    folder, other = tmp_path / "my programs", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    # Nodes with the host's files run the line where they are started.
    monkeypatch.chdir(tmp_path)
    file = folder / "harm.py"
    file.write_text(
        "from mininet.net import Mininet\nfrom mininet.topo import SingleSwitchTopo\n"
        "net = Mininet(SingleSwitchTopo(2))\nnet.start()\n"
        f"net['h1'].cmd('mkdir -p {other} && touch result {other}/mark')\n"
    )
    for options, harm in (({}, []), ({"isolation": "host"}, [other / "mark"])):
        with Network.from_mininet_program(file, **options):
            pass
        assert list(other.iterdir()) == harm
    assert (folder / "result").exists()


def test_arguments_reach_a_program_and_its_topos(tmp_path):
    file = tmp_path / "arguments.py"
    file.write_text(
        "import argparse\nfrom mininet.net import Mininet\n"
        "from mininet.topo import SingleSwitchTopo\n"
        "topos = {'star': lambda n, scale=1: SingleSwitchTopo(n * scale)}\n"
        "if __name__ == '__main__':\n"
        "    del topos\n"
        "    parser = argparse.ArgumentParser()\n"
        "    parser.add_argument('--hosts', type=int, required=True)\n"
        "    Mininet(topo=SingleSwitchTopo(parser.parse_args().hosts)).start()\n"
    )

    def count(**options: object) -> int:
        network = Network.from_mininet_program(file, **options)
        return len(network.topology["topology"]["nodes"])

    assert count(arguments=["--hosts", "5"]) == 6
    assert count(topo="star,3") == 4 and count(topo="star,3,scale=2") == 7
    with pytest.raises(WrongInputError, match=r"py:9:\d+: SystemExit: 2: it may expect arguments"):
        count()


def test_modules_that_are_not_installed_matter_where_the_network_needs_them(tmp_path):
    file = tmp_path / "absent.py"
    file.write_text(
        "import nosuchmodule.colours as colours\nfrom nosuchother import Monitor\n"
        "from mininet.net import Mininet\nfrom mininet.topo import SingleSwitchTopo\n"
        "class Mine(Monitor):\n    pass\n"
        "net = Mininet(SingleSwitchTopo(2))\nnet.start()\ncolours.red('up')\nMine().go()\n"
    )
    network = Network.from_mininet_program(file)
    absent = [f"the module {name}: not installed" for name in ("nosuchmodule", "nosuchother")]
    assert network.left_out == absent
    file.write_text(
        "import nosuchmodule\nfrom mininet.net import Mininet\n"
        "net = Mininet(topo=nosuchmodule.topology())\nnet.start()\n"
    )
    with pytest.raises(WrongInputError, match=r"py:1:1: .*No module named 'nosuchmodule'"):
        Network.from_mininet_program(file)


def test_programs_may_have_modules_of_the_same_name_beside_them(tmp_path):
    sizes = []
    for count in (2, 3):
        folder = tmp_path / str(count)
        folder.mkdir()
        (folder / "shape.py").write_text(
            "from mininet.topo import SingleSwitchTopo\n"
            f"class Shape(SingleSwitchTopo):\n    def build(self):\n"
            f"        super().build({count})\n"
        )
        file = folder / "run.py"
        file.write_text(
            "from mininet.net import Mininet\nfrom mininet.examples.shape import Shape as Same\n"
            "from shape import Shape\nMininet(topo=Shape()).start()\n"
        )
        sizes.append(len(Network.from_mininet_program(file).topology["topology"]["nodes"]))
    assert sizes == [3, 4]


def test_topos_are_read_where_the_rest_of_a_program_fails(tmp_path):
    file = tmp_path / "topos.py"
    file.write_text(
        "from mininet.topo import LinearTopo\ntopos = {'row': lambda: LinearTopo(3)}\n"
        "if __name__ == '__main__':\n    run(topos)\n"
    )
    network = Network.from_mininet_program(file)
    assert len(network.topology["topology"]["nodes"]) == 6
    failed = f"the rest of the program: {file}:4:5: NameError: name 'run' is not defined"
    assert network.left_out == [failed]


def test_topologies_that_mininet_has(tmp_path):
    file = tmp_path / "shapes.py"
    file.write_text(
        "from mininet.topo import SingleSwitchReversedTopo\n"
        "from mininet.topolib import TorusTopo\n"
        "topos = {'torus': TorusTopo, 'reversed': SingleSwitchReversedTopo}\n"
    )
    torus = Network.from_mininet_program(file, topo="torus,3,3,2").topology["topology"]
    assert len(torus["nodes"]) == 27 and {"h1x1x1", "h3x3x2"} < set(torus["nodes"])
    ends = Network.from_mininet_program(file, topo="reversed,3").topology["topology"]["links"]
    assert [link["endpoints"][1] for link in ends] == ["s1:s1-eth3", "s1:s1-eth2", "s1:s1-eth1"]


def test_a_network_that_is_built_and_not_started_counts(tmp_path):
    file = tmp_path / "built.py"
    file.write_text(
        "from mininet.net import Mininet\nfrom mininet.topo import SingleSwitchTopo\n"
        "net = Mininet(SingleSwitchTopo(2), build=False)\nnet.build()\n"
        "net['h1'].cmd('sudo true')\n"
    )
    nodes = Network.from_mininet_program(file, isolation="host").topology["topology"]["nodes"]
    assert set(nodes) == {"h1", "h2", "s1"} and nodes["h1"]["exec"] == ["true"]


def test_links_and_nodes_are_taken_away(tmp_path):
    file = tmp_path / "less.py"
    file.write_text(
        "from mininet.net import Mininet\nfrom mininet.topo import SingleSwitchTopo\n"
        "net = Mininet(topo=SingleSwitchTopo(4))\n"
        "net.delLinkBetween(net['h1'], net['s1'])\nnet.delHost(net['h2'])\n"
        "net.delLink(net.linksBetween(net['h3'], net['s1'])[0])\n"
        "net.addLink('h3', 'h1')\nnet.start()\n"
    )
    topology = Network.from_mininet_program(file).topology["topology"]
    assert set(topology["nodes"]) == {"h1", "h3", "h4", "s1"}
    ends = [sorted(one.split(":")[0] for one in link["endpoints"]) for link in topology["links"]]
    assert ends == [["h4", "s1"], ["h1", "h3"]]


def test_hosts_of_containernet_have_images(tmp_path):
    file = tmp_path / "images.py"
    file.write_text(
        "from mininet.net import Containernet\nnet = Containernet()\n"
        "net.addDocker('d1', ip='10.0.0.1', dimage='web:1', dcmd='serve', "
        "environment={'PORT': 80}, volumes=['/srv:/data:rw', '/etc/hosts:/h:ro'], ports=[80])\n"
        "net.addHost('h1')\nnet.addLink('d1', 'h1')\nnet.start()\n"
    )
    network = Network.from_mininet_program(file)
    assert network.topology["topology"]["nodes"]["d1"] == {
        "image": "web:1",
        "command": "serve",
        "env": {"PORT": "80"},
        "binds": ["/srv:/data", "/etc/hosts:/h:ro"],
    }
    assert network.left_out == ["d1: ports=[80]"]


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
    network = Network.from_mininet_program(program, isolation="host")
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
