"""An experiment for measurement: its containers, its socket, and the output of its programs.

Everything lies in a directory of its own, containers and all. The programs
(`benches/c/factorials.c`, `benches/c/resting.c`) end when this process closes their gate, so none
runs on if it dies.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from levels import LORENTZ
from suites import TIMEOUT, Bench

#: Number of containers from which on two are started at a time.
MANY = 500
NAME = "bench"


class Refused(RuntimeError):
    """The experiment refused a request."""


@dataclass
class Seen:
    """Times that computing programs have read at the ends of rounds."""

    stood_at: list[int] = field(default_factory=list)
    """CLOCK_MONOTONIC wherever it stood, ns."""
    ran_on: list[float] = field(default_factory=list)
    """Time for which they ran on after that until they were stopped, real ns."""


class Experiment:
    """One experiment. Times are in nanoseconds."""

    def __init__(self, bench: Bench, *options: str, most: int = 1024) -> None:
        self.bench = bench
        # In a tmpfs, as /run is on most systems.
        memory = Path("/dev/shm")
        where = memory if memory.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="lorentz-bench-", dir=where))
        self.state = self.folder / "state"
        self.env = {**os.environ, "LORENTZ_STATE_DIR": str(self.state)}
        os.mkfifo(self.folder / "gate")
        self.gate = os.open(self.folder / "gate", os.O_RDWR | os.O_CLOEXEC)
        #: Time limit of any operation, s.
        self.patience = TIMEOUT + most / 20
        self.made = 0
        self.names: list[str] = []
        self.line = socket.socket(socket.AF_UNIX)
        self.line.settimeout(self.patience)
        try:
            self.call("create", NAME, "--most", str(most), *options)
            self.line.connect(str(self.state / ".experiments" / NAME / "socket"))
            self.answers = self.line.makefile("rb")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(self, verb: str, *words: str) -> str:
        """`lorentz experiment VERB WORDS`."""
        command = [LORENTZ, "experiment", verb, *words]
        done = subprocess.run(
            command,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=self.patience,
        )
        if done.returncode:
            raise Refused(f"lorentz experiment {verb}: {done.stderr.strip()}")
        return done.stdout

    def ask(self, request: dict[str, Any]) -> Any:
        """Sends a request to the socket, as a simulator does. Returns the answer."""
        self.line.sendall(json.dumps(request).encode() + b"\n")
        answer = json.loads(self.answers.readline())
        if isinstance(answer, dict) and "refused" in answer:
            raise Refused(f"{request['do']}: {answer['refused']['why']}")
        return answer

    def status(self) -> dict[str, Any]:
        """As `lorentz experiment status --json`."""
        return self.ask({"do": "status"})["status"]

    def populate(
        self,
        count: int,
        tdf: str = "1",
        program: str = "factorials",
        *,
        timeline: int | None = None,
        writes: bool = True,
    ) -> None:
        """Starts `count` containers. `writes`: keep the output of their programs."""
        words = [NAME, "--tdf", tdf]
        if timeline is not None:
            words += ["--timeline", str(timeline)]
        if writes:
            words += ["--output", str(self.folder / "out")]
        command = [str(self.bench.programs / program), str(self.folder / "gate")]
        shares = [count] if count < MANY else [count // 2, count - count // 2]

        def start(number: int) -> list[str]:
            prefix, share = f"{program}-{self.made + number}", shares[number]
            those = ["--prefix", prefix, "--count", str(share)]
            self.call("populate", *words, *those, "--", *command)
            return [f"{prefix}-{one}" for one in range(1, share + 1)]

        with ThreadPoolExecutor(len(shares)) as pool:
            for names in pool.map(start, range(len(shares))):
                self.names += names
        self.made += len(shares)

    def synchronize(self) -> int:
        """Synchronizes. Returns the common virtual time."""
        self.ask({"do": "synchronize"})
        os.write(self.gate, b"!")
        return self.status()["containers"][0]["virtual_ns"]

    def run_for(self, rounds: int, seconds: float) -> dict[str, Any]:
        """Runs for a number of rounds or a time, then pauses. Returns the status."""
        self.ask({"do": "start"})
        end = time.monotonic() + seconds
        while True:
            time.sleep(seconds / 10)  # to ask is work for it
            now = self.status()
            if now["rounds"] >= rounds or (time.monotonic() >= end and now["rounds"] > 0):
                break
        self.ask({"do": "pause"})
        return self.status()

    def seen(self) -> Seen:
        """Reads the output of the computing programs."""
        seen = Seen()
        for file in sorted((self.folder / "out").glob("factorials-*.out")):
            for line in file.read_text().splitlines():
                at, ticks = line.split()
                seen.stood_at.append(int(at))
                seen.ran_on.append(self.bench.nanoseconds(float(ticks)))
        return seen

    def close(self) -> None:
        """Ends the programs and the experiment, and removes everything."""
        (self.folder / "gate").unlink()
        os.close(self.gate)
        self.line.close()
        subprocess.run(
            [LORENTZ, "experiment", "rm", NAME],
            env=self.env,
            capture_output=True,
            timeout=self.patience,
        )
        end = time.monotonic() + self.patience
        while self.left() and time.monotonic() < end:
            time.sleep(0.02)
        if self.left():
            raise RuntimeError(f"containers did not end: see LORENTZ_STATE_DIR={self.state}")
        shutil.rmtree(self.folder, ignore_errors=True)

    def left(self) -> bool:
        """Whether there are containers that have not ended."""
        return self.state.exists() and any(self.state.iterdir())
