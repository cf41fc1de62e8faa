"""Pending expiries at a change are neither lost nor counted twice."""

from __future__ import annotations

import pytest
from framework import build
from framework.running import Inside, Native, Running

CASES = ("process", "thread", "descriptor")
FASTER = ("dilate", "--rate", "3")
SLOWER = ("dilate", "--rate", "1/3")
LEAP = ("leap", "--by", "1s")
#: Over three intervals of the program's timers.
FAR = ("leap", "--by", "60s")
FREEZE, UNFREEZE = ("freeze",), ("unfreeze",)

#: Changes, and how many expiries there are to take after them.
CHANGES = {
    "faster": ([FASTER], 1),
    "slower": ([SLOWER], 1),
    "leap": ([LEAP], 1),
    "several": ([FASTER, LEAP, SLOWER, LEAP, SLOWER], 1),
    "far": ([FAR], 4),
    "far, then slower": ([FAR, SLOWER], 4),
    "slower, far, slower twice": ([SLOWER, FAR, SLOWER, ("dilate", "--rate", "1/9")], 4),
    "far twice, in between faster": ([FAR, FASTER, FAR, SLOWER], 7),
    "frozen": ([FREEZE, UNFREEZE], 1),
    "frozen three times": ([FREEZE, UNFREEZE, SLOWER] * 3, 1),
    "far, frozen, faster": ([FAR, FREEZE, UNFREEZE, FASTER, FAR, FREEZE, UNFREEZE], 7),
}


def taken(run: Running, changes: list[tuple[str, ...]] = ()) -> dict[str, tuple]:
    """The expiries that each case takes after the changes."""
    with run:
        run.wait_for(len(CASES), ev="ready")
        for verb in changes:
            run.verb(*verb)
        run.close_stdin()
        done = run.wait_for(len(CASES), ev="done")
        run.succeed()
    found = ("ret", "err", "count", "again", "left")
    return {line["case"]: tuple(line[name] for name in found) for line in done}


def expected(count: int) -> dict[str, tuple]:
    """Checks the number of expiries, taken at once; the next one is less than an interval ahead."""
    rets = {"process": 10, "thread": 10, "descriptor": 8}
    return {case: (ret, 0, count, 0, 1) for case, ret in rets.items()}


def test_natively_one_expiry_waits():
    native = Native([build.c("changes/waiting_signal"), "0", *CASES], stdin=True)
    assert taken(native) == expected(1)


@pytest.mark.parametrize("kind", CHANGES)
def test_expiries_that_wait_are_taken_once(kind):
    """Linux 6.13 and newer drop the pending signal of a timer that is set anew. Only the signal's
    target thread sees it."""
    changes, count = CHANGES[kind]
    command = [build.c("changes/waiting_signal"), "0", *CASES]
    assert taken(Inside(*command, rate="1", stdin=True), changes) == expected(count)


@pytest.mark.parametrize("changes", [[], [SLOWER], [LEAP, SLOWER]], ids=["none", "slower", "leap"])
def test_an_interval_timer_whose_signal_waits_follows(changes):
    """The shim sets the timer's next expiry when the program takes the signal, by the clock's
    present rate."""
    command = [build.c("changes/waiting_signal"), "0", "interval"]
    with Inside(*command, rate="1", stdin=True) as run:
        run.line(ev="ready")
        for verb in changes:
            run.verb(*verb)
        run.close_stdin()
        assert run.line(ev="done")["early"] == 0
        run.succeed()
