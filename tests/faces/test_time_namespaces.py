"""A time namespace entered inside: its clocks are ahead by its offsets; waits agree with them."""

from __future__ import annotations

import errno
import functools
import shutil
import time

import pytest
from framework import build, lorentz, needs, oracle
from framework.experiments import until
from framework.running import Inside, Native

MONOTONIC, BOOTTIME = 10 * 86_400, 20 * 86_400
#: Seconds by which each clock is ahead there: CLOCK_MONOTONIC and its relatives, CLOCK_BOOTTIME.
AHEAD = {1: MONOTONIC, 4: MONOTONIC, 6: MONOTONIC, 7: BOOTTIME, 9: BOOTTIME}
#: Wall clocks have no offset.
DATES = (0, 5, 8, 11)
#: The clocks of alarms, which a machine without a real-time clock does not have.
OF_ALARMS = {8, 9}
OUTSIDE = ("here", "here, later", "back")
#: The ways into a time namespace: a child, its thread, its exec, that of a child of vfork, a
#: process that joins.
WITHIN = ("fork", "thread", "exec", "vfork", "setns")
RATES = [None, "1", "10", "1/2"]
#: Waits of a process: on three clocks in three ways, on two by futex, on two clocks of alarms.
WAITS = 13


@pytest.fixture(autouse=True)
def _root():
    needs.root()


@functools.cache
def lines_inside(rate: str | None) -> list[dict]:
    """Returns the program's output, natively or inside at a rate."""
    return output([build.c("faces/timens"), str(MONOTONIC), str(BOOTTIME)], rate)


def output(command: list, rate: str | None) -> list[dict]:
    with Native(command) if rate is None else Inside(*command, rate=rate) as running:
        running.succeed(timeout=60)
        lines = [line.data for line in running.lines()]
    if any(line["ev"] == "refused" for line in lines):
        pytest.skip("time namespaces cannot be made here")
    return lines


@pytest.mark.parametrize("rate", RATES)
def test_every_clock_is_ahead_by_the_offset_of_its_namespace(rate):
    """Natively and inside: by system call and by vDSO, in each way into the namespace."""
    # Between the first and the last read some seconds pass natively, minutes at rate 10.
    patience = 600 * (1 if rate is None else oracle.ratio(rate)) + 600
    reads = [line for line in lines_inside(rate) if line["ev"] == "clock"]
    before = {line["id"]: line["raw"] for line in reads if line["who"] == "here"}
    assert set(before) | OF_ALARMS == {*AHEAD, *DATES}
    for who in (*OUTSIDE, *WITHIN):
        found = [line for line in reads if line["who"] == who]
        assert {line["id"] for line in found} == set(before), who
        for line in found:
            number = line["id"]
            assert line["raw"] <= line["libc"] <= line["raw2"], (who, number)
            ahead = AHEAD.get(number, 0) if who in WITHIN else 0
            passed = (line["raw"] - before[number]) / 1e9 - ahead
            assert 0 <= passed < patience, (who, number)


@pytest.mark.parametrize("rate", RATES)
def test_the_uptime_is_that_of_the_namespaces_boot_clock(rate):
    reads = lines_inside(rate)
    for who in (*OUTSIDE, *WITHIN):
        boot = next(
            line["raw"] / 1e9
            for line in reads
            if line["ev"] == "clock" and line["who"] == who and line["id"] == 7
        )
        uptime = next(line for line in reads if line["ev"] == "uptime" and line["who"] == who)
        patience = 60 * (1 if rate is None else oracle.ratio(rate)) + 2
        assert boot - 0.01 <= uptime["proc"] + 0.01 <= boot + patience, who
        assert boot - 0.01 <= uptime["sysinfo"] <= boot + patience, who
        assert boot - patience <= uptime["start"] <= uptime["proc"] + 0.01, who
        date = next(
            line["raw"] / 1e9
            for line in reads
            if line["ev"] == "clock" and line["who"] == who and line["id"] == 0
        )
        assert abs(uptime["btime"] + boot - date) < patience, who


@pytest.mark.parametrize("rate", RATES)
def test_waits_agree_with_the_clocks_of_the_namespace(rate):
    """Absolute deadlines on each clock: never early, and not late by the offset."""
    waits = [line for line in lines_inside(rate) if line["ev"] == "waited"]
    for who in ("here, later", "fork", "exec", "vfork", "setns", "back"):
        found = [line for line in waits if line["who"] == who]
        assert len(found) == WAITS, who
        for line in found:
            assert line["ok"] == 1, line
            # With the offset added twice it would be ten days.
            assert 0.05 <= line["elapsed"] < 86_400, line
            assert 0 <= line["left"] <= 0.051, line


@functools.cache
def rules(rate: str | None) -> list[dict]:
    """Returns the output of the program on the kernel's rules, natively or inside at a rate."""
    return output([build.c("faces/timens_rules")], rate)


@pytest.mark.parametrize("rate", ["1", "10"])
def test_the_kernels_rules_hold_inside(rate):
    """Which offsets it takes and when, who may join, and what a nested namespace inherits."""

    def told(rate: str | None) -> list[dict]:
        return [line for line in rules(rate) if line["ev"] in ("rule", "offsets")]

    assert told(rate) == told(None)
    errors = {line["what"]: line["err"] for line in rules(None) if line["ev"] == "rule"}
    assert errors["setns with a thread"] == errno.EUSERS
    assert errors["offsets once a process is in"] == errno.EACCES
    assert errors["offsets that make the clock negative"] == errno.ERANGE


@pytest.mark.parametrize("rate", [None, "1", "10"])
def test_a_nested_namespace_has_its_own_offset(rate):
    ahead = {line["who"]: line["monotonic"] for line in rules(rate) if line["ev"] == "ahead"}
    patience = 60 * (1 if rate is None else oracle.ratio(rate))
    assert 200 - patience < ahead["inner"] <= 200
    assert 300 - patience < ahead["nested"] <= 300


def entered() -> list[str]:
    """Returns the beginning of a command that runs in a time namespace."""
    lines_inside("1")  # skips where there are none
    offsets = ["--monotonic", str(MONOTONIC), "--boottime", str(BOOTTIME)]
    return [shutil.which("unshare"), "--time", *offsets, "--fork"]


@pytest.mark.parametrize(
    ("family", "cases"),
    [
        ("sleep", "clock_nanosleep-monotonic-abs clock_nanosleep-boottime-abs nanosleep"),
        (
            "timers",
            """timer-monotonic-abs timer-boottime-abs timer-monotonic-rel alarm
            timerfd-monotonic-abs timerfd-boottime-abs timerfd-realtime-abs timerfd-boottime-rel""",
        ),
        (
            "futex",
            """futex-wait futex-wait_bitset-monotonic futex-lock_pi2-monotonic
            futex_wait-monotonic futex_waitv-monotonic pthread_cond-monotonic""",
        ),
    ],
)
def test_a_change_finds_the_waits_of_a_time_namespace(family, cases):
    """The namespace is a million seconds ahead; the rate doubles in the midst of the wait."""
    nominal = 1_000_000
    names = cases.split()
    command = [*entered(), build.c(f"waits/{family}"), str(nominal * 10**9), *names]
    with Inside(*command, rate="1") as inside:
        inside.wait_for(len(names), ev="ready")
        kind = "timers" if family == "timers" else "waits"
        until(lambda: inside.time()[kind] >= len(names), f"all {kind}")
        inside.dilate("2")
        inside.leap(f"{nominal // 2}s")
        time.sleep(0.3)
        assert not inside.lines(ev="done"), "half of the time has passed"
        inside.leap(f"{nominal // 2 + 10}s")
        inside.wait_for(len(names), ev="done")
        inside.succeed()
        done = [line.data for line in inside.lines(ev="done")]
    assert sorted(line["case"] for line in done) == sorted(names)
    for line in done:
        assert nominal <= line["elapsed"] < nominal + 1000, line


def test_a_command_in_a_time_namespace_inside_changes_the_clock_as_elsewhere():
    """The command writes the change by the host's time, which is that of the monitor's
    namespace."""
    binary = lorentz.session.command()[0]
    name = "in-time-namespace"
    enter = " ".join(entered())
    done = """echo '{"ev":"done"}'"""
    change = f"read line; {enter} {binary} dilate {name} --rate 3; {done}; cat"
    with Inside("sh", "-c", change, name=name, rate="1", stdin=True) as inside:
        inside.wait_until_shown()
        before = inside.time()
        inside.process.stdin.write(b"\n")
        inside.process.stdin.flush()
        inside.line(ev="done")
        changed = inside.time()
        time.sleep(0.5)
        after = inside.time()
        errors = inside.stderr
        inside.close_stdin()
        inside.succeed()
    assert not errors

    def passed(first: dict, last: dict) -> tuple[int, int]:
        real = last["host"]["monotonic_ns"] - first["host"]["monotonic_ns"]
        return last["monotonic_ns"] - first["monotonic_ns"], real

    virtual, real = passed(before, changed)
    assert real <= virtual <= 3 * real
    virtual, real = passed(changed, after)
    assert virtual == pytest.approx(3 * real, abs=3000)
