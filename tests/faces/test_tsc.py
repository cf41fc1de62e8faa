"""--trap-tsc: rdtsc and rdtscp tell virtual time; without it they tell the machine's."""

from __future__ import annotations

import pytest
from framework import build, oracle
from framework.needs import feature
from framework.running import Inside, Native


def counter(rate: str | None, options: tuple[str, ...] = ()) -> dict:
    """Returns the ticks of the time-stamp counter during a real sleep of 0.3 s."""
    nominal = 0.3 * oracle.ratio(rate or "1")
    program = [build.c("faces/tsc"), str(round(nominal * 1e9))]
    running = Native(program) if rate is None else Inside(*program, rate=rate, options=options)
    with running:
        running.succeed()
        return running.line(ev="tsc").data


@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
def test_the_time_stamp_counter_keeps_virtual_time(rate):
    """The counter's cycles per second of the program's own clock are the machine's, at any rate."""
    feature("tsc-trap")
    native = counter(None)
    hertz = native["cycles"] / native["elapsed"]
    measured = counter(rate, ("--trap-tsc",))
    assert measured["ordered"]
    for field in ("cycles", "cycles_p"):
        assert measured[field] / measured["elapsed"] == pytest.approx(hertz, rel=0.02), field


def test_the_time_stamp_counter_is_the_machines_by_default():
    native = counter(None)
    hertz = native["cycles"] / native["elapsed"]
    measured = counter("10")
    assert measured["cycles"] / measured["elapsed"] == pytest.approx(hertz / 10, rel=0.1)
