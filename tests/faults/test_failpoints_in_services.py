"""Skippers, threads that leap by themselves, and schedulers of experiments stop at a place, and are
killed there, signalled, or stand still."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest
from framework import build, lorentz, processes
from framework.experiments import SECOND, Experiment
from framework.failpoints import Faulty, Points, session
from framework.points import (
    AT_ONCE,
    WAYS,
    Place,
    at_each,
    done,
    kill,
    points,
    until,
    verb,
    works,
)
from framework.running import Inside, Running
from framework.skipping import BLINK, BY_COUNT, BY_LOOKING


def alone(count: int, **options: object) -> Faulty:
    """A program with one thread, which sleeps `count` times for an hour."""
    return Faulty(build.c("faults/points"), "alone", str(count), options=["--skip-idle"], **options)


@contextlib.contextmanager
def marker_at(place: Place) -> Iterator[Faulty]:
    """Has a skipper stop as it marks the thread: after its first leap."""
    with alone(100, stdin=True) as inside:
        inside.points.arm(place.point)
        inside.close_stdin()
        inside.points.wait(place.point)
        yield inside


def end_skipper(inside: Faulty, number: int = signal.SIGKILL) -> None:
    """Ends the skipper by a signal: it has a handler for none."""
    skipper = inside.time()["skip"]["skipper"]
    os.kill(skipper, number)
    until(lambda: processes.has_ended(skipper))


# Skippers

#: Real seconds in which a skipper looks at the tasks some hundred times.
MANY_LOOKS = 0.5


def check_an_ended_skipper(place: Place, number: int) -> None:
    """Ends a skipper at a place by a signal, and checks that the next one does its work."""
    with points(options=["--skip-idle=force"]) as inside:
        inside.line(ev="ready")
        place.reach(inside)
        end_skipper(inside, number)
        assert done(inside, "file", who=2)["ret"] == 0
        verb(inside, "skip", inside.name, "off")
        verb(inside, "skip", inside.name, "force")
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0
        works(inside)


@at_each("kill", "skipper")
def test_a_skipper_that_is_killed_holds_nobody_up(place):
    check_an_ended_skipper(place, signal.SIGKILL)


@at_each("signal", "skipper")
def test_a_skipper_that_is_asked_to_end_holds_nobody_up(place):
    check_an_ended_skipper(place, signal.SIGTERM)


@at_each("stop change", "skipper")
def test_a_skipper_that_stands_still_holds_nobody_up(place):
    """Threads run, and commands read and change the clock; it leaps on later."""
    with points(options=["--skip-idle=force"]) as inside:
        inside.line(ev="ready")
        place.reach(inside)
        for order in ("sleep 1000000", "file", "process", "date"):
            assert done(inside, order, who=2)["ret"] >= 0
        verb(inside, "dilate", inside.name, "--rate", "2")
        verb(inside, "leap", inside.name, "--by", "1s")
        assert inside.time()["rate"] == "2"
        inside.points.release(place.point)
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0
        works(inside)


def check_an_ended_marker(place: Place, number: int) -> None:
    """Ends a skipper that marks a thread. No thread has the mark then, and the next skipper sets
    it."""
    with marker_at(place) as inside:
        end_skipper(inside, number)
        verb(inside, "skip", inside.name, "off")
        verb(inside, "skip", inside.name, "on")
        assert len(inside.wait_for(100, ev="done")) == 100
        inside.succeed()


@at_each("kill", "marker")
def test_a_skipper_may_be_killed_in_the_midst_of_vouching(place):
    check_an_ended_marker(place, signal.SIGKILL)


@at_each("signal", "marker")
def test_a_skipper_may_be_asked_to_end_in_the_midst_of_vouching(place):
    check_an_ended_marker(place, signal.SIGTERM)


@at_each("stop change", "marker")
def test_a_skipper_may_stand_still_in_the_midst_of_vouching(place):
    """The thread sleeps on, and leaps when the mark is whole."""
    with marker_at(place) as inside:
        verb(inside, "dilate", inside.name, "--rate", "2")
        assert inside.time()["rate"] == "2"
        inside.points.release(place.point)
        assert len(inside.wait_for(100, ev="done")) == 100
        inside.succeed()


EXECS = [point for point, ways in WAYS.items() if any(way.kind == "exec" for way in ways)]


@pytest.mark.parametrize("unprivileged", [BY_COUNT, BY_LOOKING])
@pytest.mark.parametrize("point", EXECS)
def test_time_does_not_leap_while_a_program_is_executed(point, unprivileged):
    """Its clock's page is in neither the old memory nor the new one for a moment. A skipper that
    begins then knows the process."""
    script = 'sleep 86400 & echo "{\\"ev\\":\\"ready\\"}"; read -r _; exec sleep 3600'
    with Faulty("sh", "-c", script, stdin=True, unprivileged=unprivileged) as inside:
        inside.line(ev="ready")
        until(lambda: inside.time()["waits"] == 1)
        inside.points.arm(point)
        inside.close_stdin()
        inside.points.wait(point)
        how = {"unprivileged": unprivileged, "session": inside.session}
        lorentz.ok("skip", inside.name, "on", **how)
        time.sleep(MANY_LOOKS)
        assert inside.time()["skip"]["leaps"] == 0
        inside.points.release(point)
        inside.succeed(timeout=BLINK)


# Threads that leap by themselves


@contextlib.contextmanager
def skipper_that_sleeps(inside: Faulty) -> Iterator[None]:
    """Stops the skipper, which has marked the thread at its first leap, and kills it at the end."""
    inside.wait_for(2, ev="done")
    os.kill(inside.time()["skip"]["skipper"], signal.SIGSTOP)
    yield
    end_skipper(inside)


@at_each("stop", "sole")
def test_a_thread_that_is_alone_needs_no_skipper(place):
    """A sole thread leaps by itself, once a skipper has marked it."""
    with alone(300) as inside:
        with skipper_that_sleeps(inside):
            place.reach(inside)
        inside.points.release(place.point)
        assert len(inside.wait_for(300, ev="done")) == 300
        inside.succeed()


@at_each("kill", "sole")
def test_a_thread_that_is_killed_in_its_leap_leaves_a_clock_that_leaps(place):
    with alone(300) as inside:
        program = inside.line(ev="ready")["pid"]
        command = [*inside.session.command(), "exec", inside.name, "cat"]
        with skipper_that_sleeps(inside):
            place.reach(inside)
        with Running(command, env=inside.session.environment(), stdin=True):
            until(lambda: len(inside.shown()["pids"]) == 2)
            kill(program)
            verb(inside, "skip", inside.name, "off")
            verb(inside, "skip", inside.name, "force")
            sleep = ("exec", inside.name, "sleep", "1000000")
            assert lorentz.call(*sleep, session=session()).returncode == 0


@at_each("signal", "sole")
def test_a_signal_comes_when_a_thread_has_leapt(place):
    with alone(300) as inside:
        program = inside.line(ev="ready")["pid"]
        with skipper_that_sleeps(inside):
            place.reach(inside)
            os.kill(program, signal.SIGUSR1)
        inside.points.release(place.point)
        inside.line(ev="signal")
        assert len(inside.wait_for(300, ev="done")) == 300
        inside.succeed()


@at_each("change", "sole")
def test_a_change_reaches_a_thread_in_its_leap(place):
    with alone(300) as inside:
        inside.line(ev="ready")
        with skipper_that_sleeps(inside):
            place.reach(inside)
            verb(inside, "dilate", inside.name, "--rate", "2")
        inside.points.release(place.point)
        assert len(inside.wait_for(300, ev="done")) == 300
        inside.succeed()


# Schedulers of experiments


@dataclass
class Scheduled:
    """An experiment of one container, whose scheduler stands at a place."""

    experiment: Experiment
    #: The process of the experiment.
    engine: int
    inside: Inside
    points: Points


#: Computes for some slices, and sleeps for some.
BUSY = "while :; do i=0; while [ $i -lt 20000 ]; do i=$((i + 1)); done; sleep 0.02; done"


@contextlib.contextmanager
def scheduler_at(place: Place) -> Iterator[Scheduled]:
    """Has the scheduler of an experiment stop at a place."""
    with Experiment(session=session()) as experiment:
        inside = experiment.run("sh", "-c", BUSY)
        words = Points(session().state_dir() / inside.name / "clock")
        scheduled = Scheduled(experiment, experiment.engine, inside, words)
        experiment.synchronize()
        experiment.start()
        place.reach(scheduled)
        try:
            yield scheduled
        finally:
            words.release_all()


def goes_on_by_itself(inside: Inside) -> None:
    """Checks that a container's time passes, and can be changed."""
    before = inside.time()["monotonic_ns"]
    until(lambda: inside.time()["monotonic_ns"] > before)
    inside.dilate("3")
    assert inside.time()["rate"] == "3"


@at_each("kill", "scheduler")
def test_a_conductor_that_is_killed_leaves_containers_that_can_be_let_go(place):
    """Their clocks are valid, and no other process locks them."""
    with scheduler_at(place) as scheduled:
        kill(scheduled.engine)
        scheduled.experiment.ok("rm")
        scheduled.points.release_all()
        goes_on_by_itself(scheduled.inside)


@at_each("signal", "scheduler")
def test_a_scheduler_that_is_asked_to_end_ends_its_slice_before(place):
    """Then its containers go on by themselves, and nothing of the experiment is left."""
    with scheduler_at(place) as scheduled:
        os.kill(scheduled.engine, signal.SIGTERM)
        time.sleep(0.1)
        assert not processes.has_ended(scheduled.engine)
        scheduled.points.release_all()
        until(lambda: processes.has_ended(scheduled.engine))
        assert not scheduled.experiment.place.exists()
        goes_on_by_itself(scheduled.inside)


@at_each("stop", "scheduler")
def test_a_scheduler_that_stands_still_holds_no_other_container_up(place):
    """Commands that only read need no scheduler; the experiment goes on later."""
    with scheduler_at(place) as scheduled, points() as outside:
        outside.line(ev="ready")
        works(outside)
        verb(outside, "dilate", outside.name, "--rate", "2")
        verb(outside, "time", scheduled.inside.name)
        listed = lorentz.ps(session=session())
        assert scheduled.inside.name in [entry["name"] for entry in listed]
        scheduled.points.release_all()
        scheduled.experiment.advance(0.1)


COMPUTES = """
import sys, time
print("ready", flush=True)
sys.stdin.read()
sum(range(10_000_000))
print(time.monotonic_ns())
"""


@pytest.mark.parametrize("compute", ["none", "real"])
def test_a_task_that_wakes_while_a_scheduler_looks_for_sleepers_keeps_its_time(compute):
    """Its clock does not go to the end of the move while it computes."""
    with Experiment("--compute", compute, session=session()) as experiment:
        inside = experiment.run(sys.executable, "-c", COMPUTES, timeline=1, stdin=True)
        until(lambda: inside.stdout)
        words = Points(session().state_dir() / inside.name / "clock")
        experiment.synchronize()
        start = experiment.clock(inside)
        experiment.interval(inside, 100 * SECOND)
        words.arm("SliceLooked")
        with ThreadPoolExecutor() as client:
            moves = client.submit(experiment.progress)
            words.wait("SliceLooked")
            inside.close_stdin()
            until(lambda: processes.state(inside.programs()[0]) != "S")
            words.release("SliceLooked")
            moves.result()
        inside.succeed()
    passed = int(inside.stdout.split()[1]) - start
    assert passed == 0 if compute == "none" else 0 < passed < 50 * SECOND
