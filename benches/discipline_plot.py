#!/usr/bin/env python3
"""Draws the offsets that benches/discipline_day.py measured, into docs/clock-errors-day.svg."""

from __future__ import annotations

import json
from pathlib import Path

import experiments_plots as plots
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "build/bench/discipline-day.json"
PLOT = ROOT / "docs/clock-errors-day.svg"
#: One look of so many is drawn: more cannot be told apart.
EACH = 3
#: Nodes by the beginning of their names.
GROUPS = {
    "s0": "the falseticker of stratum 1",
    "s1": "4 servers of stratum 2",
    "s2": "4 servers of stratum 3",
    "c": "5 clients",
}


def main() -> None:
    """Draw each clock's offset over the day."""
    offsets = json.loads(FIGURES.read_text())["offsets"]
    figure, axes = pyplot.subplots(layout="constrained")
    for (begins, title), colour in zip(GROUPS.items(), plots.COLOURS, strict=False):
        for name, looks in offsets.items():
            if not name.startswith(begins):
                continue
            hours = [at / 3_600 for at, _ in looks[::EACH]]
            # A logarithmic axis has no place for an offset of zero.
            off = [max(abs(offset), 1.0) for _, offset in looks[::EACH]]
            axes.plot(hours, off, color=colour, linewidth=0.8, label=title)
            title = "_"
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda nanos, _: plots.length(nanos)))
    axes.set_xlim(0, 24)
    axes.set_xticks(range(0, 25, 4))
    axes.set_xlabel("hours of virtual time")
    axes.set_ylabel("offset from the truth, absolute")
    axes.set_ylim(1e2, 1e9)
    figure.legend(loc="outside lower center", ncols=2)
    figure.savefig(PLOT, metadata={"Date": None})
    pyplot.close(figure)


if __name__ == "__main__":
    main()
