"""Every face of time is virtual, refused, or named in docs/limits.md.

The test compares the tables of framework/faces.py with the kernel's system calls, clocks and files
of /proc: they must be complete. It measures each virtual row at another date and rate. It also
measures each readable row of docs/limits.md, which must show the host's time; else the page is no
longer true.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

import pytest
from framework.build import PROGRAMS, REPO
from framework.faces import (
    CLOCKS,
    NONE,
    OTHERS,
    PROC,
    PROC_NET,
    PROC_PID,
    SYSCALLS,
    VIRTUAL,
    Limit,
    Refused,
)
from framework.running import Inside, Line

RATE = 10
NAP = 20
DAY = 86400
DATE = "2038-01-19"
HEADERS = Path("/usr/include")
ALL = {
    **{f"/proc/{name}": row for name, row in PROC.items()},
    **{f"/proc/PID/{name}": row for name, row in PROC_PID.items()},
    **{f"/proc/net/{name}": row for name, row in PROC_NET.items()},
    **SYSCALLS,
    **CLOCKS,
    **OTHERS,
}
#: The program's name for each file that it reads.
READ_AS = {
    "/proc/uptime": "uptime",
    "/proc/stat": "cpu_columns",
    "/proc/sysvipc": "sysvipc_shm",
    "/proc/timer_list": "timer_list",
    "/proc/PID/stat": "PROC/stat",
    "/proc/PID/schedstat": "schedstat",
    "/proc/PID/sched": "sched",
    "/proc/PID/fdinfo": "fdinfo",
    "ioctl": "SIOCGSTAMP",
}


@functools.cache
def measured() -> list[Line]:
    """The program's readings inside, at another date and rate."""
    command = [sys.executable, PROGRAMS / "faces" / "all_faces.py", str(NAP)]
    with Inside(*command, rate=str(RATE), at=DATE) as inside:
        inside.succeed(timeout=60)
        return inside.lines(ev="face")


@functools.cache
def limits() -> str:
    return " ".join((REPO / "docs" / "limits.md").read_text().split())


@functools.cache
def sources() -> str:
    """The source text of all test programs."""
    return "".join(
        path.read_text(errors="replace")
        for path in PROGRAMS.rglob("*")
        if path.suffix in {".c", ".py"} and path.name != "all_faces.py"
    )


def names(kind: object) -> list[str]:
    return [name for name, row in ALL.items() if row == kind or type(row) is kind]


def readings(name: str) -> list[Line]:
    return [line for line in measured() if line["name"] == READ_AS.get(name, name)]


def shows(line: Line) -> str:
    """Returns the clock that a reading is from: `virtual` or `host`."""
    if line["tells"] == "date":
        inside = datetime.fromisoformat(DATE).replace(tzinfo=timezone.utc).timestamp()
        whose = {"virtual": abs(line["value"] - inside), "host": abs(line["value"] - time.time())}
        assert min(whose.values()) < DAY, line.data
        return min(whose, key=whose.get)
    if line["tells"] == "ratio":
        ratio = line["value"]
    else:
        ratio = line["passed"] / (line["of_cpu"] if line["tells"] == "cpu" else line["of"])
    # Some of the host's figures are in whole seconds; control groups include the launcher's CPU
    # time.
    assert 0.8 < ratio < 1.25 or 0.5 < ratio * RATE < 2.5, line.data
    return "virtual" if ratio > 0.5 else "host"


@pytest.mark.parametrize("name", names(VIRTUAL))
def test_a_virtual_face_shows_virtual_time(name):
    lines = readings(name)
    if not lines:
        # Other tests judge waits and calls that set time, by programs that make them.
        assert re.search(rf"\b(SYS_)?{re.escape(name)}\b", sources()), f"{name}: nobody measures it"
        return
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
        assert shows(line) == "host", f"{name} is virtual: take it out of docs/limits.md"


def test_each_system_call_has_a_row():
    known = set()
    header = HEADERS / "x86_64-linux-gnu" / "asm" / "unistd_64.h"
    known.update(re.findall(r"#define __NR_(\w+) \d+", header.read_text()))
    # The libc crate of the workspace knows newer calls than the distribution's headers.
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    for table in cargo.glob("registry/src/*/linux-raw-sys-*/src/x86_64/general.rs"):
        known.update(re.findall(r"pub const __NR_(\w+): u32", table.read_text()))
    assert len(known) > 350
    assert not known - SYSCALLS.keys(), "add a row to tests/framework/faces.py"


def test_each_clock_has_a_row():
    text = (HEADERS / "linux" / "time.h").read_text()
    assert set(re.findall(r"#define (CLOCK_\w+)\s+\d+", text)) == CLOCKS.keys()


@pytest.mark.parametrize(
    ("folder", "table"),
    [("/proc", PROC), ("/proc/self", PROC_PID), ("/proc/self/net", PROC_NET)],
    ids=["proc", "PID", "net"],
)
def test_each_file_of_proc_has_a_row(folder, table):
    there = {path.name for path in Path(folder).iterdir() if not path.name.isdigit()}
    assert not there - table.keys(), "add a row to tests/framework/faces.py"


def test_each_reading_has_a_row():
    rows = ALL.keys() | set(READ_AS.values())
    assert {line["name"] for line in measured()} <= rows


def test_no_row_names_a_kind_that_is_not_there():
    assert all(row in (VIRTUAL, NONE) or isinstance(row, (Limit, Refused)) for row in ALL.values())
