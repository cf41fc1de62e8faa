"""Clocks of several hosts: how far they differ, whether changes come in time, an agent's cost.

Rewrites the figures in docs/cluster.md. Runs as root, with the etcd of scripts/etcd. The hosts are
time namespaces of this machine, so their true difference can be computed.
"""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path

import machine
import page_part
from levels import ROOT
from suites import announce

sys.path.insert(0, str(ROOT / "tests"))

from framework import lorentz as command_line  # noqa: E402
from framework.cluster import Agent, Etcd, Host  # noqa: E402

PAGE = ROOT / "docs/cluster.md"
FIGURES = ROOT / "build/bench/scale.json"
SEED = 29
RATES = ("1/10", "1/3", "1", "2", "10", "100")
CHANGES, FREEZES, PUBLISHED, AGENTS = 1000, 50, 100, 16
#: Errors of a host's clock, ns, and its drift, ppm.
ERRORS = ((1_000_000, 0), (10_000_000, 20))
SECONDS = 60
WATCHES = """
import time
last = time.monotonic_ns()
print('{"ev": "ready"}', flush=True)
while True:
    now = time.monotonic_ns()
    if now < last: print('{"ev": "back"}', flush=True)
    last = now
"""


@contextmanager
def store() -> Iterator[tuple[Path, Etcd]]:
    """A scratch directory with an etcd."""
    with tempfile.TemporaryDirectory(prefix="lorentz-bench-") as name, Etcd(Path(name)) as etcd:
        yield Path(name), etcd


def off(one: Host, other: Host, rate: Fraction) -> int:
    """By how much the clock of `other` is ahead of that of `one`, virtual ns."""
    (real, virtual), (other_real, other_virtual) = one.point("lab"), other.point("lab")
    return round(other_virtual - virtual - rate * (other_real - real))


def random_changes(count: int) -> dict:
    """Two hosts of different CLOCK_MONOTONIC through random changes, with a program that reads the
    clock all the time on each."""
    chance = random.Random(SEED)
    largest, rate = 0, Fraction(1)
    with store() as (folder, etcd), ExitStack() as stack:
        hosts = [Host(folder, "a", 0), Host(folder, "b", 1_000_000)]
        etcd.ok("create", "lab", "--at", "2038-01-19")
        for host in hosts:
            stack.enter_context(host.agent(etcd))
        readers = [
            stack.enter_context(host.program("lab", sys.executable, "-c", WATCHES))
            for host in hosts
        ]
        for reader in readers:
            reader.line(ev="ready")
        for _ in range(count):
            verb = chance.choice(("dilate", "leap", "step"))
            if verb == "dilate":
                text = chance.choice(RATES)
                etcd.ok("dilate", "lab", "--rate", text, "--lead", "100ms")
                rate = Fraction(text)
            else:
                etcd.ok(verb, "lab", f"--by={chance.randrange(1, 10**6)}us", "--lead", "100ms")
            time.sleep(0.15)
            largest = max(largest, abs(off(*hosts, rate)))
        back = sum(len(reader.lines(ev="back")) for reader in readers)
        late = sum(host["late_ns"] > 0 for host in etcd.hosts("lab").values())
    return {"changes": count, "largest_ns": largest, "back": back, "late_at_the_end": late}


def injected(error: int, ppm: int, seconds: int) -> dict:
    """A host whose clock is wrong: the difference beyond rate x (e + d t), and beyond the told
    bounds."""
    rate = 10
    beyond, beyond_told = [], []
    with store() as (folder, etcd), ExitStack() as stack:
        hosts = [Host(folder, "a", 0), Host(folder, "b", 1_000_000)]
        (folder / "error").write_text(str(error))
        wrong = ("--test-offset", str(folder / "error"), "--test-drift", str(ppm))
        told = ("--error-bound", f"{error + ppm * 1000 * (seconds + 10)}ns")
        etcd.ok("create", "lab", "--rate", str(rate))
        begun = time.monotonic()
        stack.enter_context(hosts[0].agent(etcd, "--error-bound", "0s"))
        stack.enter_context(hosts[1].agent(etcd, *wrong, *told))
        for host in hosts:
            etcd.wait_for_host("lab", host.name, change=1)
        while time.monotonic() < begun + seconds:
            difference = abs(off(*hosts, Fraction(rate)))
            grown = ppm * 1000 * (time.monotonic() - begun)
            beyond.append(difference - rate * (error + grown))
            reports = etcd.hosts("lab").values()
            beyond_told.append(difference - sum(host["error_bound_ns"] for host in reports))
            time.sleep(0.5)
    return {"error_ns": error, "ppm": ppm, "beyond_ns": max(beyond), "told_ns": max(beyond_told)}


def freezes(count: int) -> dict:
    """Freezes of hosts whose clocks are 20 ms apart."""
    largest = 0
    with store() as (folder, etcd), ExitStack() as stack:
        hosts = [Host(folder, "a", 0), Host(folder, "b", 1_000_000)]
        etcd.ok("create", "lab", "--rate", "10")
        for host, error in zip(hosts, (10_000_000, -10_000_000), strict=True):
            file = folder / f"error-{host.name}"
            file.write_text(str(error))
            stack.enter_context(host.agent(etcd, "--test-offset", str(file)))
        for _ in range(count):
            etcd.ok("freeze", "lab", "--lead", "200ms")
            time.sleep(0.3)
            first, second = (host.point("lab")[1] for host in hosts)
            largest = max(largest, abs(second - first))
            etcd.ok("unfreeze", "lab", "--lead", "100ms")
            time.sleep(0.2)
    return {"freezes": count, "largest_ns": largest}


def published(count: int, agents: int) -> dict:
    """How many hosts take a change over at its instant."""
    late = []
    with store() as (folder, etcd), ExitStack() as stack:
        hosts = [Host(folder, f"h{number}", number * 1000) for number in range(agents)]
        etcd.ok("create", "lab")
        for host in hosts:
            stack.enter_context(host.agent(etcd))
        for number in range(count):
            rate = RATES[number % len(RATES)]
            change = etcd.change("dilate", "lab", "--rate", rate)["change"]
            for host in hosts:
                report = etcd.wait_for_host("lab", host.name, change=change)
                if report["late_ns"]:
                    late.append(report["late_ns"])
            time.sleep(0.5)
    return {"changes": count, "agents": agents, "late": late}


def used(agent: Agent) -> tuple[float, float]:
    """Processor time of an agent, s, and its resident memory, MB."""
    process = Path(f"/proc/{agent.process.pid}")
    spent = sum(
        int((task / "schedstat").read_text().split()[0]) for task in (process / "task").iterdir()
    )
    status = (process / "status").read_text()
    resident = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return spent / 1e9, int(resident.split()[1]) / 1024


def at_rest(seconds: int) -> dict:
    """The cost of an agent with one clock, while nobody changes it."""
    with store() as (folder, etcd):
        host = Host(folder, "a", 0)
        etcd.ok("create", "lab")
        with host.agent(etcd) as agent:
            etcd.wait_for_host("lab", "a", change=1)
            time.sleep(2)
            before, _ = used(agent)
            time.sleep(seconds)
            after, megabytes = used(agent)
    return {"percent": 100 * (after - before) / seconds, "megabytes": megabytes}


def measure(quick: bool) -> dict:
    """All figures."""
    part = 10 if quick else 1
    figures: dict = {}
    announce("bench: random changes")
    figures["random"] = random_changes(CHANGES // part)
    announce("bench: injected errors")
    figures["injected"] = [injected(error, ppm, SECONDS // part) for error, ppm in ERRORS]
    announce("bench: freezes")
    figures["freezes"] = freezes(FREEZES // part)
    announce("bench: changes of 16 agents")
    figures["published"] = published(PUBLISHED // part, AGENTS)
    announce("bench: an agent at rest")
    figures["rest"] = at_rest(SECONDS // part)
    return figures


def section(about: dict[str, str], figures: dict) -> list[str]:
    """The figures, in Markdown."""
    keys = ("Date", "Kernel", "Processor", "Lorentz")
    known = "; ".join(f"{key}: {about[key]}" for key in keys if key in about)
    changes, frozen, told = figures["random"], figures["freezes"], figures["published"]
    total = told["changes"] * told["agents"]
    in_time = 100 * (total - len(told["late"])) / total
    worst = f"; the latest by {max(told['late']) / 1e6:.1f} ms" if told["late"] else ""
    rest = figures["rest"]
    rows = [
        f"`make bench ARGS=scale` makes this section. {known}; etcd of Debian, on the same two "
        "processors.",
        "",
        "| measured | result | goal |",
        "|---|---|---|",
        f"| two hosts of different CLOCK_MONOTONIC, {changes['changes']} random changes: largest "
        f"difference; readings that went back | {changes['largest_ns']} ns; {changes['back']} | "
        "at most 100 ns; 0 |",
    ]
    for case in figures["injected"]:
        error, ppm = case["error_ns"] / 1e6, case["ppm"]
        rows.append(
            f"| error of {error:g} ms and drift of {ppm} ppm, rate 10: largest difference beyond "
            f"rate x (e + d t); beyond the told bound | {case['beyond_ns']:.0f} ns; "
            f"{case['told_ns'] / 1e6:.3f} ms | at most 1 ns; none above 0 |"
        )
    rows += [
        f"| {frozen['freezes']} freezes of two hosts whose clocks are 20 ms apart: largest "
        f"difference | {frozen['largest_ns']} ns | 0 ns |",
        f"| {told['changes']} changes, {told['agents']} agents, lead 1 s: taken over at their "
        f"instant | {in_time:.2f} %{worst} | 99.9 % |",
        f"| an agent with one clock at rest | {rest['percent']:.3f} % of a processor, "
        f"{rest['megabytes']:.1f} MB | below 0.1 %, 10 MB |",
    ]
    return rows


def run(quick: bool, tsc_hertz: float) -> None:
    """Measures, and writes the figures into the page."""
    about = machine.describe(tsc_hertz)
    try:
        figures = measure(quick)
    finally:
        command_line.session.close()
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(figures))
    text = section(about, figures)
    if not quick:
        page_part.write(PAGE, text)
    print("\n".join(text))
