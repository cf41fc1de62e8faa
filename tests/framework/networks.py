"""Networks of `lorentz up`, up as long as a block runs, and captures of them.

with Lab(pair("delay: 5ms")) as lab:
    lab.ping("a", "10.0.0.2")
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import struct
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from framework import lorentz, needs, processes

#: Time limit of everything that a test starts here, s.
TIMEOUT = 60
_numbers = itertools.count(1)

#: Two nodes and a link; the link's properties are to be filled in.
PAIR = """\
topology:
  nodes: {{a: {{}}, b: {{}}}}
  links:
    - endpoints: ['a:eth0', 'b:eth0']
      ipv4: [10.0.0.1/24, 10.0.0.2/24]
{link}
"""

#: A switch with two nodes; its third port is free.
STAR = """\
topology:
  nodes: {a: {}, b: {}, s: {kind: switch}}
  links:
    - {endpoints: ['a:eth0', 's:1'], ipv4: [10.0.0.1/24, null]}
    - {endpoints: ['b:eth0', 's:2'], ipv4: [10.0.0.2/24, null]}
"""


def pair(*lines: str) -> str:
    """A topology of two nodes whose link has these lines."""
    return PAIR.format(link="\n".join(f"      {line}" for line in lines))


def refused(folder: Path, node: str, words: str) -> None:
    """Checks that `up` refuses a topology whose only node, a, has the lines `node`: in one line,
    with `words`."""
    file = folder / "lab.yaml"
    file.write_text(f"name: refused\ntopology: {{nodes: {{a: {{{node}}}}}}}\n")
    done = lorentz.call("up", str(file))
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and words in done.stderr, done
    assert "refused" not in str(lorentz.json_of("inspect"))


class Lab:
    """A network, up as long as the block runs."""

    def __init__(self, text: str) -> None:
        needs.root()
        needs.feature("taps")
        self.name = f"lt{os.getpid()}-{next(_numbers)}"
        self.text = f"name: {self.name}\n{text}"
        self.folder = tempfile.TemporaryDirectory(prefix="lorentz-net-")
        self.tag = processes.new_tag()
        self.started: list[subprocess.Popen] = []

    @property
    def file(self) -> Path:
        return Path(self.folder.name) / "lab.yaml"

    def up(self) -> subprocess.CompletedProcess:
        self.file.write_text(self.text)
        return lorentz.call("up", str(self.file), timeout=TIMEOUT)

    def __enter__(self) -> Lab:
        done = self.up()
        if done.returncode != 0:
            self.__exit__()
        assert done.returncode == 0, done.stderr
        return self

    def __exit__(self, *_: object) -> None:
        processes.end(self.started, TIMEOUT)
        # Programs started in the nodes end with the network.
        down = lorentz.call("down", self.name, timeout=TIMEOUT)
        self.folder.cleanup()
        assert down.returncode == 0 or "no such network" in down.stderr, down.stderr

    def container(self, node: str) -> str:
        return f"{self.name}.{node}"

    def command(self, node: str, *words: object) -> list[str]:
        start = [*lorentz.session.command(), "exec", self.container(node), "--"]
        return [*start, *map(str, words)]

    def call(self, node: str, *words: object) -> subprocess.CompletedProcess:
        """Runs a command in a node to its end, with success or failure."""
        return subprocess.run(
            self.command(node, *words),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            stdin=subprocess.DEVNULL,
            env=lorentz.session.environment(),
        )

    def run(self, node: str, *words: object) -> str:
        """Runs a command in a node to its end, which must succeed. Returns its output."""
        done = self.call(node, *words)
        assert done.returncode == 0, f"{words}: {done.returncode}: {done.stdout} {done.stderr}"
        return done.stdout

    def start(self, node: str, *words: object) -> subprocess.Popen:
        """Starts a command in a node; it ends with the network."""
        return self.popen(self.command(node, *words))

    def popen(self, command: list[str], **options: object) -> subprocess.Popen:
        environment = {**lorentz.session.environment(), processes.TAG: self.tag}
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            env=environment,
            **{"text": True, **options},
        )
        self.started.append(process)
        return process

    def python(self, node: str, code: str) -> str:
        return self.run(node, "python3", "-c", code)

    def status(self) -> dict:
        return lorentz.json_of("inspect", self.name)

    def link(self, at: int = 0) -> dict:
        return self.status()["links"][at]

    def direction(self, sender: str) -> dict:
        """Returns the state of the direction in which the end `sender` sends."""
        ways = [way for link in self.status()["links"] for way in link["directions"]]
        return next(way for way in ways if way["from"] == sender)

    def set(self, end: str, *flags: str) -> None:
        lorentz.ok("link", "set", end, *flags, "--network", self.name)

    def send(self, node: str, to: str, count: int, size: int, gap: float = 0, tos: int = 0) -> None:
        """Lets a node send UDP datagrams to a port without a listener; `gap` is in virtual seconds,
        `tos` the byte of the type of service."""
        code = (
            "import socket,time\n"
            "s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM)\n"
            "s.setsockopt(socket.SOL_SOCKET,socket.SO_SNDBUF,1<<22)\n"
            f"s.setsockopt(socket.IPPROTO_IP,socket.IP_TOS,{tos})\n"
            f"for i in range({count}):\n"
            f"    s.sendto(i.to_bytes(4,'big')+bytes({size}-4),('{to}',9))\n"
            f"    {gap} and time.sleep({gap})\n"
        )
        self.python(node, code)

    def silence_ipv6(self, *nodes: str) -> None:
        """Switches IPv6 off: its group messages come now and then, and would delay the test's
        frames."""
        for node in nodes:
            self.run(node, "sh", "-c", "echo 1 > /proc/sys/net/ipv6/conf/eth0/disable_ipv6")

    def learn(self) -> None:
        """Gives a and b permanent neighbour entries: from here on only the tests' frames are on the
        wire."""
        self.silence_ipv6("a", "b")
        for node, other in (("a", "10.0.0.2"), ("b", "10.0.0.1")):
            mac = json.loads(
                self.run({"a": "b", "b": "a"}[node], "ip", "-j", "link", "show", "eth0")
            )[0]["address"]
            self.run(node, "ip", "neigh", "replace", other, "lladdr", mac, "dev", "eth0")

    def ping(self, node: str, to: str, count: int = 5, gap: float = 0.2) -> list[float]:
        """Returns the round-trip times, ms, as ping inside saw them, in order."""
        text = self.run(node, needs.tool("ping"), "-c", count, "-i", gap, to)
        return [float(ms) for ms in re.findall(r"time=([\d.]+) ms", text)]

    def has_carrier(self, node: str, interface: str = "eth0") -> bool:
        return "NO-CARRIER" not in self.run(node, "ip", "link", "show", interface)

    def wait_for_carrier(self, *nodes: str) -> None:
        """Waits until eth0 of each node has carrier. The ends of a link get it one after the
        other."""
        for node in nodes:
            self.wait_until(lambda node=node: self.has_carrier(node), f"carrier of {node}")

    def output(self, node: str) -> str:
        """The output of a node's command so far."""
        found = next(one for one in self.status()["nodes"] if one["name"] == node)
        return Path(found["output"]).read_text()

    def wait_until(self, good: object, what: str) -> None:
        deadline = time.monotonic() + TIMEOUT
        while not good():
            assert time.monotonic() < deadline, f"{what}: not in {TIMEOUT} s"
            time.sleep(0.02)


class Imported(Lab):
    """A network of another emulator's file, which `write` writes below the network's folder."""

    def __init__(self, write: Callable[[Imported], Path], *flags: str) -> None:
        super().__init__("")
        self.path, self.flags = write(self), flags

    def up(self) -> subprocess.CompletedProcess:
        return lorentz.call("up", str(self.path), *self.flags, timeout=TIMEOUT)


@dataclasses.dataclass
class Frame:
    """A captured frame: wall clock nanoseconds, in or out, its bytes."""

    at: int
    way: str
    data: bytes

    @property
    def is_probe(self) -> bool:
        """Whether this is a datagram of `Lab.send`: UDP to port 9."""
        protocol, port = (self.data[12:14], self.data[23]), self.data[36:38]
        return protocol == (b"\x08\0", 17) and port == b"\0\x09"

    @property
    def number(self) -> int:
        return int.from_bytes(self.data[42:46], "big")


class Capture:
    """`lorentz capture` of an interface, from the block's begin on."""

    def __init__(self, lab: Lab, end: str) -> None:
        self.lab = lab
        self.file = Path(lab.folder.name) / f"{end.replace(':', '-')}.pcapng"
        words = ["capture", end, "--network", lab.name, "--write", str(self.file)]
        self.process = lab.popen([*lorentz.session.command(), *words])
        lab.wait_until(lambda: self.file.exists() and self.file.stat().st_size > 0, "a header")

    def frames(self) -> list[Frame]:
        """Returns the frames captured so far."""
        return parse(self.file.read_bytes())

    def probes(self, count: int) -> list[Frame]:
        """Returns the datagrams of `Lab.send`, once there are `count`."""
        found: list[Frame] = []

        def enough() -> bool:
            found[:] = [frame for frame in self.frames() if frame.is_probe]
            return len(found) >= count

        self.lab.wait_until(enough, f"{count} datagrams")
        return found

    def round_trips(self, count: int) -> list[int]:
        """From each of `count` echo requests to its reply, in virtual ns."""

        def echoes(kind: int) -> dict[bytes, int]:
            found = [f for f in self.frames() if (f.data[12:14], f.data[23]) == (b"\x08\0", 1)]
            return {f.data[38:42]: f.at for f in found if f.data[34] == kind}

        self.lab.wait_until(lambda: len(echoes(0)) == count, f"{count} replies")
        requests, replies = echoes(8), echoes(0)
        assert len(requests) == count
        return [replies[which] - sent for which, sent in requests.items()]


def parse(data: bytes) -> list[Frame]:
    """Returns the frames of a pcapng file, whose blocks must be complete except the last."""
    frames = []
    at = 0
    while at + 12 <= len(data):
        kind, length = struct.unpack_from("<II", data, at)
        if at + length > len(data):
            break
        assert struct.unpack_from("<I", data, at + length - 4) == (length,)
        if kind == 6:
            _, high, low, size, _ = struct.unpack_from("<5I", data, at + 8)
            body = data[at + 28 : at + 28 + size]
            flags = at + 28 + (size + 3) // 4 * 4
            assert struct.unpack_from("<HH", data, flags) == (2, 4)
            way = {1: "in", 2: "out"}[struct.unpack_from("<I", data, flags + 4)[0]]
            frames.append(Frame(high << 32 | low, way, body))
        at += length
    return frames
