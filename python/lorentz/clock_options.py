"""Keywords for options of a clock.

A test of the crate lorentz-embed writes this file from the table of clock options:
LORENTZ_WRITE_KEYWORDS=1 cargo test -p lorentz-embed
"""

from __future__ import annotations

from typing import Literal, TypedDict

from lorentz.times import Duration, HostTime, Ratio


class ClockOptions(TypedDict, total=False):
    """Options of a container's clock."""

    #: Start the wall clock at this time [default: the host's]
    at: HostTime
    #: Start the wall clock this far from the host's: +10d, -1h30m
    offset: Duration
    #: Virtual seconds per real second: 2, 0.1, 1/10, 60x, +200ppm [default: 1]
    rate: Ratio
    #: Time dilation factor, the inverse of --rate: real seconds per virtual second
    tdf: Ratio
    #: Start CLOCK_MONOTONIC this far from the host's
    monotonic: Duration
    #: Start CLOCK_BOOTTIME, and with it the uptime, this far from the host's
    boottime: Duration
    #: Start with a frozen clock: the program starts at 'lorentz unfreeze'
    frozen: bool
    #: Skip idle time
    skip_idle: Literal["on", "off", "force"]
    #: With --skip-idle: virtual time that each clock read costs
    read_cost: Duration
    #: Let the clock err: offset=100ms,drift=+100ppm,wander=1ppb,seed=7, any of them
    clock_error: str
    #: Let programs set the container's clock that may not set the machine's
    may_set_clock: bool
    #: Show CPU time at the clock's rate, or as the host does [default: virtual]
    cpu_clocks: Literal["virtual", "real"]
    #: Show file times in virtual time, or in the host's [default: virtual]
    file_times: Literal["virtual", "real"]
    #: Make the rdtsc instruction return virtual time, at about 2 us each
    trap_tsc: bool
    #: Leave the code of programs as it is: each call that concerns time is trapped
    no_rewrite: bool
    #: Use the clock of this container instead of a new one; cluster/NAME: one that hosts share
    clock: str


class NetworkClockOptions(TypedDict, total=False):
    """Options of a network's or a node's clock."""

    #: Start the wall clock at this time [default: the host's]
    at: HostTime
    #: Virtual seconds per real second: 2, 0.1, 1/10, 60x, +200ppm [default: 1]
    rate: Ratio
    #: Time dilation factor, the inverse of --rate: real seconds per virtual second
    tdf: Ratio
    #: Let the clock err: offset=100ms,drift=+100ppm,wander=1ppb,seed=7, any of them
    clock_error: str
