#!/usr/bin/env python3
"""Networks: throughput and round trips at several TDFs; frames per second beside a bridge.

    benches/networks.py            measures, and rewrites the figures in docs/networks.md
    benches/networks.py --quick    briefly, and only prints

Needs root, iperf3, ping and iproute2. It takes some 15 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import labs
from labs import LORENTZ, ROOT, run

#: A congestion control that counts losses. BBR measures the least round trip every ten real
#: seconds, with nearly nothing on the wire.
CONTROL = "net.ipv4.tcp_congestion_control: reno"
#: Round trip over the link that iperf3 uses, virtual seconds.
ROUND_TRIP = 0.01

#: Sends a datagram to the next node a hundred times a second, forever.
CHATTER = """
import socket,sys,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect((sys.argv[1],9))
while True:
    try: s.send(bytes(100))
    except OSError: pass
    time.sleep(0.01)
"""
BACKGROUND = 100

#: Sends datagrams for some seconds; another program counts them.
SENDER = """
import socket,sys,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect((sys.argv[1],9000))
data=bytes(int(sys.argv[2])-42); end=time.monotonic()+float(sys.argv[3])
while time.monotonic()<end:
    for _ in range(64):
        try: s.send(data)
        except OSError: pass
"""


#: Lets the kernel of another node echo. Prints round-trip times in ns, by the clock here.
ECHOES = """
import socket,struct,sys,time
s=socket.socket(socket.AF_INET,socket.SOCK_RAW,socket.IPPROTO_ICMP); s.connect((sys.argv[1],0))
for number in range(int(sys.argv[2])):
    data=struct.pack('>BBHHH',8,0,0,77,number)+bytes(8)
    total=sum(struct.unpack('>8H',data)); total=(total>>16)+(total&0xffff)
    data=data[:2]+struct.pack('>H',~(total+(total>>16))&0xffff)+data[4:]
    sent=time.monotonic_ns(); s.send(data)
    while s.recv(100)[20]!=0: pass
    print(time.monotonic_ns()-sent); time.sleep(0.001)
"""


class Lab:
    """Two nodes and a link, up as long as the block runs."""

    def __init__(
        self,
        tdf: float,
        link: str,
        command: str = "[sleep, infinity]",
        rounds: bool = False,
        pairs: int = 1,
        background: int = 0,
        window: int = 4_000_000,
        peer: float | None = None,
    ) -> None:
        """window: size of a connection's buffers, bytes; the kernel counts half of it. pairs:
        number of pairs of nodes with a link: a and b, a1 and b1. background: number of nodes that
        send to each other meanwhile, each pair over a link of 1 ms. peer: in rounds, the TDF of the
        nodes b."""
        self.pairs = pairs
        buffers = f"4096 {min(window, 1_000_000)} {window}"
        settings = f"{{net.ipv4.tcp_rmem: {buffers}, net.ipv4.tcp_wmem: {buffers}, {CONTROL}}}"
        nodes, links = [], []
        what = f", {link}" if link else ""
        other = f", tdf: {peer}" if peer else ""
        for at in range(pairs):
            mark = at or ""
            nodes.append(f"    a{mark}: {{sysctls: {settings}}}\n")
            nodes.append(f"    b{mark}: {{command: {command}, sysctls: {settings}{other}}}\n")
            links.append(
                f"    - {{endpoints: ['a{mark}:eth0', 'b{mark}:eth0'], "
                f"ipv4: [10.0.{at}.1/24, 10.0.{at}.2/24]{what}}}\n"
            )
        for at in range(0, background, 2):
            for one, other in ((at, 2), (at + 1, 1)):
                words = json.dumps(["python3", "-c", CHATTER, f"10.1.{at}.{other}"])
                nodes.append(f"    c{one}: {{command: {words}}}\n")
            links.append(
                f"    - {{endpoints: ['c{at}:eth0', 'c{at + 1}:eth0'], "
                f"ipv4: [10.1.{at}.1/24, 10.1.{at}.2/24], delay: 1ms}}\n"
            )
        self.text = (
            f"name: bench\ntdf: {tdf}\nrounds: {str(rounds).lower()}\n"
            f"topology:\n  nodes:\n{''.join(nodes)}  links:\n{''.join(links)}"
        )

    def __enter__(self) -> Lab:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(self.text)
            file.flush()
            run(LORENTZ, "up", file.name)
        return self

    def __exit__(self, *_: object) -> None:
        run(LORENTZ, "down", "bench")

    def command(self, node: str, *words: object) -> list:
        return [LORENTZ, "exec", f"bench.{node}", "--", *words]

    def exec(self, node: str, *words: object) -> str:
        return run(*self.command(node, *words))

    def delivered(self) -> int:
        """Returns the number of frames that have arrived at the second nodes."""
        links = self.status()["links"]
        return sum(link["directions"][0]["counts"]["delivered"] for link in links)

    def status(self) -> dict:
        return json.loads(run(LORENTZ, "inspect", "bench", "--json"))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def of_children() -> float:
    """Returns the processor time of programs that have ended, seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def mbits(rate: str) -> float:
    return float(rate[:-4]) * (1_000 if "gbit" in rate else 1)


@dataclass(frozen=True)
class Stream:
    """A stream of iperf3 through one link of 5 ms, `rate` as in a topology file.

    By UDP it sends as much as goes through: 1448 bytes in frames of 1490. `peer` is the receiver's
    TDF, which rounds allow to be another one.
    """

    rate: str
    tdf: float
    udp: bool = False
    background: int = 0
    rounds: bool = False
    peer: float | None = None

    def __str__(self) -> str:
        beside = f", beside {self.background} nodes" if self.background else ""
        rounds = ", in rounds" if self.rounds else ""
        peer = f", to a node at TDF {self.peer}" if self.peer else ""
        return ("UDP" if self.udp else "TCP") + beside + rounds + peer


def throughput(stream: Stream, seconds: int) -> dict:
    """Measures a stream: Mbit/s by the nodes' clock, as a mean and of each tenth of a second; real
    seconds; the shares of a processor that the sender and the emulator take."""
    rate = stream.rate
    queue = "queue: {packets: 10000}"
    how = ["-u", "-l", 1448, "-b", f"{mbits(rate) * 1448 / 1490:.3f}M"] if stream.udp else []
    link = f"rate: {rate}, delay: 5ms, {queue}"
    # Two round trips of data under way: the link is never idle, and no frame is dropped.
    window = max(500_000, int(4 * mbits(rate) * 1e6 / 8 * ROUND_TRIP))
    options = {"background": stream.background, "window": window, "rounds": stream.rounds}
    with Lab(stream.tdf, link, "[iperf3, -s]", peer=stream.peer, **options) as lab:
        pid = lab.status()["pid"]
        used, began, before = cpu_seconds(pid), time.monotonic(), of_children()
        often = ["-t", seconds, "-i", 0.1]
        text = lab.exec("a", "iperf3", "-c", "10.0.0.2", *often, "-J", *how)
        real, sender = time.monotonic() - began, of_children() - before
        used = cpu_seconds(pid) - used
        late = lab.status()["lateness"]
    result = json.loads(text)
    tenths = [one["sum"] for one in result["intervals"]]
    # The last one may be a rest of a few milliseconds.
    whole = [one["bits_per_second"] / 1e6 for one in tenths if one["seconds"] > 0.05]
    return {
        "mbits": result["end"]["sum_received"]["bits_per_second"] / 1e6,
        "tenths": [min(whole), max(whole)],
        "real": real,
        "sender_cpu": sender / real,
        "emulator_cpu": used / real,
        "late_us": [late["median_ns"] / 1e3, late["p99_ns"] / 1e3],
    }


def round_trips(tdf: float, count: int) -> list[float]:
    """Returns the errors of ping's round-trip times, us of virtual time, over a link of 1.5 ms each
    way."""
    with Lab(tdf, "delay: 1500us") as lab:
        lab.exec("a", "ping", "-c", 2, "-i", 0.1, "10.0.0.2")
        text = lab.exec("a", "ping", "-c", count, "-i", max(0.01, 0.05 / tdf), "10.0.0.2")
    return [float(ms) * 1e3 - 3_000 for ms in re.findall(r"time=([\d.]+) ms", text)]


def round_trips_in_rounds(tdf: float, count: int) -> tuple[list[float], float]:
    """Returns the same errors in rounds, to the ns: a program reads its clock before and after.
    Also returns the greatest lateness of any frame in us, which must be 0."""
    with Lab(tdf, "delay: 1500us", rounds=True) as lab:
        for _ in range(2):
            text = lab.exec("a", "python3", "-c", ECHOES, "10.0.0.2", count)
        late = lab.status()["lateness"]["max_ns"]
    return [int(line) / 1e3 - 3_000 for line in text.split()], late / 1e3


class KernelLab:
    """The same nodes with links of the kernel: veth and a bridge for each pair."""

    def __init__(self, pairs: int = 1) -> None:
        self.pairs = pairs
        self.names = [f"lzbench-{end}{at or ''}" for at in range(pairs) for end in "ab"]
        self.switch = "lzbench-s"

    def __enter__(self) -> KernelLab:
        for name in (*self.names, self.switch):
            run("ip", "netns", "add", name)
        for at in range(self.pairs):
            run("ip", "-n", self.switch, "link", "add", f"br{at}", "type", "bridge")
            run("ip", "-n", self.switch, "link", "set", f"br{at}", "up")
        for number, name in enumerate(self.names):
            at, end = divmod(number, 2)
            add = ["link", "add", f"p{number}", "type", "veth", "peer", "eth0", "netns", name]
            run("ip", "-n", self.switch, *add)
            run("ip", "-n", self.switch, "link", "set", f"p{number}", "master", f"br{at}", "up")
            run("ip", "-n", name, "addr", "add", f"10.0.{at}.{end + 1}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        time.sleep(1)
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*self.names, self.switch):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)

    def command(self, node: str, *words: object) -> list:
        return ["ip", "netns", "exec", f"lzbench-{node}", *words]

    def delivered(self) -> int:
        """Returns the number of frames that have arrived at the second nodes."""
        shown = [run("ip", "-n", name, "-s", "-j", "link", "show", "eth0") for name in self.names]
        return sum(json.loads(one)[0]["stats64"]["rx"]["packets"] for one in shown[1::2])


def flood(lab: Lab | KernelLab, size: int, seconds: float) -> float:
    """Floods from every first node. Returns the frames delivered per second."""
    marks = [at or "" for at in range(lab.pairs)]
    for at, mark in enumerate(marks):
        run(*lab.command(f"a{mark}", "ping", "-c", 1, "-W", 5, f"10.0.{at}.2"))
    before = lab.delivered()
    words = ["python3", "-c", SENDER]
    senders = [
        subprocess.Popen(
            [str(word) for word in lab.command(f"a{mark}", *words, f"10.0.{at}.2", size, seconds)]
        )
        for at, mark in enumerate(marks)
    ]
    for sender in senders:
        sender.wait(timeout=seconds + 60)
    return (lab.delivered() - before) / seconds


def idle_round_trips(lab: Lab | KernelLab, count: int) -> list[float]:
    """Returns the round trips through links without delay, us."""
    words = ["python3", "-c", ECHOES, "10.0.0.2", count]
    run(*lab.command("a", *words))
    return sorted(int(line) / 1e3 for line in run(*lab.command("a", *words)).split())


def machine() -> list[str]:
    commit = run("git", "-C", ROOT, "describe", "--always", "--dirty").strip()
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return [
        f"Measured by `benches/networks.py` on {date}, Linux {platform.release()}, "
        f"{os.cpu_count()} processors of a virtual machine, commit {commit}. Load average at the "
        f"start: {load}.",
    ]


def throughputs(quick: bool) -> list[str]:
    """Returns the throughput of one link: by TCP, by UDP, with other nodes that send meanwhile, and
    in rounds, also between two TDFs (TimeKeeper, figure 5.8 and section 5.5.1)."""
    lines = [
        "",
        "Through one link of 5 ms each way, iperf3 for 2 s (10gbit: 4 s); virtual times but for "
        "the run's:",
        "",
    ]
    columns = ["by", "rate", "TDF", "Mbit/s", "of the rate", "in tenths of a second", "run, real s"]
    columns += ["sender's CPU", "emulator's CPU", "late: median, p99, us"]
    lines += [f"| {' | '.join(columns)} |", "| --- " * len(columns) + "|"]
    tdfs = (1, 2, 10, 50)
    cases = [Stream(rate, tdf) for rate in ("10mbit", "100mbit", "1gbit") for tdf in tdfs]
    cases += [Stream("10gbit", 20), *(Stream("100mbit", tdf, udp=True) for tdf in tdfs)]
    cases += [Stream("100mbit", tdf, background=BACKGROUND) for tdf in tdfs]
    cases += [Stream("10mbit", tdf, rounds=True) for tdf in tdfs]
    cases += [Stream("10mbit", tdf, rounds=True, peer=1) for tdf in (2, 10)]
    cases += [Stream("10mbit", 10, rounds=True, background=BACKGROUND)]
    few = [Stream("100mbit", 1), Stream("100mbit", 10), Stream("10mbit", 10, rounds=True, peer=1)]
    for stream in few if quick else cases:
        got = throughput(stream, 1 if quick else 4 if stream.rate == "10gbit" else 2)
        late = ", ".join(f"{value:.1f}" for value in got["late_us"])
        low, high = got["tenths"]
        part = f"{100 * got['mbits'] / mbits(stream.rate):.1f} % | {low:.1f} to {high:.1f}"
        share = f"{100 * got['sender_cpu']:.0f} % | {100 * got['emulator_cpu']:.0f} %"
        what = f"{stream} | {stream.rate} | {stream.tdf} | {got['mbits']:.1f}"
        lines += [f"| {what} | {part} | {got['real']:.1f} | {share} | {late} |"]
        print(lines[-1], flush=True)
    return lines


def beside_the_kernel(quick: bool) -> list[str]:
    """Compares links without impairments with veth and bridges, in turns."""
    lines = ["", "Floods through links that do nothing, TDF 1, frames delivered per second:", ""]
    lines += ["| links | bytes | emulator | veth and bridge | ratio |"]
    lines += ["| --- | --- | --- | --- | --- |"]
    for pairs in (1, 16):
        for size in (64, 1500):
            both = []
            for lab in (Lab(1, "", pairs=pairs), KernelLab(pairs)):
                with lab:
                    both.append(flood(lab, size, 1 if quick else 3))
            ours, theirs = both
            ratio = ours / theirs
            lines += [f"| {pairs} | {size} | {ours:,.0f} | {theirs:,.0f} | {ratio:.2f} |"]
            print(lines[-1], flush=True)
    lines += ["", "A round trip through one such link, idle, us; one way is half of that:", ""]
    lines += ["| through | median | p99 |", "| --- | --- | --- |"]
    for name, lab in (("emulator", Lab(1, "")), ("veth and bridge", KernelLab())):
        with lab:
            times = idle_round_trips(lab, 100 if quick else 500)
        p99 = times[int(0.99 * (len(times) - 1))]
        lines += [f"| {name} | {statistics.median(times):.1f} | {p99:.1f} |"]
        print(lines[-1], flush=True)
    return lines


def tables(quick: bool) -> list[str]:
    lines = throughputs(quick)
    lines += ["", "Ping over 1.5 ms each way; by how much its times are longer, virtual us:", ""]
    lines += ["| TDF | median | p99 | least |", "| --- | --- | --- | --- |"]
    for tdf in (1, 10) if quick else (1, 2, 10, 30):
        errors = sorted(round_trips(tdf, 50 if quick else 100))
        p99 = errors[int(0.99 * (len(errors) - 1))]
        lines += [f"| {tdf} | {statistics.median(errors):.0f} | {p99:.0f} | {errors[0]:.0f} |"]
        print(lines[-1], flush=True)
    lines += ["", "The same in rounds, by a program that asks its clock before and after:", ""]
    lines += ["| TDF | median | p99 | least | latest frame |", "| --- | --- | --- | --- | --- |"]
    for tdf in (1, 10) if quick else (1, 2, 10, 30):
        errors, late = round_trips_in_rounds(tdf, 50 if quick else 100)
        errors.sort()
        p99 = errors[int(0.99 * (len(errors) - 1))]
        figures = f"{statistics.median(errors):.2f} | {p99:.2f} | {errors[0]:.2f} | {late:.0f}"
        lines += [f"| {tdf} | {figures} |"]
        print(lines[-1], flush=True)
    return [*lines, *beside_the_kernel(quick)]


def main() -> None:
    labs.put_back_when_ended()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="briefly, and only print")
    quick = parser.parse_args().quick
    if os.geteuid() != 0:
        sys.exit("benches/networks.py: needs root")
    with labs.own_state():
        text = "\n".join([*machine(), *tables(quick)])
    if quick:
        return
    labs.rewrite("figures", text)


if __name__ == "__main__":
    main()
