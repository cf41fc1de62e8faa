"""Changes of a whole container: calls without time are not disturbed, all processes on the clock
follow."""

from __future__ import annotations

import random
import time

import pytest
from framework import build, lorentz, processes
from framework.needs import feature
from framework.oracle import HostNoise, epoch
from framework.running import Inside

IDLE = 15


@pytest.mark.parametrize("armed", [[], ["armed"]], ids=["plain", "armed"])
def test_waits_without_a_timeout_are_not_disturbed(armed):
    """pause, read, futex, sigwaitinfo and their like sleep on through a hundred changes, with and
    without an armed timer beside them that is re-armed each time. The freezer alone would end
    epoll_wait, semop and others with EINTR. After that signals still reach them."""
    rng = random.Random(1)
    with Inside(build.c("process/idle"), *armed, rate="1", stdin=True) as inside:
        inside.wait_for(IDLE, ev="ready")
        time.sleep(0.3)
        for _ in range(25):
            inside.dilate(str(rng.randint(1, 1000)))
            inside.leap(f"{rng.randint(1, 500)}ms")
            inside.step(f"{rng.randint(-3600, 3600)}s")
        for _ in range(10):
            inside.freeze()
            time.sleep(0.05)
            inside.unfreeze()
        assert inside.lines(ev="done") == []
        inside.dilate("1")
        inside.close_stdin()
        inside.line(ev="release")
        ended = inside.wait_for(IDLE, ev="done")
        assert {(line["ret"], line["err"]) for line in ended} == {(-1, 4)}  # EINTR
        inside.succeed()


def test_looks_that_do_not_wait_are_not_disturbed():
    """The kernel's poll and select say EINTR for a pending signal with a timeout of zero, too."""
    with Inside(build.c("changes/polls"), rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        for number in range(100):
            inside.dilate(str(1 + number % 7))
        inside.close_stdin()
        event = inside.line(ev="polls")
        inside.succeed()
    assert event["calls"] > 1000
    assert event["interrupted"] == 0


def test_threads_on_their_way_into_a_wait_are_not_disturbed():
    """A freeze finds threads just before a call that the freezer breaks off, and just behind it."""
    feature("cgroup-freeze")
    with Inside(build.c("changes/wakes"), rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        for _ in range(100):
            inside.freeze()
            inside.unfreeze()
        inside.close_stdin()
        event = inside.line(ev="wakes")
        inside.succeed()
    assert event["calls"] > 1000
    assert event["interrupted"] == 0


def test_a_frozen_container_runs_nothing():
    """With the cgroup v2 freezer the tasks stop: a spinning program uses no CPU time."""
    feature("cgroup-freeze")
    with Inside(build.c("stress/hammer"), "2", stdin=True) as inside:
        pid = inside.line(ev="ready")["pid"]
        time.sleep(0.2)
        inside.freeze()
        first = processes.cpu_ticks(pid)
        time.sleep(0.5)
        assert processes.cpu_ticks(pid) == first
        inside.unfreeze()
        deadline = time.monotonic() + 10
        while processes.cpu_ticks(pid) == first:
            assert time.monotonic() < deadline, "it does not go on"
            time.sleep(0.02)
        inside.close_stdin()
        inside.succeed()


def test_a_second_freeze_waits_for_nothing():
    """Stopped tasks cannot answer: a freeze of a frozen container took a tenth of a second."""
    feature("cgroup-freeze")
    with Inside("sleep", "1000") as inside:
        inside.wait_until_shown()
        inside.freeze()
        taken, command = [], []
        for _ in range(5):
            begun = time.monotonic()
            inside.freeze()
            taken.append(time.monotonic() - begun)
            inside.time()
            command.append(time.monotonic() - begun - taken[-1])
        inside.unfreeze()
    # A command that only reads shows how long this machine needs to start one.
    assert min(taken) < min(command) + 0.05


def test_time_stands_still_where_it_was_frozen():
    """A program's readings before and after a freeze show one time: no jump."""
    with Inside(build.c("stress/hammer"), "2", stdin=True) as inside:
        inside.line(ev="ready")
        for _ in range(3):
            inside.freeze()
            time.sleep(1.5)
            inside.unfreeze()
            time.sleep(0.05)
        inside.close_stdin()
        inside.succeed()
        seen = inside.line(ev="hammer")
    assert seen["backwards"] == 0
    # The machine may have delayed a thread between two readings, but not for so long.
    assert seen["widest"] < 1.3, "time went on while it stood still"


def test_a_container_that_starts_frozen_starts_when_unfrozen():
    with Inside(build.c("process/probe"), "0", options=["--frozen"], at="2038-01-19") as inside:
        time.sleep(0.7)
        assert inside.lines(ev="probe") == []
        begun = time.monotonic()
        inside.unfreeze()
        probe = inside.line(ev="probe")
        inside.succeed()
    passed = probe["real"] - epoch("2038-01-19")
    assert 0 <= passed <= probe.at - begun, "time went on while it stood still"


def rests(pid: int) -> bool:
    """Whether a process sleeps for a quarter of a second."""
    before = processes.times_slept(pid)
    time.sleep(0.25)
    return processes.times_slept(pid) == before


def test_a_container_that_waits_for_its_start_does_nothing():
    """A network has a thousand of them while it is made."""
    with Inside("true", options=["--frozen"]) as inside:
        inside.wait_until_shown()
        assert any(rests(inside.process.pid) for _ in range(20)), "its monitor wakes"
        inside.unfreeze()
        inside.succeed()


def test_one_more_command_lives_on_the_same_clock():
    """exec NAME: the same rate, the same date, and a leap reaches it."""
    nap = [build.c("clocks/clocks"), "watch", str(10**15), str(20 * 10**9)]
    with Inside(*nap, rate="100", at="2030-01-01") as inside:
        inside.line(ev="now")
        probe = lorentz.call("exec", inside.name, str(build.c("process/probe")), str(10**9))
        assert probe.returncode == 0, probe.stderr
        assert '"ev":"probe"' in probe.stdout
        before = inside.time()["monotonic_ns"]
        again = lorentz.call("exec", inside.name, str(build.c("clocks/clocks")), "now")
        assert '"ev":"now"' in again.stdout
        mono = int(again.stdout.split('"mono":')[1].split(",")[0])
        assert before <= mono <= inside.time()["monotonic_ns"]


def test_the_exit_status_of_exec_is_the_commands():
    with Inside("sleep", "1000", rate="1") as inside:
        inside.wait_until_shown()
        assert lorentz.call("exec", inside.name, "sh", "-c", "exit 7").returncode == 7
        assert lorentz.call("exec", inside.name, "sh", "-c", "kill -15 $$").returncode == 143


@pytest.mark.parametrize("verb", ["leap", "dilate"])
def test_several_programs_may_share_one_clock(verb):
    """run --clock NAME: a change of NAME's clock ends the waits of both."""
    sleep = [build.c("waits/sleep"), str(100 * 10**9), "nanosleep"]
    with HostNoise() as noise, Inside(*sleep, rate="1") as first:
        first.line(ev="ready")
        with Inside(*sleep, options=["--clock", first.name]) as second:
            second.line(ev="ready")
            time.sleep(0.3)
            start = time.monotonic()
            if verb == "leap":
                first.leap("100s")
            else:
                first.dilate("1000")
            ends = [first.line(ev="done"), second.line(ev="done")]
    assert max(end.at for end in ends) - start < 1 + noise.slack
    assert min(end["elapsed"] for end in ends) >= 100
