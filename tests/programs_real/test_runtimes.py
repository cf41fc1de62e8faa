"""Real runtimes, each with its own way to read clocks and to wait."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest
from framework import build, lorentz, oracle, processes, real
from framework.experiments import until
from framework.needs import tool
from framework.oracle import HostNoise
from framework.real import python
from framework.running import Inside

#: Nominal seconds: half a second of real time where time is slow, a fifth where it is fast.
NOMINAL = {"10": 2.0, "1/10": 0.05}


@pytest.mark.parametrize("rate", NOMINAL)
@pytest.mark.parametrize("program", real.PROGRAMS, ids=str)
def test_every_wait_of_a_runtime_follows_the_rate(program, rate):
    real.check_at_rate(program, NOMINAL[rate], rate)


@pytest.mark.parametrize("program", real.PROGRAMS, ids=str)
def test_a_runtime_lives_at_another_date(program):
    real.check_at_rate(program, 1.0, "20", at="2038-01-20")


@pytest.mark.parametrize("rate", ["1", "5"])
@pytest.mark.parametrize("at", ["1999-12-31", "2050-06-01"])
def test_a_jvm_does_not_hang_at_another_date(at, rate):
    """libfaketime's famous hang: Thread.sleep, Object.wait and parkNanos in a JVM whose wall clock
    is elsewhere."""
    with Inside(*build.java("real/Hang"), "40", at=at, rate=rate) as inside:
        inside.succeed(timeout=20)
        assert inside.line(ev="year")["year"] == int(at[:4])
        assert inside.ended_at - inside.started_at >= 15 * 0.040 / oracle.ratio(rate)


LONG_SLEEPS = {
    "bash": ["bash", "-c", 'echo \'{"ev":"go"}\'; sleep 100'],
    "python": ["PYTHON", "-c", 'import time; print(\'{"ev":"go"}\', flush=True); time.sleep(100)'],
    "asyncio": [
        "PYTHON",
        "-c",
        'import asyncio; print(\'{"ev":"go"}\', flush=True); asyncio.run(asyncio.sleep(100))',
    ],
    "node": ["node", "-e", 'console.log(\'{"ev":"go"}\'); setTimeout(() => {}, 100000)'],
    "go": ["GO"],
    "tokio": ["TOKIO"],
    "java": ["JAVA"],
}


def long_sleep(program: str) -> list[str]:
    """A program that says something, sleeps 100 s and does little else."""
    first, *rest = LONG_SLEEPS[program]
    hundred = str(100 * 10**9)
    commands = {
        "PYTHON": lambda: [python(), *rest],
        "GO": lambda: [str(build.go("real/go")), hundred],
        "TOKIO": lambda: [str(build.cargo("real/tokio", "tokio-waits")), hundred],
        "JAVA": lambda: [*build.java("real/Waits"), "100000"],
    }
    return commands.get(first, lambda: [tool(first), *rest])()


def is_asleep(inside: Inside) -> bool:
    """Whether every thread of the programs sleeps, and one of them has a deadline."""
    tasks = (task for pid in inside.programs() for task in Path(f"/proc/{pid}/task").iterdir())
    asleep = all(processes.state(int(task.name)) == "S" for task in tasks)
    return asleep and inside.time()["waits"] > 0


@pytest.mark.parametrize("verb", ["leap", "dilate"])
@pytest.mark.parametrize("program", LONG_SLEEPS)
def test_a_change_reaches_a_runtime_in_its_sleep(program, verb):
    """100 s of sleep end at once by a leap of 100 s, in a tenth of a second at rate 1000."""
    items = program in ("go", "tokio", "java")
    with HostNoise() as noise, Inside(*long_sleep(program), rate="1") as inside:
        inside.line(ev="ready" if items else "go")
        until(lambda: is_asleep(inside), "the sleep")
        start = time.monotonic()
        if verb == "leap":
            inside.leap("100s")
        else:
            inside.dilate("1000")
        if items:
            line = inside.line(ev="done")
            end = line.at
            assert line["elapsed"] >= 100
        else:
            inside.succeed()
            end = inside.ended_at
    assert end - start < 1.5 + noise.slack


SERVICE = """
import os, sys, time
log = os.open(sys.argv[1], os.O_WRONLY)
while True:
    os.write(log, b".")
    time.sleep(60)
"""


def test_a_service_is_frozen_and_leapt(tmp_path):
    """A Python service that ticks: no tick while it is frozen, all that was due after a leap."""
    log = tmp_path / "log"
    log.touch()

    def ticks() -> int:
        return log.stat().st_size

    with Inside(python(), "-c", SERVICE, log, rate="600") as inside:
        until(lambda: ticks() >= 3, "three ticks")
        inside.freeze()
        count = ticks()
        time.sleep(0.5)
        assert ticks() == count
        inside.unfreeze()
        until(lambda: ticks() >= count + 3, "ticks after the freeze")
        inside.dilate("1")
        until(lambda: is_asleep(inside), "the sleep")
        count = ticks()
        inside.leap("61s")
        until(lambda: ticks() > count, "a tick after the leap", timeout=2)


def test_lorentz_runs_a_shell_script_with_date_arithmetic(tmp_path):
    """date before and after `sleep 1h`: an hour apart, in a hundredth of a second or so."""
    script = tmp_path / "hour"
    script.write_text("#!/bin/bash\ndate +%s\nsleep 1h\ndate +%s\n")
    script.chmod(0o755)
    with HostNoise() as noise, Inside(script, rate="36000", at="2030-01-01") as inside:
        inside.succeed()
    first, last = (int(line) for line in inside.stdout.split())
    took = inside.ended_at - inside.started_at
    assert 0 <= first - oracle.epoch("2030-01-01") <= 36000 * took
    assert 3600 <= last - first <= 36000 * took
    assert took < 1.5 + noise.slack


def test_an_unprivileged_user_runs_programs_too():
    """Without root: no time namespace, no cgroup, the same virtual time."""
    command = [str(build.cpp("real/waits")), str(2 * 10**9)]
    if not reachable(command[0]):
        pytest.skip("the build directory is closed to other users")
    program = next(p for p in real.PROGRAMS if p.name == "cpp")
    with HostNoise() as noise, Inside(*command, rate="10", unprivileged=True) as inside:
        inside.succeed()
    assert not list(real.judge(program, inside, 10, noise.slack + program.overhead))


def reachable(path: str) -> bool:
    probe = [*lorentz.as_nobody(), "test", "-x", path]
    return subprocess.run(probe, timeout=10, check=False).returncode == 0
