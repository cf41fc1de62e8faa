"""Resource limits of the caller's shell: a program has the same limits as natively, although
Lorentz itself needs more."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from framework import lorentz
from framework.running import Inside

AT = "2038-01-19"

#: Limits with which the program works natively. Every user may raise soft limits.
LIMITS = [
    "-S -f 0",
    "-S -f 1",
    "-S -n 8",
    "-s 64",
    "-s 32",
    "-n 20",
    "-l 0",
    "-c 0",
    "-d 4096",
    "-v 20000",
    "-m 1000",
    "-t 5",
    "-i 0",
]
#: Hard limits that bound what Lorentz itself needs: only CAP_SYS_RESOURCE raises them.
HARD = {
    "-f 0": "ulimit -f",
    "-f 1": "ulimit -f",
    "-n 8": "ulimit -n",
    "-v 19000": "ulimit -v",
    "-v 19999": "ulimit -v",
}
CAP_SYS_RESOURCE = 1 << 24


def may_raise() -> bool:
    """Whether this test's user may raise hard limits; root in a sandbox may not."""
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("CapEff"))
    return bool(int(line.split()[1], 16) & CAP_SYS_RESOURCE)


USERS = pytest.mark.parametrize("unprivileged", [False, True], ids=["root", "nobody"])


def limited(limit: str, *command: str, unprivileged: bool = False) -> subprocess.CompletedProcess:
    """Runs a command in a shell that has set a limit, soft and hard or as `limit` says."""
    script = f'ulimit {limit} || exit 77; exec "$@"'
    return subprocess.run(
        ["/bin/bash", "-c", script, "limited", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=lorentz.session.environment(unprivileged),
    )


def inside(limit: str, *command: str, unprivileged: bool = False) -> subprocess.CompletedProcess:
    start = [*lorentz.session.command(unprivileged), "run", "--rate", "2", "--at", AT, "--"]
    return limited(limit, *start, *command, unprivileged=unprivileged)


def same_as_natively(limit: str, *command: str, unprivileged: bool = False) -> str:
    start = lorentz.as_nobody() if unprivileged else []
    native = limited(limit, *start, *command, unprivileged=unprivileged)
    assert native.returncode == 0, native.stderr
    done = inside(limit, *command, unprivileged=unprivileged)
    assert (done.returncode, done.stderr) == (native.returncode, native.stderr)
    return done.stdout


@USERS
@pytest.mark.parametrize("limit", LIMITS)
def test_a_program_runs_as_natively_under_a_limit(limit, unprivileged):
    assert same_as_natively(limit, "date", "+%Y", unprivileged=unprivileged).strip() == "2038"


@USERS
@pytest.mark.parametrize("limit", LIMITS)
def test_a_program_has_the_limits_that_it_has_natively(limit, unprivileged):
    """Lorentz raises its limits and restores them."""
    show = ["/bin/bash", "-c", "ulimit -Ha; ulimit -Sa"]
    start = lorentz.as_nobody() if unprivileged else []
    native = limited(limit, *start, *show, unprivileged=unprivileged)
    assert same_as_natively(limit, *show, unprivileged=unprivileged) == native.stdout


@USERS
@pytest.mark.parametrize("limit", HARD)
def test_a_hard_limit_is_raised_or_named(limit, unprivileged):
    """With CAP_SYS_RESOURCE the program runs; without it one line names the limit."""
    if may_raise() and not unprivileged:
        assert same_as_natively(limit, "date", "+%Y").strip() == "2038"
        return
    done = inside(limit, "date", unprivileged=unprivileged)
    assert done.returncode == 125, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert HARD[limit] in done.stderr


def test_address_space_is_named_where_a_program_joins_a_clock():
    if may_raise():
        pytest.skip("this user may raise hard limits")
    with Inside("sleep", "1000") as running:
        running.wait_until_shown()
        start = lorentz.session.command()
        for words in (["exec", running.name], ["run", "--clock", running.name]):
            done = limited("-v 19000", *start, *words, "--", "true")
            assert done.returncode == 125, done
            assert len(done.stderr.splitlines()) == 1 and "ulimit -v" in done.stderr, done.stderr


@USERS
@pytest.mark.parametrize("limit", ["-f 0", "-f 1"])
def test_commands_that_write_no_file_work_under_a_file_size_limit(limit, unprivileged):
    with Inside("sleep", "1000", rate="2", unprivileged=unprivileged) as running:
        running.wait_until_shown()
        start = lorentz.session.command(unprivileged)
        for verb in (["ps"], ["dilate", running.name, "--rate", "3"], ["freeze", running.name]):
            done = limited(limit, *start, *verb, unprivileged=unprivileged)
            assert (done.returncode, done.stderr) == (0, "")
        assert running.time()["rate"] == "3"


def test_the_files_of_proc_that_tell_the_time_need_no_room():
    """They are in memory, where RLIMIT_FSIZE counts as well."""
    script = "ulimit -f 0; begun=$(date +%s); read up rest </proc/uptime; exec 2>&1"
    script += "; cat /proc/stat /proc/uptime; echo now $begun $(date +%s) $up"
    done = lorentz.call("run", "--at", AT, "--rate", "2", "--", "/bin/bash", "-c", script)
    found = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}
    begun, now, up = found["now"]
    # The uptime was read between the two dates; each date lacks a part of a second.
    assert int(begun) - 2 < int(found["btime"][0]) + float(up) < int(now) + 2


def test_a_program_sets_limits_itself():
    """Traps, files of /proc and exec in a program under limits of its own."""
    script = "ulimit -f 0; ulimit -s 64; sleep 0.01; cat /proc/uptime >/dev/null; exec date +%Y"
    done = lorentz.call("run", "--at", AT, "--rate", "2", "--", "/bin/bash", "-c", script)
    assert (done.returncode, done.stdout.strip()) == (0, "2038"), done.stderr


def test_address_space_that_is_too_small_is_named():
    """The program has no room for the clock: it does not run, and the limit is named."""
    script = "ulimit -v 3000; exec /bin/busybox date +%Y"
    native = subprocess.run(["/bin/bash", "-c", script], capture_output=True, check=False)
    assert native.returncode == 0, native.stderr
    done = lorentz.call("run", "--rate", "2", "--", "/bin/bash", "-c", script)
    assert done.returncode == 126, done
    assert "ulimit -v" in done.stderr
