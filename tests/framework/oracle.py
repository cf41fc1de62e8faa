"""Bounds for durations, and the comparison of two runs.

Nothing here knows an absolute real time. A wait of E virtual seconds at rate R is to take E by the
program's own clock and E / R by the host's, never less; later by what a loaded machine adds, which
is measured while the test runs (`HostNoise`), besides a fixed slack.

The slack is real time. By the program's own clock the slack counts R times. A test therefore
chooses E so that E / R is some tenths of a second at least. With E / R = 1 s a wait that is 9 % too
long fails on an idle machine, at every rate.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from fractions import Fraction

#: A wait may be late by this part of its length ...
LATE = 0.05
#: ... or by this, where the kernel's timer wheel times it, ...
LATE_COARSE = 0.16
#: ... and by this much of real time, whatever its length: starting, waking, printing.
SLACK = 0.03
#: Real seconds more, where a program is started, loaded or ended in the time that is measured.
STARTING = 0.15


class HostNoise:
    """Measures how late this machine wakes a sleeping thread while the block runs, on each CPU: one
    may stand still while the others run."""

    def __init__(self) -> None:
        self._worst: dict[int, float] = {}
        self._stop = threading.Event()

    def __enter__(self) -> HostNoise:
        cpus = sorted(os.sched_getaffinity(0))
        self._threads = [
            threading.Thread(target=self._measure, args=(cpu,), daemon=True) for cpu in cpus
        ]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _measure(self, cpu: int) -> None:
        # The affinity is this thread's alone. If the CPU has gone meanwhile, the thread measures
        # wherever it runs.
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, {cpu})
        step, worst = 0.005, 0.0
        while not self._stop.is_set():
            start = time.monotonic()
            time.sleep(step)
            worst = max(worst, time.monotonic() - start - step)
            self._worst[cpu] = worst

    @property
    def worst(self) -> float:
        """The greatest lateness so far, s."""
        return max(list(self._worst.values()), default=0.0)

    @property
    def slack(self) -> float:
        """The allowed lateness, real seconds."""
        return SLACK + 3 * self.worst


@dataclass(frozen=True)
class Span:
    """Least and greatest allowed value."""

    least: float
    most: float

    def __contains__(self, value: float) -> bool:
        return self.least <= value <= self.most

    def __str__(self) -> str:
        return f"[{self.least:.4f}, {self.most:.4f}]"


def ratio(rate: str | float) -> float:
    """A rate as a number: "1/10" -> 0.1."""
    return float(Fraction(rate))


def own(expect: float, rate: float, slack: float, *, late: float = LATE, early: float = 0) -> Span:
    """Returns the allowed duration of a wait of `expect`, by the program's own clock."""
    return Span(expect * (1 - early) - 1e-6 - early * slack, expect * (1 + late) + slack * rate)


def real(expect: float, rate: float, slack: float, *, late: float = LATE) -> Span:
    """Returns the allowed duration of a wait of `expect` virtual seconds, by the host's clock.

    The test sees the start of the wait by a line of output, which a loaded machine delivers late.
    So by the host's clock the wait may seem too short by the slack; by the program's own clock it
    may not.
    """
    return Span(expect / rate * (1 - LATE) - slack, expect / rate * (1 + late) + slack)


def same(result: dict) -> dict:
    """Returns the values that must be equal in every run of a case."""
    return {
        key: value
        for key, value in result.items()
        if key in ("ret", "err") or key.startswith("same_")
    }


def epoch(date: str) -> int:
    """Midnight UTC of a date such as 2038-01-19, in seconds since 1970."""
    return int(datetime.fromisoformat(date).replace(tzinfo=timezone.utc).timestamp())
