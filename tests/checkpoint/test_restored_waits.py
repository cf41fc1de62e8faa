"""Waits and timers over a checkpoint: each ends at its virtual deadline."""

from __future__ import annotations

import functools
import os
import tempfile
import time
from fractions import Fraction
from pathlib import Path

import pytest
from framework import build, checkpoints
from framework.checkpoints import Restored, save
from framework.oracle import HostNoise
from framework.running import Inside

#: Length of each wait, virtual s, and of the part before the checkpoint.
LENGTH = 6.0
BEFORE = 2.0
KINDS = [
    "nanosleep",
    "clock_nanosleep",
    "clock_nanosleep_abs",
    "sem_timedwait",
    "cond_timedwait",
    "futex",
    "sigtimedwait",
    "poll",
    "ppoll",
    "select",
    "pselect",
    "epoll_wait",
    "recv",
    "timerfd",
    "posix_timer",
    "itimer",
]
#: rate, seconds away.
RUNS = [("1", 0), ("1", 4), ("2", 4), ("10", 4), ("1/10", 1)]
#: Latest end after the deadline, real s.
LATE = 0.005


@functools.cache
def run(rate: str, away: float) -> tuple[list, float]:
    """Runs the program over a checkpoint. Returns its lines, and the machine's own lateness."""
    checkpoints.criu()
    speed = float(Fraction(rate))
    folder = Path(tempfile.mkdtemp(prefix="lorentz-checkpoint-"))
    with HostNoise() as noise:
        program = (build.c("checkpoint/waits"), str(LENGTH))
        with Inside(*program, rate=rate) as inside:
            inside.line(ev="ready")
            time.sleep(BEFORE / speed)
            directory = save(inside, folder / "saved")
            inside.finish()
        time.sleep(away)
        with Restored(directory, f"r{os.getpid()}") as restored:
            restored.wait_for(len(KINDS), LENGTH / speed + 20, ev="done")
            restored.wait_for(2, 20, ev="phase")
            restored.wait_until_ended()
            lines = inside.lines() + restored.lines()
    return lines, noise.worst


@pytest.mark.parametrize("rate, away", RUNS, ids=[f"{rate}-{away}s" for rate, away in RUNS])
@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_ends_at_its_virtual_deadline(kind, rate, away):
    lines, noise = run(rate, away)
    (done,) = [line for line in lines if line.says({"ev": "done", "kind": kind})]
    assert done["err"] == 0
    late = (done["elapsed"] - LENGTH) / float(Fraction(rate))
    assert 0 <= late < LATE + noise


@pytest.mark.parametrize("rate, away", RUNS, ids=[f"{rate}-{away}s" for rate, away in RUNS])
@pytest.mark.parametrize("kind", ["timerfd", "posix_timer"])
def test_a_repeating_timer_keeps_its_phase(kind, rate, away):
    lines, noise = run(rate, away)
    (phase,) = [line for line in lines if line.says({"ev": "phase", "kind": kind})]
    assert phase["count"] == LENGTH * 4
    assert phase["late"] / float(Fraction(rate)) < LATE + noise
