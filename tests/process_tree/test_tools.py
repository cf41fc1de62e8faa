"""Programs that use the same means as lorentz: seccomp filters, tracers, odd calls."""

from __future__ import annotations

import signal
import subprocess
import time

import pytest
from framework import build, lorentz, oracle
from framework.needs import tool
from framework.oracle import HostNoise
from framework.running import Inside, Native

AT = "2038-01-19"


@pytest.mark.parametrize("what", ["getppid", "waits", "strict"])
def test_a_program_with_a_filter_of_its_own(what):
    """The program can install its filter, the filter works, and sleeping stays right; or lorentz
    refuses the filter. Natively all of them can be installed."""
    nominal = 10.0
    program = [build.c("process/seccomp"), what]
    command = [*program, str(round(nominal * 1e9))]
    with Native([*program, str(10**8)]) as native:
        native.succeed()
    expect = native.line(ev="seccomp").data
    assert expect["installed"]
    with HostNoise() as noise, Inside(*command, rate="10") as inside:
        status = inside.finish()
    event = inside.lines(ev="seccomp")
    if not event:
        assert status != 0 and inside.stderr.strip(), "it died without a word"
        return
    if event[0]["installed"]:
        assert (event[0]["ret"], event[0]["err"]) == (expect["ret"], expect["err"])
        assert (event[0]["getppid"] > 0) == (expect["getppid"] > 0)
        assert nominal <= event[0]["slept"] <= nominal * 1.05 + 10 * noise.slack
        assert inside.ended_at - inside.started_at < nominal, "it slept in real time"


def running_sleep(seconds: float, rate: str) -> Inside:
    command = [build.c("waits/sleep"), str(round(seconds * 1e9)), "nanosleep"]
    return Inside(*command, rate=rate)


def test_strace_from_outside_may_look_and_leave(tmp_path):
    tool("strace")
    with HostNoise() as noise, running_sleep(40, "10") as inside:
        pid = inside.line(ev="ready")["pid"]
        command = ["strace", "-f", "-o", str(tmp_path / "trace"), "-p", str(pid)]
        strace = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            time.sleep(1)
            strace.send_signal(signal.SIGINT)
            strace.wait(timeout=10)
        finally:
            strace.kill()
            strace.wait(timeout=10)
        done = inside.line(ev="done")
        assert done["ret"] == 0
        inside.succeed()
    assert 40 <= done["elapsed"] <= 60 + 10 * noise.slack


def test_gdb_from_outside_may_look_and_leave():
    tool("gdb")
    with running_sleep(60, "10") as inside:
        pid = inside.line(ev="ready")["pid"]
        script = ["-ex", "info threads", "-ex", "bt 3", "-ex", "detach"]
        gdb = subprocess.run(
            ["gdb", "-nx", "-batch", "-p", str(pid), *script],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        assert gdb.returncode == 0, gdb.stderr
        done = inside.line(ev="done")
        assert done["ret"] == 0
        assert done["elapsed"] >= 60
        inside.succeed()


@pytest.mark.parametrize("command", [["strace", "-f", "-o", "OUT"], ["strace", "-o", "OUT"]])
@pytest.mark.parametrize("program", [["date", "+%Y"], ["/bin/sh", "-c", "sleep 1; date +%Y"]])
def test_a_tracer_inside_works_or_is_refused(tmp_path, command, program):
    """Never real time: the year inside, or no year and a word."""
    tool("strace")
    line = [str(tmp_path / "trace") if word == "OUT" else word for word in command]
    done = lorentz.call("run", "--rate", "10", "--at", AT, "--", *line, *program, timeout=30)
    if done.returncode == 0:
        assert done.stdout.strip() == "2038"
    else:
        assert done.stdout.strip() in ("", "2038")
        assert done.stderr.strip() or (tmp_path / "trace").exists()


def test_a_debugger_inside_works_or_is_refused():
    tool("gdb")
    script = ["-ex", "run", "-ex", "quit"]
    line = ["gdb", "-nx", "-batch", *script, "--args", "date", "+year %Y"]
    done = lorentz.call("run", "--rate", "1", "--at", AT, "--", *line, timeout=60)
    years = [line for line in done.stdout.splitlines() if line.startswith("year ")]
    assert years in ([], ["year 2038"])
    assert years or done.stderr.strip()


def test_lorentz_inside_lorentz_works_or_is_refused():
    """Nested: on the inner clock, or a word; never real time, never a hang."""
    binary = str(lorentz.session.binary)
    inner = [binary, "run", "--at", "2050-01-01", "--", "date", "+%Y"]
    done = lorentz.call("run", "--at", AT, "--", *inner, timeout=30)
    if done.returncode == 0:
        assert done.stdout.strip() == "2050"
    else:
        assert done.stdout.strip() == ""
        assert done.stderr.strip()


def test_the_time_by_odd_ways_is_not_the_hosts():
    """int 0x80 in 64-bit code, x32 numbers, the vsyscall page: virtual, refused, or the end of the
    program. Never real time."""
    program = [build.c("process/oddcalls", "static")]
    with Native(program) as native:
        native.succeed()
    with Inside(*program, at="2030-01-01", rate="1") as inside:
        inside.succeed()
    leaks = []
    for line in inside.lines(ev="odd"):
        refused = line["signal"] or line["value"] <= 0
        virtual = 0 <= line["value"] - oracle.epoch("2030-01-01") < 60
        if not (refused or virtual):
            leaks.append(line.data)
    assert len(native.lines(ev="odd")) == len(inside.lines(ev="odd")) == 3
    assert not leaks


@pytest.mark.parametrize("what", ["chroot", "unshare"])
def test_other_roots_and_namespaces_inside(tmp_path, what):
    """A program that moves to another root or pid namespace and execs there stays inside."""
    if what == "chroot":
        command = ["chroot", str(tmp_path), "/probe", "0"]
        (tmp_path / "probe").write_bytes(build.c("process/probe", "static").read_bytes())
        (tmp_path / "probe").chmod(0o755)
    else:
        command = ["unshare", "--pid", "--fork", "--", str(build.c("process/probe")), "0"]
    native = subprocess.run(command, capture_output=True, text=True, timeout=10, check=False)
    if native.returncode != 0:
        pytest.skip(f"not possible here: {native.stderr}")
    with Inside(*command, rate="1", at=AT) as inside:
        status = inside.finish()
    if status == 0:
        real = inside.line(ev="probe")["real"]
        assert 0 <= real - oracle.epoch(AT) < 60
    else:
        assert inside.lines(ev="probe") == []
        assert inside.stderr.strip()
