"""The Python package: experiments and containers, as a program or a notebook uses them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from pathlib import Path

import pytest
from framework import experiments, lorentz
from framework.linked import spin, stands, works
from framework.running import Inside, Native
from lorentz import (
    Container,
    EndedError,
    Experiment,
    LorentzError,
    NotFoundError,
    RefusedError,
    WrongInputError,
)

#: Counts without pause, and writes the count into a file of eight bytes.
COUNTER = """
import mmap, sys
with open(sys.argv[1], "r+b") as file:
    page = mmap.mmap(file.fileno(), 8)
count = 0
while True:
    for _ in range(100):
        pass
    count += 1
    page[:] = count.to_bytes(8, "little")
"""


def counter(folder: Path, name: str) -> tuple[list[str], Path]:
    """The command of a counting program, and its file."""
    page = folder / name
    page.write_bytes(bytes(8))
    return [sys.executable, "-c", COUNTER, str(page)], page


def count(page: Path) -> int:
    return int.from_bytes(page.read_bytes(), "little")


def wait_until(condition, what: str, timeout: float = 15) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, f"not within {timeout} s: {what}"
        time.sleep(0.02)


@pytest.mark.alone
def test_processor_time_per_virtual_second_is_in_the_ratio_of_the_tdfs(tmp_path):
    """TDF 10 gets ten times what TDF 1 gets for a virtual second, within 5 %.

    The test does not compare their work: one process may be a fifth slower than another of the same
    program.
    """
    with Experiment(timeslice="3ms") as experiment:
        started = []
        for name, tdf in (("slow", 10), ("fast", 1)):
            command, page = counter(tmp_path, name)
            container = experiment.container(tdf=tdf)
            started.append((container, container.popen(command), page))
        try:
            wait_until(lambda: all(count(page) for *_, page in started), "both count")
            experiment.synchronize()
            experiment.start()
            pids = {one.name: lorentz.shown(one.name)["pids"] for one, *_ in started}
            shown = experiments.Experiment(name=experiment.name)
            begin = shown.advance(0.01)
            between = experiment.status()
            end = experiments.check_shares(shown, pids, 0.6)
            # The package tells the same as the command.
            for one in between.containers:
                first, last = (shown.member(one.name, status) for status in (begin, end))
                assert first["cpu_got_ns"] <= one.cpu_got_ns < last["cpu_got_ns"]
                assert first["virtual_ns"] <= one.virtual_ns < last["virtual_ns"]
            # Whichever began first.
            assert sorted(one.tdf for one in experiment.status().containers) == [1, 10]
        finally:
            experiment.stop()
            for _, process, _ in started:
                process.terminate()
                process.wait(timeout=10)


def test_a_simulator_moves_containers():
    with spin() as program:
        with Experiment() as experiment:
            container = experiment.add(program.pid, tdf=2, timeline=3)
            experiment.synchronize()
            assert stands(program.pid)
            begin = container.time()
            experiment.set_interval(container, "250us", timeline=3)
            for _ in range(4):
                experiment.progress(3)
            assert container.time().monotonic_ns - begin.monotonic_ns == 1_000_000
            assert container.time().wall_ns - begin.wall_ns == 1_000_000
            experiment.reset(3)
            experiment.progress(3)
            assert container.time().monotonic_ns - begin.monotonic_ns == 1_000_000
        assert works(program.pid), "it goes on by itself"


def test_a_step_moves_each_by_its_own_time():
    with Experiment() as experiment, spin() as busy, Native(["sleep", "1000"]) as idle:
        containers = [experiment.add(one.pid, timeline=at) for at, one in enumerate((busy, idle))]
        experiment.synchronize()
        begin = [one.time().monotonic_ns for one in containers]
        experiment.step({busy.pid: "250us", containers[1]: timedelta(milliseconds=3)})
        experiment.step({containers[0]: 0.001})
        gone = [one.time().monotonic_ns - at for one, at in zip(containers, begin, strict=True)]
        assert gone == [1_250_000, 3_000_000]
        for wrong in ({busy.pid: 0}, {busy.pid: "1ms", containers[0]: "1ms"}):
            with pytest.raises(WrongInputError):
                experiment.step(wrong)
        with pytest.raises(RefusedError):
            experiment.step({containers[0]: "1ms", "no-such-container": "1ms"})
        assert containers[0].time().monotonic_ns - begin[0] == 1_250_000


def test_a_container_asks_for_processors():
    cpus = sorted(os.sched_getaffinity(0))
    listed = ",".join(map(str, cpus))
    with Experiment(cpus=listed) as experiment, spin() as program:
        for parallel in (0, len(cpus) + 1):
            with pytest.raises(RefusedError, match="--parallel"):
                experiment.add(program.pid, parallel=parallel)
        experiment.add(program.pid, parallel=len(cpus))
        made = experiment.container(parallel=len(cpus))
        with made.popen(["sleep", "1000"]) as process:
            wait_until(lambda: len(experiment.status().containers) == 2, "both are in it")
            for one in experiment.status().containers:
                assert experiments.numbers(one.cpus) == cpus
            process.terminate()


def test_computing_takes_no_time():
    """Each container chooses, or has the experiment's choice."""
    with Experiment(compute="none") as experiment, spin() as program:
        experiment.add(program.pid, compute="real")
        own = experiment.container(compute="none")
        with own.popen(["sleep", "1000"]) as process:
            wait_until(lambda: len(experiment.status().containers) == 2, "both are in it")
            chosen = {one.name == own.name: one.compute for one in experiment.status().containers}
            assert chosen == {True: "none", False: "real"}
            process.terminate()
        with pytest.raises(WrongInputError, match="compute some: expected"):
            experiment.add(program.pid, compute="some")
    with pytest.raises(WrongInputError, match="compute some: expected"):
        Experiment(compute="some")


def test_a_members_tdf_is_changed_by_either_name():
    with Experiment() as experiment, spin() as program:
        container = experiment.add(program.pid, tdf=2)
        for change, tdf in ((container.dilate, 3), (lambda n: experiment.dilate(container, n), 4)):
            change(tdf)
            assert [one.tdf for one in experiment.status().containers] == [tdf]
        with pytest.raises(RefusedError):
            container.dilate(5, at=datetime.now(timezone.utc) + timedelta(hours=1))


def test_two_threads_move_two_timelines():
    with Experiment() as experiment, spin() as busy, Native(["sleep", "1000"]) as idle:
        experiment.add(busy.pid, timeline=0)
        experiment.add(idle.pid, timeline=1)
        experiment.synchronize()
        experiment.set_interval(busy.pid, 2.0)
        experiment.set_interval(idle.pid, timedelta(milliseconds=1))
        begin = Container.find(idle.pid).time().monotonic_ns
        thread = threading.Thread(target=experiment.progress, args=(0,))
        thread.start()
        steps = 0
        while thread.is_alive():
            experiment.progress(1)
            steps += 1
        thread.join()
        assert steps > 1
        gone = Container.find(idle.pid).time().monotonic_ns - begin
        assert gone == steps * 1_000_000


def test_programs_run_in_a_container():
    with Experiment() as experiment:
        container = experiment.container("py-node", tdf=1)
        with pytest.raises(NotFoundError, match="py-node"):
            container.time()
        done = container.run(["cat"], input=b"through\n", stdout=subprocess.PIPE, timeout=20)
        assert (done.returncode, done.stdout) == (0, b"through\n")
        with container.popen(["sleep", "1000"]) as first:
            wait_until(lambda: lorentz.shown("py-node") is not None, "it is there")
            done = container.run(["sh", "-c", "exit 7"], timeout=20)
            assert done.returncode == 7
            with pytest.raises(subprocess.CalledProcessError):
                container.run(["false"], check=True, timeout=20)
            assert [one.name for one in experiment.status().containers] == ["py-node"]
            first.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            container.run(["sleep", "1000"], timeout=1)


def test_the_clock_of_a_container():
    with spin() as program:
        container = Container.attach(program.pid, Fraction(1, 3), name="py-clock")
        assert (container.name, container.time().tdf) == ("py-clock", Fraction(1, 3))
        container.dilate(1 / 7)
        assert container.time().tdf == Fraction(1, 7), "the simplest ratio that is the same float"
        container.freeze()
        first = container.time()
        assert first.frozen and stands(program.pid)
        container.leap("1h")
        second = container.time()
        assert second.monotonic_ns - first.monotonic_ns == 3600 * 10**9
        assert (second.wall - first.wall) == timedelta(hours=1)
        container.step(-60)
        assert container.time().wall_ns - second.wall_ns == -60 * 10**9
        with pytest.raises(WrongInputError, match="leaps go forward"):
            container.leap(-1)
        container.unfreeze()
        assert works(program.pid)
        with spin() as other:
            late = Container.attach(other.pid)
            late.leap("10h")
            container.leap_like(late)
            assert abs(late.time().wall_ns - container.time().wall_ns) < 60 * 10**9


def test_a_containers_clock_errs():
    with Inside("sleep", "1000000", rate="20") as program:
        program.wait_until_shown()
        clock = Container.find(program.name).clock
        assert clock.show().offset_ns == 0
        assert clock.drift("+100ppm").drift_ppm == 100
        assert clock.drift("-1%", length="1h").frequency_ppm == pytest.approx(-9_900)
        told = clock.bump(timedelta(minutes=-5))
        assert abs(told.offset_ns + 300 * 10**9) < 10**9 and told.within_bound is None
        assert told.truth_ns - told.wall_ns == -told.offset_ns
        assert clock.leap_second("insert").status & 0x10
        clock.strobe("200ms", period="100ms", length="1s")
        looks = list(clock.log(0.5, length=2))
        assert len(looks) == 5
        assert all(abs(look.offset_ns + 300 * 10**9) < 10**9 for look in looks)
        frame = clock.frame("500ms", length=1)
        assert frame.columns[:3] == ["truth_ns", "wall_ns", "offset_ns"] and frame.height == 3
        endless = clock.log("100ms")
        next(endless)
        endless.close()
        told = clock.reset()
        assert (told.offset_ns, told.frequency_ppm, told.leap_second) == (0, 0, "no")
        with pytest.raises(WrongInputError, match="at most 10%"):
            clock.drift("11%")
        with pytest.raises(NotFoundError):
            Container("py-nobody").clock.show()


def test_changes_are_announced():
    with Inside("sleep", "1000000", rate="1") as program:
        program.wait_until_shown()
        container = Container.find(program.name)
        now = datetime.now(timezone.utc)
        hours = [now + timedelta(hours=number) for number in range(1, 6)]
        container.dilate("1/3", at=hours[0])
        container.leap("2h", at=hours[1].isoformat())
        container.step(timedelta(minutes=-5), at=hours[2].astimezone().replace(tzinfo=None))
        container.freeze(at=f"@{hours[3].timestamp():.0f}")
        container.unfreeze(at=hours[4])
        to_come = program.time()["to_come"]
        assert [change["tdf"] for change in to_come] == ["1/3"] * 5
        assert to_come[1]["leap_ns"] == 7200 * 10**9
        assert to_come[2]["step_ns"] == -300 * 10**9
        assert [change["frozen"] for change in to_come] == [False, False, False, True, False]
        for number, change in enumerate(to_come, 1):
            assert abs(change["in_ns"] / 1e9 - number * 3600) < 60
        for wrong in (now - timedelta(seconds=1), "2020-01-01", "soon", 5):
            with pytest.raises(WrongInputError, match="at "):
                container.dilate(2, at=wrong)
        at = time.time() + 2
        container.dilate(7, at=datetime.fromtimestamp(at, timezone.utc))
        assert len(program.time()["to_come"]) == 1
        time.sleep(max(0, at - time.time()) + 0.1)
        assert container.time().tdf == 7


def test_a_container_takes_the_options_of_a_clock():
    with Experiment() as experiment:
        container = experiment.container(
            rate=1, monotonic=timedelta(hours=1), file_times="real", trap_tsc=False
        )
        child = container.popen(["sleep", "1000"])
        wait_until(lambda: experiment.status().containers, "joined")
        time_inside = container.time()
        ahead = time_inside.monotonic_ns - time_inside.host_monotonic_ns
        assert ahead == pytest.approx(3600 * 10**9, abs=10**9)
        assert experiment.container("half", rate="1/2").run(["true"]).returncode == 0
        with pytest.raises(WrongInputError, match="cpu-clocks mine: expected virtual or real"):
            experiment.container(cpu_clocks="mine")
        with pytest.raises(TypeError, match="'rte'; expected one of at, offset"):
            experiment.container(rte=2)
        child.terminate()
        child.wait()


def test_the_status_is_a_data_frame():
    import polars

    with Experiment("py-lab", timeslice=0.001) as experiment, spin() as program:
        assert experiment.status().frame().height == 0
        name = experiment.add(program.pid, tdf="2.5").name
        status = experiment.status()
        assert (status.name, status.phase, status.timeslice_ns) == ("py-lab", "setting-up", 10**6)
        frame = status.frame()
        assert frame["name"].to_list() == [name]
        assert frame["tdf"].to_list() == [2.5]
        assert frame.schema["virtual_ns"] == polars.Int64
        assert frame.schema["timeline"] == polars.Int64
        assert name in status._repr_html_()
        shown = lorentz.json_of("experiment", "status", "py-lab")
        assert set(shown["containers"][0]) == set(frame.columns), "nothing is left out"


def test_what_is_wrong_is_told_by_kind_and_changes_nothing():
    with Experiment("py-wrong") as experiment, spin() as program:
        experiment.add(program.pid, timeline=0)
        for kind, call in [
            (RefusedError, lambda: experiment.progress(0)),
            (RefusedError, experiment.start),
            (RefusedError, experiment.pause),
            (RefusedError, lambda: experiment.reset(0)),
            (RefusedError, lambda: experiment.set_interval(program.pid, "1ms")),
            (RefusedError, lambda: experiment.add(program.pid)),
            (RefusedError, lambda: Container.find(program.pid).freeze()),
            (RefusedError, lambda: Container.attach(program.pid)),
            (RefusedError, lambda: Experiment.clear("py-wrong")),
            (WrongInputError, lambda: experiment.set_interval(program.pid, 0)),
            (WrongInputError, lambda: experiment.set_interval(program.pid, "soon")),
            (WrongInputError, lambda: experiment.set_interval(program.pid, float("nan"))),
            (WrongInputError, lambda: experiment.dilate(program.pid, 0)),
            (WrongInputError, lambda: experiment.dilate(program.pid, -2.0)),
            (WrongInputError, lambda: experiment.dilate(program.pid, "fast")),
            (WrongInputError, lambda: experiment.dilate(program.pid, None)),
            (WrongInputError, lambda: Experiment("py-wrong")),
            (WrongInputError, lambda: Experiment("py-wrong-2", cpus="one")),
            (WrongInputError, lambda: Experiment("py-wrong-2", timeslice="2m")),
            (NotFoundError, lambda: Experiment.open("no-such-experiment")),
            (NotFoundError, lambda: Container.find("no-such-container")),
            (NotFoundError, lambda: experiment.add(2**22)),
        ]:
            with pytest.raises(kind) as raised:
                call()
            assert isinstance(raised.value, LorentzError)
            assert str(raised.value) and "\n" not in str(raised.value)
        status = experiment.status()
        assert (status.phase, [one.tdf for one in status.containers]) == ("setting-up", [1])
        assert works(program.pid)
        experiment.end()
        with pytest.raises((EndedError, NotFoundError)):
            experiment.status()


def test_one_that_was_opened_goes_on():
    lorentz.ok("experiment", "create", "py-open")
    try:
        with Experiment.open("py-open") as experiment:
            assert experiment.status().phase == "setting-up"
        assert lorentz.json_of("experiment", "status", "py-open")["name"] == "py-open"
    finally:
        lorentz.ok("experiment", "rm", "py-open")


SIMULATOR = """
import os, signal, sys
from lorentz import Experiment
experiment = Experiment("py-dies")
experiment.add(int(sys.argv[1]), timeline=0)
experiment.synchronize()
experiment.set_interval(int(sys.argv[1]), "1ms")
experiment.progress(0)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_simulator_that_dies_leaves_nothing():
    with spin() as program:
        command = [sys.executable, "-c", SIMULATOR, str(program.pid)]
        done = subprocess.run(command, timeout=30, check=False, env=os.environ)
        assert done.returncode == -signal.SIGKILL
        assert works(program.pid, within=10)
        wait_until(lambda: lorentz.json_of("experiment", "status") == [], "it has ended")
