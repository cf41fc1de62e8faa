"""Each part is killed at many moments: the container runs on, or is whole on disk, and nothing
stands still."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from framework import checkpoints, lorentz, needs, processes, steps
from framework.checkpoints import Restored, save
from framework.running import Inside

COUNTS = 'n=0; while :; do n=$((n + 1)); echo "{\\"ev\\":\\"n\\",\\"n\\":$n}"; sleep 0.01; done'
#: Moments after the start of the command, s. A checkpoint of this program takes 0.06 s, a restore
#: 0.12 s.
MOMENTS = [0.001 * step for step in range(0, 160, 8)]


@pytest.fixture(autouse=True)
def _criu():
    checkpoints.criu()


def shell() -> Inside:
    return Inside("/bin/sh", "-c", COUNTS)


def start(*arguments: str, criu: Path | None = None) -> subprocess.Popen:
    """Starts the command line, with another CRIU if one is given."""
    other = {} if criu is None else {"LORENTZ_CRIU": str(criu)}
    return subprocess.Popen(
        [*lorentz.session.command(), *arguments],
        env={**lorentz.session.environment(), **other},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


@pytest.fixture
def waiting_criu(tmp_path) -> Path:
    """A CRIU that stands still before it does anything: whoever kills it then comes in time."""
    real = os.environ.get("LORENTZ_CRIU") or needs.tool("criu")
    script = tmp_path / "waiting-criu"
    script.write_text(f'#!/bin/sh\n[ "$1" != swrk ] || kill -STOP $$\nexec "{real}" "$@"\n')
    script.chmod(0o755)
    return script


def children(pid: int) -> list[int]:
    found = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def descendants(pid: int) -> list[int]:
    return [one for child in children(pid) for one in (child, *descendants(child))]


def is_criu(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return b"swrk" in Path(f"/proc/{pid}/cmdline").read_bytes()
    return False


def goes_on(run: Inside | Restored) -> bool:
    """Whether its program goes on within some seconds, and can start others."""
    seen = len(run.lines(ev="n"))
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        row = lorentz.shown(run.name)
        if row is None:
            return False
        # Lines from before a checkpoint may come late.
        if row["state"] == "running" and len(run.lines(ev="n")) > seen + 5:
            return True
        time.sleep(0.02)
    raise AssertionError(f"{run.name} stands still: {lorentz.shown(run.name)}")


def is_whole(directory: Path) -> bool:
    return lorentz.call("restore", "--check", str(directory)).returncode == 0


def left_beside(directory: Path) -> list[str]:
    return [path.name for path in directory.parent.glob(f".{directory.name}*")]


def judge(inside: Inside, directory: Path) -> bool:
    """Whether the container runs on; if not, it is whole on disk."""
    runs = goes_on(inside)
    deadline = time.monotonic() + 5
    while left_beside(directory) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left_beside(directory) == []
    if runs:
        assert not directory.exists()
        return True
    assert is_whole(directory)
    return False


def test_a_checkpoint_that_is_killed(tmp_path):
    outcomes = set()
    for turn, moment in enumerate(MOMENTS):
        directory = tmp_path / str(turn)
        with shell() as inside:
            inside.wait_for(3, ev="n")
            command = start("checkpoint", inside.name, "-o", str(directory))
            time.sleep(moment)
            command.kill()
            command.communicate()
            outcomes.add(judge(inside, directory))
    assert True in outcomes


@pytest.mark.parametrize(
    "call",
    ["clone", "kill", "mkdir", "rename", "unlink", "utimensat", "wait4", "write"],
)
def test_a_checkpoint_that_is_killed_at_a_step(call, tmp_path):
    """By the calls that change something, or wait for CRIU."""
    tag = processes.new_tag()
    with contextlib.ExitStack() as each:

        def attempt(count: int) -> int:
            run = each.enter_context(shell())
            run.wait_for(3, ev="n")
            runs.append(run)
            words = ["checkpoint", run.name, "-o", str(tmp_path / str(count))]
            command = [*lorentz.session.command(), *words]
            return steps.status_at(call, count, command, tmp_path, tag, children=False)

        runs: list[Inside] = []
        for status in steps.until_unharmed(attempt):
            assert status in (0, steps.KILLED), (tmp_path / "log").read_text()
            runs_on = judge(runs[-1], tmp_path / str(len(runs)))
            assert status == steps.KILLED or not runs_on
            each.close()


def test_a_criu_that_is_killed_in_a_checkpoint(tmp_path, waiting_criu):
    killed = 0
    for turn in range(12):
        directory = tmp_path / str(turn)
        with shell() as inside:
            inside.wait_for(3, ev="n")
            criu = None if turn else waiting_criu
            command = start("checkpoint", inside.name, "-o", str(directory), criu=criu)
            while command.poll() is None:
                found = [pid for pid in children(command.pid) if is_criu(pid)]
                if found:
                    time.sleep(0.003 * turn)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(found[0], signal.SIGKILL)
                    break
            _, error = command.communicate(timeout=20)
            runs = judge(inside, directory)
            assert runs == (command.returncode != 0)
            if runs:
                killed += 1
                assert error.decode().startswith("lorentz: CRIU: ") and error.count(b"\n") == 1
    assert killed


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> Path:
    checkpoints.criu()
    with shell() as inside:
        inside.wait_for(3, ev="n")
        directory = save(inside, tmp_path_factory.mktemp("kills") / "saved")
        inside.finish()
    return directory


def wait_until_settled(name: str) -> dict | None:
    """The container's row once it neither begins nor ends."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        row = lorentz.shown(name)
        if row is None or (row["state"] == "running" and row["pids"]):
            return row
        time.sleep(0.05)
    raise AssertionError(f"{name} stands still: {row}")


def test_a_restore_that_is_killed(saved):
    for turn, moment in enumerate(MOMENTS):
        name = f"k{os.getpid()}-{turn}"
        command = start("restore", str(saved), "--name", name)
        time.sleep(moment)
        command.kill()
        command.wait()
        time.sleep(0.3)
        row = wait_until_settled(name)
        if row:
            assert row["monitor_alive"]
            assert lorentz.ok("exec", name, "echo", "works") == "works\n"
            lorentz.ok("rm", "--force", name)
            lorentz.wait_until_gone(name)
        assert is_whole(saved)


@pytest.mark.parametrize("call", ["clone", "openat", "recvfrom"])
def test_a_restore_that_is_killed_at_a_step(saved, call, tmp_path):
    """The command alone, as it starts what restores, and waits for it."""
    tag = processes.new_tag()
    name = f"k{os.getpid()}-{call}"
    words = [*lorentz.session.command(), "restore", str(saved), "--name", name]
    try:
        for status in steps.until_unharmed(
            lambda count: steps.status_at(call, count, words, tmp_path, tag, children=False)
        ):
            assert status in (0, steps.KILLED), (tmp_path / "log").read_text()
            if wait_until_settled(name):
                assert lorentz.ok("exec", name, "echo", "works") == "works\n"
                lorentz.ok("rm", "--force", name)
                lorentz.wait_until_gone(name)
            assert is_whole(saved)
    finally:
        processes.kill_tagged(tag)


@pytest.mark.parametrize("which", ["monitor", "criu"])
def test_a_part_of_a_restore_that_is_killed(saved, which, waiting_criu):
    failed = 0
    for turn in range(10):
        name = f"k{os.getpid()}-{which}-{turn}"
        criu = None if turn else waiting_criu
        command = start("restore", str(saved), "--name", name, criu=criu)
        end = time.monotonic() + 10
        found = []
        while not found and time.monotonic() < end and command.poll() is None:
            # Where a process id is taken, the first process of a namespace stands between them.
            working = [pid for pid in descendants(command.pid) if is_criu(pid)]
            found = children(command.pid) if which == "monitor" and working else working
        time.sleep(0.006 * turn)
        for pid in found[:1]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        # A restored program keeps the pipe open.
        if command.wait(timeout=20) != 0:
            failed += 1
            assert command.stderr.read().count(b"\n") == 1
            assert lorentz.shown(name) is None
        else:
            lorentz.call("rm", "--force", name)
            lorentz.wait_until_gone(name)
        assert is_whole(saved)
    assert failed
