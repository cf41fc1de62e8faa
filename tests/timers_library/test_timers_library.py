"""The precise timers as programs meet them: the C library, and preloaded under unmodified ones."""

from __future__ import annotations

import json
import os
import re
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from framework import build, lorentz
from framework.needs import root, tool
from framework.running import Running

LIBRARIES = build.REPO / "target" / "release"
PRELOAD = LIBRARIES / "liblorentz_timers_preload.so"
INCLUDE = build.REPO / "crates" / "timers" / "include"
SOURCES = build.PROGRAMS / "timers_library"


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    for library in (PRELOAD, LIBRARIES / "liblorentz_timers.so"):
        assert library.exists(), f"{library} is missing: make build makes it"


def preloaded(**more: str) -> dict[str, str]:
    """The environment of a program that is given the timers."""
    return {**os.environ, "LD_PRELOAD": str(PRELOAD), **more}


def run(*command: str | Path, env: dict[str, str] | None = None, timeout: float = 60) -> str:
    """Runs a program to its end, which must succeed. Returns its output."""
    done = subprocess.run(
        [str(word) for word in command],
        env=env,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def compiled(folder: Path, name: str, *flags: str | Path) -> Path:
    """A C program of tests/programs/timers_library."""
    program = folder / name
    source = SOURCES / f"{name}.c"
    warnings = ("-O1", "-g", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread")
    run(tool("gcc"), *warnings, "-I", INCLUDE, source, "-o", program, *flags, "-lm")
    return program


@pytest.mark.parametrize("kind", ["shared", "static"])
def test_the_c_interface(kind: str, tmp_path: Path) -> None:
    """Every function of lorentz_timers.h, and its errors."""
    linked = {
        "shared": ["-L", LIBRARIES, "-llorentz_timers", f"-Wl,-rpath,{LIBRARIES}"],
        "static": [LIBRARIES / "liblorentz_timers.a", "-ldl"],
    }
    assert run(compiled(tmp_path, "library", *linked[kind])) == "good\n"


def test_the_header_is_c_plus_plus_too(tmp_path: Path) -> None:
    source = tmp_path / "header.cpp"
    source.write_text("#include <lorentz_timers.h>\nint main() { return 0; }\n")
    run(tool("g++"), "-Wall", "-Wextra", "-Werror", "-fsyntax-only", "-I", INCLUDE, source)


@pytest.fixture(scope="module")
def class_program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A C++11 program that uses the class HighPerTimer."""
    program = tmp_path_factory.mktemp("classes") / "highpertimer"
    flags = ("-std=c++11", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", INCLUDE)
    linked = ("-L", LIBRARIES, "-llorentz_timers", f"-Wl,-rpath,{LIBRARIES}")
    run(tool("g++"), *flags, SOURCES / "highpertimer.cpp", "-o", program, *linked)
    return program


def test_the_class_of_highpertimer(class_program: Path) -> None:
    """Its constructors, conversions, arithmetic, sleeps, source and hardware."""
    assert run(class_program) == "good\n"


def test_the_class_of_highpertimer_in_virtual_time(class_program: Path) -> None:
    words = ("run", "--at", "2030-01-19", "--rate", "10", "--")
    assert lorentz.ok(*words, str(class_program)) == "good\n"


def test_the_counter_is_measured_for_as_long_as_asked(tmp_path: Path) -> None:
    """Only before an interval is converted by another length of a tick."""
    source = tmp_path / "calibrate.c"
    source.write_text(
        "#include <lorentz_timers.h>\n#include <stdio.h>\n"
        "int main(void) { int first = lorentz_source_calibrate(0.1); lorentz_source_hertz();\n"
        'printf("%d %d %d\\n", lorentz_source(), first, lorentz_source_calibrate(0.1)); }\n'
    )
    program = tmp_path / "calibrate"
    linked = ("-L", LIBRARIES, "-llorentz_timers", f"-Wl,-rpath,{LIBRARIES}")
    run(tool("gcc"), "-I", INCLUDE, source, "-o", program, *linked)
    start = time.monotonic()
    which, first, second = map(int, run(program).split())
    assert first == 0
    # 1 is the processor's counter; the tick of the others is known.
    assert second == (-3 if which == 1 else 0)
    assert which != 1 or time.monotonic() - start >= 0.1


PYTHON = """
import datetime, signal, threading, time
from lorentz import WrongInputError, FailedError, timers
start = timers.now()
timers.sleep("3ms")
passed = timers.interval_ns(timers.now() - start)
assert 3_000_000 <= passed, passed
assert timers.interval_ns(timers.interval(2)) == 2_000_000_000
until = timers.now() + timers.interval("5ms")
timers.sleep_until(until)
assert timers.now() >= until
timers.sleep_until(until)
there = datetime.datetime.now(datetime.timezone.utc)
assert abs(timers.date(timers.moment_at(there)) - there) < datetime.timedelta(milliseconds=1)
assert abs((timers.date(timers.now()) - there).total_seconds()) < 60
assert abs(timers.moment_ns(timers.now()) / 1e9 - time.clock_gettime(time.CLOCK_MONOTONIC_RAW)) < 60
source, processor = timers.source(), timers.processor()
assert source.name in ("tsc", "hpet", "os") and source.hertz >= 1e6 and source.reason
assert processor.constant_tsc or not processor.invariant_tsc
assert timers.hpet_error() is None or timers.hpet_error().startswith("/dev/hpet ")
for wrong in (lambda: timers.force_source("sundial"), lambda: timers.calibrate("1us")):
    try:
        wrong()
    except WrongInputError:
        continue
    raise AssertionError
ran = []
signal.signal(signal.SIGALRM, lambda *_: ran.append(1))
signal.setitimer(signal.ITIMER_REAL, 0.02)
start = timers.now()
timers.sleep(0.1)
assert ran and timers.interval_ns(timers.now() - start) >= 100_000_000
print("good", timers.date(timers.now()).year)
"""


def test_the_timers_of_python() -> None:
    env = {**os.environ, "PYTHONPATH": str(build.REPO / "python")}
    year = time.gmtime().tm_year
    assert run(sys.executable, "-c", PYTHON, env=env) == f"good {year}\n"
    words = ("run", "--at", "2030-06-19", "--rate", "2", "--", "env")
    inside = (f"PYTHONPATH={build.REPO / 'python'}", sys.executable, "-c", PYTHON)
    assert lorentz.ok(*words, *inside) == "good 2030\n"


@pytest.mark.parametrize("waits", ["", "1"])
@pytest.mark.parametrize("source", ["", "tsc", "os"])
def test_a_preloaded_program_notices_nothing(source: str, waits: str, tmp_path: Path) -> None:
    """Clocks, errors, signals, cancellation, events and fork are as the kernel has them."""
    program = compiled(tmp_path, "preloaded")
    assert run(program) == "good\n", "natively"
    forced = {"LORENTZ_TIMERS_SOURCE": source, "LORENTZ_TIMERS_WAITS": waits}
    forced = {name: value for name, value in forced.items() if value}
    assert run(program, env=preloaded(**forced)) == "good\n"


@pytest.mark.parametrize("waits", ["0", "1"])
def test_a_preloaded_program_in_virtual_time(waits: str, tmp_path: Path) -> None:
    """Inside, the same program: no clock of the host is read, or its checks would fail."""
    program = compiled(tmp_path, "preloaded")
    env = ("env", f"LD_PRELOAD={PRELOAD}", f"LORENTZ_TIMERS_WAITS={waits}")
    for rate in ("10", "0.5"):
        words = ("run", "--at", "2038-01-19", "--rate", rate, "--", *env)
        assert lorentz.ok(*words, str(program)) == "good\n"


WAITS = """
import json, time
clocks = [time.time, time.monotonic, lambda: time.clock_gettime(time.CLOCK_MONOTONIC_RAW)]
before = [clock() for clock in clocks]
for _ in range(100):
    time.sleep(0.05)
print(json.dumps([clock() - start for clock, start in zip(clocks, before)]), time.gmtime().tm_year)
"""


@pytest.mark.parametrize("rate", [10, 2])
def test_python_sleeps_by_the_virtual_clock(rate: int) -> None:
    """Five virtual seconds of short sleeps take a fraction of it, on all its clocks alike."""
    words = ("run", "--at", "2038-06-01", "--rate", str(rate), "--", "env", f"LD_PRELOAD={PRELOAD}")
    start = time.monotonic()
    passed, year = lorentz.ok(*words, sys.executable, "-c", WAITS).rsplit(" ", 1)
    took = time.monotonic() - start
    assert year.strip() == "2038"
    for seconds in json.loads(passed):
        assert seconds >= 4.999
        assert seconds <= took * rate * 1.02 + 0.05


POLLS = "select.poll().poll(1)"
SELECTS = "select.select([], [], [], 0.001)"
EPOLLS = "epoll.poll(0.001)"


@pytest.mark.parametrize("wait", ["time.sleep(0.001)", POLLS, SELECTS, EPOLLS])
def test_python_waits_less_late_than_by_libc(wait: str) -> None:
    """The same waits natively: preloaded ones are less than half as late as libc's, by the quarter
    that comes soonest."""
    script = (
        "import select, time; late = []; epoll = select.epoll()\n"
        "for _ in range(400):\n"
        f"    start = time.perf_counter(); {wait}\n"
        "    late.append(time.perf_counter() - start - 0.001)\n"
        "print(late)"
    )
    # In turns: a load of the machine's that lasts disturbs both.
    late: dict[str, list[float]] = {"natively": [], "preloaded": []}
    for _ in range(4):
        precise = preloaded(LORENTZ_TIMERS_WAITS="1")
        for how, env in (("natively", None), ("preloaded", precise)):
            late[how] += json.loads(run(sys.executable, "-c", script, env=env))
    assert min(late["preloaded"]) >= 0, "early"
    soon = {how: statistics.quantiles(each, n=4)[0] for how, each in late.items()}
    assert soon["preloaded"] < soon["natively"] / 2


def test_ping_keeps_its_interval() -> None:
    """ping -i 0.02 -c 50 takes 49 intervals, and its round trips are short."""
    root()
    ping = (tool("ping"), "-i", "0.02", "-c", "50", "127.0.0.1")
    found: dict[str, int] = {}
    # A disturbance of only one of the two does not happen in every try.
    for _ in range(4):
        for name, env in (("natively", None), ("preloaded", preloaded())):
            output = run(*ping, env=env)
            assert "50 packets transmitted, 50 received" in output, output
            found[name] = int(re.search(r"time (\d+)ms", output)[1])
        assert found["preloaded"] >= 49 * 20 - 20
        if found["preloaded"] <= found["natively"] * 1.5 + 200:
            return
    raise AssertionError(found)


def test_iperf3_measures_its_time() -> None:
    """iperf3 over loopback for a second: both ends with the timers, and they agree."""
    # Try again if the machine has delayed it.
    for _ in range(4):
        sent, received = iperf3_ends()
        assert sent["seconds"] > 0.9 and received["bytes"] > 0
        if abs(sent["bits_per_second"] / 50e6 - 1) < 0.3:
            return
    raise AssertionError(sent)


def iperf3_ends() -> tuple[dict, dict]:
    """Returns the results of both ends of iperf3 for a second at 50 Mbit/s."""
    iperf = tool("iperf3")
    port = free_port()
    words = [iperf, "-s", "-1", "-p", str(port), "-B", "127.0.0.1", "--forceflush"]
    with Running(words, env=preloaded()) as server:
        wait_until(lambda: "Server listening" in server.stdout)
        client = (iperf, "-c", "127.0.0.1", "-p", str(port), "-t", "1", "-J", "-b", "50M")
        end = json.loads(run(*client, env=preloaded()))["end"]
    return end["sum_sent"], end["sum_received"]


def wait_until(true: Callable[[], bool], patience: float = 20) -> None:
    """Waits for it, with a time limit."""
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def free_port() -> int:
    """Returns a port of 127.0.0.1 without a listener."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_a_wrong_source_is_told_and_the_program_runs() -> None:
    """A wrong source in the variable: the program runs without it."""
    output = run(sys.executable, "-c", "print(1)", env=preloaded(LORENTZ_TIMERS_SOURCE="sundial"))
    assert output == "1\n"


@pytest.mark.soak
def test_a_minute_of_drift() -> None:
    """The crate's own comparison with the system's clocks, for a minute and more."""
    words = ("cargo", "test", "--release", "--locked", "--package", "lorentz-timers")
    env = {**os.environ, "LORENTZ_TIMERS_TEST_SECONDS": "75", "CARGO_NET_OFFLINE": "true"}
    run(*words, "--test", "clock", "the_clocks_of_the_system", env=env, timeout=300)
