"""Virtual time for Linux containers.

`Experiment` moves many containers through one virtual time, each with its own time dilation factor
(TDF), whether they share too few processors or not; `Container` is one of them, or any other
container of yours, found by its name or by the number of any of its processes. `Network` joins
nodes by links that keep their virtual time.

    from lorentz import Experiment

    with Experiment() as experiment:
        fast = experiment.container(tdf=1)
        slow = experiment.container(tdf=10)
        ...

The `lorentz` command has to be there: named by the variable LORENTZ_COMMAND, or in PATH. Containers
and experiments are those that it shows.

Units: a `Duration` is seconds, or text such as "10ms"; what is told is in nanoseconds and ends in
`_ns`. A `Tdf` is real seconds per virtual second: a number, a Fraction, or text such as "1/3"; it
is kept exactly. Errors are `LorentzError`, one class for each kind.
"""

from lorentz._native import (
    EndedError,
    FailedError,
    LorentzError,
    NotFoundError,
    RefusedError,
    WrongInputError,
    __version__,
)
from lorentz.containers import Container
from lorentz.experiments import Experiment
from lorentz.networks import Link, Network, Node
from lorentz.status import ContainerStatus, Status
from lorentz.times import Duration, Tdf, Time

__all__ = [
    "Container",
    "ContainerStatus",
    "Duration",
    "EndedError",
    "Experiment",
    "FailedError",
    "Link",
    "LorentzError",
    "Network",
    "Node",
    "NotFoundError",
    "RefusedError",
    "Status",
    "Tdf",
    "Time",
    "WrongInputError",
    "__version__",
]
