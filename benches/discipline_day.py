#!/usr/bin/env python3
"""A day of three strata of NTP servers, one of them a falseticker, and of their clients.

    benches/discipline_day.py    writes build/bench/discipline-day.json, and draws the plot of
                                 docs/clock-errors.md

Needs root, and chrony from scripts/ntp-daemons.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import discipline
import labs
from discipline import DEFAULT, LORENTZ, ROOT, Case, run, topology, truth

DAY = 86_400
#: Virtual seconds between two looks at the clocks.
LOOK = 60
FIGURES = ROOT / "build/bench/discipline-day.json"
PYTHON = ROOT / ".venv-bench/bin/python"
CASE = Case(
    "day",
    "3 strata of 4 servers, one of them a falseticker; 5 clients; links slower in one direction",
    (DEFAULT,),
    length=DAY,
    strata=(3, 4),
    delay=(100, 400, 100),
    falseticker="offset=200ms,drift=+5ppm",
)
NODES = [
    "s0n0",
    *(f"s{row}n{at}" for row in (1, 2) for at in range(4)),
    *(f"c{at}" for at in range(5)),
]


def log(name: str, folder: Path) -> subprocess.Popen[bytes]:
    """Logs the offset of a node's clock into a file in `folder`."""
    words = ["clock", "log", f"discipline.{name}", "--every", f"{LOOK}s", "--for", f"{DAY}s"]
    with (folder / f"{name}.log").open("wb") as file:
        return subprocess.Popen([LORENTZ, *words, "--json"], stdout=file)


def read(name: str, folder: Path) -> list[tuple[float, float]]:
    """The looks at a clock: seconds from the start, and its offset in ns."""
    looks = map(json.loads, (folder / f"{name}.log").read_text().splitlines())
    return [(round(truth(CASE, look), 3), look["offset_ns"]) for look in looks]


def measure() -> dict:
    with tempfile.TemporaryDirectory(prefix="lorentz-discipline-") as name:
        folder = Path(name)
        text, _ = topology(CASE, DEFAULT, None, 1, folder)
        begun = time.monotonic()
        with labs.network("discipline", text):
            logs = [log(name, folder) for name in NODES]
            run(LORENTZ, "dilate", "discipline", "--rate", discipline.RATE)
            for process in logs:
                process.wait()
        offsets = {name: read(name, folder) for name in NODES}
        return {"real": time.monotonic() - begun, "offsets": offsets}


def main() -> None:
    labs.put_back_when_ended()
    if os.geteuid() != 0 or not discipline.CHRONYD.exists():
        sys.exit(
            "benches/discipline_day.py: needs root, and chrony: scripts/ntp-daemons fetches it"
        )
    with labs.own_state():
        figures = measure()
    FIGURES.parent.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text(json.dumps(figures))
    print(f"a day took {figures['real']:.0f} s")
    python = str(PYTHON) if PYTHON.exists() else sys.executable
    subprocess.run([python, ROOT / "benches/discipline_plot.py"], check=True)


if __name__ == "__main__":
    main()
