#!/usr/bin/env python3
"""Measures what tools cost that change the time of Python tests, and writes the table in
docs/python-testing.md anew; with --print it only prints it. Needs the packages of
tests/requirements.txt and the command faketime.

    .venv/bin/python benches/python_testing.py [--print]
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests"))

from framework import lorentz, suites, time_tools  # noqa: E402

PROGRAM = REPO / "tests/programs/python_testing/costs.py"
#: Each tool is measured so often, in turn; the table has the medians.
TURNS = 5
TOOLS = ("none", *time_tools.TOOLS)
#: Rows of the table: key -> words, unit, units in a nanosecond.
ROWS = {
    "first": ("first block", "ms", 1e-6),
    "later": ("a later block", "ms", 1e-6),
    "modules": ("a later block among 1,000 more modules", "ms", 1e-6),
    "read": ("`time.time()`", "ns", 1.0),
}


def measured(tool: str) -> dict[str, float]:
    """The costs of one process."""
    launcher = time_tools.FAKETIME if tool == "libfaketime" else ()
    command = [*launcher, sys.executable, str(PROGRAM), tool]
    done = subprocess.run(
        command, env=suites.environment(), capture_output=True, text=True, check=True
    )
    return json.loads(done.stdout)


def figure(value: float) -> str:
    """Three digits, without an exponent."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def main() -> None:
    """Measures, and writes or prints the table."""
    turns = [{tool: measured(tool) for tool in TOOLS} for _ in range(TURNS)]
    lines = [f"| | {' | '.join(TOOLS)} |", "|---" * (len(TOOLS) + 1) + "|"]
    for key, (words, unit, scale) in ROWS.items():
        cells = []
        for tool in TOOLS:
            found = [turn[tool][key] for turn in turns if key in turn[tool]]
            cells.append(f"{figure(statistics.median(found) * scale)} {unit}" if found else "-")
        lines.append(f"| {words} | {' | '.join(cells)} |")
    machine = f"Linux {platform.release()}, {len(os.sched_getaffinity(0))} processors"
    machine += f" with a load average of {os.getloadavg()[1]:.0f}"
    source = f"Medians of {TURNS} processes; {machine}, Python {platform.python_version()}."
    text = "\n".join(lines) + f"\n\n{source}\n"
    if "--print" in sys.argv[1:]:
        print(text)
    else:
        time_tools.write("costs", text)
    lorentz.session.close()


if __name__ == "__main__":
    main()
