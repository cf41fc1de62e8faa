"""A program that runs, the lines it prints, and the verbs that change its time.

    with Inside(program, "1000000000", "poll", rate="10") as inside:
        start = inside.line(ev="ready")
        inside.leap("100s")
        end = inside.line(ev="done")
        assert end.at - start.at < 1

Every line gets the host's time at its arrival. At the end of the block every process started in it
has ended, in every case.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from framework import lorentz, processes

#: Time limit for an expected line, s, if a test gives none.
LINE_TIMEOUT = 20.0
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Line:
    """A line of output: the host's time of its arrival, and what it says."""

    at: float
    text: str
    data: dict

    def __getitem__(self, key: str) -> object:
        return self.data[key]

    def says(self, want: dict) -> bool:
        return all(self.data.get(key) == value for key, value in want.items())


class Running:
    """A process with everything it starts."""

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: dict[str, str] | None = None,
        cwd: Path | str | None = None,
        stdin: bool = False,
        label: str = "",
    ) -> None:
        self.command = [str(part) for part in command]
        self.label = label or Path(self.command[0]).name
        self._tag = processes.new_tag()
        self._env = {**(os.environ if env is None else env), processes.TAG: self._tag}
        self._cwd = cwd
        self._stdin = subprocess.PIPE if stdin else subprocess.DEVNULL
        self._lines: list[Line] = []
        self._ended = False
        self._arrived = threading.Condition()
        self._errors: list[str] = []
        self.process: subprocess.Popen[bytes] | None = None
        self.ended_at = 0.0

    def __enter__(self):
        self.started_at = time.monotonic()
        self.process = subprocess.Popen(
            self.command,
            stdin=self._stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._env,
            cwd=self._cwd,
            start_new_session=True,
            restore_signals=True,
        )
        self._readers = [
            threading.Thread(target=target, daemon=True)
            for target in (self._read_lines, self._read_errors)
        ]
        for reader in self._readers:
            reader.start()
        return self

    def __exit__(self, failure: type[BaseException] | None = None, *_: object) -> None:
        if failure is not None and self.process.poll() is not None:
            print(f"{self.label}: had ended, status {self.process.poll()}\n{self.stderr[-2000:]}")
        self.end()

    def end(self) -> None:
        """Ends every process of this run that is left."""
        processes.kill_tagged(self._tag)
        # In the midst of an exec it has no environment, and so no tag.
        self.process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=5)
        if self.process.stdin:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self._join_readers()
        streams = (self.process.stdout, self.process.stderr)
        for reader, stream in zip(self._readers, streams, strict=True):
            if not reader.is_alive():
                stream.close()

    def _join_readers(self) -> None:
        """Waits until all output is read, unless a process keeps the pipe open."""
        for reader in self._readers:
            reader.join(timeout=3)

    # ---------------------------------------------------------------------------- what it says

    def _read_lines(self) -> None:
        for raw in self.process.stdout:
            at = time.monotonic()
            text = raw.decode(errors="replace").rstrip("\n")
            try:
                data = json.loads(text)
            except ValueError:
                data = None
            with self._arrived:
                self._lines.append(Line(at, text, data if isinstance(data, dict) else {}))
                self._arrived.notify_all()
        with self._arrived:
            self._ended = True
            self._arrived.notify_all()

    def _read_errors(self) -> None:
        for raw in self.process.stderr:
            self._errors.append(raw.decode(errors="replace"))

    @property
    def stdout(self) -> str:
        """The standard output so far."""
        with self._arrived:
            return "".join(line.text + "\n" for line in self._lines)

    @property
    def stderr(self) -> str:
        """The standard error so far."""
        return "".join(self._errors)

    def lines(self, **want: object) -> list[Line]:
        """Returns the lines so far with the given values: lines(ev="done", case="poll")."""
        with self._arrived:
            return [line for line in self._lines if line.says(want)]

    def line(self, timeout: float = LINE_TIMEOUT, **want: object) -> Line:
        """Returns the first line with the given values; waits until it comes."""
        return self.wait_for(1, timeout, **want)[0]

    def wait_for(self, count: int, timeout: float = LINE_TIMEOUT, **want: object) -> list[Line]:
        """Returns the lines with the given values, once there are `count`."""
        deadline = time.monotonic() + timeout
        with self._arrived:
            while True:
                found = [line for line in self._lines if line.says(want)]
                left = deadline - time.monotonic()
                if len(found) >= count:
                    return found
                if left <= 0 or self._ended:
                    break
                self._arrived.wait(left)
            tail = "\n".join(line.text for line in self._lines[-12:])
        why = "it ended" if self._ended else f"not within {timeout} s"
        raise AssertionError(
            f"{self.label}: {count} x {want} did not come ({len(found)} did): {why}\n"
            f"status {self.process.poll()}\nstdout:\n{tail}\nstderr:\n{self.stderr[-2000:]}"
        )

    def finish(self, timeout: float = LINE_TIMEOUT) -> int:
        """Waits for its end. Returns its exit status as a shell has it."""
        try:
            status = self.process.wait(timeout=timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(
                f"{self.label}: still running after {timeout} s\n{self.stdout[-2000:]}\n"
                f"stderr:\n{self.stderr[-2000:]}"
            ) from None
        self.ended_at = time.monotonic()
        self._join_readers()
        return status if status >= 0 else 128 - status

    def succeed(self, timeout: float = LINE_TIMEOUT) -> Running:
        """Waits for its end, which must be a success."""
        status = self.finish(timeout)
        assert status == 0, f"{self.label}: status {status}\n{self.stdout[-2000:]}{self.stderr}"
        return self

    # ---------------------------------------------------------------------------- what it gets

    def close_stdin(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    @property
    def pid(self) -> int:
        """The process that was started: inside, that is the launcher."""
        return self.process.pid

    def processes(self) -> list[int]:
        """Every process of this run that is alive, as far as its environment tells."""
        return processes.tagged(self._tag)


class Native(Running):
    """A program in real time: the kernel as oracle."""


class Inside(Running):
    """A program in virtual time: `lorentz run OPTIONS -- COMMAND`."""

    def __init__(
        self,
        *command: str | Path,
        rate: str | None = None,
        at: str | None = None,
        name: str | None = None,
        options: Sequence[str] = (),
        unprivileged: bool = False,
        env: dict[str, str] | None = None,
        cwd: Path | str | None = None,
        stdin: bool = False,
        session: lorentz.Session = lorentz.session,
    ) -> None:
        self.session = session
        self.name = name or f"t{os.getpid()}-{next(_numbers)}"
        self.unprivileged = unprivileged
        flags = ["--name", self.name, *options]
        if rate is not None:
            flags += ["--rate", rate]
        if at is not None:
            flags += ["--at", at]
        super().__init__(
            [*session.command(unprivileged), "run", *flags, "--", *map(str, command)],
            env={**session.environment(unprivileged), **(env or {})},
            cwd=cwd,
            stdin=stdin,
            label=f"inside {Path(str(command[0])).name}",
        )

    def end(self) -> None:
        if self.process.poll() is None:  # a frozen task of cgroup v1 dies only when thawed
            self.verb("unfreeze", check=False)
        super().end()
        if self.session.state_dir(self.unprivileged).exists():
            self.verb("rm", check=False)

    def wait_until_shown(self) -> None:
        """Waits until `lorentz ps` shows the container: from then on commands find it."""
        deadline = time.monotonic() + 10
        while not self._shown():
            assert time.monotonic() < deadline, f"{self.name} is not shown: {self.stderr}"
            time.sleep(0.02)

    def _shown(self) -> bool:
        listed = lorentz.ps(self.unprivileged, self.session)
        return any(entry["name"] == self.name for entry in listed)

    def verb(self, word: str, *arguments: str, check: bool = True) -> str:
        """Calls `lorentz WORD NAME ARGUMENTS`."""
        how = {"unprivileged": self.unprivileged, "session": self.session}
        if check:
            return lorentz.ok(word, self.name, *arguments, **how)
        return lorentz.call(word, self.name, *arguments, **how).stdout

    def dilate(self, rate: str) -> None:
        self.verb("dilate", "--rate", rate)

    def freeze(self) -> None:
        self.verb("freeze")

    def unfreeze(self) -> None:
        self.verb("unfreeze")

    def leap(self, by: str) -> None:
        self.verb("leap", "--by", by)

    def step(self, by: str) -> None:
        self.verb("step", f"--by={by}")

    def time(self) -> dict:
        """Returns the result of `lorentz time NAME --json`."""
        how = {"unprivileged": self.unprivileged, "session": self.session}
        return lorentz.json_of("time", self.name, **how)

    def shown(self) -> dict:
        """Returns its row of `lorentz ps --json`."""
        every = lorentz.ps(self.unprivileged, self.session)
        found = [entry for entry in every if entry["name"] == self.name]
        assert len(found) == 1, f"{self.name} is not shown: {every}"
        return found[0]

    def programs(self) -> list[int]:
        """The processes on its clock, once there are some: a program is there after its exec."""
        deadline = time.monotonic() + LINE_TIMEOUT
        while not (pids := [pid for pid in self.shown()["pids"] if processes.has_shim(pid)]):
            assert time.monotonic() < deadline, "no program appears"
            time.sleep(0.01)
        return pids

    def monitor(self) -> int:
        """The process id of the container's monitor."""
        monitors = [monitor for monitor in self.shown()["monitors"] if monitor["alive"]]
        assert monitors, "no monitor is alive"
        return monitors[0]["pid"]

    def kill_monitor(self) -> None:
        """Kills the container's monitor, and waits until it has ended."""
        pid = self.monitor()
        os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + 5
        while not processes.has_ended(pid):
            assert time.monotonic() < deadline, "the monitor does not end"
            time.sleep(0.01)
