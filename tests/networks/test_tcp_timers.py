"""TCP's timers go by the network's clock, as far as the kernel lets them."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import re
import signal
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
from framework import lorentz, oracle
from framework.networks import TIMEOUT, Capture, Frame, Lab, pair

LEAST = "net.ipv4.tcp_rto_min_us"
#: The kernel's tick is at most this long, ms.
TICK = 10

#: Listens, connects, and holds the connection until the end.
SERVER = """\
import socket, time
listener = socket.create_server(("10.0.0.2", 7000), backlog=16)
held = []
while True:
    one, _ = listener.accept()
    one.sendall(one.recv(1))
    held.append(one)
"""
CLIENT = """\
import socket, time
one = socket.create_connection(("10.0.0.2", 7000))
one.sendall(b"x")
one.recv(1)
print(one.getsockname()[1], flush=True)
time.sleep(100000)
"""


def needs_least_timeout() -> None:
    if not Path("/proc/sys/net/ipv4/tcp_rto_min_us").exists():
        pytest.skip("needs net.ipv4.tcp_rto_min_us, of Linux 6.11")


def programs() -> set[int]:
    """The BPF programs of the host that keep TCP's time."""
    done = subprocess.run(
        ["bpftool", "-j", "prog", "show"], capture_output=True, text=True, timeout=60, check=True
    )
    return {one["id"] for one in json.loads(done.stdout) if one.get("name") == "keep_time"}


def syns(frames: list[Frame], port: int) -> list[int]:
    """Returns the times at which SYNs to `port` were sent, ns."""

    def is_syn(data: bytes) -> bool:
        is_tcp = data[12:14] == b"\x08\0" and data[23] == 6
        return is_tcp and data[36:38] == port.to_bytes(2, "big") and data[47] & 0x12 == 0x02

    return [frame.at for frame in frames if frame.way == "out" and is_syn(frame.data)]


def check_first_gap(
    lab: Lab, capture: Capture, rate: float, port: int = 9000, least: float = 0.9
) -> None:
    """Checks that a lost SYN to `port` is sent again after a virtual second, at least after `least`
    of it. The emulator takes the time as it reads a frame, so that it may see either SYN late."""
    connect = f"import socket; socket.create_connection(('10.0.0.2', {port}))"
    with oracle.HostNoise() as noise:
        lab.start("a", "python3", "-c", connect)
        lab.wait_until(lambda: len(syns(capture.frames(), port)) >= 2, "a SYN sent again")
    first, second = syns(capture.frames(), port)[:2]
    late = noise.slack * rate
    gap = (second - first) / 1e9
    assert least - late < gap < 2 + late, (gap, noise.worst)


def wait_for_rate(lab: Lab, interval: int) -> None:
    """Waits until the emulator has set all timers for a new rate. The last one is b's interval of
    keepalives, which is `interval` seconds then."""
    words = ("sysctl", "-n", "net.ipv4.tcp_keepalive_intvl")
    lab.wait_until(lambda: lab.run("b", *words).strip() == str(interval), "the new rate")


def listen(lab: Lab) -> None:
    lab.start("b", "python3", "-c", SERVER)
    lab.wait_until(lambda: ":7000" in lab.run("b", "ss", "-tnl"), "a listener")


@dataclass
class Timers:
    """The timers of one end of a connection, real ms."""

    #: Timeout, without what round trips and doubling have added to it.
    timeout: float
    #: The part of the timeout that the variation of round trips may be, if it is above the least.
    variation: float
    #: Delay of acknowledgements.
    ato: float

    def check_least(self, least: float) -> None:
        """Checks that the least timeout is `least`, or a tick less: the kernel cuts it to ticks."""
        assert least - TICK <= self.timeout <= max(least, self.variation) + TICK, self


def timers(text: str) -> Timers:
    """Reads the timers in a line of ss.

    The kernel's timeout is the mean round trip and the greater of the least timeout and four times
    the variation, in whole ticks. It follows the variation of what ss shows with some delay: twice
    as much is enough for the few round trips of `connect`.
    """
    values = dict(re.findall(r"\b(rto|rtt|ato|backoff):([\d./]+)", text))
    mean, variation = map(float, values["rtt"].split("/"))
    timeout = float(values["rto"]) / 2 ** int(values.get("backoff", 0)) - mean
    return Timers(timeout, 2 * 4 * variation, float(values.get("ato", 0)))


def connect(lab: Lab) -> tuple[Timers, Timers]:
    """Returns the timers of the two ends of a new connection, the client's first."""
    port = lab.start("a", "python3", "-c", CLIENT).stdout.readline().strip()

    def of(node: str, *which: str) -> Timers:
        return timers(lab.run(node, "ss", "-tinO", "state", "established", *which))

    return of("a", "sport", "=", f":{port}"), of("b", "dport", "=", f":{port}")


@pytest.mark.parametrize("rate", ["tdf: 4", "rate: 4", "rounds: true\ntdf: 4"])
def test_a_lost_syn_is_sent_again_after_a_virtual_second(rate: str):
    with Lab(f"{rate}\n" + pair("loss: 100%", "delay: 5ms")) as lab:
        lab.learn()
        # A real second would be 0.25 s or 4 s. Rounds may fall behind the network's clock.
        least = 0.4 if "rounds" in rate else 0.9
        pace = 4 if rate == "rate: 4" else 1 / 4
        check_first_gap(lab, Capture(lab, "a:eth0"), pace, least=least)


def test_a_lost_syn_follows_a_change_of_rate():
    with Lab(pair("loss: 100%")) as lab:
        lab.learn()
        capture = Capture(lab, "a:eth0")
        check_first_gap(lab, capture, 1, 9001)
        lorentz.ok("dilate", lab.name, "--tdf", "4")
        wait_for_rate(lab, 300)
        check_first_gap(lab, capture, 1 / 4, 9002)


def test_the_timeout_of_connections_is_that_of_the_networks_time():
    needs_least_timeout()
    with Lab("tdf: 4\n" + pair("delay: 1ms")) as lab:
        listen(lab)
        # 200 ms of virtual time.
        slow, server = connect(lab)
        slow.check_least(800)
        server.check_least(800)
        lorentz.ok("dilate", lab.name, "--rate", "4")
        wait_for_rate(lab, 18)
        # The listener is the same and has its old least timeout.
        fast, _ = connect(lab)
        fast.check_least(50)
        assert fast.ato <= 16 < slow.ato


def test_above_a_rate_of_1_timeouts_are_shorter():
    with Lab("rate: 4\n" + pair("delay: 1ms")) as lab:
        listen(lab)
        client, server = connect(lab)
        client.check_least(50)
        server.check_least(50)
        assert client.ato <= 16


def test_a_new_listener_follows_a_slower_rate():
    needs_least_timeout()
    with Lab(pair("delay: 1ms")) as lab:
        lorentz.ok("dilate", lab.name, "--tdf", "4")
        wait_for_rate(lab, 300)
        assert lab.run("b", "sysctl", "-n", LEAST).strip() == "800000"
        listen(lab)
        for end in connect(lab):
            end.check_least(800)


def test_what_a_node_sets_itself_is_left_alone():
    needs_least_timeout()
    text = pair("delay: 1ms").replace("a: {}", f"a: {{sysctls: {{{LEAST}: 300000}}}}")
    with Lab("tdf: 4\n" + text) as lab:
        listen(lab)
        connect(lab)[0].check_least(300)
        lorentz.ok("dilate", lab.name, "--rate", "4")
        wait_for_rate(lab, 18)
        assert lab.run("a", "sysctl", "-n", LEAST).strip() == "300000"
        connect(lab)[0].check_least(300)


@pytest.mark.parametrize("end", ["down", "kill"])
def test_nothing_is_left_of_the_bpf_program(end: str):
    with Lab("tdf: 4\n" + pair("delay: 1ms")) as lab:
        status = lab.status()
        assert status["timers_refused"] is None
        held = f"/proc/{status['pid']}/fdinfo"
        ours = {
            int(number)
            for entry in Path(held).iterdir()
            for number in re.findall(r"^prog_id:\s*(\d+)$", entry.read_text(), re.MULTILINE)
        }
        ours &= programs()
        assert ours
        if end == "down":
            lorentz.ok("down", lab.name)
        else:
            os.kill(status["pid"], signal.SIGKILL)
        lab.wait_until(lambda: not ours & programs(), "no BPF program")


def forbid_bpf() -> None:
    """Makes bpf(2) return EPERM in this process, its later programs and its children."""
    load_number, if_bpf, refuse, allow = (
        (0x20, 0, 0, 0),
        (0x15, 0, 1, 321),
        (0x06, 0, 0, 0x00050000 | errno.EPERM),
        (0x06, 0, 0, 0x7FFF0000),
    )
    lines = (load_number, if_bpf, refuse, allow)
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in lines))
    program = struct.pack("HxxxxxxP", len(lines), ctypes.addressof(code))
    pr_set_seccomp, seccomp_mode_filter = 22, 2
    assert ctypes.CDLL(None).prctl(pr_set_seccomp, seccomp_mode_filter, program) == 0


class LabWithoutBpf(Lab):
    """A network whose emulator may load no BPF program."""

    def up(self) -> subprocess.CompletedProcess:
        self.file.write_text(self.text)
        return lorentz.call("up", str(self.file), timeout=TIMEOUT, preexec_fn=forbid_bpf)


def test_without_the_bpf_program_the_network_goes_on_and_says_so():
    with LabWithoutBpf("tdf: 4\n" + pair("delay: 1ms")) as lab:
        assert "Operation not permitted" in lab.status()["timers_refused"]
        output = lorentz.ok("inspect", lab.name)
        assert "TCP's timers have the nodes' settings alone: node " in output
        listen(lab)
        # The kernel may have the namespace's setting, which needs no BPF program.
        least = 800 if Path("/proc/sys/net/ipv4/tcp_rto_min_us").exists() else 200
        connect(lab)[0].check_least(least)
