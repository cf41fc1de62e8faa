"""Experiments: many containers, one virtual time."""

from __future__ import annotations

import contextlib
import itertools
import os

from lorentz import _native
from lorentz.containers import Container
from lorentz.status import Status
from lorentz.times import Duration, Tdf, nanoseconds, tdf_text

_numbers = itertools.count(1)


class Experiment:
    """Containers whose clocks advance together, in rounds, each with its own TDF.

        with Experiment(timeslice="3ms") as experiment:
            container = experiment.container(tdf=10)
            program = container.popen(["./node"])
            experiment.synchronize()
            experiment.start()                          # it runs by itself, or:

            experiment.set_interval(container, "1ms")   # a simulator moves it: every
            experiment.progress(timeline=0)             # container has a timeline

    It ends with the `with` block, with `end`, and with this process, however that ends; its
    containers then go on by themselves.

    Any method may be called from any thread; several threads may each progress a timeline. An
    Experiment is not to be used on both sides of a fork.

    Raises WrongInputError for a value that cannot be, RefusedError for the wrong order of calls
    (then nothing has changed), NotFoundError where there is no such container, EndedError where the
    experiment has ended.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        timeslice: Duration | None = None,
        cpus: str | None = None,
        as_fast_as_possible: bool = False,
        most: int | None = None,
    ) -> None:
        """Makes an experiment without containers.

        name: by which the `lorentz` command finds it, too; one is made up where none is given.
        timeslice: virtual length of a round, 1 us to 1 minute; default 3 ms.
        cpus: processors that the containers run on, "1" or "0,2-5"; default: all but the first.
        as_fast_as_possible: time in which nobody has anything to do is leapt over.
        most: so many containers at once, at most; default 1024.
        """
        name = name or f"python-{os.getpid()}-{next(_numbers)}"
        slice_ns = None if timeslice is None else nanoseconds(timeslice)
        self._native = _native.Experiment.create(
            name, slice_ns, cpus, as_fast_as_possible, most, True
        )
        self._owned = True

    @classmethod
    def open(cls, name: str) -> Experiment:
        """One that runs already. It does not end with this process."""
        opened = cls.__new__(cls)
        opened._native = _native.Experiment.open(name)
        opened._owned = False
        return opened

    @staticmethod
    def clear(name: str) -> None:
        """Lets go of the containers of an experiment whose process has died."""
        _native.clear(name)

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    # ---------------------------------------------------------------------------- its containers

    def container(
        self, name: str | None = None, *, tdf: Tdf = 1, timeline: int | None = None
    ) -> Container:
        """A new container, which is part of the experiment from its first program's start on.

        timeline: the one it follows, 0 to 4294967295, where a simulator moves the experiment.
        """
        name = name or f"{self.name}.{next(_numbers)}"
        first = ["run", "--experiment", self.name, "--name", name, f"--tdf={tdf_text(tdf)}"]
        if timeline is not None:
            first.append(f"--timeline={timeline}")
        return Container(name, first)

    def add(
        self, who: Container | str | int, *, tdf: Tdf = 1, timeline: int | None = None
    ) -> Container:
        """Takes in a container, by its name or the number of any of its processes.

        A process that is not in virtual time is brought into it, with its descendants. Who joins a
        synchronized experiment begins where the others are.
        """
        return Container(self._native.add(_who(who), tdf_text(tdf), timeline))

    def remove(self, who: Container | str | int) -> None:
        """Lets a container go on by itself."""
        self._native.remove(_who(who))

    def dilate(self, who: Container | str | int, tdf: Tdf) -> None:
        """Changes a container's TDF, from the next round on."""
        self._native.dilate(_who(who), tdf_text(tdf))

    # ---------------------------------------------------------------------------- its time

    def synchronize(self) -> None:
        """Stops all containers at one virtual time, the latest of theirs."""
        self._native.synchronize()

    def start(self) -> None:
        """Has rounds follow one another, where the containers have no timelines."""
        self._native.start()

    def pause(self) -> None:
        """Has no further round begin, until `start`."""
        self._native.pause()

    def stop(self) -> None:
        """Lets all containers go on by themselves; the experiment is empty then."""
        self._native.stop()

    def set_interval(
        self, who: Container | str | int, interval: Duration, *, timeline: int | None = None
    ) -> None:
        """How far a container goes with each progress of its timeline: virtual time above 0.

        timeline: the one it follows, to make sure.
        """
        self._native.set_interval(_who(who), nanoseconds(interval), timeline)

    def progress(self, timeline: int) -> None:
        """Moves all containers of a timeline by their intervals; those without one stay.

        Returns when all have arrived; other threads run meanwhile.
        """
        self._native.progress(timeline)

    def reset(self, timeline: int) -> None:
        """Forgets the intervals of a timeline."""
        self._native.reset(timeline)

    def status(self) -> Status:
        """How it stands."""
        return Status.from_json(self._native.status())

    # ---------------------------------------------------------------------------- its end

    def end(self) -> None:
        """Ends it; its containers go on by themselves."""
        self._native.end()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, *_: object) -> None:
        if self._owned:
            # It may have been ended before.
            with contextlib.suppress(_native.NotFoundError, _native.EndedError):
                self.end()

    def __repr__(self) -> str:
        return f"Experiment({self.name!r})"


def _who(who: Container | str | int) -> str:
    return who.name if isinstance(who, Container) else str(who)
