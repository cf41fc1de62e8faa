"""Files of /proc that tell time: CPU columns, scheduling, start times, System V objects."""

from __future__ import annotations

import functools
import sys

import pytest
from framework import oracle
from framework.build import PROGRAMS
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


@pytest.mark.parametrize("rate", RATES)
def test_the_cpu_columns_pass_as_the_uptime_does(rate):
    """As in top and vmstat: shares of the difference between two reads of one descriptor."""
    told = inside("stat", rate, SPIN).line(ev="stat")
    slack = TICKS * oracle.ratio(rate) + 0.02
    assert told["elapsed"] == pytest.approx(told["uptime"], rel=0.1, abs=slack)
    assert told["busy"] >= told["own"] * 0.9 - slack
    assert told["pread_is_later"]
    assert told["opened"]


def test_the_cpu_columns_are_the_hosts_where_cpu_clocks_are():
    rate = "10"
    told = inside("stat", rate, SPIN, ("--cpu-clocks", "real")).line(ev="stat")
    slack = TICKS + 0.02
    assert told["elapsed"] == pytest.approx(told["uptime"] / 10, rel=0.1, abs=slack)
    assert told["busy"] >= told["own"] * 0.9 - slack


@pytest.mark.parametrize("rate", RATES)
def test_schedstat_agrees_with_the_cpu_clock_by_every_name(rate):
    running = inside("sched", rate, 0.3)
    for told in running.wait_for(7, ev="sched"):
        assert told["before"] <= told["run"] <= told["after"], told.data
        assert told["count"] >= 1
    child = running.line(ev="child")
    # The kernel's text lacks the CPU time since the last tick, and has that spent after the
    # question.
    assert child["run"] == pytest.approx(child["used"], abs=0.05 * oracle.ratio(rate))


@pytest.mark.parametrize("rate", RATES)
def test_a_tasks_cpu_time_is_what_times_tells(rate):
    told = inside("task", rate, 0.3).line(ev="task")
    assert told["stat"] == pytest.approx(told["times"], abs=TICKS * oracle.ratio(rate) + 0.03)
    assert told["name"] == "a) 1 2 (\n3"
    assert told["number_of_words"] == 50


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
        for told in inside.wait_for(20, ev="after"):
            for face in ("clock", "times", "rusage", "stat"):
                # times and stat are in whole ticks of user and of system time.
                assert told[face] >= latest - 0.021, (face, told.data)
            latest = told["clock"]


@pytest.mark.parametrize("options", [(), ("--at", "2038-01-19")], ids=["", "2038"])
@pytest.mark.parametrize("rate", RATES)
def test_a_start_is_told_in_virtual_time(rate, options):
    told = inside("task", rate, 0.3, options).line(ev="start")
    tick = 0.01 * oracle.ratio(rate) + 0.01
    assert told["began"] - tick <= told["start"] <= told["made"] + tick
    late = told["made"] - told["began"] + tick
    # ps cuts the uptime and the start to whole seconds.
    assert told["wall"] - late - 2 <= told["lstart"] <= told["wall"] + late + 2
    # ps reads the uptime at some time between the question and its answer.
    assert told["asked"] - late - 2 <= told["age"] <= told["answered"] + late + 2
    assert told["same"]


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
            told = inside.wait_for(count, ev="start")
            assert {line["ticks"] for line in told} == {told[0]["ticks"]}
            for rate in range(2, 42):
                inside.dilate(str(rate))


@pytest.mark.parametrize("options", [(), ("--at", "2038-01-19")], ids=["", "2038"])
@pytest.mark.parametrize("rate", RATES)
def test_the_times_of_system_v_objects_are_virtual(rate, options):
    """The kernel keeps whole seconds of the host's time."""
    running = inside("ipc", rate, 0.2, options)
    second = max(1, oracle.ratio(rate))
    for told in running.wait_for(3, ev="ipc"):
        assert told["proc"] == told["stat"]
        made = [value for value in told["proc"] if value]
        assert made, told.data
        for value in made:
            assert told["before"] - second - 1 <= value <= told["after"], told.data
        if told["kind"] == "msg":
            assert told["proc"][:2] == [0, 0], "never sent to nor received from"
        assert told["cat"]
