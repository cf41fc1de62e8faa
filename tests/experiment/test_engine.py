"""The process of an experiment ends, in good order or not: no container stands still forever, and
nothing is left."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest
from framework import build, lorentz, processes
from framework.experiments import Experiment, Seen, groups_of, until
from framework.lorentz import refusal
from framework.running import Inside

#: Seconds after which the containers of a dead experiment go on by themselves, and a margin.
ORPHANED_FOR = 10
WAIT_TIMEOUT = 10


def has_ended(pid: int) -> bool:
    return processes.has_ended(pid)


def looking(experiment: Experiment, seen: Seen, **options) -> Inside:
    return experiment.run(build.c("experiment/look"), seen.path, "2", **options)


def kill(experiment: Experiment, engine: int | None = None) -> None:
    """Kills the experiment's process by SIGKILL: it cannot notify any other process."""
    pid = engine or experiment.engine
    os.kill(pid, signal.SIGKILL)
    until(lambda: has_ended(pid), "killed")


def check_goes_on(seen: Seen, inside: Inside) -> None:
    """Checks that a container's tasks and clock run, and that commands may change the clock."""
    latest = seen.latest
    assert until(lambda: seen.runs(0.1), "runs")
    assert until(lambda: seen.latest > latest, "its clock runs")
    assert seen.backward == 0
    assert inside.time()["limit_ns"] is None
    inside.dilate("2")


def started(experiment: Experiment, seen: Seen) -> Inside:
    """A container that looks at its clock, in an experiment that has run for a while."""
    looks = looking(experiment, seen)
    experiment.synchronize()
    experiment.start()
    experiment.advance(0.05)
    return looks


@pytest.mark.parametrize("manner", ["running", "paused", "stepping"])
def test_a_killed_experiments_containers_stand_still_until_rm_lets_them_go(tmp_path, manner):
    seen = Seen(tmp_path)
    with Experiment() as experiment:
        timeline = 1 if manner == "stepping" else None
        looks = looking(experiment, seen, timeline=timeline)
        sleeps = experiment.run("sleep", "1000", timeline=timeline)
        experiment.synchronize()
        if manner == "stepping":
            experiment.interval(looks, 10_000_000)
            experiment.progress()
        else:
            experiment.start()
            experiment.advance(0.05)
        if manner == "paused":
            experiment.pause()
        kill(experiment)
        # The tasks may run on; their clock stands at the end of its slice.
        time.sleep(0.1)
        stands = looks.time()["monotonic_ns"]
        time.sleep(0.5)
        assert looks.time()["monotonic_ns"] == stands
        assert seen.latest <= stands
        assert seen.backward == 0
        for call in ("status", "start", "synchronize"):
            refusal(experiment.call(call), "rm")
        refusal(lorentz.call("dilate", looks.name, "--rate", "2"), experiment.name)
        listed = lorentz.json_of("experiment", "status")
        assert {"name": experiment.name, "phase": "dead"} in listed
        assert experiment.name in lorentz.ok("experiment", "status")
        experiment.ok("rm")
        check_goes_on(seen, looks)
        sleeps.dilate("2")
        assert not experiment.place.exists()
        refusal(experiment.call("status"), "no such experiment")
        until(lambda: not experiment.processes(), "its guard has ended")


def test_without_rm_they_go_on_by_themselves_after_a_while(tmp_path):
    seen = Seen(tmp_path)
    with Experiment() as experiment:
        looks = started(experiment, seen)
        killed = time.monotonic()
        kill(experiment)
        time.sleep(1)
        stands = looks.time()["monotonic_ns"]
        until(lambda: seen.latest > stands, "goes on", ORPHANED_FOR + WAIT_TIMEOUT)
        assert time.monotonic() - killed >= ORPHANED_FOR
        check_goes_on(seen, looks)
        until(lambda: not experiment.place.exists(), "nothing is left")
        until(lambda: not experiment.processes(), "its guard has ended")


def test_programs_that_send_go_on_when_the_experiment_was_killed():
    """No process gives them their turn to send any more, and they need none."""
    script = 'while :; do echo "{\\"ev\\":\\"sent\\"}"; sleep 0.01; done'
    with Experiment() as experiment:
        sends = experiment.run("sh", "-c", script)
        experiment.synchronize()
        experiment.start()
        sends.wait_for(3, ev="sent")
        kill(experiment)
        experiment.ok("rm")
        count = len(sends.lines(ev="sent"))
        # Some messages may have been on their way.
        sends.wait_for(count + 20, timeout=WAIT_TIMEOUT, ev="sent")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_it_in_good_order(tmp_path, number):
    """The experiment's containers go on at once."""
    seen = Seen(tmp_path)
    with Experiment() as experiment:
        looks = started(experiment, seen)
        pid = experiment.engine
        os.kill(pid, number)
        until(lambda: has_ended(pid), "ended")
        assert not experiment.place.exists()
        check_goes_on(seen, looks)
        refusal(experiment.call("status"), "no such experiment")
        until(lambda: not experiment.processes(), "its guard has ended")


def test_rm_leaves_nothing():
    """No file, process or control group stays, except those of containers that go on."""
    with Experiment() as experiment:
        member = experiment.run("sleep", "1000")
        many = experiment.populate(3, "sleep", "1000")
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.05)
        engine = experiment.engine
        assert len(groups_of(member.name, *many)) == 4
        experiment.ok("rm")
        assert has_ended(engine) or until(lambda: has_ended(engine), "ended")
        assert not experiment.place.exists()
        assert {one["state"] for one in lorentz.ps() if one["name"] in (member.name, *many)} == {
            "running"
        }
        for pid in [pid for name in many for pid in lorentz.shown(name)["pids"]]:
            os.kill(pid, signal.SIGTERM)
        for name in many:
            lorentz.wait_until_gone(name)
        member.end()
        until(lambda: not groups_of(member.name, *many), "no group is left")
        until(lambda: not experiment.processes(), "nobody runs")
        left = [path.name for path in lorentz.session.state_dir().iterdir()]
        assert not [name for name in left if experiment.name in name or name == member.name]


@contextmanager
def caller_that_reads_no_answer(experiment: Experiment) -> Iterator[None]:
    """Has the experiment write answers into a full connection. Its process lasts a second longer
    than the experiment."""
    folder = os.open(experiment.place, os.O_PATH)
    with socket.socket(socket.AF_UNIX) as caller:
        caller.connect(f"/proc/self/fd/{folder}/socket")
        os.close(folder)
        caller.setblocking(False)
        end = time.monotonic() + WAIT_TIMEOUT
        blocked = 0
        while blocked < 20:
            assert time.monotonic() < end, "its answers block"
            try:
                caller.send(b'{"do": "status"}\n' * 100)
                blocked = 0
            except BlockingIOError:
                blocked += 1
                time.sleep(0.02)
        yield


def test_the_end_of_an_experiment_spares_the_next_one_of_its_name():
    """Its process and its guard end later, and clear up nothing then."""
    with Experiment() as experiment:
        with caller_that_reads_no_answer(experiment):
            first = experiment.engine
            experiment.ok("rm")
            assert not has_ended(first), "it still has an answer to write"
            experiment.ok("create")
            member = experiment.run("sleep", "1000")
            experiment.synchronize()
            until(lambda: has_ended(first), "the first one has ended")
        time.sleep(ORPHANED_FOR + 1)
        assert experiment.status()["phase"] == "synchronized"
        assert member.time()["limit_ns"] is not None


def test_the_caller_of_a_progress_is_told_when_the_experiment_ends():
    """The call returns with one line and an error; it does not hang."""
    with Experiment() as experiment:
        counts = experiment.run(build.c("experiment/count"), "100000000", timeline=1)
        experiment.synchronize()
        experiment.interval(counts, 10_000_000_000)
        done, engine = [], experiment.engine
        stood = counts.time()["monotonic_ns"]
        thread = threading.Thread(target=lambda: done.append(experiment.call("progress", "1")))
        thread.start()
        until(lambda: counts.time()["monotonic_ns"] > stood, "the progress is under way")
        kill(experiment, engine)
        thread.join(timeout=10)
        assert done
        assert done[0].returncode == 1
        assert len(done[0].stderr.splitlines()) == 1


def test_a_guard_that_is_killed_is_no_part_of_the_rest():
    """The experiment goes on without it."""
    with Experiment() as experiment:
        experiment.run("sleep", "1000")
        engine = experiment.engine
        others = [pid for pid in experiment.processes() if pid != engine]
        for pid in others:
            os.kill(pid, signal.SIGKILL)
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.05)


def test_a_monitor_that_is_killed_stops_no_round():
    """The container's programs run on in the rounds. The experiment does not wait for the
    monitor."""
    with Experiment() as experiment:
        counts = experiment.run(build.c("experiment/count"), "5000000")
        other = experiment.run("sleep", "1000")
        experiment.synchronize()
        experiment.start()
        experiment.advance(0.02)
        (pid,) = counts.shown()["pids"]
        os.kill(counts.monitor(), signal.SIGKILL)
        try:
            experiment.advance(0.2)
            assert other.name in {one["name"] for one in experiment.status()["containers"]}
        finally:
            os.kill(pid, signal.SIGKILL)


class Caller:
    """A connection to an experiment's socket."""

    def __init__(self, experiment: Experiment) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(experiment.place / "socket"))
        self._answers = self._socket.makefile()

    def ask(self, **request: object) -> object:
        """Sends a request, and returns its answer."""
        self._socket.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(self._answers.readline())


def test_requests_beside_moves_see_all_containers():
    """Several clients at once: while one moves its timeline, others ask for the status. Each status
    has every container, whatever came in while the one before waited."""
    with Experiment() as experiment:
        for timeline in (1, 2):
            experiment.run(build.c("experiment/count"), "1000000000000", timeline=timeline)
        experiment.synchronize()
        for member in experiment.status()["containers"]:
            experiment.interval(member["name"], 5_000_000)
        seen: list[int] = []

        def moves(timeline: int) -> None:
            caller = Caller(experiment)
            for _ in range(40):
                assert caller.ask(do="progress", timeline=timeline) == "done"

        def looks() -> None:
            caller = Caller(experiment)
            for _ in range(40):
                seen.append(len(caller.ask(do="status")["status"]["containers"]))

        with ThreadPoolExecutor() as clients:
            tasks = [clients.submit(moves, timeline) for timeline in (1, 2)]
            tasks += [clients.submit(looks) for _ in range(4)]
            for task in tasks:
                task.result()
    assert seen == [2] * 160
