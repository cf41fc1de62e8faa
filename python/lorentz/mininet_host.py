"""Stand-ins for what programs for Mininet do on the host while they are read."""

from __future__ import annotations

import io
import multiprocessing.process
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from lorentz import mininet_stand_ins as stand_ins
from lorentz.mininet_nodes import Running, line_of

#: A program that has slept so long after it has made a network waits for that network, s.
SLEEP_LIMIT = 300


@contextmanager
def instead_of_the_host() -> Iterator[list[str]]:
    """Has this thread run no command, start no process and not sleep. Yields the commands."""
    commands: list[str] = []
    here = threading.get_ident()
    real_popen, real_sleep = subprocess.Popen, time.sleep
    real_system, real_os_popen = os.system, os.popen
    real_start = multiprocessing.process.BaseProcess.start

    def is_program() -> bool:
        return threading.get_ident() == here

    def note(words: object) -> None:
        line = words if isinstance(words, str) else line_of((words,))
        # Mininet's own cleaning has nothing to clean.
        if not re.search(r"\bmn\s+(-c|--clean)\b", line):
            commands.append(" ".join(line.split()))

    class Popen(real_popen):
        def __new__(cls, *arguments: object, **options: object) -> object:
            if not is_program():
                return real_popen(*arguments, **options)
            note(arguments[0] if arguments else options.get("args", ""))
            return _Ended(arguments[0] if arguments else "", options)

    def system(command: str) -> int:
        return note(command) or 0 if is_program() else real_system(command)

    def popen(command: str, *rest: object) -> object:
        return note(command) or io.StringIO() if is_program() else real_os_popen(command, *rest)

    def start(process: object) -> None:
        if not is_program():
            real_start(process)

    instead = {
        (subprocess, "Popen"): Popen,
        (os, "system"): system,
        (os, "popen"): popen,
        (multiprocessing.process.BaseProcess, "start"): start,
        (time, "sleep"): _Sleep(is_program, real_sleep),
    }
    before = {place: getattr(*place) for place in instead}
    for place, stand_in in instead.items():
        setattr(*place, stand_in)
    try:
        yield commands
    finally:
        for place, real in before.items():
            setattr(*place, real)


class _Sleep:
    """Stands in for time.sleep: it returns at once."""

    def __init__(self, is_program: object, real: object) -> None:
        self._is_program, self._real, self._slept = is_program, real, 0.0

    def __call__(self, seconds: float) -> None:
        if not self._is_program():
            self._real(seconds)
            return
        net = stand_ins.Mininet.started or stand_ins.Mininet.loose
        self._slept += max(float(seconds), 0.001) if net else 0
        if net and self._slept > SLEEP_LIMIT:
            net.finish()


class _Ended:
    """A process that has ended at once, without output."""

    def __init__(self, words: object, options: dict) -> None:
        self.args, self.pid, self.returncode = words, 0, 0
        is_text = any(options.get(key) for key in ("text", "universal_newlines", "encoding"))
        self._nothing = "" if is_text else b""
        self.stdin = io.StringIO() if is_text else io.BytesIO()
        # Output of the host that shows a running network ends the program.
        net = stand_ins.Mininet.started
        empty = io.StringIO() if is_text else io.BytesIO()
        self.stdout = self.stderr = Running(net) if net else empty

    def communicate(self, *_: object, **__: object) -> tuple:
        return self._nothing, self._nothing

    def wait(self, *_: object, **__: object) -> int:
        return 0

    poll = wait

    def send_signal(self, *_: object) -> None:
        """The process has ended."""

    terminate = kill = send_signal

    def __enter__(self) -> _Ended:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""
