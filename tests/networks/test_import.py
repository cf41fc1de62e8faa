"""Import of scenarios of CORE, IMUNES, containerlab and Kathara: the resulting topology, and the
messages for unsupported elements. The files in scenarios/ are ours, in the form of those
programs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from framework import lorentz
from framework.networks import Lab

SCENARIOS = Path(__file__).parent / "scenarios"


def imported(path: Path, *flags: str) -> dict:
    return lorentz.json_of("import", str(path), *flags)


def left_out(shown: dict) -> list[tuple[int, str]]:
    return [(one["line"], one["what"]) for one in shown["left_out"]]


def test_a_scenario_of_core():
    result = imported(SCENARIOS / "campus.xml")
    topology = result["topology"]["topology"]
    nodes, links = topology["nodes"], topology["links"]
    assert result["topology"]["name"] == "campus" and set(nodes) == {
        "gate",
        "lan",
        "pc",
        "phone",
        "phone-eth0-nowhere",
        "web",
    }
    assert nodes["lan"]["kind"] == "switch" and nodes["lan"]["position"] == [400, 300]
    assert nodes["gate"]["sysctls"]["net.ipv4.ip_forward"] == "1"
    assert nodes["pc"]["exec"] == ["ip -4 route replace default via 10.0.1.1"]
    route, begin, http = nodes["web"]["exec"]
    assert "default via 10.0.2.1" in route and "echo started on $(hostname)" in begin
    assert http.startswith("# services: HTTP\n")
    assert "services: zebra, OSPFv2, OSPFv3, vtysh\n" in nodes["gate"]["exec"][0]
    assert (links[0]["rate"], links[0]["delay"]) == ("100mbit", "1ms")
    assert links[0]["ipv6"] == ["2001:db8:1::1/64", None]
    assert links[1]["mac"] == ["02:00:00:aa:00:02", None]
    # The interface at a link that is left out is there.
    assert links[3]["endpoints"] == ["phone:eth0", "phone-eth0-nowhere:p0"]
    # Two elements, one for each direction, are one link.
    assert len(links) == 4 and links[2]["endpoints"] == ["gate:eth1", "web:eth0"]
    there, back = links[2]["from"]["gate:eth1"], links[2]["from"]["web:eth0"]
    assert (there["rate"], there["delay"], there["queue"]["packets"]) == ("2mbit", "20ms", 50)
    assert (back["rate"], back["delay"]) == ("512kbit", "5ms")
    rest = left_out(result)
    assert [line for line, _ in rest] == [7, 49, 51, 56]
    for (_, what), words in zip(
        rest,
        ["EMANE", "mer", "an end", "hook"],
        strict=True,
    ):
        assert words in what


def test_a_topology_of_imunes():
    result = imported(SCENARIOS / "triangle.imn")
    topology = result["topology"]["topology"]
    nodes, links = topology["nodes"], topology["links"]
    assert result["topology"]["name"] == "triangle"
    assert set(nodes) == {"gate", "office", "server", "desk"}
    assert nodes["office"]["kind"] == "switch" and nodes["office"]["position"] == [120, 240]
    route, ssh = nodes["server"]["exec"]
    assert route == "ip -4 route replace default via 10.2.0.1" and "services: SSH\n" in ssh
    assert "router ospf\n" in nodes["gate"]["exec"][0]
    assert links[0]["endpoints"] == ["gate:eth0", "office:e0"]
    assert (links[0]["rate"], links[0]["delay"]) == ("100mbit", "2ms")
    assert links[0]["ipv4"] == ["10.1.0.1/24", None]
    there, back = links[1]["from"]["gate:eth1"], links[1]["from"]["server:eth0"]
    assert (there["rate"], there["delay"]) == ("10mbit", "10ms") and "loss" not in there
    assert (back["rate"], back["delay"], back["loss"]) == ("1mbit", "30ms", "1.5%")
    assert links[2]["endpoints"] == ["desk:eth0", "office:e1"]
    rest = left_out(result)
    for words in ("type rj45", "ber"):
        assert any(words in what for _, what in rest), (words, rest)


def test_a_topology_of_containerlab():
    result = imported(SCENARIOS / "edge.clab.yml")
    topology = result["topology"]["topology"]
    nodes, links = topology["nodes"], topology["links"]
    nowhere = {"left-eth8-nowhere", "left-eth9-nowhere"}
    assert set(nodes) == {"left", "right", "br1"} | nowhere and nodes["br1"]["kind"] == "switch"
    assert nodes["left"]["env"] == {"SITE": "north", "ROLE": "left"}
    assert nodes["left"]["exec"] == ["ip link show lo", "ip addr add 192.168.7.1/24 dev eth1"]
    assert nodes["left"]["sysctls"] == {"net.ipv4.ip_forward": "1"}
    assert nodes["left"]["binds"] == [f"{SCENARIOS}/note.txt:/etc/hostname:ro,O"]
    assert nodes["left"]["position"] == [10, 20]
    assert nodes["right"]["command"] == "exec sleep 1000"
    assert links[0]["mtu"] == 1400 and links[1]["endpoints"] == ["right:eth2", "br1:p1"]
    assert links[1]["mac"] == ["02:00:00:00:00:22", None]
    rest = " ".join(what for _, what in left_out(result))
    assert left_out(result)[0] == (3, 'mgmt: {"network":"custom-mgmt"}')
    for words in ("mgmt", "msgmax", "label owner", "cpu", "nokia_srlinux", "spine:e1", "host:"):
        assert words in rest
    assert "vars" in rest and len(result["left_out"]) == 8


TEMPLATE = """\
name: two
topology:
  defaults: {kind: linux}
  nodes:
{{- range .hosts }}
    {{ . }}:
{{- end }}
"""


@pytest.mark.parametrize("ending", ["yaml", "yml", "json"])
def test_a_template_has_the_variables_of_the_file_beside_it(ending, tmp_path):
    file = tmp_path / "two.clab.gotmpl"
    file.write_text(TEMPLATE)
    (tmp_path / f"two.clab_vars.{ending}").write_text('{"hosts": ["north", "south"]}')
    result = imported(file)
    assert result["format"] == "containerlab"
    assert set(result["topology"]["topology"]["nodes"]) == {"north", "south"}


@pytest.mark.parametrize("setting", ["daemons: [ripd]", "extras: {frr: {daemons: [ripd]}}"])
def test_a_router_of_containerlab_runs_the_daemons_that_it_names(setting, tmp_path):
    file = tmp_path / "rip.clab.yml"
    file.write_text(NODE % "frr" + f"      {setting}\n")
    script = imported(file)["topology"]["topology"]["nodes"]["a"]["exec"][0]
    assert "ripd" in script and "bgpd" not in script


def test_a_scenario_of_kathara():
    result = imported(SCENARIOS / "kathara")
    topology = result["topology"]["topology"]
    nodes, links = topology["nodes"], topology["links"]
    assert result["topology"]["name"] == "two-lans"
    assert set(nodes) == {"r1", "pc1", "pc2", "srv", "A"} and nodes["A"]["kind"] == "switch"
    assert nodes["pc1"]["sysctls"]["net.ipv6.conf.all.disable_ipv6"] == "1"
    # As Kathara has it for every machine.
    assert nodes["r1"]["sysctls"]["net.ipv4.ip_forward"] == "1"
    assert nodes["pc2"]["env"] == {"COLOUR": "blue"}
    assert nodes["srv"]["exec"][1] == "echo configured" and "10.6.0.2" in nodes["srv"]["exec"][0]
    # A collision domain of two is a link, of three a switch with its name.
    assert links[3]["endpoints"] == ["r1:eth1", "srv:eth0"]
    assert links[3]["mac"] == ["02:42:00:00:00:b1", None]
    assert [link["endpoints"] for link in links[:3]] == [
        ["r1:eth0", "A:p0"],
        ["pc1:eth0", "A:p1"],
        ["pc2:eth0", "A:p2"],
    ]
    assert left_out(result) == [(2, "LAB_AUTHOR=nobody"), (15, "srv[mem]=64m")]


@pytest.mark.parametrize("name", ["campus.xml", "triangle.imn", "edge.clab.yml", "kathara"])
def test_what_is_written_is_the_same_topology(name, tmp_path):
    file = tmp_path / "lab.yaml"
    done = lorentz.call("import", str(SCENARIOS / name), "--write", str(file))
    assert done.returncode == 0 and not done.stdout
    result = imported(SCENARIOS / name)
    lines = done.stderr.splitlines()
    others = sum(int(more) for more in re.findall(r"; and (\d+) more like it", done.stderr))
    assert all("left out: " in line for line in lines)
    assert len(lines) + others == len(result["left_out"])
    again = imported(file)
    assert again == {"topology": result["topology"], "left_out": [], "format": "lorentz"}


class Scenario(Lab):
    """The network of a foreign file, under a name of its own."""

    def __init__(self, path: Path, named: str = "") -> None:
        super().__init__("")
        self.path = Path(self.folder.name) / f"{self.name}{''.join(path.suffixes)}"
        if path.is_dir():
            shutil.copytree(path, self.path)
        else:
            shutil.copy(path, self.path)
            for beside in path.parent.glob("*.txt"):
                shutil.copy(beside, self.path.parent)
        text = self.conf.read_text()
        assert named in text
        self.conf.write_text(text.replace(named, self.name) if named else text)

    @property
    def conf(self) -> Path:
        return self.path / "lab.conf" if self.path.is_dir() else self.path

    def up(self):
        return lorentz.call("up", str(self.path), timeout=60)


def test_the_network_of_core_carries_packets():
    with Scenario(SCENARIOS / "campus.xml", "campus") as lab:
        times = lab.ping("pc", "10.0.2.30", count=2)
        # From the PC over the switch and the router, by the default routes of both ends.
        assert min(times) >= 1 + 20 + 5 + 1
        web = next(node for node in lab.status()["nodes"] if node["name"] == "web")
        assert "started on web" in Path(web["output"]).read_text()
        # The picture has the places of the file: the router left of the switch and above it.
        assert lab.status()["positions"]["gate"] == [200, 100]


def test_the_network_of_imunes_carries_packets():
    with Scenario(SCENARIOS / "triangle.imn") as lab:
        lab.set("server:eth0", "--loss", "0%")
        assert min(lab.ping("desk", "10.2.0.9", count=2)) >= 2 + 10 + 30 + 2


def test_the_network_of_kathara_carries_packets():
    with Scenario(SCENARIOS / "kathara", "two lans") as lab:
        for _ in range(2):
            assert len(lab.ping("pc1", "10.6.0.2", count=1)) == 1


def test_the_network_of_containerlab_carries_packets():
    with Scenario(SCENARIOS / "edge.clab.yml", "edge") as lab:
        assert lab.run("left", "cat", "/etc/hostname") == "left, by containerlab\n"
        lab.run("right", "ip", "addr", "add", "192.168.7.2/24", "dev", "eth1")
        for _ in range(2):
            assert len(lab.ping("left", "192.168.7.2", count=1)) == 1


CORE = "<scenario>\n<devices>\n<device id='1' name='a' type='x'/>\n</devices>\n{}\n</scenario>\n"
CLAB = "name: wrong\ntopology:\n  nodes: {a: {kind: linux}}\n"
NODE = "name: wrong\ntopology:\n  nodes:\n    a:\n      kind: %s\n"

#: The file's name, what is in it, the line and column told, and words that must be.
WRONG = {
    "not XML": ("x.xml", "<scenario>\n<devices>\n</scenario>\n", (3, 1), "devices"),
    "another XML": ("x.xml", "<html/>\n", (1, 1), "expected <scenario>"),
    "no such id": (
        "x.xml",
        CORE.format("<links>\n <link node1='1' node2='7'/></links>"),
        (6, 2),
        '"7"',
    ),
    "twice a name": (
        "x.xml",
        CORE.format("<devices>\n<device id='2' name='a'/></devices>"),
        (6, 1),
        "there already",
    ),
    "no delay": (
        "x.xml",
        CORE.format(
            "<devices><device id='2' name='b'/></devices>\n"
            "<links><link node1='1' node2='2'><options delay='soon'/></link></links>"
        ),
        (6, 34),
        "whole number",
    ),
    "an open brace": ("x.imn", "node n1 {\n type router\n", (1, 9), "not closed"),
    "no type": ("x.imn", "\nnode n1 {\n model router\n}\n", (2, 6), "expected a type"),
    "a link of one": (
        "x.imn",
        "node n1 {\n type pc\n}\nlink l1 {\n nodes {n1}\n}\n",
        (5, 9),
        "expected two",
    ),
    "a node twice": (
        "x.imn",
        "node n1 {\n type pc\n}\nnode n1 {\n type pc\n}\n",
        (4, 6),
        "there already",
    ),
    "one endpoint": (
        "x.clab.yml",
        f"{CLAB}  links:\n    - endpoints: ['a:eth1']\n",
        (5, 7),
        "expected two",
    ),
    "unknown node": (
        "x.clab.yml",
        f"{CLAB}  links:\n    - endpoints: ['a:eth1', 'b:eth1']\n",
        (5, 7),
        "no node",
    ),
    "a template": ("x.clab.yml", "name: x\ntopology: {{ no 1 }}\n", (2, 11), "function no: not"),
    "an open template": ("x.clab.yml", "name: {{ if .a }}\n", (1, 7), "if: expected an end"),
    "no startup configuration": (
        "x.clab.yml",
        NODE % "frr" + "      startup-config: none/a.conf\n",
        (6, 23),
        "none/a.conf: No such file",
    ),
    "a startup configuration elsewhere": (
        "x.clab.yml",
        NODE % "frr" + "      startup-config: https://example.net/a.conf\n",
        (6, 23),
        "expected a file",
    ),
    "an unknown daemon": (
        "x.clab.yml",
        NODE % "frr" + "      extras:\n        frr:\n          daemons: [ospfd, sshd]\n",
        (7, 9),
        "daemon sshd: expected one of FRR's",
    ),
    "an unknown daemon of a node": (
        "x.clab.yml",
        NODE % "frr" + "      daemons: [ospfd, sshd]\n",
        (6, 16),
        "daemons: daemon sshd: expected one of FRR's",
    ),
    "no file of variables": (
        "x.clab.yml",
        NODE % "linux" + "      env-files: [none.env]\n",
        (6, 18),
        "none.env: No such file",
    ),
    "no key": ("lab.conf", "r1[0]=A\nr1[1\n", (2, 1), "expected MACHINE[KEY]=VALUE"),
    "no bracket": ("lab.conf", "r1[0=A\n", (1, 1), "expected ]"),
    "an open quote": ("lab.conf", 'r1[0]="A\n', (1, 7), 'closing "'),
    "a program": ("x.py", "import mininet\n", (1, 1), "Network.from_mininet_program"),
    "a bad mac": ("lab.conf", "r1[0]=A/zz\nr2[0]=A\n", (1, 7), "mac"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_scenarios_are_pointed_at(case, tmp_path):
    name, text, (line, column), words = WRONG[case]
    file = tmp_path / name
    file.write_text(text)
    for verb in (["up"], ["up", "--check"], ["import"]):
        done = lorentz.call(*verb, str(file))
        assert done.returncode == 2 and not done.stdout, done
        assert done.stderr.count("\n") == 1
        assert f"{file}:{line}:{column}: " in done.stderr and words in done.stderr, done.stderr


def test_the_format_can_be_told(tmp_path):
    file = tmp_path / "plain.txt"
    shutil.copy(SCENARIOS / "triangle.imn", file)
    assert set(imported(file, "--format", "imn")["topology"]["topology"]["nodes"]) >= {"gate"}
    done = lorentz.call("import", str(file), "--format", "gns3")
    assert done.returncode == 2 and "lorentz, core, imn, containerlab or kathara" in done.stderr
