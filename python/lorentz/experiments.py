"""Experiments: many containers, one virtual time."""

from __future__ import annotations

import contextlib
import html
import itertools
import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from lorentz import _native
from lorentz.clock_options import ClockOptions
from lorentz.clock_texts import clock_texts
from lorentz.containers import Container, Programs, remove
from lorentz.status import Status
from lorentz.times import Duration, Tdf, nanoseconds, tdf_text

if TYPE_CHECKING:
    from typing_extensions import Unpack

#: Whether computing takes time: "real", or "none": the clock stands while programs compute.
Compute = Literal["real", "none"]

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

    With the `with` block the experiment ends, and so do the programs that `popen` has started. With
    `end`, or with this process, however that ends, the experiment alone ends: its containers go on
    by themselves. So do, in each case, those that `add` has taken from elsewhere.

    Any thread may call any method; several threads may each progress a timeline. After a fork, only
    one of the two processes may use an Experiment.

    Methods raise WrongInputError for a wrong value, and RefusedError for the wrong order of calls;
    nothing has changed then. They raise NotFoundError if there is no such container, and EndedError
    if the experiment has ended.
    """

    def __init__(
        self,
        name: str | None = None,
        *,
        timeslice: Duration | None = None,
        cpus: str | int | Iterable[int] | None = None,
        as_fast_as_possible: bool = False,
        most: int | None = None,
        compute: Compute = "real",
    ) -> None:
        """Makes an experiment without containers.

        name: also for the `lorentz` command; default: python-PID-NUMBER.
        timeslice: virtual length of a round, 1 us to 1 minute; default 3 ms.
        cpus: processors that the containers run on, [0, 2] or "0,2-5"; default: all but the first.
        as_fast_as_possible: skip idle time, in which no container has anything to do.
        most: greatest number of containers at once; default 1024.
        compute: "none" has clocks stand while programs compute, and go from deadline to deadline:
        programs see the same instants in every run. For containers that do not choose.
        """
        name = name or f"python-{os.getpid()}-{next(_numbers)}"
        slice_ns = None if timeslice is None else nanoseconds(timeslice)
        self._native = _native.Experiment.create(
            name, slice_ns, _cpus_text(cpus), as_fast_as_possible, most, compute, True
        )
        self._owned = True
        self._programs = Programs()
        self._made: list[str] = []

    @classmethod
    def open(cls, name: str) -> Experiment:
        """Opens a running experiment. It does not end with this process."""
        opened = cls.__new__(cls)
        opened._native = _native.Experiment.open(name)
        opened._owned = False
        opened._programs = Programs()
        opened._made = []
        return opened

    @staticmethod
    def clear(name: str) -> None:
        """Releases the containers of an experiment whose process has died, and removes it."""
        _native.clear(name)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self._native.name

    # ---------------------------------------------------------------------------- its containers

    def container(
        self,
        name: str | None = None,
        *,
        timeline: int | None = None,
        parallel: int = 1,
        compute: Compute | None = None,
        **clock: Unpack[ClockOptions],
    ) -> Container:
        """Makes a new container. It joins the experiment when its first program starts.

        timeline: the timeline it follows, 0 to 4294967295, if a simulator moves the experiment.
        parallel: number of processors that it runs on at once, 1 to the number of those of the
        experiment.
        compute: whether computing takes it time, "real" or "none"; default: the experiment's.
        clock: options of its clock, as those of `lorentz run`: tdf (default 1), at, cpu_clocks and
        so on. The command refuses those that do not go together, when the first program starts.
        """
        name = name or f"{self.name}.{next(_numbers)}"
        texts = {"tdf": "1"} if clock.keys().isdisjoint({"rate", "tdf"}) else {}
        flags = _native.clock_flags([*texts.items(), *clock_texts(clock, ClockOptions).items()])
        first = ["run", "--experiment", self.name, "--name", name, *flags]
        if timeline is not None:
            first.append(f"--timeline={timeline}")
        if parallel != 1:
            first.append(f"--parallel={parallel}")
        if compute is not None:
            first.append(f"--compute={compute}")
        self._made.append(name)
        return Container(name, first, self._programs)

    def add(
        self,
        who: Container | str | int,
        *,
        tdf: Tdf = 1,
        timeline: int | None = None,
        parallel: int = 1,
        compute: Compute | None = None,
    ) -> Container:
        """Adds a container, by its name or by one of its process ids.

        parallel: number of processors that it runs on at once, 1 to the number of those of the
        experiment.
        compute: whether computing takes it time, "real" or "none"; default: the experiment's.

        Attaches to a process that is not in virtual time, and to its descendants. A container that
        joins a synchronized experiment begins where the others stand.
        """
        name = self._native.add(_who(who), tdf_text(tdf), timeline, parallel, compute)
        return Container(name, programs=self._programs)

    def remove(self, who: Container | str | int) -> None:
        """Removes a container, which goes on by itself."""
        self._native.remove(_who(who))

    def dilate(self, who: Container | str | int, tdf: Tdf) -> None:
        """Changes a container's TDF, from the next round on."""
        self._native.dilate(_who(who), tdf_text(tdf))

    # ---------------------------------------------------------------------------- its time

    def synchronize(self) -> None:
        """Stops all containers at one virtual time, the latest of their times."""
        self._native.synchronize()

    def start(self) -> None:
        """Starts the rounds, if the containers have no timelines."""
        self._native.start()

    def pause(self) -> None:
        """Pauses: no further round begins until `start`."""
        self._native.pause()

    def stop(self) -> None:
        """Removes all containers, which go on by themselves. The experiment is empty then."""
        self._native.stop()

    def set_interval(
        self, who: Container | str | int, interval: Duration, *, timeline: int | None = None
    ) -> None:
        """Sets how far a container goes with each progress of its timeline: virtual time above 0.

        timeline: if given, the one that the container must follow; another one is an error.
        """
        self._native.set_interval(_who(who), nanoseconds(interval), timeline)

    def progress(self, timeline: int) -> None:
        """Moves all containers of a timeline by their intervals. A container without one stays.

        Returns when all have arrived. Other Python threads run meanwhile.
        """
        self._native.progress(timeline)

    def step(self, moves: Mapping[Container | str | int, Duration]) -> None:
        """Moves each of these containers by a virtual time of its own, above 0; the others stay.

        One exchange, however many they are. Returns when all have arrived. Other Python threads
        run meanwhile.
        """
        self._native.step([(_who(who), nanoseconds(by)) for who, by in moves.items()])

    def reset(self, timeline: int) -> None:
        """Clears the intervals of a timeline."""
        self._native.reset(timeline)

    def status(self) -> Status:
        """Returns the experiment's status."""
        return Status.from_json(self._native.status())

    # ---------------------------------------------------------------------------- its end

    def end(self) -> None:
        """Ends the experiment. Its containers go on by themselves."""
        self._native.end()

    def __enter__(self) -> Experiment:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._owned:
            return
        # The experiment may have ended before.
        with contextlib.suppress(_native.NotFoundError, _native.EndedError):
            self.end()
        self._programs.end()
        for name in self._made:
            remove(name)

    def __repr__(self) -> str:
        return f"Experiment({self.name!r})"

    def _repr_html_(self) -> str:
        """Formats the experiment for notebooks: its status, or that it has ended."""
        try:
            return self.status()._repr_html_()
        except _native.LorentzError:
            return f"<p>{html.escape(self.name)}: has ended</p>"


def _cpus_text(cpus: str | int | Iterable[int] | None) -> str | None:
    if cpus is None or isinstance(cpus, str):
        return cpus
    return str(cpus) if isinstance(cpus, int) else ",".join(map(str, cpus))


def _who(who: Container | str | int) -> str:
    return who.name if isinstance(who, Container) else str(who)
