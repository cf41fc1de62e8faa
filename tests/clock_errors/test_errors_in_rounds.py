"""Clocks that err in a network in rounds: exact to the nanosecond, and the same in every run."""

from __future__ import annotations

import contextlib
import json
import os
import time
from datetime import datetime
from pathlib import Path

import pytest
from framework import build, lorentz, needs
from framework.clock_errors import daemons, error
from framework.networks import Lab
from framework.running import Running

MILLI = 1_000_000
SECOND = 1_000 * MILLI
#: The date of the start, ns.
START = 1_893_456_000 * SECOND
#: CLOCK_MONOTONIC at the start, where computing takes no time.
BEGIN = 1_000 * SECOND
QUIET = "{net.ipv6.conf.all.disable_ipv6: 1, net.ipv4.neigh.eth0.retrans_time_ms: 3600000}"
LINK = """\
  links:
    - {endpoints: ['a:eth0', 'b:eth0'], ipv4: [10.0.0.1/24, 10.0.0.2/24], delay: 10ms}
"""
#: Prints both clocks each virtual 100 ms of its own.
CLOCKS = """
import time,sys
for number in range(int(sys.argv[1])):
    print(time.time_ns(), time.monotonic_ns(), flush=True)
    time.sleep(0.1)
print("ends", flush=True)
"""
#: Sends what its clock shows, each 100 ms of it.
SEND = """
import socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect(("10.0.0.2",7000))
for _ in range(50):
    s.send(b"%d" % time.time_ns()); time.sleep(0.1)
time.sleep(1e6)
"""
RECEIVE = """
import socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(("",7000))
for _ in range(50):
    print(s.recv(100).decode(), time.time_ns(), flush=True)
print("ends", flush=True)
"""


#: Slews its clock by 700 us, each 1.3 s of it.
SLEW = """
import ctypes,time
class Timeval(ctypes.Structure): _fields_=[("secs",ctypes.c_long),("micros",ctypes.c_long)]
libc=ctypes.CDLL(None)
while True:
    time.sleep(1.3)
    assert libc.adjtime(ctypes.byref(Timeval(0,700)),None)==0
"""


#: Twelve threads sleep for an hour of CLOCK_BOOTTIME. Prints three clocks before, and those that
#: each thread sees after.
SLEEPS = """
import ctypes,os,threading,time
class Timespec(ctypes.Structure): _fields_=[("secs",ctypes.c_long),("nanos",ctypes.c_long)]
libc=ctypes.CDLL(None)
def tell():
    os.write(1, b"%d %d %d\\n" % (time.time_ns(), time.monotonic_ns(), time.clock_gettime_ns(7)))
def sleep():
    assert libc.clock_nanosleep(7,0,ctypes.byref(Timespec(3600,0)),None)==0
    tell()
tell()
threads=[threading.Thread(target=sleep) for _ in range(12)]
for one in threads: one.start()
for one in threads: one.join()
print("ends",flush=True)
time.sleep(1e6)
"""


def lab_text(folder: Path, a: str, b: str, errors: tuple[str, str], schedule: str = "") -> str:
    """Two nodes that run these programs, with clocks that err so."""
    nodes = ""
    for node, program, err in zip("ab", (a, b), errors, strict=True):
        file = folder / f"{node}.py"
        file.write_text(program)
        clock = f"clock-error: '{err}', " if err else ""
        nodes += f"    {node}: {{command: [python3, {file}, '60'], {clock}sysctls: {QUIET}}}\n"
    head = "rounds: true\ncompute: none\nrate: 10\nat: 2030-01-01T00:00:00Z\ntopology:\n  nodes:\n"
    return head + nodes + LINK + schedule


def whole(lab: Lab, node: str) -> list[list[int]]:
    """The numbers that a node's program has printed, once it has ended."""
    lab.wait_until(lambda: lab.output(node).endswith("ends\n"), f"the end of {node}'s program")
    return [[int(word) for word in line.split()] for line in lab.output(node).splitlines()[:-1]]


def test_offset_and_drift_are_exact(tmp_path):
    """Node a's second is 1/1.01 s of the truth. Its frames arrive 10 ms of the truth later."""
    text = lab_text(tmp_path, SEND, RECEIVE, ("offset=250ms,drift=+1%", ""))
    with Lab(text) as lab:
        lines = whole(lab, "b")
        truth = error(lab.container("a"))
    for number, (by_sender, received) in enumerate(lines[1:], 1):
        # The sender's clock since its start, and the truth then.
        since = by_sender - START - 250 * MILLI
        sent = received - 10 * MILLI - START
        assert abs(sent * 101 // 100 - since) <= 2, f"frame {number}: {since} {sent}"
        assert since >= number * 100 * MILLI
    assert truth["frequency_ppm"] == pytest.approx(10_000)


def test_an_error_repeats_by_its_seed(tmp_path):
    """Both clocks wander; each run shows the same, to the nanosecond, and another seed another."""
    runs = []
    for seed in (7, 7, 8):
        errors = (f"drift=+100ppm,wander=10ppm,seed={seed}", "drift=-50ppm,wander=1ppm,seed=1")
        # The walk makes its first step after 8 s.
        send, receive = (text.replace("50)", "200)") for text in (SEND, RECEIVE))
        with Lab(lab_text(tmp_path, send, receive, errors)) as lab:
            runs.append(whole(lab, "b"))
    assert runs[0] == runs[1]
    assert runs[0][:50] == runs[2][:50] and runs[0] != runs[2]


def test_scheduled_faults_come_at_their_instants(tmp_path):
    """Both clocks begin with the truth, and differ from it by the schedule alone."""
    schedule = """\
schedule:
  - {at: 1s, clock: a, bump: +90s}
  - {at: 2s, clock: [a, b], drift: +1000ppm}
  - {at: 3s, clock: a, strobe: {by: 200ms, period: 100ms, for: 1s}}
  - {at: 4500ms, clock: all, reset: true}
"""
    with Lab(lab_text(tmp_path, CLOCKS, CLOCKS, ("", ""), schedule)) as lab:
        a, b = whole(lab, "a"), whole(lab, "b")
        assert lab.status()["changes_refused"] == []
    for wall, mono in a:
        since, ahead = mono - BEGIN, wall - START - (mono - BEGIN)
        if since < 1 * SECOND:
            assert ahead == 0
        elif since < 3 * SECOND:
            assert ahead == 90 * SECOND
        elif since < 4 * SECOND:
            assert ahead in (90 * SECOND, 90 * SECOND + 200 * MILLI)
        elif since > 4_600 * MILLI:
            # The wall clock is true again; the drift had taken the other 2.5 ms ahead.
            assert ahead == -2_500_000
    assert [wall for wall, _ in a if wall < START] == []
    # The drift of both is the same.
    assert [mono for _, mono in a] == [mono for _, mono in b]


def test_a_scheduled_suspend_comes_at_its_instant(tmp_path):
    """Waits that it ends return at that very nanosecond, however many. No other node is
    suspended."""
    schedule = "schedule:\n  - {at: 1500ms, clock: a, suspend: 2h}\n"
    with Lab(lab_text(tmp_path, SLEEPS, CLOCKS, ("", ""), schedule)) as lab:
        (wall, mono, boot), *after = whole(lab, "a")
        then = BEGIN + 1500 * SECOND // 1000
        gone = then - mono
        ends = [wall + gone + 7200 * SECOND, then, boot + gone + 7200 * SECOND]
        assert after == [ends] * 12
        assert error(lab.container("a"))["offset_ns"] == 0
        assert all(wall - START == mono - BEGIN for wall, mono in whole(lab, "b"))


def offsets(lab: Lab, node: str) -> dict[int, dict]:
    """The looks of `clock log` each 100 ms, for 30 s: by the truth, ns from the start."""
    words = ("--every", "100ms", "--for", "30s", "--json")
    looks = {}
    for look in map(
        json.loads, lorentz.ok("clock", "log", lab.container(node), *words).splitlines()
    ):
        whole, _, fraction = look["wall"].rstrip("Z").partition(".")
        secs = int(datetime.fromisoformat(f"{whole}+00:00").timestamp())
        wall = secs * SECOND + int(fraction.ljust(9, "0"))
        truth = wall - look["offset_ns"] - START
        at = round(truth, -8)
        # Both clocks are told in whole nanoseconds.
        assert abs(truth - at) <= 1
        looks[at] = {**look, "name": node}
    return looks


def test_a_log_of_offsets_repeats(tmp_path):
    """Looks lie at whole tenths of the truth, whenever the command is started, and tell the same in
    each run: faults, a wander, and what a program slews. A fault at a look's instant is in it."""
    schedule = """\
schedule:
  - {at: 12s, clock: a, bump: +90s}
  - {at: 13750ms, clock: a, drift: +1000ppm, for: 5s}
  - {at: 20s, clock: a, strobe: {by: 200ms, period: 30ms, for: 1s}}
"""
    errors = ("offset=250ms,drift=+100ppm,wander=10ppm,seed=7", "")
    runs = []
    for delay in (0, 0.3):
        with Lab(lab_text(tmp_path, SLEW, CLOCKS, errors, schedule)) as lab:
            time.sleep(delay)
            runs.append(offsets(lab, "a"))
    common = sorted(set(runs[0]) & set(runs[1]))
    assert common[0] < 12 * SECOND and len(common) > 100
    for at in common:
        assert runs[0][at] == runs[1][at], at
    before, after = (runs[0][at]["offset_ns"] for at in (11_900 * MILLI, 12 * SECOND))
    assert 90 * SECOND <= after - before < 90 * SECOND + MILLI


def test_a_log_that_is_killed_leaves_nothing_behind(tmp_path):
    """The next change of the clock removes its file, unless another log goes on."""
    folder = lorentz.session.state_dir()

    def files() -> int:
        return len(list(folder.rglob("discipline.history")))

    text = lab_text(tmp_path, CLOCKS, CLOCKS, ("drift=+100ppm", ""))
    with Lab(text) as lab, contextlib.ExitStack() as stack:
        words = ("clock", "log", lab.container("a"), "--every", "100ms", "--json")
        command = [*lorentz.session.command(), *words]
        environment = lorentz.session.environment()
        logs = [stack.enter_context(Running(command, env=environment)) for _ in range(2)]
        for log in logs:
            log.line(drift_ppm=100)
        assert files() == 1
        for left, log in ((1, logs[0]), (0, logs[1])):
            log.process.kill()
            log.process.wait()
            lorentz.ok("clock", "bump", lab.container("a"), "+1s")
            assert files() == left
            if left:
                lab.wait_until(lambda: logs[1].lines()[-1]["offset_ns"] > SECOND, "the other log")
        lorentz.ok(*words, "--for", "200ms")
        assert files() == 0


def test_a_program_sets_its_clock_at_its_own_instant(tmp_path):
    """clock_settime and adjtimex in rounds: the node's clock alone, at that very instant."""
    program = """
import time,ctypes
def now(): return time.time_ns(), time.monotonic_ns()
before=now(); time.clock_settime_ns(0, before[0]+5_000_000_000); after=now()
print(*before, *after, flush=True)
print("ends", flush=True)
time.sleep(1e6)
"""
    with Lab(lab_text(tmp_path, program, CLOCKS, ("", ""))) as lab:
        ((wall, mono, set_wall, set_mono),) = whole(lab, "a")
        assert (set_wall - wall, set_mono) == (5 * SECOND, mono)
        assert error(lab.container("a"))["offset_ns"] == 5 * SECOND
        assert all(wall - START == mono - BEGIN for wall, mono in whole(lab, "b"))


def chrony_lab(folder: Path, seed: int) -> str:
    """chrony's simulation test 001: 100 ms off, 100 ppm, a wander of 1 ppb, a delay of 100 us."""
    chronyd = daemons() / "chrony/usr/sbin/chronyd"
    (folder / "server.conf").write_text(
        f"local stratum 1\nallow\ncmdport 0\nclockprecision 1e-9\npidfile {folder}/server.pid\n"
    )
    (folder / "client.conf").write_text(
        f"server 10.0.0.2 minpoll 6 maxpoll 6\nport 0\ncmdport 0\nclockprecision 1e-9\n"
        f"pidfile {folder}/client.pid\n"
    )
    client = f"[{chronyd}, -d, -f, {folder}/client.conf, -u, root]"
    server = f"[{chronyd}, -d, -x, -f, {folder}/server.conf, -u, root]"
    return f"""\
rounds: true
compute: none
rate: 1000
at: 2030-01-01T00:00:00Z
topology:
  nodes:
    a:
      command: {client}
      clock-error: 'offset=100ms,drift=+100ppm,wander=1ppb,seed={seed}'
      sysctls: {QUIET}
    b: {{command: {server}, sysctls: {QUIET}}}
  links:
    - {{endpoints: ['a:eth0', 'b:eth0'], ipv4: [10.0.0.1/24, 10.0.0.2/24], delay: 100us}}
"""


@pytest.mark.patient
def test_chrony_disciplines_a_node(tmp_path):
    """For 2,000 s of the truth: the clock is true to 1 ms after 210 s, as in chrony's own
    simulation."""
    needs.root()
    with Lab(chrony_lab(tmp_path, 7)) as lab:
        words = ("--every", "10s", "--for", "2000s", "--json")
        lines = lorentz.ok("clock", "log", lab.container("a"), *words).splitlines()
    late = [json.loads(line) for line in lines]
    late = [look["offset_ns"] for look in late if look["wall"] > "2030-01-01T00:03:30"]
    assert len(late) > 10 and max(map(abs, late)) < MILLI


@pytest.mark.patient
def test_the_lab_of_the_tutorial_is_mended(tmp_path, monkeypatch):
    """All three nodes are true after ten minutes. A step of 30 s is slewed away."""
    monkeypatch.setenv("PATH", f"{daemons()}/chrony/usr/sbin:{os.environ['PATH']}")
    text = (build.REPO / "examples/clocks/lab.yaml").read_text().replace("name: clocks\n", "")
    with Lab(text.replace("/run/", f"{tmp_path}/")) as lab:
        words = ("--every", "10s", "--for", "2400s", "--json")
        lines = lorentz.ok("clock", "log", lab.container("n2"), *words).splitlines()
        looks = [json.loads(line) for line in lines]
        day = "2030-01-01T"
        early = [one for one in looks if f"{day}00:10:00" < one["wall"] < f"{day}00:20:00"]
        late = [one for one in looks if one["wall"] > f"{day}00:30:00"]
        assert early and late
        assert max(abs(one["offset_ns"]) for one in (*early, *late)) < MILLI
        assert max(one["offset_ns"] for one in looks) > 25 * SECOND
        for node in ("n1", "n3"):
            assert abs(error(lab.container(node))["offset_ns"]) < MILLI
