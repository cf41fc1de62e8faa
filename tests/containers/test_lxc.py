"""Containers of LXC: attached by their names, entered by `lxc-attach`, and started inside virtual
time."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework import lorentz, needs
from framework.containers import rootfs, wait_for_watch
from framework.linked import environment
from framework.running import Inside

#: As in test_newcomers.py.
pytestmark = pytest.mark.alone

AT = "2038-01-19"
TIMEOUT = 30


class Lxc:
    """A container of LXC in a directory of its own, with busybox in it."""

    def __init__(self, folder: Path) -> None:
        self.name = f"lxc-{os.getpid()}"
        self.folder = folder
        root = folder / self.name / "rootfs"
        shutil.copytree(rootfs(), root, symlinks=True)
        (folder / self.name / "config").write_text(
            f"lxc.uts.name = {self.name}\nlxc.rootfs.path = dir:{root}\nlxc.net.0.type = empty\n"
            "lxc.mount.auto = proc:mixed sys:ro\nlxc.tty.max = 0\nlxc.pty.max = 1\n"
        )

    def words(self, tool: str, *words: str) -> list[str]:
        return [needs.tool(f"lxc-{tool}"), "-P", str(self.folder), "-n", self.name, *words]

    def call(self, tool: str, *words: str) -> str:
        done = subprocess.run(
            self.words(tool, *words), capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
        assert done.returncode == 0, (tool, words, done.stdout, done.stderr)
        return done.stdout

    def first(self) -> int:
        return int(self.call("info", "--pid", "--no-humanize"))

    @contextlib.contextmanager
    def running(self, *words: str) -> Iterator[Lxc]:
        self.call("start", "--", *words)
        try:
            yield self
        finally:
            self.call("stop", "--kill")


@pytest.fixture
def lxc(tmp_path) -> Lxc:
    needs.feature("newcomers")
    return Lxc(tmp_path)


def test_a_container_is_attached_by_its_name_and_lxc_attach_enters_its_clock(lxc):
    with lxc.running("sh", "-c", "sleep 1000 & sleep 1000000"):
        name = f"lxc:{lxc.folder}/{lxc.name}"
        told = lorentz.json_of("attach", name, "--at", AT, "--rate", "100")
        assert told["name"] == lxc.name
        assert len(lorentz.shown(lxc.name)["pids"]) == 2
        wait_for_watch(lxc.name)
        assert lxc.call("attach", "--", "/bin/date", "+%Y") == "2038\n"
        # A sleep of a minute lasts less than a second.
        assert lxc.call("attach", "--", "/bin/sh", "-c", "sleep 60; date +%Y") == "2038\n"
        lorentz.ok("step", lxc.name, "--by", "366d")
        assert lxc.call("attach", "--", "/bin/date", "+%Y") == "2039\n"
    lorentz.wait_until_gone(lxc.name)


def test_timekeepers_utilities_take_it_by_its_process(lxc):
    """`timekeeper-dilate -p`, as TimeKeeper's users dilate a container of LXC."""
    with lxc.running("sleep", "1000000"):
        assert timekeeper("dilate", "-r", "-p", str(lxc.first()), "10").returncode == 0
        assert lorentz.json_of("time", str(lxc.first()))["tdf"] == "10"


def timekeeper(*words: str) -> subprocess.CompletedProcess:
    program = lorentz.session.binary.with_name("timekeeper")
    return subprocess.run(
        [program, *words],
        env=environment(), capture_output=True, text=True, timeout=TIMEOUT, check=False,
    )  # fmt: skip


def test_timekeepers_utilities_take_it_by_its_name(lxc):
    """`-n NAME`: the whole container, and who enters it later; also in an experiment."""
    with lxc.running("sleep", "1000000"):
        name = f"{lxc.folder}/{lxc.name}"
        assert abs(float(timekeeper("gettime", "-n", name).stdout) - time.time()) < 60
        assert lorentz.shown(lxc.name) is None, "a look attaches nothing"
        for tdf in ("10", "4"):
            done = timekeeper("dilate", "-n", name, tdf)
            assert done.returncode == 0, done.stderr
            assert lorentz.json_of("time", lxc.name)["tdf"] == tdf
        wait_for_watch(lxc.name)
        lorentz.ok("step", lxc.name, "--by", "4000d")
        assert int(lxc.call("attach", "--", "/bin/date", "+%s")) > time.time() + 3999 * 86400
        for words in (
            ("addToExperiment", "-t", "1", "-n", name),
            ("synchronizeAndFreeze",),
            ("setInterval", "-n", name, "5000", "1"),
            ("progress", "-t", "1"),
        ):
            done = timekeeper(*words)
            assert done.returncode == 0, done.stderr
        before = lorentz.json_of("time", lxc.name)["monotonic_ns"]
        assert timekeeper("progress", "-t", "1").returncode == 0
        assert lorentz.json_of("time", lxc.name)["monotonic_ns"] - before == 5_000_000
        assert timekeeper("stopExperiment").returncode == 0


def test_getpidfromname_knows_containers_of_lxc(lxc):
    library = ctypes.CDLL(str(lorentz.session.binary.with_name("libtimekeeper.so")))
    with lxc.running("sleep", "1000000"):
        assert library.getpidfromname(f"{lxc.folder}/{lxc.name}".encode()) == lxc.first()


def test_a_name_that_nobody_knows_is_one_line(lxc):
    for words in (("dilate", "-n", lxc.name, "2"), ("addToExperiment", "-n", lxc.name)):
        done = timekeeper(*words)
        assert done.returncode == 2, done
        assert lxc.name in done.stderr and done.stderr.count("\n") == 1


def test_lxc_starts_containers_inside_virtual_time(lxc):
    """lxc-execute, which starts a container, and its programs are on the clock like any other."""
    script = "date +%Y; sleep 100; date +%Y"
    with Inside(*lxc.words("execute", "--", "sh", "-c", script), at=AT, rate="100") as inside:
        inside.succeed(timeout=TIMEOUT)
        assert inside.stdout.split() == ["2038", "2038"]


def test_a_container_that_does_not_run_is_told(lxc):
    done = lorentz.call("attach", f"lxc:{lxc.folder}/{lxc.name}", "--rate", "2")
    assert done.returncode == 2
    assert done.stderr.startswith(f"lorentz: lxc:{lxc.folder}/{lxc.name}: ")
    assert len(done.stderr.splitlines()) == 1
