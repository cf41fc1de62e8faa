"""Threads killed, overtaken or stopped at any place: no other thread waits for them.

Each test stops one thread of Lorentz at one place of its source (framework/failpoints.py), acts
there, and checks the other threads. The tests do not depend on luck, and on time only by bounds for
immediate actions.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import time
from collections.abc import Iterator

import pytest
from framework import build, lorentz, processes
from framework.experiments import Experiment
from framework.failpoints import BINARY, Faulty, Points, places, session
from framework.points import (
    AT_ONCE,
    CONDUCTOR,
    CONTROLLER,
    HOLD,
    MADE,
    MONITOR,
    PROGRAM,
    SITE,
    SKIPPER,
    beside,
    done,
    points,
    tell,
    until,
    verb,
    wait_until_it_waits,
    works,
)
from framework.running import PATIENCE

# Controllers


@pytest.mark.parametrize("point", CONTROLLER)
def test_nobody_waits_for_a_controller_that_stands_still(point):
    """Reads and waits go on, by the present state of the page; so do commands that only read."""
    with points() as inside:
        inside.line(ev="ready")
        inside.points.arm(point)
        controller = inside.begin("leap", "--by", "1000000s")
        inside.points.wait(point)
        before = done(inside, "date")["ret"]
        assert done(inside, "sleep 1000000")["ret"] == 0
        after = done(inside, "date", count=2)["ret"]
        assert before <= after < before + AT_ONCE
        assert (before > time.time() + 500_000) == (point in MADE)
        verb(inside, "time", inside.name)
        verb(inside, "ps")
        inside.points.release(point)
        assert controller.wait(timeout=AT_ONCE) == 0
        assert done(inside, "date", count=3)["ret"] > time.time() + 500_000


@pytest.mark.parametrize("point", CONTROLLER)
def test_a_controller_that_is_killed_leaves_its_change_whole_or_not_at_all(point):
    """Without any other command: waits in progress follow, if the change was made."""
    with points() as inside:
        inside.line(ev="ready")
        tell(inside, "do sleep 500000000000000")
        wait_until_it_waits(inside)
        inside.points.arm(point)
        controller = inside.begin("leap", "--by", "1000000s")
        inside.points.wait(point)
        controller.kill()
        controller.wait(timeout=AT_ONCE)
        assert done(inside, "sleep 1000000", who=2)["ret"] == 0
        now = done(inside, "date", who=2)["ret"]
        assert (now > time.time() + 500_000) == (point in MADE)
        if point not in MADE:
            verb(inside, "leap", inside.name, "--by", "1000000s")
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0
        verb(inside, "dilate", inside.name, "--rate", "10")
        assert inside.time()["rate"] == "10"


@pytest.mark.parametrize("point", ["HoldBegun", "HoldFollowed", *CONTROLLER, "BeforeRefresh"])
def test_timers_survive_a_controller_that_is_killed(point):
    """A periodic timer neither stops nor expires early when a slower rate was to begin."""
    with points() as inside:
        inside.line(ev="ready")
        tell(inside, "do ticks 60")
        time.sleep(0.1)
        inside.points.arm(point)
        controller = inside.begin("dilate", "--rate", "1/2")
        inside.points.wait(point)
        controller.kill()
        controller.wait(timeout=AT_ONCE)
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0, "came early"
        inside.time()


@pytest.mark.parametrize("point", ["HoldBegun", "HoldFollowed", *CONTROLLER])
def test_no_timer_is_early_while_a_controller_stands_still(point):
    """The controller neither notifies others nor lets a monitor do so: it has the clock's lock."""
    with points(rate="10") as inside:
        inside.line(ev="ready")
        tell(inside, "do ticks 400")
        time.sleep(0.1)
        inside.points.arm(point)
        controller = inside.begin("dilate", "--rate", "1/10")
        inside.points.wait(point)
        time.sleep(0.3)
        inside.points.release(point)
        assert controller.wait(timeout=AT_ONCE) == 0
        verb(inside, "dilate", inside.name, "--rate", "10")
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0, "came early"


def test_a_change_is_put_off_until_all_timers_follow():
    """On a busy machine a process follows late: until then the clock goes on as before."""
    with points(rate="10") as inside:
        inside.line(ev="ready")
        tell(inside, "do ticks 400")
        time.sleep(0.1)
        inside.points.arm("HoldExtended")
        inside.points.arm("TimerHeld")
        controller = inside.begin("dilate", "--rate", "1")
        inside.points.wait("HoldExtended")
        assert inside.time()["rate"] == "10"
        inside.points.release("TimerHeld")
        inside.points.release("HoldExtended")
        assert controller.wait(timeout=AT_ONCE) == 0
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0, "came early"
        assert inside.time()["rate"] == "1"


def test_an_expiry_in_the_midst_of_setting_a_timer_is_counted_once():
    with points(rate="1") as inside:
        inside.line(ev="ready")
        tell(inside, "do ticks 60")
        time.sleep(0.1)
        inside.points.arm("TimerQueried")
        controller = inside.begin("dilate", "--rate", "2")
        inside.points.wait("TimerQueried")
        time.sleep(0.05)
        inside.points.release("TimerQueried")
        assert controller.wait(timeout=AT_ONCE) == 0
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0, "came early"


def test_a_process_that_is_stopped_does_not_put_a_change_off_for_ever():
    with points(rate="10") as inside:
        pid = inside.line(ev="ready")["pid"]
        tell(inside, "do ticks 400")
        time.sleep(0.1)
        os.kill(pid, signal.SIGSTOP)
        verb(inside, "dilate", inside.name, "--rate", "1")
        assert inside.time()["rate"] == "1"
        os.kill(pid, signal.SIGCONT)
        inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)


@pytest.mark.parametrize("point", ["LeapsEnabled", "BeforeVersion", "BeforeNotify", "AfterNotify"])
def test_skipping_that_was_begun_by_halves(point):
    """No thread leaps while readers would not add the leap, and announced changes stay."""
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    with points() as inside:
        inside.line(ev="ready")
        verb(inside, "dilate", inside.name, "--rate", "2", "--at", later.isoformat())
        inside.points.arm(point)
        controller = inside.begin("skip", "force")
        inside.points.wait(point)
        controller.kill()
        controller.wait(timeout=AT_ONCE)
        begun = done(inside, "date")["ret"]
        assert done(inside, "sleep 1000000000")["ret"] == 0
        assert done(inside, "date", count=2)["ret"] >= begun + 1
        verb(inside, "skip", inside.name, "force")
        assert done(inside, "sleep 1000000000000")["ret"] == 0
        assert done(inside, "date", count=3)["ret"] >= begun + 1001
        assert [change["rate"] for change in inside.time()["to_come"]] == ["2"]


def test_a_busy_clock_names_its_holder_and_is_not_waited_for_for_ever():
    with points() as inside:
        inside.line(ev="ready")
        inside.points.arm("BeforeVersion")
        first = inside.begin("dilate", "--rate", "2")
        inside.points.wait("BeforeVersion")
        second = inside.begin("dilate", "--rate", "3")
        out, output = second.communicate(timeout=30)
        assert (second.returncode, out) == (1, "")
        notice, error = output.splitlines()
        held = f"process {first.pid} ({BINARY.name[:15]}) is changing this clock"
        assert held in notice and "waiting" in notice
        assert held in error
        inside.points.release("BeforeVersion")
        assert first.wait(timeout=AT_ONCE) == 0
        assert inside.time()["rate"] == "2"


def test_a_reader_decides_when_a_change_begins_and_may_be_killed_over_it():
    """The controller is stopped before it could decide.

    One reader is stopped before it decides, and goes on after the next change. Another one is
    killed there.
    """
    with points() as inside, beside(inside) as other:
        inside.line(ev="ready")
        inside.points.arm("AfterVersion")
        controller = inside.begin("dilate", "--rate", "10")
        inside.points.wait("AfterVersion")
        inside.points.arm("ReaderDecides")
        tell(inside, "do date")
        inside.points.wait("ReaderDecides")
        # Other readers decide meanwhile, and the change after that is made.
        assert done(other, "sleep 1000000")["ret"] == 0
        inside.points.release("AfterVersion")
        assert controller.wait(timeout=AT_ONCE) == 0
        verb(inside, "leap", inside.name, "--by", "1000000s")
        inside.points.release("ReaderDecides")
        late = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1, op="date")[0]["ret"]
        assert late > time.time() + 500_000

        inside.points.arm("AfterVersion")
        controller = inside.begin("dilate", "--rate", "1")
        inside.points.wait("AfterVersion")
        inside.points.arm("ReaderDecides")
        tell(inside, "do date")
        inside.points.wait("ReaderDecides")
        os.kill(inside.pid, signal.SIGKILL)
        controller.kill()
        assert done(other, "sleep 1000000", count=2)["ret"] == 0
        assert done(other, "date")["ret"] >= late


# Skipping idle time


def kill_skipper(inside: Faulty) -> None:
    """Kills the skipper."""
    skipper = inside.time()["skip"]["skipper"]
    os.kill(skipper, signal.SIGKILL)
    deadline = time.monotonic() + AT_ONCE
    while processes.state(skipper) not in ("", "Z"):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("point", SKIPPER)
def test_a_skipper_that_is_killed_holds_nobody_up(point):
    with points(options=["--skip-idle=force"]) as inside:
        inside.line(ev="ready")
        inside.points.arm(point)
        tell(inside, "do sleep 1000000000000")
        inside.points.wait(point)
        kill_skipper(inside)
        assert done(inside, "file", who=2)["ret"] == 0
        verb(inside, "skip", inside.name, "off")
        verb(inside, "skip", inside.name, "force")
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0
        works(inside)


def test_a_skipper_may_be_killed_in_the_midst_of_vouching():
    """No thread has the mark then, and the next skipper sets it."""
    with Faulty(build.c("faults/points"), "alone", "100", options=["--skip-idle"]) as inside:
        inside.points.arm("MarkHalf")
        inside.points.wait("MarkHalf")
        kill_skipper(inside)
        verb(inside, "skip", inside.name, "off")
        verb(inside, "skip", inside.name, "on")
        assert len(inside.wait_for(100, ev="done")) == 100
        inside.succeed()


@contextlib.contextmanager
def skipper_that_sleeps(inside: Faulty) -> Iterator[None]:
    """Stops the skipper once a sole thread leaps by itself, and kills it at the end.

    A skipper marks the thread only if it still finds it asleep after a leap. So a leap may pass
    without a mark, and only the thread's progress beside a stopped skipper shows the mark.
    """
    inside.wait_for(1, ev="done")
    skipper = inside.time()["skip"]["skipper"]
    deadline = time.monotonic() + PATIENCE
    while True:
        inside.wait_for(len(inside.lines(ev="done")) + 1, ev="done")
        os.kill(skipper, signal.SIGSTOP)
        before = len(inside.lines(ev="done"))
        with contextlib.suppress(AssertionError):
            # One may have been woken before the stop.
            inside.wait_for(before + 2, timeout=0.5, ev="done")
            break
        os.kill(skipper, signal.SIGCONT)
        assert time.monotonic() < deadline, "the thread is not marked"
    yield
    kill_skipper(inside)


@pytest.mark.parametrize("point", ["LeapBeforeLog", "LeapInLog"])
def test_a_thread_that_is_alone_needs_no_skipper(point):
    """A sole thread leaps by itself, once a skipper has marked it."""
    with Faulty(build.c("faults/points"), "alone", "600", options=["--skip-idle"]) as inside:
        with skipper_that_sleeps(inside):
            inside.points.arm(point)
            inside.points.wait(point)
        inside.points.release(point)
        assert len(inside.wait_for(600, ev="done")) == 600
        inside.succeed()


# Monitors


@pytest.mark.parametrize("point", MONITOR)
def test_a_monitor_that_is_killed_at_an_exec_leaves_nobody_stopped(point):
    """The program goes on, gets an error, or is ended: it never hangs, and nothing is left."""
    script = 'read -r _; /bin/echo "{\\"ev\\":\\"echo\\"}"; exec sleep 0.01'
    with Faulty("sh", "-c", f'echo "{{\\"ev\\":\\"up\\"}}"; {script}', stdin=True) as inside:
        inside.line(ev="up")
        monitor = inside.monitor()
        programs = inside.shown()["pids"]
        inside.points.arm(point)
        tell(inside, "go")
        inside.points.wait(point)
        os.kill(monitor, signal.SIGKILL)
        deadline = time.monotonic() + AT_ONCE
        while any(processes.state(pid) not in ("", "Z") for pid in programs):
            assert time.monotonic() < deadline, [processes.state(pid) for pid in programs]
            time.sleep(0.01)
        verb(inside, "rm", inside.name, "--force")
        assert inside.name not in [entry["name"] for entry in lorentz.ps(session=inside.session)]


# Experiments


@pytest.mark.parametrize("point", CONDUCTOR)
def test_a_conductor_that_is_killed_leaves_containers_that_can_be_let_go(point):
    """Their clocks are valid, and no other process locks them."""
    with Experiment(session=session()) as experiment:
        inside = experiment.run("sh", "-c", "while :; do :; done")
        words = Points(session().state_dir() / inside.name / "clock")
        experiment.synchronize()
        engine = experiment.engine
        words.arm(point)
        experiment.start()
        words.wait(point)
        os.kill(engine, signal.SIGKILL)
        experiment.ok("rm")
        words.release_all()
        before = inside.time()["monotonic_ns"]
        deadline = time.monotonic() + AT_ONCE
        while inside.time()["monotonic_ns"] <= before:
            assert time.monotonic() < deadline, "time stands still"
        inside.dilate("3")
        assert inside.time()["rate"] == "3"


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


@pytest.mark.parametrize("point", ["ExecSeized", "ExecStopped", "ExecPutIn"])
def test_a_change_in_the_midst_of_an_exec_ends_nobody(point):
    """The new program has no handler for the clock-change signal yet. The signal comes when there
    is one."""
    with Faulty(build.c("faults/exec_again"), rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        inside.points.arm(point)
        tell(inside, "go")
        inside.points.wait(point)
        verb(inside, "dilate", inside.name, "--rate", "2")
        inside.points.release(point)
        inside.line(timeout=AT_ONCE, ev="done")
        inside.succeed()


# Rewritten call sites


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
        os.kill(inside.pid, signal.SIGKILL)


def test_each_place_is_tested():
    """Every failpoint has a test."""
    controllers = {*CONTROLLER, *HOLD, "BeforeRefresh", "ReaderDecides"}
    controllers |= {"LeapsEnabled", "TimerQueried"}
    others = {*PROGRAM, *SKIPPER, "MarkHalf", *MONITOR, *CONDUCTOR, *SITE}
    assert controllers | others == set(places())


def test_a_release_has_no_failpoints():
    """Neither the command nor the image inside it."""
    names = [name.encode() for name in places()]
    with_points, release = BINARY.read_bytes(), lorentz.session.binary.read_bytes()
    assert all(name in with_points for name in names)
    assert not any(name in release for name in names)
    refused = lorentz.call("failpoints")
    assert refused.returncode == 2
