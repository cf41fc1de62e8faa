#!/usr/bin/env python3
"""Measures the cost of Lorentz, beside native, time namespaces and libfaketime.

Writes the samples as JSON to build/bench/, the table to docs/performance.md and the figures of
experiments to docs/experiments.md. With --quick it only writes the JSON and prints the table.
docs/performance.md stays as it is unless all of its suites ran, or --rows asks for the rows of
those that ran. `experiments-45000` takes long and raises limits of the kernel meanwhile: it runs
only if named. So do `timers`, `bandwidth`, `bandwidth-levels`, `checkpoint` and `scale`, which
rewrite their pages in docs.
LORENTZ=PATH measures another build than target/release/lorentz.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import bandwidth
import bandwidth_levels
import checkpoint
import containers
import experiments
import machine
import many
import programs
import report
import scale
import servers
import skip
import suites
import timers
from levels import ROOT
from suites import Bench, announce

SUITES = {
    "programs": programs.programs,
    "commands": programs.commands,
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
    "many": many.many,
}

#: Suites whose figures are pages of their own.
EXPERIMENTS = {
    "experiments": experiments.experiments,
    "experiments-45000": experiments.experiments_45000,
}
#: Suites that run only if named; each rewrites a page of its own.
PAGES = {
    "timers": timers.run,
    "bandwidth": bandwidth.run,
    "bandwidth-levels": bandwidth_levels.run,
    "checkpoint": checkpoint.run,
    "scale": scale.run,
}
ALL = {**SUITES, **EXPERIMENTS, **PAGES}

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
    for name in ("factorials", "resting"):
        subprocess.run([*common, "-static", "-o", folder / name, SOURCES / f"{name}.c"], check=True)
    if shutil.which("go"):
        subprocess.run(
            ["go", "build", "-o", folder / "httpd", "."],
            cwd=ROOT / "benches/httpd",
            env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local"},
            check=True,
        )


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="a fifth of the rounds")
    parser.add_argument(
        "--published",
        action="store_true",
        help=f"{bandwidth.PUBLISHED_TRIALS} trials of bandwidth for each point: a day",
    )
    parser.add_argument(
        "--rows", action="store_true", help="put these suites' rows into docs/performance.md"
    )
    parser.add_argument(
        "suite", nargs="*", choices=[*ALL, []], metavar="SUITE", help=", ".join(ALL)
    )
    return parser.parse_args()


def show_experiments(quick: bool) -> None:
    """Writes docs/experiments.md from new and earlier figures; with --quick, prints its goals."""
    python = ROOT / ".venv-bench/bin/python"
    command = [python if python.exists() else sys.executable, ROOT / "benches/experiments_page.py"]
    subprocess.run([*command, "--goals"] if quick else command, check=True)
    if not quick:
        announce("bench: the figures of experiments are in docs/experiments.md")


def main() -> int:
    """Runs the suites. Returns 1 if one of them failed."""
    wanted = arguments()
    # SIGTERM ends the run in good order: everything is restored.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if wanted.published:
        bandwidth.TRIALS = bandwidth.PUBLISHED_TRIALS
    build_programs(BUILD / "programs")
    tsc_hertz = suites.output_of([str(BUILD / "programs/tsc")])["hertz"]
    for name in [name for name in wanted.suite if name in PAGES]:
        announce(f"bench: {name}")
        PAGES[name](wanted.quick, tsc_hertz)
        wanted.suite.remove(name)
        if not wanted.suite:
            return 0
    bench = Bench(BUILD / "programs", tsc_hertz, wanted.quick)
    about = machine.describe(tsc_hertz)
    samples: dict[str, suites.Samples] = {}
    names = wanted.suite or [*SUITES, "experiments"]
    for name in names:
        announce(f"bench: {name}")
        try:
            samples[name] = ALL[name](bench)
        except (RuntimeError, OSError, subprocess.SubprocessError) as error:
            announce(f"bench: {name} failed: {error}")
            bench.left_out[f"suite {name}"] = f"it failed: {str(error).splitlines()[0]}"
            bench.failed = True
            continue
        record = {
            "machine": about,
            "quick": wanted.quick,
            "left_out": bench.left_out,
            "samples": samples[name],
        }
        (BUILD / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n")
    if samples.keys() & SUITES.keys():
        print("\n".join([*report.table(samples), *report.runtimes(samples)]))
    if not wanted.quick and samples.keys() >= SUITES.keys():
        (ROOT / "docs/performance.md").write_text(report.document(about, bench.left_out, samples))
        announce("bench: the table is in docs/performance.md")
    elif wanted.rows and not wanted.quick and not bench.failed:
        page = ROOT / "docs/performance.md"
        measured = {name: samples[name] for name in samples if name in SUITES}
        page.write_text(report.with_rows(page.read_text(), about, measured))
        announce("bench: the rows are in docs/performance.md")
    if samples.keys() & EXPERIMENTS.keys() and (BUILD / "experiments.json").exists():
        show_experiments(wanted.quick)
    for what, reason in bench.left_out.items():
        announce(f"bench: left out: {what}: {reason}")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
