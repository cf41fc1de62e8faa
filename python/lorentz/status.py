"""How an experiment stands."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class ContainerStatus:
    """How one container of an experiment stands."""

    name: str
    #: Real seconds per virtual second, in its slices.
    tdf: float
    #: The timeline it follows; None where the experiment runs by itself.
    timeline: int | None
    #: Its CLOCK_MONOTONIC.
    virtual_ns: int
    #: The processor it is kept to.
    cpus: str
    #: It ran when its last slice was over, and is stopped until the next.
    stopped: bool
    #: Slices it was given.
    slices: int
    #: ... at whose end it was still running.
    at_limit: int
    #: Real time in its slices in which it had something to do.
    cpu_wanted_ns: int
    #: CPU time its tasks have used.
    cpu_got_ns: int
    #: The latest virtual time seen beyond the end of a slice: 0.
    perceived_overshoot_ns: int
    #: Real time from the end of a slice until its tasks had stopped; None: they never had to.
    overrun_median_ns: int | None
    #: ... and what 99 of 100 do not exceed.
    overrun_p99_ns: int | None


@dataclass(frozen=True)
class Status:
    """How an experiment stands."""

    name: str
    #: "setting-up", "synchronized", "running", "paused" or "stepping".
    phase: str
    #: The process that moves it.
    pid: int
    #: Virtual length of a round.
    timeslice_ns: int
    #: Idle time is leapt over.
    as_fast_as_possible: bool
    #: The processors that its containers run on.
    cpus: str
    #: The kernel tells whose tasks sleep; else /proc is read.
    told_by_kernel: bool
    #: Rounds so far.
    rounds: int
    #: Virtual time since it was synchronized.
    virtual_ns: int
    #: Real time that its rounds have taken.
    real_ns: int
    #: ... of which the time in which some container ran.
    working_ns: int
    #: Real seconds per virtual second; None before the first round.
    slowdown: float | None
    #: Time that containers ran over time spent on synchronizing them.
    overhead_ratio: float | None
    #: The container with the greatest TDF.
    leader: str | None
    #: In the order in which they were added.
    containers: tuple[ContainerStatus, ...]

    @classmethod
    def from_json(cls, text: str) -> Status:
        """From what `lorentz experiment status NAME --json` prints."""
        told = json.loads(text)
        containers = tuple(
            ContainerStatus(**_known(ContainerStatus, c)) for c in told["containers"]
        )
        return cls(**{**_known(cls, told), "containers": containers})

    def frame(self) -> polars.DataFrame:
        """The containers as a data frame of polars, a row each (`pip install lorentz[frames]`)."""
        import polars

        columns = {field.name: _POLARS[field.type] for field in fields(ContainerStatus)}
        schema = {name: getattr(polars, kind) for name, kind in columns.items()}
        return polars.DataFrame([asdict(one) for one in self.containers], schema=schema)

    def _repr_html_(self) -> str:
        """For notebooks."""
        slowdown = "" if self.slowdown is None else f", slowdown {self.slowdown:.3g}"
        line = f"{self.name}: {self.phase}, {self.virtual_ns / 1e9:.6f} s virtual{slowdown}"
        return f"<p>{line}</p>{self.frame()._repr_html_()}"


#: The columns' types, by the types of the fields.
_POLARS = {
    "str": "String",
    "float": "Float64",
    "int": "Int64",
    "int | None": "Int64",
    "bool": "Boolean",
}


def _known(kind: type, told: dict) -> dict:
    """Of what is told, that which this version knows."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in told.items() if name in names}
