"""Threads of Lorentz that stop at chosen places, to be killed there, or overtaken.

    with Faulty(program, rate="1") as inside:
        inside.points.arm("AfterVersion")
        controller = inside.begin("dilate", "--rate", "2")
        inside.points.wait("AfterVersion")
        controller.kill()

`target/release/lorentz-failpoints` has the places (crates/clock/src/failpoint.rs); no release has
them. Their words are in the clock's file. So they can stop every process that has the clock mapped:
programs, controllers, monitors, skippers, experiments.
"""

from __future__ import annotations

import contextlib
import functools
import json
import mmap
import subprocess
import time
from pathlib import Path

import pytest

from framework import lorentz, processes
from framework.build import REPO
from framework.running import Inside

BINARY = REPO / "target" / "release" / "lorentz-failpoints"
OFF, ARMED, STOPPED = 0, 1, 2


@functools.cache
def session() -> lorentz.Session:
    """The session of the command with failpoints, which has a state directory of its own."""
    if not BINARY.exists():
        pytest.fail(f"no such binary: {BINARY} (scripts/failpoints builds it)")
    return lorentz.Session(BINARY)


@functools.cache
def places() -> dict[str, int]:
    """Returns the offset of each failpoint's word in a clock's file."""
    listed = subprocess.run([BINARY, "failpoints"], capture_output=True, timeout=10, check=True)
    return json.loads(listed.stdout)


class Points:
    """The failpoints of one clock."""

    def __init__(self, clock: Path) -> None:
        with clock.open("r+b") as file:
            self._memory = mmap.mmap(file.fileno(), 0)

    def _get(self, name: str) -> int:
        return self._memory[places()[name]]

    def _set(self, name: str, state: int) -> None:
        self._memory[places()[name]] = state

    def arm(self, name: str) -> None:
        """Arms the failpoint: the next thread that comes there stops."""
        self._set(name, ARMED)

    def stopped(self, name: str) -> bool:
        """Whether a thread has stopped there."""
        return self._get(name) == STOPPED

    def wait(self, name: str, timeout: float = 20) -> None:
        """Waits until a thread has stopped at the point."""
        deadline = time.monotonic() + timeout
        while not self.stopped(name):
            assert time.monotonic() < deadline, f"nobody came to {name}"
            time.sleep(0.002)

    def release(self, name: str) -> None:
        """Lets the thread go on; no other thread stops there."""
        self._set(name, OFF)

    def release_all(self) -> None:
        """Releases all failpoints."""
        for name in places():
            self._set(name, OFF)


class Faulty(Inside):
    """A program on a clock with failpoints."""

    def __init__(self, *command: str | Path, **options: object) -> None:
        super().__init__(*command, session=session(), **options)
        self._begun: list[subprocess.Popen] = []

    @functools.cached_property
    def points(self) -> Points:
        """The failpoints of its clock."""
        clock = self.session.state_dir(self.unprivileged) / self.name / "clock"
        deadline = time.monotonic() + 10
        while not clock.exists():
            assert time.monotonic() < deadline, "the container does not appear"
            time.sleep(0.005)
        return Points(clock)

    def begin(self, verb: str, *arguments: str) -> subprocess.Popen:
        """Starts `lorentz VERB NAME ARGUMENTS`, and does not wait for its end."""
        env = {**self.session.environment(), processes.TAG: self._tag}
        process = subprocess.Popen(
            [*self.session.command(), verb, self.name, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=env,
        )
        self._begun.append(process)
        return process

    def kill_at(self, point: str, *words: str) -> None:
        """Kills `lorentz WORDS` where it comes to a failpoint."""
        self.points.arm(point)
        line = [*self.session.command(), *words]
        with subprocess.Popen(line, env=self.session.environment()) as command:
            self.points.wait(point)
            command.kill()
        self.points.release(point)

    def end(self) -> None:
        """Releases all threads that a failpoint has stopped."""
        with contextlib.suppress(AssertionError, FileNotFoundError):
            self.points.release_all()
        for process in self._begun:
            process.kill()
            process.communicate()
        super().end()
