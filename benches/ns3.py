#!/usr/bin/env python3
"""ns-3 in virtual time: the lateness of its events by TDF, beside TimeKeeper's figures; alone, and
under the load of machines that send to each other through it.

    benches/ns3.py            measures, and rewrites the figures in docs/networks.md
    benches/ns3.py --quick    briefly, and only prints

Needs libns3-dev, iperf3 and root. It takes some 20 minutes.
"""

from __future__ import annotations

import argparse
import json
import os
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

#: Time limit of a simulation or a compilation, s.
TIMEOUT = 580

#: None is ns-3 without Lorentz.
TDFS = (None, 1.1, 2, 3, 4, 5, 10)

#: The simulations, their arguments, and TimeKeeper's averages in ms: its documentation's figures
#: 5.9 and 5.10 and its table 5.6, as TOMACS'18 has it in table I.
CASES = (
    ("light Wi-Fi", "wifi --stations=2 --rate=10", {None: 40, 2: 18.7, 3: 12.2, 4: 9.1}),
    (
        "overloaded CSMA",
        "csma --stations=10 --rate=6000 --speed=1Gbps --delay=1us",
        {None: 2108, 1.1: 441, 3: 35.4},
    ),
    (
        "100 stations of Wi-Fi",
        "wifi --stations=98 --rate=10",
        {None: 1700, 2: 738, 3: 312, 4: 101, 5: 30, 10: 4.25},
    ),
)


#: An event that is so late ends a simulation, virtual ms.
HARD_LIMIT = 100
#: Length of a stream, virtual s; the simulation takes so much longer.
STREAM, AROUND = 3, 3


@dataclass(frozen=True)
class Load:
    """Machines, half of which send `mbits` each to another, through one network of ns-3's."""

    program: str
    machines: int
    mbits: float
    rounds: bool = False

    def __str__(self) -> str:
        rounds = "; in rounds, the machines at TDF 1" if self.rounds else ""
        pairs = self.machines // 2
        return f"{pairs} pairs of machines, {self.mbits:g} Mbit/s each (`{self.program}`{rounds})"


#: Each is too much for ns-3 on this machine without dilation.
BUS = "csma --speed=1Gbps --delay=1us"
LOADS = (
    Load(BUS, 2, 200),
    Load(BUS, 10, 30),
    Load(BUS, 20, 12),
    Load("wifi", 10, 0.4),
    Load(BUS, 20, 12, rounds=True),
)
LOADED_TDFS = (1, 2, 3, 5)


def under_load(folder: Path, load: Load, tdf: float) -> dict:
    """Runs a load. Returns the Mbit/s of each stream, and ns-3's lateness; `ended` says that it was
    too late for an event."""
    name, *flags = load.program.split()
    write = [ROOT / "examples/ns3/lab.py", name, load.machines, "--name", "ns3bench"]
    write += ["--programs", folder, "--seconds", 2 * AROUND + STREAM]
    write += ["--rounds", "--sim-tdf", tdf] if load.rounds else ["--tdf", tdf]
    text = run(sys.executable, *write, "--", *flags, f"--hardLimit={HARD_LIMIT}")
    exec_in = [LORENTZ, "exec"]
    with labs.network("ns3bench", text):
        shown = json.loads(run(LORENTZ, "inspect", "ns3bench", "--json"))
        output = next(Path(node["output"]) for node in shown["nodes"] if node["name"] == "sim")
        pairs = range(1, load.machines, 2)
        for at in pairs:
            run(*exec_in, f"ns3bench.n{at + 1}", "--", "iperf3", "-s", "-D")
        run(*exec_in, "ns3bench.n1", "--", "sleep", 1)
        streams = []
        for at in pairs:
            words = ["-u", "-l", 1448, "-b", f"{load.mbits}M", "-t", STREAM, "-J"]
            words = ["iperf3", "-c", f"10.0.0.{at + 1}", *words]
            command = [*exec_in, f"ns3bench.n{at}", "--", *words]
            pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}
            streams.append(subprocess.Popen([str(word) for word in command], **pipe))
        deadline = time.monotonic() + TIMEOUT
        ended, late = False, None
        while late is None and not ended and time.monotonic() < deadline:
            time.sleep(0.2)
            said = output.read_text()
            ended = "Hard real-time limit exceeded" in said
            late = next((json.loads(line) for line in said.splitlines() if line[:1] == "{"), None)
        texts = []
        for stream in streams:
            if late is None:
                # Its program keeps the pipe open until the network is down.
                stream.kill()
                stream.wait()
            else:
                texts.append(stream.communicate()[0])
    rates = []
    for text in texts:
        end = json.loads(text)["end"].get("sum", {"bits_per_second": 0, "lost_percent": 100})
        rates.append(end["bits_per_second"] / 1e6 * (1 - end["lost_percent"] / 100))
    return {"ended": ended, "late": late, "mbits": rates}


def loaded(folder: Path, quick: bool) -> tuple[list[str], list[tuple[Load, list]]]:
    """Returns the tables of all loads, and their figures: TDF, and what `under_load` found."""
    lines, found = [], []
    for load in LOADS[2:3] if quick else LOADS:
        lines += ["", f"{load}, lateness of ns-3's events in virtual ms:", ""]
        lines += ["| TDF of ns-3 | Mbit/s of a stream: mean, least | mean | p99 | greatest |"]
        lines += ["| --- | --- | --- | --- | --- |"]
        points = []
        for tdf in (1, 4) if quick else LOADED_TDFS:
            got = under_load(folder, load, tdf)
            points.append((tdf, got))
            if got["late"] and got["mbits"]:
                late = [got["late"][key] / 1e3 for key in ("mean_us", "p99_us", "max_us")]
                rates = f"{statistics.fmean(got['mbits']):.2f}, {min(got['mbits']):.2f}"
                row = " | ".join([rates, *(f"{value:.3f}" for value in late)])
            elif got["ended"]:
                row = f"ended: an event was {HARD_LIMIT} ms late | - | - | -"
            else:
                row = f"no end in {TIMEOUT} s | - | - | -"
            lines += [f"| {tdf} | {row} |"]
            print(f"{load}: {lines[-1]}", flush=True)
        found.append((load, points))
    return lines, found


def draw(found: list[tuple[Load, list]], path: Path) -> None:
    """Plots throughput and lateness against the TDF."""
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "lorentz"
    import matplotlib.pyplot as plt

    figure, (rates, late) = plt.subplots(1, 2, figsize=(10, 3.8))
    for load, points in found:
        label = f"{load.program.split()[0]}, {load.machines} machines"
        label += ", in rounds" if load.rounds else ""
        share = [
            statistics.fmean(got["mbits"]) / load.mbits if got["mbits"] else 0 for _, got in points
        ]
        rates.plot([tdf for tdf, _ in points], share, marker="o", label=label)
        kept = [(tdf, got["late"]["mean_us"] / 1e3) for tdf, got in points if got["late"]]
        late.plot([tdf for tdf, _ in kept], [value for _, value in kept], marker="o", label=label)
    rates.set_ylabel("received of what was sent; 0: ended")
    late.set_ylabel("lateness of events, mean, virtual ms")
    late.set_yscale("log")
    for axes in (rates, late):
        axes.set_xlabel("TDF of ns-3")
        axes.grid(alpha=0.3)
    late.legend(fontsize=8)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def lateness(folder: Path, program: str, tdf: float | None, seconds: float) -> dict:
    inside = [LORENTZ, "run", "--tdf", tdf, "--"] if tdf else []
    name, *flags = program.split()
    return json.loads(run(*inside, folder / name, *flags, f"--seconds={seconds}", timeout=TIMEOUT))


def tables(folder: Path, seconds: float, tdfs: tuple[float | None, ...]) -> list[str]:
    lines = []
    for what, program, theirs in CASES:
        lines += ["", f"{what} (`{program}`), lateness of events in virtual ms:", ""]
        lines += ["| TDF | mean | median | p99 | mean x TDF / first | TimeKeeper's mean |"]
        lines += ["| --- | --- | --- | --- | --- | --- |"]
        first = None
        for tdf in tdfs:
            got = lateness(folder, program, tdf, seconds)
            mean, median, p99 = (got[key] / 1e3 for key in ("mean_us", "median_us", "p99_us"))
            first = first or mean
            part, their = mean * (tdf or 1) / first, theirs.get(tdf, "-")
            row = f"{tdf or 'none'} | {mean:.3f} | {median:.3f} | {p99:.3f} | {part:.2f} | {their}"
            lines += [f"| {row} |"]
            print(f"{what}: {lines[-1]}", flush=True)
    return lines


def main() -> None:
    labs.put_back_when_ended()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="briefly, and only print")
    quick = parser.parse_args().quick
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    text = [
        f"Measured by `benches/ns3.py` on {date}, {os.cpu_count()} processors of a virtual "
        f"machine. Load average at the start: {load}."
    ]
    with tempfile.TemporaryDirectory(prefix="lorentz-ns3-") as folder:
        os.environ["LORENTZ_STATE_DIR"] = f"{folder}/state"
        run("make", "-C", ROOT / "examples" / "ns3", f"OUT={folder}", timeout=TIMEOUT)
        text += tables(Path(folder), 0.5 if quick else 3, (None, 2, 10) if quick else TDFS)
        lines, found = loaded(Path(folder), quick)
    if quick:
        return
    draw(found, ROOT / "docs/networks/ns3.svg")
    text += [*lines, "", "![Throughput and lateness by the TDF of ns-3](networks/ns3.svg)"]
    labs.rewrite("ns3", "\n".join(text))


if __name__ == "__main__":
    main()
