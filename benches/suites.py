"""The measurements. Each suite runs its programs at every level, turn by turn.

A suite yields samples: `samples[level][case]` is a list with one value per round. In each round the
levels follow each other in a changing order. So other load of the machine hits all of them alike,
and the n-th values can be compared.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import levels
from levels import LORENTZ, Level

Samples = dict[str, dict[str, list[float]]]

TIMEOUT = 120


@dataclass
class Bench:
    """Environment of a suite."""

    programs: Path
    tsc_hertz: float
    quick: bool
    left_out: dict[str, str] = field(default_factory=dict)
    failed: bool = False

    def nanoseconds(self, ticks: float) -> float:
        """Converts time-stamp counter ticks to real ns."""
        return ticks * 1e9 / self.tsc_hertz

    def give_up(self, level: Level, suite: str, error: Exception) -> None:
        """Leaves `level` out of `suite`. A failure of Lorentz is a failure of the run."""
        reason = str(error).strip()
        announce(f"bench: {suite}: {level.name} failed: {reason}")
        self.left_out[f"{level.name} in {suite}"] = reason.splitlines()[0]
        self.failed = self.failed or level.name == levels.LORENTZ_LEVEL

    def rounds(self, full: int) -> int:
        """Returns the number of rounds: `full`, or a fifth of it with --quick."""
        return max(2, full // 5) if self.quick else full


def output_of(command: list[str]) -> dict[str, float]:
    """Run `command` and read its `name value` lines."""
    run = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TIMEOUT
    )
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: exit status {run.returncode}\n{run.stderr}")
    return parse(run.stdout)


def parse(text: str) -> dict[str, float]:
    """Returns the lines of `text` that are a name and a number."""
    pairs = re.findall(r"^(\w+) (-?\d+(?:\.\d+)?)$", text, re.M)
    return {name: float(value) for name, value in pairs}


def in_turns(
    bench: Bench, rounds: int, choices: list[Level], once: Callable[[Level], dict[str, float]]
) -> Samples:
    """Calls `once` for each level in `rounds` rounds, and collects the results."""
    present = []
    for level in choices:
        if level.missing:
            bench.left_out[level.name] = level.missing
        else:
            present.append(level)
    samples: Samples = {level.name: {} for level in present}
    for turn in range(bench.rounds(rounds)):
        shift = turn % len(present)
        for level in present[shift:] + present[:shift]:
            try:
                found = once(level)
            except (RuntimeError, OSError, subprocess.SubprocessError) as error:
                bench.give_up(level, once.__qualname__.split(".")[0], error)
                present = [other for other in present if other is not level]
                continue
            for case, value in found.items():
                samples[level.name].setdefault(case, []).append(value)
    return samples


def calls(bench: Bench) -> Samples:
    """Clock reads, plain syscalls and waits that return at once, at rate 1."""

    def once(level: Level) -> dict[str, float]:
        found = output_of(level.command(bench.programs / "micro"))
        return {case: bench.nanoseconds(ticks) for case, ticks in found.items()}

    return in_turns(bench, 25, levels.at_rate_one(), once)


def clocks_at_rate_two(bench: Bench) -> Samples:
    """Clock reads where time runs at twice its speed."""

    def once(level: Level) -> dict[str, float]:
        found = output_of(level.command(bench.programs / "micro", "clock"))
        return {case: bench.nanoseconds(ticks) for case, ticks in found.items()}

    return in_turns(bench, 15, levels.at_rate_two(), once)


def execs(bench: Bench) -> Samples:
    """posix_spawn of a program that does nothing, until it has ended."""

    def once(level: Level) -> dict[str, float]:
        result = {}
        for kind in ("static", "dynamic"):
            program = bench.programs / f"true-{kind}"
            found = output_of(level.command(bench.programs / "exec", "40", program))
            result[kind] = bench.nanoseconds(found["spawn"])
        return result

    return in_turns(bench, 15, levels.at_rate_one(), once)


def lateness(bench: Bench) -> Samples:
    """Measures the time beyond a millisecond that clock_nanosleep(1 ms) takes."""

    def once(level: Level) -> dict[str, float]:
        found = output_of(level.command(bench.programs / "lateness", "200"))
        return {case: bench.nanoseconds(ticks) - 1e6 for case, ticks in found.items()}

    return in_turns(bench, 25, levels.at_rate_one(), once)


THREADS = 1000
SECONDS = 2000


def waits(bench: Bench) -> Samples:
    """Measures a change of the clock with THREADS waits in flight, until the last wait has
    followed.

    Times are per wait, from before the command starts. `leap` passes the deadline of all waits at
    once; its time ends when the last thread has woken. `dilate`, `freeze`, `unfreeze`: until the
    command ends, which is when all waits have followed.
    """
    level = levels.at_rate_one()[-1]
    if level.missing:
        bench.left_out[level.name] = level.missing
        return {}
    samples: dict[str, list[float]] = {}
    for turn in range(bench.rounds(11)):
        for case, value in _waits_once(bench, f"bench-{os.getpid()}-{turn}").items():
            samples.setdefault(case, []).append(value)
    return {level.name: samples}


def _waits_once(bench: Bench, name: str) -> dict[str, float]:
    result: dict[str, float] = {}
    with Sleepers(bench, name) as sleepers:
        for verb, options in (("dilate", ["--rate", "2"]), ("freeze", []), ("unfreeze", [])):
            start, end = sleepers.control(verb, *options)
            result[verb] = bench.nanoseconds(end - start) / THREADS
            result[f"{verb}_command"] = bench.nanoseconds(end - start)
        start, end = sleepers.control("leap", "--by", f"{SECONDS}s")
        result["leap"] = bench.nanoseconds(sleepers.woken()["last"] - start) / THREADS
        result["leap_command"] = bench.nanoseconds(end - start)
    return result


class Sleepers:
    """A container with THREADS threads that sleep SECONDS of virtual time."""

    def __init__(self, bench: Bench, name: str) -> None:
        self.name = name
        self.stamp = bench.programs / "stamp"
        program = [str(bench.programs / "waiters"), str(THREADS), str(SECONDS)]
        self.process = subprocess.Popen(
            [LORENTZ, "run", "--name", name, "--rate", "1", "--", *program],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Sleepers:
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "sleeping\n":
            raise RuntimeError("the sleeping threads did not start")
        time.sleep(0.5)  # the last of them enters the kernel
        return self

    def control(self, verb: str, *options: str) -> tuple[float, float]:
        """Runs a control command. Returns the time-stamp counter before and after it."""
        found = output_of([str(self.stamp), LORENTZ, verb, self.name, *options])
        return found["start"], found["end"]

    def woken(self) -> dict[str, float]:
        """Waits for the end. Returns the times at which the first and the last thread woke."""
        text, _ = self.process.communicate(timeout=TIMEOUT)
        return parse(text)

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            subprocess.run([LORENTZ, "rm", self.name], capture_output=True, timeout=TIMEOUT)


def announce(text: str) -> None:
    """One line of progress, on standard error."""
    print(text, file=sys.stderr, flush=True)
