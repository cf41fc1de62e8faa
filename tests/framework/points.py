"""The program `faults/points`, which does what a test orders, and the failpoints by their owner."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable

from framework import build, lorentz
from framework.failpoints import Faulty
from framework.running import Running

EINTR = 4
#: Time limit for an immediate action on any machine, s.
AT_ONCE = 10.0

#: Places at which a controller may stop; from the fourth on, its change is made.
CONTROLLER = [
    "BeforePiece",
    "BeforeOpen",
    "BeforeVersion",
    "AfterVersion",
    "AfterDecision",
    "BeforeFastPath",
    "BeforeNotify",
    "AfterNotify",
]
MADE = CONTROLLER[3:]
#: Further places, for a controller whose change makes the deadlines of timers later.
HOLD = ["HoldBegun", "HoldFollowed", "HoldExtended"]
SKIPPER = ["LeapBeforeLog", "LeapInLog", "LeapBeforeNotify"]
MONITOR = ["ExecSeized", "ExecLetGo", "ExecStopped", "ExecPutIn"]
CONDUCTOR = ["SliceBegun", "SliceRunning", "SliceStopped"]
#: Places at which a thread that rewrites a call site may stop.
SITE = ["SiteKnown", "CodeWritable"]
#: Places at which a thread of a program may stop, and the order that leads there.
PROGRAM = {
    "WaitClaimed": "sleep 1000000",
    "WaitPublished": "sleep 1000000",
    "BeforeOpenGate": "sleep 1000000",
    "WaitLeaving": "sleep 1000000",
    "TimerHeld": "settimer 100",
    "TimerArmed": "settimer 100",
    "CpuTimeHeld": "process",
    "FdEntryHalf": "receive",
    "BeforeFilter": "receive",
    "AfterFilter": "receive",
}
#: Orders that every program can carry out.
EACH = ("sleep 1000000", "settimer 50", "lefttimer", "process", "thread", "receive", "file", "date")


def points(**options: object) -> Faulty:
    """The program that carries out orders, on a clock of its own."""
    return Faulty(build.c("faults/points"), stdin=True, **{"rate": "1", **options})


def tell(program: Running, order: str) -> None:
    """Sends the program an order."""
    program.process.stdin.write(f"{order}\n".encode())
    program.process.stdin.flush()


def done(program: Running, order: str, who: int = 1, count: int = 1) -> dict:
    """Sends an order, and waits until the program has carried it out."""
    verb = {1: "do", 2: "other", 3: "fork"}[who]
    tell(program, f"{verb} {order}")
    return program.wait_for(count, timeout=AT_ONCE, ev="done", who=who, op=order)[-1].data


@contextlib.contextmanager
def beside(inside: Faulty):
    """A second such program, on the same clock."""
    inside.line(ev="ready")
    command = [*inside.session.command(), "exec", inside.name, str(build.c("faults/points"))]
    with Running(command, env=inside.session.environment(), stdin=True) as other:
        other.line(ev="ready")
        yield other


def verb(inside: Faulty, *arguments: str) -> subprocess.CompletedProcess:
    """Calls the command line, which must end at once."""
    begun = time.monotonic()
    finished = lorentz.call(*arguments, session=inside.session)
    assert finished.returncode == 0, finished.stderr
    assert time.monotonic() - begun < AT_ONCE, f"{arguments} took {time.monotonic() - begun} s"
    return finished


def works(program: Running, who: int = 1) -> None:
    """Checks that the program carries out every order."""
    for order in EACH:
        before = len(program.lines(ev="done", who=who, op=order))
        assert done(program, order, who=who, count=before + 1)["ret"] >= 0, order


def until(holds: Callable[[], object]) -> None:
    """Waits until something holds, which must be soon."""
    deadline = time.monotonic() + AT_ONCE
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def wait_until_it_waits(inside: Faulty) -> None:
    """Waits until the registry has a wait of the program."""
    deadline = time.monotonic() + AT_ONCE
    while inside.time()["waits"] == 0:
        assert time.monotonic() < deadline
