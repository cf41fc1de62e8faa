"""Threads killed, overtaken or stopped at any place: no other thread waits for them.

Each test stops one thread of Lorentz at one place of its source (framework/failpoints.py), acts
there, and checks the other threads. `WAYS` in framework/points.py is the table of all places. The
tests do not depend on luck, and on time only by bounds for immediate actions.

The tests of this file are about commands that change a clock. Those with a bound for lateness run
alone: a thread that stands at a failpoint takes a processor.
"""

from __future__ import annotations

import datetime
import importlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from framework import lorentz
from framework.failpoints import BINARY, Faulty, places
from framework.oracle import LATE, STARTING, HostNoise
from framework.points import (
    AT_ONCE,
    SENSELESS,
    at_each,
    beside,
    command,
    done,
    kill,
    points,
    stop_a_reader,
    tell,
    unmet,
    until,
    verb,
    wait_until_it_waits,
    works,
)

#: Time in which a monitor completes what a dead controller has left, s.
HEALED = 0.1
#: Most that a timer may be late if controller and monitor die while it is held back, s.
HELD = 1.0 * (1 + LATE)
#: Longest time between two expiries of the timer of `beat` in these tests, s.
BEAT = 0.02


def beat_after(inside: Faulty, moment: float) -> float:
    """Waits for the first expiry of the timer of `beat` after a moment. Returns its time."""
    until(lambda: any(line.at > moment for line in inside.lines(ev="beat")))
    return next(line.at for line in inside.lines(ev="beat") if line.at > moment)


def beats_on_after_a_kill(inside: Faulty, controller: subprocess.Popen) -> None:
    """Kills a controller, and checks that a living monitor ends its hold at once."""
    # By now the timer is held back, if it is to be.
    time.sleep(0.05)
    with HostNoise() as noise:
        killed = time.monotonic()
        controller.kill()
        late = beat_after(inside, killed) - killed
    controller.wait(timeout=AT_ONCE)
    assert late <= HEALED + BEAT + noise.slack


def beats_on_while_held(inside: Faulty, begin: Callable[[], object] = lambda: None) -> None:
    """Checks that a periodic timer is held back no longer than it may be, and goes on, from a
    moment on at which `begin` is called."""
    with HostNoise() as noise:
        begin()
        begun = time.monotonic()
        first = beat_after(inside, begun)
        second = beat_after(inside, first)
    assert first - begun <= HELD + BEAT + noise.slack
    assert second - first <= HELD + BEAT + 2 * noise.slack


def no_beat_was_early(inside: Faulty) -> None:
    """Hastens the program to its end, and checks its count of early expiries."""
    verb(inside, "dilate", inside.name, "--rate", "50")
    ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]
    assert ended["ret"] == 0, "a timer was early"
    assert inside.time()["rate"] == "50"


@at_each("stop", "controller")
def test_nobody_waits_for_a_controller_that_stands_still(place):
    """Reads and waits go on, by the present state of the page; so do commands that only read."""
    with points() as inside:
        inside.line(ev="ready")
        controller = place.reach(inside)
        before = done(inside, "date")["ret"]
        assert done(inside, "sleep 1000000")["ret"] == 0
        after = done(inside, "date", count=2)["ret"]
        assert before <= after < before + AT_ONCE
        assert (before > time.time() + 500_000) == place.made
        verb(inside, "time", inside.name)
        verb(inside, "ps")
        inside.points.release(place.point)
        assert controller.wait(timeout=AT_ONCE) == 0
        assert done(inside, "date", count=3)["ret"] > time.time() + 500_000


@pytest.mark.alone
@at_each("kill", "controller")
def test_a_controller_that_is_killed_leaves_its_change_whole_or_not_at_all(place):
    """Without any other command: waits in progress follow at once, if the change was made."""
    with points() as inside:
        inside.line(ev="ready")
        tell(inside, "do sleep 500000000000000")
        wait_until_it_waits(inside)
        controller = place.reach(inside)
        with HostNoise() as noise:
            killed = time.monotonic()
            controller.kill()
            if place.made:
                ended = inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0].at
        if place.made:
            assert ended - killed <= HEALED + noise.slack
        controller.wait(timeout=AT_ONCE)
        assert done(inside, "sleep 1000000", who=2)["ret"] == 0
        now = done(inside, "date", who=2)["ret"]
        assert (now > time.time() + 500_000) == place.made
        if not place.made:
            verb(inside, "leap", inside.name, "--by", "1000000s")
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0
        verb(inside, "dilate", inside.name, "--rate", "10")
        assert inside.time()["rate"] == "10"


@at_each("signal", "controller", "hold", "skipping")
def test_a_signal_ends_a_controller_only_after_its_change(place):
    with points() as inside:
        inside.line(ev="ready")
        controller = place.reach(inside)
        controller.send_signal(signal.SIGTERM)
        pending = Path(f"/proc/{controller.pid}/status")
        until(lambda: f"ShdPnd:\t{1 << signal.SIGTERM - 1:016x}" in pending.read_text())
        assert controller.poll() is None
        inside.points.release(place.point)
        assert controller.wait(timeout=AT_ONCE) == -signal.SIGTERM
        if place.way.kind == "controller":
            assert done(inside, "date", who=2)["ret"] > time.time() + 500_000
        elif place.way.kind == "hold":
            assert inside.time()["rate"] == "0.5"
            no_beat_was_early(inside)
        else:
            assert done(inside, "sleep 1000000000000")["ret"] == 0
        works(inside, who=2)


# Holding timers back


@pytest.mark.alone
@at_each("stop", "hold")
def test_no_timer_is_early_while_a_controller_stands_still(place):
    """The controller neither notifies others nor lets a monitor do so: it has the clock's lock.
    Nor does a periodic timer stop."""
    with points() as inside:
        inside.line(ev="ready")
        controller = place.reach(inside)
        assert done(inside, "sleep 1000000", who=2)["ret"] == 0
        beats_on_while_held(inside)
        inside.points.release(place.point)
        assert controller.wait(timeout=AT_ONCE) == 0
        assert inside.time()["rate"] == "0.5"
        no_beat_was_early(inside)


@pytest.mark.alone
@at_each("kill", "hold")
def test_timers_survive_a_controller_that_is_killed(place):
    """A periodic timer neither stops nor expires early when a slower rate was to begin. A living
    monitor ends the hold at once."""
    with points() as inside:
        inside.line(ev="ready")
        controller = place.reach(inside)
        beats_on_after_a_kill(inside, controller)
        assert inside.time()["rate"] == ("0.5" if place.made else "1")
        no_beat_was_early(inside)


@pytest.mark.alone
@at_each("kill", "hold")
def test_a_timer_is_little_late_where_the_monitor_is_dead_as_well(place):
    """Its process sets it anew when it expires. The next command completes what is left."""
    with points() as inside:
        inside.line(ev="ready")
        controller = place.reach(inside)
        time.sleep(0.05)

        def kill_both() -> None:
            kill(inside.monitor())
            controller.kill()

        beats_on_while_held(inside, kill_both)
        controller.wait(timeout=AT_ONCE)
        assert inside.time()["rate"] == ("0.5" if place.made else "1")
        with HostNoise() as noise:
            verb(inside, "leap", inside.name, "--by", "1ns")
            completed = time.monotonic()
            late = beat_after(inside, completed) - completed
        assert late <= HEALED + BEAT + noise.slack
        no_beat_was_early(inside)


#: Commands other than `dilate` that make deadlines later: all of them, and those by the wall clock.
PUT_OFF = [["freeze"], ["step", "--by", "-1h"]]


def reach_hold(inside: Faulty, words: list[str], point: str) -> subprocess.Popen:
    """Has a command arrive at a place where it holds back a timer by the wall clock and one by the
    monotonic clock, which says each of its expiries."""
    inside.line(ev="ready")
    assert done(inside, "walltimer 100000", who=2)["ret"] == 0
    tell(inside, "do beat 400")
    inside.line(ev="beat")
    return command(*words)(inside, point)


@pytest.mark.alone
@pytest.mark.parametrize("point", ["HoldBegun", "HoldFollowed"])
@pytest.mark.parametrize("words", PUT_OFF, ids=lambda words: words[0])
def test_timers_survive_a_command_that_is_killed_before_it_puts_them_off(words, point):
    with points() as inside:
        controller = reach_hold(inside, words, point)
        beats_on_after_a_kill(inside, controller)
        assert inside.time()["state"] == "running"
        assert abs(done(inside, "date", who=2)["ret"] - time.time()) < AT_ONCE
        no_beat_was_early(inside)


@pytest.mark.alone
@pytest.mark.parametrize("point", ["HoldBegun", "HoldFollowed"])
@pytest.mark.parametrize("words", PUT_OFF, ids=lambda words: words[0])
def test_no_timer_stops_while_a_command_that_puts_it_off_stands_still(words, point):
    with points() as inside:
        controller = reach_hold(inside, words, point)
        beats_on_while_held(inside)
        inside.points.release(point)
        assert controller.wait(timeout=AT_ONCE) == 0
        if words[0] == "freeze":
            assert inside.time()["state"] == "frozen"
            inside.unfreeze()
        no_beat_was_early(inside)


def test_a_change_is_put_off_until_all_timers_follow():
    """On a busy machine a process follows late: until then the clock goes on as before."""
    with points(rate="10") as inside:
        inside.line(ev="ready")
        # Four seconds of real time at this rate.
        tell(inside, "do beat 4000")
        inside.line(ev="beat")
        inside.points.arm("HoldExtended")
        inside.points.arm("TimerHeld")
        controller = inside.begin("dilate", "--rate", "1")
        inside.points.wait("HoldExtended")
        assert inside.time()["rate"] == "10"
        inside.points.release("TimerHeld")
        inside.points.release("HoldExtended")
        assert controller.wait(timeout=AT_ONCE) == 0
        assert inside.time()["rate"] == "1"
        no_beat_was_early(inside)


def test_a_timer_that_is_set_while_a_slower_rate_is_about_to_begin_is_not_early():
    """No timer was set when the controller looked. The program follows late."""
    with points(rate="10") as inside:
        pid = inside.line(ev="ready")["pid"]
        inside.points.arm("BeforePiece")
        controller = inside.begin("dilate", "--rate", "1")
        inside.points.wait("BeforePiece")
        begun = time.monotonic()
        # Two seconds of real time at this rate.
        assert done(inside, "settimer 20")["ret"] == 0
        os.kill(pid, signal.SIGSTOP)
        inside.points.release("BeforePiece")
        assert controller.wait(timeout=AT_ONCE) == 0
        time.sleep(max(0, begun + 2.5 - time.monotonic()))
        os.kill(pid, signal.SIGCONT)
        assert done(inside, "lefttimer")["ret"] > 0, "came early"


@pytest.mark.parametrize("point", ["TimerQueried", "BeforeTimer"])
def test_an_expiry_in_the_midst_of_setting_a_timer_is_counted_once(point):
    with points(rate="1") as inside:
        inside.line(ev="ready")
        tell(inside, "do beat 400")
        inside.line(ev="beat")
        inside.points.arm(point)
        controller = inside.begin("dilate", "--rate", "2")
        inside.points.wait(point)
        time.sleep(0.05)
        inside.points.release(point)
        assert controller.wait(timeout=AT_ONCE) == 0
        assert inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)[0]["ret"] == 0, "came early"


def real_time_left(pid: int) -> float:
    """Until the kernel's timer of the program's first timer descriptor goes off, s."""
    texts = (file.read_text() for file in Path(f"/proc/{pid}/fdinfo").iterdir())
    text = next(text for text in texts if "it_value:" in text)
    seconds, nanos = re.search(r"it_value: \((\d+), (\d+)\)", text).groups()
    return int(seconds) + int(nanos) / 1e9


def test_a_timer_that_another_thread_only_looks_at_follows_a_change():
    """The thread that is told of the change leaves the timer to that thread."""
    with points(rate="1") as inside:
        pid = inside.line(ev="ready")["pid"]
        assert done(inside, "settimer 1000")["ret"] == 0
        inside.points.arm("TimerHeld")
        tell(inside, "do lefttimer")
        inside.points.wait("TimerHeld")
        verb(inside, "dilate", inside.name, "--rate", "100")
        inside.points.release("TimerHeld")
        inside.wait_for(2, timeout=AT_ONCE, ev="done", who=1)
        assert 0 < real_time_left(pid) <= 10


def test_a_process_that_is_stopped_does_not_put_a_change_off_for_ever():
    with points(rate="10") as inside:
        pid = inside.line(ev="ready")["pid"]
        # Four seconds of real time at this rate.
        tell(inside, "do beat 4000")
        inside.line(ev="beat")
        os.kill(pid, signal.SIGSTOP)
        verb(inside, "dilate", inside.name, "--rate", "1")
        assert inside.time()["rate"] == "1"
        os.kill(pid, signal.SIGCONT)
        verb(inside, "dilate", inside.name, "--rate", "50")
        inside.wait_for(1, timeout=AT_ONCE, ev="done", who=1)


def test_an_expiry_that_came_early_while_its_process_was_stopped_is_taken_back():
    with points(rate="10") as inside:
        pid = inside.line(ev="ready")["pid"]
        begun = time.monotonic()
        # Two seconds of real time at this rate.
        assert done(inside, "settimer 20")["ret"] == 0
        os.kill(pid, signal.SIGSTOP)
        verb(inside, "dilate", inside.name, "--rate", "1")
        time.sleep(max(0, begun + 2.5 - time.monotonic()))
        os.kill(pid, signal.SIGCONT)
        assert done(inside, "lefttimer")["ret"] > 0, "came early"


# Turning skipping on


def announced_and_begun(inside: Faulty) -> int:
    """Announces a change for in an hour. Returns the date."""
    later = datetime.datetime.now(datetime.UTC) + datetime.timedelta(hours=1)
    verb(inside, "dilate", inside.name, "--rate", "2", "--at", later.isoformat())
    return done(inside, "date")["ret"]


@at_each("kill", "skipping")
def test_skipping_that_was_begun_by_halves(place):
    """No thread leaps while readers would not add the leap, and announced changes stay."""
    with points() as inside:
        inside.line(ev="ready")
        announced_and_begun(inside)
        controller = place.reach(inside)
        controller.kill()
        controller.wait(timeout=AT_ONCE)
        begun = done(inside, "date", count=2)["ret"]
        assert done(inside, "sleep 1000000000")["ret"] == 0
        assert done(inside, "date", count=3)["ret"] >= begun + 1
        verb(inside, "skip", inside.name, "force")
        assert done(inside, "sleep 1000000000000")["ret"] == 0
        assert done(inside, "date", count=4)["ret"] >= begun + 1001
        assert [change["rate"] for change in inside.time()["to_come"]] == ["2"]


@at_each("stop", "skipping")
def test_nobody_waits_for_skipping_to_begin(place):
    with points() as inside:
        inside.line(ev="ready")
        begun = announced_and_begun(inside)
        controller = place.reach(inside)
        assert done(inside, "sleep 1000000")["ret"] == 0
        assert done(inside, "date", count=2)["ret"] < begun + AT_ONCE
        verb(inside, "time", inside.name)
        inside.points.release(place.point)
        assert controller.wait(timeout=AT_ONCE) == 0
        assert done(inside, "sleep 1000000000000")["ret"] == 0
        assert done(inside, "date", count=3)["ret"] >= begun + 1000
        assert [change["rate"] for change in inside.time()["to_come"]] == ["2"]


# The lock, and readers


@pytest.mark.alone
def test_a_busy_clock_names_its_holder_and_is_not_waited_for_for_ever():
    """The holder's name comes after a second, the end after ten."""
    with points() as inside:
        inside.line(ev="ready")
        inside.points.arm("BeforeVersion")
        first = inside.begin("dilate", "--rate", "2")
        inside.points.wait("BeforeVersion")
        with HostNoise() as noise:
            begun = time.monotonic()
            second = inside.begin("dilate", "--rate", "3")
            notice = second.stderr.readline()
            noticed = time.monotonic() - begun
            out, error = second.communicate(timeout=30)
            ended = time.monotonic() - begun
        assert (second.returncode, out) == (1, "")
        held = f"process {first.pid} ({BINARY.name[:15]}) is changing this clock"
        assert held in notice and "waiting" in notice
        assert held in error and len(error.splitlines()) == 1
        assert 1 <= noticed <= 1 + STARTING + noise.slack
        assert 10 <= ended <= 10 + STARTING + noise.slack
        inside.points.release("BeforeVersion")
        assert first.wait(timeout=AT_ONCE) == 0
        assert inside.time()["rate"] == "2"


def test_a_reader_decides_when_a_change_begins_and_may_be_killed_over_it():
    """The controller is stopped before it could decide.

    One reader is stopped before it decides, and goes on after the next change. Another one is
    killed there.
    """
    with points() as inside, beside(inside) as other:
        program = inside.line(ev="ready")["pid"]
        inside.points.arm("AfterVersion")
        controller = inside.begin("dilate", "--rate", "10")
        inside.points.wait("AfterVersion")
        before = stop_a_reader(inside)
        # Other readers decide meanwhile, and the change after that is made.
        assert done(other, "sleep 1000000")["ret"] == 0
        inside.points.release("AfterVersion")
        assert controller.wait(timeout=AT_ONCE) == 0
        verb(inside, "leap", inside.name, "--by", "1000000s")
        inside.points.release("ReaderDecides")
        dates = inside.wait_for(before + 1, timeout=AT_ONCE, ev="done", who=1, op="date")
        late = dates[-1]["ret"]
        assert late > time.time() + 500_000

        inside.points.arm("AfterVersion")
        controller = inside.begin("dilate", "--rate", "1")
        inside.points.wait("AfterVersion")
        stop_a_reader(inside)
        kill(program)
        controller.kill()
        assert done(other, "sleep 1000000", count=2)["ret"] == 0
        assert done(other, "date")["ret"] >= late


# The table


def test_each_place_is_tested():
    """Every failpoint has a row, and every act a test or a reason at each kind of thread."""
    for path in Path(__file__).parent.glob("test_*.py"):
        importlib.import_module(path.stem)
    assert unmet(set(places())) == []


@pytest.mark.parametrize("reason", sorted(set(SENSELESS.values())))
def test_an_act_that_makes_no_sense(reason):
    """Prints why there is no test."""
    kinds = [kind for (_, kind), said in SENSELESS.items() if said == reason]
    pytest.skip(f"{reason} ({', '.join(kinds)})")


def test_a_release_has_no_failpoints():
    """Neither the command nor the image inside it."""
    names = [name.encode() for name in places()]
    with_points, release = BINARY.read_bytes(), lorentz.session.binary.read_bytes()
    assert all(name in with_points for name in names)
    assert not any(name in release for name in names)
    refused = lorentz.call("failpoints")
    assert refused.returncode == 2


@pytest.mark.parametrize(
    "words", [("skip", "force"), ("leap", "--by", "1d"), ("dilate", "--rate", "2")]
)
def test_a_container_that_ends_during_a_change(words):
    name, *flags = words
    with points() as inside:
        inside.line(ev="ready")
        inside.points.arm("AfterNotify")
        controller = inside.begin(name, *flags, "--json")
        inside.points.wait("AfterNotify")
        verb(inside, "rm", "--force", inside.name)
        inside.points.release("AfterNotify")
        _, told = controller.communicate(timeout=AT_ONCE)
        assert told == f"lorentz: {inside.name}: has ended meanwhile\n"
        assert controller.returncode == 1


def test_a_program_that_ends_before_its_unfreeze_returns_has_been_unfrozen():
    """It was started frozen, and ends at once."""
    with Faulty("true", options=["--frozen"]) as inside:
        inside.wait_until_shown()
        inside.points.arm("AfterNotify")
        controller = inside.begin("unfreeze")
        inside.points.wait("AfterNotify")
        inside.succeed()
        inside.points.release("AfterNotify")
        _, told = controller.communicate(timeout=AT_ONCE)
        assert (controller.returncode, told) == (0, "")
