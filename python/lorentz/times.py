"""Durations, dilation factors and clocks: the types of parameters and results."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from typing import TypeAlias

from lorentz import _native

#: Seconds, a timedelta, or text: "10ms", "1h30m".
Duration: TypeAlias = "str | int | float | Fraction | timedelta"

#: Real seconds per virtual second, above 0, from 1/1000000 to 1000000; or text: "10", "1/3". A
#: float means the simplest ratio that rounds to the same float: 1 / 3 is 1/3.
Tdf: TypeAlias = "str | int | float | Fraction"

#: A ratio above 0, such as a rate or a TDF: a number, or text: "0.1", "1/3", "60x".
Ratio: TypeAlias = "str | int | float | Fraction"

#: A time of the host's wall clock: a datetime (without a time zone: local time of the host), or
#: text: "2038-01-19T03:14:00Z", "@1700000000".
HostTime: TypeAlias = "str | datetime"

NANOS = 10**9


def nanoseconds(duration: Duration) -> int:
    """Returns a duration in whole nanoseconds, rounded to the nearest.

    Raises WrongInputError if it is not a duration, or over 292 years.
    """
    if isinstance(duration, str):
        return _native.parse_duration(duration)
    if isinstance(duration, timedelta):
        duration = Fraction(duration // timedelta(microseconds=1), 10**6)
    wrong = _native.WrongInputError(
        f"duration {duration!r}: expected seconds, or text such as '10ms'"
    )
    is_number = isinstance(duration, (int, float, Fraction)) and not isinstance(duration, bool)
    if not is_number or not math.isfinite(duration):
        raise wrong
    nanos = round(Fraction(duration) * NANOS)
    if abs(nanos) >= 2**63:
        raise wrong
    return nanos


def duration_text(duration: Duration) -> str:
    """Returns a duration as text, exact to the nanosecond."""
    return duration if isinstance(duration, str) else f"{nanoseconds(duration)}ns"


def tdf_text(tdf: Tdf) -> str:
    """Returns a TDF as text, an exact ratio.

    Raises WrongInputError if it is not a TDF.
    """
    if isinstance(tdf, str):
        _native.parse_tdf(tdf)
        return tdf
    if isinstance(tdf, float):
        num, den = _native.tdf_of_number(tdf)
        return f"{num}/{den}"
    if isinstance(tdf, (int, Fraction)) and not isinstance(tdf, bool):
        text = str(tdf)
        _native.parse_tdf(text)
        return text
    raise _native.WrongInputError(f"tdf {tdf!r}: expected a number above 0, or text such as '1/3'")


def host_time_text(at: HostTime | None) -> str | None:
    """Returns a time of the host's wall clock as text."""
    if at is None or isinstance(at, str):
        return at
    if isinstance(at, datetime):
        return at.astimezone(timezone.utc).replace(tzinfo=None).isoformat() + "Z"
    raise _native.WrongInputError(
        f"at {at!r}: expected a datetime, or text such as '2038-01-19T03:14:00Z'"
    )


@dataclass(frozen=True)
class Time:
    """The clocks of a container and of the host, at one moment."""

    #: The container's CLOCK_REALTIME, ns since 1970.
    wall_ns: int
    #: The container's CLOCK_MONOTONIC, ns.
    monotonic_ns: int
    #: The container's CLOCK_BOOTTIME, ns.
    boottime_ns: int
    #: The host's CLOCK_REALTIME, ns since 1970.
    host_wall_ns: int
    #: The host's CLOCK_MONOTONIC, ns.
    host_monotonic_ns: int
    #: Limit of the container's CLOCK_MONOTONIC, ns; None if there is no limit.
    limit_ns: int | None
    #: TDF: real seconds per virtual second. For a frozen container, the TDF after the freeze.
    tdf: Fraction
    #: Whether the clock stands still.
    frozen: bool

    @property
    def wall(self) -> datetime:
        """The container's CLOCK_REALTIME as a datetime in UTC, to the microsecond."""
        return datetime.fromtimestamp(self.wall_ns // 1000 * 1000 / NANOS, timezone.utc)
