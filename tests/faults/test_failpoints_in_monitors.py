"""A monitor stops at an exec, while it sets the wall clock for a program, and while it completes a
change. It is killed there, signalled, or stands still."""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework import build, checkpoints, lorentz, needs, processes
from framework.failpoints import Faulty, Points, session
from framework.points import (
    AT_ONCE,
    EACH,
    EINTR,
    WAYS,
    Place,
    at_each,
    beside,
    done,
    kill,
    points,
    tell,
    until,
    verb,
    wait_until_it_waits,
    works,
)
from framework.running import Native

# Execs

EXECS = [point for point, ways in WAYS.items() if any(way.kind == "exec" for way in ways)]


def shell(script: str) -> Faulty:
    """A shell that executes programs once it has read a line."""
    ready = 'echo "{\\"ev\\":\\"ready\\"}"; read -r _'
    return Faulty("sh", "-c", f"{ready}; {script}", stdin=True)


@at_each("kill", "exec")
def test_a_monitor_that_is_killed_at_an_exec_leaves_nobody_stopped(place):
    """The program goes on, gets an error, or is ended: it never hangs, and nothing is left."""
    with shell("/bin/true; exec sleep 0.01") as inside:
        inside.line(ev="ready")
        monitor = inside.monitor()
        programs = inside.shown()["pids"]
        place.reach(inside)
        os.kill(monitor, signal.SIGKILL)
        until(lambda: all(processes.has_ended(pid) for pid in programs))
        verb(inside, "rm", inside.name, "--force")
        assert inside.name not in [entry["name"] for entry in lorentz.ps(session=inside.session)]


@at_each("stop", "exec")
def test_a_monitor_that_stands_still_at_an_exec_holds_no_other_program_up(place):
    """The exec waits, and is made later."""
    with shell('/bin/true; echo "{\\"ev\\":\\"done\\"}"') as inside, beside(inside) as other:
        place.reach(inside)
        works(other)
        verb(inside, "leap", inside.name, "--by", "1s")
        verb(inside, "freeze", inside.name)
        verb(inside, "unfreeze", inside.name)
        assert inside.lines(ev="done") == []
        inside.points.release(place.point)
        inside.line(timeout=AT_ONCE, ev="done")
        works(other)


@at_each("signal", "exec")
def test_a_signal_to_a_monitor_at_an_exec_reaches_the_program_afterwards(place):
    trap = 'trap \'echo "{\\"ev\\":\\"signal\\"}"\' USR1'
    script = f'{trap}; echo "{{\\"ev\\":\\"ready\\"}}"; read -r _; /bin/true; '
    script += 'echo "{\\"ev\\":\\"done\\",\\"status\\":$?}"; read -r _'
    with Faulty("sh", "-c", script, stdin=True) as inside:
        inside.line(ev="ready")
        place.reach(inside)
        os.kill(inside.monitor(), signal.SIGUSR1)
        inside.points.release(place.point)
        assert inside.line(timeout=AT_ONCE, ev="done")["status"] == 0
        inside.line(timeout=AT_ONCE, ev="signal")
        assert len(inside.lines(ev="signal")) == 1


@at_each("change", "exec")
def test_a_change_in_the_midst_of_an_exec_ends_nobody(place):
    """The new program has no handler for the clock-change signal yet. The signal comes when there
    is one."""
    with Faulty(build.c("faults/exec_again"), rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        place.reach(inside)
        verb(inside, "dilate", inside.name, "--rate", "2")
        inside.points.release(place.point)
        inside.line(timeout=AT_ONCE, ev="done")
        inside.succeed()


@pytest.mark.parametrize("point", EXECS)
def test_a_program_is_shown_while_it_is_executed(point):
    with shell("exec sleep 1000") as inside:
        inside.line(ev="ready")
        before = inside.shown()["pids"]
        inside.points.arm(point)
        inside.close_stdin()
        inside.points.wait(point)
        assert inside.shown()["pids"] == before
        inside.points.release(point)


def is_traced(pid: int) -> bool:
    return "TracerPid:\t0\n" not in Path(f"/proc/{pid}/status").read_text()


_numbers = itertools.count()
ask = functools.partial(lorentz.ok, "experiment", session=session())


@contextlib.contextmanager
def an_experiment(name: str) -> Iterator[str]:
    ask("create", name)
    try:
        yield name
    finally:
        ask("rm", name)


@contextlib.contextmanager
def attached_at(point: str, experiment: str = "") -> Iterator[tuple[str, Native, Points]]:
    """An attached process in the midst of an exec: its container, itself, and the failpoints.

    It has the new program's memory, in which the clock is not mapped yet. No ancestor is known.
    """
    name = f"executes-{point}-{next(_numbers)}"
    with Native(["sh", "-c", "read -r _; exec sleep 1000"], stdin=True) as program:
        lorentz.ok("attach", str(program.pid), "--name", name, session=session())
        if experiment:
            ask("add", experiment, name)
        clock = Points(session().state_dir() / name / "clock")
        clock.arm(point)
        program.process.stdin.write(b"\n")
        program.process.stdin.flush()
        try:
            clock.wait(point)
            yield name, program, clock
        finally:
            clock.release_all()


@pytest.mark.parametrize("point", EXECS)
def test_an_attached_process_is_found_while_it_executes_a_program(point):
    with attached_at(point) as (name, program, _):
        found = lorentz.json_of("time", str(program.pid), session=session())
        assert (found["name"], found["pids"]) == (name, [program.pid])


@pytest.mark.parametrize("point", EXECS)
def test_an_experiment_takes_a_process_in_the_midst_of_an_exec(point):
    """It is moved into the container's group: an experiment has no container whose group is
    empty."""
    needs.feature("cgroup-freeze")
    with (
        an_experiment(f"takes-{point}") as experiment,
        attached_at(point) as (name, program, clock),
    ):
        ask("add", experiment, name)
        [group] = processes.control_groups(name)
        assert str(program.pid) in (group / "cgroup.procs").read_text().split()
        clock.release(point)
        ask("synchronize", experiment)
        status = lorentz.json_of("experiment", "status", experiment, session=session())
        assert [one["name"] for one in status["containers"]] == [name]


def test_a_process_that_the_freezer_stops_behind_its_exec_is_found():
    """The monitor has let it go, and it has not run the boot code yet."""
    needs.feature("cgroup-freeze")
    point = "ExecPutIn"
    with (
        an_experiment("stops-behind-an-exec") as experiment,
        attached_at(point, experiment) as (name, program, clock),
    ):
        [group] = processes.control_groups(name)
        freezer = group / "cgroup.freeze"
        freezer.write_text("1")
        try:
            clock.release(point)
            until(lambda: not is_traced(program.pid))
            found = lorentz.json_of("time", str(program.pid), session=session())
            assert (found["name"], found["pids"]) == (name, [program.pid])
        finally:
            freezer.write_text("0")


def test_a_process_that_the_freezer_stops_behind_its_exec_is_checkpointed_later(tmp_path):
    """It has none of the shim's memory yet, so that no restore could bring it back."""
    checkpoints.criu()
    point = "ExecPutIn"
    directory = tmp_path / "saved"
    with shell("exec sleep 1000") as inside:
        inside.line(ev="ready")
        [program] = inside.shown()["pids"]
        [group] = processes.control_groups(inside.name)
        inside.points.arm(point)
        inside.close_stdin()
        inside.points.wait(point)
        (group / "cgroup.freeze").write_text("1")
        inside.points.release(point)
        until(lambda: not is_traced(program))
        lorentz.ok("checkpoint", inside.name, "-o", str(directory), session=inside.session)
    name = f"{inside.name}-again"
    restore = [*session().command(), "restore", str(directory), "--name", name]
    try:
        # The restored program keeps the streams of the command: they are no pipes to this process.
        with (tmp_path / "said").open("w+") as said:
            done = subprocess.run(restore, stdout=said, stderr=said, env=session().environment())
        assert done.returncode == 0, (tmp_path / "said").read_text()
        (row,) = [one for one in lorentz.ps(session=session()) if one["name"] == name]
        assert Path(f"/proc/{row['pids'][0]}/comm").read_text() == "sleep\n"
    finally:
        lorentz.call("rm", "--force", name, session=session())


# A wall clock that is set


def is_set(inside: Faulty, place: Place, count: int = 1) -> bool:
    """Whether the wall clock is where thread 1 has had it set, as thread 2 reads it."""
    ahead = done(inside, "date", who=2, count=count)["ret"] - time.time()
    return ahead > 500_000 if place.way.order == "setwall 1000000" else ahead < -500_000


@at_each("kill", "wall")
def test_a_monitor_that_is_killed_sets_a_wall_clock_whole_or_not_at_all(place):
    """The program's call ends. Other waits follow with the next command, if the clock was set."""
    with points() as inside, beside(inside) as other:
        inside.line(ev="ready")
        monitor = inside.monitor()
        tell(other, "do wallsleep 500000")
        wait_until_it_waits(inside)
        place.reach(inside)
        kill(monitor)
        inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1, op=place.way.order)
        assert is_set(inside, place) == place.made
        assert done(inside, "sleep 1000000", who=2)["ret"] == 0
        verb(inside, "dilate", inside.name, "--rate", "2")
        assert inside.time()["rate"] == "2"
        if not (place.made and place.way.order == "setwall 1000000"):
            assert other.lines(ev="done", who=1) == []
            verb(inside, "step", inside.name, "--by", "2000000s")
        assert other.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0
        works(other)


@at_each("stop", "wall")
def test_nobody_waits_for_a_monitor_that_sets_a_wall_clock(place):
    with points() as inside, beside(inside) as other:
        inside.line(ev="ready")
        place.reach(inside)
        assert is_set(inside, place) == place.made
        works(other)
        verb(inside, "time", inside.name)
        inside.points.release(place.point)
        ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1, op=place.way.order)
        assert ended[0]["ret"] == 0
        assert is_set(inside, place, count=2)


@at_each("signal", "wall")
def test_a_signal_to_a_monitor_that_sets_a_wall_clock_comes_afterwards(place):
    """SIGUSR2 goes to the program, and does not end the call."""
    with points() as inside:
        inside.line(ev="ready")
        monitor = inside.monitor()
        place.reach(inside)
        os.kill(monitor, signal.SIGUSR2)
        inside.points.release(place.point)
        ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1, op=place.way.order)
        assert ended[0]["ret"] == 0
        inside.line(timeout=AT_ONCE, ev="signal")
        assert is_set(inside, place)
        assert not processes.has_ended(monitor)
        works(inside)


# A change that is completed


@contextlib.contextmanager
def completing(place: Place) -> Iterator[tuple[Faulty, int]]:
    """A program whose thread 1 waits, and its monitor, which stands at `place` of a change."""
    with points() as inside:
        inside.line(ev="ready")
        monitor = inside.monitor()
        tell(inside, "do sleep 500000000000000")
        wait_until_it_waits(inside)
        place.reach(inside)
        yield inside, monitor


def is_leapt(inside: Faulty) -> bool:
    """Whether the clock shows the leap that the monitor was to complete, by now or soon."""
    until(lambda: inside.time()["to_come"] == [])
    count = len(inside.lines(ev="done", who=2, op="date"))
    return done(inside, "date", who=2, count=count + 1)["ret"] > time.time() + 500_000


@at_each("kill", "healer")
def test_a_monitor_that_is_killed_over_a_dead_controllers_change(place):
    """Readers show the change, and the next command completes it."""
    with completing(place) as (inside, monitor):
        kill(monitor)
        assert done(inside, "sleep 1000000", who=2)["ret"] == 0
        assert is_leapt(inside)
        verb(inside, "dilate", inside.name, "--rate", "10")
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0
        assert inside.time()["rate"] == "10"
        works(inside, who=2)


@at_each("stop", "healer")
def test_nobody_waits_for_a_monitor_that_completes_a_change(place):
    """But for a thread that executes a program, or whose call site is to be rewritten."""
    with completing(place) as (inside, _):
        for order in EACH:
            assert order == "hot" or done(inside, order, who=2)["ret"] >= 0, order
        assert is_leapt(inside)
        inside.points.release(place.point)
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0


@at_each("signal", "healer")
def test_a_signal_to_a_monitor_that_completes_a_change_comes_afterwards(place):
    with completing(place) as (inside, monitor):
        os.kill(monitor, signal.SIGUSR2)
        inside.points.release(place.point)
        ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]
        # The kernel chooses the thread that gets the signal.
        assert ended["ret"] == 0 or ended["err"] == EINTR
        inside.line(timeout=AT_ONCE, ev="signal")
        assert is_leapt(inside)
        works(inside)
        assert not processes.has_ended(monitor)
