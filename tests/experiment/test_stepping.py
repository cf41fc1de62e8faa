"""Concurrent synchronisation: a simulator says how far each container goes, and each goes there."""

from __future__ import annotations

import json
import socket
import threading
import time
from contextlib import contextmanager

import pytest
from framework import build, lorentz
from framework.experiments import SECOND, Experiment, Seen, until
from framework.oracle import HostNoise


def looking(experiment: Experiment, seen: Seen, **options):
    return experiment.run(build.c("experiment/look"), seen.path, "2", **options)


def clocks(experiment: Experiment) -> dict[str, int]:
    return {one["name"]: one["virtual_ns"] for one in experiment.status()["containers"]}


@pytest.mark.parametrize("interval", [10_000, 100_000, 1_000_000, 7_654_321])
def test_after_each_progress_every_clock_is_exactly_where_it_should_be(tmp_path, interval):
    """Computing and sleeping containers, each with an interval of its own."""
    seen = Seen(tmp_path)
    with Experiment() as experiment:
        looks = looking(experiment, seen, timeline=1, tdf="2")
        sleeps = experiment.run("sleep", "100000", timeline=1)
        naps = experiment.run("bash", "-c", "while :; do sleep 0.001; done", timeline=1)
        experiment.synchronize()
        at = clocks(experiment)
        assert len(set(at.values())) == 1
        intervals = {looks.name: interval, sleeps.name: 3 * interval, naps.name: interval + 1}
        for name, length in intervals.items():
            experiment.interval(name, length)
        for _ in range(8):
            before = seen.latest
            experiment.progress()
            at = {name: time + intervals[name] for name, time in at.items()}
            assert clocks(experiment) == at
            assert before <= seen.latest <= at[looks.name]
        assert seen.backward == 0
        status = experiment.status()
        assert status["phase"] == "stepping"
        assert {one["perceived_overshoot_ns"] for one in status["containers"]} == {0}
        # The container's tasks ran, and not only its clock: the next steps take back the time it
        # ran too long.
        experiment.interval(looks, 300_000_000)

        def has_run() -> bool:
            experiment.progress()
            assert seen.latest <= experiment.clock(looks)
            return seen.latest > at[looks.name]

        until(has_run, "its tasks run")


def test_timelines_are_independent(tmp_path):
    with Experiment() as experiment:
        one = experiment.run("sleep", "1000", timeline=1)
        two = experiment.run(build.c("experiment/count"), "1000000", timeline=2)
        experiment.synchronize()
        start = experiment.clock(one)
        experiment.interval(one, 5_000_000)
        experiment.interval(two, 700_000)
        for _ in range(3):
            experiment.progress(1)
        assert (experiment.clock(one), experiment.clock(two)) == (start + 15_000_000, start)
        experiment.progress(2)
        assert experiment.clock(one) == start + 15_000_000
        assert experiment.clock(two) == start + 700_000


@contextmanager
def two_that_sleep(timeline: int):
    """An experiment with two containers, the second on `timeline`, and their virtual times."""
    with Experiment() as experiment:
        one = experiment.run("sleep", "1000", timeline=1)
        two = experiment.run("sleep", "1000", timeline=timeline)
        experiment.synchronize()
        yield experiment, one, two, experiment.clock(one)


def test_a_step_moves_each_by_its_own_time_and_no_other(tmp_path):
    """Over timelines, and whatever the intervals are."""
    seen = Seen(tmp_path)
    with Experiment() as experiment:
        looks = looking(experiment, seen, timeline=1, tdf="2")
        sleeps = experiment.run("sleep", "100000", timeline=2)
        stays = experiment.run("sleep", "100000", timeline=1)
        experiment.synchronize()
        at = clocks(experiment)
        experiment.interval(stays, 5_000_000)
        for nanos in (10_000, 300_000, 1_234_567):
            experiment.ok("step", f"{looks.name}={nanos}ns", f"{sleeps.name}=2ms")
            at[looks.name] += nanos
            at[sleeps.name] += 2_000_000
            assert clocks(experiment) == at
            assert seen.latest <= at[looks.name]
        pid = str(stays.shown()["pids"][0])
        experiment.ok("step", f"{pid}=1us")
        at[stays.name] += 1_000
        assert clocks(experiment) == at
        experiment.progress(1)
        at[stays.name] += 5_000_000
        assert clocks(experiment) == at
        assert seen.backward == 0


def test_a_step_of_many_is_one_request():
    """More names than a request of 64 KiB has."""
    count = 3_000
    with Experiment() as experiment:
        sleeps = experiment.run("sleep", "1000", timeline=1)
        experiment.synchronize()
        start = experiment.clock(sleeps)
        others = [f"nobody-of-this-long-name-{number}=1ms" for number in range(count)]
        assert "nobody" in experiment.refused("step", f"{sleeps.name}=1ms", *others, names="nobody")
        assert experiment.clock(sleeps) == start


def test_a_step_of_what_is_under_way_is_refused():
    with Experiment() as experiment:
        computes = experiment.run(build.c("experiment/count"), "100000000", timeline=1)
        sleeps = experiment.run("sleep", "1000", timeline=2)
        experiment.synchronize()
        start = experiment.clock(computes)
        thread = threading.Thread(
            target=experiment.ok, args=("step", f"{computes.name}=3s"), daemon=True
        )
        thread.start()
        until(lambda: computes.time()["monotonic_ns"] > start, "the step is under way")
        experiment.ok("step", f"{sleeps.name}=1ms")
        words = (f"{sleeps.name}=1ms", f"{computes.name}=1ms")
        again = experiment.call("step", *words)
        alive = thread.is_alive()
        thread.join(timeout=30)
        assert alive and again.returncode == 2 and "under way" in again.stderr
        assert experiment.clock(computes) == start + 3_000_000_000
        assert experiment.clock(sleeps) == start + 1_000_000


def test_an_interval_holds_until_it_is_changed_or_reset():
    with two_that_sleep(timeline=1) as (experiment, one, two, start):
        experiment.interval(one, 1_000)
        experiment.progress()
        experiment.progress()
        experiment.interval(one, 5)
        experiment.interval(two, 3)
        experiment.progress()
        assert (experiment.clock(one), experiment.clock(two)) == (start + 2_005, start + 3)
        experiment.ok("reset", "1")
        experiment.progress()
        assert (experiment.clock(one), experiment.clock(two)) == (start + 2_005, start + 3)
        experiment.interval(two, 7)
        experiment.progress()
        assert (experiment.clock(one), experiment.clock(two)) == (start + 2_005, start + 10)


def test_a_reset_of_a_timeline_leaves_the_others():
    with two_that_sleep(timeline=2) as (experiment, one, two, start):
        experiment.interval(one, 10)
        experiment.interval(two, 10)
        experiment.ok("reset", "1")
        experiment.progress(1)
        experiment.progress(2)
        assert (experiment.clock(one), experiment.clock(two)) == (start, start + 10)


def test_two_timelines_are_moved_at_once_by_two_processes():
    """A short progress returns while a long one of another timeline is under way. A second request
    for the latter is refused meanwhile."""
    with Experiment() as experiment:
        computes = experiment.run(build.c("experiment/count"), "100000000", timeline=1)
        sleeps = experiment.run("sleep", "1000", timeline=2)
        experiment.synchronize()
        start = experiment.clock(computes)
        experiment.interval(computes, 3_000_000_000)
        experiment.interval(sleeps, 1_000)
        # From here on it sleeps: it needs no processor to be moved.
        experiment.progress(2)
        ended = []

        def long() -> None:
            experiment.progress(1)
            ended.append(time.monotonic())

        thread = threading.Thread(target=long)
        thread.start()
        until(lambda: computes.time()["monotonic_ns"] > start, "the long one is under way")
        experiment.progress(2)
        again = experiment.call("progress", "1")
        short_at = time.monotonic()
        thread.join()
        assert ended
        assert short_at < ended[0]
        assert again.returncode == 2
        assert "under way" in again.stderr
        assert experiment.clock(computes) == start + 3_000_000_000
        assert experiment.clock(sleeps) == start + 2_000


def test_many_progresses_of_two_timelines_from_two_threads_are_all_exact():
    rounds = 15
    with Experiment() as experiment:
        members = [
            experiment.run("bash", "-c", "while :; do sleep 0.0005; done", timeline=timeline)
            for timeline in (1, 2)
        ]
        experiment.synchronize()
        start = experiment.clock(members[0])
        for each, interval in zip(members, (300_000, 1_100_000), strict=True):
            experiment.interval(each, interval)
        failed = []

        def move(timeline: int) -> None:
            for _ in range(rounds):
                done = experiment.call("progress", str(timeline))
                if done.returncode:
                    failed.append(done.stderr)

        threads = [threading.Thread(target=move, args=[timeline]) for timeline in (1, 2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failed
        assert [experiment.clock(each) for each in members] == [
            start + rounds * 300_000,
            start + rounds * 1_100_000,
        ]


class Caller:
    """A connection to an experiment, as a simulator has it."""

    def __init__(self, experiment: Experiment) -> None:
        self.line = socket.socket(socket.AF_UNIX)
        self.line.connect(str(experiment.place / "socket"))
        self.answers = self.line.makefile()

    def ask(self, **request: object) -> object:
        """The answer; None if the experiment has ended."""
        try:
            self.line.sendall(json.dumps(request).encode() + b"\n")
            return json.loads(self.answers.readline() or "null")
        except OSError:
            return None


def test_callers_on_many_lines_carry_their_requests_out_at_once():
    """Idle containers move in the callers' threads, one that computes by a worker, a request beside
    it by the scheduler's thread. Then the experiment ends among them: each gets answers to the end.
    """
    steps = 300
    with Experiment() as experiment:
        sleepers = [experiment.run("sleep", "100000", timeline=number) for number in (1, 2)]
        counts = experiment.run(build.c("experiment/count"), "1000000", timeline=3)
        members = [*sleepers, counts]
        experiment.synchronize()
        start = experiment.clock(counts)
        lengths = {1: 1_000_000, 2: 1_300_000, 3: 50_000}
        answers: dict[object, set[str]] = {}

        def repeat(who: object, times: int, request: dict) -> None:
            caller = Caller(experiment)
            seen = (caller.ask(**request) for _ in range(times))
            answers[who] = {
                "status" if isinstance(one, dict) and "status" in one else str(one) for one in seen
            }

        def together(times: int) -> list[threading.Thread]:
            moves = [
                threading.Thread(
                    target=repeat, args=[number, times, {"do": "progress", "timeline": number}]
                )
                for number in lengths
            ]
            looks = threading.Thread(target=repeat, args=["status", times, {"do": "status"}])
            threads = [*moves, looks]
            for thread in threads:
                thread.start()
            return threads

        for each, length in zip(members, lengths.values(), strict=True):
            experiment.interval(each, length)
        for thread in together(steps):
            thread.join(timeout=60)
        assert answers == {**dict.fromkeys(lengths, {"done"}), "status": {"status"}}
        ends = [start + steps * length for length in lengths.values()]
        assert [experiment.clock(each) for each in members] == ends

        threads = together(10 * steps)
        time.sleep(0.05)
        Caller(experiment).ask(do="end")
        for thread in threads:
            thread.join(timeout=60)
        assert not any(thread.is_alive() for thread in threads)
        assert all(said <= {"done", "status", "None"} for said in answers.values()), answers
        until(lambda: not experiment.place.exists(), "its end")


def test_a_sleeper_wakes_in_the_step_that_holds_its_deadline():
    step = 1_000_000
    with HostNoise() as noise, Experiment() as experiment:
        sleeps = experiment.run(
            build.c("experiment/sleeper"), "1", "10000000", timeline=1, tdf="100"
        )
        experiment.synchronize()
        experiment.interval(sleeps, step)
        steps = 0
        start = experiment.clock(sleeps)
        while not sleeps.lines(ev="slept"):
            experiment.progress()
            steps += 1
            assert steps < 60
            time.sleep(0.02)
        event = sleeps.line(ev="slept")
    assert event["least"] >= 0
    assert event["ended"] <= start + steps * step, "it saw a time beyond the steps"
    # By its own clock, as further steps may follow before its line arrives.
    due = event["ended"] - event["least"]
    end = start + -((start - due) // step) * step
    assert event["ended"] <= end + noise.slack * SECOND / 100


def test_a_container_that_ends_under_way_keeps_nobody_waiting():
    with Experiment() as experiment:
        stays = experiment.run("sleep", "1000", timeline=1)
        experiment.synchronize()
        ends = experiment.run("bash", "-c", "while ((i++ < 20000)); do :; done", timeline=1)
        start = experiment.clock(stays)
        for each in (ends, stays):
            experiment.interval(each, 10_000_000_000)
        experiment.progress()
        assert experiment.clock(stays) == start + 10_000_000_000
        assert ends.finish() == 0
        # The container's program ended in the step; the monitor removes the container soon.
        lorentz.wait_until_gone(ends.name)
        until(lambda: ends.name not in clocks(experiment), "is no part of it any more")
        experiment.progress()
        assert clocks(experiment) == {stays.name: start + 20_000_000_000}
