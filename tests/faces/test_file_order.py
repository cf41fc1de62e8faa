"""Two files written before and after a leap: their times differ by the leap.

The kernel stamps files with the time of its last tick. That tick may precede the leap: within 4 ms
there are many files and many leaps.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from framework import build, lorentz
from framework.running import Inside, Line

L = str(lorentz.session.binary)


def stamps_are_fine() -> bool:
    """Linux 6.13 and later: after a read of a timestamp, the next one is finer."""
    version = re.match(r"(\d+)\.(\d+)", os.uname().release)
    return (int(version[1]), int(version[2])) >= (6, 13)


def order(between: str, rate: str, folder: Path, options: Sequence[str] = ()) -> Line:
    """Writes two files, with `between` in between, forty times."""
    command = [build.c("faces/order"), "40", between]
    with Inside(*command, name="order", rate=rate, options=options, cwd=folder) as inside:
        inside.succeed(timeout=80)
        return inside.line(ev="order")


@pytest.mark.parametrize("rate", ["1", "10"])
@pytest.mark.parametrize("between", ["", "sleep 2"], ids=["alone", "by a child"])
def test_a_sleep_that_is_skipped_lies_between_two_files(between, rate, tmp_path):
    seen = order(between, rate, tmp_path, ["--skip-idle"])
    assert seen["older"] == 0
    if not stamps_are_fine():
        why = "files of one tick have one time, as docs/limits.md says"
        pytest.skip(f"Linux {os.uname().release}: {why}")
    assert seen["close"] == 0


@pytest.mark.parametrize("rate", ["1", "10", "1000"])
def test_a_leap_lies_between_two_files(rate, tmp_path):
    seen = order(f"{L} leap order --by 1h", rate, tmp_path)
    assert (seen["older"], seen["close"]) == (0, 0)


@pytest.mark.parametrize("rate", ["1", "10", "1000"])
@pytest.mark.parametrize("to", ["1/10", "5"])
def test_files_written_behind_a_change_of_the_rate(to, rate, tmp_path):
    """At a slower and a faster rate: never older than an earlier reading of the coarse clock."""
    change = f"{L} dilate order --rate {rate}; {L} dilate order --rate {to}"
    assert order(change, rate, tmp_path)["older"] == 0
