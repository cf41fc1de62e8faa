"""Everything as nobody: no time namespace, no cgroup; the same virtual time."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import pytest
from framework import build, lorentz
from framework.experiments import until
from framework.oracle import HostNoise, epoch
from framework.running import Inside


def own(program: Path) -> Path:
    """Copies a test program to a place where nobody else can execute it."""
    copy = lorentz.session.folder / program.name
    if not copy.exists():
        shutil.copy2(program, copy)
        copy.chmod(0o755)
    return copy


def test_dates_and_rates_and_programs_started():
    script = f"date +%Y; {own(build.c('process/probe'))} {10**9}; date +%Y"
    with Inside("/bin/sh", "-c", script, rate="10", at="2038-01-19", unprivileged=True) as inside:
        inside.succeed()
        took = inside.ended_at - inside.started_at
    assert [line for line in inside.stdout.split() if line.isdigit()] == ["2038", "2038"]
    event = inside.line(ev="probe")
    assert event["uid"] == (lorentz.NOBODY if lorentz.as_nobody() else event["uid"])
    assert 0 <= event["real_raw"] - epoch("2038-01-19") < 100
    assert event["slept"] >= 1
    assert took < 1 + 2


@pytest.mark.parametrize("change", ["leap", "dilate", "freeze"])
def test_changes_reach_waits(change):
    nominal = 3 if change == "freeze" else 100
    command = [own(build.c("waits/sleep")), str(nominal * 10**9), "nanosleep", "usleep"]
    command += ["clock_nanosleep-monotonic-abs"]
    with HostNoise() as noise, Inside(*command, rate="1", unprivileged=True) as inside:
        inside.wait_for(3, ev="ready")
        until(lambda: inside.time()["waits"] == 3, "all waits")
        start = time.monotonic()
        if change == "leap":
            inside.leap("100s")
        elif change == "dilate":
            inside.dilate("1000")
        else:
            inside.freeze()
            time.sleep(1)
            assert inside.lines(ev="done") == []
            inside.unfreeze()
        done = inside.wait_for(3, timeout=10, ev="done")
        inside.succeed()
    assert min(line["elapsed"] for line in done) >= nominal
    most = nominal + 2.25 if change == "freeze" else 1.75
    assert max(line.at for line in done) - start < most + noise.slack


def test_ps_and_time_and_exec():
    with Inside("sleep", "100000", at="2038-01-19", rate="5", unprivileged=True) as inside:
        deadline = time.monotonic() + 5
        while not any(e["name"] == inside.name for e in lorentz.ps(unprivileged=True)):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert inside.time()["rate"] == "5"
        done = lorentz.call("exec", inside.name, "date", "+%Y", unprivileged=True)
        assert (done.returncode, done.stdout.strip()) == (0, "2038"), done.stderr
    assert all(entry["name"] != inside.name for entry in lorentz.ps())


def test_doctor_says_what_root_adds():
    shown = json.loads(lorentz.call("doctor", "--json", unprivileged=True).stdout)
    root = next(feature for feature in shown["features"] if feature["name"] == "root")
    assert root["available"] is False
    assert root["how_to_get"]
    needed = [f["name"] for f in shown["features"] if f["needed"] and not f["available"]]
    assert needed == [], "cannot run without root"
