"""Status of an experiment."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars


@dataclass(frozen=True)
class ContainerStatus:
    """Status of one container of an experiment."""

    name: str
    #: TDF: real seconds per virtual second, in its slices.
    tdf: float
    #: The timeline it follows; None if the experiment runs by itself.
    timeline: int | None
    #: Whether computing takes it time: "real" or "none".
    compute: str
    #: The container's CLOCK_MONOTONIC, ns.
    virtual_ns: int
    #: The processor of its tasks.
    cpus: str
    #: Its tasks ran when its last slice was over. They are stopped until the next.
    stopped: bool
    #: Number of slices.
    slices: int
    #: Number of slices at whose end its tasks still ran.
    at_limit: int
    #: Real length of its slices, summed, ns: in each of them it had something to do.
    cpu_wanted_ns: int
    #: CPU time of its tasks, ns.
    cpu_got_ns: int
    #: Greatest virtual time seen beyond the end of a slice, ns; 0 unless there is a defect.
    perceived_overshoot_ns: int
    #: Median real time from the end of a slice until its tasks had stopped, ns; None if no slice
    #: ended so.
    overrun_median_ns: int | None
    #: The same, 99th percentile, ns.
    overrun_p99_ns: int | None


@dataclass(frozen=True)
class Status:
    """Status of an experiment, with that of its containers."""

    name: str
    #: "setting-up", "synchronized", "running", "paused" or "stepping".
    phase: str
    #: The experiment's process.
    pid: int
    #: Virtual length of a round, ns.
    timeslice_ns: int
    #: Whether the experiment skips idle time.
    as_fast_as_possible: bool
    #: The processors that the containers run on.
    cpus: str
    #: Whether BPF programs report which tasks sleep; else the experiment reads /proc.
    told_by_kernel: bool
    #: Number of rounds so far.
    rounds: int
    #: Virtual time since the experiment was synchronized, ns.
    virtual_ns: int
    #: Real time that the rounds have taken, ns.
    real_ns: int
    #: The part of `real_ns` in which some container ran.
    working_ns: int
    #: Real seconds per virtual second; None before the first round.
    slowdown: float | None
    #: Time that containers ran, divided by the time spent on synchronizing them; None if the latter
    #: is zero.
    overhead_ratio: float | None
    #: The container with the greatest TDF; None if there are no containers.
    leader: str | None
    #: The containers, in the order in which they joined; one may take the place of one that has
    #: left.
    containers: tuple[ContainerStatus, ...]

    @classmethod
    def from_json(cls, text: str) -> Status:
        """Parses the output of `lorentz experiment status NAME --json`."""
        given = json.loads(text)
        containers = tuple(
            ContainerStatus(**_known(ContainerStatus, c)) for c in given["containers"]
        )
        return cls(**{**_known(cls, given), "containers": containers})

    def frame(self) -> polars.DataFrame:
        """Returns a data frame of polars, one row for each container (`pip install
        lorentz-time[frames]`)."""
        import polars

        columns = {field.name: _POLARS[field.type] for field in fields(ContainerStatus)}
        schema = {name: getattr(polars, kind) for name, kind in columns.items()}
        return polars.DataFrame([asdict(one) for one in self.containers], schema=schema)

    def _repr_html_(self) -> str:
        """Formats the status for notebooks."""
        slowdown = "" if self.slowdown is None else f", slowdown {self.slowdown:.3g}"
        line = f"{self.name}: {self.phase}, {self.virtual_ns / 1e9:.6f} s virtual{slowdown}"
        head = [
            "container",
            "TDF",
            "timeline",
            "virtual s",
            "processor",
            "slices",
            "CPU s",
            "stands",
        ]
        rows = [
            [
                one.name,
                f"{one.tdf:g}",
                "" if one.timeline is None else one.timeline,
                f"{one.virtual_ns / 1e9:.6f}",
                one.cpus,
                one.slices,
                f"{one.cpu_got_ns / 1e9:.3f}",
                "yes" if one.stopped else "no",
            ]
            for one in self.containers
        ]
        return f"<p>{html.escape(line)}</p>{html_table(head, rows)}"


def html_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Returns a table for notebooks."""

    def row(cells: Iterable[object], tag: str) -> str:
        each = "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in cells)
        return f"<tr>{each}</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<table><thead>{row(head, 'th')}</thead><tbody>{body}</tbody></table>"


#: Types of the data frame's columns, by the types of the fields.
_POLARS = {
    "str": "String",
    "float": "Float64",
    "int": "Int64",
    "int | None": "Int64",
    "bool": "Boolean",
}


def _known(kind: type, given: dict) -> dict:
    """Returns the entries of `given` that this version knows."""
    names = {field.name for field in fields(kind)}
    return {name: value for name, value in given.items() if name in names}
