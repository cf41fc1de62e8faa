"""Finds the processes that a test started, by a mark in their environment, and ends them.

Nothing else ever gets a signal: a pidfd keeps each process from its recognition on.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

#: Marks every process a test started, through its environment.
TAG = "LORENTZ_TEST_TAG"


def new_tag() -> str:
    """A mark for one run."""
    return uuid.uuid4().hex


def tagged(tag: str) -> list[int]:
    """The processes that have the tag in their environment."""
    return [
        int(folder.name)
        for folder in Path("/proc").iterdir()
        if folder.name.isdigit() and _has_tag(int(folder.name), tag)
    ]


def state(pid: int) -> str:
    """The letter of /proc/PID/stat (R, S, T, Z ...), "" where there is no such process."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[0]
    return ""


def has_ended(pid: int) -> bool:
    """Whether all threads of a process have ended. A killed one's first thread may end before the
    others, which keep its files open."""
    with contextlib.suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
        return fields[0] in "ZXx" and int(fields[17]) <= 1
    return True


def has_shim(pid: int) -> bool:
    """Whether a process has the shim in its memory: it has made its exec, and is on the clock."""
    for thread in Path(f"/proc/{pid}/task").glob("*"):
        # The first thread has no memory once it has ended, and others may run.
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if "/memfd:lorentz " in (thread / "maps").read_text():
                return True
    return False


def control_groups(begin: str = "") -> list[Path]:
    """The control groups whose names begin so, of all hierarchies. Those of others may vanish
    meanwhile, which ends a glob of pathlib's."""
    walk = os.walk("/sys/fs/cgroup")
    names = ((folder, name) for folder, below, _ in walk for name in below)
    return [Path(folder, name) for folder, name in names if name.startswith(begin)]


def times_slept(pid: int) -> int:
    """How often the first thread of a process has begun to sleep."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def cpu_ticks(pid: int) -> int:
    """CPU time that a process has used, in clock ticks of 10 ms."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return int(fields[11]) + int(fields[12])


def end(started: Iterable[subprocess.Popen], timeout: float) -> None:
    """Ends processes that the test has started itself, and closes what they wrote to."""
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        process.wait(timeout)
        if process.stdout:
            process.stdout.close()


def kill_tagged(tag: str, timeout: float = 5) -> None:
    """Ends every process that has the tag, and those it started that dropped it."""
    deadline = time.monotonic() + timeout
    victims: dict[int, int] = {}  # a pidfd each: a number that is used again is somebody else
    try:
        while time.monotonic() < deadline:
            for pid in tagged(tag):
                _hold(victims, pid, lambda pid: _has_tag(pid, tag))
            for parent in list(victims):
                for child in _children(parent):
                    _hold(victims, child, lambda child, p=parent: child in _children(p))
            alive = [pidfd for pidfd in victims.values() if not _has_ended(pidfd)]
            if not alive:
                return
            for pidfd in alive:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            time.sleep(0.02)
    finally:
        for pidfd in victims.values():
            os.close(pidfd)


def _has_tag(pid: int, tag: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{TAG}={tag}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    return False


def _hold(victims: dict[int, int], pid: int, still: Callable[[int], bool]) -> None:
    """Opens a pidfd of `pid`, if it is `still` the intended process."""
    if pid in victims:
        return
    with contextlib.suppress(OSError):
        pidfd = os.pidfd_open(pid)
        if still(pid):
            victims[pid] = pidfd
        else:
            os.close(pidfd)


def _has_ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


def _children(pid: int) -> set[int]:
    found: set[int] = set()
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found |= {int(child) for child in (task / "children").read_text().split()}
    return found
