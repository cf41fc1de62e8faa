"""Times as people say them: told as `date --date` of GNU tells them, in any time zone."""

from __future__ import annotations

import json
import subprocess
from datetime import datetime

import pytest
from framework import build, lorentz
from framework.running import Inside

#: Phrases that depend on now: a look before and one after enclose the answer.
RELATIVE = ["tomorrow", "2 days ago", "now", "1 week ago", "+3 hours", "last month", "+2 days"]
#: Phrases that depend on today at most.
FIXED = [
    "tomorrow 9:00",
    "next monday 9:00",
    "last friday 5 pm",
    "yesterday 12:00",
    "2038-01-19 03:14",
    "2008-12-24 08:15:42.5",
    "24 Dec 2030 10:00",
    "12/24/2030",
    "Jan 19 2038",
    "2038-01-19 03:14 EST",
    "2030-07-01 12:00 +0530",
]
ZONES = ["UTC", "America/New_York", "Europe/Berlin", "Asia/Kathmandu", "Australia/Lord_Howe"]


def at(phrase: str, zone: str = "UTC") -> float:
    """The wall clock at the start of a container with --at PHRASE."""
    command = [*lorentz.session.command(), "run", "--dry-run", "--json", "--at", phrase, "true"]
    environment = {**lorentz.session.environment(), "TZ": zone}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return datetime.fromisoformat(json.loads(done.stdout)["wall"]).timestamp()


def by_date(phrase: str, zone: str) -> float:
    """The same by GNU's `date`."""
    command = ["date", "--date", phrase, "+%s.%N"]
    return float(subprocess.check_output(command, env={"TZ": zone, "LC_ALL": "C"}, text=True))


@pytest.mark.parametrize("zone", ZONES)
@pytest.mark.parametrize("phrase", FIXED)
def test_a_phrase_names_the_instant_that_it_names_for_date(phrase: str, zone: str):
    # Of two looks by `date` one is of the same day as the look between them.
    before, told, after = by_date(phrase, zone), at(phrase, zone), by_date(phrase, zone)
    assert told in (before, after)


@pytest.mark.parametrize("phrase", RELATIVE)
def test_a_distance_counts_from_the_hosts_time(phrase: str):
    before, told, after = by_date(phrase, "UTC"), at(phrase), by_date(phrase, "UTC")
    # The microseconds of a float, and of Python's datetime.
    assert before - 1e-6 <= told <= after + 1e-6


def test_a_signed_duration_counts_from_the_hosts_time():
    before, told, after = by_date("now", "UTC"), at("+1d12h"), by_date("now", "UTC")
    assert before - 1e-6 <= told - 36 * 3600 <= after + 1e-6


def test_a_zone_behind_the_time_names_the_zone():
    expected = by_date('TZ="Europe/Berlin" 2038-01-19 03:14', "UTC")
    assert at("2038-01-19 03:14 Europe/Berlin", "Asia/Tokyo") == expected


@pytest.mark.parametrize(
    ("phrase", "expected"),
    [("2030-10-27 02:30", "2030-10-27T00:30:00Z"), ("2030-03-31 02:30", "2030-03-31T01:30:00Z")],
)
def test_hours_of_a_change_of_summer_time(phrase: str, expected: str):
    """One hour comes twice, and one never."""
    assert at(f"{phrase} Europe/Berlin") == datetime.fromisoformat(expected).timestamp()


def test_a_program_lives_at_a_date_in_words():
    output = lorentz.ok("run", "--at", "2038-01-19 03:14 Europe/Berlin", "date", "-u", "+%F %H:%M")
    assert output == "2038-01-19 02:14\n"


@pytest.mark.parametrize("phrase", ["soon", "5", "z", "1700000000", "2030-02-30 5:00"])
def test_no_date_is_refused_in_one_line(phrase: str):
    line = lorentz.refusal(lorentz.call("run", "--at", phrase, "true"), f"--at {phrase}: ")
    assert "expected a time such as " in line


def test_words_for_a_leap_and_a_step_count_from_the_containers_clock():
    program = build.c("waits/sleep"), str(1000 * 10**9), "nanosleep"
    with Inside(*program, at="2030-01-05T12:00:00Z", options=["--frozen"]) as container:
        container.wait_until_shown()
        lorentz.ok("leap", container.name, "--to", "next monday 9:00 UTC")
        assert container.time()["wall"] == "2030-01-07T09:00:00Z"
        lorentz.ok("step", container.name, "--to", "-1h")
        assert container.time()["wall"] == "2030-01-07T08:00:00Z"
        lorentz.ok("unfreeze", container.name)
