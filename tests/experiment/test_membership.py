"""Containers and running processes join, leave, end and are killed while the experiment runs."""

from __future__ import annotations

import os
import signal
import time

import pytest
from framework import build, lorentz, real
from framework.experiments import SECOND, Experiment, Seen, groups_of, until
from framework.running import Inside, Native


def names(experiment: Experiment) -> set[str]:
    return {one["name"] for one in experiment.status()["containers"]}


def counter() -> list:
    return [build.c("experiment/count"), "5000000"]


@pytest.fixture
def running():
    """An experiment that runs, with a container that sleeps."""
    with Experiment() as experiment:
        experiment.sleeps = experiment.run("sleep", "100000")
        experiment.synchronize()
        experiment.start()
        yield experiment


def test_a_new_container_begins_at_the_experiments_time(running):
    """Not at the host's: a program that joins reads the same time as all others."""
    time.sleep(0.5)
    # The host's clock is ahead of a paused experiment.
    running.pause()
    time.sleep(0.3)
    at = running.clock(running.sleeps)
    counts = running.run(*counter())
    assert running.clock(counts) == at
    running.start()
    first = counts.line(ev="count")["now"]
    # The container starts within some slices.
    assert at <= first <= at + 10 * SECOND
    status = running.advance(0.05)
    assert len({one["virtual_ns"] for one in status["containers"]}) == 1
    assert {one["perceived_overshoot_ns"] for one in status["containers"]} == {0}


def test_a_container_that_is_ahead_stands_until_the_others_are_there(running, tmp_path):
    seen = Seen(tmp_path)
    with Inside(build.c("experiment/look"), seen.path, "2", rate="5") as ahead:
        until(lambda: seen.runs(), "looks")
        time.sleep(0.3)
        running.ok("add", ahead.name)
        status = running.status()
        stands = running.member(ahead, status)["virtual_ns"]
        lead = stands - running.member(running.sleeps, status)["virtual_ns"]
        assert lead > SECOND
        assert stands >= seen.latest
        running.advance(0.1)
        latest, status = seen.latest, running.status()
        if running.member(running.sleeps, status)["virtual_ns"] < stands:
            assert running.member(ahead, status)["virtual_ns"] == stands
            assert latest <= stands
        running.advance(lead / SECOND)
        status = running.advance(0.05)
        assert len({one["virtual_ns"] for one in status["containers"]}) == 1
        until(lambda: seen.latest > stands, "it goes on")
        assert seen.backward == 0
        assert running.member(ahead)["perceived_overshoot_ns"] == 0


def test_a_container_that_is_behind_leaps_to_the_others(running):
    with Inside(*counter(), rate="1/1000") as behind:
        before = behind.line(ev="count")["now"]
        running.ok("add", behind.name)
        at = running.clock(running.sleeps)
        lines = behind.wait_for(3, ev="count")
        assert lines[-1]["now"] > before
        status = running.advance(0.05)
        assert running.member(behind, status)["virtual_ns"] >= at
        assert len({one["virtual_ns"] for one in status["containers"]}) == 1


def test_a_container_leaves_a_running_experiment(running, tmp_path):
    """The container goes on by itself, from its present time, at the rate of its TDF."""
    seen = Seen(tmp_path)
    leaves = running.run(build.c("experiment/look"), seen.path, "1", tdf="1/2")
    running.advance(0.05)
    running.ok("remove", leaves.name)
    assert names(running) == {running.sleeps.name}
    assert until(lambda: seen.runs(), "looks")
    shown = leaves.time()
    assert shown["state"] == "running"
    assert shown["rate"] == "2"
    begin, host = shown["monotonic_ns"], shown["host"]["monotonic_ns"]
    time.sleep(0.2)
    later = leaves.time()
    assert later["monotonic_ns"] - begin == pytest.approx(
        2 * (later["host"]["monotonic_ns"] - host), rel=0.01, abs=100_000
    )
    assert seen.backward == 0
    leaves.dilate("3")
    running.advance(0.05)
    running.refused("remove", leaves.name, names="not in this experiment")


def test_a_killed_container_is_forgotten(running):
    victim = running.run(*counter(), tdf="2")
    (pid,) = victim.shown()["pids"]
    os.kill(pid, signal.SIGKILL)
    assert victim.finish() == 128 + signal.SIGKILL
    until(lambda: names(running) == {running.sleeps.name}, "forgotten")
    running.advance(0.1)
    until(lambda: not groups_of(victim.name), "its group is gone")


def test_when_the_leader_is_killed_another_leads(running):
    leader, next_one = (running.run(*counter(), tdf=tdf) for tdf in ("20", "2"))
    running.advance(0.02)
    assert running.status()["leader"] == leader.name
    (pid,) = leader.shown()["pids"]
    os.kill(pid, signal.SIGKILL)
    leader.finish()
    until(lambda: leader.name not in names(running), "forgotten")
    assert running.status()["leader"] == next_one.name
    begun = time.monotonic()
    running.advance(0.5)
    # At a TDF of 20 it would have taken ten seconds, at one of 2 it takes one.
    assert time.monotonic() - begun < 8


def test_a_container_with_all_its_processes_killed_in_mid_step():
    """The experiment does not wait for killed processes."""
    with Experiment() as experiment:
        victim = experiment.run(*counter(), timeline=1)
        other = experiment.run("sleep", "1000", timeline=1)
        experiment.synchronize()
        (pid,) = victim.shown()["pids"]
        start = experiment.clock(other)
        for each in (victim, other):
            experiment.interval(each, 1_000_000)
        os.kill(pid, signal.SIGKILL)
        experiment.progress()
        experiment.progress()
        assert experiment.clock(other) == start + 2_000_000
        victim.finish()


def test_a_running_process_that_is_in_no_virtual_time_is_added():
    text = (
        "import time, json\n"
        "print(json.dumps({'ev': 'up'}), flush=True)\n"
        "while True:\n"
        "    time.sleep(0.01)\n"
        "    print(json.dumps({'ev': 'now', 'now': time.monotonic_ns()}), flush=True)\n"
    )
    with Native([real.python(), "-c", text]) as native, Experiment() as experiment:
        native.line(ev="up")
        experiment.run("sleep", "1000")
        experiment.ok("add", str(native.pid), "--tdf", "2")
        status = experiment.status()
        (added,) = (one for one in status["containers"] if one["tdf"] == 2)
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.1)
        experiment.pause()
        stands = experiment.clock(added["name"])
        time.sleep(0.4)
        assert experiment.clock(added["name"]) == stands
        assert native.lines(ev="now")[-1]["now"] <= stands
        (shown,) = (one for one in lorentz.ps() if one["name"] == added["name"])
        assert native.pid in shown["pids"]
        experiment.ok("stop")
        until(lambda: native.lines(ev="now")[-1]["now"] > stands, "it goes on")
        moments = [line["now"] for line in native.lines(ev="now")]
        assert moments == sorted(moments)
        native.end()
        # A monitor that the experiment's end kills would not remove the container.
        lorentz.wait_until_gone(added["name"])


def test_an_attached_container_is_added_by_its_name_or_any_of_its_pids():
    with Native(["sleep", "1000"]) as native, Experiment() as experiment:
        name = f"{experiment.name}-attached"
        lorentz.ok("attach", "--name", name, str(native.pid))
        experiment.ok("add", str(native.pid))
        assert names(experiment) == {name}
        experiment.ok("remove", name)
        experiment.ok("add", name)
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.05)


def test_what_is_executed_in_a_member_runs_in_its_rounds(running):
    """The program gets the container's clock and processor, and stops with it."""
    line = ["exec", running.sleeps.name, "--", *map(str, counter())]
    with Native([*lorentz.session.command(), *line], env=lorentz.session.environment()) as executed:
        executed.wait_for(3, ev="count")
        running.pause()
        stands = running.clock(running.sleeps)
        time.sleep(0.3)
        assert executed.lines(ev="count")[-1]["now"] <= stands
        cpu = int(running.member(running.sleeps)["cpus"])
        for pid in running.sleeps.shown()["pids"]:
            assert os.sched_getaffinity(pid) == {cpu}
        running.start()
        running.advance(0.1)
        until(lambda: executed.lines(ev="count")[-1]["now"] > stands, "it goes on")


def test_an_experiment_whose_containers_have_all_ended_goes_on(running):
    """The experiment is empty, and a container may join."""
    (pid,) = running.sleeps.shown()["pids"]
    os.kill(pid, signal.SIGTERM)
    until(lambda: not names(running), "forgotten")
    running.advance(0.1)
    at = running.status()["virtual_ns"]
    late = running.run(*counter())
    running.advance(0.1)
    late.line(ev="count")
    assert running.status()["virtual_ns"] > at


def test_two_experiments_run_side_by_side():
    """Each has its own time and containers."""
    with Experiment("--timeslice", "1ms") as one, Experiment("--timeslice", "7ms") as other:
        for experiment, tdf in ((one, "1"), (other, "3")):
            experiment.run(*counter(), tdf=tdf)
            experiment.synchronize()
            experiment.start()
        for experiment in (one, other, one):
            experiment.advance(0.05)
        one.pause()
        stands = one.status()["virtual_ns"]
        other.advance(0.05)
        assert one.status()["virtual_ns"] == stands
        listed = {entry["name"]: entry for entry in lorentz.json_of("experiment", "status")}
        assert listed[one.name]["phase"] == "paused"
        assert listed[other.name]["phase"] == "running"
        one.ok("rm")
        other.advance(0.05)


def test_an_experiment_is_stopped_and_set_up_anew():
    with Experiment() as experiment:
        member = experiment.run(*counter())
        for _ in range(3):
            experiment.synchronize()
            assert experiment.status()["virtual_ns"] == 0
            experiment.start()
            experiment.advance(0.05)
            experiment.ok("stop")
            assert experiment.status()["containers"] == []
            assert experiment.status()["phase"] == "setting-up"
            assert member.time()["state"] == "running"
            experiment.ok("add", member.name)
        moments = [line["now"] for line in member.lines(ev="count")]
        assert moments == sorted(moments)


def test_many_join_a_synchronized_experiment():
    """They begin when the experiment starts, at its time. The command that starts them need not
    wait for that."""
    with Experiment() as experiment:
        experiment.run("sleep", "1000")
        experiment.synchronize()
        names = experiment.populate(3, "sleep", "1000")
        every = experiment.status()["containers"]
        assert {one["name"] for one in every} >= set(names)
        assert len({one["virtual_ns"] for one in every}) == 1
        experiment.start()
        experiment.advance(0.05)
