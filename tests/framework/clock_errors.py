"""Clocks that err: calls of adjtimex inside, and the error that `lorentz clock` tells."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from framework import build, lorentz
from framework.running import Inside

#: Modes and status bits of adjtimex(2).
OFFSET, FREQUENCY, MAXERROR, STATUS, SETOFFSET, NANO, TICK = 1, 2, 4, 0x10, 0x100, 0x2000, 0x4000
ADJTIME, ADJTIME_READ = 0x8001, 0xA001
PLL, INS, UNSYNC = 1, 0x10, 0x40
#: The results of adjtimex(2).
OK, INSERT, DELETE, OOP, WAIT, ERROR = range(6)
PPM = 1 << 16

_numbers = itertools.count(1)


class Adjuster(Inside):
    """A container with a program that calls adjtimex on order."""

    def __init__(self, **options: object) -> None:
        super().__init__(build.c("clock_errors/adjust"), stdin=True, **options)

    def __enter__(self) -> Adjuster:
        super().__enter__()
        self.line(ev="ready")
        return self

    def adjust(self, modes: int = 0, **fields: int) -> dict:
        """Calls adjtimex with these fields; the others are 0. Returns the answer."""
        names = ("offset", "freq", "maxerror", "esterror", "status", "constant", "secs", "fraction")
        words = [modes, *(fields.get(name, 0) for name in names), fields.get("tick", 10_000)]
        before = len(self.lines(ev="answer"))
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()
        return self.wait_for(before + 1, ev="answer")[before]

    def error(self) -> dict:
        """Returns what `lorentz clock show` says."""
        return error(self.name)

    def clock(self, verb: str, *words: str) -> str:
        """Calls `lorentz clock VERB NAME WORDS`, which must succeed."""
        return lorentz.ok("clock", verb, self.name, *words)


def error(name: str) -> dict:
    """Returns what `lorentz clock show` says of a container."""
    return lorentz.json_of("clock", "show", name)


def announced(seconds: float) -> str:
    """A time of the host's wall clock so far ahead, as `--at` reads it."""
    at = datetime.now(timezone.utc) + timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def pair_names() -> tuple[str, str]:
    """Two names for containers that are compared."""
    number = next(_numbers)
    return f"true-{number}", f"errs-{number}"


# ----------------------------------------------------------------------------------- NTP daemons

FOLDER = build.REPO / "build/ntp-daemons"
SERVER, CLIENT = "10.77.0.1", "10.77.0.2"
#: Before 2030: the first day that openntpd 6.2 takes for none.
START = "2027-01-01T00:00:00Z"


def daemons() -> Path:
    """The directory of Debian's daemons, which `scripts/ntp-daemons` unpacks."""
    if not (FOLDER / "complete").exists():
        pytest.skip("no NTP daemons: scripts/ntp-daemons could not fetch them")
    return FOLDER


class TimeServer:
    """A container with a perfect clock and an NTP server, and a place for one that errs: network
    namespaces of their own, joined by a cable. Both clocks begin at one instant."""

    def __init__(self, rate: str) -> None:
        self.rate = rate
        number = next(_numbers)
        self.names = [f"lt-ntp-{os.getpid()}-{number}{end}" for end in "sc"]
        self.server = self.client = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> TimeServer:
        for name in self.names:
            self._stack.callback(_ip, "netns", "del", name)
            _ip("netns", "add", name)
        _ip(
            "link",
            "add",
            "eth0",
            "netns",
            self.names[0],
            "type",
            "veth",
            "peer",
            "eth0",
            "netns",
            self.names[1],
        )
        for name, address in zip(self.names, (SERVER, CLIENT), strict=True):
            _ip("-n", name, "addr", "add", f"{address}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                _ip("-n", name, "link", "set", device, "up")
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def serve(self, *command: str | Path) -> None:
        """Starts the server, whose clock is the truth."""
        self.server = self._start(0, command)

    def err(self, error: str, *command: str | Path) -> Inside:
        """Starts the client, whose clock errs, and lets both clocks go on."""
        self.client = self._start(1, command, "--clock-error", error)
        at = announced(1)
        for one in (self.server, self.client):
            one.wait_until_shown()
            lorentz.ok("unfreeze", one.name, "--at", at)
        return self.client

    def _start(self, place: int, command: Sequence[str | Path], *flags: str) -> Inside:
        options = ("--frozen", "--at", START, *flags)
        line = ("ip", "netns", "exec", self.names[place], *command)
        return self._stack.enter_context(Inside(*line, rate=self.rate, options=options))


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, timeout=20)
