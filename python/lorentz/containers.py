"""A container: its clock, and programs in it."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from fractions import Fraction
from os import PathLike, fspath

from lorentz import _native
from lorentz.times import Duration, HostTime, Tdf, Time, host_time_text, nanoseconds, tdf_text

Words = Sequence["str | PathLike[str]"]


class Container:
    """A container in virtual time, by its name.

    One that an `Experiment` is to make is there from its first program on, and ends with its last.
    All methods but `popen` and `run` raise NotFoundError where it is not there.
    """

    def __init__(self, name: str, first: Sequence[str] = ()) -> None:
        """The container called `name`; `first` are the words by which its first program is run."""
        self.name = name
        self._first = list(first)

    @classmethod
    def find(cls, who: str | int) -> Container:
        """The container of that name, or of the process of that number."""
        return cls(_native.find(str(who)))

    @classmethod
    def attach(
        cls, pid: int, tdf: Tdf = 1, *, tree: bool = False, name: str | None = None
    ) -> Container:
        """Brings a running process into virtual time, in a new container.

        `tree`: its descendants too. It cannot be undone; TDF 1 does no harm. Raises NotFoundError
        where there is no such process, RefusedError where it is somebody else's or in virtual time.
        """
        return cls(_native.attach(pid, tdf_text(tdf), tree, name))

    # ---------------------------------------------------------------------------- its programs

    def popen(self, args: Words, **options: object) -> subprocess.Popen:
        """Starts a program in the container, as subprocess.Popen(args, **options) does outside.

        The process is that of the `lorentz` command that looks after the program: its streams,
        signals and exit status are the program's. While the experiment stands, so does the program.
        """
        words = [fspath(word) for word in args]
        verb = [*self._first] if self._first and not self._is_there() else ["exec", self.name]
        return subprocess.Popen([_native.command(), *verb, "--", *words], **options)

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
        """Its clocks beside the host's."""
        told = _native.reading(self.name)
        return Time(**{**told, "tdf": Fraction(told["tdf"])})

    def dilate(self, tdf: Tdf, *, at: HostTime | None = None) -> None:
        """Changes its TDF: at once, or when the host's wall clock shows `at`.

        Of one in an experiment: RefusedError; there is Experiment.dilate. A change that begins
        earlier drops those that were announced. The same holds for the other changes. Raises
        WrongInputError where `at` is past.
        """
        _native.dilate(self.name, tdf_text(tdf), host_time_text(at))

    def freeze(self, *, at: HostTime | None = None) -> None:
        """Lets its time stand still, and its tasks where there is a cgroup v2 freezer."""
        _native.freeze(self.name, host_time_text(at))

    def unfreeze(self, *, at: HostTime | None = None) -> None:
        """Lets it go on."""
        _native.unfreeze(self.name, host_time_text(at))

    def leap(self, by: Duration, *, at: HostTime | None = None) -> None:
        """Moves all its clocks forward, by 0 or more of virtual time."""
        _native.leap(self.name, nanoseconds(by), host_time_text(at))

    def leap_like(self, other: Container) -> None:
        """Moves all its clocks forward to where the wall clock of another is."""
        _native.leap_like(self.name, other.name)

    def step(self, by: Duration, *, at: HostTime | None = None) -> None:
        """Moves its wall clock alone, either way, not before 1970."""
        _native.step(self.name, nanoseconds(by), host_time_text(at))

    def __repr__(self) -> str:
        return f"Container({self.name!r})"


def _end(process: subprocess.Popen) -> None:
    """Ends a program: `lorentz` passes SIGTERM on, but could not pass on its own SIGKILL."""
    patience = 5
    process.terminate()
    try:
        process.wait(timeout=patience)
    except subprocess.TimeoutExpired:
        process.kill()
