"""Clock readings of programs: never a time beyond a round's end, never one earlier than before."""

from __future__ import annotations

import time

import pytest
from framework import build
from framework.experiments import SECOND, Experiment, Seen, until
from framework.running import Inside

#: Number of reading threads in each container.
THREADS = 3


@pytest.fixture
def seen(tmp_path) -> Seen:
    return Seen(tmp_path)


def looking(experiment: Experiment, seen: Seen, **options) -> Inside:
    return experiment.run(build.c("experiment/look"), seen.path, str(THREADS), **options)


def check(seen: Seen, experiment: Experiment, container: Inside) -> None:
    """Checks that no reading is beyond the clock, and that no thread saw time go back."""
    latest = seen.latest
    member = experiment.member(container)
    assert latest <= member["virtual_ns"]
    assert seen.backward == 0
    assert member["perceived_overshoot_ns"] == 0


@pytest.mark.parametrize("timeslice", ["300us", "3ms", "30ms"])
def test_nobody_sees_a_time_beyond_the_rounds_end(tmp_path, timeslice):
    """Three containers that only read their clocks; between rounds all stand at a round's end."""
    all_seen = [Seen(tmp_path) for _ in range(3)]
    with Experiment("--timeslice", timeslice) as experiment:
        members = [
            looking(experiment, seen, tdf=tdf)
            for seen, tdf in zip(all_seen, ("1", "2", "1/2"), strict=True)
        ]
        experiment.synchronize()
        begin = experiment.member(members[0])["virtual_ns"]
        for seen in all_seen:
            assert seen.latest <= begin
        experiment.start()
        for _ in range(6):
            # A status is taken between two rounds.
            status = experiment.advance(0.03)
            ends = {experiment.member(each, status)["virtual_ns"] for each in members}
            assert ends == {begin + status["virtual_ns"]}
            assert status["virtual_ns"] % status["timeslice_ns"] == 0
        until(lambda: all(seen.latest > begin for seen in all_seen), "all have run")
        experiment.pause()
        time.sleep(0.1)
        for each, seen in zip(members, all_seen, strict=True):
            check(seen, experiment, each)


def test_time_does_not_go_back_through_whatever_happens_to_it(seen):
    """Rounds, pause, start, other TDFs, remove, add, stop, and once more."""
    with Experiment("--timeslice", "2ms") as experiment:
        looks = looking(experiment, seen)
        other = experiment.run("sleep", "1000", tdf="3")
        for again in range(2):
            until(lambda: seen.runs(), "looks")
            experiment.synchronize()
            check(seen, experiment, looks)
            experiment.start()
            for tdf in ("5", "1/4", "1"):
                experiment.advance(0.02)
                experiment.dilate(looks, tdf)
                check(seen, experiment, looks)
            experiment.pause()
            stood = experiment.clock(looks)
            time.sleep(0.1)
            assert experiment.clock(looks) == stood
            assert seen.latest <= stood
            assert not seen.runs()
            experiment.start()
            experiment.advance(0.02)
            experiment.ok("remove", looks.name)
            assert until(lambda: seen.runs(), "goes on by itself")
            experiment.ok("add", looks.name)
            # The container's clock stands until the others have come as far.
            experiment.advance(0.02)
            check(seen, experiment, looks)
            experiment.ok("stop")
            if not again:
                experiment.ok("add", looks.name)
                experiment.ok("add", other.name, "--tdf", "3")
        assert until(lambda: seen.runs(), "goes on by itself")
        assert seen.backward == 0


def test_a_paused_experiment_stands_still(seen):
    with Experiment() as experiment:
        looks = looking(experiment, seen)
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.05)
        experiment.pause()
        status, reads = experiment.status(), seen.reads
        time.sleep(0.3)
        assert seen.reads == reads
        later = experiment.status()
        assert later["virtual_ns"] == status["virtual_ns"]
        assert later["rounds"] == status["rounds"]
        assert later["phase"] == "paused"
        assert experiment.member(looks, later) == experiment.member(looks, status)
        experiment.start()
        experiment.advance(0.05)
        assert seen.reads > reads


def test_containers_are_at_one_virtual_time_when_they_are_synchronized(tmp_path):
    """At the latest of their times; and their wall clocks show the same."""
    watch = [build.c("clocks/clocks"), "watch", str(10**15), str(10**7)]
    with Experiment() as experiment:
        fast = experiment.run(*watch, tdf="1/20")
        slow = experiment.run(*watch, tdf="20")
        time.sleep(0.3)
        ahead = experiment.clock(fast) - experiment.clock(slow)
        assert ahead > 4 * SECOND
        experiment.synchronize()
        status = experiment.status()
        at = experiment.member(fast, status)["virtual_ns"]
        assert experiment.member(slow, status)["virtual_ns"] == at
        assert status["virtual_ns"] == 0
        times = [each.time() for each in (fast, slow)]
        assert times[0]["wall"] == times[1]["wall"]
        assert {one["monotonic_ns"] for one in times} == {at}
