"""The monitor is killed: programs keep their clock; no exec leads out of virtual time."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path

import pytest
from framework import build, lorentz
from framework.oracle import HostNoise, epoch
from framework.points import until
from framework.processes import has_ended, state
from framework.running import Inside

AT = "2038-01-19"


def test_programs_run_on_and_keep_their_clock():
    """Reads and waits as before, by vDSO and raw, no jump."""
    watch = [build.c("clocks/clocks"), "watch", str(10**15), str(10**8)]
    with HostNoise() as noise, Inside(*watch, rate="10", at=AT) as inside:
        inside.wait_for(3, ev="now")
        inside.kill_monitor()
        count = len(inside.lines(ev="now"))
        lines = inside.wait_for(count + 50, ev="now")
    for earlier, later in zip(lines, lines[1:], strict=False):
        gap = (later["mono"] - earlier["mono"]) / 1e9
        assert 0.1 <= gap <= 10 * (later.at - earlier.at + 2 * noise.slack)
        assert abs(later["real"] - later["real_raw"]) <= 10 * noise.slack * 1e9
    assert 0 <= lines[-1]["real"] / 1e9 - epoch(AT) < 1000


def test_time_can_still_be_changed():
    """dilate, freeze, leap need no monitor: a wait in progress follows."""
    sleep = [build.c("waits/sleep"), str(100 * 10**9), "nanosleep", "clock_nanosleep-realtime-abs"]
    with Inside(*sleep, rate="1") as inside:
        inside.wait_for(2, ev="ready")
        inside.kill_monitor()
        until(lambda: inside.time()["waits"] == 2)
        inside.leap("50s")
        inside.dilate("100")
        # In real time they would take 50 s and more.
        done = inside.wait_for(2, ev="done")
    assert min(line["elapsed"] for line in done) >= 100


def test_the_next_exec_fails_closed():
    """With a line on stderr, and never in real time."""
    script = (
        'echo "{\\"ev\\":\\"up\\"}"; read -r _; '
        f'{build.c("process/probe")} 0; echo "{{\\"ev\\":\\"status\\",\\"is\\":$?}}"'
    )
    with Inside("/bin/bash", "-c", script, rate="10", at=AT, stdin=True) as inside:
        inside.line(ev="up")
        inside.kill_monitor()
        inside.close_stdin()
        status = inside.line(ev="status", timeout=10)["is"]
        assert status != 0
        inside.finish()
        assert inside.lines(ev="probe") == []
        assert inside.stderr.strip(), "not a word on stderr"


def test_an_exec_that_waits_for_the_monitor_does_not_hang():
    """Two processes call exec in a loop while the monitor is killed: both end."""
    loop = "for i in $(seq 100000); do /bin/true || exit 3; done"
    script = (
        f'echo "{{\\"ev\\":\\"up\\"}}"; ({loop}) & ({loop}) & wait; echo "{{\\"ev\\":\\"end\\"}}"'
    )
    with Inside("/bin/bash", "-c", script, rate="1") as inside:
        inside.line(ev="up")
        time.sleep(0.3)
        inside.kill_monitor()
        inside.line(ev="end", timeout=15)


def test_ps_tells_and_rm_clears():
    """ps reports the dead monitor; rm ends the programs and leaves nothing."""
    with Inside(build.c("stress/hammer"), "2", stdin=True, rate="1") as inside:
        pid = inside.line(ev="ready")["pid"]
        assert inside.shown()["monitor_alive"] is True
        inside.kill_monitor()
        shown = inside.shown()
        assert shown["monitor_alive"] is False
        assert "monitor" in shown["state"]
        assert "monitor" in lorentz.ok("ps")
        assert pid in shown["pids"]
        inside.verb("rm")
        assert lorentz.shown(inside.name) is None
        deadline = time.monotonic() + 3
        while not has_ended(pid):
            assert time.monotonic() < deadline, "the program still runs"
            time.sleep(0.02)
        assert list(lorentz.session.state_dir().rglob(f"*{inside.name}*")) == []


def test_a_program_in_its_exec_outlives_the_command():
    """The command ends while a program that it has started executes another: the monitor in the
    background completes that."""
    script = "sleep 1000000 </dev/null >/dev/null 2>&1 & :"
    for turn in range(20):
        name = f"exec-{os.getpid()}-{turn}"
        lorentz.ok("run", "--name", name, "--rate", "2", "--", "/bin/sh", "-c", script)
        # ps finds a program by its clock, which it does not have in the midst of the exec.
        deadline = time.monotonic() + 5
        while len((shown := lorentz.shown(name) or {"pids": []})["pids"]) != 1:
            assert time.monotonic() < deadline, f"turn {turn}: {shown}"
        lorentz.ok("rm", "--force", name)


def test_rm_clears_several_at_once():
    with Inside("sleep", "1000") as one, Inside("sleep", "1000") as other:
        for inside in (one, other):
            wait_until_up(inside)
            inside.kill_monitor()
        lorentz.ok("rm", one.name, other.name)
        assert lorentz.shown(one.name) is None and lorentz.shown(other.name) is None


def test_the_name_can_be_used_again():
    with Inside("sleep", "1000") as inside:
        wait_until_up(inside)
        inside.kill_monitor()
        inside.verb("rm")
        done = lorentz.call("run", "--name", inside.name, "--", "true")
        assert done.returncode == 0, done.stderr


def wait_until_up(inside: Inside) -> None:
    deadline = time.monotonic() + 5
    while not (lorentz.shown(inside.name) or {}).get("pids"):
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("delay", [0.0, 0.002, 0.004, 0.006, 0.008, 0.01, 0.015, 0.02, 0.03, 0.05])
def test_a_program_whose_launcher_is_killed_is_not_left_stopped(delay):
    """At every moment of the start: afterwards there is no program, or one that runs on in virtual
    time. None is stopped, none runs in real time."""
    watch = [build.c("clocks/clocks"), "watch", str(10**15), str(2 * 10**8)]
    with Inside(*watch, rate="10", at=AT) as inside:
        time.sleep(delay)
        os.kill(inside.pid, signal.SIGKILL)
        inside.process.wait(timeout=5)
        time.sleep(0.3)
        # The monitor in the background may be about to let the program go.
        until(lambda: not any(state(pid) in ("t", "T") for pid in inside.processes()))
        for line in inside.lines(ev="now"):
            assert 0 <= line["real"] / 1e9 - epoch(AT) < 1000, "real time"
        if count := len(inside.lines(ev="now")):
            until(lambda: len(inside.lines(ev="now")) >= count + 3 or not inside.processes())


def test_a_frozen_container_whose_launcher_is_killed_can_be_cleared():
    with Inside(build.c("stress/hammer"), "2", stdin=True) as inside:
        pid = inside.line(ev="ready")["pid"]
        inside.freeze()
        inside.kill_monitor()
        inside.verb("rm")
        deadline = time.monotonic() + 3
        while not has_ended(pid):
            assert time.monotonic() < deadline, "still there, frozen"
            time.sleep(0.02)


def clock_files(inside: Inside, pid: int) -> list[Path]:
    """Returns the files behind the clock page of a process: in the state directory, or only in
    /proc."""
    found = [p for p in lorentz.session.state_dir().rglob("*") if inside.name in str(p)]
    found = [p for p in found if p.is_file() and "clock" in p.name]
    with contextlib.suppress(OSError):
        for link in Path(f"/proc/{pid}/map_files").iterdir():
            if "clock" in str(link.readlink()):
                found.append(link)
    return found


def test_a_clock_that_is_cut_off_gives_a_defined_end():
    """Root truncates the clock's file: the program ends by a signal or with a failure, soon; it
    never reads garbage or real time."""
    watch = [build.c("clocks/clocks"), "watch", str(10**15), str(10**8)]
    with Inside(*watch, rate="10", at=AT) as inside:
        pid = inside.wait_for(3, ev="now")[0]["pid"]
        files = clock_files(inside, pid)
        assert files, "no file of the clock to be found"
        with files[0].open("r+b") as clock:
            clock.truncate(0)
        status = inside.finish(timeout=10)
        assert status != 0
        for earlier, later in zip(inside.lines(ev="now"), inside.lines(ev="now")[1:], strict=False):
            assert later["mono"] >= earlier["mono"]
            assert 0 <= later["real"] / 1e9 - epoch(AT) < 1000
    done = lorentz.call("time", inside.name)
    assert done.returncode != 0 or "clock" in done.stdout


def test_a_skipper_ends_with_the_last_program_of_a_dead_monitor():
    """No monitor is left that would remove the container and so end the skipper."""
    with Inside(build.c("faults/points"), rate="1", stdin=True) as inside:
        inside.line(ev="ready")
        inside.verb("skip", "on")
        skipper = inside.time()["skip"]["skipper"]
        assert skipper is not None
        inside.kill_monitor()
        inside.close_stdin()
        deadline = time.monotonic() + 20
        while not has_ended(skipper):
            assert time.monotonic() < deadline, "the skipper is left behind"
            time.sleep(0.1)
