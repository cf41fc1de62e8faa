"""io_uring: refused, or its timeouts are virtual. Never real time."""

from __future__ import annotations

import errno

import pytest
from framework import build, oracle
from framework.oracle import HostNoise
from framework.running import Inside


@pytest.mark.parametrize("rate", ["10", "1/10"])
def test_io_uring_is_refused_or_virtual(rate):
    number = oracle.ratio(rate)
    nominal = 0.3 * number
    program = [build.c("faces/uring"), str(round(nominal * 1e9))]
    with HostNoise() as noise, Inside(*program, rate=rate) as inside:
        inside.succeed()
        event = inside.line(ev="uring")
    if event["refused"]:
        assert event["refused"] in (errno.ENOSYS, errno.EPERM)
    else:
        assert event["elapsed"] in oracle.own(nominal, number, noise.slack)
