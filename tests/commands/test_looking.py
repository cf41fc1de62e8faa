"""ps, time and doctor: for people and as JSON."""

from __future__ import annotations

import json
import re
import time

import pytest
from framework import build, lorentz
from framework.build import REPO
from framework.experiments import until
from framework.running import Inside


@pytest.fixture
def container():
    """A container of three processes."""
    script = 'sleep 100000 & sleep 100000 & echo \'{"ev":"up"}\'; wait'
    with Inside("/bin/sh", "-c", script, rate="10", at="2038-01-19") as inside:
        inside.line(ev="up")
        until(lambda: len(inside.shown()["pids"]) == 3, "the shell's children")
        yield inside


def test_ps_shows_each_container_and_its_processes(container):
    shown = container.shown()
    assert shown["state"] == "running"
    assert shown["rate"] == "10"
    assert shown["monitor_alive"] is True
    assert len(shown["pids"]) == 3
    assert shown["command"][0] == "/bin/sh"
    table = lorentz.ok("ps").splitlines()
    line = next(line for line in table if container.name in line)
    assert "running" in line and "2038-01-19" in line
    assert "NAME" in table[0]


def test_ps_of_nothing_is_an_empty_list(tmp_path):
    env = {**lorentz.session.environment(), "LORENTZ_STATE_DIR": str(tmp_path / "empty")}
    assert json.loads(lorentz.call("ps", "--json", env=env).stdout) == []
    table = lorentz.call("ps", env=env)
    assert table.returncode == 0
    assert len(table.stdout.splitlines()) == 1


def test_time_shows_the_clocks_beside_the_hosts(container):
    shown = container.time()
    assert shown["mechanism"] == "shim"
    assert shown["wall"].startswith("2038-01-")
    host = shown["host"]
    assert host["monotonic_ns"] / 1e9 == pytest.approx(time.monotonic(), abs=5)
    assert host["boottime_ns"] / 1e9 == pytest.approx(
        time.clock_gettime(time.CLOCK_BOOTTIME), abs=5
    )
    assert shown["monotonic_ns"] > host["monotonic_ns"]
    text = lorentz.ok("time", container.name)
    for word in ("shim", "running", "10", "wall clock", "monotonic", "2038-01-"):
        assert word in text


def test_offsets_alone_need_no_shim():
    """If only MONOTONIC and BOOTTIME have offsets, a time namespace of the kernel's does it."""
    options = ["--monotonic", "1d", "--boottime", "2d"]
    with Inside(
        build.c("clocks/clocks"), "watch", str(10**15), str(10**9), options=options
    ) as inside:
        line = inside.line(ev="now")
        shown = inside.time()
    assert shown["mechanism"] in ("time-namespace", "shim")
    day = 86400
    assert line["mono"] / 1e9 - day == pytest.approx(time.monotonic(), abs=10)
    assert shown["monotonic_ns"] - shown["host"]["monotonic_ns"] == pytest.approx(
        day * 1e9, rel=1e-3
    )


def test_waits_in_progress_are_counted():
    sleep = [build.c("waits/sleep"), str(1000 * 10**9), "nanosleep", "usleep"]
    with Inside(*sleep, rate="1") as inside:
        inside.wait_for(2, ev="ready")
        until(lambda: inside.time()["waits"] == 2, "both waits")


def test_doctor_lists_what_is_there_and_what_is_not():
    done = lorentz.call("doctor", "--json")
    shown = json.loads(done.stdout)
    missing = [f["name"] for f in shown["features"] if f["needed"] and not f["available"]]
    assert done.returncode == (1 if missing else 0)
    for feature in shown["features"]:
        assert feature["available"] or feature["how_to_get"], feature["name"]
    names = {feature["name"] for feature in shown["features"]}
    assert {"seccomp-filter", "time-namespace", "cgroup-freeze", "root"} <= names
    text = lorentz.call("doctor").stdout
    for name in names:
        assert name in text


def test_every_limit_of_doctor_is_written_down():
    """doctor prints the labelled items of docs/limits.md, and no others."""
    page = (REPO / "docs" / "limits.md").read_text()
    labels = re.findall(r"^- \*\*(.+?)\*\*: ", page, re.MULTILINE)
    shown = json.loads(lorentz.call("doctor", "--json").stdout)["not_virtual_yet"]
    assert shown
    words = " ".join(re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", page).replace("`", "").split())
    for limit in shown:
        assert limit["what"] in words and limit["instead"] in words, limit
    # A section is printed as a whole: its first and its last label are here.
    printed = {limit["what"] for limit in shown}
    assert {"TCP's own timers", "Debuggers from outside"} <= printed & set(labels)


@pytest.mark.parametrize(
    "words", [["--help"], ["run", "--help"], ["leap", "--help"], ["--version"]]
)
def test_help_is_help(words):
    done = lorentz.call(*words)
    assert done.returncode == 0
    assert "lorentz" in done.stdout.lower()
    assert done.stderr == ""
