#!/usr/bin/env python3
"""How well chrony disciplines clocks that err, in networks in rounds.

    benches/discipline.py            measures, and rewrites the figures in docs/clock-errors.md
    benches/discipline.py --quick    one seed, and only prints

The cases have the settings and the limits of chrony's own simulation tests, of the same numbers.
Needs root, and chrony from scripts/ntp-daemons.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

import labs
from labs import LORENTZ, ROOT, run
from page_part import write

PAGE = ROOT / "docs" / "clock-errors.md"
LEAP_SERVER = ROOT / "benches/leap_server.py"
CHRONYD = ROOT / "build/ntp-daemons/chrony/usr/sbin/chronyd"
SEEDS = range(1, 11)
#: Virtual seconds per real second, at most.
RATE = 2_000
#: Virtual seconds between two looks at the clocks, as in chrony's tests.
LOOK = 1
#: The date of the start.
START = datetime(2010, 1, 1, tzinfo=timezone.utc)
#: Errors of the servers between the first and the clients.
DRIFTING = "drift=+100ppm,wander=1ppb"
QUIET = "{net.ipv6.conf.all.disable_ipv6: 1, net.ipv4.neigh.eth0.retrans_time_ms: 3600000}"


@dataclasses.dataclass(frozen=True)
class Limits:
    """Limits of a simulation test of chrony; those of most tests by default."""

    #: Seconds between which the clock is to be synchronized.
    synced: tuple[int, int] = (120, 210)
    #: The greatest error of a synchronized clock, s.
    most: float = 1e-3
    #: Its mean error, s.
    rms: float = 3e-4
    #: The greatest error of its frequency, and the mean one.
    frequency_most: float = 5e-4
    frequency_rms: float = 1e-5


@dataclasses.dataclass(frozen=True)
class Case:
    """A simulation test of chrony."""

    number: str
    what: str
    #: Errors of the clients' clocks, one case for each.
    errors: tuple[str, ...]
    limits: Limits = Limits()
    length: int = 10_000
    #: Strata of servers below the first, which has a true clock.
    strata: tuple[int, int] = (1, 1)
    #: The links' least delay, and the mean of what comes on top of it at random, us: to the
    #: server, and from it.
    delay: tuple[float, float, float] = (100, 100, 100)
    #: The part of packets that is lost.
    loss: str | None = None
    #: Steps of the client's clock after the start.
    step: str | None = None
    #: Seconds after which a client begins.
    begins: int = 0
    #: A client's options for its servers, and further lines of its configuration.
    of_servers: str = ""
    config: str = ""
    #: The frequency in a client's drift file, ppm, one case for each.
    drift_files: tuple[str | None, ...] = (None,)
    #: The date of the start.
    start: datetime = START
    #: Seconds after which a second is inserted.
    leap: int | None = None
    #: The error of the first server's clock, whose program takes it for a true one.
    falseticker: str | None = None


DEFAULT = "offset=100ms,drift=+100ppm,wander=1ppb"
#: Two hours before the leap second at the end of 2008.
BEFORE_LEAP = datetime(2008, 12, 31, 22, tzinfo=timezone.utc)


def leap_case(mode: str, latest: int) -> Case:
    """The client inserts a leap second by `mode`, at most `latest` seconds late."""
    return Case(
        "113",
        f"a leap second, `leapsecmode {mode}`",
        (DEFAULT,),
        Limits((120, 7_200 + latest)),
        length=14_400,
        config=f"leapsecmode {mode}",
        start=BEFORE_LEAP,
        leap=7_200,
    )


CASES = (
    Case("001", "the default: 100 ms, 100 ppm", (DEFAULT,)),
    Case(
        "002",
        "3 strata of 4 servers, 5 clients, which begin after 2,000 s",
        (DEFAULT,),
        Limits((2_100, 2_300), rms=5e-4),
        strata=(3, 4),
        begins=2_000,
    ),
    Case(
        "003",
        "frequency off by 0.5 % and 5 %",
        (
            "offset=-650ms,drift=+0.5%,wander=1ppb",
            "offset=+650ms,drift=-0.5%,wander=1ppb",
            "offset=-6.5s,drift=+5%,wander=1ppb",
            "offset=+6.5s,drift=-5%,wander=1ppb",
        ),
        Limits((120, 1_000)),
    ),
    Case(
        "004",
        "100 s off, slewed away",
        ("offset=100s,drift=+100ppm,wander=1ppb", "offset=-100s,drift=+100ppm,wander=1ppb"),
        Limits((1_300, 1_400)),
    ),
    Case("005", "a step of 100 s after 150 s", (DEFAULT,), Limits((1_500, 1_550)), step="+100s"),
    Case(
        "006",
        "links with a jitter of 100 ms",
        ("offset=1s,drift=+100ppm,wander=1ppb",),
        Limits(most=0.5, rms=0.1, frequency_most=0.2, frequency_rms=5e-3),
        delay=(100, 100_000, 100_000),
    ),
    Case(
        "007",
        "a wander of 100 ppb in a second",
        ("offset=100ms,drift=+100ppm,wander=100ppb",),
        Limits(most=5e-3, rms=1e-3, frequency_most=5e-3, frequency_rms=1e-4),
    ),
    Case(
        "011",
        "a jitter of 485 us on the way there, 15 us back; 100,000 s",
        (DEFAULT,),
        Limits((120, 2_000)),
        length=100_000,
        delay=(100, 485, 15),
    ),
    leap_case("system", 0),
    leap_case("step", 0),
    leap_case("slew", 12),
    Case("125", "a third of all packets lost", (DEFAULT,), Limits((120, 500)), loss="33%"),
    Case(
        "201",
        "a drift file that is off by up to 10,000 ppm, frequency by up to 5 %",
        tuple(f"offset=100s,drift={drift}" for drift in ("-5%", "-500ppm", "+500ppm", "+5%")),
        Limits((120, 140), most=1e-5, rms=1e-5, frequency_most=1e-7, frequency_rms=1e-7),
        length=180,
        delay=(1, 1, 1),
        of_servers="minpoll 6 maxpoll 6",
        config="makestep 1 1",
        drift_files=("-10000", "-100", "100", "10000"),
    ),
)


@dataclasses.dataclass
class Result:
    """Of a run: the second after which the clock is synchronized, then its errors in s and of its
    frequency, and the real time, s."""

    synced: int
    most: float
    rms: float
    frequency_rms: float
    real: float


def link(case: Case, below: str, above: str, addresses: tuple[str, str]) -> str:
    """A link of a topology. A way over the hub has two, each with half of the delay."""
    parts = 1 if case.strata[0] == 1 else 2
    least, up, down = (part / parts for part in case.delay)

    def way(mean: float) -> str:
        jitter = f"{{spread: {mean}us, distribution: exponential}}"
        return f"{{delay: {least + mean}us, jitter: {jitter}}}"

    ends = f"endpoints: ['{below}', '{above}'], ipv4: [{', '.join(addresses)}]"
    return f"    - {{{ends}, from: {{'{below}': {way(up)}, '{above}': {way(down)}}}}}\n"


def server(case: Case, config: Path) -> str:
    """The command of a server with a true clock."""
    if case.leap is None:
        return f"[{CHRONYD}, -d, -x, -f, {config}, -u, root]"
    leap = int(case.start.timestamp()) + case.leap
    return f"[{sys.executable}, -IS, {LEAP_SERVER}, '{leap}']"


def nodes_of(
    case: Case, error: str, drift_file: str | None, seed: int, folder: Path
) -> tuple[str, str, list[str]]:
    """Returns nodes and links of a case, and the names of its clients."""
    strata, servers = case.strata
    clients = 1 if strata == 1 else 5
    rows = [
        [f"s{row}n{at}" for at in range(1 if strata == 1 else servers)] for row in range(strata)
    ]
    rows.append([f"c{at}" for at in range(clients)])
    address, nodes, links, above = {}, "", "", []
    for row, names in enumerate(rows):
        is_client = row == strata
        for name in names:
            address[name] = f"10.0.{row}.{len(address) + 1}"
            of_servers = case.of_servers if is_client else ""
            lines = [f"server {address[one]} {of_servers}" for one in above]
            if row == 0:
                lines.append("local stratum 1")
            if is_client:
                lines.append(case.config)
            if is_client and drift_file:
                (folder / "drift").write_text(f"{drift_file} 100000\n")
                lines.append(f"driftfile {folder}/drift")
            lines += ["allow", "cmdport 0", "clockprecision 1e-9", f"pidfile {folder}/{name}.pid"]
            config = folder / f"{name}.conf"
            config.write_text("".join(f"{line}\n" for line in lines))
            own = ""
            if row > 0:
                errs = error if is_client else DRIFTING
                own = f", clock-error: '{errs},seed={100 * seed + len(address)}'"
            elif case.falseticker and name == names[0]:
                own = f", clock-error: '{case.falseticker}'"
            command = f"[{CHRONYD}, -d, -f, {config}, -u, root]"
            if row == 0:
                command = server(case, config)
            elif is_client and case.begins:
                chronyd = f"exec {CHRONYD} -d -f {config} -u root"
                command = f"[sh, -c, 'sleep {case.begins}; {chronyd}']"
            nodes += f"    {name}: {{command: {command}, sysctls: {QUIET}{own}}}\n"
            to_hub = (f"{address[name]}/16", "null")
            links += link(case, f"{name}:eth0", f"hub:{name}", to_hub)
        above = names
    if strata == 1:
        first, client = address
        ends = (f"{address[client]}/16", f"{address[first]}/16")
        return nodes, link(case, f"{client}:eth0", f"{first}:eth0", ends), rows[-1]
    return nodes + "    hub: {kind: switch}\n", links, rows[-1]


def topology(
    case: Case, error: str, drift_file: str | None, seed: int, folder: Path
) -> tuple[str, list[str]]:
    nodes, links, clients = nodes_of(case, error, drift_file, seed, folder)
    changes = [f"at: 150s, clock: {name}, bump: {case.step}" for name in clients if case.step]
    if case.loss:
        # Addresses are known by then.
        changes.append(
            f"at: 10s, link: '{clients[0]}:eth0', set: {{loss: {case.loss}}}, both: true"
        )
    schedule = "".join(f"  - {{{change}}}\n" for change in changes)
    schedule = f"schedule:\n{schedule}" if changes else ""
    at = case.start.strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"name: discipline\nrounds: true\ncompute: none\nseed: {seed}\n"
        f"at: {at}\ntopology:\n  nodes:\n{nodes}  links:\n{links}{schedule}",
        clients,
    )


def truth(case: Case, look: dict) -> float:
    """The truth at a look, s from the start."""
    date, _, fraction = look["wall"].rstrip("Z").partition(".")
    since = datetime.fromisoformat(f"{date}+00:00") - case.start
    return since.total_seconds() + float(f"0.{fraction or 0}") - look["offset_ns"] / 1e9


def looks(case: Case, name: str) -> Iterator[dict]:
    """Yields the looks of `lorentz clock log` at a node, at whole seconds of the truth. The network
    goes fast from the first look on."""
    words = [LORENTZ, "clock", "log", f"discipline.{name}", "--every", f"{LOOK}s", "--json"]
    command = [*words, "--for", f"{case.length}s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield json.loads(process.stdout.readline())
        run(LORENTZ, "dilate", "discipline", "--rate", RATE)
        yield from map(json.loads, process.stdout)


def root_mean_square(values: list[float]) -> float:
    return math.sqrt(statistics.fmean(value * value for value in values))


def result_of(case: Case, seen: list[dict], real: float) -> Result:
    """Judges the looks at a client, as chrony's tests do."""
    # The truth has no leap seconds: a clock with the second that was inserted is one behind.
    aim = 0 if case.leap is None else -1
    offsets = [look["offset_ns"] / 1e9 - aim for look in seen]
    frequencies = [look["frequency_ppm"] / 1e6 for look in seen]
    limits = case.limits
    off = [
        at
        for at, (offset, frequency) in enumerate(zip(offsets, frequencies, strict=True))
        if abs(offset) > limits.most or abs(frequency) > limits.frequency_most
    ]
    first = off[-1] + 1 if off else 0
    if first == len(seen):
        return Result(case.length, math.inf, math.inf, math.inf, real)
    after = offsets[first:]
    return Result(
        round(truth(case, seen[first - 1])) if off else 0,
        max(map(abs, after)),
        root_mean_square(after),
        root_mean_square(frequencies[first:]),
        real,
    )


def measure(case: Case, error: str, drift_file: str | None, seed: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="lorentz-discipline-") as name:
        folder = Path(name)
        text, clients = topology(case, error, drift_file, seed, folder)
        begun = time.monotonic()
        with labs.network("discipline", text):
            seen = list(looks(case, clients[0]))
        return result_of(case, seen, time.monotonic() - begun)


def is_within(limits: Limits, result: Result) -> bool:
    least, longest = limits.synced
    return (
        least <= result.synced <= longest
        and result.rms <= limits.rms
        and result.frequency_rms <= limits.frequency_rms
    )


def row(case: Case, results: list[Result]) -> str:
    limits = case.limits
    good = sum(is_within(limits, result) for result in results)
    synced = [result.synced for result in results]
    worst = max(result.most for result in results)
    rms = statistics.median(result.rms for result in results)
    frequency = statistics.median(result.frequency_rms for result in results)
    real = statistics.median(result.real for result in results)
    return (
        f"| {case.number} | {case.what} "
        f"| {min(synced)} to {max(synced)} ({limits.synced[0]} to {limits.synced[1]}) "
        f"| {worst * 1e6:.1f} ({limits.most * 1e6:.0f}) | {rms * 1e6:.1f} ({limits.rms * 1e6:.0f}) "
        f"| {frequency * 1e6:.2f} ({limits.frequency_rms * 1e6:g}) "
        f"| {good} of {len(results)} | {real:.0f} s |"
    )


def main() -> None:
    labs.put_back_when_ended()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one seed, and only print")
    parser.add_argument("--case", help="only the case of this number; only print")
    args = parser.parse_args()
    if os.geteuid() != 0 or not CHRONYD.exists():
        sys.exit("benches/discipline.py: needs root, and chrony: scripts/ntp-daemons fetches it")
    lines = []
    with labs.own_state():
        for case in CASES:
            if args.case not in (None, case.number):
                continue
            seeds = SEEDS[:1] if args.quick else SEEDS
            results = [
                measure(case, error, drift_file, seed)
                for seed in seeds
                for error in case.errors
                for drift_file in case.drift_files
            ]
            lines.append(row(case, results))
            print(lines[-1], flush=True)
    if args.quick or args.case:
        return
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    write(
        PAGE,
        [
            f"Measured by `make bench ARGS=discipline` on {date}, {os.cpu_count()} processors: "
            f"Debian's chrony 4.3, {len(SEEDS)} seeds of each case. A clock is synchronized after "
            "the last look at which its time or its frequency is off by more than a bound; looks "
            "lie at whole seconds. Limits of chrony's test stand in brackets.",
            "",
            "| test | case | synchronized after, s | greatest error then, us | RMS, us (median) "
            "| RMS of the frequency, ppm (median) | within | a run takes |",
            "| --- | --- | --- | --- | --- | --- | --- | --- |",
            *lines,
        ],
    )


if __name__ == "__main__":
    main()
