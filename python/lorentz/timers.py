"""Precise timers: a clock read from the processor's counter, and sleep that ends microseconds after
its time. docs/timers.md says how they work.

    from lorentz import timers

    start = timers.now()
    timers.sleep_until(start + timers.interval("10ms"))
    print(timers.interval_ns(timers.now() - start))

A moment and an interval are numbers of ticks of the process's time source: they are compared, added
and subtracted as numbers. A program on a virtual clock reads and sleeps by that clock. Python takes
some microseconds itself to come back from a sleep: the threads share one lock.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from lorentz import _native
from lorentz.times import Duration, nanoseconds

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Source:
    """The source of ticks."""

    #: tsc, hpet or os.
    name: str
    #: Why it was chosen.
    reason: str
    #: Ticks in a second.
    hertz: int


@dataclass(frozen=True)
class Processor:
    """The processor's counter, as CPUID describes it."""

    #: Its own name for itself; empty if it has none.
    brand: str
    rdtscp: bool
    #: One rate while the processor works.
    constant_tsc: bool
    #: One rate in all states of the processor.
    invariant_tsc: bool


def now() -> int:
    """The present moment, ticks."""
    return _native.timers_now()


def interval(duration: Duration) -> int:
    """A duration in ticks, rounded to the nearest. Raises WrongInputError out of range."""
    return _native.timers_interval(nanoseconds(duration))


def interval_ns(interval: int) -> int:
    """An interval in nanoseconds, rounded to the nearest."""
    return _native.timers_interval_ns(interval)


def moment_ns(moment: int) -> int:
    """CLOCK_MONOTONIC_RAW at a moment, ns."""
    return _native.timers_moment_ns(moment)


def date(moment: int) -> datetime:
    """The date of a moment by CLOCK_REALTIME as it is now, rounded down to microseconds."""
    return EPOCH + timedelta(microseconds=_native.timers_moment_wall_ns(moment) // 1000)


def moment_at(date: datetime) -> int:
    """The moment at which CLOCK_REALTIME shows a date, as that clock runs now. A datetime without a
    time zone is local time. Raises WrongInputError out of range."""
    since = date.astimezone(timezone.utc) - EPOCH
    return _native.timers_moment_from_wall(since // timedelta(microseconds=1) * 1000)


def sleep(duration: Duration) -> None:
    """Sleeps for a duration. A signal's handler runs meanwhile, and may end the sleep by an
    exception, as for time.sleep."""
    sleep_until(now() + interval(duration))


def sleep_until(moment: int) -> None:
    """Sleeps until a moment; returns at once if it is past. Signals as for `sleep`."""
    while not _native.timers_sleep_until(moment):
        pass


def source() -> Source:
    """The source in force. The first use of the timers chooses it."""
    return Source(*_native.timers_source())


def force_source(name: str) -> None:
    """Puts tsc, hpet or os in force, before anything else of this module is used.

    Raises WrongInputError for another name, FailedError if it does not work here or comes too late.
    """
    _native.timers_force_source(name)


def calibrate(duration: Duration) -> None:
    """Measures the length of a tick for so long, in place of what the processor states. It has no
    effect on a source whose tick is known.

    Raises FailedError after an interval was converted.
    """
    nanos = nanoseconds(duration)
    if not 10**6 <= nanos <= 60 * 10**9:
        raise _native.WrongInputError(f"duration {duration!r}: expected 1 ms to 60 s")
    _native.timers_calibrate(nanos)


def processor() -> Processor:
    """The processor."""
    return Processor(*_native.timers_processor())


def hpet_error() -> str | None:
    """Why the HPET cannot be used; None if it can."""
    return _native.timers_hpet()
