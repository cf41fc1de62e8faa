"""The clock of this very process: of its threads, and of the programs that it starts."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Literal, TypeAlias

from lorentz import _native
from lorentz.times import (
    Duration,
    HostTime,
    Ratio,
    Tdf,
    Time,
    host_time_text,
    nanoseconds,
    tdf_text,
)

#: A time of the wall clock: text such as "2038-01-19T03:14:00Z" (UTC without a zone) or
#: "@1700000000", or what `date --date` takes, such as "next monday 9:00" (local time without a
#: zone); a datetime (local time without a zone); a date (its first moment in UTC); seconds since
#: 1970. Or a distance from now: a timedelta, or text that begins with + or -: "+30d".
Destination: TypeAlias = "HostTime | date | timedelta | int | float | Fraction"

#: Whether time leaps over what all tasks on the clock only wait for. True is "on": not while a task
#: waits for something that the outside may bring. "force": also then.
SkipIdle: TypeAlias = "bool | Literal['on', 'off', 'force']"


class ProcessClock:
    """The clock of this process, all its threads, and the programs that it starts.

    `lorentz.travel`, `lorentz.frozen`, `lorentz.rate` and `lorentz.own_clock` return it for the
    time of a `with` block. All methods take effect at once, for every process on the clock; waits
    and timers in progress follow.
    """

    def __init__(self, native: _native.OwnClock) -> None:
        """Wraps the native clock."""
        self._native = native
        self._before_freeze: tuple[Fraction, str] | None = None

    @property
    def name(self) -> str:
        """The name of this process's container, as `lorentz ps` shows it."""
        return self._native.name

    def time(self) -> Time:
        """Returns the clocks of this process and the host's, at one moment."""
        clocks = self._native.reading()
        fields = {field: clocks[field] for field in Time.__dataclass_fields__}
        return Time(**{**fields, "tdf": Fraction(clocks["tdf"])})

    def travel(self, to: Destination) -> None:
        """Sets the wall clock to `to`, later or earlier. CLOCK_MONOTONIC does not change, so no
        wait ends by it but those for a time of the wall clock.

        Raises WrongInputError for a time that cannot be read, or before 1970.
        """
        distance = _distance_ns(to)
        if distance is not None:
            self._native.step(distance)
        else:
            self._native.set_wall(_wall_text(to))

    def step(self, by: Duration) -> None:
        """Moves the wall clock alone by `by`, in either direction, not before 1970."""
        self._native.step(nanoseconds(by))

    def leap(self, by: Duration) -> None:
        """Moves all clocks forward by `by`, 0 or more. Waits and timers that are due then end."""
        self._native.leap(nanoseconds(by))

    def dilate(self, tdf: Tdf | None = None, *, rate: Ratio | None = None) -> None:
        """Changes the rate: `tdf` real seconds per virtual second, or `rate` virtual seconds per
        real second."""
        if (tdf is None) == (rate is None):
            raise TypeError("expected either tdf or rate")
        self.set_rate(ratio(rate) if tdf is None else 1 / ratio(tdf))

    def freeze(self, *, skip_idle: SkipIdle = True) -> None:
        """Lets all clocks stand while programs run: see `lorentz.frozen`."""
        clocks = self._native.reading()
        if self._before_freeze is None:
            self._before_freeze = (rate_of(clocks), clocks["skip_idle"])
        self._native.stand()
        if clocks["skip_idle"] != skip_word(skip_idle):
            self.skip_idle(skip_idle)

    def unfreeze(self) -> None:
        """Lets all clocks go on as before `freeze`."""
        if self._before_freeze is None:
            return
        rate, skip_idle = self._before_freeze
        self._before_freeze = None
        self.skip_idle(skip_idle)
        self.set_rate(rate)

    def skip_idle(self, mode: SkipIdle = True) -> None:
        """Sets whether time leaps over what all tasks on the clock only wait for."""
        self._native.set_skip_idle(skip_word(mode))

    def set_rate(self, rate: Fraction) -> None:
        """Sets the rate, virtual seconds per real second.

        Python threads hand the interpreter over after an interval of this clock: it is scaled, so
        that it stays the same real time.
        """
        before = rate_of(self._native.reading())
        self._native.dilate(rate.numerator, rate.denominator)
        if min(before, rate) >= MIN_RATE:
            sys.setswitchinterval(max(1e-6, sys.getswitchinterval() * float(rate / before)))

    def __repr__(self) -> str:
        return f"ProcessClock({self.name!r})"


#: The slowest rate that can be chosen. A clock that stands by `freeze` is slower.
MIN_RATE = Fraction(1, 1_000_000)

_lock = threading.Lock()
_known: _native.OwnClock | None = None


def native_clock() -> _native.OwnClock:
    """Returns the clock of this process. The first call brings a process in real time onto a new
    one, at rate 1, with the processes that it has started.

    Raises RefusedError where the kernel does not allow that.
    """
    global _known
    with _lock:
        if _known is None:
            _known = _native.OwnClock.find() or _come_onto_clock()
        return _known


def _come_onto_clock() -> _native.OwnClock:
    try:
        return _native.OwnClock.make(True)
    except _native.LorentzError as error:
        hint = "start the program by `lorentz run`, or pytest with --lorentz-at or --lorentz-rate"
        raise type(error)(f"this process cannot come onto a clock: {error}; {hint}") from None


def ratio(value: Ratio) -> Fraction:
    """Returns a rate or a TDF as an exact ratio.

    Raises WrongInputError if it is none.
    """
    try:
        flag = _native.clock_flags([("rate", value if isinstance(value, str) else tdf_text(value))])
    except _native.WrongInputError as error:
        if isinstance(value, str):
            raise
        expected = "expected a number above 0, from 1/1000000 to 1000000, or text such as '1/3'"
        raise _native.WrongInputError(f"rate {value!r}: {expected}") from error
    # `--rate=60`; without a flag it is the default.
    num, den = _native.parse_tdf(flag[0].partition("=")[2]) if flag else (1, 1)
    return Fraction(num, den)


def rate_of(clocks: dict) -> Fraction:
    """Returns the rate in force of a reading, virtual seconds per real second: 0 if frozen from
    outside."""
    return Fraction(0) if clocks["frozen"] else Fraction(*clocks["rate"])


def skip_word(mode: SkipIdle) -> str:
    """Returns the word of the command for a value of `skip_idle`.

    Raises WrongInputError for any other value.
    """
    word = {True: "on", False: "off"}.get(mode, mode) if isinstance(mode, bool) else mode
    if word not in ("on", "off", "force"):
        expected = "expected True, False, 'on', 'off' or 'force'"
        raise _native.WrongInputError(f"skip_idle {mode!r}: {expected}")
    return word


def _distance_ns(to: Destination) -> int | None:
    """Returns how far `to` is from now, ns; None if it is a time by itself."""
    is_distance = isinstance(to, timedelta) or (isinstance(to, str) and to[:1] in ("+", "-"))
    return nanoseconds(to) if is_distance else None


def _wall_text(to: Destination) -> str:
    """Returns a time of the wall clock as text."""
    for kind, text in _TEXTS:
        if isinstance(to, kind) and not isinstance(to, bool):
            return text(to)
    expected = "expected text such as '2038-01-19T03:14:00Z' or '+30d', a datetime, or seconds"
    raise _native.WrongInputError(f"travel to {to!r}: {expected}")


def _epoch_text(seconds: int | float | Fraction) -> str:
    """Returns seconds since 1970 as text."""
    nanos = nanoseconds(seconds)
    sign = "-" if nanos < 0 else ""
    whole, rest = divmod(abs(nanos), 10**9)
    return f"@{sign}{whole}.{rest:09}"


#: Functions that make a text of a time. A datetime is a date, too: it comes first.
_TEXTS: tuple[tuple[type | tuple[type, ...], Callable[..., str]], ...] = (
    (str, str),
    (datetime, host_time_text),
    (date, date.isoformat),
    ((int, float, Fraction), _epoch_text),
)
