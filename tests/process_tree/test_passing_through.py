"""Transparency of `lorentz run`: exit status, signals, streams, terminal, working directory."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from framework import lorentz, processes
from framework.build import c
from framework.experiments import until
from framework.running import Inside

#: In a script of `outer_shell`: the beginning of a command in virtual time.
LORENTZ_RUN = "$LORENTZ_BINARY run --rate 10 --"


def outer_shell(script: str, cwd: Path | str) -> subprocess.CompletedProcess[str]:
    """A shell around lorentz, to give it descriptors and limits this process has not."""
    return subprocess.run(
        ["/bin/sh", "-c", script],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        cwd=cwd,
        env={
            **lorentz.session.environment(),
            "LORENTZ_BINARY": lorentz.session.command()[0],
        },
    )


def run(*command: str, **options: object) -> subprocess.CompletedProcess[str]:
    return lorentz.call("run", "--rate", "10", "--", *command, **options)


@pytest.mark.parametrize("status", [0, 1, 2, 7, 125, 126, 127, 128, 255])
def test_the_exit_status_is_the_commands(status):
    assert run("/bin/sh", "-c", f"exit {status}").returncode == status


@pytest.mark.parametrize("number", [1, 2, 3, 6, 9, 11, 13, 15, 31])
def test_the_status_of_a_killed_command_is_128_and_the_signal(number):
    """Seen through a shell, which itself exits normally in the end."""
    done = run("/bin/sh", "-c", f"ulimit -c 0; kill -{number} $$; sleep 5")
    assert done.returncode in (128 + number, -number)
    assert done.returncode == 128 + number


@pytest.mark.parametrize(
    ("command", "status"),
    [("/no/such/program", 127), ("no-such-program", 127), ("/etc/passwd", 126)],
)
def test_a_command_that_cannot_be_run_is_told_as_a_shell_would(command, status):
    done = run(command)
    assert done.returncode == status
    assert len(done.stderr.strip().splitlines()) == 1
    assert command in done.stderr
    assert done.stdout == ""


def test_an_alarm_from_before_goes_off():
    """A shell or a supervisor may set one before it executes the command."""
    script = "alarm 1; exec @ARGV"
    command = ["perl", "-e", script, *lorentz.session.command(), "run", "--", "sleep", "15"]
    done = subprocess.run(
        command, env=lorentz.session.environment(), stdin=subprocess.DEVNULL, check=False
    )
    assert done.returncode == 128 + signal.SIGALRM


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"])
def test_a_signal_to_the_launcher_reaches_the_program(name):
    """Not bash: it hangs, also natively, if SIGINT comes just as its wait for a child begins."""
    program = f"""
import signal, sys, time
def got(*_):
    print("got", flush=True)
    sys.exit(9)
signal.signal(signal.{name}, got)
print("ready", flush=True)
while True:
    time.sleep(0.1)
"""
    with Inside(sys.executable, "-c", program, rate="1") as inside:
        while "ready" not in inside.stdout:
            time.sleep(0.02)
        inside.signal(getattr(signal, name))
        assert inside.finish() == 9
    assert "got" in inside.stdout


def test_a_signal_that_is_not_handled_ends_the_program():
    with Inside("sleep", "1000", rate="1") as inside:
        deadline = time.monotonic() + 5
        while not lorentz.shown(inside.name):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        time.sleep(0.2)
        inside.signal(signal.SIGTERM)
        assert inside.finish() == 143


def test_standard_streams_pass_through():
    done = subprocess.run(
        [*lorentz.session.command(), "run", "--rate", "10", "--", "/bin/sh", "-c"]
        + ["cat; echo error >&2"],
        input="first\nsecond\n",
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=lorentz.session.environment(),
    )
    assert (done.stdout, done.stderr, done.returncode) == ("first\nsecond\n", "error\n", 0)


def test_descriptors_and_nothing_else_pass_through(tmp_path):
    """Descriptor 7 is inherited; none of lorentz's own is left open in the program."""
    inner = "/bin/sh -c 'echo kept >&7; exec ls /proc/self/fd'"
    native = outer_shell(f"exec {inner} 7>>kept", tmp_path)
    done = outer_shell(f"exec {LORENTZ_RUN} {inner} 7>>kept", tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == native.stdout
    assert (tmp_path / "kept").read_text() == "kept\nkept\n"


@pytest.mark.parametrize("closed", [0, 1, 2])
def test_a_closed_standard_stream_stays_closed(closed):
    probe = f"/proc/self/fd/{closed}"
    target = 2 if closed == 1 else 1
    inner = f"test -e {probe} && echo open >&{target} || echo closed >&{target}"
    close = {0: "<&-", 1: ">&-", 2: "2>&-"}[closed]
    done = outer_shell(f"exec {LORENTZ_RUN} /bin/sh -c '{inner}' {close}", "/")
    assert (done.stdout + done.stderr).strip() == "closed"


def test_the_working_directory_and_umask_pass_through(tmp_path):
    done = outer_shell(f"umask 027; exec {LORENTZ_RUN} /bin/sh -c 'pwd; umask'", tmp_path)
    assert done.stdout.split() == [str(tmp_path), "0027"], done.stderr


def test_ignored_signals_and_limits_pass_through():
    inner = "/bin/sh -c 'ulimit -n; kill -HUP $$; echo on'"
    done = outer_shell(f"trap '' HUP; ulimit -n 64; exec {LORENTZ_RUN} {inner}", "/")
    assert done.stdout.split() == ["64", "on"], done.stderr


def test_signal_dispositions_at_the_start_are_untouched():
    """The masks and dispositions a program finds are those it would find natively."""
    command = ["grep", "-E", "^Sig(Blk|Ign|Cgt)|^ShdPnd", "/proc/self/status"]
    native = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    done = run(*command)
    names = ("SigBlk", "SigIgn")

    def chosen(text: str) -> list[str]:
        return [line for line in text.splitlines() if line.startswith(names)]

    assert chosen(done.stdout) == chosen(native.stdout)


def test_a_terminal_is_a_terminal():
    """On a pty: isatty, its size, and Ctrl-C reach the program."""
    command = [*lorentz.session.command(), "run", "--rate", "10", "--"]
    script = "test -t 0 && test -t 1 && stty size && echo ready && exec sleep 10000"
    pid, master = pty.fork()
    if pid == 0:
        os.environ.update(lorentz.session.environment())
        os.execvp(command[0], [*command, "/bin/sh", "-c", script])
    try:
        text = read_until(master, "ready", 15)
        assert "0 0" in text or "24 80" in text
        os.write(master, b"\x03")
        assert wait_for_exit(pid, 10) == 130
    finally:
        os.close(master)
        if wait_for_exit(pid, 0) is None:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


_ended: dict[int, int] = {}


def wait_for_exit(pid: int, timeout: float) -> int | None:
    """Returns the status of our child `pid` as a shell has it; None if it still runs."""
    deadline = time.monotonic() + timeout
    while pid not in _ended:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            code = os.waitstatus_to_exitcode(status)
            _ended[pid] = code if code >= 0 else 128 - code
        elif time.monotonic() >= deadline:
            return None
        else:
            time.sleep(0.02)
    return _ended[pid]


def read_until(fd: int, word: str, timeout: float) -> str:
    deadline = time.monotonic() + timeout
    text = ""
    while word not in text:
        left = deadline - time.monotonic()
        assert left > 0, f"{word!r} did not come: {text!r}"
        if select.select([fd], [], [], left)[0]:
            text += os.read(fd, 4096).decode(errors="replace")
    return text


def test_job_control_stops_and_continues_the_program():
    """SIGSTOP and SIGCONT to the program itself: it stops, and its sleep goes on afterwards."""
    with Inside(c("process/probe"), str(6 * 10**9), rate="2") as inside:
        inside.wait_until_shown()
        until(lambda: inside.time()["waits"] == 1, "the sleep")
        (pid,) = inside.shown()["pids"]
        os.kill(pid, signal.SIGSTOP)
        until(lambda: processes.state(pid) == "T", "the stop")
        time.sleep(0.3)
        assert processes.state(pid) == "T"
        os.kill(pid, signal.SIGCONT)
        inside.succeed()
        assert inside.line(ev="probe")["slept"] >= 6
