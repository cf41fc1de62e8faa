"""A program without rights may add no filter: a face that needs one shows the real value, and all
else works."""

from __future__ import annotations

import pytest
from framework import oracle
from framework.needs import root, tool
from framework.oracle import HostNoise
from framework.running import Inside

PROGRAM = r"""
import json, os, socket, struct, time
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
values = {"ev": "told"}
values["before"] = time.clock_gettime(time.CLOCK_BOOTTIME)
with open("/proc/uptime") as file:
    values["uptime"] = float(file.read().split()[0])
values["after"] = time.clock_gettime(time.CLOCK_BOOTTIME)
a, b = socket.socketpair()
a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("qq", 0, 300_000))
begun = time.monotonic()
try:
    a.recv(1)
except BlockingIOError:
    values["waited"] = time.monotonic() - begun
begun = time.monotonic()
time.sleep(2)
values["slept"] = time.monotonic() - begun
values["date"] = time.time()
print(json.dumps(values), flush=True)
"""


@pytest.mark.parametrize("rate", ["1", "10"])
def test_a_program_that_gives_its_rights_up_goes_on(rate):
    """The program's clocks, waits and first read of the uptime are virtual. A socket's timeout
    would need a filter: it reads back as the real time that was set."""
    root()
    python = tool("python3")
    program = [python, "-c", PROGRAM]
    with HostNoise() as noise, Inside(*program, rate=rate, at="2038-01-19") as inside:
        values = inside.line(ev="told")
        inside.succeed()
    # The uptime is told in hundredths.
    assert values["before"] - 0.01 <= values["uptime"] <= values["after"]
    assert values["slept"] in oracle.own(2, float(rate), noise.slack)
    assert 0 <= values["date"] - 2147472000 < 30 * float(rate)
    # At least as long as asked for, by the clock inside: never early.
    assert values["waited"] >= 0.299
