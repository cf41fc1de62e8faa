"""Every face of time is virtual, refused, or named in docs/limits.md.

The test measures each virtual row at another date and rate, unless the row names another test that
does. It also measures each readable row of docs/limits.md, which must show the host's time; else
the page is no longer true. `test_face_tables.py` compares the rows with the kernel.
"""

from __future__ import annotations

import functools
import sys
import time
from datetime import datetime, timezone

import pytest
from framework.build import PROGRAMS, REPO
from framework.face_files import PROC, PROC_DEEPER, PROC_NET, PROC_PID, SYS
from framework.face_options import IOCTLS, SOCKET_OPTIONS
from framework.faces import CLOCKS, OTHERS, READ, SYSCALLS, Limit, Refused, SetOnce
from framework.oracle import HostNoise
from framework.running import Inside, Line

RATE = 10
NAP = 20
#: Virtual seconds that a wait of the program is to take.
LENGTH = 10
DAY = 86400
DATE = "2038-01-19"
ALL = {
    **{f"/proc/{name}": row for name, row in {**PROC, **PROC_DEEPER}.items()},
    **{f"/proc/PID/{name}": row for name, row in PROC_PID.items()},
    **{f"/proc/net/{name}": row for name, row in PROC_NET.items()},
    **SYS,
    **SYSCALLS,
    **CLOCKS,
    **SOCKET_OPTIONS,
    **IOCTLS,
    **OTHERS,
}
#: The program's name for each face that it reads by another.
READ_AS = {
    "/proc/uptime": "uptime",
    "/proc/stat": "cpu_columns",
    "/proc/sysvipc": "sysvipc_shm",
    "/proc/sysvipc/*": "sysvipc_msg",
    "/proc/timer_list": "timer_list",
    "/proc/keys": "keyctl",
    "/proc/kmsg": "syslog",
    "/proc/PID/stat": "PROC/stat",
    "/proc/PID/schedstat": "schedstat",
    "/proc/PID/sched": "sched",
    "/proc/PID/fdinfo": "fdinfo",
    "/proc/net/tcp": "TCP_KEEPIDLE",
    "/sys/fs/cgroup/*": "cgroup_cpu_stat",
    "/sys/kernel/tracing/*": "tracefs",
    "*/power/runtime_*_time": "runtime_active_time",
    "*/rtc/rtc*/*": "since_epoch",
    "PTP_*": "PTP_SYS_OFFSET",
    "RTC_*": "RTC_RD_TIME",
    "SIOCGSTAMP*": "SIOCGSTAMP",
    "PACKET_TIMESTAMP": "PACKET_MMAP",
    "add_key": "keyctl",
    "getrlimit": "prlimit64",
    "setrlimit": "prlimit64",
    "ioctl": "SIOCGSTAMP",
    "preadv2": "preadv",
    "open": "uptime",
    "openat": "cpu_columns",
}


@functools.cache
def measured() -> tuple[list[Line], float]:
    """The program's readings inside, at another date and rate, and the allowed lateness of a wait,
    real seconds."""
    command = [sys.executable, PROGRAMS / "faces" / "all_faces.py", str(NAP)]
    with HostNoise() as noise, Inside(*command, rate=str(RATE), at=DATE) as inside:
        inside.succeed(timeout=90)
        return inside.lines(ev="face"), noise.slack


@functools.cache
def limits() -> str:
    return " ".join((REPO / "docs" / "limits.md").read_text().split())


def names(kind: object) -> list[str]:
    return [name for name, row in ALL.items() if row == kind or type(row) is kind]


def readings(name: str) -> list[Line]:
    return [line for line in measured()[0] if line["name"] == READ_AS.get(name, name)]


def shows(line: Line) -> str:
    """Returns the clock that a reading is from: `virtual`, `host`, or `neither` if it stands."""
    if line["tells"] == "date":
        inside = datetime.fromisoformat(DATE).replace(tzinfo=timezone.utc).timestamp()
        whose = {"virtual": abs(line["value"] - inside), "host": abs(line["value"] - time.time())}
        assert min(whose.values()) < DAY, line.data
        return min(whose, key=whose.get)
    if line["tells"] == "standing":
        assert line["passed"] == 0, line.data
        return "neither"
    late = 0.0
    if line["tells"] in ("ratio", "wait"):
        least = most = line["value"]
    else:
        least, most = line["passed"] / line["most"], line["passed"] / line["least"]
    if line["tells"] == "wait":
        late = measured()[1] * RATE / LENGTH
    # Some of the host's figures are in whole seconds; control groups include the launcher's CPU
    # time.
    virtual = most > 0.8 and least < 1.25 + late
    host = most * RATE > 0.5 and least * RATE < 2.5
    assert virtual != host, line.data
    return "virtual" if virtual else "host"


@pytest.mark.parametrize("name", names(READ))
def test_a_virtual_face_shows_virtual_time(name):
    lines = readings(name)
    assert lines, f"{name}: nobody reads it"
    found = [line for line in lines if "error" not in line.data]
    if not found and name.endswith("_ALARM"):
        pytest.skip(f"{name}: {lines[0]['reason']} (a machine without a real-time clock)")
    assert found, lines[0].data
    assert [shows(line) for line in found] == ["virtual"] * len(found)


@pytest.mark.parametrize("name", names(Refused))
def test_a_refused_face_is_refused(name):
    assert [line["error"] for line in readings(name)] == [ALL[name].error]


@pytest.mark.parametrize("name", names(Limit))
def test_a_face_that_stays_real_stands_in_the_page_of_limits(name):
    words = ALL[name].words
    assert words in limits(), f"{name}: '{words}' does not stand in docs/limits.md"
    for line in readings(name):
        if "error" in line.data:
            pytest.skip(f"{name}: cannot be read here: {line['reason']}")
        assert shows(line) != "virtual", f"{name} is virtual: take it out of docs/limits.md"


@pytest.mark.parametrize("name", names(SetOnce))
def test_a_timeout_that_changes_do_not_reach_is_virtual_as_long_as_there_are_none(name):
    assert ALL[name].words in limits()
    assert [shows(line) for line in readings(name)] == ["virtual"]


def test_each_reading_has_a_row():
    rows = ALL.keys() | set(READ_AS.values())
    assert {line["name"] for line in measured()[0]} <= rows
