"""A thread of a program stops at a place of the shim, and is killed there, forked, replaced,
signalled, or stands still."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from framework import build, processes
from framework.failpoints import Faulty
from framework.points import (
    AT_ONCE,
    EACH,
    EINTR,
    Place,
    at_each,
    beside,
    done,
    kill,
    points,
    tell,
    until,
    verb,
    wait_until_it_waits,
    works,
)


def goes_on(inside: Faulty, place: Place) -> None:
    """Checks that thread 1 ends its order, and that the program works."""
    inside.points.release(place.point)
    ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1, op=place.way.order)
    assert ended[-1]["ret"] >= 0
    works(inside)


@at_each("kill", "program")
def test_a_program_that_is_killed_holds_nobody_up(place):
    with points() as inside, beside(inside) as other:
        program = inside.line(ev="ready")["pid"]
        place.reach(inside)
        works(other)
        kill(program)
        verb(inside, "dilate", inside.name, "--rate", "2")
        works(other)
        verb(inside, "freeze", inside.name)
        verb(inside, "unfreeze", inside.name)
        works(other)
        assert inside.time()["rate"] == "2"


@at_each("stop", "program")
def test_a_thread_that_stands_still_holds_no_other_program_up(place):
    """Nor the threads beside it, unless they set the very timer that it is setting."""
    with points() as inside, beside(inside) as other:
        inside.line(ev="ready")
        place.reach(inside)
        works(other)
        for order in ("sleep 1000000", "process", "receive", "file", "date", "hot"):
            assert done(inside, order, who=2)["ret"] >= 0, order
        verb(inside, "dilate", inside.name, "--rate", "2")
        verb(inside, "freeze", inside.name)
        verb(inside, "unfreeze", inside.name)
        works(other)
        goes_on(inside, place)


@at_each("fork", "program")
def test_a_child_of_a_fork_has_nothing_of_a_thread_that_it_does_not_have(place):
    with points() as inside:
        inside.line(ev="ready")
        place.reach(inside)
        for number, order in enumerate(EACH, 1):
            tell(inside, f"fork {order}")
            child = inside.wait_for(number, timeout=AT_ONCE, ev="child")[-1]
            assert child["status"] == 0, order
        assert all(line["ret"] >= 0 for line in inside.lines(ev="done", who=3))
        goes_on(inside, place)


@at_each("exec", "program")
def test_a_program_that_another_thread_becomes_has_nothing_of_the_one_before(place):
    with points() as inside:
        inside.line(ev="ready")
        place.reach(inside)
        tell(inside, "exec")
        inside.wait_for(2, timeout=AT_ONCE, ev="ready")
        inside.points.release(place.point)
        works(inside)
        verb(inside, "dilate", inside.name, "--rate", "2")
        works(inside)


@at_each("signal", "program")
def test_a_signal_comes_when_the_thread_goes_on(place):
    with points() as inside:
        inside.line(ev="ready")
        place.reach(inside)
        tell(inside, f"signal {signal.SIGUSR1.value}")
        inside.line(ev="sent")
        inside.points.release(place.point)
        inside.line(timeout=AT_ONCE, ev="signal")
        ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1, op=place.way.order)
        assert len(ended) == 1
        works(inside)


@at_each("change", "program")
def test_a_change_reaches_a_thread_that_stood_still(place):
    """A wait about to begin, or to end, follows changes made meanwhile."""
    with points() as inside:
        inside.line(ev="ready")
        order = place.way.order
        if order.startswith("sleep"):
            order = "sleep 400000000000"
            inside.points.arm(place.point)
            tell(inside, f"do {order}")
            if place.point == "WaitLeaving":
                wait_until_it_waits(inside)
                verb(inside, "leap", inside.name, "--by", "500s")
            inside.points.wait(place.point)
        else:
            place.reach(inside)
        verb(inside, "dilate", inside.name, "--rate", "1/2")
        verb(inside, "leap", inside.name, "--by", "500s")
        inside.points.release(place.point)
        ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1, op=order)
        assert ended[0]["ret"] >= 0
        works(inside)


@pytest.mark.parametrize("order", ["poll", "epoll"])
def test_a_change_at_the_end_of_an_interrupted_call_leaves_it_interrupted(order):
    """The clock-change signal comes where the trap returns EINTR to the program."""
    with points() as inside:
        inside.line(ev="ready")
        tell(inside, f"do {order}")
        wait_until_it_waits(inside)
        inside.points.arm("WaitLeaving")
        tell(inside, f"signal {signal.SIGUSR1.value}")
        inside.points.wait("WaitLeaving")
        verb(inside, "leap", inside.name, "--by", "1s")
        inside.points.release("WaitLeaving")
        ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]
        assert (ended["ret"], ended["err"], ended["signals"]) == (-1, EINTR, 1)
        works(inside)


def test_an_ignored_signal_during_a_trap_wakes_nobody_else():
    """SIGCHLD is dropped as natively, although its target thread carries out a call."""
    with points() as inside:
        inside.line(ev="ready")
        child = done(inside, "child")["ret"]
        tell(inside, "other epoll")
        wait_until_it_waits(inside)
        inside.points.arm("TimerHeld")
        tell(inside, "do settimer 100")
        inside.points.wait("TimerHeld")
        os.kill(child, signal.SIGKILL)
        until(lambda: processes.state(child) == "Z")
        inside.points.release("TimerHeld")
        verb(inside, "leap", inside.name, "--by", "200000s")
        ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=2)[0]
        assert (ended["ret"], ended["err"]) == (0, 0)
        works(inside)


# Signals in the moment before a call blocks


def reading(pid: int) -> list[Path]:
    """The threads of a process that are in a call of read."""
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [one for one in threads if (one / "syscall").read_text().startswith("0 ")]


@pytest.mark.parametrize("changes", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("order", ["sleep 400000000000", "futex", "semaphore", "block"])
def test_a_signal_just_before_the_call_interrupts_it(order, changes, tmp_path):
    """Like a signal just after it: in the first wait, and in one that a change began anew."""
    go = tmp_path / "go"
    with points() as inside:
        pid = inside.line(ev="ready")["pid"]
        if changes:
            tell(inside, f"do {order}")
            wait_until_it_waits(inside)
        elif order == "block":
            # The other two would come to the failpoint too.
            tell(inside, f"do {order} {go}")
            until(lambda: len(reading(pid)) == 2)
        inside.points.arm("BeforeOpenGate")
        if changes:
            verb(inside, "leap", inside.name, "--by", "1s")
        elif order == "block":
            go.touch()
        else:
            tell(inside, f"do {order}")
        inside.points.wait("BeforeOpenGate")
        tell(inside, f"signal {signal.SIGUSR1.value}")
        inside.line(ev="sent")
        inside.points.release("BeforeOpenGate")
        end = inside.line(timeout=AT_ONCE, ev="done", who=1)
        assert (end["ret"], end["err"], end["signals"]) == (-1, EINTR, 1)


def test_a_threads_cpu_time_is_its_own():
    """A thread's CPU time does not go back after a change while another thread reads the
    process's."""
    with points(rate="10") as inside:
        inside.line(ev="ready")
        inside.points.arm("CpuTimeHeld")
        tell(inside, "do process")
        inside.points.wait("CpuTimeHeld")
        before = done(inside, "used", who=2)["ret"]
        verb(inside, "dilate", inside.name, "--rate", "1/10")
        assert done(inside, "used", who=2, count=2)["ret"] >= before > 0


# Rewritten call sites

SITE = ["SiteKnown", "CodeWritable"]


def test_two_threads_that_rewrite_sites_of_one_page():
    """The second makes the page writable while the first knows already that it can rewrite its own
    site."""
    with Faulty(build.c("rewriting/neighbours"), rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        for point in SITE:
            inside.points.arm(point)
        tell(inside, "first")
        inside.points.wait("SiteKnown")
        tell(inside, "second")
        until(lambda: inside.lines(ev="done", who=2) or inside.points.stopped("CodeWritable"))
        if inside.lines(ev="done", who=2):
            inside.points.release("CodeWritable")
        inside.points.release("SiteKnown")
        inside.line(timeout=AT_ONCE, ev="done", who=1)
        inside.points.release("CodeWritable")
        for who, order in ((1, "first"), (2, "second")):
            inside.line(timeout=AT_ONCE, ev="done", who=who)
            tell(inside, order)
            inside.wait_for(2, timeout=AT_ONCE, ev="done", who=who)
        inside.process.stdin.close()
        inside.succeed()


@pytest.mark.parametrize("point", SITE)
def test_a_thread_that_rewrites_a_site_holds_nobody_up(point):
    """Neither another thread with a hot site on that page nor a child of fork, which has both."""
    with Faulty(build.c("rewriting/neighbours"), rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        inside.points.arm(point)
        tell(inside, "first")
        inside.points.wait(point)
        tell(inside, "second")
        inside.line(timeout=AT_ONCE, ev="done", who=2)
        tell(inside, "fork")
        inside.line(timeout=AT_ONCE, ev="done", who=3)
        inside.points.release(point)
        inside.line(timeout=AT_ONCE, ev="done", who=1)
        inside.process.stdin.close()
        inside.succeed()


def signalled_while_it_rewrites_a_site(program: str, said: str) -> dict:
    """Sends SIGUSR1 while the site of its hot call is rewritten. Returns the line `said` of it."""
    with Faulty(build.c(f"rewriting/{program}"), rate="1", stdin=True) as inside:
        pid = inside.line(ev="ready")["pid"]
        inside.points.arm("SiteKnown")
        tell(inside, "begin")
        inside.points.wait("SiteKnown")
        os.kill(pid, signal.SIGUSR1)
        inside.points.release("SiteKnown")
        found = inside.line(timeout=AT_ONCE, ev=said)
        inside.succeed()
    return found


def test_a_signal_that_comes_while_a_site_is_rewritten_comes_before_the_call():
    """It has the handler of before. bash, which takes SIGINT with the one of after, hangs."""
    handled = signalled_while_it_rewrites_a_site("handlers", "handled")
    assert handled["handler"] == handled["call"] - 1


def test_a_signal_that_comes_while_a_site_is_rewritten_ends_the_wait():
    """It is one that came during the call: rsync's receiver waits a minute for it otherwise."""
    assert signalled_while_it_rewrites_a_site("wait", "ended")["err"] == EINTR


def test_an_alarm_whose_time_comes_while_it_is_set_anew_goes_off_once():
    """Natively a change of the clock is no reason for a second SIGALRM."""
    with points() as inside:
        inside.line(ev="ready")
        done(inside, "alarm 300")
        inside.points.arm("BeforeTimer")
        dilate = inside.begin("dilate", "--rate", "2")
        inside.points.wait("BeforeTimer")
        # Its time comes by the old rate and by the new one.
        time.sleep(0.4)
        inside.points.release("BeforeTimer")
        assert dilate.wait(timeout=AT_ONCE) == 0
        inside.line(timeout=AT_ONCE, ev="signal")
        works(inside)
        assert len(inside.lines(ev="signal")) == 1
