"""The uptime and the time of boot: /proc/uptime, sysinfo and btime agree with the clocks."""

from __future__ import annotations

import time

import pytest
from framework import build, oracle
from framework.running import Inside

YEAR = 365 * 86400
#: Seconds by which figures of hundredths and thousandths are rounded.
GRAIN = 0.02


@pytest.mark.parametrize(
    ("rate", "options"),
    [
        ("1", []),
        ("10", []),
        ("1/10", []),
        ("10", ["--at", "2038-01-19"]),
        (None, ["--boottime", "365d"]),
        ("10", ["--boottime", "365d"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else str(value),
)
def test_all_faces_of_the_uptime_agree(rate, options):
    number = oracle.ratio(rate or "1")
    nap = round(0.3 * number * 1e9)
    with Inside(build.c("faces/uptime"), str(nap), rate=rate, options=options) as inside:
        inside.succeed()
        event = inside.line(ev="uptime")
    first, last = event["boot"] - GRAIN, event["until"] + GRAIN
    for face in ("open", "openat", "stdio"):
        assert first <= event[face] <= last, face
    # sysinfo rounds up to whole seconds, /proc/stat's btime to either side.
    assert first <= event["sysinfo"] <= last + 1
    assert event["real"] - event["by"] - 1.5 - GRAIN <= event["btime"]
    assert event["btime"] <= event["real"] - event["boot"] + 1.5 + GRAIN
    assert event["start"] <= last
    if "--boottime" in options:
        assert event["boot"] - YEAR == pytest.approx(
            time.clock_gettime(time.CLOCK_BOOTTIME), abs=10 * number
        )


def test_the_uptime_passes_at_the_rate():
    command = "cat /proc/uptime; sleep 50; cat /proc/uptime"
    with Inside("/bin/sh", "-c", command, rate="100") as inside:
        inside.succeed()
        first, last = (float(line.split()[0]) for line in inside.stdout.splitlines())
        took = inside.ended_at - inside.started_at
    assert took < 5
    assert 50 <= last - first <= 100 * took + GRAIN
