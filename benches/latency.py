#!/usr/bin/python3
"""Measures the results and the cost of `lorentz latency`, beside ftrace; plots as in the paper.

    benches/latency.py [--quick]

Writes the samples to build/bench/latency.json and, without --quick, docs/latency.md with its plots,
figures 2 to 5 of the MACE paper. Needs root. It makes a network of namespaces: a container behind
veth, bridge and masquerade, its host, a remote machine, and further containers that ping as fast as
they get replies. The methods follow each other in a changing order in every round.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "benches")]

import latency_report  # noqa: E402
import machine  # noqa: E402
from framework.latency import Network, Watch, check_times, number  # noqa: E402

COUNT = 2000
#: Figures 3 to 5 of the paper end with 16 senders, where its coverage begins to fall.
SENDERS = (0, 1, 2, 4, 8, 16, 24, 32)
#: Those of figure 2 of the paper, and two more.
SIZES = (16, 56, 120, 504, 512, 1024, 1472)
#: Runs for each size, as in section 4.2 of the paper.
RUNS_OF_A_SIZE = 5
#: The events that ftrace records in the comparison: those that Lorentz uses.
EVENTS = (
    *("net/net_dev_queue", "net/net_dev_start_xmit", "net/netif_receive_skb"),
    *("skb/skb_copy_datagram_iovec", "syscalls/sys_enter_sendto", "syscalls/sys_exit_recvfrom"),
)
#: The ways of measuring: the place of ping, and the observer.
WAYS = {
    "native": ("host", ""),
    "container": ("inside", ""),
    "native, traced": ("host", "traced"),
    "container, traced": ("inside", "traced"),
    "container, in-band": ("inside", "in-band"),
    "container, ftrace": ("inside", "ftrace"),
    "native, ftrace": ("host", "ftrace"),
    "container, stamped": ("inside", "stamped"),
}


@contextlib.contextmanager
def ftrace(folder: Path) -> Iterator[None]:
    """ftrace for the same events, in an instance of its own, read all the time."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tracefs", "tracefs", folder], check=True)
    instance = folder / "instances" / f"lorentz-bench-{os.getpid()}"
    reader = None
    try:
        instance.mkdir()
        for event in EVENTS:
            (instance / "events" / event / "enable").write_text("1")
        reader = subprocess.Popen(["cat", instance / "trace_pipe"], stdout=subprocess.DEVNULL)
        yield
    finally:
        if reader:
            reader.kill()
            reader.wait()
        for event in EVENTS:
            with contextlib.suppress(OSError):
                (instance / "events" / event / "enable").write_text("0")
        with contextlib.suppress(OSError):
            instance.rmdir()
        subprocess.run(["umount", folder], check=False)


@contextlib.contextmanager
def stamped(network: Network) -> Iterator[dict[int, list[int]]]:
    """Yields the stamps of the outer device, which are there when the block has ended."""
    found: dict[int, list[int]] = {}
    words = [sys.executable, ROOT / "benches/outer_stamps.py", "eth0"]
    reader = subprocess.Popen(
        ["ip", "netns", "exec", network.host, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"ready\n"
        yield found
        output, _ = reader.communicate(timeout=60)
        found.update((int(number), both) for number, both in json.loads(output).items())
    finally:
        reader.kill()
        reader.wait()


def run(network: Network, way: str, size: int, folder: Path) -> dict:
    """Makes one run of one way. Returns the times of its packets, and the observer's output."""
    where, look = WAYS[way]
    name = getattr(network, where)

    def probe() -> list[dict]:
        return network.probe("raw", name=name, count=COUNT, size=size)

    if look == "ftrace":
        with ftrace(folder):
            return {"times": probe(), "packets": []}
    if not look:
        return {"times": probe(), "packets": []}
    words = ["--json", *(["--in-band"] if look == "in-band" else [])]
    stamps = stamped(network) if look == "stamped" else contextlib.nullcontext({})
    with stamps as outer, Watch(network, *words, targets=[f"/run/netns/{name}"]) as watch:
        times = probe()
        packets = watch.stop()
    return {"times": times, "packets": packets, "outer": outer}


def judge(one: dict, way: str) -> dict:
    """Returns the times of a run, us; the number of matched packets, and that of wrong matches."""
    ways = {"egress": {}, "ingress": {}}
    for packet in one["packets"]:
        if packet["outcome"] == "matched":
            ways[packet["direction"]][number(packet)] = packet
    result = {"rtt": [], "corrected": [], "as_host": [], "stamp": [], "matched": 0, "wrong": 0}
    outer = one.get("outer", {})
    for exchange in one["times"]:
        rtt = exchange["read_after"] - exchange["sent_before"]
        result["rtt"].append(rtt / 1000)
        out, back = (ways[name].get(exchange["number"]) for name in ("egress", "ingress"))
        if not (out and back):
            continue
        result["matched"] += 1
        if "traced" in way:
            try:
                check_times(out, back, exchange)
            except AssertionError:
                result["wrong"] += 1
        corrected = rtt - out["latency_ns"] - back["latency_ns"]
        result["corrected"].append(corrected / 1000)
        sent, answered = outer.get(exchange["number"], (0, 0))
        if sent and answered:
            result["stamp"].append((corrected - (answered - sent)) / 1000)
        result["as_host"].append((rtt - out["device_ns"] - back["device_ns"]) / 1000)
    for name in ("rtt", "corrected"):
        result[f"{name}_of_runs"] = [statistics.median(result[name])] if result[name] else []
    return result


def pool(into: dict, more: dict) -> None:
    """Adds the results of a run to those of its way."""
    for key, value in more.items():
        into[key] = into.get(key, type(value)()) + value


def rounds(network: Network, size: int, number_of: int, folder: Path, ways: list[str]) -> dict:
    """Measures all ways in turns."""
    results: dict[str, dict] = {way: {} for way in ways}
    for _ in range(number_of):
        for way in random.sample(ways, len(ways)):
            pool(results[way], judge(run(network, way, size, folder), way))
    return results


def syscall_costs(network: Network) -> dict[str, float]:
    """Measures a system call of another process, ns: alone, and while a container is watched."""
    script = (
        "import os, time\n"
        "best = []\n"
        "for _ in range(9):\n"
        "    t = time.perf_counter_ns()\n"
        "    for _ in range(100000): os.getppid()\n"
        "    best.append((time.perf_counter_ns() - t) / 100000)\n"
        "print(sorted(best)[4])\n"
    )

    def cost() -> float:
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        return float(done.stdout)

    costs: dict[str, list[float]] = {"alone": [], "traced": [], "in-band": []}
    for _ in range(3):
        costs["alone"].append(cost())
        for way, words in (("traced", []), ("in-band", ["--in-band"])):
            with Watch(network, "--json", *words):
                costs[way].append(cost())
    return {way: statistics.median(values) for way, values in costs.items()}


def volume(network: Network) -> float:
    """Returns the bytes per packet, from the number of records that fit into a ring buffer without
    a reader."""
    size = 65536
    with Watch(network, "--json", "--ring", str(size)) as watch:
        watch.process.send_signal(signal.SIGSTOP)
        network.probe("raw", count=COUNT)
        watch.process.send_signal(signal.SIGCONT)
        return size / sum(packet["outcome"] == "matched" for packet in watch.stop())


def measure(quick: bool, folder: Path) -> dict:
    """Measures everything."""
    turns = 2 if quick else 12
    found: dict = {"count": COUNT, "turns": turns, "senders": {}, "sizes": {}}
    found["machine"] = machine.describe(1)
    with Network() as network:
        found["syscalls"] = syscall_costs(network)
        found["volume"] = volume(network)
        for size in SIZES:
            print(f"bench: latency: {size} bytes", file=sys.stderr)
            ways = ["native", "container", "container, traced"]
            runs = 2 if quick else RUNS_OF_A_SIZE
            found["sizes"][size] = rounds(network, size, runs, folder, ways)
    for senders in SENDERS[:: 2 if quick else 1]:
        print(f"bench: latency: {senders} senders", file=sys.stderr)
        with Network() as network:
            network.flood(senders, seconds=3600)  # They end with the network.
            time.sleep(0.5)
            found["senders"][senders] = rounds(network, 56, turns, folder, list(WAYS))
    return found


def main() -> int:
    """Measures, and writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds, and print only")
    quick = parser.parse_args().quick
    if os.geteuid() != 0:
        print("bench: latency: left out, needs root", file=sys.stderr)
        return 0
    build = ROOT / "build/bench"
    build.mkdir(parents=True, exist_ok=True)
    found = measure(quick, build / "tracefs")
    (build / "latency.json").write_text(json.dumps(found))
    text = latency_report.text(found)
    if quick:
        print(text)
        return 0
    latency_report.plots(found, ROOT / "docs/latency")
    (ROOT / "docs/latency.md").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
