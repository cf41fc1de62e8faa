"""How far a container's clock is from the truth, and faults of it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Generator
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Literal

from lorentz import _native
from lorentz.times import NANOS, Duration, duration_text

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class ClockError:
    """A clock's error at one moment. The truth is the clock that the container would have without
    errors."""

    #: The container's CLOCK_REALTIME, ns since 1970.
    wall_ns: int
    #: By how much it is ahead of the truth, ns.
    offset_ns: int
    #: By how much all clocks are too fast now, ppm: drift and discipline together.
    frequency_ppm: float
    #: By how much the oscillator is too fast, without drifts that end, ppm.
    drift_ppm: float
    #: The frequency that a daemon has asked for by adjtimex(2), ppm.
    disciplined_ppm: float
    #: The bound of the error that a daemon has told, at most 16 s, in us.
    max_error_us: int
    #: The error that a daemon estimates, us.
    estimated_error_us: int
    #: Whether the offset is within `max_error_us`; None if no daemon has told a bound.
    within_bound: bool | None
    #: Whether adjtimex(2) says so: STA_UNSYNC is not set.
    synchronized: bool
    #: STA_* of adjtimex(2).
    status: int
    #: TAI less UTC, s.
    tai_s: int
    #: "no", "insert", "delete", "under-way" or "over".
    leap_second: str

    @property
    def truth_ns(self) -> int:
        """True wall time, ns since 1970."""
        return self.wall_ns - self.offset_ns


def _from_json(text: str) -> ClockError:
    told = json.loads(text)
    del told["name"]
    date, _, fraction = told.pop("wall").rstrip("Z").partition(".")
    seconds = datetime.fromisoformat(date).replace(tzinfo=timezone.utc).timestamp()
    wall_ns = int(seconds) * NANOS + int(fraction.ljust(9, "0"))
    return ClockError(wall_ns=wall_ns, **told)


class ErringClock:
    """The clock of a container, as one that errs: `Container.clock`.

    Drifts are text, "+100ppm", "-20ppb" or "1%", at most 10% either way. A change returns the
    clock's error after it. Raises WrongInputError for a value out of range or a clock of several
    containers, NotFoundError if the container does not exist.
    """

    def __init__(self, container: str) -> None:
        self._container = container

    def _words(self, verb: str, *words: str) -> list[str]:
        """A command line, for a container that exists."""
        return ["clock", verb, _native.find(self._container), *words]

    def _call(self, verb: str, *words: str) -> ClockError:
        return _from_json(_native.call(self._words(verb, *words, "--json")))

    def show(self) -> ClockError:
        """Returns the clock's error now."""
        return self._call("show")

    def drift(self, by: str, *, length: Duration | None = None) -> ClockError:
        """Lets the clock drift from now on; for `length` of virtual time, on top of its drift."""
        return self._call("drift", by, *_flag("--for", length))

    def bump(self, by: Duration, *, slew: Duration | None = None) -> ClockError:
        """Moves the wall clock away from the truth: at once, or by a drift that takes `slew`."""
        return self._call("bump", duration_text(by), *_flag("--slew", slew))

    def strobe(self, by: Duration, *, period: Duration, length: Duration) -> None:
        """Moves the wall clock forth and back each `period`, for `length`. Returns when it is
        over."""
        flags = (*_flag("--period", period), *_flag("--for", length))
        _native.call(self._words("strobe", duration_text(by), *flags))

    def suspend(self, length: Duration) -> ClockError:
        """Lets CLOCK_BOOTTIME and the wall clock go on by `length` at once, as after a suspend of
        the machine. No error: the truth goes on too."""
        return self._call("suspend", duration_text(length))

    def leap_second(self, what: Literal["insert", "delete", "none"]) -> ClockError:
        """Has a leap second come at the end of the container's UTC day, or none any more."""
        return self._call("leap-second", what)

    def reset(self) -> ClockError:
        """Ends all errors: the wall clock is set to true time."""
        return self._call("reset")

    def log(
        self, every: Duration = "1s", *, length: Duration | None = None
    ) -> Generator[ClockError, None, None]:
        """Yields the clock's error each `every` of virtual time, for `length` or until the
        container ends.

        In an experiment and in rounds, at whole multiples of `every` of the truth.
        """
        flags = (*_flag("--every", every), *_flag("--for", length))
        words = self._words("log", *flags, "--json")
        with subprocess.Popen(
            [_native.command(), *words], stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield from map(_from_json, process.stdout)
            finally:
                process.terminate()

    def frame(self, every: Duration = "1s", *, length: Duration) -> polars.DataFrame:
        """Returns the looks of `log` as a data frame of polars, a row each (`pip install
        'lorentz-time[frames]'`): the fields of ClockError, and `truth_ns`."""
        import polars

        looks = [
            {"truth_ns": look.truth_ns, **asdict(look)} for look in self.log(every, length=length)
        ]
        return polars.DataFrame(looks)


def _flag(name: str, duration: Duration | None) -> tuple[str, ...]:
    return () if duration is None else (f"{name}={duration_text(duration)}",)
