"""Times that the kernel keeps for a descriptor or a process are the host's inside, at another date
and rate: options of sockets, timer slack, scheduling, automounts.

The program inside sets each number and reads it. The test reads the same number in real time: for a
descriptor by a duplicate of the program's (pidfd_getfd). The program reads once more afterwards,
since some numbers count down.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from dataclasses import dataclass

import pytest
from framework.build import PROGRAMS
from framework.running import Inside

sys.path.insert(0, str(PROGRAMS / "faces"))
from real_values import VALUES, Value  # noqa: E402 - it is no package

RATE = 10
DATE = "2038-01-19"
SYS_PIDFD_GETFD = 438
libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Reading:
    """A number as the program reads it, as the host does, and as the program does once more."""

    before: float
    host: float
    after: float


def of_host(value: Value, process: int, handle: int) -> float:
    if value.of_process:
        return value.read(handle)
    with os.fdopen(os.pidfd_open(process), "rb") as pidfd:
        fd = libc.syscall(SYS_PIDFD_GETFD, pidfd.fileno(), handle, 0)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    try:
        return value.read(fd)
    finally:
        os.close(fd)


@functools.cache
def measured() -> dict[str, Reading | str]:
    """The reading of each name, or the reason why there is none."""
    command = [sys.executable, PROGRAMS / "faces" / "real_values.py"]
    with Inside(*command, rate=str(RATE), at=DATE, stdin=True) as inside:
        process = inside.line(ev="ready")["process"]
        lines = {line["name"]: line.data for line in inside.lines(ev="before")}
        there = {name: line for name, line in lines.items() if "handle" in line}
        host = {
            name: of_host(VALUES[name], process, line["handle"]) for name, line in there.items()
        }
        inside.process.stdin.write(b"\n")
        inside.process.stdin.flush()
        inside.line(ev="all", number=0)
        after = {line["name"]: line["value"] for line in inside.lines(ev="after", number=0)}
    found = {name: Reading(there[name]["value"], host[name], after[name]) for name in there}
    return {**{name: line.get("reason") for name, line in lines.items()}, **found}


@pytest.mark.parametrize("name", VALUES)
def test_a_number_that_the_kernel_keeps_is_the_hosts(name):
    reading = measured()[name]
    if isinstance(reading, str):
        pytest.skip(f"{name}: cannot be read here: {reading}")
    least, most = sorted((reading.before, reading.after))
    assert reading.host > 0
    assert least <= reading.host <= most
    given = VALUES[name].given
    # The kernel rounds some, and others count down. The rate would be a factor of ten.
    assert not given or given / 2 < reading.host < given * 2
