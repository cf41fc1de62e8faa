"""CPU time: scaled by the rate, so that it never exceeds elapsed time; or the host's."""

from __future__ import annotations

import pytest
from framework import build, oracle
from framework.oracle import HostNoise
from framework.running import Inside

#: Real seconds: the kernel's accounting, and CPU time between two reads.
TICK = 0.02


def slack(rate: float) -> float:
    """Returns the tolerance of a reading: a tick of times(2) is of virtual time at low rates."""
    return 2 * TICK * max(rate, 0.5)


def within(measured: dict, off: float) -> oracle.Span:
    """Returns the bounds of a face: by the CPU clock before and after it was read."""
    return oracle.Span(
        measured["least"] * (1 - oracle.LATE) - off, measured["most"] * (1 + oracle.LATE) + off
    )


def within_wall(measured: dict, off: float) -> oracle.Span:
    """Returns the bounds of the value of times(): by the clock before and after it was read."""
    return oracle.Span(measured["least_wall"] - off, measured["wall"] + off)


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
    assert measured["least"] >= seconds
    for face in ("thread", "raw", "own", "rusage", "tms", "clock"):
        assert measured[face] in within(measured, off), face
    assert measured["times_wall"] in within_wall(measured, off)


@pytest.mark.parametrize(("rate", "seconds"), [("10", 3.0), ("1/10", 0.05)])
def test_no_more_cpu_time_than_time(rate, seconds):
    """A spinning program uses as much CPU time as time passes, or less if other programs run."""
    measured, real = cpu("spin", seconds, rate)
    assert measured["most"] <= measured["wall"] * 1.001
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
    nominal = 0.2 * number
    with HostNoise() as noise:
        measured, _ = cpu("timer", nominal, rate)
    # The kernel counts for itimers by ticks, which on a busy machine hit the wrong process. It
    # looks at each timer at ticks, of which one may be late.
    late = slack(number) + noise.slack * number
    for timer, part in (("prof", 0.5), ("virtual", 0.5), ("posix", 0.1)):
        least, most = nominal * (1 - part) - slack(number), nominal * (1 + part) + late
        assert measured[timer] in oracle.Span(least, most), timer


@pytest.mark.parametrize("rate", ["10", "1/10"])
def test_cpu_clocks_may_be_left_as_the_hosts(rate):
    """--cpu-clocks real: a spinning program's CPU time is the real time it took."""
    measured, real = cpu("spin", 0.3, rate, ("--cpu-clocks", "real"))
    number = oracle.ratio(rate)
    assert measured["least"] >= 0.3
    assert measured["rusage"] in within(measured, TICK)
    assert measured["wall"] >= 0.3 * number * (1 - oracle.LATE)
    assert real < 0.3 * 10 + 5


@pytest.mark.parametrize("rate", ["10", "1/10"])
def test_the_value_of_times_moves_with_the_clock(rate):
    number = oracle.ratio(rate)
    measured, _ = cpu("idle", 0.5 * number, rate)
    assert measured["times_wall"] in within_wall(measured, 0.02)
    assert measured["process"] < 0.2 * measured["wall"]
