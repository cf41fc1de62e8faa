"""The tables of a clock are full: waits poll the clock by themselves, timers are refused."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time
from pathlib import Path

import pytest
from framework import build, lorentz, points, processes
from framework.oracle import HostNoise
from framework.running import Inside, Native

WAITERS, TIMERS = 16_384, 8_192
WAITER, TIMER = 64, 128
#: A process that always exists and is on no clock of ours.
SOMEBODY = 1
LONG = 10**11


def fill(inside: Inside, key: int, place: int, table: tuple[int, int], taken: int) -> None:
    """Takes every free slot of the table of `count` slots of `size` bytes, whose key is at byte
    `place`."""
    slots, size = table
    path = Path(lorentz.session.state_dir()) / inside.name / "clock"
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        found = memory.find(struct.pack("<Q", key))
        assert found > 0 and found % size == 0, "no such entry"
        begin = found - place * size
        for slot in range(begin, begin + slots * size, size):
            if memory[slot : slot + 8] == bytes(8):
                memory[slot : slot + 8] = struct.pack("<Q", taken)


def test_a_wait_without_a_place_follows_by_itself():
    """The wait polls every ten milliseconds; so a leap, a dilate and a freeze reach it."""
    with Inside("sleep", "1000000", rate="1") as inside:
        first = sleeping(inside)
        key, taken = first << 32 | first, SOMEBODY << 32 | SOMEBODY
        fill(inside, key, first % WAITERS, (WAITERS, WAITER), taken)
        nap = [str(build.c("waits/sleep")), str(LONG), "nanosleep"]
        command = [*lorentz.session.command(), "exec", inside.name, "--", *nap]
        with HostNoise() as noise, Native(command, env=lorentz.session.environment()) as more:
            pid = more.line(ev="ready")["pid"]
            points.until(lambda: processes.state(pid) == "S")
            inside.freeze()
            time.sleep(0.2)
            inside.unfreeze()
            inside.dilate("10")
            assert more.lines(ev="done") == []
            leapt = time.monotonic()
            inside.leap("100s")
            done = more.line(ev="done", timeout=5)
            more.succeed()
        assert (done["ret"], done["err"]) == (0, 0)
        assert done.at - leapt < 0.75 + noise.slack


@pytest.mark.parametrize(("call", "refused"), [("posix", "EAGAIN"), ("fd", "ENOMEM")])
def test_a_timer_without_a_place_is_refused(call, refused):
    program = (
        "import ctypes, errno, json, sys, time\n"
        "libc = ctypes.CDLL(None, use_errno=True)\n"
        "def make(call):\n"
        "    number = ctypes.c_int()\n"
        "    if call == 'fd': made = libc.timerfd_create(1, 0)\n"
        "    else: made = libc.syscall(222, 1, None, ctypes.byref(number))\n"
        "    return made, number.value, errno.errorcode.get(ctypes.get_errno(), '')\n"
        f"made, number, _ = make('{call}')\n"
        "print(json.dumps({'ev': 'made', 'made': made, 'number': number}), flush=True)\n"
        "sys.stdin.readline()\n"
        f"made, number, error = make('{call}')\n"
        "print(json.dumps({'ev': 'more', 'made': made, 'error': error}), flush=True)\n"
    )
    with Inside("python3", "-c", program, rate="1", stdin=True) as inside:
        made = inside.line(ev="made")
        assert made["made"] >= 0
        [pid] = inside.shown()["pids"]
        kind, number = (3, made["made"]) if call == "fd" else (1, made["number"])
        place = (pid * 32 + number) % TIMERS
        key, taken = pid << 32 | kind << 28 | number, SOMEBODY << 32 | 2 << 28
        fill(inside, key, place, (TIMERS, TIMER), taken)
        inside.close_stdin()
        more = inside.line(ev="more")
        inside.succeed()
    assert (more["made"], more["error"]) == (-1, refused)


def test_a_change_returns_when_all_have_followed():
    """At most after a tenth of a second: so long it waits for a stopped process."""
    with Inside(build.c("waits/sleep"), str(LONG), "nanosleep", rate="1") as inside:
        inside.line(ev="ready")
        points.until(lambda: inside.time()["waits"] == 1)
        pid = inside.shown()["pids"][-1]  # the others wait for it
        quick = min(seconds_of(inside, "1s") for _ in range(5))
        os.kill(pid, signal.SIGSTOP)
        slow = seconds_of(inside, "1s")
        os.kill(pid, signal.SIGCONT)
    assert slow >= 0.1, "it did not wait for the one that was stopped"
    assert quick < slow


def seconds_of(inside: Inside, by: str) -> float:
    began = time.monotonic()
    inside.leap(by)
    return time.monotonic() - began


def sleeping(inside: Inside) -> int:
    """Returns the process that sleeps, once it does."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if lorentz.shown(inside.name) and inside.time()["waits"] == 1:
            [pid] = inside.shown()["pids"]
            return pid
        time.sleep(0.02)
    raise AssertionError("it does not sleep")
