"""Clocks over a checkpoint: each goes on where it stood."""

from __future__ import annotations

import json
import os
import sys
import time
from fractions import Fraction
from pathlib import Path

import pytest
from framework import build, checkpoints, lorentz
from framework.build import PROGRAMS
from framework.checkpoints import Restored, save
from framework.needs import feature
from framework.oracle import HostNoise
from framework.running import Inside, Line

LOOKS = PROGRAMS / "checkpoint" / "clocks.py"
CPU = {"PROCESS_CPUTIME_ID", "THREAD_CPUTIME_ID"}
#: Upper bound of the difference between the last look before and the first after: a period, two
#: looks and the work of the kernel, real s.
STEP = 0.5
#: Seconds between checkpoint and restore.
AWAY = 3.0


@pytest.fixture(autouse=True)
def _criu():
    checkpoints.criu()


def names() -> str:
    names.count = getattr(names, "count", 0) + 1
    return f"c{os.getpid()}-{names.count}"


def looking(folder: Path, **options: object) -> Inside:
    return Inside(sys.executable, LOOKS, folder / "file", **options)


def last_look(lines: list[Line], thread: str) -> dict:
    return [line for line in lines if line.says({"ev": "look", "thread": thread})][-1].data


def over(tmp_path: Path, away: float, *how: str, **options: object) -> tuple[Inside, Restored]:
    """Runs the program, checkpoints it after a second, and prepares the restore."""
    with looking(tmp_path, **options) as inside:
        inside.wait_for(40, ev="look")
        directory = save(inside, tmp_path / "saved")
        inside.finish()
    time.sleep(away)
    return inside, Restored(directory, names(), *how)


@pytest.mark.parametrize("rate", ["1/10", "1", "2", "10"])
def test_every_clock_goes_on(rate, tmp_path):
    speed = float(Fraction(rate))
    with HostNoise() as noise:
        inside, restored = over(tmp_path, AWAY, at="2038-01-19", rate=rate)
        with restored:
            for thread in ("first", "second"):
                restored.line(ev="look", thread=thread)
    most = STEP * max(speed, 1) + 0.03 + speed * noise.slack
    for thread in ("first", "second"):
        before = last_look(inside.lines(), thread)
        after = restored.lines(ev="look", thread=thread)[0].data
        for clock in set(before) - {"ev", "thread"}:
            gained = after[clock] - before[clock]
            assert 0 <= gained < most, (thread, clock, gained)


def test_a_restored_clock_stands_at_the_very_time(tmp_path):
    _, restored = over(tmp_path, AWAY, "--frozen", at="2038-01-19", rate="10")
    saved = json.loads((tmp_path / "saved" / "lorentz.json").read_text())["checkpoint"]
    with restored:
        shown = restored.time()
        assert shown["state"] == "frozen"
        assert shown["monotonic_ns"] == saved["monotonic_ns"]
        assert restored.lines() == []
        time.sleep(0.3)
        assert restored.lines() == []
        restored.verb("unfreeze")
        restored.line(ev="look")


def test_a_container_that_was_frozen_stays_frozen(tmp_path):
    with looking(tmp_path) as inside:
        inside.wait_for(10, ev="look")
        inside.freeze()
        directory = save(inside, tmp_path / "saved")
        inside.finish()
    with Restored(directory, names()) as restored:
        assert restored.time()["state"] == "frozen"
        restored.verb("unfreeze")
        restored.line(ev="look")


def test_cpu_clocks_go_on_in_a_second_life_too(tmp_path):
    with HostNoise() as noise:
        inside, restored = over(tmp_path, 0)
        before = last_look(inside.lines(), "first")
        with restored:
            restored.wait_for(40, ev="look")
            directory = tmp_path / "again"
            lorentz.ok("checkpoint", restored.name, "-o", str(directory))
        between = last_look(restored.lines(), "first")
        with Restored(directory, names()) as again:
            after = again.line(ev="look", thread="first").data
    # The kernel counts what a hypervisor takes from a running thread.
    step = STEP + noise.slack
    for clock in CPU:
        assert 0 < before[clock] < between[clock] <= after[clock] < between[clock] + step


def test_the_cpu_clocks_of_many_threads_go_on(tmp_path):
    """Nearly as many threads as Lorentz keeps apart (79), with ids that begin at the same ones."""
    with Inside(build.c("clocks/cpu_of_many"), "70", stdin=True) as inside:
        inside.line(ev="ready")
        directory = save(inside, tmp_path / "saved")
        inside.finish()
    with Restored(directory, names(), stdin=True) as restored:
        restored.process.stdin.write(b"\n")
        restored.process.stdin.flush()
        found = restored.line(ev="read")
    assert (found["threads"], found["back"]) == (70, 0)


@pytest.mark.parametrize("rate", ["1/10", "1", "10"])
def test_the_time_stamp_counter_goes_on_where_it_is_trapped(rate, tmp_path):
    """On each thread, by as much as the clock."""
    feature("tsc-trap")
    program = build.c("checkpoint/tsc")
    with Inside(program, rate=rate, options=["--trap-tsc"]) as inside:
        inside.wait_for(20, ev="look")
        directory = save(inside, tmp_path / "saved")
        inside.finish()
    time.sleep(AWAY)
    with HostNoise() as noise, Restored(directory, names()) as restored:
        restored.wait_for(20, ev="look")
    # A thread may lose its processor between its look at the clock and that at the counter.
    most = (0.01 + noise.slack) * max(1, Fraction(rate))
    for thread in (1, 2):
        mine = {"ev": "look", "thread": thread}
        looks = [line.data for line in inside.lines() + restored.lines() if line.says(mine)]
        per_second = looks[0]["ticks"] / looks[0]["clock"]
        assert len(looks) > 4
        for one, other in zip(looks, looks[1:], strict=False):
            gained = (other["ticks"] - one["ticks"]) / per_second
            assert abs(gained - (other["clock"] - one["clock"])) < most, (one, other)


@pytest.mark.parametrize("wall", ["keep", "host"])
def test_the_error_of_a_clock_goes_on(wall, tmp_path):
    """By its own time, to the nanosecond: its drift, and what adjtimex has asked for."""
    told = ["offset_ns", "drift_ppm", "frequency_ppm", "status"]
    with looking(tmp_path, options=["--clock-error", "offset=250ms,drift=+80ppm"]) as inside:
        inside.wait_for(10, ev="look")
        lorentz.ok("clock", "leap-second", inside.name, "insert")
        inside.freeze()
        before = lorentz.json_of("clock", "show", inside.name)
        directory = save(inside, tmp_path / "saved")
        inside.finish()
    time.sleep(1)
    assert before["offset_ns"] > 250e6 and before["frequency_ppm"] == pytest.approx(80)
    with Restored(directory, names(), "--wall", wall) as restored:
        after = lorentz.json_of("clock", "show", restored.name)
        assert {key: after[key] for key in told} == {key: before[key] for key in told}
        restored.verb("unfreeze")
        restored.line(ev="look")
        lorentz.ok("clock", "drift", restored.name, "0ppm")
        assert restored.time()["rate"] == "1"


def test_wall_host_moves_the_wall_clock_alone(tmp_path):
    with HostNoise() as noise:
        inside, restored = over(tmp_path, AWAY, "--wall", "host")
        earliest = time.time()
        with restored:
            restored.wait_for(2, ev="look", thread="first")
            latest = time.time()
    before = last_look(inside.lines(), "first")
    # It may have read the clocks for the first line before the checkpoint.
    after = restored.lines(ev="look", thread="first")[1].data
    assert after["REALTIME"] - before["REALTIME"] > AWAY
    assert earliest - 0.5 < after["REALTIME"] < latest + 0.5
    assert after["MONOTONIC"] - before["MONOTONIC"] < STEP + noise.slack


CANCELLED = """
import ctypes, errno, json, os, time
libc = ctypes.CDLL(None, use_errno=True)
fd = libc.timerfd_create(time.CLOCK_REALTIME, 0)
ABSTIME, CANCEL_ON_SET = 1, 2
value = (ctypes.c_long * 4)(0, 0, int(time.time()) + 1000, 0)
assert libc.timerfd_settime(fd, ABSTIME | CANCEL_ON_SET, value, None) == 0
print(json.dumps({"ev": "ready"}), flush=True)
try:
    os.read(fd, 8)
except OSError as error:
    print(json.dumps({"ev": "read", "error": errno.errorcode[error.errno]}), flush=True)
"""


@pytest.mark.parametrize("wall", ["keep", "host"])
def test_a_timer_that_is_to_be_cancelled_is_told_of_a_new_wall_clock(wall, tmp_path):
    with Inside(sys.executable, "-c", CANCELLED) as inside:
        inside.line(ev="ready")
        directory = save(inside, tmp_path / "saved")
        inside.finish()
    time.sleep(1)
    with Restored(directory, names(), "--wall", wall) as restored:
        if wall == "host":
            assert restored.line(ev="read")["error"] == "ECANCELED"
        else:
            time.sleep(0.5)
            assert restored.lines() == []


def test_leave_running_costs_no_virtual_time(tmp_path):
    with HostNoise() as noise, looking(tmp_path) as inside:
        inside.wait_for(10, ev="look")
        save(inside, tmp_path / "saved", "--leave-running")
        seen = len(inside.lines(ev="look"))
        looks = [line["MONOTONIC"] for line in inside.wait_for(seen + 10, ev="look")]
        assert inside.time()["state"] == "running"
    assert max(b - a for a, b in zip(looks, looks[1:], strict=False)) < STEP + noise.slack
