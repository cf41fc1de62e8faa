#!/usr/bin/env python3
"""Networks: throughput and round trips at several TDFs; frames per second beside a bridge.

    benches/networks.py            measures, and rewrites the figures in docs/networks.md
    benches/networks.py --quick    briefly, and only prints

Needs root, iperf3, ping and iproute2. It takes some four minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import labs
from labs import LORENTZ, ROOT, run

#: Windows for a bandwidth-delay product of some 12 MB.
WINDOWS = "{net.ipv4.tcp_rmem: 4096 1048576 134217728, net.ipv4.tcp_wmem: 4096 1048576 134217728}"

#: Sends datagrams for some seconds; one that receives counts them.
SENDER = """
import socket,sys,time
s=socket.socket(socket.AF_INET,socket.SOCK_DGRAM); s.connect((sys.argv[1],9000))
data=bytes(int(sys.argv[2])-42); end=time.monotonic()+float(sys.argv[3])
while time.monotonic()<end:
    for _ in range(64):
        try: s.send(data)
        except OSError: pass
"""


#: Has the kernel of another node echo, and prints round-trip times in ns by the clock here.
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
    """Two nodes and a link, there as long as the block."""

    def __init__(
        self, tdf: float, link: str, command: str = "[sleep, infinity]", rounds: bool = False
    ) -> None:
        self.text = (
            f"name: bench\ntdf: {tdf}\nrounds: {str(rounds).lower()}\n"
            f"topology:\n  nodes:\n    a: {{sysctls: {WINDOWS}}}\n"
            f"    b: {{command: {command}, sysctls: {WINDOWS}}}\n  links:\n"
            "    - {endpoints: ['a:eth0', 'b:eth0'], ipv4: [10.0.0.1/24, 10.0.0.2/24]"
            f"{', ' + link if link else ''}}}\n"
        )

    def __enter__(self) -> Lab:
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
            file.write(self.text)
            file.flush()
            run(LORENTZ, "up", file.name)
        return self

    def __exit__(self, *_: object) -> None:
        run(LORENTZ, "down", "bench")

    def exec(self, node: str, *words: object) -> str:
        return run(LORENTZ, "exec", f"bench.{node}", "--", *words)

    def status(self) -> dict:
        return json.loads(run(LORENTZ, "inspect", "bench", "--json"))


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def throughput(rate: str, tdf: float, seconds: int) -> dict:
    """iperf3 through one link of 5 ms; Mbit/s by the nodes' clock, after its slow start."""
    queue = "queue: {packets: 10000}"
    with Lab(tdf, f"rate: {rate}, delay: 5ms, {queue}", "[iperf3, -s]") as lab:
        pid = lab.status()["pid"]
        used, began = cpu_seconds(pid), time.monotonic()
        text = lab.exec("a", "iperf3", "-c", "10.0.0.2", "-t", seconds, "-O", 0.4, "-J")
        real = time.monotonic() - began
        used = cpu_seconds(pid) - used
        late = lab.status()["lateness"]
    end = json.loads(text)["end"]
    return {
        "mbits": end["sum_received"]["bits_per_second"] / 1e6,
        "retransmits": end["sum_sent"]["retransmits"],
        "emulator_cpu": used / real,
        "late_us": [late["median_ns"] / 1e3, late["p99_ns"] / 1e3],
    }


def round_trips(tdf: float, count: int) -> list[float]:
    """Errors of ping's round-trip times in us of virtual time, over a link of 1.5 ms each way."""
    with Lab(tdf, "delay: 1500us") as lab:
        lab.exec("a", "ping", "-c", 2, "-i", 0.1, "10.0.0.2")
        text = lab.exec("a", "ping", "-c", count, "-i", max(0.01, 0.05 / tdf), "10.0.0.2")
    return [float(ms) * 1e3 - 3_000 for ms in re.findall(r"time=([\d.]+) ms", text)]


def round_trips_in_rounds(tdf: float, count: int) -> tuple[list[float], float]:
    """The same errors in rounds, as a program sees them that asks its clock before and after, to
    the ns; and the greatest lateness of any frame in us, which ought to be 0."""
    with Lab(tdf, "delay: 1500us", rounds=True) as lab:
        for _ in range(2):
            text = lab.exec("a", "python3", "-c", ECHOES, "10.0.0.2", count)
        late = lab.status()["lateness"]["max_ns"]
    return [int(line) / 1e3 - 3_000 for line in text.split()], late / 1e3


def kernel_frames(size: int, seconds: float) -> float:
    """The same flood through veth and a bridge, frames received per second."""
    names = ["lzbench-a", "lzbench-b", "lzbench-s"]
    try:
        for name in names:
            run("ip", "netns", "add", name)
        run("ip", "-n", names[2], "link", "add", "br0", "type", "bridge")
        run("ip", "-n", names[2], "link", "set", "br0", "up")
        for at, name in enumerate(names[:2], 1):
            add = ["link", "add", f"p{at}", "type", "veth", "peer", "eth0", "netns", name]
            run("ip", "-n", names[2], *add)
            run("ip", "-n", names[2], "link", "set", f"p{at}", "master", "br0", "up")
            run("ip", "-n", name, "addr", "add", f"10.0.0.{at}/24", "dev", "eth0")
            run("ip", "-n", name, "link", "set", "eth0", "up")
        time.sleep(1)
        inside = ["ip", "netns", "exec"]
        run(*inside, names[0], "ping", "-c", 1, "-W", 5, "10.0.0.2")

        def received() -> int:
            shown = run("ip", "-n", names[1], "-s", "-j", "link", "show", "eth0")
            return json.loads(shown)[0]["stats64"]["rx"]["packets"]

        before = received()
        run(*inside, names[0], "python3", "-c", SENDER, "10.0.0.2", size, seconds)
        return (received() - before) / seconds
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


def emulator_frames(size: int, seconds: float) -> float:
    """A flood through one link without rate or delay, frames delivered per second."""
    with Lab(1, "") as lab:
        lab.exec("a", "ping", "-c", 1, "10.0.0.2")

        def delivered() -> int:
            return lab.status()["links"][0]["directions"][0]["counts"]["delivered"]

        before = delivered()
        lab.exec("a", "python3", "-c", SENDER, "10.0.0.2", size, seconds)
        return (delivered() - before) / seconds


def machine() -> list[str]:
    commit = run("git", "-C", ROOT, "describe", "--always", "--dirty").strip()
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    return [
        f"Measured by `benches/networks.py` on {date}, Linux {platform.release()}, "
        f"{os.cpu_count()} processors of a virtual machine, commit {commit}. Load average at the "
        f"start: {load}; other work shared the machine, which shows in the tails and wherever "
        "both processors are wanted.",
    ]


def tables(quick: bool) -> list[str]:
    lines = ["", "TCP through one link of 5 ms each way, iperf3, by the nodes' clock:", ""]
    lines += [
        "| rate | TDF | Mbit/s | of the rate | emulator's CPU | late: median, p99, virtual us |"
    ]
    lines += ["| --- | --- | --- | --- | --- | --- |"]
    cases = [("10mbit", 1), ("10mbit", 10), ("100mbit", 1), ("100mbit", 10)]
    cases += [("1gbit", 2), ("1gbit", 10), ("1gbit", 30), ("10gbit", 20)]
    for rate, tdf in cases[2:4] if quick else cases:
        got = throughput(rate, tdf, max(1, min(4, int(16 / tdf))))
        number = float(rate[:-4]) * (1_000 if "gbit" in rate else 1)
        late = ", ".join(f"{value:.1f}" for value in got["late_us"])
        share = f"{100 * got['mbits'] / number:.1f} % | {100 * got['emulator_cpu']:.0f} %"
        lines += [f"| {rate} | {tdf} | {got['mbits']:.1f} | {share} | {late} |"]
        print(lines[-1], flush=True)
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
    lines += ["", "A flood through one link that does nothing, TDF 1, frames delivered per second:"]
    lines += ["", "| bytes | emulator | veth and bridge | ratio |", "| --- | --- | --- | --- |"]
    for size in (64, 1500):
        seconds = 1 if quick else 3
        ours, theirs = emulator_frames(size, seconds), kernel_frames(size, seconds)
        lines += [f"| {size} | {ours:,.0f} | {theirs:,.0f} | {ours / theirs:.2f} |"]
        print(lines[-1], flush=True)
    return lines


def main() -> None:
    labs.put_back_when_ended()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="briefly, and only print")
    quick = parser.parse_args().quick
    if os.geteuid() != 0:
        sys.exit("benches/networks.py: needs root")
    with tempfile.TemporaryDirectory(prefix="lorentz-bench-") as state:
        os.environ["LORENTZ_STATE_DIR"] = state
        text = "\n".join([*machine(), *tables(quick)])
    if quick:
        return
    labs.rewrite("figures", text)


if __name__ == "__main__":
    main()
