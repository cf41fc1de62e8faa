"""A lab that tries to do harm: programs that run as root in a private node try every way to the
host, to other nodes and to the machine. Nothing gets through."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest
from framework import build, lorentz, needs
from framework.networks import TIMEOUT, Lab, pair

#: What runs in the node. It gets the facts of the host that it needs as JSON.
HARM = (build.REPO / "tests/programs/networks/harm.py").read_text()

#: docker's default capabilities, and CAP_NET_ADMIN.
CAPABILITIES = 0xA80435FB | 1 << 12


class Listener:
    """A service of the host, at a socket: counts who comes."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(address)
        self.socket.listen()
        self.callers = 0
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                self.socket.accept()[0].close()
                self.callers += 1


def settings() -> dict[str, str]:
    """The network settings of the host."""
    found = {}
    for path in Path("/proc/sys/net").rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                found[str(path)] = path.read_text()
    # These count.
    return {path: value for path, value in found.items() if not path.endswith("_count")}


def offset() -> float:
    """The host's wall clock, less its monotonic one."""
    return time.clock_gettime(time.CLOCK_REALTIME) - time.clock_gettime(time.CLOCK_MONOTONIC)


def names_of_mounts() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    return sorted(line.split()[4] for line in lines)


@pytest.fixture
def place():
    """A directory of the host that nodes see."""
    place = Path("/var/tmp") / f"lorentz-harm-{os.getpid()}"
    place.mkdir()
    yield place
    subprocess.run(["rm", "-rf", str(place)], check=True, timeout=TIMEOUT)


def test_nothing_gets_through(place):
    needs.root()
    (place / "file").write_text("the host's\n")
    (place / "gone").mkdir()
    (place / "gone" / "file").write_text("the host's\n")
    os.mkfifo(place / "fifo")
    reader = os.open(place / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    addresses = [str(place / "socket"), f"/run/lorentz-harm-{os.getpid()}", f"\0harm{os.getpid()}"]
    listeners = [Listener(address) for address in addresses]
    new = f"lorentz-harm-new-{os.getpid()}"
    written = [str(place / "file"), *(f"/{top}/{new}" for top in
               ("etc", "root", "home", "tmp", "run", "var/tmp", "usr/bin"))]  # fmt: skip
    disk = Path("/").stat().st_dev
    before = (settings(), names_of_mounts(), socket.gethostname())
    clocks = offset()
    try:
        with Lab("isolation: private\n" + pair()) as lab:
            other = lab.start("b", "sleep", "1000")
            facts = {
                "written": written,
                "removed": [str(place / "gone")],
                "sockets": addresses,
                "fifo": str(place / "fifo"),
                "pids": [os.getpid(), other.pid, lab.status()["pid"]],
                "disk": [os.major(disk), os.minor(disk)],
            }
            told = json.loads(lab.run("a", "python3", "-c", HARM, json.dumps(facts)))
            assert other.poll() is None
    finally:
        for listener in listeners:
            listener.socket.close()
        Path(addresses[1]).unlink()
    done = {what for what, how in told["tried"].items() if how == "done"}
    assert done == {f"remove {place}/gone", *(f"write {path}" for path in written)}, told
    own = told["facts"]
    assert int(own["capabilities"], 16) == CAPABILITIES
    assert own["disks"] == own["descriptors of the first"] == [] and own["processes"] <= 4
    assert all(path.startswith(("pipe:", "/dev/null", "/proc/")) for path in own["descriptors"])
    assert not any(listener.callers for listener in listeners)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert (place / "file").read_text() == (place / "gone/file").read_text() == "the host's\n"
    assert not any(Path(path).exists() for path in written[1:])
    assert (settings(), names_of_mounts(), socket.gethostname()) == before
    assert abs(offset() - clocks) < 1


def test_a_node_does_not_reach_another_nodes_programs():
    """By their numbers, by their sockets without a name in the file system, by their files."""
    with Lab("isolation: private\n" + pair()) as lab:
        lab.start("b", "sleep", "12345")
        lab.wait_until(lambda: "12345" in lab.run("b", "ps", "ax", "-o", "args"), "it runs")
        assert "12345" not in lab.run("a", "ps", "ax", "-o", "args")
        lab.run("b", "sh", "-c", "echo b > /tmp/own; echo b > /etc/own")
        for path in ("/tmp/own", "/etc/own"):
            lab.run("a", "test", "!", "-e", path)


def test_a_private_node_forwards_and_filters_only_its_own():
    with Lab("isolation: private\n" + pair()) as lab:
        here = Path("/proc/sys/net/ipv4/ip_forward").read_text()
        lab.run("a", "sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward")
        assert lab.run("a", "cat", "/proc/sys/net/ipv4/ip_forward") == "1\n"
        lab.run("a", "ip", "route", "add", "198.51.100.0/24", "dev", "eth0")
        assert Path("/proc/sys/net/ipv4/ip_forward").read_text() == here
        shown = subprocess.run(
            ["ip", "route", "show", "198.51.100.0/24"],
            capture_output=True, text=True, timeout=TIMEOUT, check=True,
        )  # fmt: skip
        assert shown.stdout == ""
        assert lorentz.json_of("inspect", lab.name)["nodes"][0]["state"] == "running"
