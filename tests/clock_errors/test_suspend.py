"""`lorentz clock suspend`: CLOCK_BOOTTIME and the wall clock go on, CLOCK_MONOTONIC does not."""

from __future__ import annotations

import errno
import time

import pytest
from framework import build, lorentz, needs, oracle
from framework.clock_errors import error
from framework.experiments import Experiment
from framework.failpoints import Faulty, session
from framework.running import Inside

SECOND = 1_000_000_000
HOUR = 3600 * SECOND
#: Waits, and how those end whose clock is suspended for twice as long.
CLOCKS_THAT_GO_ON = {
    "boot": (1, 0),
    "boot-absolute": (1, 0),
    "boot-series": (12, 0),
    "boot-timer": (1, 0),
    "boot-sleep": (1, 0),
    "boot-sleep-absolute": (1, 0),
    "wall-absolute": (1, 0),
    "wall-cancelled": (0, errno.ECANCELED),
    "wall-sleep-absolute": (1, 0),
}
OTHERS = {"mono", "mono-sleep", "wall"}


def waiting(rate: str, length: int, *options: str) -> Inside:
    """A container that waits `length` seconds on each clock, in each way."""
    return Inside(build.c("clock_errors/suspended"), str(length), rate=rate, options=options)


def length_at(rate: str) -> int:
    """Virtual seconds that take a minute. The host has run for two: a series counts as far back."""
    return round(60 * oracle.ratio(rate))


def due(inside: Inside, count: int) -> dict[str, dict]:
    """The waits that have ended, by their names, once there are so many."""
    return {line["case"]: line for line in inside.wait_for(count, timeout=20, ev="due")}


def check_suspended(inside: Inside, ready: dict, length: int) -> None:
    ended = due(inside, len(CLOCKS_THAT_GO_ON))
    assert {case: (one["count"], one["err"]) for case, one in ended.items()} == CLOCKS_THAT_GO_ON
    for one in ended.values():
        passed = {clock: one[clock] - ready[clock] for clock in ("mono", "boot", "wall")}
        assert passed["mono"] < length * SECOND / 2
        assert abs(passed["boot"] - passed["mono"] - 2 * length * SECOND) < SECOND
        assert abs(passed["wall"] - passed["mono"] - 2 * length * SECOND) < SECOND


@pytest.mark.parametrize("rate", ["1", "10", "1/3"])
def test_waits_on_clocks_that_go_on_end(rate):
    """The others last as long as before, and the truth has gone on too."""
    length = length_at(rate)
    with waiting(rate, length) as inside:
        ready = inside.line(ev="ready")
        lorentz.ok("clock", "suspend", inside.name, f"{2 * length}s")
        check_suspended(inside, ready, length)
        assert error(inside.name)["offset_ns"] == 0
        lorentz.ok("leap", inside.name, "--by", f"{length}s")
        ended = due(inside, len(CLOCKS_THAT_GO_ON) + len(OTHERS) + 1)
        assert set(ended) == CLOCKS_THAT_GO_ON.keys() | OTHERS
        assert ended["boot-series"]["count"] == 6
        assert ended["mono"]["mono"] - ready["mono"] >= (length - 1) * SECOND


def test_a_clock_that_errs_keeps_its_error():
    length = length_at("1")
    with waiting("1", length, "--clock-error", "offset=5s,drift=+100ppm") as inside:
        ready = inside.line(ev="ready")
        lorentz.ok("clock", "suspend", inside.name, f"{2 * length}s")
        check_suspended(inside, ready, length)
        assert error(inside.name)["offset_ns"] == pytest.approx(5 * SECOND, abs=SECOND / 10)
        # Later changes go on from there.
        lorentz.ok("clock", "drift", inside.name, "0ppm")
        lorentz.ok("dilate", inside.name, "--rate", "2")
        reading = inside.time()
        ahead = reading["boottime_ns"] - reading["monotonic_ns"]
        assert abs(ahead - (ready["boot"] - ready["mono"]) - 2 * length * SECOND) < SECOND / 10


def test_in_an_experiment_it_is_suspended_where_it_stands():
    needs.root()
    length = length_at("1")
    with Experiment() as experiment:
        inside = experiment.run(build.c("clock_errors/suspended"), str(length))
        experiment.synchronize()
        experiment.start()
        ready = inside.line(timeout=20, ev="ready")
        lorentz.ok("clock", "suspend", inside.name, f"{2 * length}s")
        check_suspended(inside, ready, length)
        assert error(inside.name)["offset_ns"] == 0


def test_processes_keep_their_start():
    """`ps` tells how long ago, with the suspend."""
    with Inside("sleep", "100000") as inside:
        inside.wait_until_shown()

        def tells(field: str) -> float:
            pid = str(inside.programs()[0])
            words = ("exec", inside.name, "ps", "-o", f"{field}=", "-p", pid)
            return float(lorentz.ok(*words).split()[0])

        def uptime() -> float:
            return float(lorentz.ok("exec", inside.name, "cat", "/proc/uptime").split()[0])

        before = (tells("etimes"), uptime())
        lorentz.ok("clock", "suspend", inside.name, "2h")
        after = (tells("etimes"), uptime())
        for then, now in zip(before, after, strict=True):
            assert 7200 <= now - then + 1 < 7300


@pytest.mark.parametrize(
    ("point", "is_made"),
    [("BeforePiece", False), ("BeforeVersion", False), ("AfterVersion", True)],
)
def test_a_command_that_is_killed_has_suspended_the_clock_or_not(point, is_made):
    """Both clocks go on, or none; never is that an error."""
    with Faulty("sleep", "100000", rate="1") as inside:
        inside.wait_until_shown()
        before = inside.time()
        inside.kill_at(point, "clock", "suspend", inside.name, "2h")
        deadline = time.monotonic() + 10
        while (shown := lorentz.json_of("clock", "show", inside.name, session=session()))[
            "offset_ns"
        ] != 0:
            assert time.monotonic() < deadline, shown
            time.sleep(0.02)
        after = inside.time()
        ahead = [one["boottime_ns"] - one["monotonic_ns"] for one in (before, after)]
        assert abs(ahead[1] - ahead[0] - (2 * HOUR if is_made else 0)) < 1000
        lorentz.ok("clock", "suspend", inside.name, "1h", session=session())
        now = inside.time()
        assert abs(now["boottime_ns"] - now["monotonic_ns"] - ahead[1] - HOUR) < 1000


@pytest.mark.parametrize(("length", "names"), [("0s", "0"), ("-2h", "-2h"), ("290y", "2232")])
def test_a_wrong_length_gets_one_line(length, names):
    with Inside("sleep", "1000") as inside:
        inside.wait_until_shown()
        lorentz.refusal(lorentz.call("clock", "suspend", inside.name, length), names)
        assert error(inside.name)["offset_ns"] == 0
