"""Attaching to a running process: it enters virtual time, and sees no jump."""

from __future__ import annotations

import contextlib
import functools
import resource
import subprocess
import time
from pathlib import Path

import pytest
from framework import build, lorentz, processes, real, waits
from framework.build import C_FLAVOURS
from framework.catalogue import WAITS, Case
from framework.experiments import until
from framework.needs import feature, tool
from framework.oracle import HostNoise
from framework.running import Native, Running


@pytest.fixture(autouse=True)
def _may_attach():
    feature("attach")


@contextlib.contextmanager
def attached(running: Running, pid: int, *options: str):
    """Runs `lorentz attach PID`. At the end, ends the attached processes and checks that their
    container is gone."""
    shown = lorentz.json_of("attach", str(pid), *options)
    try:
        yield shown["name"]
    finally:
        running.end()
        deadline = time.monotonic() + 5
        while lorentz.shown(shown["name"]) and time.monotonic() < deadline:
            lorentz.call("rm", shown["name"])
            time.sleep(0.05)


WATCH = ["watch", str(10**15), str(20 * 10**6)]


@pytest.mark.parametrize("flavour", C_FLAVOURS)
def test_a_running_program_goes_on_at_another_rate(flavour):
    """No jump at the attach. From then on the program runs ten times as fast, by the vDSO and
    raw."""
    program = [build.c("clocks/clocks", flavour), *WATCH]
    with HostNoise() as noise, Native(program) as native:
        pid = native.wait_for(3, ev="now")[0]["pid"]
        with attached(native, pid, "--rate", "10"):
            before = time.monotonic()
            time.sleep(1)
            lines = native.lines(ev="now")
    inside = [line for line in lines if line.at > before + 0.1]
    first, last = inside[0], inside[-1]
    gained = (last["mono"] - first["mono"]) / 1e9
    assert gained == pytest.approx(10 * (last.at - first.at), rel=0.05, abs=10 * noise.slack)
    for earlier, later in zip(lines, lines[1:], strict=False):
        gap = (later["mono"] - earlier["mono"]) / 1e9
        assert 0 <= gap <= 10 * (later.at - earlier.at + 2 * noise.slack), "a jump"
        assert abs(later["real"] - later["real_raw"]) < 10 * noise.slack * 1e9


#: Reads the clock every 20 ms, with so many files open that an attach takes long.
MANY_FILES = """
import os, resource, select, time
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
for _ in range(min(most - 200, 18000)):
    os.eventfd(0)
print('{"ev":"ready"}', flush=True)
last, longest = time.monotonic(), 0.0
while not select.select([0], [], [], 0)[0]:
    time.sleep(0.02)
    now = time.monotonic()
    last, longest = now, max(longest, now - last)
print('{"ev":"done","longest":%f}' % longest, flush=True)
"""


def test_time_does_not_run_away_while_the_process_stands_still():
    """At rate 100 a stop of 0.5 s would be 50 s."""
    with Native([real.python(), "-c", MANY_FILES], stdin=True) as native:
        native.line(ev="ready")
        begun = time.monotonic()
        with HostNoise() as noise, attached(native, native.pid, "--rate", "100"):
            took = time.monotonic() - begun
            native.close_stdin()
            done = native.line(ev="done")
    assert done["longest"] < 100 * (took / 10 + noise.slack), took


def test_vector_registers_are_what_they_were():
    """A computing program has its numbers in vector registers, wherever the attach stops it."""
    looks = str(300_000_000)
    with Native([build.c("process/vectors"), looks]) as native:
        native.wait_for(1, ev="begins")
        with attached(native, native.process.pid):
            (kept,) = native.wait_for(1, ev="kept")
    assert kept["whole"]


def test_no_signal_is_lost_and_no_handler():
    """Signals come without a pause, so that the attach finds the thread in the delivery of one."""
    with Native([build.c("process/counts_signals")], stdin=True) as native:
        pid = native.line(ev="ready")["pid"]
        with attached(native, pid):
            native.close_stdin()
            seen = native.line(ev="signals")
    assert seen["sent"] == seen["came"] > 0
    assert (seen["in_order"], seen["trapped"]) == (1, 1)


def test_threads_that_read_the_clock_see_no_jump():
    """Eight threads spinning in clock reads, half of them raw, while the attach happens."""
    with Native([build.c("stress/hammer"), "8"], stdin=True) as native:
        pid = native.line(ev="ready")["pid"]
        with attached(native, pid, "--rate", "2"):
            time.sleep(0.5)
            native.close_stdin()
            event = native.line(ev="hammer")
            native.succeed()
    assert event["backwards"] == 0
    assert event["reads"] > 10000


PROGRAMS = {
    "python": [real.python(), "-c"]
    + [
        "import threading, time\n"
        "def work():\n"
        "    while True: time.sleep(0.01)\n"
        "for _ in range(4): threading.Thread(target=work, daemon=True).start()\n"
        "while True:\n"
        "    start = time.monotonic(); time.sleep(1)\n"
        '    print(\'{"ev":"lap","took":%f}\' % (time.monotonic() - start), flush=True)\n'
    ],
    "bash": ["bash", "-c", 'while :; do sleep 1; echo "{\\"ev\\":\\"lap\\",\\"took\\":1}"; done'],
    "node": ["node", "-e"] + ['setInterval(() => console.log(\'{"ev":"lap","took":1}\'), 1000)'],
}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_running_runtime_goes_on_at_another_rate(program):
    """One lap a second natively; attached at rate 20, twenty laps a second, of a second each."""
    command = PROGRAMS[program]
    tool(command[0])
    with Native(command) as native:
        native.line(ev="lap")
        with HostNoise() as noise, attached(native, native.pid, "--rate", "20", "--tree"):
            time.sleep(0.3)
            count = len(native.lines(ev="lap"))
            start = time.monotonic()
            laps = native.wait_for(count + 15, timeout=10, ev="lap")
            took = time.monotonic() - start
    assert took < 15 / 20 + 15 * 0.02 + 1.2 + noise.slack
    assert max(lap["took"] for lap in laps[count:]) < 1 + 20 * (0.1 + noise.slack)


FAMILIES = ["sleep", "poll", "futex", "ipc", "ipc-sockets"]


def waits_of(family: str) -> tuple[str, list[Case]]:
    """The kinds of waits of one of these families, and the family's name for the program."""
    family, _, sockets = family.partition("-")
    cases = [c for c in WAITS if c.live and c.family == family and c.threads]
    return family, [c for c in cases if c.coarse == bool(sockets)]


@pytest.mark.parametrize("family", FAMILIES)
def test_waits_in_progress_follow_from_the_attach_on(family):
    """100 s of waits in many processes: attached at rate 100 they end in a second."""
    family, cases = waits_of(family)
    with Native(waits.command(family, "dynamic", 100.0, cases, False)) as native:
        native.wait_for(len(cases), ev="ready")
        time.sleep(0.3)
        with HostNoise() as noise, attached(native, native.pid, "--rate", "100", "--tree"):
            start = time.monotonic()
            waits.gather(native, len(cases), patience=4)
            done = {line["case"]: line for line in native.lines(ev="done")}
    late = {c.name: waits.late(c) for c in cases}
    missing = set(late) - set(done)
    assert not missing, "these did not end in time"
    for case in cases:
        line, name = done[case.name], case.name
        native_result = waits.standard(case, "dynamic", None)[0].data
        assert (line["ret"], line["err"]) == (native_result["ret"], native_result["err"]), name
        assert line["elapsed"] >= 100, name
        assert line.at - start < 1 * (1 + late[name]) + 1.5 + noise.slack, name


@pytest.mark.parametrize("family", FAMILIES)
def test_waits_in_progress_end_when_they_would_have(family):
    """6 s of waits, of which some have passed. A wait that began anew would take these twice."""
    family, cases = waits_of(family)
    with Native(waits.command(family, "dynamic", 6.0, cases, False)) as native:
        native.wait_for(len(cases), ev="ready")
        begun = time.monotonic()
        time.sleep(2)
        with HostNoise() as noise, attached(native, native.pid, "--rate", "1", "--tree"):
            waits.gather(native, len(cases), patience=10)
            done = {line["case"]: line for line in native.lines(ev="done")}
    assert {case.name for case in cases} == set(done)
    for case in cases:
        line = done[case.name]
        assert line["elapsed"] >= 6, line
        assert line.at - begun < 6 * (1 + waits.late(case)) + 1 + noise.slack, line


def test_what_sockets_were_told_before_the_attach_is_virtual():
    """A receive timeout and timestamps set before the attach: in virtual time, also for threads
    that did not set them."""
    program = [real.python(), "-c"] + [
        "import json, socket, struct, sys, threading, time\n"
        "a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
        "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(('127.0.0.1', 0))\n"
        "a.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack('qq', 50, 0))\n"
        "SO_TIMESTAMPNS = 35\n"
        "u.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)\n"
        "def say(**told): print(json.dumps(told), flush=True)\n"
        "say(ev='ready')\n"
        "sys.stdin.readline()\n"
        "def work():\n"
        "    option = a.getsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, 16)\n"
        "    start = time.monotonic()\n"
        "    try: a.recv(1)\n"
        "    except BlockingIOError: took = time.monotonic() - start\n"
        "    u.sendto(b'x', u.getsockname())\n"
        "    data = u.recvmsg(1, 100)[1][0][2]\n"
        "    stamp = struct.unpack('qq', data)\n"
        "    ahead = time.time() - stamp[0] - stamp[1] / 1e9\n"
        "    say(ev='told', option=struct.unpack('qq', option), took=took, ahead=ahead)\n"
        "thread = threading.Thread(target=work); thread.start(); thread.join()\n"
    ]
    with Native(program, stdin=True) as native:
        native.line(ev="ready")
        with HostNoise() as noise, attached(native, native.pid, "--rate", "100", "--offset", "1d"):
            native.close_stdin()
            event = native.line(ev="told", timeout=5)
            native.succeed()
    assert event["option"] == [50, 0]
    assert 50 <= event["took"] < 60 + 100 * noise.slack
    assert -0.001 <= event["ahead"] < 10 + 100 * noise.slack


def test_timers_armed_before_the_attach_follow():
    names = ["setitimer", "timer-monotonic-rel", "timerfd-monotonic-rel", "timerfd-periodic"]
    cases = [waits.named(name) for name in names]
    with Native(waits.command("timers", "dynamic", 100.0, cases, False)) as native:
        native.wait_for(len(cases), ev="ready")
        time.sleep(0.3)
        with attached(native, native.pid, "--rate", "100", "--tree"):
            done = native.wait_for(len(cases), timeout=6, ev="done")
    assert min(line["elapsed"] for line in done) >= 100


@pytest.mark.parametrize("changes", [[], [("dilate", "--rate", "3")]], ids=["none", "faster"])
def test_expiries_that_wait_at_the_attach_are_taken_once(changes):
    """Periodic timers whose first expiry nobody has taken: it is neither lost nor counted twice;
    the next one is less than an interval ahead."""
    cases = {"process": 10, "thread": 10, "descriptor": 8}
    with Native([build.c("changes/waiting_signal"), "0", *cases], stdin=True) as native:
        native.wait_for(len(cases), ev="ready")
        with attached(native, native.pid, "--rate", "1", "--tree") as name:
            for verb, *words in changes:
                lorentz.ok(verb, name, *words)
            native.close_stdin()
            done = native.wait_for(len(cases), ev="done")
            native.succeed()
    found = {
        line["case"]: [line[name] for name in ("ret", "count", "again", "left")] for line in done
    }
    assert found == {case: [ret, 1, 0, 1] for case, ret in cases.items()}


def test_a_timer_descriptor_whose_expiry_waits_follows_from_the_attach_on():
    """The kernel tells no time left for it before it is read."""
    with Native([build.c("changes/waiting_signal"), "0", "descriptor"], stdin=True) as native:
        native.line(ev="ready")
        with attached(native, native.pid, "--rate", "1", "--tree") as name:
            lorentz.ok("leap", name, "--by", "60s")
            native.close_stdin()
            done = native.line(ev="done")
            native.succeed()
    assert (done["count"], done["again"], done["left"]) == (4, 0, 1)


def test_all_expiries_that_a_signal_stands_for_at_the_attach_are_taken():
    """Each timer of the program has gone off twice, and nobody has taken it."""
    with Native([build.c("checkpoint/unread")]) as native:
        native.line(ev="ready")
        with attached(native, native.pid, "--rate", "2"):
            done = native.wait_for(3, ev="done")
            native.succeed()
    assert [line["others"] for line in done] == [0, 0, 1]
    for line in done:
        assert line["least"] <= line["count"] <= line["most"], line["case"]
        assert line["again"] == 0, line["case"]


def test_a_series_keeps_its_phase_however_long_the_attach_takes():
    """The monitor looks through the program's files for timers before it enters them."""
    with Native([build.c("changes/phase"), "900"]) as native:
        pid = native.line(ev="ready")["pid"]
        with attached(native, pid, "--rate", "1"):
            done = native.line(ev="done")
            native.succeed()
    assert 0 <= done["late"] < done["period"] / 4


def test_what_it_starts_afterwards_is_inside(tmp_path):
    script = 'while :; do date \'+{"ev":"year","year":%Y}\'; sleep 0.2; done'
    with Native(["/bin/sh", "-c", script]) as native:
        native.line(ev="year")
        with attached(native, native.pid, "--at", "2040-06-01"):
            native.line(ev="year", year=2040)
            count = len(native.lines(ev="year"))
            lines = native.wait_for(count + 5, ev="year")
    assert {line["year"] for line in lines[count:]} == {2040}


def test_a_container_made_by_attach_is_changed_like_any():
    """dilate, freeze, leap, step and time take its pid."""
    with Native([build.c("clocks/clocks"), *WATCH]) as native:
        pid = native.line(ev="now")["pid"]
        with attached(native, pid, "--rate", "1") as name:
            assert lorentz.json_of("time", str(pid))["name"] == name
            before = native.lines(ev="now")[-1]["mono"]
            lorentz.ok("leap", str(pid), "--by", "1h")
            after = next_after(native, before + 1800 * 10**9)
            leapt = (after - before) / 1e9
            lorentz.ok("freeze", str(pid))
            stands = lorentz.json_of("time", str(pid))["monotonic_ns"]
            time.sleep(0.4)
            assert lorentz.json_of("time", str(pid))["monotonic_ns"] == stands
            # Lines from before the freeze may come late.
            assert max(line["mono"] for line in native.lines(ev="now")) <= stands
            lorentz.ok("unfreeze", str(pid))
            next_after(native, stands)
    assert 3600 <= leapt <= 3610


def next_after(watch: Running, moment: int) -> int:
    """Returns the first reading of CLOCK_MONOTONIC after a moment, ns; waits until it comes."""

    def later() -> list[int]:
        return [line["mono"] for line in watch.lines(ev="now") if line["mono"] > moment]

    return until(later, "a later reading")[0]


def test_a_program_that_is_on_its_way_to_another_is_attached():
    """The stop comes in the middle of its exec."""
    for _ in range(5):
        with Native([build.c("process/execs_itself")]) as native:
            pid = native.line(ev="start")["pid"]
            with attached(native, pid, "--offset", "1d"):
                native.line(ev="moved")


def test_a_tree_is_attached_as_one():
    """--tree: three generations, on one clock."""
    script = '(sh -c \'sleep 200; echo "{\\"ev\\":\\"deep\\"}"\' ; true) & sleep 201; wait'
    with Native(["/bin/sh", "-c", script]) as native:
        # Three shells and two sleeps.
        until(lambda: len(native.processes()) == 5, "the tree")
        with attached(native, native.pid, "--rate", "100", "--tree") as name:
            pids = lorentz.json_of("time", name)["pids"]
            native.line(ev="deep", timeout=8)
    assert len(pids) >= 3


def test_without_tree_the_children_stay_outside():
    script = f"{build.c('clocks/clocks')} watch {10**15} {50 * 10**6} & wait"
    with Native(["/bin/sh", "-c", script]) as native:
        native.wait_for(2, ev="now")
        with attached(native, native.pid, "--at", "2040-01-01"):
            time.sleep(0.3)
            last = native.lines(ev="now")[-1]
    assert last["real"] / 1e9 == pytest.approx(time.time(), abs=60)


def test_a_process_that_waits_for_a_vfork_child_is_refused():
    """No signal reaches it, so it cannot be stopped. It goes on when its child has ended."""
    with Native([build.c("process/vforks")], stdin=True) as native:
        pid = native.line(ev="vforked")["parent"]
        done = lorentz.call("attach", str(pid))
        assert (done.returncode, done.stdout) == (1, "")
        assert "vfork child" in done.stderr
        native.close_stdin()
        native.line(ev="goes on")
        native.succeed()


SOCKETPAIR, RECVMSG, ASK_MONITOR = 53, 47, 0x4C5A


@pytest.mark.parametrize(
    "refused", [[ASK_MONITOR], [SOCKETPAIR], [RECVMSG]], ids=["profile", "socketpair", "recvmsg"]
)
def test_a_process_under_an_engines_seccomp_profile_is_attached(refused):
    """The profiles of docker and podman let no call through that the kernel does not have."""
    with Native([build.c("process/filtered"), *map(str, refused)]) as native:
        native.line(ev="ready")
        with attached(native, native.pid, "--at", "2038-01-19"):
            native.line(ev="year", year=2038)


def test_a_sandbox_that_refuses_all_ways_is_refused_and_goes_on():
    with Native([build.c("process/filtered"), str(SOCKETPAIR), str(ASK_MONITOR)]) as native:
        native.line(ev="ready")
        done = lorentz.call("attach", str(native.pid), "--at", "2038-01-19")
        assert (done.returncode, done.stdout) == (1, "")
        assert "its seccomp filter refuses the monitor's descriptors" in done.stderr
        seen = len(native.lines(ev="year"))
        native.wait_for(seen + 2, ev="year")
        assert not native.lines(ev="year", year=2038)


def test_a_process_without_room_for_descriptors_is_refused_and_goes_on():
    with Native([build.c("process/filtered")]) as native:
        native.line(ev="ready")
        resource.prlimit(native.pid, resource.RLIMIT_NOFILE, (3, 3))
        done = lorentz.call("attach", str(native.pid), "--at", "2038-01-19")
        assert (done.returncode, done.stdout) == (1, "")
        assert "Too many open files" in done.stderr
        seen = len(native.lines(ev="year"))
        native.wait_for(seen + 2, ev="year")
        assert not native.lines(ev="year", year=2038)


def test_a_process_that_is_attached_to_is_not_left_stopped():
    """An attach is killed at random moments: the process runs on."""
    with Native([build.c("stress/hammer"), "4"], stdin=True) as native:
        pid = native.line(ev="ready")["pid"]
        for delay in (0.001, 0.002, 0.004, 0.008):
            attach = subprocess.Popen(
                [*lorentz.session.command(), "attach", str(pid), "--rate", "2"],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                stdin=subprocess.DEVNULL,
                env=lorentz.session.environment(),
            )
            time.sleep(delay)
            attach.kill()
            attach.wait(timeout=5)
        time.sleep(0.3)
        ticks = processes.cpu_ticks(pid)
        until(lambda: processes.cpu_ticks(pid) > ticks, f"CPU time of {pid}")
        native.close_stdin()
        native.finish()
    for entry in lorentz.ps():
        lorentz.call("rm", entry["name"], "--force")


def test_one_owner_attaches_without_root():
    """User nobody attaches to a process of nobody, if the kernel allows it."""
    scope = Path("/proc/sys/kernel/yama/ptrace_scope")
    if scope.exists() and scope.read_text().strip() != "0":
        pytest.skip("yama's ptrace_scope keeps users from attaching")
    program = lorentz.session.folder / "clocks"
    program.write_bytes(build.c("clocks/clocks", "static").read_bytes())
    program.chmod(0o755)
    with Native([*lorentz.as_nobody(), program, *WATCH]) as native:
        pid = native.wait_for(2, ev="now")[0]["pid"]
        done = lorentz.call("attach", str(pid), "--rate", "10", "--json", unprivileged=True)
        assert done.returncode == 0, done.stderr
        look = functools.partial(lorentz.json_of, "time", str(pid), unprivileged=True)
        first = look()
        read = next_after(native, first["monotonic_ns"] + 5 * 10**9)
        last = look()
    assert read <= last["monotonic_ns"]
    real_time = last["host"]["monotonic_ns"] - first["host"]["monotonic_ns"]
    assert last["monotonic_ns"] - first["monotonic_ns"] == pytest.approx(10 * real_time, rel=0.01)
