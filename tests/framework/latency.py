"""Networks of namespaces, and `lorentz latency` at work in them.

    with Network() as network, Watch(network, "--json") as watch:
        network.probe("udp", count=10)
        packets = watch.stop()

A container (`inside`) is joined to its host by veth and bridge, with masquerade, or by macvlan; a
remote machine is behind the host's eth0. Nothing of the machine's own network is touched.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator

import pytest

from framework import build, lorentz, needs, processes

#: Time limit of everything that a test starts here, s.
TIMEOUT = 75
INSIDE = {4: "172.30.0.2", 6: "fd30::2"}
HOST = {4: "172.30.0.1", 6: "fd30::1"}
HOST_OUTER = {4: "10.9.0.1", 6: "fd09::1"}
REMOTE = {4: "10.9.0.2", 6: "fd09::2"}
BEYOND = {4: "10.8.0.2", 6: "fd08::2"}
#: The remote machine at the other end of a tunnel, in the containers' own network.
OVERLAY = {4: "172.30.0.9", 6: "fd30::9"}
#: Upper bound of what a tunnel puts before a packet, bytes.
TUNNEL_HEADERS = 100
_numbers = itertools.count(1)


def _ip(*words: str) -> None:
    done = subprocess.run(["ip", *words], capture_output=True, text=True, timeout=TIMEOUT)
    assert done.returncode == 0, f"ip {' '.join(words)}: {done.stderr}"


class Network:
    """The namespaces, up as long as the block runs."""

    def __init__(self, kind: str = "bridge", mtu: int = 1500) -> None:
        needs.root()
        for name in ("ip", "nft", "sysctl", "ping"):
            needs.tool(name)
        self.kind = kind
        self.mtu = mtu
        self.prefix = f"lt{os.getpid()}-{next(_numbers)}"
        self.tag = processes.new_tag()
        self.started: list[subprocess.Popen] = []
        self.extra: list[str] = []

    inside = property(lambda self: f"{self.prefix}c")
    host = property(lambda self: f"{self.prefix}h")
    remote = property(lambda self: f"{self.prefix}r")

    def __enter__(self) -> Network:
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        processes.end(self.started, TIMEOUT)
        processes.kill_tagged(self.tag)
        for name in (self.inside, self.host, self.remote, *self.extra):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, timeout=TIMEOUT)

    def _build(self) -> None:
        for name in (self.inside, self.host, self.remote):
            self.namespace(name)
        peer = ("peer", "eth0", "netns", self.remote)
        _ip("-n", self.host, "link", "add", "eth0", "type", "veth", *peer)
        for name, addresses in ((self.host, HOST_OUTER), (self.remote, REMOTE)):
            self.address(name, "eth0", addresses)
        if self.kind == "macvlan":
            self._macvlan()
        else:
            self.bridge()
            self.join(self.inside, "vinside", INSIDE)
        for family, host in HOST_OUTER.items():
            _ip("-n", self.host, "route", "add", "default", "via", REMOTE[family])
            if family == 6 and self.kind != "macvlan":
                _ip("-n", self.remote, "route", "add", "fd30::/64", "via", host)
        self.sysctl(self.inside, "net.ipv4.ping_group_range=0 2147483647")
        for name in (self.inside, self.remote):
            self.sysctl(name, "net.ipv4.icmp_ratelimit=0")
        self.warm_up()

    def warm_up(self, addresses: dict[int, str] = REMOTE) -> None:
        """Waits until packets reach the remote machine and return: devices need some time."""
        deadline = time.monotonic() + TIMEOUT
        for address in addresses.values():
            ping = ("ping", "-c1", "-W1", address)
            while self.run(self.inside, *ping, check=False).returncode != 0:
                assert time.monotonic() < deadline, f"{address} does not answer"

    def _macvlan(self) -> None:
        kind = ("type", "macvlan", "mode", "bridge")
        _ip("-n", self.host, "link", "add", "mac", "link", "eth0", *kind)
        _ip("-n", self.host, "link", "set", "mac", "netns", self.inside, "name", "eth0")
        self.address(self.inside, "eth0", {4: "10.9.0.3", 6: "fd09::3"})

    def bridge(self) -> None:
        """Makes the bridge for the containers, and masquerade behind it."""
        # Without an address of its own the bridge takes that of a port, and another's when more
        # join. The containers' neighbour entries would be wrong then, and their packets lost for
        # seconds.
        own = ("address", "02:4c:00:00:00:fe")
        _ip("-n", self.host, "link", "add", "br0", *own, "type", "bridge")
        self.address(self.host, "br0", HOST)
        self.sysctl(self.host, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        rules = (
            "add table ip nat; add chain ip nat out { type nat hook postrouting priority 100; };"
            'add rule ip nat out oif "eth0" masquerade'
        )
        self.run(self.host, "nft", rules)

    def namespace(self, name: str) -> None:
        _ip("netns", "add", name)
        _ip("-n", name, "link", "set", "lo", "up")

    def join(self, name: str, port: str, addresses: dict[int, str]) -> None:
        """Joins namespace `name` to the bridge."""
        _ip("-n", self.host, "link", "add", port, "type", "veth", "peer", "eth0", "netns", name)
        _ip("-n", self.host, "link", "set", port, "master", "br0", "up")
        self.address(name, "eth0", addresses)
        for family, gateway in HOST.items():
            if family in addresses:
                _ip("-n", name, "route", "add", "default", "via", gateway)

    def more(self, number: int) -> str:
        """Adds a container on the bridge."""
        name = f"{self.prefix}c{number}"
        self.extra.append(name)
        self.namespace(name)
        self.join(name, f"v{number}", {4: f"172.30.0.{10 + number}"})
        self.sysctl(name, "net.ipv4.ping_group_range=0 2147483647")
        return name

    def tunnel(self, underlay: int = 4, kind: str = "vxlan", apart: bool = False) -> None:
        """Joins the remote machine to the containers' bridge by a tunnel through packets of IPv4 or
        IPv6, as `underlay` says. With `apart` bridge and tunnel are moved into a namespace of their
        own, as Docker has them. Skips if the kernel has no tunnels of this kind."""
        ends = {self.host: (HOST_OUTER, REMOTE), self.remote: (REMOTE, HOST_OUTER)}
        for name, (own, other) in ends.items():
            way = ("local", own[underlay], "remote", other[underlay], "dev", "eth0")
            words = {
                "vxlan": ("vxlan", "id", "42", "dstport", "4789", *way),
                "geneve": ("geneve", "id", "42", "remote", other[underlay]),
                "gre": ("gretap" if underlay == 4 else "ip6gretap", *way),
            }
            add = ["ip", "-n", name, "link", "add", "tunnel0", "type", *words[kind]]
            done = subprocess.run(add, capture_output=True, text=True, timeout=TIMEOUT)
            if "Unknown device type" in done.stderr:
                pytest.skip(f"this kernel has no {kind} tunnels")
            assert done.returncode == 0, done.stderr
        self.address(self.remote, "tunnel0", OVERLAY, self.mtu - TUNNEL_HEADERS)
        bridged = self.host
        if apart:
            bridged = f"{self.prefix}o"
            self.extra.append(bridged)
            self.namespace(bridged)
            own = ("address", "02:4c:00:00:00:ff", "type", "bridge")
            _ip("-n", bridged, "link", "add", "br0", *own)
            _ip("-n", bridged, "link", "set", "br0", "up")
            for device in ("tunnel0", "vinside"):
                _ip("-n", self.host, "link", "set", device, "netns", bridged)
            _ip("-n", bridged, "link", "set", "vinside", "master", "br0", "up")
        _ip("-n", bridged, "link", "set", "tunnel0", "master", "br0", "up")
        self.warm_up(OVERLAY)

    def beyond(self) -> None:
        """Adds a machine behind the remote one, which is the router."""
        name = f"{self.prefix}b"
        self.extra.append(name)
        self.namespace(name)
        _ip("-n", self.remote, "link", "add", "e1", "type", "veth", "peer", "eth0", "netns", name)
        self.address(self.remote, "e1", {4: "10.8.0.1", 6: "fd08::1"})
        self.address(name, "eth0", BEYOND)
        for router in ("10.8.0.1", "fd08::1"):
            _ip("-n", name, "route", "add", "default", "via", router)
        self.sysctl(self.remote, "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
        for one in (self.remote, name):
            self.sysctl(one, "net.ipv4.icmp_ratelimit=0", "net.ipv6.icmp.ratelimit=0")

    def address(
        self, name: str, device: str, addresses: dict[int, str], mtu: int | None = None
    ) -> None:
        _ip("-n", name, "link", "set", device, "mtu", str(mtu or self.mtu))
        _ip("-n", name, "link", "set", device, "up")
        for family, address in addresses.items():
            length = "/64" if family == 6 else "/24"
            late = ["nodad"] if family == 6 else []
            _ip("-n", name, "addr", "add", address + length, "dev", device, *late)

    def sysctl(self, name: str, *settings: str) -> None:
        self.run(name, "sysctl", "-qw", *settings)

    def command(self, name: str, *words: object) -> list[str]:
        return ["ip", "netns", "exec", name, *map(str, words)]

    def run(self, name: str, *words: object, check: bool = True) -> subprocess.CompletedProcess:
        """Runs a command in namespace `name` to its end."""
        done = subprocess.run(
            self.command(name, *words),
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            env=lorentz.session.environment(),
        )
        if check:
            assert done.returncode == 0, f"{words}: {done.returncode}: {done.stderr}"
        return done

    def start(self, name: str, *words: object) -> subprocess.Popen:
        """Starts a command in namespace `name`; it ends with the network."""
        process = subprocess.Popen(
            self.command(name, *words),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            stdin=subprocess.DEVNULL,
            text=True,
            env={**lorentz.session.environment(), processes.TAG: self.tag},
        )
        self.started.append(process)
        return process

    def serve(self, protocol: str, port: int = 7007) -> None:
        """Lets the remote machine send back all packets."""
        server = self.start(self.remote, build.c("latency/probe"), "serve", protocol, port)
        assert "ready" in server.stdout.readline()

    def probe(
        self, protocol: str, family: int = 4, name: str = "", to: str = "", **options: object
    ) -> list[dict]:
        """Lets a container exchange packets with the remote machine. Returns its log of each."""
        words = [str(word) for pair in options.items() for word in pair]
        to = to or REMOTE[family]
        program = build.c("latency/probe")
        done = self.run(name or self.inside, program, protocol, to, *words)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def flood(self, senders: int, seconds: int = 10) -> None:
        """Lets `count` further containers ping as fast as they get replies, for a bounded time."""
        needs.tool("ping")
        for number in range(1, senders + 1):
            name = self.more(number)
            self.start(name, "ping", "-f", "-q", "-w", seconds, REMOTE[4])


class Container:
    """A process with a file system and a network of its own."""

    def __init__(self, network: Network, namespace: str) -> None:
        self.network = network
        script = "mount -t tmpfs tmpfs /run && echo ready && exec sleep 60"
        self.process = network.start(namespace, "unshare", "-m", "sh", "-c", script)
        assert "ready" in self.process.stdout.readline()

    @property
    def pid(self) -> str:
        return str(self.process.pid)

    def enter(self, *words: object) -> list[str]:
        return ["nsenter", "-t", self.pid, "-n", "-m", *map(str, words)]

    def run(self, *words: object) -> subprocess.CompletedProcess:
        return subprocess.run(
            self.enter(*words), capture_output=True, text=True, timeout=TIMEOUT, check=False
        )


class Watch:
    """`lorentz latency watch` or `serve` in the host's namespace."""

    def __init__(
        self,
        network: Network,
        *words: str,
        verb: str = "watch",
        targets: list[str] | None = None,
        harmless: str = "on",
    ) -> None:
        """`harmless` is an order that changes nothing at the beginning."""
        self.network = network
        self.harmless = harmless
        self.targets = targets or [network.inside]
        self.words = [verb, *self.targets, *words]

    def __enter__(self) -> Watch:
        env = {**lorentz.session.environment(), processes.TAG: self.network.tag}
        before = {target: self.watchers(target) for target in self.targets}
        # A pipe without a reader would block it.
        self.printed = tempfile.TemporaryFile("w+")
        self.process = subprocess.Popen(
            self.network.command(
                self.network.host, *lorentz.session.command(), "latency", *self.words
            ),
            stdout=self.printed,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            text=True,
            env=env,
        )
        self.network.started.append(self.process)
        # It is ready when it and all others take orders.
        deadline = time.monotonic() + TIMEOUT
        for target in self.targets:
            while self.watchers(target) <= before[target]:
                assert self.process.poll() is None, self.process.stderr.read()
                assert time.monotonic() < deadline, "not ready"
                time.sleep(0.05)
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=TIMEOUT)
        self.printed.close()

    def watchers(self, target: str) -> int:
        """Returns the number of watchers of `target`."""
        done = self.order(self.harmless, target)
        return len(json.loads(done.stdout)) if done.returncode == 0 else 0

    def order(self, verb: str, target: str = "") -> subprocess.CompletedProcess:
        """`lorentz latency on|off|reset`."""
        return self.network.run(
            self.network.host,
            *lorentz.session.command(),
            *("latency", verb, target or self.network.inside, "--json"),
            check=False,
        )

    def finish(self) -> str:
        """Ends it. Returns its output."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=TIMEOUT)
        assert (self.process.returncode, err) == (0, ""), err
        return self.output()

    def output(self) -> str:
        """Returns its output so far."""
        self.printed.seek(0)
        return self.printed.read()

    def stop(self) -> list[dict]:
        """Ends a watcher with `--json`. Returns its packets."""
        return [json.loads(line) for line in self.finish().splitlines()]


def matched(packets: list[dict], direction: str) -> list[dict]:
    """Returns the packets with a known latency."""
    return [p for p in packets if p["outcome"] == "matched" and p["direction"] == direction]


def misses(packets: list[dict]) -> list[dict]:
    """Returns the misses."""
    harmless = ("matched", "kernel", "again", "shared")
    return [packet for packet in packets if packet["outcome"] not in harmless]


def number(packet: dict) -> int:
    """Returns the number that probe has put into an ICMP or UDP packet."""
    return int(packet["payload"][:8], 16)


#: Least share of matched packets: the kernel of some virtual machines loses events
#: (docs/limits.md).
COVERED = 0.98


def check_pairs(packets: list[dict], exchanges: list[dict]) -> None:
    """Checks that `packets` has each exchange of probe's log in both directions, at its own times.

    The call's time lies between the program's clock reads around the call. The times at the outer
    device lie between those of the two calls. Another packet's times would not. A packet without a
    match is not matched wrongly either.
    """
    assert exchanges
    ways = {}
    for direction in ("egress", "ingress"):
        ways[direction] = {number(packet): packet for packet in matched(packets, direction)}
    covered = 0
    for exchange in exchanges:
        out = ways["egress"].get(exchange["number"])
        back = ways["ingress"].get(exchange["number"])
        if out and back:
            covered += 1
            check_times(out, back, exchange)
    assert covered >= COVERED * len(exchanges), f"{covered} of {len(exchanges)} matched"


def check_covered(packets: list[dict], count: int) -> None:
    """Checks that of `count` packets each way none is matched twice, and that a missing one counts
    as a miss."""
    for way in ("egress", "ingress"):
        found = len(matched(packets, way))
        assert COVERED * count <= found <= count, f"{way}: {found} of {count}"


def check_times(out: dict, back: dict, exchange: dict) -> None:
    """Whether both packets, by their times, may be those of the exchange."""
    assert exchange["sent_before"] <= out["call_ns"] <= exchange["sent_after"], (out, exchange)
    assert out["call_ns"] < out["outer_ns"] < back["outer_ns"] < back["call_ns"], (out, back)
    assert exchange["read_before"] <= back["call_ns"] <= exchange["read_after"], (back, exchange)
    assert out["latency_ns"] == out["outer_ns"] - out["call_ns"]
    assert back["latency_ns"] == back["call_ns"] - back["outer_ns"]
    for packet in (out, back):
        assert packet["device_ns"] is None or 0 <= packet["device_ns"] <= packet["latency_ns"]


def programs() -> Iterator[str]:
    """Returns the ids of all BPF programs of the machine."""
    for program in json.loads(
        subprocess.run(
            [needs.tool("bpftool"), "-j", "prog", "list"],
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        ).stdout
    ):
        yield f"{program['id']} {program.get('name', '')}"
