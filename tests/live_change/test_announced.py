"""Changes announced for a host time (--at): they come by themselves, at once for everybody."""

from __future__ import annotations

import datetime
import os
import signal
import time
from pathlib import Path

import pytest
from framework import build, lorentz, oracle, processes
from framework.needs import feature
from framework.oracle import HostNoise
from framework.running import Inside


def host_time(ahead: float) -> tuple[str, float]:
    """Returns the host's wall clock `ahead` seconds from now, as text for the command, and as a
    number."""
    at = time.time() + ahead
    text = datetime.datetime.fromtimestamp(at, datetime.UTC).isoformat().replace("+00:00", "Z")
    return text, at


def until(at: float) -> None:
    """Sleeps until the host's wall clock shows `at`."""
    time.sleep(max(0, at - time.time()))


def test_what_is_to_come_is_shown_and_comes():
    with Inside("sleep", "1000000", rate="1") as inside:
        inside.wait_until_shown()
        first, second, third = (host_time(ahead) for ahead in (3, 3.5, 4))
        inside.verb("dilate", "--rate", "3", "--at", first[0])
        inside.verb("leap", "--by", "1h", "--at", second[0])
        inside.verb("step", "--by=-10m", "--at", third[0])
        to_come = inside.time()["to_come"]
        assert [change["rate"] for change in to_come] == ["3", "3", "3"]
        assert [change["leap_ns"] for change in to_come] == [0, 3_600_000_000_000, 0]
        assert [change["step_ns"] for change in to_come] == [0, 0, -600_000_000_000]
        text = lorentz.ok("time", inside.name)
        assert text.count("to come") == 3
        assert "rate 3" in text and "leap by 1h" in text and "step by -10m" in text
        until(third[1] + 0.1)
        end = inside.time()
        assert (end["to_come"], end["rate"]) == ([], "3")


def test_it_begins_at_its_very_instant():
    """To the microsecond, by arithmetic: readings before and after give the time of the change."""
    with Inside("sleep", "1000000000", rate="1") as inside:
        inside.wait_until_shown()
        text, at = host_time(2.0)
        before = inside.time()
        inside.verb("dilate", "--rate", "1000", "--at", text)
        announced = inside.time()["to_come"][0]
        until(at + 0.2)
        after = inside.time()
    real = after["host"]["monotonic_ns"] - before["host"]["monotonic_ns"]
    virtual = after["monotonic_ns"] - before["monotonic_ns"]
    # `real - x` at rate 1, then `x` at rate 1000.
    begun_before = (virtual - real) / 999
    begins = after["host"]["monotonic_ns"] - begun_before
    announced_in = announced["in_ns"]
    # The announced instant by CLOCK_MONOTONIC: between the looks before and after the wall clock's.
    earliest = time.monotonic() - time.time() + at
    latest = -time.time() + time.monotonic() + at
    assert earliest - 0.001 < begins / 1e9 < latest + 0.001
    assert announced_in < 2.0e9


@pytest.mark.parametrize("kind", ["sleep", "timer"])
def test_waits_and_timers_in_progress_switch_by_themselves(kind):
    """Neither early nor late, although no process signals the begin: the monitor is killed."""
    program = build.c("waits/sleep") if kind == "sleep" else build.c("faults/points")
    with HostNoise() as noise:
        if kind == "sleep":
            with Inside(program, str(100 * 10**9), "nanosleep", "nanosleep", rate="1") as inside:
                starts = inside.wait_for(2, ev="ready")
                text, _ = host_time(2.0)
                inside.verb("dilate", "--rate", "1000", "--at", text)
                os.kill(inside.monitor(), signal.SIGKILL)
                ends = inside.wait_for(2, timeout=20, ev="done")
                for start, end in zip(starts, ends, strict=True):
                    # Two seconds at rate 1, then 98 at rate 1000.
                    assert end.at - start.at >= 2.0
                    assert end["elapsed"] <= 100 + 1000 * noise.slack
        else:
            with Inside(program, rate="10", stdin=True) as inside:
                inside.line(ev="ready")
                # 1600 ticks of 10 ms: at rate 10 they take 1.6 s. Before that it slows down.
                text, _ = host_time(1.5)
                inside.verb("dilate", "--rate", "1", "--at", text)
                inside.process.stdin.write(b"do ticks 1600\n")
                inside.process.stdin.flush()
                assert inside.line(ev="done")["ret"] == 0, "came early"


def test_an_earlier_change_drops_later_ones_and_says_so():
    with Inside("sleep", "1000000", rate="1") as inside:
        inside.wait_until_shown()
        for hours in (1, 2, 3):
            inside.verb("dilate", "--rate", str(hours + 1), "--at", host_time(3600 * hours)[0])
        done = lorentz.call("leap", inside.name, "--by", "1s", "--at", host_time(5400)[0])
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == "lorentz: 2 changes that were announced for later are dropped\n"
        assert [change["rate"] for change in inside.time()["to_come"]] == ["2", "2"]
        done = lorentz.call("dilate", inside.name, "--rate", "9", "--json")
        assert "2 changes" in done.stderr
        assert inside.time()["to_come"] == []


def test_so_many_may_be_to_come():
    with Inside("sleep", "1000000", rate="1") as inside:
        inside.wait_until_shown()
        for number in range(16):
            inside.verb("leap", "--by", "1s", "--at", host_time(3600 + number)[0])
        done = lorentz.call("leap", inside.name, "--by", "1s", "--at", host_time(7200)[0])
        assert done.returncode == 1
        assert "at most 16 at once" in done.stderr
        inside.leap("1s")
        assert inside.time()["to_come"] == []


def spins(pid: int) -> bool:
    """Whether a thread of a program runs, or would if it had a processor."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return "R" in [processes.state(f"{pid}/task/{thread.name}") for thread in threads]


def test_a_freeze_that_was_announced_stops_the_tasks_too():
    """The container's monitor stops the tasks, and continues them as announced."""
    feature("cgroup-freeze")
    with Inside(build.c("stress/hammer"), "1", stdin=True) as inside:
        pid = inside.line(ev="ready")["pid"]
        (first, at), (second, then) = host_time(1.5), host_time(5.5)
        inside.verb("freeze", "--at", first)
        inside.verb("unfreeze", "--at", second)
        until(at + 0.1)
        assert inside.time()["state"] == "frozen"
        deadline = time.monotonic() + 10
        while spins(pid):
            assert time.monotonic() < deadline, "the monitor does not stop the tasks"
            time.sleep(0.02)
        ticks = processes.cpu_ticks(pid)
        time.sleep(0.4)
        assert processes.cpu_ticks(pid) == ticks
        until(then + 0.1)
        assert inside.time()["state"] == "running"
        deadline = time.monotonic() + 10
        while processes.cpu_ticks(pid) == ticks:
            assert time.monotonic() < deadline
        inside.close_stdin()
        assert inside.line(ev="hammer")["backwards"] == 0


@pytest.mark.parametrize("verb", [("dilate", "--rate", "2"), ("freeze",), ("leap", "--by", "1s")])
def test_a_time_in_the_past_is_refused(verb):
    with Inside("sleep", "1000000", rate="1") as inside:
        inside.wait_until_shown()
        word, *rest = verb
        line = lorentz.refusal(
            lorentz.call(word, inside.name, *rest, "--at", "2020-01-01"), "--at 2020-01-01"
        )
        assert "is past" in line
        assert inside.time()["to_come"] == []


DROPPED = [("freeze",), ("dilate", "--rate", "1/1000"), ("leap", "--by", "1h")]


@pytest.mark.parametrize("dropped", DROPPED, ids=lambda verb: verb[0])
@pytest.mark.parametrize("later", [False, True], ids=["at once", "announced too"])
def test_a_step_that_drops_a_change_moves_all_waits(dropped, later):
    """The wait does not use the wall clock. But its deadline was computed with the dropped
    change."""
    length = 3.0
    with (
        HostNoise() as noise,
        Inside(build.c("waits/sleep"), str(round(length * 1e9)), "nanosleep", rate="1") as inside,
    ):
        start = inside.line(ev="ready")
        (first, _), (second, _) = host_time(2.1), host_time(2.2)
        inside.verb(*dropped, "--at", second)
        step = ["--at", first] if later else []
        output = lorentz.call("step", inside.name, "--by=1s", *step)
        assert "dropped" in output.stderr
        end = inside.line(timeout=10, ev="done")
    assert end.at - start.at in oracle.real(length, 1, noise.slack)
    assert end["elapsed"] in oracle.own(length, 1, noise.slack)
