"""Two files written before and after a leap: their times differ by the leap. No file is older than
the clock by more than a tick.

The kernel stamps files with the time of its last tick. That tick may precede the leap: within 4 ms
there are many files and many leaps.
"""

from __future__ import annotations

import os
import re
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from framework import build, lorentz, oracle
from framework.experiments import SECOND, Experiment
from framework.oracle import HostNoise
from framework.running import Inside, Line, Native, Running

CLOCK_MONOTONIC_COARSE = 6
L = str(lorentz.session.binary)
#: Real seconds between two ticks of the kernel's coarse clock.
TICK = time.clock_getres(CLOCK_MONOTONIC_COARSE)
RATES = ["1", "10", "1000"]


def stamps_are_fine() -> bool:
    """Linux 6.13 and later: after a read of a timestamp, the next one is finer."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(version[1]), int(version[2])) >= (6, 13)


def order(between: str, rate: str, folder: Path, options: Sequence[str] = ()) -> Line:
    """Writes two files, with `between` in between, forty times. Checks what holds for all of them:
    the second file is never older than what a clock of the kernel's ticks showed just before it.
    """
    command = [build.c("faces/order"), "40", between]
    inside = Inside(*command, name="order", rate=rate, options=options, cwd=folder)
    with HostNoise() as noise, inside:
        inside.succeed(timeout=80)
        seen = inside.line(ev="order")
    assert (seen["older"], seen["earlier"]) == (0, 0)
    check_age(inside, oracle.ratio(rate), noise.slack)
    return seen


def check_age(inside: Running, rate: float, slack: float, more: float = 0) -> None:
    """Checks by how much the files are older than the fine clock: a tick times the rate, `more`
    virtual seconds, and `slack` where the kernel itself is late with a tick."""
    behind = [line["behind"] / SECOND for line in inside.lines(ev="file")]
    assert max(behind) <= (TICK + slack) * rate + more
    assert statistics.median(behind) <= 1.5 * TICK * rate + more


def check_order(seen: Line) -> None:
    """Checks that the leap lies between the files. Before Linux 6.13 a file of the last tick before
    the leap may show another time after it, as docs/limits.md says."""
    assert seen["close"] == 0
    if stamps_are_fine():
        assert seen["moved"] == 0


@pytest.mark.parametrize("rate", ["1", "10"])
@pytest.mark.parametrize("between", ["", "sleep 2"], ids=["alone", "by a child"])
def test_a_sleep_that_is_skipped_lies_between_two_files(between, rate, tmp_path):
    check_order(order(between, rate, tmp_path, ["--skip-idle"]))


def test_natively_no_file_is_older_than_the_kernels_ticks(tmp_path):
    """The rule that the other tests hold the container to."""
    with Native([build.c("faces/order"), "60", "sleep 0.01"], cwd=tmp_path) as native:
        native.succeed(timeout=60)
        seen = native.line(ev="order")
    assert (seen["older"], seen["earlier"]) == (0, 0)


@pytest.mark.parametrize("rate", RATES)
def test_a_leap_lies_between_two_files(rate, tmp_path):
    check_order(order(f"{L} leap order --by 1h", rate, tmp_path))


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("to", ["1/10", "5"])
def test_files_written_behind_a_change_of_the_rate(to, rate, tmp_path):
    """At a slower and a faster rate: never older than an earlier reading of the coarse clock."""
    order(f"{L} dilate order --rate {rate}; {L} dilate order --rate {to}", to, tmp_path)


@pytest.mark.parametrize("rate", RATES)
def test_a_file_is_older_than_the_clock_by_a_tick_at_most(rate, tmp_path):
    """Behind a real sleep of some ticks, as long as which the kernel's stamp may be old."""
    order(f"sleep {0.01 * oracle.ratio(rate)}", rate, tmp_path)


@pytest.mark.parametrize("tdf", ["1", "1/10"])
def test_in_rounds_a_file_may_be_older_by_a_timeslice_more(tdf, tmp_path):
    """A clock in rounds stands and runs within a tick; a coarse clock shows the last slice's start
    at the earliest, which a file may precede."""
    rate = 1 / oracle.ratio(tdf)
    program = [build.c("faces/order"), "10", f"sleep {0.2 * rate}"]
    with HostNoise() as noise, Experiment() as experiment:
        inside = experiment.run(*program, tdf=tdf, cwd=tmp_path)
        experiment.synchronize()
        timeslice = experiment.status()["timeslice_ns"] / SECOND
        experiment.start()
        inside.succeed(timeout=80)
        check_age(inside, rate, noise.slack, more=timeslice)
