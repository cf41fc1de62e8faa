"""Durations, dilation factors and clocks, as they are given and told."""

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
#: float stands for the simplest ratio that is the same float: 1 / 3 is 1/3.
Tdf: TypeAlias = "str | int | float | Fraction"

#: A time of the host's wall clock: a datetime, one without a time zone in the host's; or text:
#: "2038-01-19T03:14:00Z", "@1700000000".
HostTime: TypeAlias = "str | datetime"

NANOS = 10**9


def nanoseconds(duration: Duration) -> int:
    """A duration in whole nanoseconds, rounded to the nearest.

    Raises WrongInputError for what is none, or over 292 years.
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


def tdf_text(tdf: Tdf) -> str:
    """A TDF as the exact ratio that it is.

    Raises WrongInputError for what is none.
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
    """A time of the host's wall clock as text."""
    if at is None or isinstance(at, str):
        return at
    if isinstance(at, datetime):
        return at.astimezone(timezone.utc).replace(tzinfo=None).isoformat() + "Z"
    raise _native.WrongInputError(
        f"at {at!r}: expected a datetime, or text such as '2038-01-19T03:14:00Z'"
    )


@dataclass(frozen=True)
class Time:
    """The clocks of a container beside the host's, of one moment."""

    #: Its CLOCK_REALTIME, in nanoseconds since 1970.
    wall_ns: int
    #: Its CLOCK_MONOTONIC.
    monotonic_ns: int
    #: Its CLOCK_BOOTTIME.
    boottime_ns: int
    #: The host's CLOCK_REALTIME, in nanoseconds since 1970.
    host_wall_ns: int
    #: The host's CLOCK_MONOTONIC.
    host_monotonic_ns: int
    #: It shows nothing later on CLOCK_MONOTONIC; None where there is no limit.
    limit_ns: int | None
    #: Real seconds per virtual second; in a frozen one those to go on with.
    tdf: Fraction
    #: Its time stands still.
    frozen: bool

    @property
    def wall(self) -> datetime:
        """Its CLOCK_REALTIME as a date, to the microsecond, in UTC."""
        return datetime.fromtimestamp(self.wall_ns // 1000 * 1000 / NANOS, timezone.utc)
