"""Programs in process id namespaces of their own, where several have the same number: changes of
the clock reach each of them."""

from __future__ import annotations

import functools
import os
import shlex
import signal
import time
from pathlib import Path

import pytest
from framework import build, lorentz, oracle, processes, waits
from framework.catalogue import WAITS, Case
from framework.experiments import until
from framework.needs import feature, root
from framework.running import Inside, Native, Running

LIVE = [case for case in WAITS if case.live]
#: In each of the two namespaces of a run, whose processes have the same numbers.
HALVES = (("sleep", "timers"), ("poll", "futex", "ipc"))
UNSHARE = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"]
#: Length of a wait, virtual seconds; no wait lasts that long in real time.
LONG = 100.0
AT_ONCE = 0.75
SETTLE = 0.3


@pytest.fixture(autouse=True)
def _may_make_namespaces():
    root()


def in_a_namespace(lines: list[str]) -> str:
    script = "\n".join([*(f"{line} &" for line in lines), "wait"])
    return f"{shlex.join([*UNSHARE, 'sh', '-c', script])} &"


def all_wait(program: Running) -> bool:
    """Whether every thread of a program sleeps: after its `ready` a case sleeps in its wait."""
    tasks = [
        task for pid in program.processes() for task in Path(f"/proc/{pid}/task").glob("[0-9]*")
    ]
    return all(processes.state(int(task.name)) == "S" for task in tasks)


@functools.cache
def leapt_over(threads: bool) -> tuple[waits.Results, float, float]:
    """All live cases in two namespaces on one clock, through a freeze and a leap. Returns also
    when the leap began, and the time at which the program would have begun without the freeze."""
    halves, count = [], 0
    for families in HALVES:
        lines = []
        for family in families:
            cases = [c for c in LIVE if c.family == family and (c.threads or not threads)]
            count += len(cases)
            command = waits.command(family, "dynamic", LONG, cases, threads)
            lines.append(shlex.join(map(str, command)))
        halves.append(in_a_namespace(lines))
    script = "\n".join([*halves, "wait"])
    with oracle.HostNoise() as noise, Inside("sh", "-c", script, rate="1") as inside:
        inside.wait_for(count, ev="ready")
        until(lambda: all_wait(inside), "the waits")
        time.sleep(SETTLE)
        inside.freeze()
        frozen_at = time.monotonic()
        time.sleep(SETTLE)
        begun = inside.started_at + time.monotonic() - frozen_at
        inside.unfreeze()
        assert inside.lines(ev="done") == []
        leapt_at = time.monotonic()
        inside.leap(f"{LONG}s")
        waits.gather(inside, count, patience=5)
        complaint = f"{inside.stdout[-800:]}\n{inside.stderr[-800:]}"
        collected = waits.collect(inside)
    return waits.Results(collected, noise.slack, complaint), leapt_at, begun


BOTH = [(case, threads) for case in LIVE for threads in (False, True) if case.threads >= threads]


@pytest.mark.parametrize(
    ("case", "threads"),
    BOTH,
    ids=[f"{case}-{'thread' if threads else 'process'}" for case, threads in BOTH],
)
def test_a_leap_ends_waits_in_other_namespaces(case: Case, threads: bool):
    results, leapt_at, begun = leapt_over(threads)
    result = results.of(case)
    native, _ = waits.standard(case, "dynamic", None)
    same = ("ret", "err")
    assert [result.data[key] for key in same] == [native.data[key] for key in same]
    assert result.ended.at - leapt_at < AT_ONCE + results.slack
    # From the start to the leap it lasted by the clock, which stood meanwhile; the leap was as
    # long as the wait. The line of its start may have come late.
    assert LONG <= result.data["elapsed"] < LONG + (result.ended.at - begun)


def test_a_day_in_two_namespaces_is_skipped():
    """The first process of each has the number one, and each sleeps by itself."""
    program = "import time\nfor _ in range(20): time.sleep(4320)"
    one = shlex.join([*UNSHARE, "python3", "-c", program])
    with Inside("sh", "-c", f"{one} & {one} & wait", options=["--skip-idle"]) as inside:
        inside.succeed(timeout=20)


def test_a_daemon_in_a_namespace_made_from_it_is_brought_in_by_exec():
    """`lorentz exec NAME nsenter`: one more process in the namespace, on the clock."""
    # The first process of the namespace stays: with it all others would end.
    nap = shlex.join([*UNSHARE, str(build.c("waits/sleep")), str(int(9 * LONG * 1e9)), "nanosleep"])
    with Inside("sh", "-c", f'{nap} & echo \'{{"ev": "started"}}\'; wait', rate="1") as inside:
        inside.line(ev="ready")
        first = next(pid for pid in inside.processes() if numbers_of(pid)[1:] == [1])
        enter = ["nsenter", f"--pid=/proc/{first}/ns/pid", str(build.c("waits/sleep"))]
        nap = [*enter, str(int(LONG * 1e9)), "nanosleep"]
        command = [*lorentz.session.command(), "exec", inside.name, "--", *nap]
        with Native(command, env=lorentz.session.environment()) as entered:
            entered.line(ev="ready")
            until(lambda: inside.time()["waits"] == 2, "both sleeps")
            inside.leap(f"{LONG}s")
            entered.line(ev="done", timeout=5)


def numbers_of(pid: int) -> list[int]:
    """A process's numbers, from this namespace to its own."""
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("NSpid:"))
    return [int(number) for number in line.split()[1:]]


def test_a_process_in_a_namespace_is_attached_with_its_timers():
    feature("attach")
    cases = [c.name for c in LIVE if c.family == "timers"]
    command = [*UNSHARE, str(build.c("waits/timers")), str(int(LONG * 1e9)), *cases]
    with Native(command) as native:
        ready = native.wait_for(len(cases), ev="ready")
        until(lambda: all_wait(native), "the waits")
        time.sleep(SETTLE)
        assert len(ready) == len(cases)
        first = next(pid for pid in native.processes() if len(numbers_of(pid)) > 1)
        name = lorentz.json_of("attach", str(first), "--tree")["name"]
        try:
            lorentz.ok("leap", name, "--by", f"{LONG}s")
            ended = native.wait_for(len(cases), timeout=5, ev="done")
            assert len(ended) == len(cases)
        finally:
            native.end()
            deadline = time.monotonic() + 5
            while lorentz.shown(name) and time.monotonic() < deadline:
                lorentz.call("rm", name)
                time.sleep(0.05)


def test_a_thread_that_is_killed_with_its_namespace_leaves_nothing():
    """The next change frees the killed thread's slots in the registry."""
    program = "import time; print('{}', flush=True); time.sleep(1e6)"
    sleeper = shlex.join([*UNSHARE, "python3", "-c", program])
    with Inside("sh", "-c", f"{sleeper} & sleep 1000", rate="1") as inside:
        inside.wait_for(1)
        until(lambda: inside.time()["waits"] == 2, "both sleeps")
        first = next(pid for pid in inside.processes() if len(numbers_of(pid)) > 1)
        os.kill(first, signal.SIGKILL)
        until(lambda: not Path(f"/proc/{first}").exists(), "the end of the killed thread")
        inside.leap("1s")
        assert inside.time()["waits"] == 1
