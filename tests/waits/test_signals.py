"""Signals in the midst of waits: EINTR, SA_RESTART, stops, masks, stacks, jumps."""

from __future__ import annotations

import pytest
from framework import oracle, waits
from framework.build import C_FLAVOURS
from framework.catalogue import SIGNALS, Case

RATES = ("1", "10", "1/10")
#: Nominal seconds, two real ones; a signal comes when half of it has passed. If one of the two
#: processes stands still, the signal still comes in the midst of the wait.
NOMINAL = {None: 2.0, "1": 2.0, "10": 20.0, "1/10": 0.2}
#: Part of it for which a case `stopcont` stops the wait (programs/waits/signals.c). Natively poll's
#: timeout goes on meanwhile; inside it does not (docs/limits.md).
STOPPED = 0.1


def run(case: Case, flavour: str, rate: str | None) -> tuple[waits.Result, float]:
    results = waits.run(
        "signals", tuple(SIGNALS), rate=rate, nominal=NOMINAL[rate], flavour=flavour
    )
    return results.of(case), results.slack


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("flavour", C_FLAVOURS)
@pytest.mark.parametrize("case", SIGNALS, ids=str)
def test_an_interrupted_wait_ends_as_the_kernel_ends_it(case, flavour, rate):
    """Result, errno, handlers run and masks left behind are as natively. The wait lasts as long as
    there, by the program's own clock, and the remaining time is virtual."""
    native, native_slack = run(case, flavour, None)
    inside, slack = run(case, flavour, rate)
    assert oracle.same(inside.data) == oracle.same(native.data)

    nominal, number = NOMINAL[rate], oracle.ratio(rate)
    late = oracle.LATE_COARSE if case.coarse else oracle.LATE
    tolerance = late * nominal + (slack + native_slack) * number
    expect = native.data["elapsed"] / NOMINAL[None] * nominal
    if str(case) == "stopcont:poll":
        expect += STOPPED * nominal
    assert inside.data["elapsed"] == pytest.approx(expect, abs=tolerance)
    assert inside.real * number == pytest.approx(inside.data["elapsed"], abs=tolerance)
    if inside.data.get("remaining", -1) > 0:
        left = native.data["remaining"] / NOMINAL[None] * nominal
        assert inside.data["remaining"] == pytest.approx(left, abs=tolerance)
