"""A shell that runs example commands, one after the other, with Lorentz and a directory of its own.

`scripts/docs-examples` and `scripts/picture` use it. All commands of a session run in one bash, so
background jobs and variables last from one command to the next.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
#: The built commands and libraries.
BUILT = Path(os.environ.get("LORENTZ_BUILT", ROOT / "target/release"))
#: Seconds that the program of a container in the background may take until it waits.
START_LIMIT = 10
#: Seconds that each command may take that ends what the examples left behind.
CLEAN_UP_LIMIT = 30


class Result(NamedTuple):
    """Output and exit status of a command."""

    output: str
    status: int


class TooLongError(Exception):
    """A command that did not end in time."""


class ShellSession:
    """A bash in a scratch directory, with a state directory of its own for Lorentz."""

    def __init__(self) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="lorentz-examples-"))
        self.work = self.scratch / "work"
        self.work.mkdir()
        state = self.scratch / "state"
        state.mkdir(mode=0o700)
        self.environment = {
            **os.environ,
            "PATH": f"{BUILT}:{os.environ['PATH']}",
            "LORENTZ_STATE_DIR": str(state),
            "LORENTZ_COMMAND": str(BUILT / "lorentz"),
            "LORENTZ_SOURCE": str(ROOT),
            "LD_LIBRARY_PATH": str(BUILT),
            "PYTHONPATH": str(ROOT / "python"),
            "LC_ALL": "C.UTF-8",
            "TZ": "UTC",
        }
        self._bash = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=self.work,
            env=self.environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )

    def __enter__(self) -> ShellSession:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def run(self, command: str, timeout: float) -> Result:
        """Run `command`; its standard output and standard error together, and its exit status.

        Raises TooLongError after `timeout` seconds. The session is of no use then.
        """
        in_background = command.rstrip().endswith("&") and "lorentz run" in command
        before = len(self._at_rest()) if in_background else 0
        mark = secrets.token_hex(8)
        line = f"eval {shlex.quote(command)} </dev/null; printf '%s %s\\n' {mark} $?\n"
        self._bash.stdin.write(line.encode())
        self._bash.stdin.flush()
        found = self._read_until(mark, command, timeout)
        if in_background:
            self._wait_for_container(before)
        return found

    def _read_until(self, mark: str, command: str, timeout: float) -> Result:
        end = time.monotonic() + timeout
        got = ""
        while True:
            before, is_there, after = got.partition(f"{mark} ")
            if is_there and after.endswith("\n"):
                return Result(before, int(after))
            left = end - time.monotonic()
            if left <= 0 or not select.select([self._bash.stdout], [], [], left)[0]:
                raise TooLongError(f"{command}: no end in {timeout:g} s; so far: {got!r}")
            chunk = os.read(self._bash.stdout.fileno(), 65536)
            if not chunk:
                raise TooLongError(f"{command}: the shell ended; so far: {got!r}")
            got += chunk.decode(errors="replace")

    def _wait_for_container(self, before: int) -> None:
        """Wait until more than `before` containers are at rest, at most START_LIMIT."""
        end = time.monotonic() + START_LIMIT
        while len(self._at_rest()) <= before and time.monotonic() < end:
            time.sleep(0.1)

    def _at_rest(self) -> list[str]:
        """The containers with a wait in progress: their programs have started."""
        return [entry["name"] for entry in self._entries("ps") if entry["waits"]]

    def _lorentz(self, *words: str) -> str:
        """Standard output of `lorentz WORDS`, whatever its exit status."""
        done = subprocess.run(
            [BUILT / "lorentz", *words],
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=CLEAN_UP_LIMIT,
            check=False,
        )
        return done.stdout

    def _list(self, *words: str) -> list[str]:
        """The names in the list that `lorentz WORDS --json` prints."""
        return [entry["name"] for entry in self._entries(*words)]

    def _entries(self, *words: str) -> list[dict]:
        """The list that `lorentz WORDS --json` prints; empty where it prints none."""
        try:
            return json.loads(self._lorentz(*words, "--json"))
        except json.JSONDecodeError:
            return []

    def close(self) -> None:
        """End what the commands left behind, the shell, and the scratch directory."""
        for network in self._list("inspect"):
            self._lorentz("down", network)
        for experiment in self._list("experiment", "status"):
            self._lorentz("experiment", "rm", experiment)
        if containers := self._list("ps"):
            self._lorentz("rm", "--force", *containers)
        # The shell is not reaped yet, so its number is still its own.
        os.killpg(self._bash.pid, signal.SIGKILL)
        self._bash.wait()
        self._bash.stdin.close()
        self._bash.stdout.close()
        shutil.rmtree(self.scratch, ignore_errors=True)
