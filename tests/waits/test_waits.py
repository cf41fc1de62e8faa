"""Every wait, in every way a C program is linked, against two oracles: the kernel and the ratio."""

from __future__ import annotations

import pytest
from framework import oracle, waits
from framework.catalogue import WAITS

CASES = [case for case in WAITS if case.family != "timers"]
RATES = ("1", "10", "1/10")


@waits.matrix(CASES, RATES)
def test_a_wait_is_the_kernels_but_for_the_rate(case, flavour, rate):
    """Return value, errno and all values that a case calls "same" are as natively. The wait lasts
    its nominal time by its own clock, and by the host's that divided by the rate."""
    waits.check_results(case, flavour, rate)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ["ppoll-event", "select-event", "pselect6-event"])
def test_the_remaining_time_is_written_back_in_virtual_time(name, rate):
    waits.check_remaining(name, rate)


@pytest.mark.parametrize("rate", RATES)
@pytest.mark.parametrize("name", ["ppoll", "select", "pselect6", "recvmmsg"])
def test_nothing_remains_of_a_wait_that_went_to_its_end(name, rate):
    result, _ = waits.standard(waits.named(name), "dynamic", rate)
    assert result.data["remaining"] == 0


@pytest.mark.parametrize("rate", ["10", "1/10"])
@pytest.mark.parametrize("family", ["sleep", "poll", "futex", "ipc", "timers"])
def test_a_thread_waits_as_a_process_does(family, rate):
    """All cases that can, as threads of one process at the same time."""
    nominal = waits.NOMINAL[rate]
    cases = tuple(c for c in WAITS if c.family == family and c.threads and c.live)
    results = waits.run(family, cases, rate=rate, nominal=nominal, threads=True)
    for case in cases:
        waits.check_own_time(case, results.of(case), oracle.ratio(rate), results.slack)
        waits.check_real_time(case, results.of(case), oracle.ratio(rate), results.slack)
