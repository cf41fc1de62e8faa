"""Clocks that several hosts share: etcd, and "hosts" of different CLOCK_MONOTONIC on this machine.

A host is a time namespace and a state directory of its own. All of them have the same hardware
clock, so the true difference of two virtual clocks can be computed to the nanosecond.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from pathlib import Path

from framework import lorentz, needs
from framework.build import REPO
from framework.running import Running

#: etcd as scripts/etcd fetches it.
FETCHED = REPO / "build" / "etcd" / "unpacked" / "usr" / "bin" / "etcd"
#: The second host's CLOCK_MONOTONIC is so far ahead, s.
AHEAD = 100_000
#: Limit of a wait for an event, s.
TIMEOUT = 20


def etcd_program() -> str:
    """The path of etcd; skips where there is none."""
    found = shutil.which("etcd") or (str(FETCHED) if FETCHED.exists() else None)
    return found or needs.missing("etcd is not here (scripts/setup test fetches it)")


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


class Store(ABC):
    """A store of records, for agents and commands alike."""

    @property
    @abstractmethod
    def options(self) -> tuple[str, ...]:
        """The options of `lorentz cluster` that name the store."""

    @property
    def environment(self) -> dict[str, str]:
        """Variables of a program that uses the store."""
        return {}

    def call(self, *words: str) -> subprocess.CompletedProcess:
        """Calls `lorentz cluster WORDS`."""
        env = {**lorentz.session.environment(), **self.environment}
        return lorentz.call("cluster", *words, *self.options, env=env)

    def ok(self, *words: str) -> str:
        done = self.call(*words)
        assert done.returncode == 0, f"lorentz cluster {words}: {done.returncode}: {done.stderr}"
        return done.stdout

    def change(self, *words: str) -> dict:
        """Changes a clock. Returns the change as JSON."""
        return json.loads(self.ok(*words, "--json"))

    def status(self, name: str) -> dict:
        return json.loads(self.ok("status", name, "--json"))

    def hosts(self, name: str) -> dict[str, dict]:
        return {host["host"]: host for host in self.status(name)["hosts"]}

    def wait_for_host(self, name: str, host: str, **wanted: object) -> dict:
        """Waits until the report of a host says all that is wanted. Returns the report."""
        deadline = time.monotonic() + TIMEOUT
        while True:
            report = self.hosts(name).get(host, {})
            if report and all(report[key] == value for key, value in wanted.items()):
                return report
            assert time.monotonic() < deadline, f"{host}: {wanted}: {report}"
            time.sleep(0.05)


class Etcd(Store, Running):
    """An etcd of one member. It may be ended and begun again with the same data."""

    def __init__(
        self,
        folder: Path,
        ports: tuple[int, int] | None = None,
        certificates: dict[str, str] | None = None,
    ) -> None:
        self.certificates = certificates or {}
        scheme = "https" if certificates else "http"
        client, peer = ports or tuple(free_ports(2))
        self.ports = (client, peer)
        self.address = f"127.0.0.1:{client}"
        self.folder = folder
        command = [
            etcd_program(),
            *("--data-dir", str(folder / "etcd")),
            *("--log-level", "error"),
            *("--listen-client-urls", f"{scheme}://{self.address}"),
            *("--advertise-client-urls", f"{scheme}://{self.address}"),
            *("--listen-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-advertise-peer-urls", f"http://127.0.0.1:{peer}"),
            *("--initial-cluster", f"default=http://127.0.0.1:{peer}"),
        ]
        if certificates:
            command += ["--client-cert-auth", "--trusted-ca-file", certificates["ETCDCTL_CACERT"]]
            command += ["--cert-file", certificates["ETCDCTL_CERT"]]
            command += ["--key-file", certificates["ETCDCTL_KEY"]]
        super().__init__(command, label="etcd")

    def __enter__(self) -> Etcd:
        super().__enter__()
        deadline = time.monotonic() + TIMEOUT
        while self.call("ls").returncode != 0:
            assert time.monotonic() < deadline, f"etcd does not answer: {self.stderr}"
            time.sleep(0.1)
        return self

    def again(self) -> Etcd:
        """The same store, for a process of its own after the end of this one."""
        return Etcd(self.folder, self.ports, self.certificates or None)

    @property
    def environment(self) -> dict[str, str]:
        return self.certificates

    @property
    def options(self) -> tuple[str, ...]:
        return ("--etcd", self.address)


class Host:
    """A host whose CLOCK_MONOTONIC is `ahead` seconds ahead of this machine's. Its state directory
    is its own, or `state`."""

    def __init__(self, folder: Path, name: str, ahead: int, state: Path | None = None) -> None:
        self.name = name
        self.ahead_ns = ahead * 10**9
        self.state = state or folder / f"state-{name}"
        self.state.mkdir(exist_ok=True)
        offsets = ("--monotonic", str(ahead), "--boottime", str(ahead))
        self.enter = ["unshare", "--time", *offsets, "--fork", "--kill-child"] if ahead else []

    def environment(self) -> dict[str, str]:
        return {**lorentz.session.environment(), "LORENTZ_STATE_DIR": str(self.state)}

    def command(self, *words: str) -> list[str]:
        return [*self.enter, *lorentz.session.command(), *words]

    def run(self, *words: str) -> subprocess.CompletedProcess:
        """Runs `lorentz WORDS` on this host."""
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
            stdin=subprocess.DEVNULL,
            env=self.environment(),
        )

    def ok(self, *words: str) -> str:
        done = self.run(*words)
        assert done.returncode == 0, f"{self.name}: {words}: {done.stderr}"
        return done.stdout

    def agent(self, store: Store, *options: str) -> Agent:
        return Agent(self, store, options)

    def program(self, clock: str, *words: str) -> Running:
        """A program on a cluster clock, as a context."""
        command = self.command("run", "--clock", f"cluster/{clock}", "--", *words)
        return Running(command, env=self.environment(), label=f"{self.name}: {words[0]}")

    def clock(self, name: str) -> dict:
        return json.loads(self.ok("time", f"cluster.{name}", "--json"))

    def point(self, name: str) -> tuple[int, int]:
        """One look: this machine's CLOCK_MONOTONIC and virtual time, ns."""
        shown = self.clock(name)
        return shown["host"]["monotonic_ns"] - self.ahead_ns, shown["monotonic_ns"]

    def left(self) -> list[str]:
        """The containers in its state directory."""
        return lorentz.left(self.state)


class Agent(Running):
    """`lorentz cluster serve` of a host, from its first words on."""

    def __init__(self, host: Host, store: Store, options: tuple[str, ...]) -> None:
        self.host = host
        words = ("cluster", "serve", "--host", host.name, *store.options, *options)
        env = {**host.environment(), **store.environment}
        super().__init__(host.command(*words), env=env, label=f"agent {host.name}")

    def __enter__(self) -> Agent:
        super().__enter__()
        self.wait_for_text("keeps this host's clocks")
        return self

    def wait_for_text(self, text: str) -> None:
        """Waits for a line of the agent's output that has this text."""
        deadline = time.monotonic() + TIMEOUT
        while text not in self.stdout and text not in self.stderr:
            assert time.monotonic() < deadline, f"{self.label}: {text!r}: {self.stderr}"
            time.sleep(0.02)

    def signal(self, number: int) -> None:
        """Sends a signal to the agent's own process, which `unshare` may have started."""
        started = self.process.pid
        children = Path(f"/proc/{started}/task/{started}/children").read_text().split()
        os.kill(int(children[0]) if self.host.enter else started, number)

    def finish_by(self, number: int) -> int:
        self.signal(number)
        return self.finish()


def difference(one: Host, other: Host, name: str, rate: float) -> int:
    """By how much the clock of `other` is ahead of that of `one`, ns, at one moment. The clock has
    had this rate since the first look."""
    (real, virtual), (other_real, other_virtual) = one.point(name), other.point(name)
    return other_virtual - virtual - round(rate * (other_real - real))
