"""Programs that execute another one while somebody traces them: a process of Lorentz's, which lets
them go in a moment, or a debugger."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

import pytest
from framework import build, processes
from framework.failpoints import Faulty
from framework.points import AT_ONCE, at_each, execute, kill, tell, until, verb
from framework.running import Native

EXECS = """echo '{"ev":"ready"}'; read line; exec /bin/echo '{"ev":"ran"}'"""


#: Number of the system call.
EXECVE = "59"


def call_of(pid: int) -> str:
    """Returns the number of the system call in which a process waits."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[0]


def execute_while_traced(name: str, *real_ms: str) -> Faulty:
    """Lets a program execute another, and a process called `name` trace it from the moment at which
    the monitor has been notified: for so long, or until something has been refused."""
    with Faulty("/bin/sh", "-c", EXECS, rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        [pid] = inside.programs()
        execute(inside, "ExecNotified")
        command = [build.c("faults/tracer"), name, str(pid), *real_ms]
        with Native(command, stdin=True) as tracer:
            tracer.line(ev="traces")
            inside.points.release("ExecNotified")
            if not real_ms:
                until(lambda: inside.stderr)
            tracer.close_stdin()
            inside.status = inside.finish(timeout=20)
            tracer.finish()
    return inside


@pytest.mark.parametrize("name", ["lorentz", "lorentz-adopt"])
def test_an_exec_waits_for_another_process_of_lorentz(name):
    """An adoption and a checkpoint seize each thread for a moment."""
    inside = execute_while_traced(name, "500")
    assert inside.status == 0, inside.stderr
    assert inside.lines(ev="ran") and not inside.stderr


def runs_another(how: str = "") -> Faulty:
    """A shell that executes another program once it has read a line."""
    return Faulty("/bin/sh", "-c", f"{how} {EXECS}", rate="1", stdin=True)


def test_an_exec_stops_for_another_process_of_lorentz_that_has_interrupted_it():
    """The interrupt does not reach a thread that waits for its monitor."""
    with runs_another() as inside:
        inside.line(ev="ready")
        [pid] = inside.programs()
        execute(inside, "ExecNotified")
        command = [build.c("faults/tracer"), "lorentz", str(pid), "interrupt"]
        with Native(command, stdin=True) as tracer:
            tracer.line(ev="traces")
            inside.points.release("ExecNotified")
            assert inside.finish(timeout=20) == 0, inside.stderr
            tracer.close_stdin()
            assert tracer.finish() == 0
    assert inside.lines(ev="ran") and not inside.stderr


def test_the_first_exec_of_a_program_stops_for_another_process_of_lorentz():
    """It is made by the launcher, and not by the image."""
    with runs_another() as inside:
        inside.line(ev="ready")
        inside.points.arm("ExecNotified")
        command = inside.begin("exec", "true")
        inside.points.wait("ExecNotified")
        children = Path(f"/proc/{command.pid}/task/{command.pid}/children").read_text()
        with Native(
            [build.c("faults/tracer"), "lorentz", *children.split(), "interrupt"]
        ) as tracer:
            tracer.line(ev="traces")
            inside.points.release("ExecNotified")
            assert command.wait(timeout=AT_ONCE) == 0, command.stderr.read()
            assert tracer.finish() == 0


def test_an_exec_goes_on_that_an_adoption_has_seized_before_its_monitor_received_it():
    """The adoption is another program's, and does not find the thread stopped in its first try."""
    with runs_another() as inside:
        inside.line(ev="ready")
        [pid] = inside.programs()
        inside.begin("exec", "sleep", "30")
        until(lambda: len(inside.programs()) == 2)
        monitors = {one["kind"]: one["pid"] for one in inside.shown()["monitors"]}
        kill(monitors["exec"])
        os.kill(monitors["run"], signal.SIGSTOP)
        tell(inside, "go")
        until(lambda: call_of(pid) == EXECVE)
        inside.points.arm("AdoptSeized")
        adoption = inside.begin("adopt")
        inside.points.wait("AdoptSeized")
        inside.points.arm("ExecNotified")
        os.kill(monitors["run"], signal.SIGCONT)
        inside.points.wait("ExecNotified")
        inside.points.release("AdoptSeized")
        # Longer than a try takes.
        time.sleep(0.5)
        inside.points.release("ExecNotified")
        inside.line(timeout=AT_ONCE / 2, ev="ran")
        assert adoption.wait(timeout=AT_ONCE) == 0, adoption.stderr.read()
        assert not inside.shown()["needs_adopt"] and not inside.stderr
        for sleeper in inside.programs():
            os.kill(sleeper, signal.SIGKILL)


@at_each("stop signal change", "traced exec")
def test_an_exec_goes_on_if_its_tracer_ends_before_it_is_looked_at(place):
    """As a command that adopts programs and is killed."""
    with runs_another("trap '' USR1;") as inside:
        inside.line(ev="ready")
        place.reach(inside)
        os.kill(inside.monitor(), signal.SIGUSR1)
        verb(inside, "dilate", inside.name, "--rate", "2")
        inside.points.release(place.point)
        status = inside.finish(timeout=20)
    assert status == 0, inside.stderr
    assert inside.lines(ev="ran") and not inside.stderr


@at_each("kill", "traced exec")
def test_a_monitor_that_is_killed_there_leaves_nobody_stopped(place):
    with runs_another() as inside:
        inside.line(ev="ready")
        programs = inside.programs()
        place.reach(inside)
        os.kill(inside.monitor(), signal.SIGKILL)
        until(lambda: all(processes.has_ended(pid) for pid in programs))


def test_an_exec_is_refused_while_a_debugger_traces():
    inside = execute_while_traced("gdb")
    assert inside.status == 126
    assert re.search(r"it is traced by process \d+ \(gdb\)", inside.stderr), inside.stderr
