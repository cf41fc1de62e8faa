"""Clocks that err in a network in rounds: exact to the nanosecond, and the same in every run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from framework import build, lorentz, needs
from framework.clock_errors import daemons, error
from framework.networks import Lab

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
