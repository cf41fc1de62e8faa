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
CHRONYD = ROOT / "build/ntp-daemons/chrony/usr/sbin/chronyd"
SEEDS = range(1, 11)
#: Virtual seconds per real second, at most.
RATE = 2_000
#: Virtual seconds between two looks at the clocks, as in chrony's tests.
LOOK = 1
#: The date of the start.
START = datetime(2010, 1, 1, tzinfo=timezone.utc)
QUIET = "{net.ipv6.conf.all.disable_ipv6: 1, net.ipv4.neigh.eth0.retrans_time_ms: 3600000}"


@dataclasses.dataclass(frozen=True)
class Case:
    """A simulation test of chrony."""

    number: str
    what: str
    #: Errors of the clients' clocks, one case for each.
    errors: tuple[str, ...]
    #: Seconds between which the clock is to be synchronized, if chrony's test says so.
    synced: tuple[int, int] | None
    #: A clock is synchronized when its error is never greater any more, s.
    most: float
    #: The greatest mean error from then on, s, if chrony's test says so.
    rms: float | None
    length: int = 10_000
    #: Strata of servers below the first, which has a true clock.
    strata: tuple[int, int] = (1, 1)
    #: The links' delay and jitter, us.
    delay: tuple[int, int] = (100, 100)
    #: The part of packets that is lost.
    loss: str | None = None
    #: Steps of the client's clock after the start.
    step: str | None = None


DEFAULT = "offset=100ms,drift=+100ppm,wander=1ppb"
CASES = (
    Case("001", "the default: 100 ms, 100 ppm", (DEFAULT,), (120, 210), 1e-3, 3e-4),
    Case(
        "002",
        "3 strata of 4 servers, 5 clients",
        (DEFAULT,),
        None,
        1e-2,
        5e-4,
        strata=(3, 4),
    ),
    Case(
        "003",
        "frequency off by 0.5 % and 5 %",
        (
            "drift=+0.5%,wander=1ppb",
            "drift=-0.5%,wander=1ppb",
            "drift=+5%,wander=1ppb",
            "drift=-5%,wander=1ppb",
        ),
        (0, 1_000),
        1e-3,
        3e-4,
    ),
    Case(
        "004",
        "100 s off, slewed away",
        ("offset=100s,drift=+100ppm,wander=1ppb", "offset=-100s,drift=+100ppm,wander=1ppb"),
        (1_300, 1_400),
        1e-3,
        3e-4,
    ),
    Case(
        "005", "a step of 100 s after 150 s", (DEFAULT,), (1_500, 1_550), 1e-3, 3e-4, step="+100s"
    ),
    Case(
        "006",
        "links with a jitter of 100 ms",
        (DEFAULT,),
        None,
        1.0,
        0.1,
        delay=(100, 100_000),
    ),
    Case(
        "007",
        "a wander of 100 ppb in a second",
        ("offset=100ms,drift=+100ppm,wander=100ppb",),
        None,
        1e-2,
        1e-3,
    ),
    Case("125", "a third of all packets lost", (DEFAULT,), None, 1e-3, None, loss="33%"),
)


@dataclasses.dataclass
class Result:
    synced: int
    most: float
    rms: float
    real: float


def seeded(error: str, seed: int) -> str:
    return f"{error},seed={seed}"


def link(case: Case, one: str, other: str, address: str, others: str) -> str:
    """A link of a topology. A way over the hub has two, each with half of the delay."""
    parts = 1 if case.strata[0] == 1 else 2
    least, spread = (part / parts for part in case.delay)
    what = f"delay: {least + spread}us"
    jitter = f"jitter: {{spread: {spread}us, distribution: exponential}}"
    ends = f"endpoints: ['{one}', '{other}'], ipv4: [{address}, {others}]"
    return f"    - {{{ends}, {what}, {jitter}}}\n"


def nodes_of(case: Case, error: str, seed: int, folder: Path) -> tuple[str, str, list[str]]:
    """Returns nodes and links of a case, and the names of its clients."""
    strata, servers = case.strata
    clients = 1 if strata == 1 else 5
    rows = [
        [f"s{row}n{at}" for at in range(1 if strata == 1 else servers)] for row in range(strata)
    ]
    rows.append([f"c{at}" for at in range(clients)])
    address, nodes, links, above = {}, "", "", []
    for row, names in enumerate(rows):
        for name in names:
            address[name] = f"10.0.{row}.{len(address) + 1}"
            sources = "".join(f"server {address[one]} minpoll 6 maxpoll 6\n" for one in above)
            serves = "local stratum 1\n" if row == 0 else ""
            config = folder / f"{name}.conf"
            config.write_text(
                f"{sources}{serves}allow\ncmdport 0\nclockprecision 1e-9\n"
                f"pidfile {folder}/{name}.pid\n"
            )
            own = "" if row == 0 else f", clock-error: '{seeded(error, 100 * seed + len(address))}'"
            flags = "-d, -x" if row == 0 else "-d"
            nodes += (
                f"    {name}: {{command: [{CHRONYD}, {flags}, -f, {config}, -u, root], "
                f"sysctls: {QUIET}{own}}}\n"
            )
            links += link(case, f"{name}:eth0", f"hub:{name}", f"{address[name]}/16", "null")
        above = names
    if strata == 1:
        server, client = address
        ends = (f"{server}:eth0", f"{client}:eth0")
        return nodes, link(case, *ends, *(f"{address[one]}/16" for one in address)), rows[-1]
    return nodes + "    hub: {kind: switch}\n", links, rows[-1]


def topology(case: Case, error: str, seed: int, folder: Path) -> tuple[str, list[str]]:
    nodes, links, clients = nodes_of(case, error, seed, folder)
    changes = [f"at: 150s, clock: {name}, bump: {case.step}" for name in clients if case.step]
    if case.loss:
        # Addresses are known by then.
        changes.append(
            f"at: 10s, link: '{clients[0]}:eth0', set: {{loss: {case.loss}}}, both: true"
        )
    schedule = "".join(f"  - {{{change}}}\n" for change in changes)
    schedule = f"schedule:\n{schedule}" if changes else ""
    return (
        f"name: discipline\nrounds: true\ncompute: none\nseed: {seed}\n"
        f"at: 2010-01-01T00:00:00Z\ntopology:\n  nodes:\n{nodes}  links:\n{links}{schedule}",
        clients,
    )


def truth(look: dict) -> float:
    """The truth at a look, s from the start."""
    date, _, fraction = look["wall"].rstrip("Z").partition(".")
    since = datetime.fromisoformat(f"{date}+00:00") - START
    return since.total_seconds() + float(f"0.{fraction or 0}") - look["offset_ns"] / 1e9


def looks(name: str, length: int) -> Iterator[dict]:
    """Yields the looks of `lorentz clock log` at a node. The network goes fast from the first
    look on."""
    words = [LORENTZ, "clock", "log", f"discipline.{name}", "--every", f"{LOOK}s", "--json"]
    command = [*words, "--for", f"{length}s"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield json.loads(process.stdout.readline())
        run(LORENTZ, "dilate", "discipline", "--rate", RATE)
        yield from map(json.loads, process.stdout)


def measure(case: Case, error: str, seed: int) -> Result:
    with tempfile.TemporaryDirectory(prefix="lorentz-discipline-") as name:
        folder = Path(name)
        text, clients = topology(case, error, seed, folder)
        file = folder / "discipline.yaml"
        file.write_text(text)
        begun = time.monotonic()
        run(LORENTZ, "up", file)
        try:
            seen = list(looks(clients[0], case.length))
        finally:
            run(LORENTZ, "down", "discipline")
        real = time.monotonic() - begun
    offsets = [look["offset_ns"] / 1e9 for look in seen]
    last = max((at for at, offset in enumerate(offsets) if abs(offset) > case.most), default=-1)
    after = offsets[last + 1 :] or [math.inf]
    root = math.sqrt(statistics.fmean(value * value for value in after))
    synced = round(truth(seen[last + 1])) if last + 1 < len(seen) else case.length
    return Result(synced, max(map(abs, after)), root, real)


def is_within(case: Case, result: Result) -> bool:
    least, longest = case.synced or (0, case.length - 1)
    return least <= result.synced <= longest and result.rms <= (case.rms or case.most)


def row(case: Case, results: list[Result]) -> str:
    good = sum(is_within(case, result) for result in results)
    synced = [result.synced for result in results]
    worst = max(result.most for result in results)
    rms = statistics.median(result.rms for result in results)
    real = statistics.median(result.real for result in results)
    times = f" ({case.synced[0]} to {case.synced[1]})" if case.synced else ""
    accepted = f" ({case.rms * 1e6:.0f})" if case.rms else ""
    return (
        f"| {case.number} | {case.what} | {min(synced)} to {max(synced)}{times} | "
        f"{worst * 1e6:.0f} ({case.most * 1e6:.0f}) | {rms * 1e6:.1f}{accepted} | "
        f"{good} of {len(results)} | {real:.0f} s |"
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
    with tempfile.TemporaryDirectory(prefix="lorentz-bench-") as state:
        os.environ["LORENTZ_STATE_DIR"] = state
        for case in CASES:
            if args.case not in (None, case.number):
                continue
            seeds = SEEDS[:1] if args.quick else SEEDS
            results = [measure(case, error, seed) for seed in seeds for error in case.errors]
            lines.append(row(case, results))
            print(lines[-1], flush=True)
    if args.quick or args.case:
        return
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    write(
        PAGE,
        [
            f"Measured by `make bench ARGS=discipline` on {date}, {os.cpu_count()} processors: "
            f"Debian's chrony 4.3, {len(SEEDS)} seeds of each case, 10,000 virtual seconds. A "
            "clock is synchronized from the first second on after which its error never exceeds a "
            "bound. That and the limits of chrony's own test stand in brackets, as far as known.",
            "",
            "| test | case | synchronized after, s | greatest error then, us | RMS, us (median) "
            "| within | a run takes |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *lines,
        ],
    )


if __name__ == "__main__":
    main()
