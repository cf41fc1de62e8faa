"""Share of a processor for each container: in proportion to its TDF, for each virtual second."""

from __future__ import annotations

import math
import os
import shutil

import pytest
from framework import build
from framework.experiments import SECOND, Experiment
from framework.running import Inside

#: Greatest relative error of a share.
TOLERANCE = 0.05
#: Number of measurements: other load of the machine may take time from one container only.
TRIES = 6
STEP = "20000000"


def counter() -> list:
    """The command of the program that counts its work; as root, with priority over other
    programs."""
    before_others = ["nice", "-n", "-20"] if os.geteuid() == 0 and shutil.which("nice") else []
    return [*before_others, build.c("experiment/count"), STEP]


def work_per_second(inside: Inside, begin: int, end: int) -> float:
    """Returns the work per virtual second, between two moments of the program's own clock."""
    lines = [line.data for line in inside.lines(ev="count") if begin <= line["now"] <= end]
    first, last = lines[0], lines[-1]
    return (last["work"] - first["work"]) / (last["now"] - first["now"]) * SECOND


def ratio_in(experiment: Experiment, one: Inside, other: Inside, seconds: float) -> float:
    """Returns the ratio of their work, over `seconds` of virtual time from now on."""
    begin = experiment.status()
    end = experiment.advance(seconds)
    spans = [
        (experiment.member(each, begin)["virtual_ns"], experiment.member(each, end)["virtual_ns"])
        for each in (one, other)
    ]
    fast, slow = (
        work_per_second(each, *span) for each, span in zip((one, other), spans, strict=True)
    )
    return fast / slow


def ratio_of_shares(
    experiment: Experiment, pair: list[Inside], tdfs: list[str], seconds: float
) -> float:
    """Returns the ratio of the work at two TDFs; two programs had each of both.

    Two processes of the same program differ by a tenth in speed; that cancels out.
    """
    ratios = []
    for first, second in (pair, reversed(pair)):
        for inside, tdf in zip((first, second), tdfs, strict=True):
            experiment.dilate(inside, tdf)
        experiment.advance(0.01)
        ratios.append(ratio_in(experiment, first, second, seconds))
    return math.sqrt(math.prod(ratios))


def check(measure, expected: float) -> None:
    """Checks that a measurement is as expected, in one of a few tries."""
    got = []
    for _ in range(TRIES):
        got.append(measure())
        if abs(got[-1] / expected - 1) <= TOLERANCE:
            return
    pytest.fail(f"{got}, none of them within {TOLERANCE:.0%} of {expected}")


def test_work_per_virtual_second_is_in_the_ratio_of_the_tdfs():
    """Two that compute, TDF 10 and 1, on one processor."""
    with Experiment() as experiment:
        pair = [experiment.run(*counter(), tdf=tdf) for tdf in ("10", "1")]
        experiment.synchronize()
        experiment.start()
        check(lambda: ratio_of_shares(experiment, pair, ["10", "1"], 0.2), 10)
        status = experiment.status()
        # The container that had TDF 10 last.
        assert status["leader"] == pair[1].name
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
        check(lambda: ratio_of_shares(experiment, pair, ["1", "1/2"], 0.5), 2)


def test_a_tdf_is_changed_in_mid_run():
    """From 1 to 4 and back; the other's stays."""
    with Experiment() as experiment:
        changed, other = (experiment.run(*counter(), tdf=tdf) for tdf in ("1", "1"))
        experiment.synchronize()
        experiment.start()

        def ratio_at(tdf: str) -> float:
            experiment.dilate(changed, tdf)
            assert experiment.member(changed)["tdf"] == float(tdf)
            assert experiment.member(other)["tdf"] == 1
            experiment.advance(0.01)
            return ratio_in(experiment, changed, other, 0.2)

        # Compared with their work at the same TDF: processes differ in speed.
        check(lambda: (1 / ratio_at("1")) * ratio_at("4"), 4)
        check(lambda: ratio_at("4") / ratio_at("1"), 4)
        assert ratio_at("1") == pytest.approx(1, rel=0.25)


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
