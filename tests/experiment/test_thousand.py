"""A thousand containers in one experiment, on few processors."""

from __future__ import annotations

import os
import signal
import time

import pytest
from framework import build
from framework.experiments import SECOND, Diary, Experiment, until
from framework.needs import root

COUNT = 1_000
#: Virtual seconds.
LENGTH = 10
STEP = SECOND
TIMESLICE = 10_000_000


@pytest.mark.timeout(480)
def test_a_thousand_containers_for_ten_virtual_seconds(tmp_path):
    """Each sleeps in steps. At the end all are at the same virtual time. No sleeper woke early, and
    those that woke in a later round have later times."""
    root()
    diary = Diary(tmp_path / "diary", 40 * COUNT * LENGTH)
    flags = ("--most", str(COUNT), "--timeslice", "10ms", "--as-fast-as-possible")
    with Experiment(*flags) as experiment:
        program = [build.c("experiment/steps"), diary.path, "0", str(STEP), str(10**18)]
        names = experiment.populate(COUNT, *program)
        experiment.synchronize()
        status = experiment.status()
        assert len(status["containers"]) == COUNT
        (at,) = {one["virtual_ns"] for one in status["containers"]}
        began = time.monotonic()
        experiment.start()
        status = experiment.advance(LENGTH, timeout=300)
        took = time.monotonic() - began
        experiment.pause()
        status = experiment.status()
        assert {one["name"] for one in status["containers"]} >= set(names)
        assert len(status["containers"]) == COUNT
        ends = {one["virtual_ns"] for one in status["containers"]}
        assert ends == {at + status["virtual_ns"]}
        assert {one["perceived_overshoot_ns"] for one in status["containers"]} == {0}
        # A sleeper of the previous period may have been late.
        entries = [entry for entry in diary.entries() if entry[1] > at]
        experiment.ok("rm", timeout=60)
        for pid in {who for who, *_ in entries}:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not experiment.left(), "nothing is left", timeout=60)
    print(f"{COUNT} containers, {LENGTH} virtual seconds: {took:.1f} real seconds")
    # The first or the last of its steps may lie outside.
    assert len({who for who, *_ in entries}) == COUNT
    passed = status["virtual_ns"] / STEP
    assert (passed - 1) * COUNT <= len(entries) <= (passed + 1) * COUNT
    # A process may be stopped between its clock read and its write to the order.
    latest = 0
    for _, before, after in entries:
        assert after >= latest - TIMESLICE, "woke in an earlier round than one before"
        latest = max(latest, before)
