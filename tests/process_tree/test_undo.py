"""The end of containers, in every way: nothing is left behind."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from framework import lorentz
from framework.experiments import until
from framework.running import Inside

SHARED = Path("/dev/shm")
CGROUPS = [Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified")]


def traces(name: str) -> list[str]:
    """Returns the visible traces of a container, except `lorentz ps`."""
    found = [str(path) for path in lorentz.session.state_dir().rglob(f"*{name}*")]
    for mount in CGROUPS:
        found += [str(path) for path in mount.glob(f"**/lorentz/{name}*")]
    return found


def assert_no_trace(name: str) -> None:
    """The kernel may take a moment to let a control group go."""
    deadline = time.monotonic() + 3
    while left := traces(name):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


@pytest.mark.parametrize("how", ["exit", "SIGTERM", "SIGKILL"])
def test_nothing_is_left_of_a_container_that_ended(how):
    """Exit, or a signal that ends the program: no entry, no directory, no control group."""
    shared = set(SHARED.iterdir())
    script = 'echo \'{"ev":"up"}\'; read -r _'
    with Inside("/bin/sh", "-c", script, rate="4", stdin=True) as inside:
        inside.line(ev="up")
        assert traces(inside.name), "nothing to be seen while it runs: this test sees nothing"
        if how == "exit":
            inside.close_stdin()
        else:
            os.kill(inside.shown()["pids"][0], getattr(signal, how))
        inside.finish()
        lorentz.wait_until_gone(inside.name)
        assert_no_trace(inside.name)
        # A monitor in the background may end after its container.
        until(lambda: inside.processes() == [], "the end of all processes")
    assert set(SHARED.iterdir()) <= shared


def test_programs_left_in_the_background_are_looked_after():
    """The command ends. Its background programs go on in virtual time, and may exec; then nothing
    is left."""
    script = '(sleep 30; echo \'{"ev":"later"}\'; date \'+{"ev":"date","year":%Y}\') & exit 4'
    with Inside("/bin/sh", "-c", script, rate="10", at="2038-01-19") as inside:
        assert inside.process.wait(timeout=10) == 4
        assert lorentz.shown(inside.name)
        inside.line(ev="later")
        assert inside.line(ev="date")["year"] == 2038
        lorentz.wait_until_gone(inside.name)
        assert_no_trace(inside.name)


def test_no_zombies_gather():
    """A hundred orphans end inside: none stays as a zombie of lorentz's."""
    script = 'for i in $(seq 100); do (true &); done; echo \'{"ev":"done"}\'; exec sleep 1000000'
    with Inside("/bin/sh", "-c", script, rate="5") as inside:
        inside.line(ev="done")
        until(lambda: zombies(inside.pid) == [], "the end of the zombies")


def zombies(parent: int) -> list[list[str]]:
    """The children of a process that have ended and that it has not waited for."""
    stats = [stat(pid) for pid in Path("/proc").iterdir() if pid.name.isdigit()]
    return [s for s in stats if s and s[0] == "Z" and int(s[1]) == parent]


def stat(folder: Path) -> list[str]:
    """State, parent, ... of a process; nothing if it is gone."""
    try:
        return (folder / "stat").read_text().rpartition(") ")[2].split()
    except OSError:
        return []
