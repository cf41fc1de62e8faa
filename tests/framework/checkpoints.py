"""Containers that are checkpointed and restored."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from framework import lorentz, needs
from framework.build import REPO
from framework.running import Inside, Running

#: CRIU as scripts/criu installs it.
INSTALLED = REPO / "build" / "criu" / "criu"


def use_installed_criu() -> None:
    """Names the CRIU that `scripts/setup test` has installed, where none is named."""
    if "LORENTZ_CRIU" not in os.environ and INSTALLED.exists():
        os.environ["LORENTZ_CRIU"] = str(INSTALLED)


def criu() -> None:
    """Skips unless this machine can make checkpoints."""
    needs.root()
    needs.feature("criu")
    needs.feature("cgroup-freeze")


def internet_sockets() -> None:
    """Skips where CRIU is older than 4.2: it saves no internet sockets on Linux 6.16 and later."""
    program = os.environ.get("LORENTZ_CRIU", "criu")
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=20)
    version = done.stdout.split()[1]
    kernel = [int(part) for part in os.uname().release.split(".")[:2]]
    if version.startswith("4.1") and kernel >= [6, 16]:
        pytest.skip(f"CRIU {version} saves no internet sockets on Linux {os.uname().release}")


class Restored(Running):
    """A container that `lorentz restore` has made. Its program prints to this process."""

    def __init__(self, directory: Path, name: str, *options: str, stdin: bool = False) -> None:
        self.name = name
        self.directory = directory
        super().__init__(
            [*lorentz.session.command(), "restore", str(directory), "--name", name, *options],
            env=lorentz.session.environment(),
            stdin=stdin,
            label=f"restored {name}",
        )

    def __enter__(self) -> Restored:
        super().__enter__()
        assert self.process.wait(timeout=20) == 0, self.stderr
        return self

    def end(self) -> None:
        lorentz.call("rm", "--force", self.name)
        super().end()

    def row(self) -> dict:
        """Its row of `lorentz ps`."""
        return lorentz.shown(self.name)

    def time(self) -> dict:
        return lorentz.json_of("time", self.name)

    def verb(self, word: str, *arguments: str) -> str:
        return lorentz.ok(word, self.name, *arguments)

    def wait_until_ended(self, timeout: float = 20) -> None:
        lorentz.wait_until_gone(self.name, timeout)


def begun(inside: Inside) -> list[int]:
    """Waits until the program of a container has begun. Returns its processes."""
    deadline = time.monotonic() + 10
    while not (row := lorentz.shown(inside.name)) or not row["pids"]:
        assert time.monotonic() < deadline, inside.stderr
        time.sleep(0.02)
    return row["pids"]


def save(inside: Inside, directory: Path, *options: str) -> Path:
    """Checkpoints a container into a new directory."""
    shutil.rmtree(directory, ignore_errors=True)
    lorentz.ok("checkpoint", inside.name, "-o", str(directory), *options)
    return directory
