"""`lorentz why`: what keeps time from leaping, and who waits for what until when."""

from __future__ import annotations

import pytest
from framework import build, lorentz
from framework.experiments import until
from framework.running import Inside

HOUR = 3600 * 10**9


def why(name: str) -> dict:
    return lorentz.json_of("why", name)


def waiting(name: str, call: str) -> dict:
    """The first task that waits in a call, once there is one."""
    found: list[dict] = []

    def waits() -> bool:
        found[:] = [task for task in why(name)["tasks"] if task["call"] == call]
        return bool(found)

    until(waits, f"a task in {call}")
    return found[0]


def test_a_wait_is_told_with_its_thread_and_its_deadline():
    # A second inside takes a million outside: the deadline is an hour away at each look.
    program = build.c("waits/sleep"), str(HOUR), "nanosleep"
    with Inside(*program, rate="1/1000000") as container:
        container.line(ev="ready")
        task = waiting(container.name, "nanosleep")
        found = why(container.name)
        assert (found["leaping"], found["skip_idle"], found["held_by"]) == ("free", "off", None)
        assert found["next_deadline_ns"] == task["until_ns"]
        assert 0 < task["left_ns"] <= HOUR
        assert (task["thread"], task["state"], task["waker"]) == ("sleep-dynamic", None, None)
        words = lorentz.ok("why", container.name)
        assert f"idle time is not skipped: 'lorentz skip {container.name} on'" in words
        assert "nanosleep" in words


def test_a_reader_of_the_outside_holds_time():
    with Inside("cat", rate="1", stdin=True, options=["--skip-idle"]) as container:
        container.wait_until_shown()
        task = waiting(container.name, "read")
        found = why(container.name)
        assert found["leaping"] == "held"
        assert found["held_by"]["pid"] == task["pid"]
        assert found["held_by"]["what"] == f"waits for {task['waker']}"
        assert task["on"].startswith("pipe:[")
        assert f"process {task['pid']} waits for a pipe" in lorentz.ok("why", container.name)


def test_tasks_without_a_deadline_and_frozen_clocks_are_told():
    with Inside("sh", "-c", "kill -STOP $$", rate="1") as container:
        container.wait_until_shown()
        until(lambda: any(one["state"] for one in why(container.name)["tasks"]), "a stopped task")
        found = why(container.name)
        assert found["leaping"] == "held"
        assert found["held_by"]["what"] == "is stopped"
        lorentz.ok("freeze", container.name)
        assert why(container.name)["leaping"] == "frozen"
        lorentz.ok("unfreeze", container.name)


@pytest.mark.parametrize("verb", ["why", "time"])
def test_a_misspelt_name_is_met_with_the_one_that_is_meant(verb: str):
    with Inside("cat", rate="1", stdin=True) as container:
        container.wait_until_shown()
        wrong = container.name + "x"
        expected = f"{wrong}: no such container; did you mean {container.name}?"
        lorentz.refusal(lorentz.call(verb, wrong), expected)
