"""Pitfalls of other projects that change a program's time, where no other test covers them."""

from __future__ import annotations

import errno
import random
import subprocess
import time

import pytest
from framework import build, lorentz, oracle
from framework.build import C_FLAVOURS
from framework.needs import tool
from framework.oracle import HostNoise
from framework.running import Inside, Native


def change_rates(inside: Inside, seed: int, until) -> None:
    """Changes the rate at random until `until()`, then gives real speed back."""
    rng = random.Random(seed)
    deadline = time.monotonic() + 40
    while not until():
        assert time.monotonic() < deadline, "no end"
        rate = rng.choice(["1", "10", "100", "1/2", "3/7"])
        if lorentz.call("dilate", inside.name, "--rate", rate).returncode != 0:
            inside.finish(timeout=5)  # it has ended meanwhile; nothing else is an excuse
            assert until()
    lorentz.call("dilate", inside.name, "--rate", "1")


@pytest.mark.parametrize("flavour", C_FLAVOURS)
def test_children_that_share_memory_leave_their_parent_in_order(flavour):
    """Pitfalls 3 and 11: vfork, CLONE_VM and CLONE_CLEAR_SIGHAND children sleep in virtual time,
    and so does the parent after them. clone3 with CLONE_CLEAR_SIGHAND may be refused (ENOSYS)."""
    nominal = 5.0
    command = [build.c("pitfalls/clones", flavour), str(round(nominal * 1e9))]
    with HostNoise() as noise, Inside(*command, rate="10") as inside:
        inside.succeed()
    naps = {(line["how"], line["who"]): line for line in inside.lines(ev="clone")}
    refused = naps.pop(("clear_sighand", "refused"), None)
    assert refused is None or refused["err"] == errno.ENOSYS
    assert len(naps) == (5 if refused else 6)
    for who, line in naps.items():
        assert line["err"] == 0, who
        assert line["slept"] in oracle.own(nominal, 10, noise.slack + 0.05), who
    assert inside.ended_at - inside.started_at < len(naps) * nominal


def test_lorentz_runs_under_a_filter_of_somebody_elses():
    """Pitfall 6: a seccomp filter that is there before ours, as Docker's, stacks with it."""
    inner = [*lorentz.session.command(), "run", "--rate", "10", "--at", "2038-01-19", "--"]
    inner += [str(build.c("process/probe")), str(10**9)]
    done = subprocess.run(
        [build.c("process/seccomp"), "getppid", "0", *inner],
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
        env=lorentz.session.environment(),
    )
    assert done.returncode == 0, done.stderr
    assert '"ev":"probe"' in done.stdout
    real = float(done.stdout.split('"real":')[1].split(",")[0])
    assert 0 <= real - oracle.epoch("2038-01-19") < 100


@pytest.mark.parametrize("flavour", C_FLAVOURS)
def test_a_trap_with_every_signal_blocked_does_not_kill(flavour):
    """Pitfall 24: SIGSYS blocked at a trap ends a process; by mask, sa_mask, ppoll's mask,
    inherited by threads and children."""
    nominal = 3.0
    command = [build.c("pitfalls/masks", flavour), str(round(nominal * 1e9))]
    with HostNoise() as noise, Inside(*command, rate="10") as inside:
        inside.succeed()
    lines = inside.lines(ev="masked")
    assert len(lines) == 10
    for line in lines:
        assert line["ok"] == 1, line["case"]
        assert line["slept"] in oracle.own(nominal, 10, noise.slack), line["case"]


def test_the_highest_real_time_signal_is_the_programs_too():
    """Pitfall 26: a program that uses SIGRTMAX itself gets each of its signals, with its value,
    while changes of the clock use the same number."""
    with Inside(build.c("pitfalls/signals"), "rt", "300", rate="1") as inside:
        change_rates(inside, 26, lambda: bool(inside.lines(ev="rt")))
        event = inside.line(ev="rt").data
        inside.succeed()
    assert event == {"ev": "rt", "sent": 300, "handled": 300, "sum_right": 1, "mine": 1}


def test_what_is_blocked_is_remembered_though_threads_come_and_go():
    """More threads than Lorentz has entries for masks."""
    program = build.c("pitfalls/beliefs")
    found = []
    for run in (Native([program, "600"]), Inside(program, "600", rate="1")):
        with run:
            found.append(run.line(ev="blocked").data)
            run.succeed()
    native, inside = found
    assert native == inside == {"ev": "blocked", "before": 1, "in_threads": 600, "after": 1}


def test_what_each_of_many_threads_blocks_is_remembered():
    """Nearly as many at once as there are entries, with ids that begin at the same ones."""
    program = build.c("pitfalls/beliefs_at_once")
    for run in (Native([program, "230"]), Inside(program, "230", rate="1")):
        with run:
            found = run.line(ev="blocked").data
            run.succeed()
        assert found == {"ev": "blocked", "threads": 230, "in_threads": 230}


def test_jumping_out_of_a_sleep_leaves_nothing_behind():
    """Pitfall 30: siglongjmp out of a sleep two hundred times while the clock is changed. The next
    sleep is a whole one, and no signal comes for the abandoned ones."""
    with Inside(build.c("pitfalls/signals"), "jump", "200", rate="1") as inside:
        change_rates(inside, 30, lambda: bool(inside.lines(ev="jump")))
        event = inside.line(ev="jump").data
        inside.succeed()
    assert (event["jumped"], event["wrong"]) == (200, 0)


@pytest.mark.parametrize("flavour", C_FLAVOURS)
def test_every_cancellation_point_can_be_cancelled(flavour):
    """Pitfall 34: pthread_cancel ends a thread in each kind of wait, and unwinds it."""
    command = [build.c("pitfalls/cancel", flavour), str(10**9)]
    with Inside(*command, rate="10") as inside:
        inside.succeed()
    points = inside.lines(ev="cancel")
    assert len(points) == 11
    assert [p["case"] for p in points if not (p["canceled"] and p["cleaned"])] == []


def test_go_execs_beside_preempted_goroutines():
    """Pitfall 35: Go's SIGURG does not disturb an exec that waits for the monitor."""
    tool("date")
    with Inside(build.go("real/go"), "storm", rate="10") as inside:
        inside.succeed(timeout=60)
        assert inside.line(ev="storm")["execs"] == 80


@pytest.mark.parametrize(("rate", "count"), [("1000", 100), ("1000000", 100), ("1/100", 2)])
def test_the_shortest_waits_are_neither_early_nor_errors(rate, count):
    """Pitfall 39: a positive timeout is never rounded to none, usec never to 1,000,000."""
    with Inside(build.c("pitfalls/extremes"), "tiny", str(count), rate=rate) as inside:
        inside.succeed(timeout=40)
        event = inside.line(ev="tiny")
    assert event["waits"] == 9 * count
    assert (event["early"], event["wrong"]) == (0, 0)


@pytest.mark.parametrize("rate", ["1/1000000", "1/3", "1", "1000", "1000000"])
def test_the_longest_waits_do_not_end(rate):
    """Pitfall 39: no overflow of seconds or of 2^63 ns, at the extremes of the rate."""
    with Inside(build.c("pitfalls/extremes"), "huge", rate=rate, stdin=True) as inside:
        inside.line(ev="ready")
        time.sleep(0.5)
        returned = [line.data for line in inside.lines(ev="returned")]
        inside.close_stdin()
        inside.succeed()
    assert returned == []


@pytest.mark.parametrize("rate", ["1", "1000"])
def test_a_fast_timer_counts_every_period(rate):
    """Pitfall 39: 1 ms at rate 1000 is 1 us of real time: read counts and overruns tell how often
    it went off, and the machine is not flooded."""
    nominal = 0.5 * oracle.ratio(rate)
    command = [build.c("pitfalls/extremes"), "storm", str(round(nominal * 1e9))]
    with HostNoise() as noise, Inside(*command, rate=rate) as inside:
        inside.succeed()
        event = inside.line(ev="storm")
    periods = event["elapsed"] / 0.001
    late = noise.slack * oracle.ratio(rate) / 0.001
    for timer in ("timerfd", "posix"):
        assert periods - late - periods / 50 <= event[timer] <= periods + 1, timer


@pytest.mark.parametrize("rate", ["10", "1/10"])
def test_a_program_that_spins_on_the_clock_gets_on(rate):
    """Pitfall 45: no wait at all, only reads."""
    number = oracle.ratio(rate)
    nominal = 0.5 * number
    command = [build.c("pitfalls/spin"), str(round(nominal * 1e9))]
    with HostNoise() as noise, Inside(*command, rate=rate) as inside:
        start, done = inside.line(ev="ready"), inside.line(ev="done")
        inside.succeed()
    # However long other programs had its processor between the last two reads.
    assert done["before"] < nominal * 1e9 <= done["elapsed"]
    assert done.at - start.at in oracle.real(done["elapsed"] / 1e9, number, noise.slack)


def test_a_freeze_is_not_seen_as_a_stop():
    """Pitfall 53: a parent that waits with WUNTRACED and WCONTINUED sees no stop of its child."""
    with Inside(build.c("pitfalls/signals"), "stops", stdin=True) as inside:
        inside.line(ev="ready")
        for _ in range(5):
            inside.freeze()
            time.sleep(0.05)
            inside.unfreeze()
        inside.close_stdin()
        event = inside.line(ev="stops")
        inside.succeed()
    assert event["reports"] == 0
    assert event["a_real_one"] == 1


class TestSettingTheClock:
    """Pitfall 41: clock_settime, settimeofday and adjtimex set the virtual wall clock, or EPERM.

    The host's clock is out of reach in these tests: in a user namespace, and without CAP_SYS_TIME,
    the kernel would refuse.
    """

    @staticmethod
    def need_user_namespaces() -> None:
        probe = ["unshare", "--user", "--map-root-user", "true"]
        if subprocess.run(probe, check=False, timeout=10, capture_output=True).returncode:
            pytest.skip("no user namespaces here")

    @staticmethod
    def moved(*command: str, unprivileged: bool = False) -> list[dict]:
        before = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
        with Inside(*command, rate="1", at="2038-01-19", unprivileged=unprivileged) as inside:
            inside.succeed()
        after = time.clock_gettime(time.CLOCK_REALTIME) - time.monotonic()
        assert after == pytest.approx(before, abs=1), "the host's clock was moved"
        lines = [line.data for line in inside.lines(ev="settime")]
        assert len(lines) == 3
        return lines

    def test_a_program_that_may_set_clocks_sets_its_containers(self):
        """Root of a user namespace holds CAP_SYS_TIME."""
        program = str(build.c("pitfalls/settime"))
        self.need_user_namespaces()
        for line in self.moved("unshare", "--user", "--map-root-user", program, "1000"):
            assert (line["ret"], line["err"]) == (0, 0), line["how"]
            assert line["real_moved"] == pytest.approx(1000, abs=1), line["how"]
            assert line["mono_moved"] == pytest.approx(0, abs=1), line["how"]

    def test_it_does_so_within_the_kernels_limits(self):
        """From CLOCK_MONOTONIC on, to 30 years before 64 bits of nanoseconds end; beyond: EINVAL,
        and the clock shows what it showed."""
        program = str(build.c("pitfalls/settime"))
        self.need_user_namespaces()
        command = ("unshare", "--user", "--map-root-user", program, "limits")
        with Inside(*command, rate="1") as inside:
            inside.succeed()
        results = {line["case"]: line.data for line in inside.lines(ev="limit")}
        done = {"later than monotonic", "last", "back", "now"}
        assert len(results) == 8
        for case, line in results.items():
            expect = (0, 0) if case in done else (-1, errno.EINVAL)
            assert (line["ret"], line["err"]) == expect, case
            if case in done:
                assert 0 <= line["ahead"] <= 10, case
        assert results["first that is refused"]["ahead"] == pytest.approx(-1, abs=10)

    def test_a_program_that_may_not_is_told_so(self):
        """Without CAP_SYS_TIME: EPERM, and no clock moves."""
        program = lorentz.session.folder / "settime"
        program.write_bytes(build.c("pitfalls/settime", "static").read_bytes())
        program.chmod(0o755)
        for line in self.moved(str(program), "1000", unprivileged=True):
            assert (line["ret"], line["err"]) == (-1, errno.EPERM)
            assert line["real_moved"] == pytest.approx(0, abs=1)


def test_a_step_of_the_hosts_clock_would_not_be_seen():
    """Pitfall 49: the virtual clock rests on the host's monotonic clock. The host's wall clock
    cannot be stepped in a test; that virtual and host monotonic time keep one ratio, and the
    virtual wall clock its distance from virtual monotonic time, is what can be seen."""
    with Inside("sleep", "100000", rate="3", at="2030-01-01") as inside:
        deadline = time.monotonic() + 5
        while not lorentz.shown(inside.name):
            assert time.monotonic() < deadline
            time.sleep(0.02)
        first = inside.time()
        time.sleep(0.5)
        second = inside.time()
    real = second["host"]["monotonic_ns"] - first["host"]["monotonic_ns"]
    assert second["monotonic_ns"] - first["monotonic_ns"] == pytest.approx(3 * real, abs=3000)
