"""Virtual time for Linux containers.

`Experiment` advances many containers in one virtual time. Each has its own time dilation factor
(TDF), and they may share too few processors. `Container` is a container of an experiment or any
other container of yours, found by its name or by one of its process ids. `Network` joins nodes by
links that keep the nodes' virtual time. `travel`, `frozen` and `rate` are blocks of code of this
very process at another time.

    from lorentz import Experiment

    with Experiment() as experiment:
        fast = experiment.container(tdf=1)
        slow = experiment.container(tdf=10)
        ...

The package uses the `lorentz` command that the variable LORENTZ_COMMAND names, or the one that came
with it, or the one in PATH. The containers and experiments here are those that the command shows.

Units: a `Duration` is seconds, or text such as "10ms". Results are in nanoseconds; their names end
in `_ns`. A `Tdf` is real seconds per virtual second: a number, a Fraction, or text such as "1/3";
it is kept exactly. Every error is a `LorentzError`, with one subclass for each kind.
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
from lorentz.clock_errors import ClockError, ErringClock
from lorentz.containers import Container
from lorentz.experiments import Experiment
from lorentz.networks import Link, Network, Node
from lorentz.process_clock import ProcessClock
from lorentz.status import ContainerStatus, Status
from lorentz.time_blocks import frozen, own_clock, rate, travel
from lorentz.times import Duration, Tdf, Time

__all__ = [
    "ClockError",
    "Container",
    "ContainerStatus",
    "Duration",
    "EndedError",
    "ErringClock",
    "Experiment",
    "FailedError",
    "Link",
    "LorentzError",
    "Network",
    "Node",
    "NotFoundError",
    "ProcessClock",
    "RefusedError",
    "Status",
    "Tdf",
    "Time",
    "WrongInputError",
    "__version__",
    "frozen",
    "own_clock",
    "rate",
    "travel",
]
