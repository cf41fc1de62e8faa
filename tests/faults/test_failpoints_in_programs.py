"""A thread of a program stops at a place of the shim, and is killed there, forked, replaced or
signalled."""

from __future__ import annotations

import os
import signal
import time

import pytest
from framework import processes
from framework.points import (
    AT_ONCE,
    EACH,
    EINTR,
    PROGRAM,
    beside,
    done,
    points,
    tell,
    verb,
    wait_until_it_waits,
    works,
)


@pytest.mark.parametrize("point", PROGRAM)
def test_a_program_that_is_killed_holds_nobody_up(point):
    with points() as inside, beside(inside) as other:
        inside.line(ev="ready")
        inside.points.arm(point)
        tell(inside, f"do {PROGRAM[point]}")
        inside.points.wait(point)
        works(other)
        os.kill(inside.pid, signal.SIGKILL)
        verb(inside, "dilate", inside.name, "--rate", "2")
        works(other)
        verb(inside, "freeze", inside.name)
        verb(inside, "unfreeze", inside.name)
        works(other)


@pytest.mark.parametrize("point", PROGRAM)
def test_a_child_of_a_fork_has_nothing_of_a_thread_that_it_does_not_have(point):
    with points() as inside:
        inside.line(ev="ready")
        inside.points.arm(point)
        tell(inside, f"do {PROGRAM[point]}")
        inside.points.wait(point)
        for number, order in enumerate(EACH, 1):
            tell(inside, f"fork {order}")
            child = inside.wait_for(number, timeout=AT_ONCE, ev="child")[-1]
            assert child["status"] == 0, order
        assert all(line["ret"] >= 0 for line in inside.lines(ev="done", who=3))
        inside.points.release(point)
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] >= 0
        works(inside)


@pytest.mark.parametrize("point", PROGRAM)
def test_a_program_that_another_thread_becomes_has_nothing_of_the_one_before(point):
    with points() as inside:
        inside.line(ev="ready")
        inside.points.arm(point)
        tell(inside, f"do {PROGRAM[point]}")
        inside.points.wait(point)
        tell(inside, "exec")
        inside.wait_for(2, timeout=AT_ONCE, ev="ready")
        inside.points.release(point)
        works(inside)
        verb(inside, "dilate", inside.name, "--rate", "2")
        works(inside)


@pytest.mark.parametrize("point", PROGRAM)
def test_a_signal_comes_when_the_thread_goes_on(point):
    with points() as inside:
        inside.line(ev="ready")
        inside.points.arm(point)
        tell(inside, f"do {PROGRAM[point]}")
        inside.points.wait(point)
        tell(inside, f"signal {signal.SIGUSR1.value}")
        inside.line(ev="sent")
        inside.points.release(point)
        inside.line(timeout=AT_ONCE, ev="signal")
        assert len(inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)) == 1
        works(inside)


@pytest.mark.parametrize("point", PROGRAM)
def test_a_change_reaches_a_thread_that_stood_still(point):
    """A wait about to begin, or to end, follows changes made meanwhile."""
    order = PROGRAM[point].replace("1000000", "400000000000")
    with points() as inside:
        inside.line(ev="ready")
        inside.points.arm(point)
        tell(inside, f"do {order}")
        if point == "WaitLeaving":
            wait_until_it_waits(inside)
            verb(inside, "leap", inside.name, "--by", "500s")
        inside.points.wait(point)
        verb(inside, "dilate", inside.name, "--rate", "1/2")
        verb(inside, "leap", inside.name, "--by", "500s")
        inside.points.release(point)
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] >= 0
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
        deadline = time.monotonic() + AT_ONCE
        while processes.state(child) != "Z":
            assert time.monotonic() < deadline
        inside.points.release("TimerHeld")
        verb(inside, "leap", inside.name, "--by", "200000s")
        ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=2)[0]
        assert (ended["ret"], ended["err"]) == (0, 0)
        works(inside)


# Signals in the moment before a call blocks


@pytest.mark.parametrize("changes", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("order", ["sleep 400000000000", "futex", "semaphore", "block"])
def test_a_signal_just_before_the_call_interrupts_it(order, changes):
    """Like a signal just after it: in the first wait, and in one that a change began anew."""
    with points() as inside:
        inside.line(ev="ready")
        if changes:
            tell(inside, f"do {order}")
            wait_until_it_waits(inside)
        inside.points.arm("BeforeOpenGate")
        if changes:
            verb(inside, "leap", inside.name, "--by", "1s")
        else:
            tell(inside, f"do {order}")
        inside.points.wait("BeforeOpenGate")
        tell(inside, f"signal {signal.SIGUSR1.value}")
        inside.line(ev="sent")
        inside.points.release("BeforeOpenGate")
        end = inside.line(timeout=AT_ONCE, ev="done", who=1)
        assert (end["ret"], end["err"], end["signals"]) == (-1, EINTR, 1)
