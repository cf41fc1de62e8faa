"""Waits and timers of a container that runs in rounds: the kernel's results, no EINTR that natively
would not come, and never an early end."""

from __future__ import annotations

import shlex

import pytest
from framework import build, catalogue, oracle, waits
from framework.catalogue import Case
from framework.experiments import SECOND, Experiment
from framework.oracle import HostNoise

NOMINAL = 0.3
FAMILIES = ("sleep", "poll", "futex", "ipc", "timers")
#: Cases by family; cases that wait for whole seconds run with the others.
CASES = {family: tuple(catalogue.of(family)) for family in FAMILIES}


def beside_a_busy_process(command: list) -> list[str]:
    """Returns a shell command that runs the command beside a busy process. So the container is
    awake at the end of each slice: the freezer stops it and lets it go on, until the busy process
    is ended."""
    spin = shlex.join([str(build.c("experiment/count")), str(1000 * SECOND)])
    return ["bash", "-c", f"{spin} > /dev/null & {shlex.join(map(str, command))}; wait"]


class Run:
    """The cases of a family in a running experiment, another container beside."""

    def __init__(self, family: str) -> None:
        line = waits.command(family, "dynamic", NOMINAL, list(CASES[family]), threads=False)
        with HostNoise() as noise, Experiment() as experiment:
            experiment.run(build.c("experiment/count"), str(SECOND))
            experiment.synchronize()
            inside = experiment.run(*beside_a_busy_process(line), tdf="2")
            experiment.start()
            waits.gather(inside, len(CASES[family]), patience=60)
            self.results = waits.collect(inside)
            self.member = experiment.member(inside)
            self.slowdown = experiment.status()["slowdown"]
            self.output = inside.stdout[-1500:] + inside.stderr[-500:]
        self.noise = noise.slack


@pytest.fixture(scope="module")
def runs():
    kept: dict[str, Run] = {}

    def of(family: str) -> Run:
        if family not in kept:
            kept[family] = Run(family)
        return kept[family]

    return of


@pytest.mark.parametrize("case", [case for family in FAMILIES for case in CASES[family]], ids=str)
def test_a_wait_is_the_kernels_and_never_early(runs, case: Case):
    run = runs(case.family)
    native, _ = waits.standard(case, "dynamic", None)
    assert case.name in run.results, f"{case} did not end\n{run.output}"
    data = run.results[case.name].data
    assert oracle.same(data) == oracle.same(native.data)
    # A stop costs no virtual time. The lateness is the case's own, plus slices in which other
    # containers, cases or programs of the machine ran.
    late = waits.late(case) * data["expect"] + run.noise + 0.5
    assert -1e-6 <= data["elapsed"] - data["expect"] <= late


@pytest.mark.parametrize("family", FAMILIES)
def test_they_were_stopped_in_their_midst(runs, family):
    member = runs(family).member
    assert member["at_limit"] > 20
    assert member["perceived_overshoot_ns"] == 0


@pytest.mark.parametrize(
    "case",
    [
        *("timer-monotonic-rel", "timer-realtime-abs", "setitimer", "setitimer-pause", "alarm"),
        *("timerfd-periodic", "timer-periodic", "setitimer-periodic"),
    ],
)
def test_a_timer_wakes_a_container_in_which_all_sleep(case):
    """Time jumps to its expiry, and not beyond."""
    with Experiment("--as-fast-as-possible") as experiment:
        experiment.run("sleep", "100000")
        experiment.synchronize()
        program = [build.c("waits/timers"), str(round(NOMINAL * SECOND)), case]
        inside = experiment.run(*program)
        experiment.start()
        data = inside.line(ev="done", case=case, timeout=5).data
    assert data["elapsed"] >= data["expect"] - 1e-6


def test_waits_without_an_end_are_not_interrupted():
    """Natively, epoll_wait(-1) is interrupted when a stopped process continues; not here."""
    with Experiment("--timeslice", "1ms") as experiment:
        experiment.run(build.c("experiment/count"), str(SECOND))
        experiment.synchronize()
        waits_forever = experiment.run(build.c("experiment/forever"), str(SECOND // 5))
        experiment.start()
        assert waits_forever.finish(timeout=60) == 0
        ended = {line["case"]: line for line in waits_forever.lines(ev="done")}
        count = waits_forever.line(ev="ready")["waiters"]
    assert len(ended) == count
    assert {name: line["err"] for name, line in ended.items()} == dict.fromkeys(ended, 0)
    assert all(line["ret"] >= 0 for line in ended.values())


@pytest.mark.parametrize("step", [1_000_000, 20_000_000])
def test_waits_without_an_end_are_not_interrupted_by_steps(step):
    with Experiment() as experiment:
        experiment.run("sleep", "1000", timeline=1)
        experiment.synchronize()
        waits_forever = experiment.run(build.c("experiment/forever"), str(10 * step), timeline=1)
        experiment.interval(waits_forever, step)
        for _ in range(400):
            experiment.progress()
            if waits_forever.lines(ev="end"):
                break
        ended = {line["case"]: line["err"] for line in waits_forever.lines(ev="done")}
    assert len(ended) == 9
    assert set(ended.values()) == {0}


def test_a_pause_interrupts_nothing():
    """Pause and start again in the midst of waits with and without an end."""
    with HostNoise() as noise, Experiment() as experiment:
        experiment.run("sleep", "1000")
        experiment.synchronize()
        forever = experiment.run(build.c("experiment/forever"), str(SECOND // 10))
        sleeps = experiment.run(build.c("experiment/sleeper"), "3", str(SECOND // 20))
        experiment.start()
        for _ in range(5):
            experiment.advance(0.01)
            experiment.pause()
            experiment.start()
        event = sleeps.line(ev="slept")
        assert event["least"] >= 0
        assert event["median"] <= noise.slack * SECOND
        assert forever.finish(timeout=30) == 0
        assert {line["err"] for line in forever.lines(ev="done")} == {0}
