"""A new monitor stops while it adopts a program. It is killed there, signalled, or stands still."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from framework import needs, processes
from framework.failpoints import Faulty
from framework.points import (
    AT_ONCE,
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

EXECS = (
    'echo "{\\"ev\\":\\"ready\\"}"; while read -r n; do '
    '/bin/true 2>/dev/null && echo "{\\"ev\\":\\"works\\",\\"n\\":$n}"; done'
)


def executes(inside: Faulty, n: int) -> None:
    """Has the shell execute a program, which it must be able to."""
    tell(inside, str(n))
    inside.line(timeout=AT_ONCE, ev="works", n=n)


def is_at_large(pid: int) -> bool:
    """Whether no thread of a process is traced or stopped."""
    for task in Path(f"/proc/{pid}/task").iterdir():
        lines = dict(x.split(":\t", 1) for x in (task / "status").read_text().splitlines())
        if lines["TracerPid"] != "0" or lines["State"][0] in "tT":
            return False
    return True


def filters(pid: int) -> int:
    """The number of seccomp filters of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(next(x for x in status.splitlines() if x.startswith("Seccomp_filters")).split()[1])


@at_each("kill", "adopter")
@pytest.mark.parametrize("both", [False, True], ids=["monitor", "command-too"])
def test_a_monitor_that_is_killed_in_an_adoption_leaves_the_program_as_it_was(place, both):
    """Nothing stays stopped, no wait ends early, and the next adoption succeeds."""
    with points() as inside:
        (pid,) = [inside.line(ev="ready")["pid"]]
        before = filters(pid)
        tell(inside, "do sleep 3000000000")
        tell(inside, "other sleep 3000000000")
        wait_until_it_waits(inside)
        command = place.reach(inside)
        if both:
            command.kill()
        kill(inside.monitor())
        assert command.wait(timeout=AT_ONCE) != 0
        until(lambda: is_at_large(pid))
        inside.points.release_all()
        verb(inside, "adopt", inside.name)
        assert not inside.shown()["needs_adopt"]
        assert filters(pid) <= before + 2
        for who in (1, 2):
            slept = inside.line(timeout=AT_ONCE, ev="done", who=who, op="sleep 3000000000")
            assert slept["ret"] == 0
        works(inside)
        works(inside, who=2)
        assert not [name for name in Path(f"/proc/{pid}/fd").iterdir() if is_listener(name)]


def is_listener(link: Path) -> bool:
    return "seccomp" in str(link.readlink())


@at_each("kill", "adopter")
def test_a_program_can_start_others_after_a_second_adoption(place):
    with Faulty("/bin/sh", "-c", EXECS, rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        place.reach(inside)
        kill(inside.monitor())
        inside.points.release_all()
        verb(inside, "adopt", inside.name)
        executes(inside, 1)


@at_each("kill", "adopter")
def test_a_frozen_container_is_frozen_again_by_the_next_adoption(place):
    """Where the first one has died. Time stands still all along."""
    needs.feature("cgroup-freeze")
    with points() as inside:
        inside.line(ev="ready")
        tell(inside, "do sleep 4000000000")
        wait_until_it_waits(inside)
        inside.freeze()
        before = inside.time()["monotonic_ns"]
        place.reach(inside)
        kill(inside.monitor())
        inside.points.release_all()
        verb(inside, "adopt", inside.name)
        assert inside.time()["monotonic_ns"] == before and inside.time()["state"] == "frozen"
        tell(inside, "other sleep 1000000")
        time.sleep(0.3)
        assert inside.lines(ev="done") == []
        inside.unfreeze()
        assert inside.line(timeout=AT_ONCE, ev="done", who=1)["ret"] == 0
        inside.line(timeout=AT_ONCE, ev="done", who=2)


@at_each("kill", "adopter")
def test_a_program_that_is_killed_while_it_is_adopted(place):
    """The command ends, and nothing of the container is left."""
    with Faulty("sleep", "1000", rate="1") as inside:
        inside.wait_until_shown()
        (pid,) = inside.programs()
        command = place.reach(inside)
        monitor = inside.monitor()
        os.kill(pid, signal.SIGKILL)
        inside.points.release(place.point)
        assert command.wait(timeout=AT_ONCE) == 0
        until(lambda: processes.has_ended(monitor))
        assert not (inside.session.state_dir() / inside.name).exists()


@at_each("stop", "adopter")
def test_a_monitor_that_stands_still_in_an_adoption_holds_no_other_program_up(place):
    with points() as inside, beside(inside) as other:
        inside.line(ev="ready")
        run = next(one["pid"] for one in inside.shown()["monitors"] if one["kind"] == "run")
        inside.monitor = lambda: run
        command = place.reach(inside)
        works(other)
        works(other, who=2)
        inside.points.release(place.point)
        assert command.wait(timeout=AT_ONCE) == 0
        works(inside)


@at_each("signal", "adopter")
def test_a_signal_to_a_monitor_in_an_adoption_ends_nobody(place):
    with Faulty("/bin/sh", "-c", EXECS, rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        command = place.reach(inside)
        for number in (signal.SIGUSR1, signal.SIGTERM, signal.SIGHUP):
            os.kill(inside.monitor(), number)
        inside.points.release(place.point)
        assert command.wait(timeout=AT_ONCE) == 0
        executes(inside, 1)


@at_each("change", "adopter")
def test_a_change_during_an_adoption_reaches_the_wait(place):
    with points() as inside:
        inside.line(ev="ready")
        tell(inside, "do sleep 1000000000000")
        wait_until_it_waits(inside)
        command = place.reach(inside)
        verb(inside, "leap", inside.name, "--by", "990s")
        verb(inside, "dilate", inside.name, "--rate", "100")
        inside.points.release(place.point)
        assert command.wait(timeout=AT_ONCE) == 0
        begun = time.monotonic()
        inside.line(timeout=AT_ONCE, ev="done", who=1, op="sleep 1000000000000")
        assert time.monotonic() - begun < 2
        assert done(inside, "sleep 1000000", who=2)["ret"] == 0
