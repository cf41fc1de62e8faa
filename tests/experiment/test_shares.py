"""A container gets a share of a processor in proportion to its TDF, for each virtual second.

The kernel counts how long a process ran. That count says the share within 5 % in one measurement,
on a busy machine too (`experiments.check_shares`). How much a program does in that time is the
processor's affair: one process is a tenth quicker than another of the same program.
"""

from __future__ import annotations

import os

import pytest
from framework import build
from framework.experiments import SECOND, Experiment, check_shares
from framework.running import Inside

pytestmark = pytest.mark.alone

STEP = "20000000"


def counter() -> list:
    """The program that counts its work."""
    return [build.c("experiment/count"), STEP]


def pids(*containers: Inside) -> dict[str, list[int]]:
    """The processes of each container, by the container's name."""
    return {each.name: each.shown()["pids"] for each in containers}


def work_per_second(inside: Inside, begin: int, end: int) -> float:
    """Returns the work per virtual second, between two moments of the program's own clock."""
    lines = [line.data for line in inside.lines(ev="count") if begin <= line["now"] <= end]
    first, last = lines[0], lines[-1]
    return (last["work"] - first["work"]) / (last["now"] - first["now"]) * SECOND


def test_work_per_virtual_second_is_in_the_ratio_of_the_tdfs():
    """Two that compute, TDF 10 and 1, on one processor."""
    with Experiment() as experiment:
        pair = [experiment.run(*counter(), tdf=tdf) for tdf in ("10", "1")]
        experiment.synchronize()
        experiment.start()
        begin = experiment.advance(0.01)
        status = check_shares(experiment, pids(*pair), 0.6)
        # The work done in that time is less exact, but of the same order.
        slow, fast = (
            work_per_second(
                each,
                experiment.member(each, begin)["virtual_ns"],
                experiment.member(each, status)["virtual_ns"],
            )
            for each in pair
        )
        assert 5 < slow / fast < 20
        assert status["leader"] == pair[0].name
        assert [one["perceived_overshoot_ns"] for one in status["containers"]] == [0, 0]
        for each in pair:
            member = experiment.member(each, status)
            # Each still ran at the end of its slices.
            assert member["at_limit"] >= 0.8 * member["slices"] > 0
            assert member["cpu_got_ns"] > 0
        # Both want the whole processor: eleven real seconds for a virtual one.
        assert status["slowdown"] > 0.9 * 11


def test_a_tdf_below_one_is_a_smaller_share():
    with Experiment("--timeslice", "10ms") as experiment:
        pair = [experiment.run(*counter(), tdf=tdf) for tdf in ("1", "1/2")]
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.01)
        check_shares(experiment, pids(*pair), 2)


def test_a_tdf_is_changed_in_mid_run():
    """From 1 to 4 and back; the other's stays."""
    with Experiment() as experiment:
        changed, other = (experiment.run(*counter(), tdf=tdf) for tdf in ("1", "1"))
        experiment.synchronize()
        experiment.start()
        for tdf in ("1", "4", "1"):
            experiment.dilate(changed, tdf)
            assert experiment.member(changed)["tdf"] == float(tdf)
            assert experiment.member(other)["tdf"] == 1
            experiment.advance(0.01)
            check_shares(experiment, pids(changed, other), 0.6)


def test_each_container_is_kept_to_one_of_the_experiments_processors():
    usable = sorted(os.sched_getaffinity(0))
    chosen = usable[-2:]
    with Experiment("--cpus", ",".join(map(str, chosen))) as experiment:
        members = [experiment.run("sleep", "1000") for _ in range(3)]
        status = experiment.status()
        kept = [int(experiment.member(each, status)["cpus"]) for each in members]
        assert set(kept) == set(chosen)
        for each, cpu in zip(members, kept, strict=True):
            (pid,) = each.shown()["pids"]
            assert os.sched_getaffinity(pid) == {cpu}


def test_one_processor_is_left_for_the_rest():
    usable = sorted(os.sched_getaffinity(0))
    with Experiment() as experiment:
        listed = experiment.status()["cpus"]
    assert listed == cpu_list(usable[1:] or usable)


def cpu_list(cpus: list[int]) -> str:
    """Formats processors as the command line does: 0,2-5."""
    spans: list[list[int]] = []
    for cpu in cpus:
        if spans and cpu == spans[-1][-1] + 1:
            spans[-1].append(cpu)
        else:
            spans.append([cpu])
    return ",".join(str(s[0]) if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)
