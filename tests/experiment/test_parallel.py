"""A container that runs on several processors of its experiment at once (`--parallel`)."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from framework import build, lorentz
from framework.experiments import Experiment, check_shares, is_there, numbers, stolen, until
from framework.lorentz import refusal
from framework.running import Inside

#: The last two processors, as the command line lists them.
TWO = ",".join(map(str, sorted(os.sched_getaffinity(0))[-2:]))
needs_two = pytest.mark.skipif(
    len(numbers(TWO)) < 2, reason="a container on two processors needs a machine with two"
)


def counters(number: int) -> list[str]:
    """A command that runs so many programs at once that count their work."""
    count = f"{build.c('experiment/count')} 20000000"
    return ["/bin/sh", "-c", f"{f'{count} & ' * (number - 1)}exec {count}"]


def tasks(container: Inside, number: int) -> list[int]:
    """The processes of a container, once there are so many and each has made its exec."""

    def counting() -> list[int]:
        pids = container.shown()["pids"]
        programs = [Path(f"/proc/{pid}/exe").readlink() for pid in pids]
        return pids if programs == [build.c("experiment/count")] * number else []

    return until(counting, f"{number} programs that count")


@needs_two
@pytest.mark.alone
def test_two_tasks_get_two_processors_for_each_virtual_second():
    """Beside a container that has one of them; TDFs as usual. Both count for what it wanted."""
    with Experiment("--cpus", TWO) as experiment:
        both = experiment.run(*counters(2), tdf="2", parallel=2)
        single = experiment.run(*counters(1), tdf="1")
        shares = {both.name: tasks(both, 2), single.name: tasks(single, 1)}
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.01)
        status = check_shares(experiment, shares, 0.6)
        assert [one["perceived_overshoot_ns"] for one in status["containers"]] == [0, 0]


@needs_two
@pytest.mark.alone
def test_two_tasks_run_at_once():
    """They have more than one processor in their slices: most of both. The worker that stops them
    at the end of a slice shares these processors, and does not keep a task from stopping."""
    with Experiment("--cpus", TWO) as experiment:
        both = experiment.run(*counters(2), tdf="2", parallel=2)
        tasks(both, 2)
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.01)
        taken, before = stolen("cpu"), experiment.member(both)
        experiment.advance(1)
        after, taken = experiment.member(both), stolen("cpu") - taken
    got, wanted = (after[key] - before[key] for key in ("cpu_got_ns", "cpu_wanted_ns"))
    assert got + taken > 0.7 * wanted


@needs_two
@pytest.mark.alone
def test_more_tasks_than_processors_share_them():
    with Experiment("--cpus", TWO) as experiment:
        both = experiment.run(*counters(3), tdf="2", parallel=2)
        shares = {both.name: tasks(both, 3)}
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.01)
        check_shares(experiment, shares, 0.6)


@needs_two
def test_its_tasks_may_run_on_all_its_processors():
    """Those that it starts, too; a container that does not ask has one."""
    with Experiment("--cpus", TWO) as experiment:
        both = experiment.run(*counters(2), parallel=2)
        single = experiment.run("sleep", "1000")
        with Inside("sleep", "1000") as added:
            is_there(added)
            experiment.ok("add", added.name, "--parallel", "2")
            listed = {one["name"]: one["cpus"] for one in experiment.status()["containers"]}
            usable = set(numbers(TWO))
            assert set(numbers(listed[both.name])) == set(numbers(listed[added.name])) == usable
            assert len(numbers(listed[single.name])) == 1
            for pid in [*tasks(both, 2), *added.shown()["pids"]]:
                assert os.sched_getaffinity(pid) == usable
            experiment.ok("remove", added.name)


@needs_two
@pytest.mark.parametrize("parallel", [(2, 2), (2, 1), (1, 1)], ids=str)
def test_a_simulator_moves_timelines_that_want_the_same_processors(parallel):
    """Each arrives where it is to, whoever has the processors meanwhile."""
    with Experiment("--cpus", TWO) as experiment:
        members = [
            experiment.run(*counters(number), timeline=timeline, parallel=number)
            for timeline, number in enumerate(parallel, 1)
        ]
        for each, number in zip(members, parallel, strict=True):
            tasks(each, number)
        experiment.synchronize()
        begun = [experiment.clock(each) for each in members]
        for each in members:
            experiment.interval(each, 20_000_000)
        for _ in range(5):
            for timeline in (1, 2):
                experiment.progress(timeline)
        assert [experiment.clock(each) for each in members] == [at + 100_000_000 for at in begun]


@pytest.mark.parametrize("verb", ["add", "run", "populate"])
@pytest.mark.parametrize("value", ["0", "2", "-1", "x", "4294967296"])
def test_a_wrong_number_is_named(verb, value):
    """The experiment has one processor."""
    with Experiment("--cpus", TWO.split(",")[-1]) as experiment, Inside("sleep", "1000") as other:
        is_there(other)
        arguments = {
            "add": ("experiment", "add", experiment.name, other.name),
            "run": ("run", "--experiment", experiment.name),
            "populate": ("experiment", "populate", experiment.name, "--count", "1"),
        }[verb]
        command = () if verb == "add" else ("--", "true")
        line = refusal(lorentz.call(*arguments, f"--parallel={value}", *command), "--parallel")
        assert value in line
        assert experiment.status()["containers"] == []
