"""File times: what is written inside is new there, what is older keeps its time, times set by hand
read back as they were set."""

from __future__ import annotations

import os
import sys
import time

import pytest
from framework import build
from framework.running import Inside

HOUR = 3600.0
DATES = [None, "2038-01-19", "1999-12-31T23:00:00Z"]


def files(folder, options=(), at=None, rate="1", nap=0.0):
    """Returns the output of programs/faces/files, which works in `folder`, where `old` is an hour
    old."""
    old = folder / "old"
    old.write_text("x")
    changed = time.time() - HOUR
    os.utime(old, (changed, changed))
    program = [build.c("faces/files"), folder, str(round(nap * 1e9))]
    with Inside(*program, rate=rate, at=at, options=options) as inside:
        inside.succeed()
        return inside


@pytest.mark.parametrize("at", [None, "2038-01-19"])
def test_a_file_of_before_the_start_shows_the_hosts_time(tmp_path, at):
    """By every call of the stat family."""
    inside = files(tmp_path, at=at)
    calls = inside.lines(ev="times")
    assert len(calls) == 10
    for line in calls:
        assert line["mtime"] == (tmp_path / "old").stat().st_mtime_ns, line["call"]


def test_a_young_file_shows_half_its_age_where_the_hosts_date_is_to_come(tmp_path):
    """By every call of the stat family."""
    inside = files(tmp_path, at="1999-12-31T23:00:00Z")
    calls = inside.lines(ev="times")
    assert len(calls) == 10
    for line in calls:
        assert line["age"] == pytest.approx(HOUR / 2, abs=5), line["call"]
        assert line["mtime"] == calls[0]["mtime"], line["call"]


def check_is_new(line):
    """Checks that a file's times are those at which it was changed, to a tick of the kernel: not
    earlier than the clock of its ticks just before."""
    for which in ("mtime", "ctime"):
        assert 0 <= line[which] <= line["after"], line.data


@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
@pytest.mark.parametrize("at", DATES)
def test_what_changes_inside_is_new(tmp_path, at, rate):
    """Created, written, touched: the file's time is the wall clock's, to a tick of the kernel."""
    fresh = files(tmp_path, at=at, rate=rate).lines(ev="fresh")
    assert len(fresh) == 8
    for line in fresh:
        check_is_new(line)


@pytest.mark.parametrize(("rate", "nap"), [("10", 5.0), ("1/10", 0.1)])
def test_what_was_changed_inside_ages_at_the_rate(tmp_path, rate, nap):
    aged = files(tmp_path, rate=rate, nap=nap).line(ev="fresh", how="aged")
    check_is_new(aged)
    assert aged["now"] >= aged["after"] + nap


@pytest.mark.parametrize("at", DATES)
def test_times_set_by_hand_read_back_the_same(tmp_path, at):
    """At rate 1, by every call that sets them, to the nanosecond where the call knows them."""
    inside = files(tmp_path, at=at)
    explicit = inside.lines(ev="explicit")
    assert len(explicit) == 6
    wrong = [line.data for line in explicit if not line["same"]]
    assert not wrong


SET_AND_READ = """
import itertools, json, os, sys, time

SECOND = 10**9
now = time.time_ns()
fd = os.open("file", os.O_RDWR | os.O_CREAT)
folder = os.open(".", os.O_PATH)
setters = {
    "path": lambda times: os.utime("file", ns=times),
    "descriptor": lambda times: os.utime(fd, ns=times),
    "directory": lambda times: os.utime("file", ns=times, dir_fd=folder),
    "link": lambda times: os.utime("file", ns=times, follow_symlinks=False),
}
readers = {
    "path": lambda: os.stat("file"),
    "descriptor": lambda: os.stat(fd),
    "directory": lambda: os.stat("file", dir_fd=folder),
    "link": lambda: os.lstat("file"),
}
ages = [0, 1, 3, 3_600, 86_400, 10 * 86_400, 400 * 86_400, 5_000 * 86_400, -3_600]
for age, (how, setter) in itertools.product(ages, setters.items()):
    modified = now - age * SECOND + 123
    setter((modified - 5, modified))
    for by, reader in readers.items():
        found = reader()
        if (found.st_atime_ns, found.st_mtime_ns) != (modified - 5, modified):
            off = found.st_mtime_ns - modified
            print(json.dumps({"age": age, "set": how, "read": by, "off": off}))
"""


def needs_attributes(folder):
    """Skips the test where files can have no extended attributes."""
    try:
        os.setxattr(folder, "user.lorentz.test", b"")
    except OSError as error:
        pytest.skip(f"{folder}: no extended attributes: {error.strerror}")


@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
@pytest.mark.parametrize("at", DATES)
def test_a_time_that_no_timestamp_shows_reads_back_the_same(tmp_path, at, rate):
    """By every way to name the file."""
    needs_attributes(tmp_path)
    program = [sys.executable, "-c", SET_AND_READ]
    with Inside(*program, rate=rate, at=at, cwd=tmp_path) as inside:
        inside.succeed()
    assert inside.stdout == ""


def test_such_a_time_ends_with_the_next_change_and_goes_with_a_copy(tmp_path):
    """Two hours ago inside lies between the host's date and the date inside."""
    needs_attributes(tmp_path)
    script = """
        touch -d '-2 hours' file && cp -p file copy && cp file plain && mv file moved
        find . -type f -mmin +119 -mmin -121 | sort
        touch -a moved && find moved -mmin +119
        echo x >moved && find moved -mmin -1
        touch copy && find copy -mmin -1
    """
    with Inside("/bin/sh", "-c", script, at="2038-01-19", cwd=tmp_path) as inside:
        inside.succeed()
    assert inside.stdout.split() == ["./copy", "./moved", "moved", "moved", "copy"]


KILLED_FOR_ATTRIBUTES = """
import ctypes, os, struct, subprocess

subprocess.run(["touch", "-d", "-2 hours", "file"], check=True)
# Load the number of the call; kill for getxattr, lgetxattr, fgetxattr; allow the rest.
code = [(0x20, 0, 0, 0), (0x35, 0, 2, 191), (0x25, 1, 0, 193), (0x06, 0, 0, 0x80000000)]
code.append((0x06, 0, 0, 0x7FFF0000))
raw = b"".join(struct.pack("HBBI", *one) for one in code)
buffer = ctypes.create_string_buffer(raw)
program = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(buffer))
libc = ctypes.CDLL(None)
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) == 0
os.stat("file")
os.utime("file", (1, 1))
print("alive")
"""


def test_a_seccomp_filter_of_the_programs_own_meets_no_call_that_it_did_not_make(tmp_path):
    needs_attributes(tmp_path)
    program = [sys.executable, "-c", KILLED_FOR_ATTRIBUTES]
    with Inside(*program, at="2038-01-19", cwd=tmp_path) as inside:
        inside.succeed()
    assert inside.stdout.split() == ["alive"]


def test_programs_see_which_file_is_newer(tmp_path):
    """find and test see that a file was made before the start."""
    old = tmp_path / "old"
    old.write_text("x")
    hour_ago = time.time() - HOUR
    os.utime(old, (hour_ago, hour_ago))
    script = """
        touch new
        test new -nt old && echo newer
        find . -name old -mtime +365
        find . -name new -mmin -1
    """
    with Inside("/bin/sh", "-c", script, rate="1", at="2038-01-19", cwd=tmp_path) as inside:
        inside.succeed()
    assert inside.stdout.split() == ["newer", "./old", "./new"]


def test_file_times_may_be_left_as_the_hosts(tmp_path):
    """--file-times real: the host's times, whatever the date inside."""
    inside = files(tmp_path, options=["--file-times", "real"], at="2038-01-19")
    for line in inside.lines(ev="times"):
        assert line["mtime"] / 1e9 == pytest.approx(time.time() - HOUR, abs=60), line["call"]
    new = (tmp_path / "new").stat()
    assert new.st_mtime == pytest.approx(time.time(), abs=60)
