"""Clocks that err by command: drift, bumps, strobes, and the truth that `lorentz clock` tells."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from datetime import datetime
from fractions import Fraction

import pytest
from framework import lorentz
from framework.clock_errors import (
    MAXERROR,
    SETOFFSET,
    STATUS,
    Adjuster,
    announced,
    error,
    pair_names,
)
from framework.failpoints import Faulty, session
from framework.running import Inside

SECOND = 1_000_000_000


@contextlib.contextmanager
def side_by_side(rate: str, *errors: str) -> Iterator[tuple[Inside, Inside]]:
    """A container with a perfect clock and one that errs. Both run from one instant on, and stand
    still from another one on."""
    names = pair_names()
    frozen = ("--frozen", "--at", "2030-01-01T00:00:00Z")
    sleeps = ("sleep", "100000")
    with (
        Inside(*sleeps, name=names[0], rate=rate, options=frozen) as perfect,
        Inside(*sleeps, name=names[1], rate=rate, options=(*frozen, *errors)) as errs,
    ):
        for one in (perfect, errs):
            one.wait_until_shown()
        yield perfect, errs


def run_both(both: tuple[Inside, Inside], seconds: float) -> None:
    """Lets both clocks run, from one instant of the host to another."""
    for verb, ahead in (("unfreeze", 0.5), ("freeze", 0.5 + seconds)):
        at = announced(ahead)
        for one in both:
            lorentz.ok(verb, one.name, "--at", at)
        time.sleep(0.7 if verb == "unfreeze" else seconds)
    for one in both:
        deadline = time.monotonic() + 10
        while one.time()["state"] != "frozen":
            assert time.monotonic() < deadline
            time.sleep(0.01)


def wall(inside: Inside) -> int:
    """The wall clock, ns."""
    text = inside.time()["wall"].rstrip("Z")
    whole, _, fraction = text.partition(".")
    begun = datetime.fromisoformat(f"{whole}+00:00")
    return int(begun.timestamp()) * SECOND + int(fraction.ljust(9, "0") or 0)


def test_a_rate_with_an_error_is_rounded_for_people_only():
    options = ("--clock-error", "drift=+33.35ppm,wander=1ppb,seed=7")
    with Inside("sleep", "100000", options=options) as errs:
        errs.wait_until_shown()
        for words in (("ps",), ("time", errs.name)):
            assert " ~1.0000333" in lorentz.ok(*words)
        assert abs(Fraction(errs.time()["rate"]) - Fraction("1.00003335")) < Fraction(1, 10**7)


@pytest.mark.parametrize("rate", ["1", "100", "1/3"])
def test_the_told_offset_is_that_to_a_perfect_clock(rate):
    errors = ("--clock-error", "offset=100ms,drift=-250ppm")
    with side_by_side(rate, *errors) as (perfect, errs):
        assert error(errs.name)["offset_ns"] == 100_000_000
        run_both((perfect, errs), 1)
        told = error(errs.name)
        assert told["drift_ppm"] == told["frequency_ppm"] == -250
        # Each command reads the host's wall clock anew.
        lateness = 20_000 * max(1, float(Fraction(rate)))
        passed = wall(perfect) - 1_893_456_000 * SECOND
        assert passed > SECOND * 0.3
        assert wall(errs) - wall(perfect) == pytest.approx(told["offset_ns"], abs=lateness)
        assert told["offset_ns"] == pytest.approx(100_000_000 - passed * 250e-6, abs=lateness)


def test_a_bump_moves_the_wall_clock_alone():
    with Inside("sleep", "1000") as inside:
        inside.wait_until_shown()
        before = inside.time()
        lorentz.ok("clock", "bump", inside.name, "-90s")
        after = inside.time()
        assert error(inside.name)["offset_ns"] == -90 * SECOND
        behind = after["monotonic_ns"] - before["monotonic_ns"]
        assert 0 < behind < 20 * SECOND
        lorentz.ok("clock", "reset", inside.name)
        assert error(inside.name)["offset_ns"] == 0


def test_a_step_by_whoever_is_an_error():
    """Also before anything has asked for the clock's error."""
    with Adjuster() as inside:
        lorentz.ok("step", inside.name, "--by", "1h")
        assert error(inside.name)["offset_ns"] == 3600 * SECOND
        inside.adjust(SETOFFSET, secs=-30)
        assert error(inside.name)["offset_ns"] == 3570 * SECOND
        lorentz.ok("leap", inside.name, "--by", "1d")
        inside.clock("reset")
        assert error(inside.name)["offset_ns"] == 0


def test_a_slewed_bump_ends_where_it_should():
    with Inside("sleep", "100000", rate="50") as inside:
        inside.wait_until_shown()
        lorentz.ok("clock", "bump", inside.name, "+100ms", "--slew", "20s")
        assert error(inside.name)["frequency_ppm"] == pytest.approx(5_000)
        deadline = time.monotonic() + 20
        while error(inside.name)["frequency_ppm"] != 0:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        # 20 s of the clock.
        assert error(inside.name)["offset_ns"] == pytest.approx(
            20 * SECOND * (1 - 1 / 1.005), abs=20
        )


def test_a_drift_for_a_while_is_on_top_of_the_other():
    with Inside("sleep", "100000", rate="100", options=("--clock-error", "drift=10ppm")) as inside:
        inside.wait_until_shown()
        lorentz.ok("clock", "drift", inside.name, "+1000ppm", "--for", "30s")
        assert error(inside.name)["frequency_ppm"] == pytest.approx(1010)
        deadline = time.monotonic() + 20
        while error(inside.name)["frequency_ppm"] != pytest.approx(10):
            assert time.monotonic() < deadline
            time.sleep(0.02)


def test_a_strobe_ends_where_it_began():
    with Inside("sleep", "1000", rate="10") as inside:
        inside.wait_until_shown()
        words = ("200ms", "--period", "100ms", "--for", "2s")
        line = [*lorentz.session.command(), "clock", "strobe", inside.name, *words]
        seen = set()
        with subprocess.Popen(line, env=lorentz.session.environment()) as strobe:
            while strobe.poll() is None:
                seen.add(error(inside.name)["offset_ns"])
        assert strobe.returncode == 0
        assert seen <= {0, 200_000_000} and len(seen) == 2
        assert error(inside.name)["offset_ns"] == 0


def test_check_compares_the_error_with_the_bound_that_a_daemon_told():
    with Adjuster() as inside:
        none = lorentz.call("clock", "check", inside.name)
        assert (none.returncode, "no daemon" in none.stdout) == (1, True)
        inside.adjust(STATUS | MAXERROR, status=0, maxerror=100_000)
        assert "within" in inside.clock("check")
        inside.clock("drift", "+10%", "--for", "1500ms")
        deadline = time.monotonic() + 20
        while (done := lorentz.call("clock", "check", inside.name)).returncode == 0:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert "beyond" in done.stdout


def test_log_has_a_line_for_each_look():
    options = ("--clock-error", "offset=1s,drift=1000ppm")
    with Inside("sleep", "1000", rate="100", options=options) as inside:
        inside.wait_until_shown()
        words = ("--every", "10s", "--for", "50s")
        lines = lorentz.ok("clock", "log", inside.name, *words).splitlines()
        assert lines[0].split()[:3] == ["TIME", "INSIDE", "OFFSET"] and len(lines) == 7
        found = lorentz.ok("clock", "log", inside.name, *words, "--json")
        looks = [json.loads(line) for line in found.splitlines()]
        assert len(looks) == 6
        offsets = [look["offset_ns"] for look in looks]
        assert offsets == sorted(offsets) and offsets[0] > SECOND


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("drift", "NAME", "11%"), "drift"),
        (("drift", "NAME", "fast"), "ppm"),
        (("drift", "NAME", "1ppm", "--for", "0s"), "--for"),
        (("bump", "NAME", "+1h", "--slew", "1s"), "10 %"),
        (("bump", "NAME", "-100y"), "1970"),
        (("leap-second", "NAME", "twice"), "insert"),
        (("log", "NAME", "--every", "0s"), "--every"),
        (("strobe", "NAME", "1s", "--period", "-1s"), "--period"),
        (("show", "nobody-there"), "nobody-there"),
    ],
)
def test_wrong_input_gets_one_line(words, names):
    with Inside("sleep", "1000") as inside:
        inside.wait_until_shown()
        words = [inside.name if word == "NAME" else word for word in words]
        lorentz.refusal(lorentz.call("clock", *words), names)
        assert error(inside.name)["offset_ns"] == 0


@pytest.mark.parametrize("wrong", ["offset", "drift=1", "drift=11%", "wander=1", "offset=soon"])
def test_a_wrong_error_from_the_start_is_refused(wrong):
    lorentz.refusal(lorentz.call("run", "--clock-error", wrong, "--", "true"), "--clock-error")


@pytest.mark.parametrize("point", ["BeforeNotify", "AfterNotify", "BeforeRefresh"])
def test_a_command_that_is_killed_in_a_change_leaves_what_it_has_stored(point):
    """The monitor completes the change: the rate and the file say the same in the end."""
    with Faulty("sleep", "1000", rate="1") as inside:
        inside.wait_until_shown()
        inside.kill_at(point, "clock", "drift", inside.name, "+100ppm")
        deadline = time.monotonic() + 10
        while inside.time()["rate"] != "1.0001":
            assert time.monotonic() < deadline, inside.time()["rate"]
            time.sleep(0.02)
        shown = lorentz.json_of("clock", "show", inside.name, session=session())
        assert shown["frequency_ppm"] == pytest.approx(100)
        lorentz.ok("clock", "drift", inside.name, "0ppm", session=session())
        assert inside.time()["rate"] == "1"


def test_a_monitor_that_is_killed_leaves_the_last_course():
    """Its slew goes on as it was published, and ends there."""
    with Inside("sleep", "100000", rate="20") as inside:
        inside.wait_until_shown()
        lorentz.ok("clock", "bump", inside.name, "+10ms", "--slew", "10s")
        os.kill(inside.monitor(), signal.SIGKILL)
        deadline = time.monotonic() + 20
        while inside.time()["rate"] != "20":
            assert time.monotonic() < deadline
            time.sleep(0.05)
