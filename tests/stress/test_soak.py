"""The tests of monotony for hours: `make soak`. LORENTZ_SOAK_MINUTES sets the length; default
60."""

from __future__ import annotations

import os
import time

import pytest
from framework import build, real
from framework.running import Inside
from test_monotony import Hammer

MINUTES = float(os.environ.get("LORENTZ_SOAK_MINUTES", "60"))
pytestmark = [pytest.mark.soak, pytest.mark.timeout(MINUTES * 60 + 600)]


def until(minutes: float):
    """Yields the seeds of rounds, each of which takes a while, until the time is up."""
    end = time.monotonic() + minutes * 60
    seed = 0
    while time.monotonic() < end:
        seed += 1
        yield seed


def test_clock_reads_for_long():
    with Inside(build.c("stress/hammer"), "6", stdin=True, rate="1") as inside:
        inside.line(ev="ready")
        for seed in until(MINUTES / 3):
            hammer = Hammer(inside, seed)
            for _ in range(1000):
                hammer.change()
            hammer.finish()
        inside.close_stdin()
        seen = inside.line(ev="hammer")
        inside.succeed()
    assert seen["backwards"] == 0, f"by up to {seen['worst_ns']} ns"
    assert (seen["boottime"], seen["raw"], seen["coarse"]) == (0, 0, 0)


def test_waits_for_long():
    for seed in until(MINUTES / 3):
        with Inside(build.c("stress/sleepers"), "48", str(5 * 10**6), stdin=True) as inside:
            inside.line(ev="ready")
            hammer = Hammer(inside, seed, steps=False)
            for _ in range(2000):
                hammer.change()
            hammer.finish()
            inside.close_stdin()
            kinds = inside.wait_for(12, ev="sleeper")
            inside.succeed()
        assert [k.data for k in kinds if k["early"] or k["wrong"]] == [], f"seed {seed}"


def test_runtimes_for_long():
    for seed in until(MINUTES / 3):
        program = real.PROGRAMS[seed % len(real.PROGRAMS)]
        real.check_at_rate(program, 2.0, "10")
