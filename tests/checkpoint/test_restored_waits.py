"""Waits and timers over a checkpoint: each ends at its virtual deadline."""

from __future__ import annotations

import functools
import os
import tempfile
import threading
import time
from fractions import Fraction
from pathlib import Path

import pytest
from framework import build, checkpoints
from framework.checkpoints import Restored, save
from framework.oracle import HostNoise
from framework.running import Inside, Line, Native

#: Length of each wait, s, and of the part before the checkpoint: virtual seconds, and at rates
#: above 1 real ones, so that the checkpoint comes in time.
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
#: Restored while the program goes on, into a process id namespace of its own.
BESIDE = -1.0
#: rate, seconds away.
RUNS = [("1", 0), ("1", 4), ("2", 4), ("10", 4), ("1/10", 1), ("1", BESIDE)]
IDS = [f"{rate}-{'beside' if away == BESIDE else f'{away}s'}" for rate, away in RUNS]
#: Period of the timers that repeat, virtual s.
PERIOD = 0.25
#: Latest end after the deadline, real s.
LATE = 0.005


def length(rate: str) -> float:
    """The length of each wait at a rate, virtual s."""
    return LENGTH * max(1.0, float(Fraction(rate)))


class Peers:
    """Runs the same program natively, again and again while the block runs: how late this machine
    ends sixteen waits at once."""

    #: Length of its waits, s.
    LENGTH = 1.0

    def __init__(self) -> None:
        self.worst = 0.0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Peers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            with Native([build.c("checkpoint/waits"), str(self.LENGTH)]) as native:
                native.succeed()
                done = native.lines(ev="done")
                late = [float(line["elapsed"]) - self.LENGTH for line in done]
                late += [float(line["late"]) for line in native.lines(ev="phase")]
                self.worst = max(self.worst, *late)


@functools.cache
def run(rate: str, away: float) -> tuple[list[list[Line]], float]:
    """Runs the program over a checkpoint. Returns the lines of each life to its end, and the
    machine's own lateness."""
    checkpoints.criu()
    speed = float(Fraction(rate))
    options = ["--leave-running"] if away == BESIDE else []
    with (
        tempfile.TemporaryDirectory(prefix="lorentz-checkpoint-") as folder,
        HostNoise() as noise,
        Peers() as peers,
    ):
        program = (build.c("checkpoint/waits"), str(length(rate)))
        with Inside(*program, rate=rate) as inside:
            inside.line(ev="ready")
            time.sleep(BEFORE / min(speed, 1.0))
            directory = save(inside, Path(folder) / "saved", *options)
            if away != BESIDE:
                inside.finish()
                time.sleep(away)
            with Restored(directory, f"r{os.getpid()}") as restored:
                restored.wait_for(len(KINDS), length(rate) / speed + 20, ev="done")
                restored.wait_for(2, 20, ev="phase")
                restored.wait_until_ended()
                if away == BESIDE:
                    inside.succeed()
                    lives = [inside.lines(), restored.lines()]
                else:
                    lives = [inside.lines() + restored.lines()]
    return lives, max(noise.worst, peers.worst)


@pytest.mark.parametrize("rate, away", RUNS, ids=IDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_wait_ends_at_its_virtual_deadline(kind, rate, away):
    lives, noise = run(rate, away)
    for lines in lives:
        (done,) = [line for line in lines if line.says({"ev": "done", "kind": kind})]
        assert done["err"] == 0
        late = (done["elapsed"] - length(rate)) / float(Fraction(rate))
        assert 0 <= late < LATE + noise


@pytest.mark.parametrize("rate, away", RUNS, ids=IDS)
@pytest.mark.parametrize("kind", ["timerfd", "posix_timer"])
def test_a_repeating_timer_keeps_its_phase(kind, rate, away):
    lives, noise = run(rate, away)
    for lines in lives:
        (phase,) = [line for line in lines if line.says({"ev": "phase", "kind": kind})]
        assert phase["count"] >= length(rate) * 4
        assert (phase["early"], phase["lost"]) == (0, 0)
        # Only a machine that was as late as that is behind three times in a row.
        assert phase["behind"] * PERIOD / float(Fraction(rate)) < LATE + noise
        assert phase["late"] / float(Fraction(rate)) < LATE + noise
