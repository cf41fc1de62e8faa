"""The program `faults/points`, which does what a test orders, and the table of all failpoints.

`WAYS` says for each failpoint how a test gets a thread there. `at_each` runs a test at the places
of a kind of thread, and notes the act: `unmet` compares table and notes.

    @at_each("kill", "controller")
    def test_a_controller_that_is_killed(place):
        with points() as inside:
            place.reach(inside).kill()
"""

from __future__ import annotations

import contextlib
import datetime
import os
import signal
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from framework import build, lorentz, processes
from framework.failpoints import Faulty
from framework.running import Native, Running

EINTR = 4
#: Time limit for an immediate action on any machine, s.
AT_ONCE = 10.0
#: Orders that every program can carry out.
EACH = (
    "sleep 1000000",
    "settimer 50",
    "lefttimer",
    "process",
    "thread",
    "receive",
    "file",
    "date",
    "hot",
)


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
    until(lambda: inside.time()["waits"] > 0)


def kill(pid: int) -> None:
    """Kills a process, and waits until it has ended."""
    os.kill(pid, signal.SIGKILL)
    until(lambda: processes.has_ended(pid))


# ------------------------------------------------------------------------------- ways to a place


def command(*words: str) -> Callable[[Faulty, str], subprocess.Popen]:
    """A controller arrives: `lorentz WORDS`."""

    def go(inside: Faulty, point: str) -> subprocess.Popen:
        inside.points.arm(point)
        controller = inside.begin(*words)
        inside.points.wait(point)
        return controller

    return go


def slow_down(inside: Faulty, point: str) -> subprocess.Popen:
    """A controller arrives that has to hold a timer back. The timer says each of its expiries."""
    tell(inside, "do beat 400")
    inside.line(ev="beat")
    if point == "HoldExtended":
        # A thread is in the midst of setting the timer, and so does not follow the hold in time.
        inside.points.arm("TimerHeld")
    controller = command("dilate", "--rate", "1/2")(inside, point)
    inside.points.release("TimerHeld")
    return controller


def order(text: str) -> Callable[[Faulty, str], None]:
    """Thread 1 of the program arrives, which carries out an order."""

    def go(inside: Faulty, point: str) -> None:
        inside.points.arm(point)
        tell(inside, f"do {text}")
        inside.points.wait(point)

    return go


def set_a_timer_during_a_change(inside: Faulty, point: str) -> None:
    """Thread 1 arrives: the clock changes while it sets a timer, so it sets the timer anew."""
    order("settimer 100")(inside, "TimerArmed")
    verb(inside, "leap", inside.name, "--by", "1s")
    inside.points.arm(point)
    inside.points.release("TimerArmed")
    inside.points.wait(point)


def stop_a_reader(inside: Faulty) -> int:
    """Has thread 1 read the clock and stop before it decides when a published change begins.

    A monitor reads the clock too, when a container has changed: if it has come first, the thread
    reads again. Returns how often the thread has read before.
    """
    program = inside.line(ev="ready")["pid"]
    tasks = sorted(Path(f"/proc/{program}/task").iterdir(), key=lambda task: int(task.name))
    call = tasks[1] / "syscall"
    while True:
        before = len(inside.lines(ev="done", who=1, op="date"))
        order("date")(inside, "ReaderDecides")
        looks = 0
        while len(inside.lines(ev="done", who=1, op="date")) == before:
            # A thread that stands at a failpoint is in no system call.
            looks = looks + 1 if call.read_text().startswith("running") else 0
            if looks == 25:
                return before
            time.sleep(0.002)
        inside.points.release("ReaderDecides")


def read_in_the_midst_of_a_change(inside: Faulty, point: str) -> None:
    """Thread 1 arrives: it reads the clock before a controller has decided. Others then decide."""
    controller = command("leap", "--by", "1000000s")(inside, "AfterVersion")
    stop_a_reader(inside)
    assert inside.points.stopped(point)
    inside.points.release("AfterVersion")
    assert controller.wait(timeout=AT_ONCE) == 0


def complete_a_dead_controllers_change(inside: Faulty, point: str) -> None:
    """The monitor arrives: a controller has published its change, and is killed."""
    controller = command("leap", "--by", "1000000s")(inside, "AfterVersion")
    inside.points.arm(point)
    controller.kill()
    controller.wait(timeout=AT_ONCE)
    inside.points.wait(point)


def come_to_an_announced_change(inside: Faulty, point: str) -> None:
    """The monitor arrives: the beginning of an announced leap is near."""
    soon = datetime.datetime.now(datetime.UTC) + datetime.timedelta(seconds=4)
    verb(inside, "leap", inside.name, "--by", "1000000s", "--at", soon.isoformat())
    inside.points.arm(point)
    inside.points.wait(point)


def set_the_wall_clock_back(inside: Faulty, point: str) -> None:
    """The monitor arrives, asked by thread 1, and has to hold a timer back."""
    assert done(inside, "walltimer 100000", who=2)["ret"] == 0
    order("setwall -1000000")(inside, point)


def execute(inside: Faulty, point: str) -> None:
    """The monitor arrives: the program, which waits for a line, executes another one."""
    inside.points.arm(point)
    tell(inside, "go")
    inside.points.wait(point)


def execute_while_a_command_traces(inside: Faulty, point: str) -> None:
    """As `execute`. A command of Lorentz traces the program from the moment at which the monitor
    has been notified, and is killed when the monitor has found that."""
    [pid] = inside.programs()
    execute(inside, "ExecNotified")
    with Native([build.c("faults/tracer"), "lorentz", str(pid)], stdin=True) as tracer:
        tracer.line(ev="traces")
        inside.points.arm(point)
        inside.points.release("ExecNotified")
        inside.points.wait(point)


def adopt(inside: Faulty, point: str) -> subprocess.Popen:
    """A new monitor arrives, which adopts the program. The old one is killed."""
    inside.kill_monitor()
    return command("adopt")(inside, point)


def wait(inside: Faulty, point: str) -> None:
    """A thread arrives by itself, after all that the test has begun."""
    inside.points.arm(point)
    inside.points.wait(point)


@dataclass(frozen=True)
class Way:
    """How a test gets a thread of a kind to a failpoint."""

    kind: str
    go: Callable[[Faulty, str], object]
    #: The program's order on the way.
    order: str = ""


@dataclass(frozen=True)
class Place:
    """A failpoint, and a way to it."""

    point: str
    way: Way

    @property
    def made(self) -> bool:
        """Whether the change of a controller is made when it stops here."""
        return self.point in MADE

    def reach(self, inside: Faulty) -> object:
        """Has a thread stop here. Returns the process of a controller that the test starts."""
        return self.way.go(inside, self.point)


def _program(text: str) -> Way:
    return Way("program", order(text), text)


_LEAP = Way("controller", command("leap", "--by", "1000000s"))
_SLOW_DOWN = Way("hold", slow_down)
_SKIP = Way("skipping", command("skip", "force"))
_SET_WALL = Way("wall", order("setwall 1000000"), "setwall 1000000")
_SET_WALL_BACK = Way("wall", set_the_wall_clock_back, "setwall -1000000")
_COMPLETE = Way("healer", complete_a_dead_controllers_change)
_ANNOUNCED = Way("healer", come_to_an_announced_change)
_SKIPPER = Way("skipper", order("sleep 1000000000000"))
_SOLE = Way("sole", wait)
_EXEC = Way("exec", execute)
_TRACED_EXEC = Way("traced exec", execute_while_a_command_traces)
_ADOPT = Way("adopter", adopt)
_SLICE = Way("scheduler", wait)

#: The ways to each failpoint.
WAYS: dict[str, tuple[Way, ...]] = {
    "BeforePiece": (_LEAP, _SLOW_DOWN, _SET_WALL),
    "BeforeOpen": (_LEAP, _SLOW_DOWN, _SET_WALL),
    "BeforeVersion": (_LEAP, _SLOW_DOWN, _SET_WALL, _SKIP, _ANNOUNCED),
    "AfterVersion": (_LEAP, _SLOW_DOWN, _SET_WALL),
    "AfterDecision": (_LEAP, _SLOW_DOWN, _SET_WALL, _COMPLETE),
    "BeforeFastPath": (_LEAP, _SLOW_DOWN, _SET_WALL, _COMPLETE),
    "BeforeNotify": (_LEAP, _SLOW_DOWN, _SET_WALL, _SKIP),
    "AfterNotify": (_LEAP, _SLOW_DOWN, _SET_WALL, _SKIP),
    "BeforeRefresh": (_LEAP, _SLOW_DOWN, _SET_WALL),
    "HoldBegun": (_SLOW_DOWN, _SET_WALL_BACK),
    "HoldFollowed": (_SLOW_DOWN, _SET_WALL_BACK),
    "HoldExtended": (_SLOW_DOWN,),
    "LeapsEnabled": (_SKIP,),
    "ReaderDecides": (Way("program", read_in_the_midst_of_a_change, "date"),),
    "LeapBeforeLog": (_SKIPPER, _SOLE),
    "LeapInLog": (_SKIPPER, _SOLE),
    "LeapBeforeNotify": (_SKIPPER,),
    "MarkHalf": (Way("marker", wait),),
    "WaitClaimed": (_program("sleep 1000000"),),
    "WaitPublished": (_program("sleep 1000000"),),
    "BeforeOpenGate": (_program("sleep 1000000"),),
    "WaitLeaving": (_program("sleep 1000000"),),
    "TimerHeld": (_program("settimer 100"),),
    "TimerQueried": (Way("program", set_a_timer_during_a_change, "settimer 100"),),
    "BeforeTimer": (_program("settimer 100"),),
    "TimerArmed": (_program("settimer 100"),),
    "CpuTimeHeld": (_program("process"),),
    "FdEntryHalf": (_program("receive"),),
    "BeforeFilter": (_program("receive"),),
    "AfterFilter": (_program("receive"),),
    "SiteKnown": (_program("hot"),),
    "CodeWritable": (_program("hot"),),
    "ExecNotified": (_EXEC,),
    "ExecTraced": (_TRACED_EXEC,),
    "ExecSeized": (_EXEC,),
    "ExecLetGo": (_EXEC,),
    "ExecStopped": (_EXEC,),
    "ExecPutIn": (_EXEC,),
    "AdoptSeized": (_ADOPT,),
    "AdoptStopped": (_ADOPT,),
    "AdoptSignalled": (_ADOPT,),
    "AdoptListening": (_ADOPT,),
    "AdoptFetched": (_ADOPT,),
    "AdoptUnrecorded": (_ADOPT,),
    "SliceBegun": (_SLICE,),
    "SliceRunning": (_SLICE,),
    "SliceLooked": (_SLICE,),
    "SliceStopped": (_SLICE,),
}
#: Places at which a controller has made its change.
MADE = {
    "AfterVersion",
    "AfterDecision",
    "BeforeFastPath",
    "BeforeNotify",
    "AfterNotify",
    "BeforeRefresh",
}

#: Kinds of threads.
KINDS = {
    "controller": "a command that changes a clock",
    "hold": "a command that changes a clock and holds timers back",
    "skipping": "a command that turns skipping on",
    "wall": "a monitor that sets the wall clock for a program",
    "healer": "a monitor that completes a change, or takes the clock through an announced one",
    "exec": "a monitor at an exec",
    "traced exec": "a monitor at the exec of a program that a command traces",
    "adopter": "a monitor that adopts a program",
    "program": "a thread of a program",
    "sole": "the only thread of a program, which leaps by itself",
    "skipper": "a skipper in a leap",
    "marker": "a skipper that marks a sole thread",
    "scheduler": "the scheduler of an experiment",
}
#: Events while a thread stands at a place.
ACTS = {
    "kill": "its process gets SIGKILL",
    "stop": "the thread stands still, and goes on later",
    "signal": "its process or the thread gets another signal",
    "fork": "another thread of its process forks",
    "exec": "another thread of its process execs",
    "change": "a command changes the clock",
}

_ALONE = "no other thread of its process is there to do so"
_LOCKED = "the command waits for the clock's lock, as test_a_busy_clock_... shows"
_OURS = "its threads start no process"
#: Why an act makes no sense at the places of a kind.
SENSELESS: dict[tuple[str, str], str] = {
    **{
        (act, kind): f"{act}: {_ALONE}"
        for act in ("fork", "exec")
        for kind in KINDS
        if kind not in ("program", "scheduler")
    },
    **{(act, "scheduler"): f"{act}: {_OURS}" for act in ("fork", "exec")},
    **{
        ("change", kind): f"change: {_LOCKED}"
        for kind in ("controller", "hold", "skipping", "wall", "healer", "scheduler")
    },
}

#: The tests of each act at each kind of thread, by their names.
_tests: dict[tuple[str, str], list[str]] = defaultdict(list)


def at_each(acts: str, *kinds: str) -> Callable:
    """Parametrizes a test by every `place` of kinds of threads, and notes that it does the acts."""
    every = [
        pytest.param(Place(point, way), id=f"{point}-{way.kind}")
        for point, ways in WAYS.items()
        for way in ways
        if way.kind in kinds
    ]
    assert set(acts.split()) <= set(ACTS) and every

    def decorate(test: Callable) -> Callable:
        for act in acts.split():
            for kind in kinds:
                _tests[act, kind].append(test.__name__)
        return pytest.mark.parametrize("place", every)(test)

    return decorate


def unmet(places: set[str]) -> list[str]:
    """Returns what table and tests lack: a failpoint's row, a test, or a reason for none."""
    lacks = [f"{point}: no row in WAYS" for point in places - set(WAYS)]
    lacks += [f"{point}: no such failpoint" for point in set(WAYS) - places]
    for kind in KINDS:
        for act in ACTS:
            tests, reason = _tests.get((act, kind)), SENSELESS.get((act, kind))
            if not tests and not reason:
                lacks.append(f"{act}, {KINDS[kind]}: no test, and no reason for none")
            if tests and reason:
                lacks.append(f"{act}, {KINDS[kind]}: {reason}; but {tests} do it")
    return lacks
