"""Many containers: durations of commands while a thousand other containers run.

Each container is one of `lorentz run`, with a monitor and one sleeping program, in a state
directory of this run's own. A ratio compares the same command beside MANY other containers and
beside one. The latter is measured before the many start and after they have ended. The two cannot
be measured in turns, and other load of the machine only adds time. Therefore the ratio compares the
fastest calls.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from levels import LORENTZ, LORENTZ_LEVEL
from suites import TIMEOUT, Bench, Samples

SOME, MANY = 300, 1_000
#: Number of containers started before the first of them is waited for.
AT_ONCE = 10
CALLS = 21
REMOVALS = 3


class Place:
    """A state directory, and the containers in it. Their programs end when this process does."""

    def __init__(self, bench: Bench) -> None:
        memory = Path("/dev/shm")
        where = memory if memory.is_dir() else None
        self.folder = Path(tempfile.mkdtemp(prefix="lorentz-bench-", dir=where))
        self.env = {**os.environ, "LORENTZ_STATE_DIR": str(self.folder / "state")}
        os.mkfifo(self.folder / "gate")
        self.gate = os.open(self.folder / "gate", os.O_RDWR | os.O_CLOEXEC)
        self.program = [str(bench.programs / "resting"), str(self.folder / "gate")]
        self.monitors: list[subprocess.Popen[bytes]] = []

    def start(self, count: int) -> None:
        """Starts containers until there are `count`."""
        while len(self.monitors) < count:
            first = len(self.monitors)
            names = [self.name(at) for at in range(first, min(first + AT_ONCE, count))]
            for name in names:
                line = [LORENTZ, "run", "--name", name, "--rate", "1", "--", *self.program]
                self.monitors.append(subprocess.Popen(line, env=self.env, stdin=subprocess.DEVNULL))
            records = [self.folder / "state" / name / "container.json" for name in names]
            self.wait_until(lambda records=records: all(map(Path.exists, records)))
        self.wait_until(lambda: self.running() == count)

    def wait_until(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + TIMEOUT
        while not done():
            if time.monotonic() > end:
                raise RuntimeError(f"of {len(self.monitors)} containers, {self.running()} run")
            time.sleep(0.005)

    def running(self) -> int:
        """Returns the number of containers with a program in virtual time."""
        done = subprocess.run(
            [LORENTZ, "ps", "--json"],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            timeout=TIMEOUT,
            check=True,
        )
        return sum(1 for one in json.loads(done.stdout) if one["pids"])

    def name(self, at: int) -> str:
        return f"many-{at:04}"

    def call(self, *words: str) -> float:
        """Returns the duration of `lorentz WORDS`, ns. The command must succeed."""
        start = time.monotonic_ns()
        done = subprocess.run(
            [LORENTZ, *words],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=TIMEOUT,
            check=False,
        )
        took = time.monotonic_ns() - start
        if done.returncode:
            raise RuntimeError(f"lorentz {words[0]}: {done.stderr.decode().strip()}")
        return took

    def several(self, bench: Bench, *words: str) -> list[float]:
        return [self.call(*words) for _ in range(bench.rounds(CALLS))]

    def remove_all(self) -> float:
        """Runs `rm --force` for all containers. Returns its duration."""
        took = self.call("rm", "--force", *(self.name(at) for at in range(len(self.monitors))))
        self.reap()
        return took

    def kill_monitors(self) -> None:
        """Kills the monitors: leaves programs without monitors, and then dead containers."""
        for monitor in self.monitors:
            monitor.kill()
        self.reap()

    def close_gate(self) -> None:
        """Ends all programs."""
        (self.folder / "gate").unlink()
        os.close(self.gate)
        self.gate = -1

    def reap(self) -> None:
        for monitor in self.monitors:
            monitor.wait(TIMEOUT)
        self.monitors.clear()

    def close(self) -> None:
        if self.gate >= 0:
            self.close_gate()
        for monitor in self.monitors:
            monitor.kill()
        self.reap()
        left = [path.parent.name for path in self.folder.glob("state/*/container.json")]
        if left:
            self.call("rm", "--force", *left)
        shutil.rmtree(self.folder)


@contextmanager
def place(bench: Bench) -> Iterator[Place]:
    made = Place(bench)
    try:
        yield made
    finally:
        made.close()


def one_container(bench: Bench, where: Place) -> dict[str, list[float]]:
    """Measures commands for one container."""
    name = where.name(0)
    return {
        "time": where.several(bench, "time", name),
        "dilate": where.several(bench, "dilate", name, "--rate", "2"),
        "time_json": where.several(bench, "time", "--json", name),
    }


def many(bench: Bench) -> Samples:
    """Measures `ps`, `rm --force`, and commands for one container, beside SOME and MANY others."""
    samples: dict[str, list[float]] = {}
    with place(bench) as where:
        where.start(2)
        alone = one_container(bench, where)
        where.start(SOME)
        samples[f"ps_{SOME}"] = where.several(bench, "ps")
        where.start(MANY)
        samples[f"ps_{MANY}"] = where.several(bench, "ps")
        samples[f"ps_json_{MANY}"] = where.several(bench, "ps", "--json")
        beside = one_container(bench, where)
        removals = [where.remove_all()]
        where.start(2)
        after = one_container(bench, where)
        while len(removals) < bench.rounds(REMOVALS):
            where.start(MANY)
            removals.append(where.remove_all())
        samples[f"rm_{MANY}"] = removals
        where.start(MANY)
        where.kill_monitors()
        where.close_gate()
        time.sleep(1)  # the programs come to their ends
        samples[f"ps_dead_{MANY}"] = where.several(bench, "ps", "--json")
    for case, values in beside.items():
        samples[case] = values
        samples[f"{case}_ratio"] = [min(values) / min(alone[case] + after[case])]
    return {LORENTZ_LEVEL: samples}
