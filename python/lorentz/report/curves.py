"""Draws the figures of `power` and `factors`: power over shifts, medians over loads."""

from __future__ import annotations

import numpy as np
import polars as pl
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from lorentz.report.compared import HARNESS, kind
from lorentz.report.plots import INK, LOOKS, STYLE, Picture, marked, nanoseconds, svg, titled
from lorentz.report.power import ENOUGH, SHIFT, Design
from lorentz.report.runs import Run

#: Numbers of records to draw beside the study's own: the usual and the published one.
RECORDS = (50, 200)
#: Dashes and colours of the numbers of records, the own one first.
LINES = ((INK, "-"), ("#d55e00", "--"), ("#0072b2", "-."))
SHIFTS_PERCENT = np.geomspace(0.2, 20, 25)


def pictures(run: Run, power: pl.DataFrame, cells: pl.DataFrame) -> list[Picture]:
    """Draws the figures that the study has data for."""
    drawn = []
    with pyplot.rc_context(STYLE):
        if len(power):
            drawn.append(_power(run, power))
        if len(cells):
            drawn.append(_loads(run, cells))
    return drawn


def _grid(panels: int, most: int) -> tuple[Figure, list[Axes]]:
    """Makes panels, at most `most` beside one another."""
    columns = min(most, panels)
    lines = -(-panels // columns)
    size = (max(3 * columns, 8.5), 1.2 + 2.4 * lines)
    figure, grid = pyplot.subplots(
        lines, columns, figsize=size, layout="constrained", squeeze=False
    )
    for axes in grid.flat[panels:]:
        axes.set_visible(False)
    return figure, list(grid.flat[:panels])


def _power(run: Run, power: pl.DataFrame) -> Picture:
    """For each metric: how often a shift is found, by the number of records."""
    shown = power.filter(pl.col("metric") != HARNESS) if run.metrics != [HARNESS] else power
    own = int(shown["records"].max())
    counts = [own, *(count for count in RECORDS if count != own)]
    panels = list(dict.fromkeys(shown.select("metric", "load").iter_rows()))
    figure, grid = _grid(len(panels), most=3)
    for axes, (metric, load) in zip(grid, panels, strict=True):
        of = shown.filter(pl.col("metric") == metric, pl.col("load") == load)
        noise = of["noise_percent"].median()
        for records, (colour, dashes) in zip(counts, LINES, strict=False):
            design = Design(records, len(of) + 1, len(run.metrics))
            found = [design.power(shift / noise) for shift in SHIFTS_PERCENT]
            label = f"{records} records" + (", as here" if records == own else "")
            axes.plot(SHIFTS_PERCENT, found, color=colour, linestyle=dashes, label=label)
        axes.axvline(SHIFT, color=INK, linewidth=0.6, linestyle=":")
        axes.axhline(ENOUGH, color=INK, linewidth=0.6, linestyle=":")
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(FixedLocator([0.2, 0.5, 1, 2, 5, 10, 20]))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.set_ylim(0, 1.03)
        axes.set_title(titled(metric, load), fontsize=9)
    figure.legend(*grid[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    figure.supxlabel(
        "shift of one level's mean, percent of the baseline (logarithmic)", fontsize=10
    )
    figure.supylabel("power: share of studies that find it", fontsize=10)
    return svg(
        figure,
        f"{run.study}: how often a shift of one level would be found, by the number of records, at "
        f"this study's noise. Dotted: {SHIFT:.0f} %, and {ENOUGH * 100:.0f} % of such studies.",
    )


def _loads(run: Run, cells: pl.DataFrame) -> Picture:
    """For each function: the medians of the levels under each load."""
    functions = list(dict.fromkeys(cells["function"]))
    figure, grid = _grid(len(functions), most=2)
    for axes, function in zip(grid, functions, strict=True):
        _medians(axes, run, cells.filter(pl.col("function") == function))
        axes.set_title(function, fontsize=9)
    _share_scales(dict(zip(functions, grid, strict=True)))
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5)
    figure.supxlabel("load", fontsize=10)
    figure.supylabel("median of the records' medians (logarithmic)", fontsize=10)
    return svg(
        figure,
        f"{run.study}: medians over level and load, with MAD. Clock reads share a scale, and so do "
        "sleeps. Where lines are not parallel, the effect of a load depends on the level.",
    )


def _share_scales(panels: dict[str, Axes]) -> None:
    """Gives the functions of one kind the same axis of times."""
    for function, axes in panels.items():
        same = [other for name, other in panels.items() if kind(name) is kind(function)]
        low = min(other.get_ylim()[0] for other in same)
        high = max(other.get_ylim()[1] for other in same)
        axes.set_ylim(low, high)


def _medians(axes: Axes, run: Run, of: pl.DataFrame) -> None:
    levels = [level for level in run.levels if level in set(of["level"])]
    loads = [load for load in run.loads if load in set(of["load"])]
    for number, level in enumerate(levels):
        part = of.filter(pl.col("level") == level)
        # Levels stand beside one another, because many have the same median.
        aside = (number - (len(levels) - 1) / 2) * 0.5 / len(levels)
        medians = np.maximum(part["median_ns"].to_numpy(), 1.0)
        deviations = part["mad_ns"].to_numpy()
        colour, _, dashes = LOOKS[level]
        axes.errorbar(
            [loads.index(load) + aside for load in part["load"]],
            medians,
            yerr=[np.minimum(deviations, medians * 0.9), deviations],
            linewidth=0.9,
            **{**marked(level, 4), "color": colour, "linestyle": dashes},
        )
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    if high / low < 10:
        axes.set_ylim(low * 0.8, high * 1.3)
        axes.yaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5, 7), numticks=99))
    axes.yaxis.set_major_formatter(FuncFormatter(nanoseconds))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.set_xticks(range(len(loads)), loads)
    axes.set_xlim(-0.5, len(loads) - 0.5)
