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


def hertz(measured: dict, field: str) -> oracle.Span:
    """Returns the bounds of the counter's cycles per second of the program's own clock."""
    return oracle.Span(measured[field] / measured["most"], measured[field] / measured["least"])


def check_agree(one: oracle.Span, other: oracle.Span, rel: float) -> None:
    """Checks that one frequency can be in both spans, but for a relative difference."""
    assert one.least <= other.most * (1 + rel) and one.most >= other.least * (1 - rel), (one, other)


@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
def test_the_time_stamp_counter_keeps_virtual_time(rate):
    """The counter's cycles per second of the program's own clock are the machine's, at any rate."""
    feature("tsc-trap")
    native = hertz(counter(None), "cycles")
    measured = counter(rate, ("--trap-tsc",))
    assert measured["ordered"]
    for field in ("cycles", "cycles_p"):
        check_agree(hertz(measured, field), native, rel=0.02)


def test_the_time_stamp_counter_is_the_machines_by_default():
    native = hertz(counter(None), "cycles")
    measured = hertz(counter("10"), "cycles")
    check_agree(measured, oracle.Span(native.least / 10, native.most / 10), rel=0.1)
