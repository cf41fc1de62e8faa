"""Experiments: makes, runs and queries them by the command line, and removes them.

    with Experiment() as experiment:
        counter = experiment.run(build.c("experiment/count"), tdf="10")
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.5)

Containers started by `run` or `populate` end with the block, in every case; so does the process of
the experiment.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import struct
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from framework import lorentz, processes
from framework.running import Inside

_numbers = itertools.count(1)
SECOND = 1_000_000_000
#: Time limit for something immediate on an idle machine, real seconds.
STATE_TIMEOUT = 20.0


class Experiment:
    """An experiment, from `create` to `rm`."""

    def __init__(
        self,
        *flags: str,
        name: str | None = None,
        session: lorentz.Session = lorentz.session,
    ) -> None:
        self.session = session
        self.name = name or f"x{os.getpid()}-{next(_numbers)}"
        self._flags = flags
        self._tag = processes.new_tag()
        self._inside = contextlib.ExitStack()

    def __enter__(self) -> Experiment:
        # Background processes of the experiment have its mark.
        self.ok("create", *self._flags)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.place.exists():
                self.call("rm")
        finally:
            self._inside.close()
            processes.kill_tagged(self._tag)
            if self.place.exists():
                self.call("rm")
            for left in self.left():
                lorentz.call("rm", left, session=self.session)

    def left(self) -> list[str]:
        """Returns the containers of `populate` that still exist or have left something."""
        folder = self.session.state_dir()
        return [path.name for path in folder.glob(f"{self.name}-*")] if folder.exists() else []

    @property
    def place(self) -> Path:
        """The experiment's directory, as long as it exists."""
        return self.session.state_dir() / ".experiments" / self.name

    # ------------------------------------------------------------------------- the command line

    def call(
        self, word: str, *arguments: str, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Calls `lorentz experiment WORD NAME ARGUMENTS` to its end, with success or failure."""
        env = {**self.session.environment(), processes.TAG: self._tag}
        line = ("experiment", word, self.name, *map(str, arguments))
        return lorentz.call(*line, timeout=timeout, env=env, session=self.session)

    def ok(self, word: str, *arguments: str, timeout: float = 60) -> str:
        """Calls the same, which must succeed. Returns its output."""
        done = self.call(word, *arguments, timeout=timeout)
        assert done.returncode == 0, f"{word} {arguments}: {done.returncode}: {done.stderr}"
        return done.stdout

    def refused(self, word: str, *arguments: str, names: str) -> str:
        """Returns the one line of a refusal with status 2."""
        return lorentz.refusal(self.call(word, *arguments), names)

    def synchronize(self) -> None:
        self.ok("synchronize")

    def start(self) -> None:
        self.ok("start")

    def pause(self) -> None:
        self.ok("pause")

    def dilate(self, container: Inside | str, tdf: str) -> None:
        self.ok("dilate", _name(container), "--tdf", tdf)

    def interval(self, container: Inside | str, nanos: int) -> None:
        self.ok("interval", _name(container), f"{nanos}ns")

    def progress(self, timeline: int = 1) -> None:
        self.ok("progress", str(timeline))

    # ----------------------------------------------------------------------------- its containers

    def run(
        self,
        *command: str | Path,
        tdf: str | None = None,
        timeline: int | None = None,
        parallel: int | None = None,
        compute: str | None = None,
        **options: object,
    ) -> Inside:
        """Starts a container in it, and returns when it is part of it."""
        flags = ["--experiment", self.name]
        if tdf is not None:
            flags += ["--tdf", tdf]
        if timeline is not None:
            flags += ["--timeline", str(timeline)]
        if parallel is not None:
            flags += ["--parallel", str(parallel)]
        if compute is not None:
            flags += ["--compute", compute]
        container = Inside(*command, options=flags, session=self.session, **options)
        inside = self._inside.enter_context(container)
        self.wait_for_members(inside.name)
        return inside

    def populate(self, count: int, *command: str | Path, flags: tuple[str, ...] = ()) -> list[str]:
        """Starts many containers in it; returns their names."""
        line = ("--count", str(count), *flags, "--", *map(str, command))
        self.ok("populate", *line, timeout=120)
        prefix = flags[flags.index("--prefix") + 1] if "--prefix" in flags else self.name
        return [f"{prefix}-{number}" for number in range(1, count + 1)]

    def wait_for_members(self, *names: str) -> None:
        """Returns when containers are part of it."""
        until(lambda: set(names) <= {one["name"] for one in self.status()["containers"]}, names)

    # --------------------------------------------------------------------------------- its status

    def status(self) -> dict:
        """Returns the result of `status --json`."""
        return lorentz.json_of("experiment", "status", self.name, session=self.session)

    def member(self, container: Inside | str, status: dict | None = None) -> dict:
        """Returns the status of one container."""
        name = _name(container)
        every = (status or self.status())["containers"]
        return next(one for one in every if one["name"] == name)

    def clock(self, container: Inside | str) -> int:
        """Returns a container's virtual time, ns."""
        return self.member(container)["virtual_ns"]

    def advance(self, seconds: float, timeout: float = 60) -> dict:
        """Lets the experiment run for at least `seconds` of virtual time. Returns the status after
        that."""
        end = self.status()["virtual_ns"] + seconds * SECOND
        return until(
            lambda: (status := self.status())["virtual_ns"] >= end and status,
            f"{seconds} s of virtual time",
            timeout,
        )

    @property
    def engine(self) -> int:
        """The process of the experiment."""
        return self.status()["pid"]

    def processes(self) -> list[int]:
        """Returns the living background processes of the experiment."""
        return processes.tagged(self._tag)


def schedstat(folder: Path) -> tuple[int, int]:
    """How long a task ran, and how long it was runnable while another ran, in ns."""
    ran, waited, _ = map(int, (folder / "schedstat").read_text().split())
    return ran, waited


def stolen(processor: str) -> int:
    """How long a hypervisor ran other guests on "cpu0" and so on, or on all of them ("cpu"), ns."""
    lines = Path("/proc/stat").read_text().splitlines()
    ticks = next(line.split() for line in lines if line.startswith(f"{processor} "))
    return int(ticks[8]) * SECOND // os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Processor:
    """The kernel's counts for a container's tasks and its processors, summed, ns."""

    #: The tasks ran.
    ran: int
    #: They were runnable, and another task ran.
    waited: int
    #: The hypervisor ran another guest there.
    stolen: int

    @classmethod
    def now(cls, tasks: Sequence[int], cpus: Sequence[int]) -> Processor:
        counts = [schedstat(Path(f"/proc/{task}")) for task in tasks]
        ran, waited = (sum(count) for count in zip(*counts, strict=True))
        return cls(ran, waited, sum(stolen(f"cpu{cpu}") for cpu in cpus))


def numbers(cpus: str) -> list[int]:
    """Returns the processors of a list such as "0,2-3"."""
    ranges = ([int(end) for end in part.split("-")] for part in cpus.split(","))
    return [cpu for ends in ranges for cpu in range(ends[0], ends[-1] + 1)]


#: How many of its slices a container's account may be off by: what it runs ahead for is at most
#: four slices (crates/experiment/src/account.rs), and one slice may be under way.
SLICES = 5


def check_shares(
    experiment: Experiment, tasks: dict[str, Sequence[int]], seconds: float, timeout: float = 60
) -> dict:
    """Each container that computes gets its TDF's share of its processors, for so much virtual
    time.

    tasks: the tasks of each, one for each of its processors, by the containers' names. In V of
    virtual time the tasks of a container with TDF F and N processors are to run for N * F * V, by
    the kernel's count, give or take `SLICES` of its slices. On a busy machine the kernel also
    counts what may come on top:

    - too little by the time for which other tasks or guests had the container's processors;
    - too much by the time for which the experiment's process waited for a processor, or a guest had
      it. That process stops the container at the end of a slice, and takes later from it what it
      had too much.

    The time that the container wanted by its status is what it was due, and both of these.

    Returns the status at the end.
    """

    def engine_waited() -> dict[str, int]:
        """By threads: those that answer commands come and go."""
        waited = {"stolen": stolen("cpu")}
        for thread in Path(f"/proc/{engine}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                waited[thread.name] = schedstat(thread)[1]
        return waited

    def look(status: dict) -> dict[str, Processor]:
        cpus = {name: numbers(experiment.member(name, status)["cpus"]) for name in tasks}
        return {name: Processor.now(tasks[name], cpus[name]) for name in tasks}

    first = experiment.status()
    engine = first["pid"]
    waited_before = engine_waited()
    earliest, begin = look(first), experiment.status()
    begun = look(begin)
    nearly = experiment.advance(seconds, timeout)
    ending, end = look(nearly), experiment.status()
    latest = look(end)
    waited = engine_waited()
    delayed = sum(waited[thread] - waited_before.get(thread, 0) for thread in waited)
    for name in tasks:
        tdf = experiment.member(name, end)["tdf"]
        count = len(numbers(experiment.member(name, end)["cpus"]))
        passed = [experiment.member(name, status)["virtual_ns"] for status in (begin, end)]
        due = (passed[1] - passed[0]) * tdf * count
        spare = SLICES * end["timeslice_ns"] * tdf * count
        assert due >= 20 * spare, f"{name}: {due} ns are too few to judge within 5 %"
        taken = latest[name].waited - earliest[name].waited
        taken += latest[name].stolen - earliest[name].stolen
        # It ran for no less than between the inner looks, and no more than between the outer ones.
        least, most = ending[name].ran - begun[name].ran, latest[name].ran - earliest[name].ran
        message = f"{name}, TDF {tdf}: due {due}, ran {least} to {most}, others took {taken} ns, "
        message += f"the experiment's process waited {delayed} ns"
        assert least <= due + spare + delayed * count, message
        assert most >= due - spare - taken, message
        before, after = (experiment.member(name, at) for at in (begin, end))
        wanted = after["cpu_wanted_ns"] - before["cpu_wanted_ns"]
        assert due - spare <= wanted <= due + spare + taken + delayed * count, (wanted, message)
    return end


def until(true, what: object, timeout: float = STATE_TIMEOUT):
    """Waits until a call returns something true, and returns that."""
    deadline = time.monotonic() + timeout
    while not (found := true()):
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.02)
    return found


def is_there(inside: Inside) -> Inside:
    """Waits for a container outside of experiments, until `lorentz ps` shows its name."""
    until(lambda: lorentz.shown(inside.name), inside.name)
    return inside


def groups_of(*names: str) -> list[Path]:
    """Returns the existing control groups of containers."""
    groups = processes.control_groups()
    return [one for one in groups if one.parent.name == "lorentz" and one.name in names]


class Seen:
    """Clock readings of the threads of `experiment/look`."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"seen-{next(_numbers)}"
        self.path.write_bytes(bytes(24))
        with self.path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 24)

    def _field(self, number: int) -> int:
        return struct.unpack_from("q", self._map, 8 * number)[0]

    @property
    def latest(self) -> int:
        """The latest time that a thread has read, ns."""
        return self._field(0)

    @property
    def backward(self) -> int:
        """The number of readings earlier than another thread's reading before."""
        return self._field(1)

    @property
    def reads(self) -> int:
        return self._field(2)

    def runs(self, seconds: float = 0.3) -> bool:
        """Whether a thread reads the clock now."""
        before = self.reads
        time.sleep(seconds)
        return self.reads > before


class Diary:
    """The diary of the processes of `experiment/steps`, in the order of their wake-ups.

    Each entry: the process, and its time before and after it took its place in that order.
    """

    def __init__(self, path: Path, room: int) -> None:
        self.path = path
        path.write_bytes(bytes(8 + 24 * room))

    def entries(self) -> Iterator[tuple[int, int, int]]:
        data = self.path.read_bytes()
        count = struct.unpack_from("q", data)[0]
        assert 8 + 24 * count <= len(data), "no room was left"
        return struct.iter_unpack("qqq", data[8 : 8 + 24 * count])


def _name(container: Inside | str) -> str:
    return container if isinstance(container, str) else container.name
