"""adjtimex inside: the container's own clock is disciplined, and answers as the kernel's does."""

from __future__ import annotations

import ctypes
import errno
import os
import signal
import time

import pytest
from framework import build, lorentz, needs
from framework.clock_errors import (
    ADJTIME,
    ADJTIME_READ,
    ERROR,
    FREQUENCY,
    INS,
    INSERT,
    MAXERROR,
    NANO,
    OFFSET,
    OK,
    OOP,
    PLL,
    PPM,
    SETOFFSET,
    STATUS,
    TICK,
    UNSYNC,
    WAIT,
    Adjuster,
    error,
)
from framework.experiments import Experiment
from framework.running import Inside

SECOND = 1_000_000_000


def hosts_discipline() -> tuple[int, int]:
    """Frequency and tick of the host's clock."""
    words = (ctypes.c_int64 * 26)()
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.adjtimex(words) >= 0
    return words[2], words[11]


@pytest.fixture
def root():
    needs.root()


def test_a_frequency_is_the_containers_alone(root):
    before = hosts_discipline()
    with Adjuster() as inside, Adjuster() as other:
        answer = inside.adjust(FREQUENCY, freq=100 * PPM)
        assert (answer["errno"], answer["freq"]) == (0, 100 * PPM)
        assert inside.error()["frequency_ppm"] == pytest.approx(100)
        assert inside.time()["rate"] == "1.0001"
        assert other.adjust()["freq"] == 0 and other.time()["rate"] == "1"
    assert hosts_discipline() == before


def test_a_tick_and_a_frequency_add_up(root):
    with Adjuster(rate="10") as inside:
        inside.adjust(TICK | FREQUENCY, tick=10_100, freq=-50 * PPM)
        assert inside.error()["frequency_ppm"] == pytest.approx(9_950)
        assert inside.time()["rate"] == "10.0995"
        # Another rate keeps the error.
        lorentz.ok("dilate", inside.name, "--rate", "2")
        assert inside.time()["rate"] == "2.0199"
        assert inside.adjust()["tick"] == 10_100


def test_nobody_without_the_right_disciplines():
    with Adjuster(unprivileged=True) as inside:
        assert inside.adjust()["errno"] == 0
        for modes in (FREQUENCY, STATUS, ADJTIME, SETOFFSET, MAXERROR):
            assert inside.adjust(modes)["errno"] == errno.EPERM
        assert inside.adjust(ADJTIME_READ)["errno"] == 0


def test_a_container_may_set_its_clock_without_rights():
    with Adjuster(unprivileged=True, options=("--may-set-clock",)) as inside:
        before = inside.adjust(FREQUENCY, freq=PPM)
        assert inside.adjust(SETOFFSET, secs=3_600)["errno"] == 0
        after = inside.adjust()
        assert after["freq"] == PPM and after["secs"] - before["secs"] in range(3_600, 3_620)


def test_adjtime_slews_by_half_a_millisecond_in_a_second(root):
    with Adjuster(rate="20") as inside:
        assert inside.adjust(ADJTIME, offset=2_500)["offset"] == 0
        assert inside.adjust(ADJTIME_READ)["offset"] in range(500, 2_501)
        deadline = time.monotonic() + 10
        while inside.error()["frequency_ppm"] != 0 or inside.adjust(ADJTIME_READ)["offset"]:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        # Five seconds of the clock, each 500 us longer than one of its oscillator.
        assert inside.error()["offset_ns"] == pytest.approx(5 * (1 - 1 / 1.0005) * SECOND, abs=10)


def test_a_loop_takes_its_offset_off(root):
    with Adjuster(rate="50") as inside:
        modes = STATUS | NANO | OFFSET
        answer = inside.adjust(modes, status=PLL, offset=1_000_000)
        assert (answer["errno"], answer["offset"]) == (0, 1_000_000)
        deadline = time.monotonic() + 20
        # A sixteenth of what is left each second, then of the rest.
        while (left := inside.adjust()["offset"]) > 1_000:
            assert time.monotonic() < deadline, left
            time.sleep(0.05)
        assert inside.error()["offset_ns"] == pytest.approx(1_000_000, abs=3_000)


def test_a_step_makes_the_clock_unsynchronized(root):
    with Adjuster() as inside:
        answer = inside.adjust(STATUS | MAXERROR, status=0, maxerror=1_000)
        assert (answer["result"], answer["maxerror"]) == (OK, 1_000)
        answer = inside.adjust(SETOFFSET | NANO, secs=-3, fraction=SECOND // 2)
        assert (answer["result"], answer["maxerror"]) == (ERROR, 16_000_000)
        assert answer["status"] & UNSYNC
        assert inside.error()["offset_ns"] == -2_500_000_000


def test_a_leap_second_is_inserted_at_midnight(root):
    """23:59:59 comes twice; the second one says that a leap second is under way."""
    midnight = 1_798_761_600
    program = build.c("clock_errors/midnight")
    with Inside(program, "8", at="2026-12-31T23:59:55Z") as inside:
        inside.wait_until_shown()
        lorentz.ok("clock", "leap-second", inside.name, "insert")
        assert inside.line(timeout=30, ev="end")["back"] == 0
        seen = [(one["secs"], one["state"]) for one in inside.lines(ev="second")]
        tai = {one["tai"] for one in inside.lines(ev="second")}
    # Without a daemon the clock is unsynchronized, which the state says before all else.
    assert {state for _, state in seen} <= {ERROR, OOP, WAIT}
    secs = [secs for secs, _ in seen]
    around = [one for one in secs if midnight - 2 <= one <= midnight]
    assert around in (
        [midnight - 2, midnight - 1, midnight],
        [midnight - 2, midnight - 1, midnight - 1, midnight],
    )
    assert len(tai) == 2


def test_a_synchronized_clock_says_that_a_leap_second_comes(root):
    with Adjuster(at="2026-12-31T23:59:50Z", rate="4") as inside:
        inside.adjust(STATUS | MAXERROR, status=INS)
        states = set()
        deadline = time.monotonic() + 20
        while WAIT not in states:
            assert time.monotonic() < deadline, states
            states.add(inside.adjust()["result"])
        assert {INSERT, OOP, WAIT} <= states
        assert inside.error()["offset_ns"] == -SECOND
        assert inside.adjust(STATUS, status=0)["tai"] == 1


def test_in_an_experiment_the_experiment_carries_it_out(root):
    """While it is set up, and while it runs; when it ends, the clock keeps its error."""
    with Experiment() as experiment:
        inside = experiment.run(build.c("clock_errors/adjust"), stdin=True)
        inside.line(ev="ready")
        inside.process.stdin.write(b"2 0 65536 0 0 0 0 0 0 10000\n")
        inside.process.stdin.flush()
        assert inside.line(timeout=20, ev="answer", errno=0)["freq"] == PPM
        lorentz.ok("clock", "drift", inside.name, "+10ppm")
        experiment.synchronize()
        experiment.start()
        inside.process.stdin.write(b"2 0 131072 0 0 0 0 0 0 10000\n")
        inside.process.stdin.flush()
        inside.wait_for(2, timeout=20, ev="answer", errno=0)
        lorentz.ok("clock", "bump", inside.name, "5s")
        told = error(inside.name)
        assert told["offset_ns"] == pytest.approx(5_000_000_000, abs=1_000_000)
        assert told["frequency_ppm"] == pytest.approx(12, abs=1e-3)
        refused = lorentz.call("clock", "drift", inside.name, "--for", "1s", "--", "11%")
        assert refused.returncode == 2
        experiment.ok("stop")
        told = error(inside.name)
        assert told["offset_ns"] == pytest.approx(5_000_000_000, abs=10_000_000)
        assert told["frequency_ppm"] == pytest.approx(12, abs=1e-3)


def test_an_experiment_that_dies_leaves_nobody_in_adjtimex(root):
    """It is stopped, and so does not answer; and then it is killed."""
    with Experiment() as experiment:
        inside = experiment.run(build.c("clock_errors/adjust"), stdin=True)
        inside.line(ev="ready")
        engine = experiment.engine
        os.kill(engine, signal.SIGSTOP)
        inside.process.stdin.write(b"2 0 65536 0 0 0 0 0 0 10000\n")
        inside.process.stdin.flush()
        os.kill(engine, signal.SIGKILL)
        inside.line(timeout=20, ev="answer", errno=errno.EPERM)


def test_two_containers_on_one_clock_have_no_error_of_their_own(root):
    with (
        Adjuster() as inside,
        Inside("sleep", "100", options=("--clock", inside.name), name=f"{inside.name}-2") as other,
    ):
        other.wait_until_shown()
        assert inside.adjust(FREQUENCY, freq=PPM)["errno"] == errno.EPERM
        lorentz.refusal(lorentz.call("clock", "drift", other.name, "1ppm"), "several")
