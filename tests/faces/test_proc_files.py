"""Files of /proc that tell time: CPU columns, scheduling, start times, System V objects."""

from __future__ import annotations

import functools
import sys

import pytest
from framework import oracle
from framework.build import PROGRAMS
from framework.oracle import HostNoise
from framework.running import Inside

PROGRAM = PROGRAMS / "faces" / "proc_files.py"
#: Real seconds that a program computes.
SPIN = 1.0
#: Two ticks of the kernel's accounting, one on each processor, real seconds.
TICKS = 0.04
RATES = ["1", "10", "1/10"]


@functools.cache
def inside(what: str, rate: str, seconds: float, options: tuple[str, ...] = ()) -> Inside:
    number = oracle.ratio(rate)
    command = [sys.executable, PROGRAM, what, str(seconds * number)]
    with Inside(*command, rate=rate, options=options) as running:
        return running.succeed(timeout=60)


def check_columns(event: dict, rate: float, scale: float, noise: HostNoise) -> None:
    """Checks the columns, which are of `scale` seconds for each second of the host's, against the
    uptime around the looks at them and against the CPU time within. A CPU that stands still counts
    no ticks."""
    slack, lost = TICKS * scale + 0.02, noise.slack * scale
    least, most = (event[name] * scale / rate for name in ("least", "most"))
    assert least * 0.9 - slack - lost <= event["elapsed"] <= most * 1.1 + slack
    assert event["busy"] >= event["own"] * 0.9 - slack - lost


@pytest.mark.parametrize("rate", RATES)
def test_the_cpu_columns_pass_as_the_uptime_does(rate):
    """As in top and vmstat: shares of the difference between two reads of one descriptor."""
    with HostNoise() as noise:
        event = inside("stat", rate, SPIN).line(ev="stat")
    check_columns(event.data, oracle.ratio(rate), oracle.ratio(rate), noise)
    assert event["pread_is_later"]
    assert event["opened"]


def test_the_cpu_columns_are_the_hosts_where_cpu_clocks_are():
    rate = "10"
    with HostNoise() as noise:
        event = inside("stat", rate, SPIN, ("--cpu-clocks", "real")).line(ev="stat")
    check_columns(event.data, oracle.ratio(rate), 1, noise)


@pytest.mark.parametrize("rate", RATES)
def test_schedstat_agrees_with_the_cpu_clock_by_every_name(rate):
    running = inside("sched", rate, 0.3)
    for event in running.wait_for(7, ev="sched"):
        assert event["before"] <= event["run"] <= event["after"], event.data
        assert event["count"] >= 1
    child = running.line(ev="child")
    # The kernel's text lacks the CPU time since the last tick, and has that spent since the child
    # looked: no more than time has passed.
    off = 0.05 * oracle.ratio(rate)
    assert child["used"] - off <= child["run"] <= child["used"] + child["since"] + off


@pytest.mark.parametrize("rate", RATES)
def test_a_tasks_cpu_time_is_what_times_tells(rate):
    event = inside("task", rate, 0.3).line(ev="task")
    off = TICKS * oracle.ratio(rate) + 0.03
    assert event["before"] - off <= event["stat"] <= event["after"] + off
    assert event["name"] == "a) 1 2 (\n3"
    assert event["number_of_words"] == 50


def test_own_cpu_time_does_not_go_back_when_the_rate_falls():
    """By no face, in any order of reading. Some faces are rounded down, and are read after the
    clock."""
    with Inside(sys.executable, PROGRAM, "slower", "5", rate="10", stdin=True) as inside:
        before = inside.line(ev="ready")["cpu"]
        inside.dilate("1")
        inside.process.stdin.write(b"\n")
        inside.process.stdin.flush()
        inside.succeed()
        latest = before
        for event in inside.wait_for(20, ev="after"):
            for face in ("clock", "times", "rusage", "stat"):
                # times and stat are in whole ticks of user and of system time.
                assert event[face] >= latest - 0.021, (face, event.data)
            latest = event["clock"]


@pytest.mark.parametrize("options", [(), ("--at", "2038-01-19")], ids=["", "2038"])
@pytest.mark.parametrize("rate", RATES)
def test_a_start_is_told_in_virtual_time(rate, options):
    event = inside("task", rate, 0.3, options).line(ev="start")
    tick = 0.01 * oracle.ratio(rate) + 0.01
    assert event["began"] - tick <= event["start"] <= event["made"] + tick
    late = event["made"] - event["began"] + tick
    # ps cuts the uptime and the start to whole seconds. It reads the two clocks one after the
    # other, between the question and its answer.
    off = late + 2 + event["answered"] - event["asked"]
    assert event["wall"] - off <= event["lstart"] <= event["wall"] + off
    # ps reads the uptime at some time between the question and its answer.
    assert event["asked"] - late - 2 <= event["age"] <= event["answered"] + late + 2
    assert event["same"]


def test_a_start_stays_the_same_for_its_reader():
    """The start identifies a process: Java ends no child with a changed start. Here the clock has
    forgotten old pieces."""
    with Inside(sys.executable, PROGRAM, "identity", rate="1", stdin=True) as inside:
        inside.wait_until_shown()
        for rate in ("100", "1"):
            inside.dilate(rate)
        for count in range(1, 4):
            inside.process.stdin.write(b"\n")
            inside.process.stdin.flush()
            events = inside.wait_for(count, ev="start")
            assert {line["ticks"] for line in events} == {events[0]["ticks"]}
            for rate in range(2, 42):
                inside.dilate(str(rate))


@pytest.mark.parametrize("options", [(), ("--at", "2038-01-19")], ids=["", "2038"])
@pytest.mark.parametrize("rate", RATES)
def test_the_times_of_system_v_objects_are_virtual(rate, options):
    """The kernel keeps whole seconds of the host's time."""
    running = inside("ipc", rate, 0.2, options)
    second = max(1, oracle.ratio(rate))
    for event in running.wait_for(3, ev="ipc"):
        assert event["proc"] == event["stat"]
        made = [value for value in event["proc"] if value]
        assert made, event.data
        for value in made:
            assert event["before"] - second - 1 <= value <= event["after"], event.data
        if event["kind"] == "msg":
            assert event["proc"][:2] == [0, 0], "never sent to nor received from"
        assert event["cat"]
