"""A lab that tries to do harm: programs that run as root in a private node try every way to the
host, to other nodes and to the machine. Nothing gets through."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework import build, containers, lorentz, needs
from framework.networks import TIMEOUT, Imported, Lab, pair

#: The program in the node. It gets the facts of the host that it needs as JSON.
HARM = (build.REPO / "tests/programs/networks/harm.py").read_text()

#: docker's default capabilities, and CAP_NET_ADMIN.
CAPABILITIES = 0xA80435FB | 1 << 12


class Listener:
    """A service of the host, at a socket: counts who comes."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(address)
        self.socket.listen()
        self.callers = 0
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def close(self) -> None:
        # This also wakes the thread, whose call would keep the address in use.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join(TIMEOUT)
        self.socket.close()
        if not self.address.startswith("\0"):
            Path(self.address).unlink()

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


def offset() -> tuple[float, float]:
    """Bounds of the host's wall clock, less its monotonic one."""
    before, wall, after = time.monotonic(), time.time(), time.monotonic()
    return wall - after, wall - before


def names_of_mounts() -> list[str]:
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    points = (line.split()[4] for line in lines)
    # Tests beside this one have podman mount images, in its own storage and in theirs.
    return sorted(point for point in points if "/storage/overlay" not in point)


@pytest.fixture
def place():
    """A directory of the host that nodes see."""
    place = Path("/var/tmp") / f"lorentz-harm-{os.getpid()}"
    place.mkdir()
    yield place
    subprocess.run(["rm", "-rf", str(place)], check=True, timeout=TIMEOUT)


@contextlib.contextmanager
def podman_with_python() -> Iterator[str]:
    """An image with Python, in a storage of podman that `lorentz up` finds."""
    podman = containers.Podman()
    try:
        tar = podman.folder / "python.tar"
        subprocess.run(
            ["tar", "-C", containers.python_rootfs(), "-cf", tar, "."], check=True, timeout=TIMEOUT
        )
        podman.call("import", str(tar), "localhost/python:1")
        with pytest.MonkeyPatch.context() as patch:
            podman.publish(patch)
            yield "localhost/python:1"
    finally:
        podman.close()


def own(*, node: str = "", network: str = "") -> Lab:
    """A topology file of ours. `node`: keys of the node that does harm."""
    return Lab(
        f"isolation: private\n{network}{pair('delay: 1ms')}".replace("a: {}", f"a: {{{node}}}")
    )


def kathara(lab: Imported) -> Path:
    folder = Path(lab.folder.name) / lab.name
    folder.mkdir()
    (folder / "lab.conf").write_text(f'LAB_NAME="{lab.name}"\na[0]="A"\nb[0]="A"\n')
    (folder / "a.startup").write_text("ip address add 10.0.0.1/24 dev eth0\n")
    return folder


def containerlab(lab: Imported, image: str) -> Path:
    file = Path(lab.folder.name) / f"{lab.name}.clab.yml"
    file.write_text(
        f"name: {lab.name}\ntopology:\n  nodes:\n    a: {{kind: linux, image: '{image}'}}\n"
        f"    b: {{kind: linux}}\n  links:\n    - endpoints: ['a:eth1', 'b:eth1']\n"
    )
    return file


def core(lab: Imported) -> Path:
    file = Path(lab.folder.name) / f"{lab.name}.xml"
    file.write_text(
        f"<scenario name='{lab.name}'><devices>"
        "<device id='1' name='a' type='PC'/><device id='2' name='b' type='PC'/></devices><links>"
        "<link node1='1' node2='2'><iface1 name='eth0' ip4='10.0.0.1' ip4_mask='24'/>"
        "<iface2 name='eth0' ip4='10.0.0.2' ip4_mask='24'/><options delay='1000'/></link></links>"
        "</scenario>"
    )
    return file


#: Networks whose node a does harm, by the names of tests. Each gets the name of an image.
NETWORKS: dict[str, Callable[[str], Lab]] = {
    "own": lambda _: own(),
    "own, rounds": lambda _: own(network="rounds: true\n"),
    "own, rootfs": lambda _: own(node=f"rootfs: {containers.python_rootfs()}"),
    "own, image": lambda image: own(node=f"image: '{image}'"),
    "Kathara": lambda _: Imported(kathara),
    "containerlab, image": lambda image: Imported(functools.partial(containerlab, image=image)),
    "CORE, rounds": lambda _: Imported(core, "--rounds"),
}


@pytest.mark.parametrize("kind", NETWORKS)
def test_nothing_gets_through(place, kind):
    needs.root()
    is_host_seen = not kind.endswith(("rootfs", "image"))
    (place / "file").write_text("the host's\n")
    (place / "gone").mkdir()
    (place / "gone" / "file").write_text("the host's\n")
    os.mkfifo(place / "fifo")
    reader = os.open(place / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    addresses = [str(place / "socket"), f"/run/lorentz-harm-{os.getpid()}", f"\0harm{os.getpid()}"]
    new = f"lorentz-harm-new-{os.getpid()}"
    tops = ("etc", "root", "home", "tmp", "run", "var/tmp", "usr/bin")
    written = [f"/{top}/{new}" for top in tops]
    disk = Path("/").stat().st_dev
    least, most = offset()
    with contextlib.ExitStack() as stack:
        listeners = [
            stack.enter_context(contextlib.closing(Listener(address))) for address in addresses
        ]
        image = stack.enter_context(podman_with_python()) if kind.endswith("image") else ""
        host = settings()
        before = (names_of_mounts(), socket.gethostname())
        with NETWORKS[kind](image) as lab:
            other = lab.start("b", "sleep", "1000")
            facts = {
                "written": [str(place / "file"), *written],
                "removed": [str(place / "gone")],
                "sockets": addresses,
                "fifo": str(place / "fifo"),
                "pids": [os.getpid(), other.pid, lab.status()["pid"]],
                "disk": [os.major(disk), os.minor(disk)],
            }
            told = json.loads(lab.run("a", "python3", "-c", HARM, json.dumps(facts)))
            assert other.poll() is None
        after = (names_of_mounts(), socket.gethostname())
        # A test beside this one may have loaded a module with settings of its own, or taken an
        # interface away.
        now = settings()
        assert {path: now[path] for path in host if now.get(path, host[path]) != host[path]} == {}
    done = {what for what, how in told["tried"].items() if how == "done"}
    seen = {f"write {place}/file", f"remove {place}/gone"} if is_host_seen else set()
    assert done == {f"write {path}" for path in written} | seen, told
    inside = told["facts"]
    assert int(inside["capabilities"], 16) == CAPABILITIES
    assert inside["disks"] == inside["descriptors of the first"] == [] and inside["processes"] <= 4
    assert all(path.startswith(("pipe:", "/dev/null", "/proc/")) for path in inside["descriptors"])
    assert not any(listener.callers for listener in listeners)
    assert os.read(reader, 1) == b""
    os.close(reader)
    assert (place / "file").read_text() == (place / "gone/file").read_text() == "the host's\n"
    roots = [Path("/"), *([] if is_host_seen else [containers.python_rootfs()])]
    assert not [path for path in written for root in roots if (root / path.lstrip("/")).exists()]
    assert after == before
    now_least, now_most = offset()
    assert now_most > least - 1 and now_least < most + 1


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


def test_a_private_node_cannot_hook_the_machines_tunnels():
    """Each network namespace shows the setting, and it is the machine's for good once it is 1."""
    path = "/proc/sys/net/netfilter/nf_hooks_lwtunnel"
    if not Path(path).exists():
        pytest.skip(f"this kernel has no {path} (nf_conntrack is not loaded)")
    with Lab("isolation: private\n" + pair()) as lab:
        script = f"echo 1 > {path} && echo written; true"
        assert "written" not in lab.run("a", "sh", "-c", script)
