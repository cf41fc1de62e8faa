"""`lorentz detach`: programs get the host's time back, where that needs no clock to go back."""

from __future__ import annotations

import time

from framework import lorentz
from framework.running import Inside

#: Says when a clock has gone back, and what CLOCK_MONOTONIC shows at the end of a sleep.
WATCHES = """
import time
last = time.monotonic_ns()
end = last + 8 * 10**9
print('{"ev": "ready"}', flush=True)
while last < end:
    now = time.monotonic_ns()
    if now < last:
        print('{"ev": "back"}', flush=True)
    last = now
print('{"ev": "done"}', flush=True)
"""


def is_the_hosts(clock: dict) -> bool:
    """Whether the clocks of one look are those of the host."""
    names = ("monotonic_ns", "boottime_ns", "wall")
    return [clock[name] for name in names] == [clock["host"][name] for name in names]


def test_a_container_at_another_date_has_the_hosts_time_again():
    with Inside("sleep", "1000", at="2038-01-19") as inside:
        inside.wait_until_shown()
        assert not is_the_hosts(inside.time())
        shown = lorentz.json_of("detach", inside.name)
        assert shown["rate"] == "1"
        time.sleep(0.1)
        assert is_the_hosts(inside.time())
        # It can be changed again.
        inside.verb("step", "--by", "1h")
        assert not is_the_hosts(inside.time())


def test_a_slow_clock_jumps_forward_and_waits_end_in_real_time():
    """A clock at a tenth of the speed is behind after a second: eight of its seconds are over
    sooner than 80 s."""
    with Inside("python3", "-c", WATCHES, rate="1/10") as inside:
        inside.line(ev="ready")
        time.sleep(1)
        inside.verb("detach")
        begun = time.monotonic()
        inside.wait_until_shown()
        assert is_the_hosts(inside.time())
        inside.line(ev="done")
        assert time.monotonic() - begun < 15
        assert not inside.lines(ev="back")


def test_a_clock_that_is_ahead_is_refused_and_stays():
    with Inside("sleep", "1000000", rate="60") as inside:
        inside.wait_until_shown()
        time.sleep(0.2)
        names = f"{inside.name}: its CLOCK_MONOTONIC is "
        lorentz.refusal(lorentz.call("detach", inside.name), names)
        assert inside.time()["rate"] == "60"


def test_frozen_clocks_and_those_that_skip_are_refused():
    with Inside("sleep", "1000000", rate="1") as inside:
        inside.wait_until_shown()
        inside.verb("freeze")
        call = lorentz.call("detach", inside.name)
        lorentz.refusal(call, f"{inside.name}: frozen; 'lorentz unfreeze {inside.name}' first")
        inside.verb("unfreeze")
        inside.verb("leap", "--by", "1s")
        call = lorentz.call("detach", inside.name)
        lorentz.refusal(call, "never goes back")
    with Inside("cat", stdin=True, options=("--skip-idle",)) as inside:
        inside.wait_until_shown()
        call = lorentz.call("detach", inside.name)
        lorentz.refusal(call, f"'lorentz skip {inside.name} off' first")
