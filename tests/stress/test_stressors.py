"""Stress tests of others, inside: stress-ng's stressors with --verify, and cyclictest."""

from __future__ import annotations

import re
import subprocess

import pytest
from framework import oracle
from framework.needs import root, tool
from framework.running import Inside

#: Each runs natively for as long as inside; --verify makes them check what they get.
STRESSORS = ["timer", "clock", "sleep", "poll", "epoll", "futex"]
STRESSORS += ["timerfd", "nanosleep", "itimer", "alarm", "hrtimers", "mq", "sem-sysv"]
STRESSORS += ["sigsuspend", "utime", "vdso"]


def stressor(name: str, seconds: int) -> list[str]:
    tool("stress-ng")
    command = ["stress-ng", f"--{name}", "2", "--verify", "--timeout", f"{seconds}s"]
    return [*command, "--metrics-brief", "--temp-path", "/tmp"]


@pytest.mark.parametrize("rate", ["1", "5"])
@pytest.mark.parametrize("name", STRESSORS)
def test_a_stressor_finds_nothing_wrong(tmp_path, name, rate):
    seconds = {"1": 2, "5": 10}[rate]
    with Inside(*stressor(name, seconds), rate=rate, cwd=tmp_path) as inside:
        status = inside.finish(timeout=40)
    report = inside.stdout + inside.stderr
    assert status in (0, 3), report  # 3: the kernel lacks what the stressor needs
    if status == 3:
        natively_too(name)
    assert "fail:" not in report
    assert "skipped" not in report or status == 3


def natively_too(name: str) -> None:
    """A stressor that is not available inside must not be available natively either."""
    done = subprocess.run(
        stressor(name, 1), capture_output=True, text=True, timeout=30, check=False, cwd="/tmp"
    )
    assert done.returncode == 3, "runs natively, and not inside"
    pytest.skip(f"stress-ng cannot run {name} here")


@pytest.mark.alone  # A thread that shares a processor wakes up less often than one that has it.
@pytest.mark.parametrize("rate", ["1", "10", "1/2"])
@pytest.mark.parametrize("mode", ["", "-x", "-s", "-r"])
def test_cyclictest_wakes_when_it_should(rate, mode):
    """Wake-ups 5 virtual ms apart, for two real seconds, in two threads: none early, none lost. By
    clock_nanosleep, by POSIX timers (-x), by nanosleep and itimers (-s), by relative sleeps (-r).
    """
    root()
    wakes = round(400 * oracle.ratio(rate))
    command = [tool("cyclictest"), "-q", "-l", str(wakes), "-i", "5000", "-t", "2", "-d", "0"]
    command += [mode] if mode else []
    with oracle.HostNoise() as noise, Inside(*command, rate=rate) as inside:
        inside.succeed(timeout=30)
        took = inside.ended_at - inside.started_at
    threads = re.findall(r"C:\s*(\d+) Min:\s*(-?\d+) Act:.*Max:\s*(-?\d+)", inside.stdout)
    assert len(threads) == 2, inside.stdout
    for cycles, least, most in threads:
        assert int(cycles) >= wakes / 2, "the other thread ended the run long before"
        assert int(least) >= 0, "woken early"
        assert int(most) < 5_000_000 + noise.slack * oracle.ratio(rate) * 1e6
    assert took >= 0.95 * wakes * 0.005 / oracle.ratio(rate)
