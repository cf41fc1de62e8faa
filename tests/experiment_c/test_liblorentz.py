"""liblorentz: every function, from a C program that is linked to it."""

from __future__ import annotations

import time

import pytest
from framework import lorentz
from framework.experiments import numbers
from framework.linked import Calls, linked, pid_inside, spin, stands, works
from framework.running import Inside

WRONG_INPUT, NOT_FOUND, REFUSED, ENDED = -1, -2, -3, -4
SECOND = 10**9


@pytest.fixture
def calls():
    with Calls("lorentz_calls", "lorentz") as calls:
        yield calls


@pytest.fixture
def lab(calls):
    """An experiment that ends with the program."""
    calls.ok("create", "c-lab", 0, 0, 1)
    yield calls
    lorentz.call("experiment", "rm", "c-lab")


def test_an_experiment_that_runs_by_itself(lab):
    with spin() as slow, spin() as fast:
        lab.ok("add-pid", "-", 8, -1, slow.pid)
        lab.ok("add", fast.pid, 1, -1)
        lab.ok("synchronize")
        assert stands(slow.pid)
        first, second = (lab.ok("time", one.pid)["monotonic_ns"] for one in (slow, fast))
        assert first == second
        lab.ok("start")
        assert works(slow.pid)
        lab.ok("experiment-dilate", slow.pid, 1.0 / 3)
        lab.ok("pause")
        assert stands(slow.pid)
        status = lab.ok("status")["status"]
        assert (status["phase"], status["name"]) == ("paused", "c-lab")
        assert [one["tdf"] for one in status["containers"]] == [1 / 3, 1]
        lab.ok("remove", fast.pid)
        assert works(fast.pid)
        lab.ok("stop")
        assert works(slow.pid)
        lab.ok("end")
        assert lab("status")["result"] in (NOT_FOUND, ENDED)


def test_an_experiment_that_a_simulator_moves(lab):
    with spin() as program:
        lab.ok("add", program.pid, 2, 5)
        lab.ok("synchronize")
        begin = lab.ok("time", program.pid)["monotonic_ns"]
        lab.ok("set_interval", program.pid, 0, 12_345, 5)
        for _ in range(3):
            lab.ok("progress", "-", 0, 5)
        assert lab.ok("time", program.pid)["monotonic_ns"] - begin == 3 * 12_345
        lab.ok("reset", "-", 0, 5)
        lab.ok("progress", "-", 0, 5)
        assert lab.ok("time", program.pid)["monotonic_ns"] - begin == 3 * 12_345


def test_a_step_moves_each_by_its_own_time(lab):
    with spin() as one, spin() as other:
        for timeline, program in enumerate((one, other)):
            lab.ok("add", program.pid, 2, timeline)
        lab.ok("synchronize")
        begin = [lab.ok("time", program.pid)["monotonic_ns"] for program in (one, other)]
        lab.ok("experiment-step", f"{one.pid},{other.pid}", 0, 12_345, 700_000)
        lab.ok("experiment-step", one.pid, 0, 5)
        now = [lab.ok("time", program.pid)["monotonic_ns"] for program in (one, other)]
        assert [after - before for before, after in zip(begin, now, strict=True)] == [
            12_350,
            700_000,
        ]
        assert lab("experiment-step", "-", 0, 5)["result"] == WRONG_INPUT
        assert lab("experiment-step", f"{one.pid},{one.pid}", 0, 5, 5)["result"] == WRONG_INPUT
        assert lab("experiment-step", f"{one.pid},no-such", 0, 5, 5)["result"] == REFUSED
        assert lab.ok("time", one.pid)["monotonic_ns"] == now[0]


def test_a_container_asks_for_processors(lab):
    """The experiment has all but the first."""
    with spin() as program:
        cpus = numbers(lab.ok("status")["status"]["cpus"])
        for parallel in (0, len(cpus) + 1):
            call = ("add-parallel", program.pid, 1, 0, parallel)
            assert lab(*call)["result"] == REFUSED
        lab.ok("add-parallel", program.pid, 1, 0, len(cpus))
        (one,) = lab.ok("status")["status"]["containers"]
        assert numbers(one["cpus"]) == cpus


def test_a_container_is_added_with_all_options(lab):
    """Zero stands for the default."""
    with spin() as program:
        assert lab("add-as", program.pid, 1, 0, -1)["result"] == WRONG_INPUT
        lab.ok("add-as", program.pid, 0, 0, 0)
        (one,) = lab.ok("status")["status"]["containers"]
        assert (one["tdf"], one["timeline"], one["compute"]) == (1, 0, "none")


def test_the_wrong_order_is_told_and_changes_nothing(lab):
    with spin() as program:
        assert lab("synchronize")["error"] == (
            "synchronize: the experiment has no containers; 'add' comes first"
        )
        lab.ok("add", program.pid, 1, 0)
        before = lab.ok("status")["status"]
        for words, kind in [
            (("progress", "-", 0, 0), REFUSED),
            (("experiment-step", program.pid, 0, 1000), REFUSED),
            (("start",), REFUSED),
            (("pause",), REFUSED),
            (("reset", "-", 0, 0), REFUSED),
            (("set_interval", program.pid, 0, 1000, 0), REFUSED),
            (("set_interval", program.pid, 0, 0, 0), WRONG_INPUT),
            (("add", program.pid, 1, 0), REFUSED),
            (("add", program.pid, 0, 0), WRONG_INPUT),
            (("add", program.pid, -2, 0), WRONG_INPUT),
            (("add", "no-such-container", 1, 0), NOT_FOUND),
            (("add", "-", 1, 0), WRONG_INPUT),
            (("remove", "no-such-container"), REFUSED),
            (("progress", "-", 0, -1), WRONG_INPUT),
            (("progress", "-", 0, 2**32), WRONG_INPUT),
            (("create", "c-lab", 0, 0, 0), WRONG_INPUT),
            (("create", "a/b", 0, 0, 0), WRONG_INPUT),
            (("create", "c-lab-2", 0, 5, 0), WRONG_INPUT),
            (("open", "no-such-experiment"), NOT_FOUND),
            (("clear", "c-lab"), REFUSED),
            (("freeze", program.pid), REFUSED),
        ]:
            output = lab(*words)
            assert output["result"] == kind and output["error"], f"{words}: {output.text}"
        after = lab.ok("status")["status"]
        assert (after["phase"], len(after["containers"])) == ("setting-up", 1)
        assert after["containers"][0]["tdf"] == before["containers"][0]["tdf"]
        assert works(program.pid)


def test_two_threads_move_two_timelines():
    lorentz.ok("experiment", "create", "c-lines")
    try:
        with spin() as busy, Inside("sleep", "1000") as idle:
            lorentz.ok("experiment", "add", "c-lines", str(busy.pid), "--timeline", "0")
            pid_inside(idle)
            lorentz.ok("experiment", "add", "c-lines", idle.name, "--timeline", "1")
            with linked("lorentz_timelines", "lorentz", "c-lines", busy.pid, idle.name) as threads:
                event = threads.succeed().line(ev="arrived")
        assert event["busy_ns"] == 2 * SECOND
        assert event["idle_ns"] == event["steps"] * 1_000_000
        assert event["steps"] > 1, "the idle one goes on while the busy one is on its way"
    finally:
        lorentz.call("experiment", "rm", "c-lines")


def test_the_clock_of_a_container(calls):
    with spin() as program:
        made = calls.ok("attach", "c-clock", 4, program.pid)["made"]
        assert made == "c-clock"
        assert calls("attach", "-", 1, program.pid)["result"] == REFUSED
        assert calls.ok("time", made)["tdf"] == 4
        calls.ok("dilate", program.pid, 0.5)
        assert calls.ok("time", made)["tdf"] == 0.5
        calls.ok("freeze", made)
        first = calls.ok("time", made)
        assert first["frozen"] == 1 and stands(program.pid)
        calls.ok("leap", made, 0, 3 * SECOND)
        second = calls.ok("time", made)
        assert second["monotonic_ns"] - first["monotonic_ns"] == 3 * SECOND
        calls.ok("step", made, 0, -100 * SECOND)
        third = calls.ok("time", made)
        assert third["monotonic_ns"] == second["monotonic_ns"]
        assert third["wall_s"] == second["wall_s"] - 100
        assert calls("leap", made, 0, -1)["result"] == WRONG_INPUT
        calls.ok("unfreeze", made)
        assert works(program.pid) and calls.ok("time", made)["frozen"] == 0
        with spin() as other:
            calls.ok("attach", "-", 1, other.pid)
            calls.ok("leap", other.pid, 0, 3600 * SECOND)
            calls.ok("leap_like", made, 0, other.pid)
            apart = calls.ok("time", other.pid)["wall_s"] - calls.ok("time", made)["wall_s"]
            assert abs(apart) < 30


def test_changes_are_announced(calls):
    with Inside("sleep", "1000000", rate="1") as program:
        pid = pid_inside(program)
        hour = 3600 * SECOND
        now = time.time_ns()
        changes = [
            ("dilate_at", 4, 0),
            ("leap_at", 0, 3 * SECOND),
            ("step_at", 0, -5 * SECOND),
            ("freeze_at", 0, 0),
            ("unfreeze_at", 0, 0),
        ]
        for number, (what, tdf, by) in enumerate(changes, 1):
            calls.ok(what, pid, tdf, by, now + number * hour)
        to_come = program.time()["to_come"]
        assert [change["tdf"] for change in to_come] == ["4"] * 5
        assert [change["leap_ns"] for change in to_come] == [0, 3 * SECOND, 0, 0, 0]
        assert [change["step_ns"] for change in to_come] == [0, 0, -5 * SECOND, 0, 0]
        assert [change["frozen"] for change in to_come] == [False, False, False, True, False]
        past = calls("dilate_at", pid, 2, 0, now - hour)
        assert past["result"] == WRONG_INPUT and "later" in past["error"]
        at = time.time_ns() + 2 * SECOND
        calls.ok("dilate_at", pid, 7, 0, at)
        assert [change["tdf"] for change in program.time()["to_come"]] == ["7"]
        time.sleep(max(0, at - time.time_ns()) / SECOND + 0.1)
        assert calls.ok("time", pid)["tdf"] == 7


def test_an_experiment_ends_with_its_process():
    with spin() as program, Calls("lorentz_calls", "lorentz") as calls:
        calls.ok("create", "c-mortal", 0, 0, 1)
        calls.ok("add", program.pid, 1, -1)
        calls.ok("synchronize")
        calls.signal(9)
        calls.finish()
        assert works(program.pid, within=10)
        # In this block: its end is started by the program, and ends with it.
        deadline = time.monotonic() + 20
        while lorentz.json_of("experiment", "status"):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_closing_the_handle_lets_the_containers_go(calls):
    lorentz.ok("experiment", "create", "c-close")
    try:
        with spin() as program:
            calls.ok("open", "c-close")
            calls.ok("add", program.pid, 1, 0)
            calls.ok("synchronize")
            assert stands(program.pid)
            calls.ok("close")
            assert works(program.pid)
    finally:
        lorentz.call("experiment", "rm", "c-close")
