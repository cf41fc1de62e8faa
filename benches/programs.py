"""Whole commands as a user feels them, from start to end, and Lorentz's own commands.

Lorentz's commands are measured in a loop and typed by themselves, after a pause: caches and
processors are cold then, and the kernel has work that it put off.
"""

from __future__ import annotations

import os
import select
import subprocess
import time

import levels
from levels import LORENTZ, LORENTZ_LEVEL, NATIVE, ROOT, Level
from suites import TIMEOUT, Bench, Samples, in_turns

#: The commands by their case; they run in the project's folder.
PROGRAMS = {
    "bash": ["bash", "-c", "true"],
    "asyncio": ["python3", "-c", "import asyncio"],
    "git_status": ["git", "status"],
    "find": ["find", "/usr", "-mtime", "-1"],
    "grep": ["grep", "-r", "no such text anywhere", "docs", "tests", "crates"],
    "tar": ["sh", "-c", "tar cf - docs tests | cat"],
    "spawns": ["sh", "-c", "i=0; while [ $i -lt 500 ]; do /bin/true; i=$((i+1)); done"],
    "gcc": ["gcc", "-c", "-o", os.devnull, "benches/c/true.c"],
    "node": ["node", "-e", "0"],
    "java": ["java", "-version"],
}

#: Lorentz's commands by their case; NAME stands for a container that runs.
COMMANDS = {
    "run": ["run", "--", "true"],
    "exec": ["exec", "NAME", "--", "true"],
    "time": ["time", "NAME"],
    "ps": ["ps"],
    "dilate": ["dilate", "NAME", "--rate", "1"],
    "leap": ["leap", "NAME", "--by", "1s"],
    "freeze": ["freeze", "NAME"],
}

#: Pause before a command that is typed by itself, s.
PAUSE = 0.5


def _timed(command: list[str]) -> float:
    """The real time that a command takes, ns."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    nowhere = subprocess.DEVNULL
    start = time.perf_counter_ns()
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere
    )
    # A wait with a timeout would look now and then, and find the end late.
    pidfd = os.pidfd_open(process.pid)
    has_ended = select.select([pidfd], [], [], TIMEOUT)[0]
    taken = time.perf_counter_ns() - start
    os.close(pidfd)
    if not has_ended:
        process.kill()
    if process.wait() not in (0, 1):
        raise RuntimeError(f"{' '.join(command)}: exit status {process.returncode}")
    return float(taken)


def programs(bench: Bench) -> Samples:
    """Whole commands at rate 1 and another date."""

    def once(level: Level) -> dict[str, float]:
        return {case: _timed(level.command(*command)) for case, command in PROGRAMS.items()}

    return in_turns(bench, 11, levels.at_rate_one(), once)


def commands(bench: Bench) -> Samples:
    """Lorentz's commands, in a loop and typed by themselves; natively `true` alone."""
    name = f"bench-{os.getpid()}"
    options = ["--name", name, "--offset", "1d", "--", "sleep", "100000"]
    container = subprocess.Popen([LORENTZ, "run", *options], stdin=subprocess.DEVNULL)
    samples: Samples = {NATIVE: {}, LORENTZ_LEVEL: {}}

    def measure(level: str, case: str, command: list[str]) -> None:
        for _ in range(bench.rounds(15)):
            _settle(name)
            time.sleep(PAUSE)
            samples[level].setdefault(f"{case}_alone", []).append(_timed(command))
        for _ in range(bench.rounds(30)):
            _settle(name)
            samples[level].setdefault(case, []).append(_timed(command))

    try:
        _wait_for(name)
        measure(NATIVE, "run", ["true"])
        for case, words in COMMANDS.items():
            line = [LORENTZ, *(name if word == "NAME" else word for word in words)]
            measure(LORENTZ_LEVEL, case, line)
    finally:
        subprocess.run([LORENTZ, "rm", "--force", name], capture_output=True, timeout=TIMEOUT)
        container.wait(timeout=TIMEOUT)
    return samples


def _wait_for(name: str) -> None:
    end = time.monotonic() + TIMEOUT
    while subprocess.run([LORENTZ, "time", name], capture_output=True).returncode != 0:
        if time.monotonic() > end:
            raise RuntimeError(f"{name} did not start")
        time.sleep(0.1)


def _settle(name: str) -> None:
    """Undoes a freeze, so that the next one has something to do."""
    subprocess.run([LORENTZ, "unfreeze", name], capture_output=True, timeout=TIMEOUT)
