"""Networks come up whole or not at all, and go without a trace, whatever has died."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from framework import lorentz, processes
from framework.networks import Lab, pair


def namespaces_of(lab: Lab) -> set[str]:
    """The network namespaces of the nodes, by the kernel's names."""
    nodes = [node["container"] for node in lab.status()["nodes"]]
    pids = [pid for entry in lorentz.ps() if entry["name"] in nodes for pid in entry["pids"]]
    return {str(Path(f"/proc/{pid}/ns/net").readlink()) for pid in pids}


def holders(namespaces: set[str]) -> list[int]:
    """The processes in any of these namespaces."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if str((folder / "ns/net").readlink()) in namespaces:
                    found.append(int(folder.name))
            except OSError:
                pass
    return found


def is_gone(lab: Lab) -> bool:
    """Whether no command shows it, and the state directory has nothing of it."""
    state = lorentz.session.state_dir()
    shown = [entry["name"] for entry in lorentz.ps() + lorentz.json_of("inspect")]
    left = [path.name for path in [*state.iterdir(), *state.glob(".networks/*")]]
    return not any(name.startswith(lab.name) for name in shown + left)


def test_nodes_are_apart_and_on_one_clock():
    with Lab("tdf: 4\n" + pair("delay: 1ms")) as lab:
        assert len(namespaces_of(lab)) == 2
        assert str(Path("/proc/self/ns/net").readlink()) not in namespaces_of(lab)
        for node in "ab":
            assert lab.run(node, "hostname").strip() == node
            links = {link["ifname"] for link in json.loads(lab.run(node, "ip", "-j", "link"))}
            assert links == {"lo", "eth0"}
        entries = [entry for entry in lorentz.ps() if entry["name"].startswith(lab.name)]
        assert [entry["rate"] for entry in entries] == ["0.25"] * 3
        assert {entry["clock_of"] for entry in entries} == {None, lab.name}


def test_what_the_file_says_is_done():
    text = """\
topology:
  nodes:
    a:
      command: echo hello $WHO; exec sleep 1000
      env: {WHO: world}
      sysctls: {net.ipv4.ip_forward: 1}
      exec: [ip route add 192.0.2.0/24 dev eth0, ip link set lo mtu 1400]
    b: {command: [sleep, '1000']}
  links:
    - endpoints: ['a:eth0', 'b:eth0']
      ipv6: [fd00::1/64, fd00::2/64]
      mtu: 1280
"""
    with Lab(text) as lab:
        output = Path(next(n["output"] for n in lab.status()["nodes"] if n["name"] == "a"))
        lab.wait_until(lambda: output.read_text() == "hello world\n", "its output")
        assert lab.run("a", "cat", "/proc/sys/net/ipv4/ip_forward") == "1\n"
        assert "dev eth0" in lab.run("a", "ip", "route", "show", "192.0.2.0/24")
        assert lab.run("b", "cat", "/proc/sys/net/ipv4/ip_forward") == "0\n"
        assert json.loads(lab.run("a", "ip", "-j", "link", "show", "eth0"))[0]["mtu"] == 1280
        assert lab.ping("a", "fd00::2", 1)


def test_tcp_waits_its_least_time_by_the_networks_clock():
    for rate, expected in (("tdf: 10", 2_000_000), ("rate: 10", 200_000)):
        with Lab(f"{rate}\n{pair()}") as lab:
            setting = "/proc/sys/net/ipv4/tcp_rto_min_us"
            if not Path(setting).exists():
                pytest.skip("needs Linux 6.11")
            assert int(lab.run("a", "cat", setting)) == expected


def test_down_leaves_nothing():
    with Lab(pair("delay: 1ms")) as lab:
        namespaces = namespaces_of(lab)
        groups = processes.control_groups(f"{lab.name}.")
        lab.start("b", "sleep", "1000")
        lorentz.ok("down", lab.name)
        assert is_gone(lab)
        assert groups
        # The last of its monitors may still run.
        lab.wait_until(lambda: not any(group.exists() for group in groups), "no control group")
        lab.wait_until(lambda: not holders(namespaces), "no process in its namespaces")


def test_down_takes_several_networks():
    """None of them ends where one is not known."""
    with Lab(pair()) as one, Lab(pair()) as other:
        lorentz.refusal(lorentz.call("down", one.name, "nosuch"), "nosuch")
        assert not is_gone(one)
        ended = json.loads(lorentz.ok("down", one.name, other.name, "--json"))
        assert [row["name"] for row in ended] == [one.name, other.name]
        assert is_gone(one) and is_gone(other)
    lorentz.refusal(lorentz.call("down", "--all", "nosuch"), "--all")


def test_a_network_is_named_by_its_file(tmp_path):
    with Lab(pair()) as lab, Lab(pair()):
        assert lab.name in lorentz.ok("inspect", str(lab.file))
        lorentz.refusal(lorentz.call("down", str(tmp_path / "nosuch.yaml")), "nosuch.yaml")
        lorentz.ok("down", str(lab.file))
        assert is_gone(lab)
        # It does not run any more.
        lorentz.refusal(lorentz.call("down", str(lab.file)), str(lab.file))


def test_networks_come_and_go_many_times():
    nodes = ", ".join(f"n{i}: {{}}" for i in range(6))
    for _ in range(8):
        with Lab(f"topology: {{nodes: {{{nodes}}}}}\n") as lab:
            lorentz.ok("down", lab.name)
            assert is_gone(lab)


def test_down_of_a_frozen_network():
    with Lab(pair("delay: 1ms")) as lab:
        lorentz.ok("freeze", lab.name)
        lorentz.ok("down", lab.name)
        assert is_gone(lab)


def test_the_emulator_is_killed():
    with Lab(pair("delay: 1ms")) as lab:
        namespaces = namespaces_of(lab)
        os.kill(lab.status()["pid"], signal.SIGKILL)
        lab.wait_until(
            lambda: (
                [e for e in lorentz.json_of("inspect") if e["name"] == lab.name]
                == [{"name": lab.name, "state": "dead"}]
            ),
            "it is told",
        )
        # Nodes go on; their links are down, once the kernel has closed the emulator's descriptors.
        lab.wait_until(lambda: not lab.has_carrier("a"), "no carrier")
        refused = lorentz.call("link", "show", "--network", lab.name)
        assert refused.returncode == 2 and "lorentz down" in refused.stderr
        assert lab.up().returncode == 2
        lorentz.ok("down", lab.name)
        assert is_gone(lab)
        lab.wait_until(lambda: not holders(namespaces), "no process in its namespaces")


def test_a_node_removes_its_interface():
    with Lab(pair()) as lab:
        lab.run("b", "ip", "link", "set", "eth0", "down")
        lab.send("a", "10.0.0.2", 1, 100)
        lab.run("b", "ip", "link", "del", "eth0")
        lab.send("a", "10.0.0.2", 1, 100)
        assert lab.status()["state"] == "running"


def test_a_failing_exec_takes_all_down():
    lab = Lab("topology: {nodes: {a: {}, b: {exec: ['true', 'echo why >&2; exit 3']}}}\n")
    try:
        done = lab.up()
        assert done.returncode == 1
        assert "node b: exec: echo why >&2; exit 3: exit status 3: why" in done.stderr
        assert is_gone(lab)
    finally:
        lab.__exit__()


def test_a_failing_setting_takes_all_down():
    lab = Lab("topology: {nodes: {a: {}, b: {sysctls: {net.ipv4.no_such: 1}}}}\n")
    try:
        done = lab.up()
        assert done.returncode == 1 and "node b: sysctls: net.ipv4.no_such" in done.stderr
        assert is_gone(lab)
    finally:
        lab.__exit__()


def test_a_name_is_used_once():
    with Lab(pair()) as lab:
        again = lab.up()
        assert again.returncode == 2 and f"lorentz down {lab.name}" in again.stderr
        assert lab.status()["name"] == lab.name


def test_a_graph_can_be_looked_at():
    with Lab(pair("rate: 10mbit", "delay: 5ms")) as lab:
        picture = ElementTree.fromstring(lorentz.ok("graph", lab.name))
        words = [text.text for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        assert {"a", "b", "eth0", "10mbit 5ms"} <= set(words)


def test_looking_prints_tables_too():
    with Lab(pair("delay: 5ms")) as lab:
        page = lorentz.ok("inspect")
        assert f"{lab.name}: running" in page and f"{lab.name}.a" in page
        assert "a:eth0" in lorentz.ok("link", "show", "--network", lab.name)
        changed = json.loads(
            lorentz.ok("link", "set", "b:eth0", "--loss", "1%", "--network", lab.name, "--json")
        )
        assert [way["impairments"] for way in changed["directions"]] == [
            {"delay": "5ms"},
            {"delay": "5ms", "loss": "1%"},
        ]


def test_a_capture_goes_to_a_pipe():
    with Lab(pair()) as lab:
        command = [*lorentz.session.command(), "capture", "a:eth0", "--network", lab.name]
        process = lab.popen(command, text=False)
        assert process.stdout.read(4) == b"\x0a\x0d\x0d\x0a"
        lorentz.ok("down", lab.name)
        process.stdout.read()
        assert process.wait(timeout=30) == 0


def test_a_reader_that_leaves_does_no_harm():
    with Lab(pair()) as lab:
        command = [*lorentz.session.command(), "capture", "a:eth0", "--network", lab.name]
        process = lab.popen(command, text=False)
        process.stdout.read(4)
        process.kill()
        process.wait(timeout=30)
        assert subprocess.run(lab.command("a", "true"), env=lorentz.session.environment(),
                              timeout=30, check=False).returncode == 0  # fmt: skip
        assert lab.ping("a", "10.0.0.2", 1)
