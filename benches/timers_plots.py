#!/usr/bin/env python3
"""Draws the lateness of sleeps, measured by `make bench ARGS=timers`, into docs/timers/.

    .venv-bench/bin/python benches/timers_plots.py

A plot for each load, as the paper's figures: the share of the sleeps that ended later (CCDF), both
axes logarithmic. Sleeps under SCHED_FIFO are dotted.
"""

from __future__ import annotations

import json
from pathlib import Path

import experiments_plots as plots
from matplotlib import pyplot
from matplotlib.ticker import FuncFormatter

ROOT = Path(__file__).resolve().parents[1]
FIGURES = ROOT / "build/bench/timers.json"
FOLDER = ROOT / "docs/timers"
SLEEPS = {"lorentz": "sleep", "spin_sleep": "spin_sleep", "usleep": "usleep"}


def draw(load: str, figures: dict, path: Path) -> None:
    """The plot of one load."""
    figure, axes = pyplot.subplots(layout="constrained")
    for key, dash in (("miss", "-"), ("fifo", ":")):
        for (name, title), colour in zip(SLEEPS.items(), plots.COLOURS, strict=False):
            if key not in figures:
                continue
            curve = figures[key]["found"][name]["curve"]
            # A logarithmic axis has no place for a lateness of zero.
            late = [max(nanos, 1.0) for _, nanos in curve]
            title += ", SCHED_FIFO" if key == "fifo" else ""
            above = [share for share, _ in curve]
            axes.plot(late, above, color=colour, linestyle=dash, label=title)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda nanos, _: plots.length(nanos)))
    axes.set_xlabel(f"late by more than; load: {load}")
    axes.set_ylabel("share of the sleeps")
    axes.legend(loc="lower left")
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    """Draw all of them."""
    FOLDER.mkdir(exist_ok=True)
    for load, figures in json.loads(FIGURES.read_text()).items():
        draw(load, figures, FOLDER / f"ccdf-{load}.svg")


if __name__ == "__main__":
    main()
