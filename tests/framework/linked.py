"""Programs that use Lorentz by its libraries, and processes for them to move."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from framework import build, lorentz, needs
from framework.running import Inside, Line, Native


def environment() -> dict[str, str]:
    """Returns the environment of programs that use a library."""
    return {**lorentz.session.environment(), "LORENTZ_COMMAND": str(lorentz.session.binary)}


@contextmanager
def in_this_process(patch: pytest.MonkeyPatch, feature: str, *listing: str) -> Iterator[None]:
    """Sets the session's command and state directory for the Python package in this process.

    feature: a feature the test needs besides root; listing: the command that shows what it left.
    """
    needs.root()
    needs.feature(feature)
    patch.setenv("LORENTZ_STATE_DIR", str(lorentz.session.state_dir()))
    patch.setenv("LORENTZ_COMMAND", str(lorentz.session.binary))
    yield
    assert lorentz.json_of(*listing) == [], "something was left"


def linked(name: str, library: str, *arguments: object) -> Native:
    """A program that uses a library."""
    program = build.linked(f"experiment/{name}", library)
    return Native([program, *map(str, arguments)], env=environment())


class Calls(Native):
    """A program that calls a function for each line it gets. Its library runs `command`; None: the
    session's binary."""

    def __init__(self, name: str, library: str, command: Path | None = None) -> None:
        env = environment()
        if command:
            env["LORENTZ_COMMAND"] = str(command)
        super().__init__([build.linked(f"experiment/{name}", library)], env=env, stdin=True)
        self._asked = 0

    def __call__(self, *words: object) -> Line:
        """Lets it call a function. Returns the result."""
        self._asked += 1
        self.process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self.process.stdin.flush()
        return self.wait_for(self._asked)[-1]

    def ok(self, *words: object) -> Line:
        """Calls a function, which must succeed."""
        answer = self(*words)
        assert answer["result"] == 0, f"{words}: {answer.text}"
        return answer


def pid_inside(inside: Inside) -> int:
    """Returns the process id of a program just started in a container, once it is in virtual
    time."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        shown = lorentz.shown(inside.name)
        if shown and shown["pids"]:
            return shown["pids"][0]
        time.sleep(0.02)
    raise AssertionError(f"{inside.name}: no process in 10 s")


def cpu_time(pid: int) -> int:
    """CPU time of a process, in ticks."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


def works(pid: int, within: float = 5) -> bool:
    """Whether a process that never waits runs: its CPU time grows."""
    before, deadline = cpu_time(pid), time.monotonic() + within
    while time.monotonic() < deadline:
        if cpu_time(pid) > before + 2:
            return True
        time.sleep(0.02)
    return False


def stands(pid: int, during: float = 0.3) -> bool:
    """Whether a process that never waits gets no CPU time."""
    before = cpu_time(pid)
    time.sleep(during)
    return cpu_time(pid) == before


def spin() -> Native:
    """A process in real time that never waits."""
    return Native(["sh", "-c", "while :; do :; done"])
