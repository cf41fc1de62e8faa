"""Networks in rounds whose computing takes no time (`compute: none`): results repeat, and frames
keep their instants whatever the emulator does meanwhile."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from framework import build, lorentz
from framework.networks import Lab

RUNS = 10
PROGRAM = build.PROGRAMS / "networks/repeating.py"
#: Nodes whose output is compared.
NODES = ("a", "b", "c", "d", "sh")

#: UDP programs, timers and shells behind a switch, with loss, jitter and queues. The kernel's own
#: traffic keeps real time: there is no IPv6, and no repeated question for an address.
TEXT = f"""\
rounds: true
compute: none
at: 2030-01-01T00:00:00Z
seed: 7
topology:
  nodes:
    a:
      command: [python3, -IS, {PROGRAM}, client, 10.0.0.9, '0.004', '150']
      sysctls: &quiet
        net.ipv6.conf.all.disable_ipv6: 1
        net.ipv4.neigh.eth0.retrans_time_ms: 3600000
    b: {{command: [python3, -IS, {PROGRAM}, client, 10.0.0.9, '0.007', '90'], sysctls: *quiet}}
    c: {{command: [python3, -IS, {PROGRAM}, ticker, '0.013', '45'], sysctls: *quiet}}
    d: {{command: [python3, -IS, {PROGRAM}, spinner, '0.01', '30'], sysctls: *quiet}}
    sh:
      command: |
        for i in 1 2 3 4 5 6 7 8; do date +%s.%N; sleep 0.05; done
        exec python3 -IS {PROGRAM} busy 30
      sysctls: *quiet
    server: {{command: [python3, -IS, {PROGRAM}, server], sysctls: *quiet}}
    s: {{kind: switch}}
  links:
    - endpoints: ['a:eth0', 's:1']
      ipv4: [10.0.0.1/24, null]
      delay: 2ms
      jitter: 500us
      rate: 5mbit
    - {{endpoints: ['b:eth0', 's:2'], ipv4: [10.0.0.2/24, null], delay: 3ms}}
    - {{endpoints: ['c:eth0', 's:3'], ipv4: [10.0.0.3/24, null], delay: 1ms}}
    - {{endpoints: ['d:eth0', 's:4'], ipv4: [10.0.0.4/24, null], delay: 1ms}}
    - {{endpoints: ['sh:eth0', 's:5'], ipv4: [10.0.0.5/24, null], delay: 1ms}}
    - {{endpoints: ['server:eth0', 's:6'], ipv4: [10.0.0.9/24, null], delay: 1ms, rate: 8mbit}}
schedule:
  - {{at: 100ms, link: 'b:eth0', set: {{loss: 5%}}, both: true}}
"""


@contextmanager
def load(number: int) -> Iterator[None]:
    """So many programs that compute, beside what the block does."""
    spin = [sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(spin) for _ in range(number)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def outputs(lab: Lab) -> dict[str, list[str]]:
    """The output of each node, once all clients have ended."""
    lab.wait_until(
        lambda: all(lab.output(node).endswith("ends\n") for node in NODES), "the programs' ends"
    )
    return {node: lab.output(node).splitlines() for node in (*NODES, "server")}


@pytest.mark.patient
def test_ten_runs_beside_other_load_are_equal_to_the_nanosecond():
    runs = []
    for number in range(RUNS):
        with load(number % 4), Lab(TEXT) as lab:
            runs.append(outputs(lab))
    first = runs[0]
    assert len(first["server"]) > 200 and first["sh"][0] == "1893456000.000000000"
    for number, run in enumerate(runs):
        for node, lines in run.items():
            assert lines == first[node], f"run {number}, node {node}"


def test_a_run_that_stands_still_for_some_seconds_is_equal():
    """A kernel asks after 5 s of real time whether a neighbour that it has answered still has its
    address."""
    runs = []
    for seconds in (0, 7):
        with Lab(TEXT) as lab:
            lab.wait_until(lambda: "answer" in lab.output("a"), "an answer")
            lorentz.ok("freeze", lab.name)
            time.sleep(seconds)
            lorentz.ok("unfreeze", lab.name)
            runs.append(outputs(lab))
    assert runs[0] == runs[1]


#: A datagram each 50 us, 400 in a round of 20 ms; the receiver prints how long each one took.
SENDER = """
import socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect(("10.0.0.2",7000))
s.send(b"0"); time.sleep(0.1)
for _ in range(2000):
    time.sleep(0.00005); s.send(b"%d" % time.time_ns())
"""
RECEIVER = """
import socket,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.bind(("",7000)); s.recv(100)
for _ in range(2000):
    sent=int(s.recv(100)); print(time.time_ns()-sent,flush=True)
"""


def test_frames_of_many_deadlines_in_a_round_keep_their_instants(tmp_path):
    """A clock remembers some 50 pieces, and makes 400 steps in a round. The emulator is stopped
    again and again meanwhile, so that it reads frames late."""
    for name, text in (("send", SENDER), ("receive", RECEIVER)):
        (tmp_path / f"{name}.py").write_text(text)
    nodes = "".join(
        f"    {node}: {{command: [python3, {tmp_path}/{name}.py], sysctls:"
        " {net.ipv6.conf.all.disable_ipv6: 1, net.ipv4.neigh.eth0.retrans_time_ms: 3600000}}\n"
        for node, name in (("a", "send"), ("b", "receive"))
    )
    links = (
        "  links:\n    - {endpoints: ['a:eth0', 'b:eth0'], delay: 20ms,"
        " ipv4: [10.0.0.1/24, 10.0.0.2/24]}\n"
    )
    with Lab(f"rounds: true\ncompute: none\ntopology:\n  nodes:\n{nodes}{links}") as lab:
        emulator = lab.status()["pid"]
        for _ in range(1_000):
            os.kill(emulator, signal.SIGSTOP)
            time.sleep(0.02)
            os.kill(emulator, signal.SIGCONT)
            time.sleep(0.02)
            if lab.output("b").count("\n") == 2_000:
                break
        took = lab.output("b").split()
    assert len(took) == 2_000 and set(took) == {str(20_000_000)}
