"""The test programs themselves, in real time: they build, and the kernel gives sane results."""

from __future__ import annotations

import json
import subprocess

import pytest
from framework import build, catalogue, oracle, waits

pytestmark = pytest.mark.native
#: Nominal seconds. A signal comes when half of it has passed, in the midst of the wait even if one
#: of the two processes stands still.
NOMINAL = 0.3
NOMINAL_WITH_SIGNALS = 2.0


@pytest.mark.parametrize("family", catalogue.FAMILIES)
def test_the_catalogue_lists_every_case(family):
    listing = subprocess.check_output([build.c(f"waits/{family}"), "-l"], text=True, timeout=10)
    shown = {(e["case"], bool(e["threads"])) for e in map(json.loads, listing.splitlines())}
    assert shown == {(case.name, case.threads) for case in catalogue.of(family)}


@pytest.mark.alone
@pytest.mark.parametrize("flavour", build.C_FLAVOURS)
@pytest.mark.parametrize("family", catalogue.FAMILIES)
def test_waits_last_as_long_as_they_say(family, flavour):
    cases = tuple(catalogue.of(family))
    nominal = NOMINAL_WITH_SIGNALS if family == "signals" else NOMINAL
    results = waits.run(family, cases, rate=None, nominal=nominal, flavour=flavour)
    wrong = []
    for case in cases:
        data = results.of(case).data
        late = oracle.LATE_COARSE if case.coarse else oracle.LATE
        slack = results.slack + nominal / 8  # SIGSTOP makes some waits longer
        span = oracle.own(data["expect"], 1, slack, late=late, early=oracle.LATE)
        if data["elapsed"] not in span:
            wrong.append(f"{case}: {data['elapsed']} not in {span}")
    assert not wrong
