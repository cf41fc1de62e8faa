"""Measures the estimators of available bandwidth over a path of known bandwidth: docs/bandwidth.md.

Three network namespaces in a row. The middle one is a link of constant rate in user space
(crates/bandwidth/examples/bottleneck.rs) with cross traffic of its own. Needs root. Link and
receiver share one processor, the link under SCHED_FIFO. The sender has the other, as any program.
So the result depends on the method and its timers, not on competition for a processor.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import machine
import page_part
from levels import LORENTZ, ROOT

BOTTLENECK = ROOT / "target/release/examples/bottleneck"
PAGE = ROOT / "docs/bandwidth.md"
RAW = ROOT / "build/bench/bandwidth.json"
METHODS = ("trains", "slops", "yaz")
TIMERS = ("precise", "system")
#: Number of estimates of each kind.
TRIALS = 10
#: As in the timing paper.
PUBLISHED_TRIALS = 250
MBIT = 1_000_000
SERVER = "10.99.0.2"
#: Processors of link and receiver, and of the sender.
FAR, NEAR = (("taskset", "--cpu-list", number) for number in "01")


@dataclass(frozen=True)
class Scenario:
    """A path: rate in bit/s, one way delay in us."""

    name: str
    rate: int
    cross: tuple[int, ...]
    delay: int
    bytes: int
    methods: tuple[str, ...] = METHODS


SCENARIOS = (
    Scenario("300 Mbit/s", 300, (0, 50, 100, 150, 200, 250), 0, 1500),
    Scenario("1 Gbit/s", 1_000, (500,), 0, 1500),
    Scenario("10 Gbit/s, RTT 20 ms, jumbo frames", 10_000, (1_000,), 10_000, 9000, ("trains",)),
    # Frames of 32 kB: two processors cannot pace 10 Gbit/s in frames of 9000 bytes. veth accepts
    # such frames; no real link does.
    Scenario("10 Gbit/s, RTT 20 ms, 32 kB", 10_000, (1_000,), 10_000, 32_000, ("trains",)),
)


def ip(*words: str) -> None:
    """Run ip."""
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextmanager
def namespaces() -> Iterator[dict[str, str]]:
    """Makes three namespaces in a row: sender, link, receiver."""
    names = {role: f"lorentz-bench-{os.getpid()}-{role}" for role in ("from", "link", "to")}
    try:
        for name in names.values():
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
            quiet = "net.ipv6.conf.all.disable_ipv6=1"
            inside = ["ip", "netns", "exec", name, "sysctl", "-qw", quiet]
            subprocess.run(inside, check=False, capture_output=True)
        for near, far, role in (("near0", "near1", "from"), ("far0", "far1", "to")):
            ends = ("type", "veth", "peer", "name", far, "netns", names["link"])
            ip("link", "add", near, "netns", names[role], *ends)
            for name, end in ((names[role], near), (names["link"], far)):
                ip("-n", name, "link", "set", end, "mtu", "65535", "up")
        ip("-n", names["from"], "addr", "add", "10.99.0.1/24", "dev", "near0")
        ip("-n", names["to"], "addr", "add", f"{SERVER}/24", "dev", "far0")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@contextmanager
def running(*command: str) -> Iterator[subprocess.Popen]:
    """Runs a process until the block ends. Waits for its first line."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()


@contextmanager
def path(scenario: Scenario, cross: int, seconds: int) -> Iterator[list[str]]:
    """Makes the path. Returns the words before a command that runs at its near end."""
    with namespaces() as names:
        # `ip netns exec` hides the control groups, which containers need.
        inside = {role: ["nsenter", f"--net=/run/netns/{name}"] for role, name in names.items()}
        rates = (str(scenario.rate * MBIT), str(cross * MBIT))
        # A queue of 0.1 s, as routers have.
        queue = str(scenario.rate * MBIT // 8 // 10)
        link = (str(BOTTLENECK), "near1", "far1", *rates, queue, str(scenario.delay), str(seconds))
        serve = (LORENTZ, "bandwidth", "serve")
        with running(*inside["link"], *FAR, *link), running(*inside["to"], *FAR, *serve):
            yield [*inside["from"], *NEAR]


def estimate(
    inside: list[str],
    scenario: Scenario,
    method: str,
    timers: str,
    lorentz: tuple[str, ...] = (LORENTZ,),
) -> dict | None:
    """Returns one estimate; None if the estimator does not finish. `lorentz`: the words that run
    the command."""
    words = ("--method", method, "--timers", timers, "--packet", str(scenario.bytes), "--json")
    most = ("--rate-max", f"{2 * scenario.rate}mbit")
    command = [*inside, *lorentz, "bandwidth", SERVER, *words, *most]
    with suppress(subprocess.TimeoutExpired):
        run = subprocess.run(command, capture_output=True, text=True, timeout=90)
        if run.stdout:
            return json.loads(run.stdout)
    return None


def measure(quick: bool, rows: list[dict]) -> None:
    """Adds a row for each path, method and timers."""
    build = ["cargo", "build", "--release", "--locked", "--package", "lorentz-bandwidth"]
    subprocess.run([*build, "--example", "bottleneck"], cwd=ROOT, check=True)
    trials = 2 if quick else TRIALS
    there = {(one["scenario"], one["cross"]) for one in rows}
    for scenario in SCENARIOS:
        few = scenario.cross[::2] if quick else scenario.cross
        for cross in few:
            if (scenario.name, cross) in there:
                continue
            found = {(method, timers): [] for method in scenario.methods for timers in TIMERS}
            with path(scenario, cross, seconds=3600) as inside:
                # One of each kind after another: disturbances of the host hit all kinds alike.
                for _ in range(trials):
                    for (method, timers), of in found.items():
                        of.append(estimate(inside, scenario, method, timers))
            for (method, timers), of in found.items():
                rows.append(row(scenario, cross, method, timers, of))
                print(json.dumps(rows[-1]), flush=True)


def row(scenario: Scenario, cross: int, method: str, timers: str, found: list) -> dict:
    """Returns the summary of the trials of one kind, Mbit/s."""
    values = [one for one in found if one and one["bound"] == "value"]
    rates = sorted(one["available"] / MBIT for one in values)
    truth = scenario.rate - cross
    median = statistics.median(rates) if rates else None
    quarters = statistics.quantiles(rates, n=4, method="inclusive") if len(rates) > 1 else None
    inside = sum(one["low"] / MBIT <= truth <= one["high"] / MBIT for one in values)
    return {
        "scenario": scenario.name,
        "cross": cross,
        "truth": truth,
        "method": method,
        "timers": timers,
        "trials": len(found),
        "values": len(rates),
        "inside": inside,
        "median": median,
        "mad": (quarters[2] - quarters[0]) / 2 if quarters else None,
        "bounds": sorted({one["bound"] for one in found if one} - {"value"}),
        "cautions": sorted({caution for one in found if one for caution in one["cautions"]}),
        "seconds": statistics.median(one["seconds"] for one in found if one)
        if any(found)
        else None,
        "reached": max((one["rate_reached"] / MBIT for one in found if one), default=None),
    }


def shown(value: float | None, form: str = ".1f") -> str:
    """Formats a number for a table, or its absence."""
    return "-" if value is None else format(value, form)


def table(rows: list[dict]) -> list[str]:
    """Returns the table."""
    lines = [
        "| path | cross | truth | method | timers | values | median | error | MAD | held | notes |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for one in rows:
        error = None if one["median"] is None else (one["median"] / one["truth"] - 1) * 100
        notes = [*one["bounds"], *one["cautions"]]
        if "rate_not_reachable" in notes or "at_least" in notes:
            notes.append(f"at most {shown(one['reached'], '.0f')} sent")
        cells = [
            one["scenario"],
            str(one["cross"]),
            str(one["truth"]),
            one["method"],
            one["timers"],
            f"{one['values']} of {one['trials']}",
            shown(one["median"]),
            shown(error, "+.1f") + (" %" if error is not None else ""),
            shown(one["mad"]),
            f"{one['inside']} of {one['values']}",
            ", ".join(notes),
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def goals(rows: list[dict]) -> list[str]:
    """Returns the goals, and whether each is met."""
    by = {(one["scenario"], one["cross"], one["method"], one["timers"]): one for one in rows}

    def error(one: dict) -> float:
        return abs(one["median"] / one["truth"] - 1) if one["median"] is not None else 1.0

    pairs = [(one, by[(*key[:3], "system")]) for key, one in by.items() if key[3] == "precise"]
    lines = []
    for method in METHODS:
        of = [(a, b) for a, b in pairs if a["method"] == method]
        close = sum(error(a) <= 0.05 for a, _ in of)
        worse = sum(error(b) >= 2 * error(a) for a, b in of)
        tighter = sum(
            a["mad"] is not None and (b["mad"] is None or a["mad"] <= b["mad"] / 2) for a, b in of
        )
        lines.append(
            f"- {method}: median within 5 % of the truth on {close} of {len(of)} paths; with "
            f"system timers at least twice as far off on {worse}; with precise ones at most half "
            f"the MAD, or a MAD where there is none otherwise, on {tighter}."
        )
    return lines


def run(quick: bool, tsc_hertz: float) -> None:
    """Measures, and writes the figures into the page."""
    if os.geteuid() != 0:
        raise RuntimeError("network namespaces are made by root")
    if not {0, 1} <= os.sched_getaffinity(0):
        raise RuntimeError("the link and the sender have a processor each: 0 and 1 are wanted")
    record = {"machine": machine.describe(tsc_hertz), "quick": quick, "seconds": 0, "rows": []}
    if not quick:
        record = left(record["machine"]) or record
    before, started = record["seconds"], time.monotonic()
    try:
        measure(quick, record["rows"])
    finally:
        record["seconds"] = before + time.monotonic() - started
        # Save after each row: a run takes an hour and may be ended early.
        if record["rows"]:
            show(record)


def left(about: dict[str, str]) -> dict | None:
    """Returns the record of a run that was ended early, if it is of this build on this machine in
    its present state."""
    if not RAW.exists():
        return None
    old = json.loads(RAW.read_text())
    same = ("Kernel", "Processor", "Clock source", "Measured")
    goes_on = (
        not old["quick"]
        and all(old["machine"][name] == about[name] for name in same)
        and len(old["rows"]) < asked(quick=False)
        and all(one["trials"] == TRIALS for one in old["rows"])
    )
    return old if goes_on else None


def asked(quick: bool) -> int:
    """Returns the number of rows of a complete run."""
    return sum(
        len(one.cross[::2] if quick else one.cross) * len(one.methods) * len(TIMERS)
        for one in SCENARIOS
    )


def show(record: dict) -> None:
    """Writes the figures, raw and into the page."""
    RAW.write_text(json.dumps(record, indent=1) + "\n")
    rows, quick, whole = record["rows"], record["quick"], asked(record["quick"])
    about = record["machine"]
    lines = [f"- {name}: {value}" for name, value in about.items() if name != "Beside it"]
    lines.append(f"- It took {record['seconds'] / 60:.0f} minutes.")
    if len(rows) < whole:
        lines.append(f"- Ended early: {len(rows)} of {whole} rows; the same command goes on.")
    if quick:
        lines.append("- A short run of few trials, on a machine that others used at the same time.")
    lines += [
        "",
        *goals(rows),
        "",
        "Mbit/s; values: trials that gave one, and not a bound or nothing; MAD: half the",
        "interquartile range of these; held: how many of their intervals hold the truth.",
        "",
        *table(rows),
    ]
    page_part.write(PAGE, lines)
    print("\n".join(lines))
