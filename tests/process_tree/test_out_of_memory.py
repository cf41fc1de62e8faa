"""A program that the kernel kills for want of memory: the command says so."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework import lorentz, needs, real

MIB = 1 << 20
#: Takes and touches 256 MiB.
GREEDY = "print(len(bytearray(b'x' * (256 << 20))))"


@contextlib.contextmanager
def limited(limit: int) -> Iterator[Path]:
    """A control group that may have so many bytes of memory."""
    roots = {
        Path("/sys/fs/cgroup/memory"): "memory.limit_in_bytes",
        Path("/sys/fs/cgroup"): "memory.max",
    }
    for root, file in roots.items():
        group = root / f"lorentz-test-{os.getpid()}"
        if not (root / "cgroup.procs").exists():
            continue
        group.mkdir()
        try:
            if (group / file).exists():
                (group / file).write_text(str(limit))
                yield group
                return
        finally:
            group.rmdir()
    pytest.skip("no control group limits memory here")


def call(group: Path, text: str) -> tuple[int, str]:
    """Runs a Python program inside, in a control group."""
    needs.root()
    done = lorentz.call(
        *("run", "--", real.python(), "-c", text),
        preexec_fn=lambda: (group / "cgroup.procs").write_text(str(os.getpid())),
    )
    return done.returncode, done.stderr


def test_the_line_names_the_limit_and_its_file():
    needs.root()
    with limited(64 * MIB) as group:
        status, words = call(group, GREEDY)
        assert status == 137
        assert len(words.splitlines()) == 1
        assert "ran out of memory" in words
        assert "64 MiB" in words
        assert str(group) in words


def test_a_kill_by_somebody_else_is_not_explained_so():
    needs.root()
    with limited(1024 * MIB) as group:
        status, words = call(group, "import os; os.kill(os.getpid(), 9)")
        assert (status, words) == (137, "")
