"""The other ways to say what the changing verbs do: --to, --like, --tdf, a PID for a NAME."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from framework import build, lorentz, oracle
from framework.checkpoints import begun
from framework.experiments import until
from framework.oracle import epoch
from framework.running import Inside

WATCH = ["watch", str(10**18), str(10 * 10**6)]


@pytest.fixture
def watch():
    """A program that prints its clocks a hundred times a second, at rate 1 in 2030."""
    with Inside(build.c("clocks/clocks"), *WATCH, rate="1", at="2030-01-01") as inside:
        inside.wait_for(2, ev="now")
        yield inside


def now(inside: Inside) -> dict:
    """Returns a reading begun after this call. The first line after it may be of one begun
    before."""
    start = inside.time()["monotonic_ns"]

    def later() -> list[dict]:
        return [line.data for line in inside.lines(ev="now") if line["mono"] >= start][1:]

    return until(later, "a reading")[0]


def test_leap_to_a_time(watch):
    before = now(watch)
    watch.verb("leap", "--to", "2031-01-01")
    after = now(watch)
    assert 0 <= after["real"] / 1e9 - epoch("2031-01-01") < 10
    year = (after["mono"] - before["mono"]) / 1e9
    assert year == pytest.approx(365 * 86400, abs=60), "all clocks leap"


def test_step_to_a_time(watch):
    before = now(watch)
    watch.verb("step", "--to", "2020-02-02")
    after = now(watch)
    assert 0 <= after["real"] / 1e9 - epoch("2020-02-02") < 10
    assert (after["mono"] - before["mono"]) / 1e9 < 10, "the wall clock alone steps"


def test_leap_to_where_another_clock_is(watch):
    with Inside("sleep", "100000", at="2040-01-01") as other:
        other.wait_until_shown()
        watch.verb("leap", "--like", other.name)
        assert 0 <= now(watch)["real"] / 1e9 - epoch("2040-01-01") < 30


def test_a_pid_does_for_a_name(watch):
    pid = str(now(watch)["pid"])
    assert lorentz.json_of("time", pid)["name"] == watch.name
    lorentz.ok("leap", pid, "--by", "1h")
    lorentz.ok("dilate", pid, "--tdf", "4")
    shown = lorentz.json_of("time", pid)
    assert (shown["rate"], shown["tdf"]) == ("0.25", "4")
    assert 3600 <= now(watch)["real"] / 1e9 - epoch("2030-01-01") < 3700


def test_a_rate_for_one_process_of_several_is_said_to_be_that_of_all():
    with Inside("sh", "-c", "sleep 1000 & sleep 1000 & wait") as inside:

        def sleepers() -> list[int]:
            pids = (lorentz.shown(inside.name) or {}).get("pids", [])
            return [pid for pid in pids if name_of(pid) == "sleep"]

        until(lambda: len(sleepers()) == 2, "two sleepers")
        one = str(sleepers()[0])
        done = lorentz.call("dilate", one, "--tdf", "2")
        expected = f"{one} shares the clock of {inside.name} with 2 other processes"
        assert done.returncode == 0 and expected in done.stderr
        assert lorentz.call("dilate", inside.name, "--tdf", "2").stderr == ""
    with Inside("sleep", "1000") as alone:
        (pid,) = begun(alone)
        assert lorentz.call("dilate", str(pid), "--tdf", "2").stderr == ""


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


@pytest.mark.parametrize(
    ("flags", "rate"),
    [(["--tdf", "10"], 0.1), (["--tdf", "1/3"], 3), (["--rate", "+200ppm"], 1.0002)],
)
def test_a_rate_is_told_exactly(watch, flags, rate):
    watch.verb("dilate", *flags)
    shown = watch.time()
    # Printed in the form of the input: a number, a ratio, or parts per million.
    assert oracle.ratio(shown["tdf"]) * oracle.ratio(shown["rate"]) == pytest.approx(1, rel=1e-12)
    assert oracle.ratio(shown["rate"]) == pytest.approx(rate, rel=1e-9)


def test_changes_on_a_frozen_clock_wait_for_it(watch):
    """dilate takes effect when unfrozen; a leap moves the clock, which stands still there."""
    watch.freeze()
    first = watch.time()
    watch.dilate("50")
    watch.leap("1h")
    time.sleep(0.2)
    second = watch.time()
    assert second["state"] == "frozen"
    leapt = second["monotonic_ns"] - first["monotonic_ns"]
    assert leapt == pytest.approx(3600 * 10**9, abs=1000)
    watch.unfreeze()
    third = watch.time()
    time.sleep(0.2)
    fourth = watch.time()
    assert third["rate"] == "50"
    real = fourth["host"]["monotonic_ns"] - third["host"]["monotonic_ns"]
    assert fourth["monotonic_ns"] - third["monotonic_ns"] == pytest.approx(50 * real, rel=0.01)


def test_freezing_twice_is_freezing_once(watch):
    watch.freeze()
    watch.freeze()
    watch.unfreeze()
    assert watch.time()["state"] == "running"
    watch.unfreeze()
    assert watch.time()["state"] == "running"


def test_a_change_tells_what_followed():
    sleep = [build.c("waits/sleep"), str(1000 * 10**9), "nanosleep", "usleep"]
    with Inside(*sleep, rate="1") as inside:
        inside.wait_for(2, ev="ready")
        until(lambda: inside.time()["waits"] == 2, "both waits")
        shown = json.loads(inside.verb("dilate", "--rate", "2", "--json"))
    assert shown["rate"] == "2"
    assert shown["followed"]["waits"] == 2
