"""The command line under test: its path, its calls, its answers."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

import pytest

from framework import processes
from framework.build import REPO

#: User id of unprivileged runs.
NOBODY = 65534
#: Time limit of a call of the command line, s.
TIMEOUT = 30


class Session:
    """State of one test session: the binary, and a state directory for each user."""

    def __init__(self, binary: Path | None = None) -> None:
        given = os.environ.get("LORENTZ", str(REPO / "target" / "release" / "lorentz"))
        self.binary = (binary or Path(given)).resolve()
        self._nobodys_binary: Path | None = None

    @functools.cached_property
    def folder(self) -> Path:
        """A directory of this session's; NOBODY can enter it."""
        folder = Path(tempfile.mkdtemp(prefix="lorentz-tests-"))
        folder.chmod(0o755)
        return folder

    def close(self) -> None:
        if "folder" in vars(self):
            shutil.rmtree(self.folder, ignore_errors=True)

    def state_dir(self, unprivileged: bool = False) -> Path:
        folder = self.folder / ("state-nobody" if unprivileged else "state")
        if not folder.exists():
            folder.mkdir(mode=0o700)
            if unprivileged and os.geteuid() == 0:
                os.chown(folder, NOBODY, NOBODY)
        return folder

    def command(self, unprivileged: bool = False) -> list[str]:
        """Returns the beginning of a command line."""
        if not self.binary.exists():
            pytest.fail(f"no such binary: {self.binary} (env LORENTZ names another)")
        if not unprivileged or os.geteuid() != 0:
            return [str(self.binary)]
        return [*as_nobody(), str(self.reachable())]

    def reachable(self) -> Path:
        """A copy of the binary that NOBODY can execute: a checkout may lie in a private
        directory."""
        if self._nobodys_binary is None:
            probe = [*as_nobody(), "test", "-x", str(self.binary)]
            if subprocess.run(probe, timeout=TIMEOUT, check=False).returncode == 0:
                self._nobodys_binary = self.binary
            else:
                copy = self.folder / "lorentz"
                shutil.copy2(self.binary, copy)
                copy.chmod(0o755)
                self._nobodys_binary = copy
        return self._nobodys_binary

    def environment(self, unprivileged: bool = False) -> dict[str, str]:
        env = {**os.environ, "LORENTZ_STATE_DIR": str(self.state_dir(unprivileged))}
        if unprivileged:
            env["HOME"] = "/tmp"
        return env


session = Session()


def as_nobody() -> list[str]:
    """Returns the beginning of a command line without rights."""
    if os.geteuid() != 0:
        return []
    return ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--"]


def call(
    *arguments: str,
    unprivileged: bool = False,
    timeout: float = TIMEOUT,
    session: Session = session,
    **options: object,
) -> subprocess.CompletedProcess:
    """Calls the command line to its end, with success or failure. After the time limit, ends it and
    all its processes."""
    tag = processes.new_tag()
    env = {**session.environment(unprivileged), processes.TAG: tag}
    try:
        return subprocess.run(
            [*session.command(unprivileged), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
            **{"env": env, "text": True, **options},
        )
    except subprocess.TimeoutExpired:
        processes.kill_tagged(tag)
        raise AssertionError(f"lorentz {' '.join(arguments)}: no end in {timeout} s") from None


def ok(
    *arguments: str,
    unprivileged: bool = False,
    timeout: float = TIMEOUT,
    session: Session = session,
) -> str:
    """Calls the command line, which must succeed. Returns its output."""
    done = call(*arguments, unprivileged=unprivileged, timeout=timeout, session=session)
    assert done.returncode == 0, f"lorentz {' '.join(arguments)}: {done.returncode}: {done.stderr}"
    return done.stdout


def refusal(done: subprocess.CompletedProcess[str], names: str) -> str:
    """Returns the one line of a refused call, which names the cause; its status is 2."""
    assert done.returncode == 2, f"status {done.returncode}: {done.stdout}{done.stderr}"
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert names in lines[0], f"does not name {names}: {lines[0]}"
    return lines[0]


def json_of(*arguments: str, unprivileged: bool = False, session: Session = session) -> object:
    """Returns the result of `lorentz ARGUMENTS --json`."""
    text = ok(*arguments, "--json", unprivileged=unprivileged, session=session)
    try:
        return json.loads(text)
    except ValueError:
        raise AssertionError(f"lorentz {' '.join(arguments)} --json: no JSON: {text!r}") from None


def ps(unprivileged: bool = False, session: Session = session) -> list[dict]:
    """The containers that `lorentz ps` shows."""
    return json_of("ps", unprivileged=unprivileged, session=session)


def shown(name: str) -> dict | None:
    """Returns the row of `lorentz ps` for one container."""
    return next((entry for entry in ps() if entry["name"] == name), None)


def wait_until_gone(name: str, timeout: float = 5) -> None:
    """Waits until `lorentz ps` does not show a container any more."""
    deadline = time.monotonic() + timeout
    while shown(name):
        assert time.monotonic() < deadline, f"still shown after {timeout} s: {shown(name)}"
        time.sleep(0.05)


def left(folder: Path) -> list[str]:
    """Returns the containers, experiments and networks in a state directory."""
    places = (folder, folder / ".experiments", folder / ".networks")
    found = [path for place in places if place.exists() for path in place.iterdir()]
    return sorted(str(path.relative_to(folder)) for path in found if not path.name.startswith("."))
