"""Runs real programs, each of which prints how long its items took, and judges the items."""

from __future__ import annotations

import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from framework import build, oracle
from framework.needs import tool
from framework.oracle import HostNoise
from framework.running import Inside, Native

#: Seconds by which a runtime's own clocks and timers are coarse (milliseconds, rounded down).
GRAIN = 0.003


@dataclass(frozen=True)
class Program:
    """A real program: its command for a nominal time in seconds, and its expected items."""

    name: str
    items: int
    #: Real seconds for its own work in one item, on a machine with other load.
    overhead: float = 0.12

    def command(self, nominal: float) -> list[str]:
        source = build.PROGRAMS / "real"
        ns, ms = str(round(nominal * 1e9)), str(round(nominal * 1e3))
        if self.name == "bash":
            return [tool("bash"), str(source / "bash.sh"), str(nominal)]
        if self.name == "python":
            return [python(), str(source / "waits.py"), str(nominal)]
        if self.name == "go":
            return [str(build.go("real/go")), ns]
        if self.name == "java":
            return [*build.java("real/Waits"), ms]
        if self.name == "node":
            return [node(), str(source / "waits.js"), ms]
        if self.name == "tokio":
            return [str(build.cargo("real/tokio", "tokio-waits")), ns]
        return [str(build.cpp("real/waits")), ns]

    def __str__(self) -> str:
        return self.name


PROGRAMS = [
    Program("bash", 5),
    Program("python", 17),
    Program("go", 8),
    Program("java", 10, overhead=0.3),
    Program("node", 8, overhead=0.2),
    Program("tokio", 8),
    Program("cpp", 10),
]


def python() -> str:
    """A Python that is a program, not a script that looks for one."""
    system = shutil.which("python3", path="/usr/bin:/bin")
    return system or str(Path(sys.executable).resolve())


def node() -> str:
    """A Node that knows AbortSignal.timeout."""
    path = tool("node")
    version = subprocess.check_output([path, "--version"], text=True, timeout=20)
    if int(version.lstrip("v").split(".")[0]) < 18:
        pytest.skip(f"needs Node 18, not {version.strip()}")
    return path


def check_at_rate(program: Program, nominal: float, rate: str, at: str | None = None) -> None:
    """Every item takes `nominal` by the program's clock and that divided by the rate outside."""
    number = oracle.ratio(rate)
    command = program.command(nominal)
    patience = 20 + 2 * program.items * nominal / number
    with HostNoise() as noise, Inside(*command, rate=rate, at=at) as inside:
        inside.succeed(timeout=patience)
    wrong = list(judge(program, inside, number, noise.slack + program.overhead))
    assert not wrong, "\n".join(wrong)
    if at:
        assert inside.line(ev="year")["year"] == int(at[:4])


def judge(program: Program, run: Inside | Native, rate: float, slack: float):
    """Returns the errors in the items of a run, in words."""
    started = {line["case"]: line for line in run.lines(ev="ready")}
    ended = {line["case"]: line for line in run.lines(ev="done")}
    if len(ended) != program.items:
        yield f"{len(ended)} items instead of {program.items}: {sorted(ended)}"
    for name, line in ended.items():
        expect, took, real = line["expect"], line["elapsed"], line.at - started[name].at
        # Each of several waits, one after another, may be late.
        late = slack * line.data.get("waits", 1)
        own = oracle.Span(expect - GRAIN, expect * (1 + oracle.LATE) + late * rate)
        least, most = oracle.real(expect, rate, slack).least, oracle.real(expect, rate, late).most
        outside = oracle.Span(least, most)
        if took not in own:
            yield f"{name}: by its own clock {took:.4f}, not in {own}"
        if real not in outside:
            yield f"{name}: by the host's clock {real:.4f}, not in {outside}"
