"""File times: what is written inside is new there, what is older keeps its time, times set by hand
read back as they were set."""

from __future__ import annotations

import os
import time

import pytest
from framework import build
from framework.running import Inside

HOUR = 3600.0
DATES = [None, "2038-01-19", "1999-12-31T23:00:00Z"]


def files(folder, options=(), at=None, rate="1", nap=0.0):
    """Returns the output of programs/faces/files, which works in `folder`, where `old` is an hour
    old."""
    old = folder / "old"
    old.write_text("x")
    changed = time.time() - HOUR
    os.utime(old, (changed, changed))
    program = [build.c("faces/files"), folder, str(round(nap * 1e9))]
    with Inside(*program, rate=rate, at=at, options=options) as inside:
        inside.succeed()
        return inside


@pytest.mark.parametrize("at", [None, "2038-01-19"])
def test_a_file_of_before_the_start_shows_the_hosts_time(tmp_path, at):
    """By every call of the stat family."""
    inside = files(tmp_path, at=at)
    calls = inside.lines(ev="times")
    assert len(calls) == 10
    for line in calls:
        assert line["mtime"] == (tmp_path / "old").stat().st_mtime_ns, line["call"]


def test_a_young_file_shows_half_its_age_where_the_hosts_date_is_to_come(tmp_path):
    """By every call of the stat family."""
    inside = files(tmp_path, at="1999-12-31T23:00:00Z")
    calls = inside.lines(ev="times")
    assert len(calls) == 10
    for line in calls:
        assert line["age"] == pytest.approx(HOUR / 2, abs=5), line["call"]
        assert line["mtime"] == calls[0]["mtime"], line["call"]


@pytest.mark.parametrize("rate", ["1", "10", "1/10"])
@pytest.mark.parametrize("at", DATES)
def test_what_changes_inside_is_new(tmp_path, at, rate):
    """Created, written, touched: the file's time is the wall clock's, to a tick of the kernel."""
    inside = files(tmp_path, at=at, rate=rate)
    fresh = [line for line in inside.lines(ev="fresh") if line["how"] != "aged"]
    assert len(fresh) == 7
    slack = 0.1 * max(1.0, {"1": 1, "10": 10, "1/10": 0.1}[rate])
    for line in fresh:
        assert -0.02 <= line["age"] <= slack, line["how"]
        assert -0.02 <= line["cage"] <= slack, line["how"]


@pytest.mark.parametrize(("rate", "nap"), [("10", 5.0), ("1/10", 0.1)])
def test_what_was_changed_inside_ages_at_the_rate(tmp_path, rate, nap):
    inside = files(tmp_path, rate=rate, nap=nap)
    age = inside.line(ev="fresh", how="aged")["age"]
    assert age == pytest.approx(nap, rel=0.05, abs=1.0 if rate == "10" else 0.02)


@pytest.mark.parametrize("at", DATES)
def test_times_set_by_hand_read_back_the_same(tmp_path, at):
    """At rate 1, by every call that sets them, to the nanosecond where the call knows them."""
    inside = files(tmp_path, at=at)
    explicit = inside.lines(ev="explicit")
    assert len(explicit) == 6
    wrong = [line.data for line in explicit if not line["same"]]
    assert not wrong


def test_programs_see_which_file_is_newer(tmp_path):
    """find and test see that a file was made before the start."""
    old = tmp_path / "old"
    old.write_text("x")
    hour_ago = time.time() - HOUR
    os.utime(old, (hour_ago, hour_ago))
    script = """
        touch new
        test new -nt old && echo newer
        find . -name old -mtime +365
        find . -name new -mmin -1
    """
    with Inside("/bin/sh", "-c", script, rate="1", at="2038-01-19", cwd=tmp_path) as inside:
        inside.succeed()
    assert inside.stdout.split() == ["newer", "./old", "./new"]


def test_file_times_may_be_left_as_the_hosts(tmp_path):
    """--file-times real: the host's times, whatever the date inside."""
    inside = files(tmp_path, options=["--file-times", "real"], at="2038-01-19")
    for line in inside.lines(ev="times"):
        assert line["mtime"] / 1e9 == pytest.approx(time.time() - HOUR, abs=60), line["call"]
    new = (tmp_path / "new").stat()
    assert new.st_mtime == pytest.approx(time.time(), abs=60)
