"""Sleepers wake at their virtual deadlines, whichever container is the leader: never early, and
late only by the machine's wake-up latency."""

from __future__ import annotations

import json
import shlex
import time

import pytest
from framework import build, real
from framework.experiments import SECOND, Experiment
from framework.needs import tool
from framework.oracle import HostNoise

#: Real seconds for an hour of sleeps, on the busiest machine.
BLINK = 60

PYTHON = """
import json, time
late, due = [], time.monotonic()
print(json.dumps({"ev": "ready"}), flush=True)
for _ in range(COUNT):
    before = time.monotonic()
    time.sleep(STEP)
    late.append(round((time.monotonic() - before - STEP) * 1e9))
late.sort()
print(json.dumps({"ev": "slept", "least": late[0], "median": late[len(late) // 2],
                  "most": late[-1]}), flush=True)
"""

BASH = """
echo '{"ev":"ready"}'
late=()
for ((i = 0; i < COUNT; i++)); do
    before=${EPOCHREALTIME/[.,]/}
    read -t STEP -u 9
    late+=($(((${EPOCHREALTIME/[.,]/} - before - STEP_US) * 1000)))
done 9<> <(:)
IFS=$'\\n' late=($(sort -n <<< "${late[*]}"))
echo '{"ev":"slept","least":'${late[0]}',"median":'${late[COUNT / 2]}',"most":'${late[-1]}'}'
"""


def sleeper(kind: str, count: int, step: float) -> list:
    """The command of a program that sleeps `count` times for `step` seconds and prints its
    lateness, ns."""
    if kind == "c":
        return [build.c("experiment/sleeper"), str(count), str(round(step * SECOND))]
    text = {"python": PYTHON, "bash": BASH}[kind]
    text = text.replace("STEP_US", str(round(step * 1e6)))
    text = text.replace("COUNT", str(count)).replace("STEP", str(step))
    return [real.python(), "-c", text] if kind == "python" else [tool("bash"), "-c", text]


KINDS = ["c", "python", "bash"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("leader", ["itself", "another"])
def test_never_early_and_late_by_what_a_wake_up_takes(kind, leader):
    """The processor has no other load than the slices of the leader, which computes."""
    with HostNoise() as noise, Experiment() as experiment:
        # A read of a pipe is timed in us: for bash, the wake-up may seem 1 us early.
        grain = 1_000 if kind == "bash" else 0
        if leader == "another":
            experiment.run(build.c("experiment/count"), str(SECOND), tdf="4")
        experiment.synchronize() if leader == "another" else None
        sleeps = experiment.run(*sleeper(kind, 20, 0.02))
        if leader == "itself":
            experiment.synchronize()
        experiment.start()
        event = sleeps.line(ev="slept", timeout=60)
        status = experiment.status()
    assert event["least"] >= -grain
    assert event["median"] <= noise.slack * SECOND
    assert all(one["perceived_overshoot_ns"] == 0 for one in status["containers"])


def test_a_dilated_sleeper_is_late_by_as_much_less():
    """The sleeper's clock runs at a hundredth of real speed while it wakes."""
    with HostNoise() as noise, Experiment("--as-fast-as-possible") as experiment:
        experiment.run("sleep", "100000")
        experiment.synchronize()
        sleeps = experiment.run(*sleeper("c", 30, 0.007), tdf="100")
        experiment.start()
        event = sleeps.line(ev="slept", timeout=60)
    assert event["least"] >= 0
    assert event["median"] <= noise.slack * SECOND / 100


@pytest.mark.parametrize("kind", KINDS)
def test_an_hour_of_sleeps_takes_seconds(kind):
    with Experiment("--as-fast-as-possible") as experiment:
        experiment.run("sleep", "100000")
        experiment.synchronize()
        began = time.monotonic()
        sleeps = experiment.run(*sleeper(kind, 60, 60.0))
        experiment.start()
        event = sleeps.line(ev="slept", timeout=BLINK)
        took = time.monotonic() - began
        status = experiment.status()
    assert took < BLINK
    assert status["virtual_ns"] >= 3600 * SECOND
    assert event["least"] >= (-1_000 if kind == "bash" else 0)
    assert event["most"] < BLINK * SECOND


def test_time_runs_no_faster_than_the_leaders_clock_where_it_is_not_to():
    with Experiment() as experiment:
        experiment.run("sleep", "1000")
        experiment.synchronize()
        sleeps = experiment.run(*sleeper("c", 5, 0.1), tdf="2")
        experiment.start()
        began = time.monotonic()
        before = experiment.status()["virtual_ns"]
        sleeps.line(ev="slept", timeout=60)
        gained = experiment.status()["virtual_ns"] - before
        took = time.monotonic() - began
    # Some rounds may be caught up: ten of 3 ms.
    assert gained / SECOND <= took / 2 + 0.04


def test_bash_sleeps_in_an_order_that_is_that_of_its_deadlines():
    """Sleep sort, as processes of one container."""
    script = "for i in 5 3 1 4 2; do (sleep $((i * 20)); echo $i) & done; wait; echo end"
    with Experiment("--as-fast-as-possible") as experiment:
        experiment.run("sleep", "100000")
        experiment.synchronize()
        sorts = experiment.run("bash", "-c", script)
        experiment.start()
        assert sorts.finish(timeout=BLINK) == 0, shlex.join(sorts.command)
        assert sorts.stdout.split() == ["1", "2", "3", "4", "5", "end"], json.dumps(sorts.stdout)
