"""CPU time: scaled by the rate, so that it never exceeds elapsed time; or the host's."""

from __future__ import annotations

import pytest
from framework import build, oracle
from framework.running import Inside

#: Real seconds: the kernel's accounting, and CPU time between two reads.
TICK = 0.02


def slack(rate: float) -> float:
    """Returns the tolerance of a reading: a tick of times(2) is of virtual time at low rates."""
    return 2 * TICK * max(rate, 0.5)


def cpu(what: str, seconds: float, rate: str, options: tuple[str, ...] = ()) -> tuple[dict, float]:
    """Returns the output of programs/faces/cpu for `seconds` of its CPU time, and its duration on
    the host."""
    program = [build.c("faces/cpu"), what, str(round(seconds * 1e9))]
    with Inside(*program, rate=rate, options=options) as inside:
        inside.succeed(timeout=40)
        return inside.line(ev="cpu").data, inside.ended_at - inside.started_at


@pytest.mark.parametrize(("rate", "seconds"), [("1", 0.3), ("10", 3.0), ("1/10", 0.05)])
def test_every_face_of_cpu_time_agrees(rate, seconds):
    measured, _ = cpu("spin", seconds, rate)
    off = slack(oracle.ratio(rate))
    faces = ("process", "thread", "raw", "own", "rusage", "tms", "clock")
    for face in faces:
        assert measured[face] == pytest.approx(seconds, rel=oracle.LATE, abs=off), face
    assert measured["times_wall"] == pytest.approx(measured["wall"], rel=oracle.LATE, abs=off)


@pytest.mark.parametrize(("rate", "seconds"), [("10", 3.0), ("1/10", 0.05)])
def test_no_more_cpu_time_than_time(rate, seconds):
    """A spinning program uses as much CPU time as time passes, or less if other programs run."""
    measured, real = cpu("spin", seconds, rate)
    assert measured["process"] <= measured["wall"] * 1.001
    assert real >= seconds / oracle.ratio(rate) * (1 - oracle.LATE)


@pytest.mark.parametrize("rate", ["10", "1/10"])
def test_cpu_time_of_children_is_scaled_too(rate):
    number = oracle.ratio(rate)
    measured, _ = cpu("child", 0.3 * number, rate)
    for face in ("rusage", "wait4", "tms"):
        assert measured[face] == pytest.approx(0.3 * number, rel=0.1, abs=slack(number)), face
        assert measured[face] <= measured["wall"] + slack(number), face


@pytest.mark.parametrize("rate", ["10", "1/10"])
def test_cpu_timers_go_off_at_their_cpu_time(rate):
    number = oracle.ratio(rate)
    measured, _ = cpu("timer", 0.2 * number, rate)
    # The kernel counts for itimers by ticks, which on a busy machine hit the wrong process.
    for timer, part in (("prof", 0.5), ("virtual", 0.5), ("posix", 0.1)):
        assert measured[timer] == pytest.approx(0.2 * number, rel=part, abs=slack(number)), timer


@pytest.mark.parametrize("rate", ["10", "1/10"])
def test_cpu_clocks_may_be_left_as_the_hosts(rate):
    """--cpu-clocks real: a spinning program's CPU time is the real time it took."""
    measured, real = cpu("spin", 0.3, rate, ("--cpu-clocks", "real"))
    number = oracle.ratio(rate)
    assert measured["process"] == pytest.approx(0.3, rel=oracle.LATE, abs=TICK)
    assert measured["rusage"] == pytest.approx(0.3, rel=oracle.LATE, abs=TICK)
    assert measured["wall"] >= 0.3 * number * (1 - oracle.LATE)
    assert real < 0.3 * 10 + 5


@pytest.mark.parametrize("rate", ["10", "1/10"])
def test_the_value_of_times_moves_with_the_clock(rate):
    number = oracle.ratio(rate)
    measured, _ = cpu("idle", 0.5 * number, rate)
    assert measured["times_wall"] == pytest.approx(measured["wall"], rel=0.01, abs=0.02)
    assert measured["process"] < 0.2 * measured["wall"]
