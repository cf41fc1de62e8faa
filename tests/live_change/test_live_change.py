"""The clock is changed while programs wait: every wait and armed timer follows, at once.

Each scenario runs all cases of all families at the same time in one container, once as processes
and once as threads, changes the clock in mid-wait and notes when each case ended. The tests then
look at one case each.
"""

from __future__ import annotations

import errno
import functools
import time
from dataclasses import dataclass

import pytest
from framework import oracle, waits
from framework.catalogue import WAITS, Case
from framework.running import Inside

LIVE = [case for case in WAITS if case.live]
FAMILIES = ("sleep", "poll", "futex", "ipc", "timers")
#: Real seconds from a program's "ready" until it is in its wait.
SETTLE = 0.3
#: Real seconds within which "at once" is: a change, its wake-ups, the lines printed.
AT_ONCE = 0.75
#: Length of a wait, virtual seconds; no wait lasts that long in real time.
LONG = 100.0
#: Length of a wait at rate 1, s. All cases have begun, and the clock has been changed, before one
#: of them ends.
SHORT = 3.0


@dataclass(frozen=True)
class Outcome:
    """Outcome of a scenario: each case's result, the times of the scenario's marks, the slack."""

    results: waits.Results
    marks: dict[str, float]

    @property
    def slack(self) -> float:
        return self.results.slack

    def of(self, case: Case) -> waits.Result:
        return self.results.of(case)


class Scenario:
    """All live cases in one container, and a log of the changes."""

    def __init__(self, nominal: float, rate: str, threads: bool) -> None:
        lines = []
        self.cases = [case for case in LIVE if case.threads or not threads]
        self.count = len(self.cases)
        for family in FAMILIES:
            cases = [case for case in self.cases if case.family == family]
            command = waits.command(family, "dynamic", nominal, cases, threads)
            lines.append(" ".join(map(str, command)) + " &")
        self.inside = Inside("/bin/sh", "-c", "\n".join([*lines, "wait"]), rate=rate)
        self.marks: dict[str, float] = {}

    def __enter__(self) -> Scenario:
        self.noise = oracle.HostNoise().__enter__()
        self.inside.__enter__()
        try:
            self.inside.wait_for(self.count, ev="ready")
        except BaseException:
            self.__exit__()
            raise
        time.sleep(SETTLE)
        return self

    def __exit__(self, *_: object) -> None:
        self.noise.__exit__()
        self.inside.__exit__()

    def do(self, mark: str, verb: str, *arguments: str) -> None:
        """Changes the clock. Records the begin and the end of the command."""
        self.marks[mark] = time.monotonic()
        self.inside.verb(verb, *arguments)
        self.marks[f"{mark}-done"] = time.monotonic()

    def mark(self, name: str) -> None:
        self.marks[name] = time.monotonic()

    def await_ends(self, cases: list[Case], patience: float) -> None:
        """Waits until these cases have ended; gives up silently after `patience`."""
        names = {case.name for case in cases}
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline:
            if names <= {line["case"] for line in self.inside.lines(ev="done")}:
                break
            time.sleep(0.01)

    def outcome(self, patience: float) -> Outcome:
        waits.gather(self.inside, self.count, patience)
        complaint = f"{self.inside.stdout[-800:]}\n{self.inside.stderr[-800:]}"
        results = waits.Results(waits.collect(self.inside), self.noise.slack, complaint)
        return Outcome(results, self.marks)


def parametrized(cases: list[Case]) -> pytest.MarkDecorator:
    """Each case as a process, and where it can, as a thread of one process with the others."""
    both = [(c, t) for c in cases for t in (False, True) if c.threads or not t]
    ids = [f"{case}-{'thread' if threads else 'process'}" for case, threads in both]
    return pytest.mark.parametrize(("case", "threads"), both, ids=ids)


def check_own(case: Case, outcome: Outcome, nominal: float, rate: float) -> None:
    """Checks that by its own clock it lasted `nominal`, at the highest rate it had."""
    span = oracle.own(nominal, rate, outcome.slack + 0.05, late=waits.late(case))
    took = outcome.of(case).data["elapsed"]
    assert took in span, f"by its own clock {took:.3f}, not in {span}"


def check_ok(case: Case, outcome: Outcome) -> None:
    """The result is the one of a wait that went to its end undisturbed."""
    native, _ = waits.standard(case, "dynamic", None)
    if native.data["err"] == errno.ENOSYS:
        pytest.skip(f"this kernel does not have the call of {case.name}")
    result = outcome.of(case).data
    assert (result["ret"], result["err"]) == (native.data["ret"], native.data["err"])


# ------------------------------------------------------------------------------------------ dilate


@functools.cache
def sped_up(threads: bool) -> Outcome:
    """100 virtual seconds at rate 1, then rate 100."""
    with Scenario(LONG, "1", threads) as scenario:
        scenario.do("dilate", "dilate", "--rate", "100")
        return scenario.outcome(patience=LONG / 100 + 5)


@parametrized(LIVE)
def test_a_wait_ends_sooner_when_time_is_sped_up(case, threads):
    outcome = sped_up(threads)
    result = outcome.of(case)
    check_ok(case, outcome)
    check_own(case, outcome, LONG, 100)
    rest = result.ended.at - outcome.marks["dilate"]
    assert rest in oracle.real(LONG, 100, outcome.slack + AT_ONCE, late=waits.late(case))


@functools.cache
def slowed_down(threads: bool) -> Outcome:
    """60 virtual seconds at rate 20, then rate 10."""
    with Scenario(60, "20", threads) as scenario:
        scenario.do("dilate", "dilate", "--rate", "10")
        return scenario.outcome(patience=11)


@parametrized(LIVE)
def test_a_wait_ends_later_when_time_is_slowed_down(case, threads):
    outcome = slowed_down(threads)
    result = outcome.of(case)
    check_ok(case, outcome)
    check_own(case, outcome, 60, 20)
    before = outcome.marks["dilate"] - result.started.at
    expect = before + (60 - 20 * before) / 10
    change = outcome.marks["dilate-done"] - outcome.marks["dilate"]
    assert expect - change - outcome.slack - 0.05 * expect <= result.real
    assert result.real <= (1 + waits.late(case)) * expect + change + outcome.slack + 0.05


# ------------------------------------------------------------------------------------------ freeze


@functools.cache
def frozen(threads: bool) -> Outcome:
    """A short wait, with a standstill in its midst that is longer."""
    with Scenario(SHORT, "1", threads) as scenario:
        scenario.do("freeze", "freeze")
        time.sleep(SHORT + 0.2)
        scenario.do("unfreeze", "unfreeze")
        return scenario.outcome(patience=SHORT + 5)


@parametrized(LIVE)
def test_no_wait_ends_while_time_stands_still(case, threads):
    outcome = frozen(threads)
    result = outcome.of(case)
    check_ok(case, outcome)
    check_own(case, outcome, SHORT, 1)
    assert result.ended.at > outcome.marks["unfreeze"]
    still = outcome.marks["unfreeze"] - outcome.marks["freeze-done"]
    assert result.real >= SHORT + still - outcome.slack
    whole = outcome.marks["unfreeze-done"] - outcome.marks["freeze"]
    assert result.real <= SHORT * (1 + waits.late(case)) + whole + outcome.slack + 0.05


# -------------------------------------------------------------------------------------------- leap


@functools.cache
def leapt(threads: bool) -> Outcome:
    """100 virtual seconds; a leap by 50, which is not enough, then one by 60, which is."""
    with Scenario(LONG, "1", threads) as scenario:
        scenario.do("short", "leap", "--by", "50s")
        time.sleep(0.5)
        scenario.do("leap", "leap", "--by", "60s")
        return scenario.outcome(patience=5)


@parametrized(LIVE)
def test_a_wait_ends_at_once_when_time_leaps_over_its_end(case, threads):
    outcome = leapt(threads)
    result = outcome.of(case)
    check_ok(case, outcome)
    assert result.ended.at > outcome.marks["leap"], "ended by the leap that was not enough"
    assert result.ended.at - outcome.marks["leap-done"] < AT_ONCE + outcome.slack
    assert LONG <= result.data["elapsed"] < 110 + 3 + outcome.slack


@pytest.mark.parametrize("name", ["timer-overrun", "timerfd-counts"])
def test_a_periodic_timer_counts_the_periods_that_time_leapt_over(name):
    """Every tenth of the nominal time one expiry, whether time passed or leapt."""
    result = leapt(False).of(waits.named(name)).data
    periods = int(result["elapsed"] / (LONG / 10))
    assert periods - 1 <= result["fired"] <= periods


# -------------------------------------------------------------------------------------------- step


@functools.cache
def stepped(threads: bool) -> Outcome:
    """100 virtual seconds; a step of the wall clock by 100; then a leap for those it left alone."""
    with Scenario(LONG, "1", threads) as scenario:
        scenario.do("step", "step", "--by", "100s")
        time.sleep(0.8)
        scenario.do("leap", "leap", "--by", "100s")
        return scenario.outcome(patience=5)


@parametrized([case for case in LIVE if case.step != "any"])
def test_a_step_forward_reaches_absolute_waits_on_the_wall_clock_alone(case, threads):
    outcome = stepped(threads)
    result = outcome.of(case)
    if case.step == "stays":
        check_ok(case, outcome)
        assert result.ended.at > outcome.marks["leap"], "ended by the step"
        assert result.data["elapsed"] >= LONG
        return
    assert result.ended.at - outcome.marks["step-done"] < AT_ONCE + outcome.slack
    assert result.data["elapsed"] < 10, "the step moved CLOCK_MONOTONIC"
    if case.step == "cancels":
        assert (result.data["ret"], result.data["err"]) == (-1, 125)  # ECANCELED
    else:
        check_ok(case, outcome)


@functools.cache
def stepped_back(threads: bool) -> Outcome:
    """A short wait; a step back by an hour; then, when others have ended, one forward."""
    with Scenario(SHORT, "1", threads) as scenario:
        scenario.do("back", "step", "--by=-1h")
        others = [case for case in scenario.cases if case.step in ("stays", "cancels")]
        scenario.await_ends(others, patience=SHORT + 5)
        scenario.do("forth", "step", "--by", "1h")
        return scenario.outcome(patience=5)


@parametrized([case for case in LIVE if case.step != "any"])
def test_a_step_back_delays_absolute_waits_on_the_wall_clock_alone(case, threads):
    outcome = stepped_back(threads)
    result = outcome.of(case)
    if case.step == "cancels":
        assert (result.data["ret"], result.data["err"]) == (-1, 125)  # ECANCELED
        assert result.ended.at < outcome.marks["forth"]
        return
    check_ok(case, outcome)
    if case.step == "follows":
        assert result.ended.at > outcome.marks["forth"], "ended although the wall clock is behind"
        assert result.ended.at - outcome.marks["forth-done"] < AT_ONCE + outcome.slack
    else:
        check_own(case, outcome, SHORT, 1)
        assert result.ended.at < outcome.marks["forth"], "delayed by the step"
