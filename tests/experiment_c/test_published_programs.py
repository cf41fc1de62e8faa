"""TimeKeeper's user programs: each compiles with warnings on, and does what its name says, by
itself and in an experiment.

Those below networks/scenarios/timekeeper are ours, in the form of the published ones: their names,
options and calls. They compile without a warning. TIMEKEEPER_SOURCES=DIR has the tests take the
programs of a directory, such as a clone of TimeKeeper. Only lxcStarter is not among them: it needs
LXC.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from framework import build, lorentz
from framework.linked import environment, pid_inside, spin, stands, works
from framework.oracle import HostNoise
from framework.running import Inside, Native, Running

OURS = build.REPO / "tests/networks/scenarios/timekeeper"
TIMEOUT = 30
DAY = 86_400 * 10**6
#: The lines of print_time that are compared.
LINES = 100
TIMES = re.compile(r"(localtime|orig_time) ?: (\d+):(\d+):(\d+) (\d+)")


def program(name: str) -> Path:
    """The compiled program NAME."""
    theirs = os.environ.get("TIMEKEEPER_SOURCES")
    if theirs is None:
        return build.published(OURS / f"{name}.c", "-Werror")
    found = sorted(Path(theirs).rglob(f"{name}.c"))
    if not found:
        pytest.skip(f"no {name}.c below {theirs}")
    # Some call functions whose header they do not include.
    return build.published(found[0], "-Wno-error=implicit-function-declaration")


def variables() -> dict[str, str]:
    return {**environment(), "TZ": "UTC"}


def run(name: str, *words: object) -> str:
    """Runs timekeeper-NAME to its end, which must succeed. Returns its output."""
    done = subprocess.run(
        [program(f"timekeeper-{name}"), *map(str, words)],
        env=variables(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.returncode == 0, (name, words, done.stdout, done.stderr)
    return done.stdout


def times(text: str) -> list[int]:
    """The times of day in an output, in microseconds since midnight."""
    found = [tuple(map(int, one[1:])) for one in TIMES.findall(text)]
    return [((h * 60 + m) * 60 + s) * 10**6 + us for h, m, s, us in found]


def gone(begin: int, end: int) -> int:
    """The microseconds between two times of day."""
    return (end - begin) % DAY


def gettime(pid: int) -> int:
    return times(run("gettime", "-p", pid))[0]


def rate(pid: int) -> str:
    return lorentz.json_of("time", str(pid))["rate"]


def status() -> dict:
    return lorentz.json_of("experiment", "status", "timekeeper")


def until(good: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + TIMEOUT
    while not good():
        assert time.monotonic() < deadline, f"{what}: not in {TIMEOUT} s"
        time.sleep(0.05)


def switches(pid: int) -> int:
    """How often a process has waited."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(re.search(r"^voluntary_ctxt_switches:\s+(\d+)", text, re.MULTILINE)[1])


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A directory with a `ping` that notes its arguments, first in PATH."""
    ping = tmp_path / "ping"
    ping.write_text(f'#!/bin/sh\necho "$*" >> {tmp_path}/pings\n')
    ping.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return tmp_path


# ------------------------------------------------------------------------- programs that run on


@dataclass(frozen=True)
class Case:
    """A program that runs on."""

    running: Running
    pid: int
    #: Its host name, and the directory of the test.
    host: str
    folder: Path
    noise: HostNoise

    @property
    def shown(self) -> str:
        return self.running.stdout


def prints(case: Case, least: float, most: float) -> None:
    """print_time: between its lines virtual time passes `least` to `most` times as fast as real."""
    # The program may lose its processor between its two readings for a line, so the host's readings
    # before and after each virtual one count.
    until(lambda: len(times(case.shown)) >= 2 * LINES, "lines")
    shown = times(case.shown)[: 2 * LINES]
    virtual, real = shown[::2], shown[1::2]
    passed = gone(virtual[1], virtual[-1])
    inner, outer = gone(real[1], real[-2]), gone(real[0], real[-1])
    assert least * (inner - 1) - 1 <= passed <= most * (outer + 1) + 1, case.shown


def waits(case: Case, least: float, most: float) -> None:
    """select_dialated: its five seconds are virtual ones."""
    until(lambda: len(times(case.shown)) >= 4, "the end of its wait")
    assert "select returned 0." in case.shown
    virtual_begin, real_begin, virtual_end, real_end = times(case.shown)
    virtual, real = gone(virtual_begin, virtual_end), gone(real_begin, real_end)
    # The program may lose its processor between two readings.
    delay = case.noise.slack * 10**6
    assert 5 * 10**6 <= virtual < 60 * 10**6 + most * delay
    assert least * (real - delay) <= virtual <= most * (real + delay), case.shown


def pings(case: Case, *_: float) -> None:
    file = case.folder / "pings"
    until(lambda: file.exists() and file.read_text().count("\n") >= 3, "three pings")
    assert all(re.fullmatch(r"-c ?5 10\.0\.0\.\d+", line) for line in file.read_text().splitlines())


def sleeps(case: Case, *_: float) -> None:
    before = switches(case.pid)
    until(lambda: switches(case.pid) >= before + 3, "three sleeps")


def reads(case: Case, *_: float) -> None:
    """reader: it runs a command that comes through its pipe."""
    pipe, output = Path(f"/tmp/{case.host}"), Path(f"/tmp/{case.host}.output")
    try:
        until(pipe.exists, "its pipe")
        with pipe.open("w") as to:
            to.write("echo $((6 * 7)) of the command\n\0")
        until(lambda: output.exists() and "42 of the command" in output.read_text(), "an output")
    finally:
        pipe.unlink(missing_ok=True)
        output.unlink(missing_ok=True)


#: Programs that run on, and what a test sees of them.
THAT_RUN_ON: dict[str, Callable[..., None]] = {
    "print_time": prints,
    "select_dialated": waits,
    "random_ping": pings,
    "x64_synchronizer": sleeps,
    "reader": reads,
}


def command(name: str, host: str, gate: Path | None = None) -> list[str]:
    """Has a shell become the program, with a host name of its own; once `gate` is there."""
    wait = f"while [ ! -e {gate} ]; do sleep 0.05; done; " if gate else ""
    words = f"hostname {host}; {wait}exec {program(name)} {'1' if name == 'print_time' else ''}"
    return ["unshare", "--uts", "sh", "-c", words]


@pytest.mark.parametrize("name", THAT_RUN_ON)
def test_a_program_runs_on_alone(name, folder):
    host = f"tk-{os.getpid()}"
    made = Inside(*command(name, host), rate="10", env=variables(), stdin=True)
    with HostNoise() as noise, made as running:
        case = Case(running, pid_inside(running), host, folder, noise)
        THAT_RUN_ON[name](case, 9.9, 10.1)


@pytest.mark.parametrize("name", THAT_RUN_ON)
def test_a_program_runs_on_in_an_experiment(name, folder):
    """At TDF 1/10. It becomes the program when the experiment runs."""
    host, gate = f"tk-{os.getpid()}", folder / "gate"
    made = Native(command(name, host, gate), env=variables(), stdin=True)
    with HostNoise() as noise, made as running, spin() as other:
        run("addToExperiment", "-d", "0.1", "-p", running.pid)
        run("addToExperiment", "-d", "0.1", "-p", other.pid)
        run("synchronizeAndFreeze")
        run("startExperiment")
        gate.touch()
        before = status()["rounds"]
        # An experiment runs no faster than its slowest clock would by itself, except for some
        # rounds that it makes up for (`keep_pace`).
        THAT_RUN_ON[name](Case(running, running.pid, host, folder, noise), 0.01, 10.1)
        # select_dialated ends, and its container with it.
        left = 2 - (name == "select_dialated")
        until(lambda: len(status()["containers"]) == left, f"{left} containers")
        shown = status()
        assert shown["phase"] == "running" and shown["rounds"] > before
        for member in shown["containers"]:
            assert member["slices"] > 0 and member["perceived_overshoot_ns"] == 0, member
        run("stopExperiment")
        assert works(other.pid)


# ---------------------------------------------------------------------- utilities, one by one


def dilates() -> None:
    with spin() as one, Inside("sleep", "1000", rate="2") as named:
        run("dilate", "-p", one.pid, "2.5")
        assert rate(one.pid) == "0.4"
        run("dilate", "-r", "-p", one.pid, "0.5")
        assert rate(one.pid) == "2"
        pid = pid_inside(named)
        run("dilate", "-n", named.name, "4")
        assert rate(pid) == "0.25"


def freezes() -> None:
    with spin() as one:
        for flags in ((), ("-r",)):
            run("freeze", *flags, one.pid)
            assert stands(one.pid)
            run("unfreeze", *flags, one.pid)
            assert works(one.pid)


def leaps() -> None:
    with spin() as one:
        run("freeze", one.pid)
        before = gettime(one.pid)
        run("leap", one.pid, 5_000_000)
        assert gone(before, gettime(one.pid)) == 5_000_000


def shows_the_time() -> None:
    with Inside("sleep", "1000", at="2040-01-01T12:30:00Z") as late:
        pid = pid_inside(late)
        assert 0 <= gettime(pid) - (12 * 60 + 30) * 60 * 10**6 < 10**6 * TIMEOUT
        named = times(run("gettime", "-n", late.name))[0]
        assert 0 <= named - (12 * 60 + 30) * 60 * 10**6 < 10**6 * TIMEOUT


def adds() -> None:
    with spin() as one, spin() as other:
        run("addToExperiment", "-d", 2, "-p", one.pid)
        run("addToExperiment", "-p", other.pid)
        assert sorted(member["tdf"] for member in status()["containers"]) == [1, 2]


def changes_nothing(name: str, *words: object) -> Callable[[], None]:
    """A utility that comes too early: there is no experiment. The published ones say nothing."""

    def test() -> None:
        with spin() as one:
            run(name, *(one.pid if word == "PID" else word for word in words))
            assert works(one.pid) and lorentz.json_of("experiment", "status") == []

    return test


@contextmanager
def experiment(*timeline: object) -> Iterator[tuple[int, int]]:
    """Two processes of an experiment, synchronized; the first has TDF 2."""
    with spin() as one, spin() as other:
        run("addToExperiment", *timeline, "-d", 2, "-p", one.pid)
        run("addToExperiment", *timeline, "-p", other.pid)
        run("synchronizeAndFreeze")
        assert stands(one.pid) and stands(other.pid)
        yield one.pid, other.pid
        run("stopExperiment")
        assert works(one.pid) and works(other.pid)


def runs_by_itself() -> None:
    with experiment() as pids:
        assert gettime(pids[0]) == gettime(pids[1])
        run("startExperiment")
        until(lambda: status()["virtual_ns"] > 50_000_000, "50 ms")
        assert all(map(works, pids))


def dilates_a_member() -> None:
    with experiment() as (one, _):
        run("startExperiment")
        run("dilate", "-p", one, 5)
        until(lambda: 5 in [member["tdf"] for member in status()["containers"]], "its TDF")


def is_refused(name: str, *words: object) -> Callable[[], None]:
    """A utility that a member of an experiment refuses; the published ones say nothing."""

    def test() -> None:
        with experiment() as (one, _):
            run("startExperiment")
            run(name, one, *words)
            assert works(one)

    return test


def progresses() -> None:
    with experiment("-t", 1) as (one, other):
        begin = gettime(one)
        assert gettime(other) == begin
        run("setInterval", "-p", one, 2500, 1)
        run("progress", "-t", 1)
        assert gone(begin, gettime(one)) == 2500 and gettime(other) == begin
        run("progress", "-f", "-t", 1)
        before = gettime(one)
        run("reset", "-t", 1)
        run("progress", "-t", 1)
        assert gettime(one) == before


#: For each utility, what it does by itself and in an experiment.
UTILITIES: dict[str, tuple[Callable[[], None], Callable[[], None]]] = {
    "dilate": (dilates, dilates_a_member),
    "freeze": (freezes, is_refused("freeze")),
    "unfreeze": (freezes, is_refused("unfreeze")),
    "leap": (leaps, is_refused("leap", 1000)),
    "gettime": (shows_the_time, progresses),
    "addToExperiment": (adds, runs_by_itself),
    "synchronizeAndFreeze": (changes_nothing("synchronizeAndFreeze"), runs_by_itself),
    "startExperiment": (changes_nothing("startExperiment"), runs_by_itself),
    "stopExperiment": (changes_nothing("stopExperiment"), runs_by_itself),
    "setInterval": (changes_nothing("setInterval", "-p", "PID", 1000, 1), progresses),
    "progress": (changes_nothing("progress", "-t", 1), progresses),
    "reset": (changes_nothing("reset", "-t", 1), progresses),
}


@pytest.mark.parametrize("name", UTILITIES)
def test_a_utility_works_alone(name):
    program(f"timekeeper-{name}")
    UTILITIES[name][0]()


@pytest.mark.parametrize("name", UTILITIES)
def test_a_utility_works_in_an_experiment(name):
    program(f"timekeeper-{name}")
    UTILITIES[name][1]()


def test_each_of_our_programs_is_run():
    names = [*THAT_RUN_ON, *(f"timekeeper-{name}" for name in UTILITIES)]
    assert sorted(names) == sorted(path.stem for path in OURS.glob("*.c")) and len(names) == 17
