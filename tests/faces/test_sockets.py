"""Times of sockets: receive timestamps, and timeouts read back."""

from __future__ import annotations

import functools

import pytest
from framework import build
from framework.running import Inside, Native

STAMPS = ["SO_TIMESTAMP", "SO_TIMESTAMPNS", "SO_TIMESTAMPING", "SO_TIMESTAMPNS recvmmsg"]
TIMEOUTS = ["SO_RCVTIMEO", "SO_SNDTIMEO", "SO_RCVTIMEO none"]


@functools.cache
def sockets(rate: str | None, at: str | None) -> Inside:
    program = [build.c("faces/sockets")]
    with Native(program) if rate is None else Inside(*program, rate=rate, at=at) as running:
        return running.succeed()


@pytest.mark.parametrize("at", [None, "2038-01-19"])
@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
@pytest.mark.parametrize("how", STAMPS)
def test_a_receive_stamp_is_in_virtual_time(how, rate, at):
    """The send of a datagram over loopback also receives it, between two reads of the clock."""
    line = sockets(rate, at).line(ev="stamp", how=how)
    us = 1000 * max(1, {"1": 1, "10": 10, "1/10": 1}[rate])
    assert line["before"] - us <= line["stamp"] <= line["after"] + us


@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
@pytest.mark.parametrize("how", TIMEOUTS)
def test_a_socket_timeout_reads_back_as_it_was_set(how, rate):
    native = sockets(None, None).line(ev="sockopt", how=how)
    inside = sockets(rate, None).line(ev="sockopt", how=how)
    assert inside.data == native.data
