"""Exports, judged by others than our importers: programs by Mininet itself, topologies by the keys
that containerlab documents, scenarios by what CORE reads of a file."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from framework import build, lorentz

SCENARIOS = Path(__file__).parent / "scenarios"
TIMEOUT = 30

#: A network with all that other formats have a place for, and some that they have none for.
LAB = """\
name: lab
topology:
  nodes:
    r1: {sysctls: {net.ipv4.ip_forward: 1, net.core.somaxconn: 64}, position: [10, 20.5]}
    pc:
      exec: ['echo "a & b" > /dev/null', 'exit 3', "echo ${HOME} \\\\\\n## 100%"]
      env: {SAY: 'yes'}
    web: {command: [sleep, '1000'], image: 'docker.io/library/busybox:1'}
    'no': {}
    backbone-of-the-campus: {kind: switch, stp: true}
    lan: {kind: switch}
    h1: {kind: hub}
  links:
    - {endpoints: ['pc:eth0', 'lan:p1'], ipv4: [10.0.0.2/24, null],
       mac: ['02:00:00:00:00:07', null]}
    - {endpoints: ['lan:p9', 'backbone-of-the-campus:p3'], delay: 1ms, mtu: 9000}
    - {endpoints: ['r1:eth0', 'backbone-of-the-campus:p2'], ipv4: [10.0.0.1/24, null], rate: 10mbit,
       delay: 5ms, loss: 0.5%, duplicate: 7%, queue: {packets: 50}}
    - {endpoints: ['r1:eth1', 'h1:p1'], ipv4: [10.1.0.1/24, null], ipv6: ['fd00::1/64', null]}
    - {endpoints: ['web:eth0', 'r1:eth2'], ipv4: [10.2.0.2/24, 10.2.0.1/24],
       from: {'web:eth0': {delay: 1ms, jitter: 1us, duplicate: 1.5%}, 'r1:eth2': {delay: 2ms}}}
"""

SAMPLES = ("imunes/*.imn", "core4/*.imn", "core9/*.xml", "clab/*.clab.yml", "kathara-labs/*")


def files(tmp_path: Path) -> list[Path]:
    """Networks to write: the one above, one without links, and all samples."""
    own = tmp_path / "lab.yaml"
    own.write_text(LAB)
    alone = tmp_path / "alone.yaml"
    alone.write_text("name: alone\ntopology: {nodes: {a: {}}}\n")
    samples = [file for pattern in SAMPLES for file in sorted(SCENARIOS.glob(pattern))]
    assert len(samples) > 100
    return [own, alone, *samples]


def written(file: Path, form: str, tmp_path: Path) -> tuple[dict, Path]:
    """The network of a file, and the file in another format."""
    shown = lorentz.json_of("import", str(file))["topology"]["topology"]
    out = tmp_path / f"{file.parent.name}-{file.name}.{form}"
    done = lorentz.call("export", str(file), "--format", form, "--write", str(out))
    assert done.returncode == 0, (file, done)
    return {"links": [], **shown}, out


def is_bridge(node: dict) -> bool:
    return node.get("kind", "process") != "process"


def sent(link: dict, end: str) -> dict:
    """Return the impairments of the frames that an end sends."""
    return {**link, **link.get("from", {}).get(end, {})}


# --------------------------------------------------------------------------------------- Mininet


def topos(programs: list[Path]) -> list[dict]:
    """Return the topology that Mininet builds from each program."""
    if importlib.util.find_spec("mininet") is None:
        pytest.skip("Mininet of PyPI is not installed in .venv")
    script = build.PROGRAMS / "networks/read_topo.py"
    words = [sys.executable, str(script), *map(str, programs)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


#: Our units, as factors of those of Mininet: Mbit/s, and microseconds.
RATES = {"bit": 1e-6, "kbit": 1e-3, "mbit": 1, "gbit": 1e3}
TIMES = {"ns": 1e-3, "us": 1, "ms": 1e3, "s": 1e6}


def number(text: str, units: dict[str, float]) -> float:
    value, unit = re.fullmatch(r"([\d.]+)([a-z]+)", text).groups()
    return float(value) * units[unit]


def check_options(options: dict, wanted: dict) -> None:
    """Compares an end's options in Mininet with what our file says of it."""
    rate = number(wanted["rate"], RATES) if wanted.get("rate", "none") != "none" else None
    assert options.get("bw") == (pytest.approx(rate) if rate and rate <= 1000 else None)
    for key in ("delay", "jitter"):
        said = wanted.get(key)
        spread = said["spread"] if isinstance(said, dict) else said
        assert (key in options) == (spread is not None)
        if spread is not None:
            assert number(options[key], TIMES) == pytest.approx(number(spread, TIMES))
    if isinstance(wanted.get("loss"), str):
        assert options["loss"] == pytest.approx(float(wanted["loss"].rstrip("%")))
    packets = (wanted.get("queue") or {}).get("packets")
    assert options.get("max_queue_size") == packets


def check_topo(network: dict, found: dict) -> None:
    nodes = network["nodes"]
    assert set(found["hosts"]) == {name for name, node in nodes.items() if not is_bridge(node)}
    datapaths = [one["datapath"] for one in found["switches"].values()]
    assert len(set(datapaths)) == len(datapaths) == len(nodes) - len(found["hosts"])
    interfaces = [(end["node"], end["name"]) for link in found["links"] for end in link]
    assert len(set(interfaces)) == len(interfaces)
    assert all(len(name) <= 15 for _, name in interfaces)
    assert len(found["links"]) == len(network["links"])
    for link, ends in zip(network["links"], found["links"], strict=True):
        for side, (end, there) in enumerate(zip(link["endpoints"], ends, strict=True)):
            name = end.split(":")[0]
            assert (there["node"] in found["switches"]) == is_bridge(nodes[name])
            if there["node"] in found["hosts"]:
                assert f"{there['node']}:{there['name']}" == end
                assert there.get("ip") == (link.get("ipv4") or [None, None])[side]
            assert there["mac"] == (link.get("mac") or [None, None])[side]
            # A wlan's impairments stand at its radio.
            if nodes[name].get("kind") != "wlan":
                check_options(there, sent(link, end))


def test_mininet_builds_the_network(tmp_path):
    all_written = [written(file, "mininet", tmp_path) for file in files(tmp_path)]
    found = topos([program for _, program in all_written])
    for (network, _), topo in zip(all_written, found, strict=True):
        check_topo(network, topo)


def test_mininet_learns_of_a_name_that_is_too_long_for_a_switch(tmp_path):
    network, program = written(files(tmp_path)[0], "mininet", tmp_path)
    (found,) = topos([program])
    assert set(found["switches"]) == {"lan", "h1", "s1"}
    assert [end["node"] for end in found["links"][1]] == ["lan", "s1"]
    done = lorentz.call("export", str(tmp_path / "lab.yaml"), "--format", "mininet")
    assert "backbone-of-the-campus: its name is too long for a switch; it is s1" in done.stderr


# ---------------------------------------------------------------------------------- containerlab

#: Keys of a node with the types of their values, after https://containerlab.dev/manual/nodes.
NODE = {
    "linux": {
        "kind": str,
        "image": str,
        "cmd": str,
        "env": dict,
        "exec": list,
        "labels": dict,
        "sysctls": dict,
    },
    "bridge": {"kind": str, "labels": dict},
}


def check_node(name: str, node: dict) -> None:
    keys = NODE[node["kind"]]
    for key, value in node.items():
        assert type(value) is keys[key], (name, key)
        assert value, f"{name}: {key}: empty"
        texts = value.values() if isinstance(value, dict) else value
        assert all(type(one) is str for one in texts), (name, key)
    assert "image" in node or node["kind"] == "bridge", name


def end_of(end: str | dict) -> str:
    """An end of a link in the short form, or in the extended one."""
    if isinstance(end, dict):
        assert set(end) <= {"node", "interface", "mac"}
        assert re.fullmatch("([0-9a-f]{2}:){5}[0-9a-f]{2}", end.get("mac", "0" + 5 * "0:0" + "0"))
        end = f"{end['node']}:{end['interface']}"
    assert re.fullmatch(r"\S+:\S{1,15}", end)
    return end


def check_links(links: list[dict], nodes: dict) -> list[list[str]]:
    """Returns the ends. https://containerlab.dev/manual/topo-def-file#links"""
    for link in links:
        is_extended = "type" in link
        assert set(link) <= {"type", "endpoints", "mtu"} and link.get("type") in (None, "veth")
        assert len(link["endpoints"]) == 2 and type(link.get("mtu", 1500)) is int
        assert all(isinstance(end, dict) == is_extended for end in link["endpoints"])
    ends = [[end_of(end) for end in link["endpoints"]] for link in links]
    every = [end for both in ends for end in both]
    assert len(set(every)) == len(every) and {end.split(":")[0] for end in every} <= set(nodes)
    return ends


def test_containerlab_has_a_place_for_each_key(tmp_path):
    yaml = pytest.importorskip("yaml", reason="PyYAML is not installed in .venv")
    for file in files(tmp_path):
        network, out = written(file, "containerlab", tmp_path)
        lab = yaml.safe_load(out.read_text())
        assert set(lab) == {"name", "topology"} and type(lab["name"]) is str
        # Its schema has no empty list.
        assert set(lab["topology"]) == {"nodes", *(["links"] if network["links"] else [])}
        nodes = lab["topology"]["nodes"]
        assert set(nodes) == set(network["nodes"]), file
        for name, node in nodes.items():
            check_node(name, node)
            assert (node["kind"] == "bridge") == is_bridge(network["nodes"][name])
        ends = check_links(lab["topology"].get("links", []), nodes)
        assert ends == [link["endpoints"] for link in network["links"]]


# ------------------------------------------------------------------------------------------ CORE

#: For each element its attributes with the types in which CORE reads them, and its children.
#: After its corexml.py, from version 7 on.
CORE: dict[str, tuple[dict[str, type], set[str]]] = {
    "scenario": (
        {"name": str},
        {
            *("networks", "devices", "links", "mobility_configurations"),
            "configservice_configurations",
        },
    ),
    "networks": ({}, {"network"}),
    "network": ({"id": int, "name": str, "type": str, "model": str}, {"position"}),
    "devices": ({}, {"device"}),
    "device": (
        {"id": int, "name": str, "type": str, "class": str, "image": str},
        {"position", "configservices"},
    ),
    "position": ({"x": float, "y": float}, set()),
    "configservices": ({}, {"service"}),
    "links": ({}, {"link"}),
    "link": ({"node1": int, "node2": int}, {"iface1", "iface2", "options"}),
    **{
        f"iface{side}": (
            {
                **{"id": int, "name": str, "mac": str, "ip4": str, "ip4_mask": int},
                **{"ip6": str, "ip6_mask": int},
            },
            set(),
        )
        for side in (1, 2)
    },
    "options": (
        {
            **{"bandwidth": int, "delay": int, "jitter": int, "dup": int, "buffer": int},
            **{"loss": float, "unidirectional": int},
        },
        set(),
    ),
    "mobility_configurations": ({}, {"mobility_configuration"}),
    "mobility_configuration": ({"node": int, "model": str}, {"configuration"}),
    "configuration": ({"name": str, "value": str}, set()),
    "configservice_configurations": ({}, {"service"}),
    "service": ({"name": str, "node": int}, {"templates"}),
    "templates": ({}, {"template"}),
    "template": ({"name": str}, set()),
}
#: Attributes without which CORE does not open a scenario.
NEEDED = {"iface1": {"id"}, "iface2": {"id"}, "device": {"id", "name"}, "network": {"id", "type"}}


def check_element(element: ElementTree.Element) -> None:
    attributes, children = CORE[element.tag]
    for key, value in element.attrib.items():
        attributes[key](value)
    assert set(element.attrib) >= NEEDED.get(element.tag, set()), element.attrib
    for child in element:
        assert child.tag in children, f"{element.tag}: {child.tag}"
        check_element(child)


def check_interfaces(scenario: ElementTree.Element) -> None:
    """An interface has one number in its node; both elements of a link use the same."""
    numbers: dict[tuple[int, str], int] = {}
    for link in scenario.iterfind("links/link"):
        for side in ("1", "2"):
            interface = link.find(f"iface{side}")
            key = (int(link.get(f"node{side}")), interface.get("name"))
            assert numbers.setdefault(key, int(interface.get("id"))) == int(interface.get("id"))
    used = [(node, number) for (node, _), number in numbers.items()]
    assert len(set(used)) == len(used)


def scripts(scenario: ElementTree.Element) -> dict[int, str]:
    """The scripts of nodes, as CORE makes them of their templates."""
    template = pytest.importorskip("mako.template", reason="Mako is not installed in .venv")
    made = {}
    for service in scenario.iterfind("configservice_configurations/service"):
        assert service.get("name") == "StaticRoute"
        (one,) = service.iterfind("templates/template")
        assert one.get("name") == "staticroute.sh"
        made[int(service.get("node"))] = template.Template(one.text).render()
    return made


def test_core_opens_the_scenario(tmp_path):
    for file in files(tmp_path):
        network, out = written(file, "core", tmp_path)
        scenario = ElementTree.parse(out).getroot()
        assert scenario.tag == "scenario"
        check_element(scenario)
        check_interfaces(scenario)
        made = scripts(scenario)
        for device in scenario.iterfind("devices/device"):
            lines = network["nodes"][device.get("name")].get("exec", [])
            script = made.get(int(device.get("id")), "")
            assert all(f"(\n{line}\n)\n" in script for line in lines), device.get("name")


def test_a_line_of_core_that_leaves_its_shell_ends_no_other(tmp_path):
    _, out = written(files(tmp_path)[0], "core", tmp_path)
    script = next(
        text for text in scripts(ElementTree.parse(out).getroot()).values() if "exit" in text
    )
    done = subprocess.run(
        ["bash", "-c", script], capture_output=True, text=True, timeout=TIMEOUT, env={"HOME": "/h"}
    )
    assert (done.returncode, done.stdout) == (0, "/h\n"), done
