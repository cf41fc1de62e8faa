"""A container: its clock, and programs in it."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from collections.abc import Sequence
from fractions import Fraction
from os import PathLike, fspath

from lorentz import _native
from lorentz.clock_errors import ErringClock
from lorentz.times import Duration, HostTime, Tdf, Time, host_time_text, nanoseconds, tdf_text

Words = Sequence["str | PathLike[str]"]


class Container:
    """A container in virtual time, identified by its name.

    A container of `Experiment.container` begins with its first program and ends with its last. All
    methods raise NotFoundError if the container does not exist, but for `popen` and `run` of such a
    first program.
    """

    def __init__(
        self, name: str, first: Sequence[str] = (), programs: Programs | None = None
    ) -> None:
        """Names a container.

        first: the command that runs its first program. programs: keeps what `popen` starts.
        """
        self.name = name
        self._first = list(first)
        self._programs = programs

    @classmethod
    def find(cls, who: str | int) -> Container:
        """Finds a container by its name, or by the process id of one of its processes."""
        return cls(_native.find(str(who)))

    @classmethod
    def attach(
        cls, pid: int, tdf: Tdf = 1, *, tree: bool = False, name: str | None = None
    ) -> Container:
        """Attaches to a running process and puts it into virtual time, in a new container.

        `tree`: attach to its descendants too. This cannot be undone; TDF 1 does no harm. Raises
        NotFoundError if there is no such process, RefusedError if it belongs to another user or is
        in virtual time already.
        """
        return cls(_native.attach(pid, tdf_text(tdf), tree, name))

    # ---------------------------------------------------------------------------- its programs

    def popen(self, args: Words, **options: object) -> subprocess.Popen:
        """Starts a program in the container, as subprocess.Popen(args, **options) does outside.

        Returns when the program is in the container, and the container in its experiment. The
        result is the `lorentz` command that supervises the program: its streams, signals and exit
        status are the program's. While the experiment is paused, so is the program.

        Raises FileNotFoundError if there is no such program, for the first one in a container.
        """
        words = [fspath(word) for word in args]
        if self._first and not self._is_there():
            process = self._start_first(words, options)
        else:
            self._check_is_there()
            process = subprocess.Popen(
                [_native.command(), "exec", self.name, "--", *words], **options
            )
        if self._programs:
            self._programs.add(process)
        return process

    def _start_first(self, words: list[str], options: dict) -> subprocess.Popen:
        """Starts the first program. Returns when it is in its container."""
        reader, writer = os.pipe()
        with os.fdopen(reader, "rb", buffering=0) as ready:
            try:
                verb = [*self._first, f"--ready-fd={writer}", "--", *words]
                options = {**options, "pass_fds": (*options.get("pass_fds", ()), writer)}
                process = subprocess.Popen([_native.command(), *verb], **options)
            finally:
                os.close(writer)
            if ready.read(1):
                return process
        # It has ended before the program began, and has printed the reason.
        with process:
            status = process.wait()
        if status == 127:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), words[0])
        raise _native.FailedError(f"{self.name}: its first program did not start: status {status}")

    def _check_is_there(self) -> None:
        """Raises NotFoundError unless the container exists."""
        _native.find(self.name)

    def run(
        self, args: Words, *, timeout: float | None = None, check: bool = False, **options: object
    ) -> subprocess.CompletedProcess:
        """Runs a program in the container to its end, as subprocess.run does outside.

        `timeout` is in real seconds; a program that takes longer gets SIGTERM. Raises
        subprocess.TimeoutExpired and, where `check` is set, subprocess.CalledProcessError.
        """
        if options.pop("capture_output", False):
            options.update(stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        given = options.pop("input", None)
        if given is not None:
            options["stdin"] = subprocess.PIPE
        with self.popen(args, **options) as process:
            try:
                out, err = process.communicate(given, timeout=timeout)
            except BaseException:
                _end(process)
                raise
        done = subprocess.CompletedProcess(list(args), process.returncode, out, err)
        if check:
            done.check_returncode()
        return done

    def _is_there(self) -> bool:
        try:
            return _native.find(self.name) == self.name
        except _native.NotFoundError:
            return False

    # ---------------------------------------------------------------------------- its clock

    def time(self) -> Time:
        """Returns the container's clocks and the host's, at one moment."""
        clocks = _native.reading(self.name)
        return Time(**{**clocks, "tdf": Fraction(clocks["tdf"])})

    def dilate(self, tdf: Tdf, *, at: HostTime | None = None) -> None:
        """Changes the TDF: at once, or when the host's wall clock shows `at`.

        In an experiment: from the next round on; with `at`, RefusedError. A change drops announced
        changes that begin later. Raises WrongInputError if `at` is past. freeze, unfreeze, leap and
        step are the same, but raise RefusedError for every container in an experiment.
        """
        _native.dilate(self.name, tdf_text(tdf), host_time_text(at))

    def freeze(self, *, at: HostTime | None = None) -> None:
        """Stops the clock, and the tasks if there is a cgroup v2 freezer."""
        _native.freeze(self.name, host_time_text(at))

    def unfreeze(self, *, at: HostTime | None = None) -> None:
        """Lets the clock and the tasks go on."""
        _native.unfreeze(self.name, host_time_text(at))

    def leap(self, by: Duration, *, at: HostTime | None = None) -> None:
        """Moves all clocks of the container forward by `by`, virtual time, 0 or more."""
        _native.leap(self.name, nanoseconds(by), host_time_text(at))

    def leap_like(self, other: Container) -> None:
        """Moves all clocks of the container forward, until its wall clock shows that of `other`."""
        _native.leap_like(self.name, other.name)

    def step(self, by: Duration, *, at: HostTime | None = None) -> None:
        """Moves the wall clock alone by `by`, in either direction, not before 1970."""
        _native.step(self.name, nanoseconds(by), host_time_text(at))

    @property
    def clock(self) -> ErringClock:
        """The clock's error: how far it is from the truth, and faults of it."""
        return ErringClock(self.name)

    def __repr__(self) -> str:
        return f"Container({self.name!r})"


class Programs:
    """Programs that an experiment's containers have started, to be ended with the experiment."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen] = []

    def add(self, process: subprocess.Popen) -> None:
        """Adds a program."""
        self._running = [one for one in self._running if one.poll() is None]
        self._running.append(process)

    def end(self) -> None:
        """Ends all that still run."""
        running = [one for one in self._running if one.poll() is None]
        self._running = []
        for process in running:
            process.terminate()
        deadline = time.monotonic() + _TERM_TIMEOUT
        for process in running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=max(0, deadline - time.monotonic()))


def remove(name: str) -> None:
    """Ends all programs of a container that still run, by SIGKILL, and removes it."""
    with contextlib.suppress(_native.LorentzError):
        # The container has gone with its last program, unless programs are left.
        if _native.find(name) == name:
            _native.call(["rm", "--force", name])


#: Real seconds from SIGTERM until a program is killed.
_TERM_TIMEOUT = 5


def _end(process: subprocess.Popen) -> None:
    """Ends a program. SIGTERM first: `lorentz` passes it on, but cannot pass on its own SIGKILL."""
    process.terminate()
    try:
        process.wait(timeout=_TERM_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
