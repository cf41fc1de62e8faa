#!/usr/bin/env python3
"""Measure what Lorentz costs, beside native, time namespaces and libfaketime.

Writes the samples as JSON to build/bench/ and the table to docs/performance.md.
With --quick, or when single suites are named, only the JSON is written and the table
is printed. LORENTZ=PATH measures another build than target/release/lorentz.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import containers
import machine
import report
import servers
import skip
import suites
from levels import ROOT
from suites import Bench, announce

SUITES = {
    "calls": suites.calls,
    "clocks_at_rate_two": suites.clocks_at_rate_two,
    "execs": suites.execs,
    "waits": suites.waits,
    "lateness": suites.lateness,
    "redis": servers.redis,
    "http": servers.http,
    "skip": skip.skip,
    "watching": skip.watching,
    "containers": containers.containers,
}

SOURCES = ROOT / "benches/c"
BUILD = ROOT / "build/bench"


def build_programs(folder: Path) -> None:
    """Compile the benchmark programs."""
    folder.mkdir(parents=True, exist_ok=True)
    common = [os.environ.get("CC", "cc"), "-O2", "-Wall", "-Wextra", "-pthread"]
    for name in ("tsc", "micro", "exec", "lateness", "waiters", "stamp", "sleeper"):
        subprocess.run([*common, "-o", folder / name, SOURCES / f"{name}.c"], check=True)
    rounds = ROOT / "tests/programs/skip/rounds.c"
    subprocess.run([*common, "-o", folder / "rounds", rounds], check=True)
    for kind, flags in (("static", ["-static"]), ("dynamic", [])):
        program = folder / f"true-{kind}"
        subprocess.run([*common, *flags, "-o", program, SOURCES / "true.c"], check=True)
    if shutil.which("go"):
        subprocess.run(
            ["go", "build", "-o", folder / "httpd", "."],
            cwd=ROOT / "benches/httpd",
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
            check=True,
        )


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the rounds")
    parser.add_argument(
        "suite", nargs="*", choices=[*SUITES, []], metavar="SUITE", help=", ".join(SUITES)
    )
    return parser.parse_args()


def main() -> int:
    """Run the suites asked for; 1 if one of them failed."""
    wanted = arguments()
    build_programs(BUILD / "programs")
    tsc_hertz = suites.output_of([str(BUILD / "programs/tsc")])["hertz"]
    bench = Bench(BUILD / "programs", tsc_hertz, wanted.quick)
    about = machine.describe(tsc_hertz)
    samples: dict[str, suites.Samples] = {}
    for name in wanted.suite or SUITES:
        announce(f"bench: {name}")
        try:
            samples[name] = SUITES[name](bench)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            announce(f"bench: {name} failed: {error}")
            bench.left_out[f"suite {name}"] = f"it failed: {str(error).splitlines()[0]}"
            bench.failed = True
            continue
        record = {"machine": about, "quick": wanted.quick, "samples": samples[name]}
        (BUILD / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    if wanted.quick or wanted.suite:
        print("\n".join(report.table(samples)))
    else:
        (ROOT / "docs/performance.md").write_text(report.document(about, bench.left_out, samples))
        print("\n".join(report.table(samples)))
        announce("bench: the table is in docs/performance.md")
    for what, reason in bench.left_out.items():
        announce(f"bench: left out: {what}: {reason}")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
