"""File system of a node: a root file system of its own, and bind mounts of the host."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import containers, lorentz
from framework.networks import TIMEOUT, Lab, refused


@pytest.fixture
def data(tmp_path):
    (tmp_path / "note").write_text("from the host\n")
    return tmp_path


def lab(data, node: str) -> Lab:
    root = containers.rootfs()
    return Lab(
        f"""\
tdf: 2
topology:
  nodes:
    a: {{rootfs: {root}, {node}}}
    b: {{}}
  links:
    - endpoints: ['a:eth0', 'b:eth0']
      ipv4: [10.0.0.1/24, 10.0.0.2/24]
      delay: 5ms
"""
    )


def test_a_root_file_system_stays_clean(data):
    node = f"binds: ['{data}/note:/etc/note:ro', '{data}:/data'], exec: ['echo x > /etc/made']"
    with lab(data, node) as network:
        assert network.run("a", "cat", "/etc/made") == "x\n"
        assert network.run("a", "cat", "/etc/note") == "from the host\n"
        assert "busybox" in network.run("a", "ls", "/bin").split()
        network.run("a", "sh", "-c", "echo y > /data/back; echo z > /tmp/z")
        assert (data / "back").read_text() == "y\n"
        done = lorentz.call("exec", network.container("a"), "--", "sh", "-c", "echo n > /etc/note")
        assert done.returncode != 0 and "Read-only" in done.stderr
        # The other node, and the host, have the host's.
        assert not Path("/etc/made").exists()
        network.run("b", "test", "!", "-e", "/etc/made")
        assert min(network.ping("b", "10.0.0.1", count=2)) >= 10
    root = containers.rootfs()
    assert not (root / "etc" / "made").exists() and not (root / "data").exists()
    assert (data / "note").read_text() == "from the host\n"


def test_a_command_below_a_root_is_in_virtual_time(data):
    with lab(data, "command: 'date +%Y; sleep 1000', output: " + f"{data}/out") as network:
        network.wait_until(lambda: (data / "out").read_text() != "", "a date")
        assert (data / "out").read_text().strip().isdigit()
        # By the network's clock, not by the host's.
        lorentz.ok("step", network.name, "--by", "+7305d")
        year = network.run("a", "date", "+%Y")
        assert int(year) >= int((data / "out").read_text()) + 19


def test_binds_without_a_root(data, tmp_path_factory):
    place = tmp_path_factory.mktemp("place") / "file"
    place.write_text("the host's\n")
    text = f"topology: {{nodes: {{a: {{binds: ['{data}/note:{place}']}}, b: {{}}}}}}\n"
    with Lab(text) as network:
        assert network.run("a", "cat", place) == "from the host\n"
        assert network.run("b", "cat", place) == "the host's\n"
        assert place.read_text() == "the host's\n"


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ("rootfs: /no/such", "node a: rootfs: /no/such: not there; expected a directory"),
        ("binds: ['/no/such:/etc']", "node a: binds: /no/such: not there"),
        ("binds: ['/etc:/no/such']", "node a: binds: /no/such: not there; expected a place"),
        ("binds: ['/etc']", ':2:32: node a: binds: "/etc": expected SOURCE:TARGET'),
        ("binds: ['/etc:etc']", "the target absolute"),
        ("kind: switch, rootfs: /", "runs nothing"),
        ("user: nobody", ':2:30: node a: user: "nobody": expected image or rootfs beside it'),
        ("rootfs: /, user: -x", 'user: "-x": expected USER or USER:GROUP'),
    ],
)
def test_what_is_not_there_is_told(node, words, tmp_path):
    refused(tmp_path, node, words)


def test_a_command_that_the_root_does_not_have(tmp_path):
    node = f"rootfs: {containers.rootfs()}, command: [gcc]"
    refused(tmp_path, node, "node a: command: gcc: not found")


@pytest.mark.parametrize("isolation", ["host", "private"])
def test_programs_run_as_the_user(data, isolation):
    node = f"user: '65534:1234', isolation: {isolation}, command: 'id -u; id -g; sleep 1000'"
    with lab(data, f"{node}, output: {data}/out") as network:
        network.wait_until(lambda: len((data / "out").read_text().split()) == 2, "two numbers")
        assert (data / "out").read_text().split() == ["65534", "1234"]
        assert network.run("a", "id", "-u") == "65534\n"


def test_up_gives_a_root_file_system(data):
    network = Lab("topology: {nodes: {a: {}, b: {isolation: private}}}")
    network.file.write_text(network.text)
    try:
        root = str(containers.rootfs())
        lorentz.ok("up", str(network.file), "--rootfs", root, timeout=TIMEOUT)
        for node in "ab":
            assert "busybox" in network.run(node, "ls", "/bin").split()
        done = lorentz.call("up", str(network.file), "--rootfs", "/no/such")
        lorentz.refusal(done, "--rootfs /no/such: expected a directory")
    finally:
        network.__exit__()
