"""Checkpoints of programs that stand still with a signal that the kernel forces on them on its
way. Such a signal would end CRIU's own calls in the program."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import build, checkpoints
from framework.checkpoints import Restored, save
from framework.running import Inside

#: SIGILL, SIGTRAP, SIGBUS, SIGFPE, SIGSEGV, SIGSYS: the kernel takes these before all others.
FORCED = sum(1 << (number - 1) for number in (4, 5, 7, 8, 11, 31))


@pytest.fixture(autouse=True)
def _criu():
    checkpoints.criu()


def masks(task: Path) -> dict[str, int]:
    """The signal masks of a thread's status, by name."""
    lines = (task / "status").read_text().splitlines()
    found = [line.split() for line in lines if line.startswith(("SigPnd", "SigBlk"))]
    return {name.rstrip(":"): int(mask, 16) for name, mask in found}


def has_one_on_its_way(pid: int) -> bool:
    """Whether a thread of a process has a signal pending that the kernel has forced on it."""
    every = map(masks, Path(f"/proc/{pid}/task").iterdir())
    return any(mask["SigPnd"] & ~mask["SigBlk"] & FORCED for mask in every)


@pytest.mark.parametrize("which", ["fault", "trap", "blocked"])
def test_a_program_with_a_forced_signal_on_its_way(which, tmp_path):
    with Inside(build.c("checkpoint/forced_signals"), which) as inside:
        inside.wait_for(1, ev="many")
        [program] = inside.programs()
        for _ in range(2000):
            inside.freeze()
            if has_one_on_its_way(program):
                break
            inside.unfreeze()
        assert has_one_on_its_way(program), "it is never frozen with one"
        directory = save(inside, tmp_path / "saved", "--leave-running")
        before = inside.lines(ev="many")[-1]["n"]
        inside.unfreeze()
        inside.wait_for(1, ev="many", n=before + 40_000)
    with Restored(directory, f"{inside.name}-again") as restored:
        restored.verb("unfreeze")
        restored.wait_for(2, ev="many")
        assert restored.lines(ev="many")[-1]["n"] >= before
