#!/usr/bin/env python3
"""ns-3 in virtual time: the lateness of its events by TDF, beside TimeKeeper's figures.

    benches/ns3.py            measures, and rewrites the figures in docs/networks.md
    benches/ns3.py --quick    briefly, and only prints

Needs libns3-dev. It takes some five minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
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
    if quick:
        return
    labs.rewrite("ns3", "\n".join(text))


if __name__ == "__main__":
    main()
