"""The tables of faces are complete: the kernel's system calls, clocks, files of /proc and /sys,
options of sockets, ioctls and attributes of netlink each have a row. Each test that a row names
exists, and each face that stays real is read by a program or says what it needs.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework.all_faces import ALL, READ_AS, compared_files
from framework.build import PROGRAMS, REPO
from framework.face_files import PROC, PROC_DEEPER, PROC_NET, PROC_PID, SYS, row_of
from framework.face_netlink import NETLINK
from framework.face_options import IOCTLS, SOCKET_OPTIONS
from framework.faces import CLOCKS, NONE, OTHERS, SYSCALLS, Limit, Refused, Row, SetOnce, Virtual
from framework.kernel_headers import (
    ROOT,
    ioctls_of_time,
    netlink_attributes_of_time,
    socket_options_of_time,
    speaks_of_time,
)

TABLES = [
    SYSCALLS,
    CLOCKS,
    PROC,
    PROC_DEEPER,
    PROC_PID,
    PROC_NET,
    SYS,
    IOCTLS,
    SOCKET_OPTIONS,
    NETLINK,
]
#: Folders of /proc that have a table, or a row, of their own.
APART = {"self", "thread-self", "net", "sys"}
MISSING = "add a row to tests/framework/faces.py, face_files.py, face_options.py or face_netlink.py"


def without(table: dict[str, Row], names: set[str]) -> list[str]:
    """The names that have no row."""
    return sorted(name for name in names if row_of(name, table) is None)


def files_below(folder: Path) -> Iterator[Path]:
    """The files below a folder, without links to other folders."""
    for place, _, names in os.walk(folder):
        yield from (Path(place) / name for name in names)


def test_each_system_call_has_a_row():
    known = set()
    header = ROOT / "x86_64-linux-gnu" / "asm" / "unistd_64.h"
    known.update(re.findall(r"#define __NR_(\w+) \d+", header.read_text()))
    # The libc crate of the workspace knows newer calls than the distribution's headers.
    cargo = Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo"))
    for table in cargo.glob("registry/src/*/linux-raw-sys-*/src/x86_64/general.rs"):
        known.update(re.findall(r"pub const __NR_(\w+): u32", table.read_text()))
    assert len(known) > 350
    assert not known - SYSCALLS.keys(), MISSING


def test_each_clock_has_a_row():
    text = (ROOT / "linux" / "time.h").read_text()
    assert set(re.findall(r"#define (CLOCK_\w+)\s+\d+", text)) == CLOCKS.keys()


@pytest.mark.parametrize(
    ("folder", "table"),
    [("/proc", PROC), ("/proc/self", PROC_PID), ("/proc/thread-self", PROC_PID)],
    ids=["proc", "PID", "TID"],
)
def test_each_file_of_proc_has_a_row(folder, table):
    there = {path.name for path in Path(folder).iterdir() if not path.name.isdigit()}
    assert not without(table, there), MISSING


def test_each_file_of_proc_net_has_a_row():
    folder = Path("/proc/self/net")
    there = {str(path.relative_to(folder)) for path in files_below(folder)}
    assert not without(PROC_NET, there), MISSING


def test_each_file_deeper_in_proc_has_a_row():
    """In all folders but those of processes, /proc/net and /proc/sys. Of the latter each file is
    in one row of the page, since all of them are settings."""
    folders = [
        path
        for path in Path("/proc").iterdir()
        if path.is_dir() and path.name not in APART and not path.name.isdigit()
    ]
    there = {
        re.sub(r"^irq/\d+/", "irq/N/", str(path.relative_to("/proc")))
        for folder in folders
        for path in files_below(folder)
    }
    assert "irq/N/spurious" in there
    assert not without(PROC_DEEPER, there), MISSING


def test_each_file_of_sys_that_speaks_of_time_has_a_row():
    there = {str(path) for path in files_below(Path("/sys")) if speaks_of_time(path.name)}
    assert len(there) > 100
    assert not without(SYS, there), MISSING


def test_each_socket_option_that_concerns_time_has_a_row():
    there = socket_options_of_time()
    assert len(there) > 50
    assert not without(SOCKET_OPTIONS, there), MISSING


def test_each_ioctl_that_concerns_time_has_a_row():
    there = ioctls_of_time()
    assert len(there) > 200
    by_name = {"PPGETTIME", "RTC_RD_TIME", "EVIOCSCLOCKID", "SIOCGSTAMPNS_NEW"}
    by_what_they_pass = {"VIDIOC_DQBUF", "SNDRV_PCM_IOCTL_STATUS", "BTRFS_IOC_GET_SUBVOL_INFO"}
    assert by_name | by_what_they_pass <= there
    assert not without(IOCTLS, there), MISSING


def test_each_attribute_of_netlink_that_concerns_time_has_a_row():
    there = netlink_attributes_of_time()
    assert len(there) > 200
    assert {"NDA_CACHEINFO", "NFTA_SET_ELEM_EXPIRATION", "TCA_MIRRED_TM"} <= there
    assert not without(NETLINK, there), MISSING


def test_each_face_that_stays_real_is_read_or_says_what_it_needs():
    """By the program that reads all faces, by the test of the row, or as a file."""
    sys.path.insert(0, str(PROGRAMS / "faces"))
    import all_faces as program

    read = {face[0] for face in program.FACES} | set(compared_files())
    rows = {name: row for name, row in ALL.items() if isinstance(row, Limit)}
    unread = {
        name
        for name, row in rows.items()
        if not (row.judge or row.needs or READ_AS.get(name, name) in read)
    }
    assert not unread, "write the read, or say in the row what it needs"


def test_no_row_is_of_a_kind_that_is_not_there():
    rows = [row for table in [*TABLES, OTHERS] for row in table.values()]
    assert all(row == NONE or isinstance(row, (Virtual, Limit, SetOnce, Refused)) for row in rows)


def test_each_test_that_judges_a_row_exists():
    """By the name that pytest gives it, with the values of its parameters."""
    rows = [row for table in [*TABLES, OTHERS] for row in table.values()]
    judges = {row.judge for row in rows if isinstance(row, (Virtual, Limit)) and row.judge}
    files = sorted({judge.split("::")[0] for judge in judges})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, *files],
        cwd=REPO / "tests",
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert sorted(judges - set(done.stdout.split("\n"))) == []
