"""Commands that are killed at a step: as they begin the n-th system call of a kind."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from framework import lorentz, processes

MAX_STEPS = 100
TIMEOUT = 60
#: Calls by which a command takes a lock, or changes what others see, or starts a process.
CALLS = ["flock", "mkdir", "rename", "renameat2", "clone"]
#: The status of a shell's command that SIGKILL has ended.
KILLED = 128 + signal.SIGKILL


def status_at(
    call: str, count: int, command: list[str], folder: Path, tag: str, children: bool
) -> int:
    """Runs `command` in `folder`, killed at its `count`th system call `call`, and with `children`
    each of the processes that it starts at theirs. Returns its status as a shell has it."""
    assert shutil.which("strace"), "tests/packages.txt names it"
    kill = f"inject={call}:signal=SIGKILL:when={count}"
    strace = ["strace", *(["-f"] if children else []), "-o", "/dev/null"]
    strace += ["-e", f"trace={call}", "-e", kill]
    # Its processes in the background go on under strace, so the end of strace says nothing.
    told = folder / f"status-{call}-{count}"
    os.mkfifo(told)
    script = f'"$@"; echo $? >{told}'
    with (folder / "log").open("w") as log:
        traced = subprocess.Popen(
            ["sh", "-c", script, "sh", *strace, *command]
            if not children
            else [*strace, "sh", "-c", script, "sh", *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**lorentz.session.environment(), processes.TAG: tag},
        )
    try:
        reader = ["timeout", str(TIMEOUT), "cat", str(told)]
        status = subprocess.run(reader, capture_output=True, text=True, check=True).stdout
    finally:
        # The traced processes go on.
        traced.kill()
        traced.wait(timeout=TIMEOUT)
        told.unlink()
    return int(status)


def until_unharmed(attempt: Callable[[int], int]) -> Iterator[int]:
    """Has `attempt` killed at its first step, its second, and so on until it ends well; yields the
    status of each. At least one is killed."""
    for count in range(1, MAX_STEPS):
        status = attempt(count)
        yield status
        if status == 0:
            assert count > 1, "no such call was met"
            return
    raise AssertionError(f"still killed at step {MAX_STEPS}")
