#!/usr/bin/env python3
"""OSPF on a ring of 200 routers: the time to learn all routes, and to route around a cut.

    benches/ospf.py            measures, and rewrites the figures in docs/networks.md
    benches/ospf.py --quick    20 routers, and only prints

Needs root and bird2. It raises the TDF until the emulator delivers frames in time: until at most
one in a hundred is later than a quarter of the links' delay. It takes some ten minutes.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from datetime import datetime, timezone
from pathlib import Path

import labs
from labs import LORENTZ, ROOT, TIMEOUT, run

sys.path[:0] = [str(ROOT / "tests")]

from framework.ospf import START_SECONDS, Ring  # noqa: E402

#: The links' delay, ms, and the greatest 99th percentile of lateness as a part of it.
DELAY_MS, PART = 20, 0.25
TDFS = (1, 2, 5, 10, 20, 40)
#: Time limit for the routers to converge, real seconds per unit of TDF.
CONVERGENCE_TIMEOUT = 120
#: Number of frames after which the lateness is checked during a run.
ENOUGH = 20_000


class TooLateError(Exception):
    """The emulator delivers frames too late at this TDF."""


def status() -> dict:
    return json.loads(run(LORENTZ, "inspect", "ospf", "--json"))


def now() -> float:
    """Returns the virtual seconds since the start. Faster than `inspect`, which looks at every
    node."""
    return float(run(LORENTZ, "exec", "ospf.n0", "--", "date", "+%s.%N")) - START_SECONDS


def late_ms() -> float:
    return status()["lateness"]["p99_ns"] / 1e6


def memory_mib(folder: Path) -> float:
    """Returns the memory of the routers, their monitors and the emulator, MiB; shared pages count
    once. All these processes have the folder on their command lines."""
    total = 0
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if str(folder).encode() in (process / "cmdline").read_bytes():
                shown = (process / "smaps_rollup").read_text()
                total += int(shown.partition("\nPss:")[2].split()[0])
        except (OSError, IndexError):
            pass  # It has ended.
    return total / 1024


def wait(ring: Ring, good: object, tdf: float, is_last: bool) -> None:
    """Waits until `good` for every router. It asks seldom, because routers answer on their
    clock."""
    deadline = time.monotonic() + CONVERGENCE_TIMEOUT * tdf
    for router in range(ring.count):
        while not good(router):
            late = status()["lateness"]
            if late["count"] > ENOUGH and late["p99_ns"] > PART * DELAY_MS * 1e6 and not is_last:
                raise TooLateError(f"p99 {late['p99_ns'] / 1e6:.1f} ms")
            if time.monotonic() > deadline:
                sys.exit(
                    f"benches/ospf.py: n{router} has not settled in {CONVERGENCE_TIMEOUT * tdf} s"
                )
            time.sleep(0.5 * tdf)


def measure(ring: Ring, tdf: float, is_last: bool, file: Path) -> dict:
    file.write_text(f"name: ospf\ntdf: {tdf}\n{ring.topology()}")
    began = time.monotonic()
    try:
        run(LORENTZ, "up", file)
        up = time.monotonic()
        wait(ring, ring.knows_all, tdf, is_last)
        learned, learned_real = ring.settled(), time.monotonic()
        memory = memory_mib(ring.folder)
        cut, cut_real = now(), time.monotonic()
        run(LORENTZ, "link", "set", "n0:eth0", "--down", "--network", "ospf")
        wait(ring, ring.goes_around, tdf, is_last)
        around, around_real = ring.settled() - cut, time.monotonic()
        if late_ms() > PART * DELAY_MS and not is_last:
            raise TooLateError(f"p99 {late_ms():.1f} ms")
        late = status()["lateness"]
    finally:
        subprocess.run([LORENTZ, "down", "ospf"], capture_output=True, timeout=TIMEOUT, check=False)
    return {
        "up": up - began,
        "learned": (learned, learned_real - up),
        "around": (around, around_real - cut_real),
        "late_ms": (late["median_ns"] / 1e6, late["p99_ns"] / 1e6),
        "memory": memory,
    }


def fewest_tdf(count: int, tdfs: tuple[int, ...]) -> tuple[float, dict, list[str]]:
    """Returns the least TDF at which frames are in time, its figures, and those of the lower
    TDFs."""
    tried = []
    for tdf in tdfs:
        with tempfile.TemporaryDirectory(prefix="lorentz-ospf-") as folder:
            ring = Ring(count, Path(folder), f"{DELAY_MS}ms")
            try:
                return tdf, measure(ring, tdf, tdf == tdfs[-1], Path(folder) / "ring.yaml"), tried
            except TooLateError as why:
                tried.append(f"TDF {tdf}: {why}")
                print(tried[-1], flush=True)
    raise AssertionError("the last TDF is measured whatever comes")


def lines(count: int, tdfs: tuple[int, ...]) -> list[str]:
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    tdf, got, tried = fewest_tdf(count, tdfs)
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    refused = f" Too late at smaller ones: {'; '.join(tried)}." if tried else ""
    rows = itertools.starmap(
        lambda what, pair: f"| {what} | {pair[0]:.2f} | {pair[1]:.0f} |",
        (("all routers know all routes", got["learned"]), ("after the cut", got["around"])),
    )
    chosen = (
        f"the least of {', '.join(map(str, tdfs))} at which the 99th percentile of lateness is at "
        f"most {PART:.0%} of the delay"
    )
    if got["late_ms"][1] > PART * DELAY_MS:
        chosen = f"at which frames are still later than {PART:.0%} of the delay"
    return [
        f"Measured by `benches/ospf.py` on {date}, {os.cpu_count()} processors, load average "
        f"at the start {load}: a ring of {count} routers, links of {DELAY_MS} ms, TDF {tdf}, "
        f"{chosen}.{refused}",
        "",
        "| until | virtual seconds | real seconds |",
        "| --- | --- | --- |",
        *rows,
        "",
        f"`lorentz up` took {got['up']:.0f} s. Lateness: median {got['late_ms'][0]:.3f} ms, p99 "
        f"{got['late_ms'][1]:.3f} ms in virtual time. Memory of all programs together: "
        f"{got['memory']:.0f} MiB, {got['memory'] / count:.1f} a router.",
    ]


def main() -> None:
    labs.put_back_when_ended()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 routers, and only print")
    parser.add_argument("--tdf", type=int, help="measure at this one, however late frames are")
    args = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("benches/ospf.py: needs root")
    with labs.own_state():
        text = "\n".join(lines(20 if args.quick else 200, (args.tdf,) if args.tdf else TDFS))
    print(text)
    if args.quick:
        return
    labs.rewrite("ospf", text)


if __name__ == "__main__":
    main()
