"""Commands for containers that are killed at any of their steps: the container goes on, and what
is left the next commands can clear."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from framework import lorentz, processes, steps
from framework.containers import wait
from framework.running import Inside

pytestmark = pytest.mark.patient

NAME = f"killed-at-a-step-{os.getpid()}"
#: Calls of each command: it looks at files all the time.
CALLS = ["openat", "flock"]
#: Those of a command that starts a program, besides.
STARTING = [*CALLS, "ptrace", "ppoll", "unlinkat"]


def left() -> list[str]:
    """Paths of the container in the state directory and below the control groups."""
    paths = [path for path in lorentz.session.state_dir().iterdir() if NAME in path.name]
    return [str(path) for path in [*paths, *processes.control_groups(NAME)]]


def clear() -> None:
    """As a user would: what is shown is removed, and then nothing is left."""
    if lorentz.shown(NAME):
        lorentz.call("rm", "--force", NAME)
    lorentz.wait_until_gone(NAME, 10)
    lorentz.ok("run", "--name", NAME, "--", "true")
    # A killed command's processes may still be ending.
    wait(lambda: left() == [], "something is left")


def killed(words: Callable[[], list[str]], call: str, folder: Path) -> Iterator[int]:
    """Runs a command, killed at its first system call `call`, its second, and so on."""

    def attempt(count: int) -> int:
        command = [*lorentz.session.command(), *words()]
        return steps.status_at(call, count, command, folder, tag, children=False)

    tag = processes.new_tag()
    try:
        for status in steps.until_unharmed(attempt):
            assert status in (0, steps.KILLED), (folder / "log").read_text()
            yield status
            processes.kill_tagged(tag)
    finally:
        processes.kill_tagged(tag)


@pytest.mark.parametrize("call", STARTING)
@pytest.mark.parametrize("options", [(), ("--skip-idle",)], ids=["plain", "skip-idle"])
def test_a_run_that_is_killed(options, call, tmp_path):
    words = ["run", "--name", NAME, "--at", "2038-01-19", *options, "--", "true"]
    for _ in killed(lambda: words, call, tmp_path):
        clear()


@pytest.mark.parametrize("call", ["openat", "ptrace", "ppoll"])
def test_an_exec_that_is_killed(call, tmp_path):
    with Inside("sleep", "100000", name=NAME, at="2038-01-19") as inside:
        inside.wait_until_shown()
        for _ in killed(lambda: ["exec", NAME, "true"], call, tmp_path):
            assert lorentz.ok("exec", NAME, "date", "+%Y") == "2038\n"
    clear()


@pytest.mark.parametrize("call", CALLS)
def test_an_attach_that_is_killed(call, tmp_path):
    """The process may be in the container by then, or not. It goes on."""
    started: list[subprocess.Popen] = []

    def words() -> list[str]:
        started.append(subprocess.Popen(["sleep", "100000"]))
        return ["attach", "--name", NAME, "--at", "2038-01-19", str(started[-1].pid)]

    try:
        for _ in killed(words, call, tmp_path):
            assert processes.state(started[-1].pid) == "S"
            clear()
    finally:
        for sleeper in started:
            sleeper.kill()
            sleeper.wait()


CHANGES = {
    "dilate": ["dilate", NAME, "--rate", "2"],
    "step": ["step", NAME, "--by", "+1h"],
    "freeze": ["freeze", NAME],
    "unfreeze": ["unfreeze", NAME],
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_that_is_killed(change, call, tmp_path):
    with Inside("sleep", "100000", name=NAME, at="2038-01-19") as inside:
        inside.wait_until_shown()
        for _ in killed(lambda: CHANGES[change], call, tmp_path):
            lorentz.ok(*CHANGES[change])
            assert inside.process.poll() is None
    clear()
