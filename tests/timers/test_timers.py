"""alarm, itimers, POSIX timers and timerfds: when they go off, how often, and what remains."""

from __future__ import annotations

import pytest
from framework import build, oracle, waits
from framework.catalogue import WAITS
from framework.running import Inside, Native, Running

CASES = [case for case in WAITS if case.family == "timers"]
RATES = ("1", "10", "1/10")


@waits.matrix(CASES, RATES)
def test_a_timer_is_the_kernels_but_for_the_rate(case, flavour, rate):
    """Signals, siginfo, counts and errno are as natively; it goes off at its nominal time by the
    program's own clock, and by the host's at that divided by the rate."""
    waits.check_results(case, flavour, rate)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ["getitimer", "timer-gettime", "timerfd-gettime"])
def test_what_remains_is_told_in_virtual_time(name, rate):
    waits.check_remaining(name, rate)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ["getitimer", "timer-gettime"])
def test_the_interval_is_told_as_it_was_set(name, rate):
    result, _ = waits.standard(waits.named(name), "dynamic", rate)
    assert result.data["interval_ratio"] == pytest.approx(3, rel=1e-4)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ["timer-overrun", "timerfd-counts"])
def test_a_periodic_timer_goes_off_as_often_as_virtual_time_says(name, rate):
    """Ten periods: ten expiries, one more or less where reading them comes late. They are as many
    as are due between the clock's readings before and after that."""
    result, _ = waits.standard(waits.named(name), "dynamic", rate)
    least, most = (10 * result.data[at] / result.data["expect"] for at in ("slept", "elapsed"))
    assert least - 2 <= result.data["fired"] <= most + 0.5
    if "siginfo_fired" in result.data:
        assert result.data["siginfo_fired"] == pytest.approx(result.data["fired"], abs=1)


@pytest.mark.parametrize(("rate", "seconds"), [("10", 2), ("1/2", 1)])
def test_an_alarm_survives_exec(rate, seconds):
    """alarm(2) before exec ends the new program by SIGALRM after two virtual seconds."""
    program = [build.c("process/exec_alarm"), str(seconds), build.c("process/probe"), str(10**12)]
    with oracle.HostNoise() as noise, Inside(*program, rate=rate) as inside:
        start = inside.line(ev="armed").at
        assert inside.finish() == 128 + 14
        took = inside.ended_at - start
    assert took in oracle.real(seconds, oracle.ratio(rate), noise.slack + oracle.STARTING)


@pytest.mark.parametrize("rate", ["10"])
def test_a_childs_timers_are_its_own(rate):
    """fork() clears itimers and POSIX timers: only the parent is signalled."""
    with Inside(build.c("process/fork_timers"), "300000000", rate=rate) as inside:
        inside.succeed()
        assert inside.line(ev="child")["fired"] == 0
        assert inside.line(ev="child")["left"] == 0
        assert inside.line(ev="parent")["fired"] == 2


def take_the_rest(program: Running) -> None:
    """Has `pending_series` take the signals that are left, and checks their number."""
    program.process.stdin.write(b"\n")
    program.process.stdin.flush()
    found = program.line(ev="taken")
    assert found["count"] == found["passed"]
    program.succeed()


#: Expiries of a series that the program has taken, and that are pending beyond one.
SERIES = [(1, 0), (1, 1), (5, 3), (20, 2)]


@pytest.mark.parametrize(("taken", "left"), SERIES)
@pytest.mark.parametrize(
    "change", ["dilate --rate 2", "dilate --rate 1/2", "freeze", "leap --by 1s"]
)
def test_a_pending_signal_stands_for_those_alone_that_were_not_taken(change, taken, left):
    """Also after a change of the clock, at which each timer is set anew."""
    program = build.c("pitfalls/pending_series"), str(taken), str(left)
    with Inside(*program, rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        inside.verb(*change.split())
        if change == "freeze":
            inside.verb("unfreeze")
        take_the_rest(inside)


@pytest.mark.parametrize(("taken", "left"), SERIES)
def test_natively_it_does_so_too(taken, left):
    with Native([build.c("pitfalls/pending_series"), str(taken), str(left)], stdin=True) as native:
        native.line(ev="ready")
        take_the_rest(native)
