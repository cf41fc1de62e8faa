"""Draws the figures as SVG. They stand in the page and take their colours from it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from dataclasses import dataclass

import matplotlib

matplotlib.use("svg")

import numpy as np
import polars as pl
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy import stats

from lorentz.report.compared import HARNESS, Kind, kind, rows_of
from lorentz.report.judge import BASELINE, FEWEST, Judgement
from lorentz.report.runs import Run
from lorentz.report.words import BOUND

#: The colour that stands for the colour of the page's text.
INK = "#010203"

#: Okabe and Ito's colours, which colour-blind readers can tell apart, and four more; each level has
#: its own in all figures, and its own marker and dashes.
LOOKS: dict[str, tuple[str, str, object]] = {
    "before": ("#56b4e9", "X", (0, (1, 1))),
    "baseline": (INK, "o", "-"),
    "control": ("#999999", "o", "--"),
    "namespace": ("#009e73", "s", "-."),
    "container": ("#cc79a7", "^", ":"),
    "container-overlay": ("#7a1f4d", ">", (0, (2, 2))),
    "lorentz": ("#d55e00", "D", "-"),
    "lorentz-container": ("#e69f00", "v", "--"),
    "docker": ("#2f5d62", "h", (0, (6, 1, 1, 1))),
    "podman": ("#0072b2", "P", (0, (5, 1))),
    "runc": ("#8c8c00", "<", (0, (3, 1, 1, 1))),
    "libfaketime": ("#8e5bb5", "*", (0, (8, 2))),
}

STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "lorentz",
    "font.family": "sans-serif",
    "font.size": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
    "legend.frameon": False,
}


@dataclass(frozen=True)
class Picture:
    """A figure: its drawing, and what it shows."""

    svg: str
    caption: str


def nanoseconds(value: float, _: object = None) -> str:
    """A length of time for an axis: `100 ns`, `2.5 ms`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(value) >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} ns"


def pictures(run: Run, found: Judgement) -> list[Picture]:
    """All figures of a study."""
    drawn: list[Picture | None] = []
    with pyplot.rc_context(STYLE):
        drawn.append(_ratios(run, found))
        if run.study in ("cold", "timers"):
            drawn += [draw(run, metric) for metric in run.metrics for draw in (_ccdf, _raw)]
        drawn.append(_quantiles(run))
    return [picture for picture in drawn if picture]


def marked(level: str, size: float) -> dict[str, object]:
    """A level as points."""
    colour, marker, _ = LOOKS[level]
    style = {"color": colour, "label": level, "marker": marker, "markersize": size}
    return {**style, "linestyle": "none"}


def lined(level: str) -> dict[str, object]:
    """A level as a line."""
    colour, _, dashes = LOOKS[level]
    return {"color": colour, "label": level, "linestyle": dashes}


def svg(figure: Figure, caption: str) -> Picture:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # The page decides the size.
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    label = caption.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    text = text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return Picture(text.replace(INK, "currentColor"), caption)


#: Of an interval down to zero an axis of logarithms shows a part.
_LEAST_RATIO = 0.1
#: A range of ratios below it has no room for marks of an axis of logarithms.
_NARROW = 1.2


def _ratios(run: Run, found: Judgement) -> Picture | None:
    """Each metric at each level as a ratio to the baseline: one panel a group of metrics."""
    if found.pairs.is_empty():
        return None
    pairs = found.pairs.filter(pl.col("against") == BASELINE, pl.col("metric") != HARNESS)
    there = {(row["metric"], row["load"], row["level"]): row for row in pairs.iter_rows(named=True)}
    judged = {key[:2] for key in there}
    groups = {
        group: names
        for group, every in rows_of(run).items()
        if (names := [name for name in every if name in judged])
    }
    if not groups:
        return None
    levels = [level for level in run.levels if level != BASELINE]
    counts = [len(names) for names in groups.values()]
    lines = max(len(levels), 3)
    figure, grid = pyplot.subplots(
        len(groups),
        figsize=(9, 1.1 + 0.75 * len(groups) + 0.1 * sum(counts) * lines),
        height_ratios=[count + 0.5 for count in counts],
        layout="constrained",
        squeeze=False,
    )
    for axes, (group, names) in zip(grid.flat, groups.items(), strict=True):
        _ratios_of(axes, there, names, levels)
        axes.set_title(group.title, fontsize=10, loc="left")
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5)
    figure.supxlabel("mean time, ratio to the baseline (1 = the baseline)", fontsize=10)
    return svg(
        figure,
        f"{run.study}: each level beside the baseline, with 95 % confidence intervals of the "
        f"difference. Each group of metrics has a scale of its own. Dotted: {BOUND:.0f} % more "
        "than the baseline, where the scale reaches it.",
    )


def _ratios_of(axes: Axes, there: dict, names: list[tuple[str, str]], levels: list[str]) -> None:
    """One panel: metrics downward, for each the levels below one another."""
    for place in range(0, len(names), 2):
        axes.axhspan(place - 0.5, place + 0.5, color=INK, alpha=0.05, linewidth=0)
    ends = [1.0]
    for number, level in enumerate(levels):
        of = [
            (place, row) for place, name in enumerate(names) if (row := there.get((*name, level)))
        ]
        offset = (number - (len(levels) - 1) / 2) * 0.84 / max(len(levels), 1)
        middle, low, high = (
            np.array([max(1 + row[column] / 100, _LEAST_RATIO) for _, row in of])
            for column in ("percent", "ci_low_percent", "ci_high_percent")
        )
        axes.errorbar(
            middle,
            [place + offset for place, _ in of],
            xerr=[np.maximum(middle - low, 0), np.maximum(high - middle, 0)],
            linewidth=1,
            **marked(level, 3.5),
        )
        ends += [*low, *high]
    axes.set_yticks(range(len(names)), [titled(*name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    _scale(axes, min(ends), max(ends))


def _scale(axes: Axes, low: float, high: float) -> None:
    """Sets an axis of ratios: logarithmic, or linear where all are nearly equal."""
    if high / low < _NARROW:
        room = max((high - low) * 0.06, 1e-5)
        axes.set_xlim(low - room, high + room)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.6g}"))
    else:
        axes.set_xscale("log")
        room = (high / low) ** 0.05
        axes.set_xlim(low / room, high * room)
        steps = (1, 2, 5) if high / low > 8 else (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 7, 8, 9)
        axes.xaxis.set_major_locator(LogLocator(subs=steps, numticks=99))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.axvline(1, color=INK, linewidth=0.8)
    if axes.get_xlim()[1] > 1 + BOUND / 100:
        axes.axvline(1 + BOUND / 100, color=INK, linewidth=0.8, linestyle=":")


def titled(metric: str, load: str) -> str:
    """The name of a metric under a load."""
    return metric if load == "idle" else f"{metric}, {load}"


#: An axis of logarithms has no room for a sample of no time at all.
_LEAST_NS = 1.0


@dataclass(frozen=True)
class _Panels:
    """A figure with a panel for each load, all of one scale."""

    figure: Figure
    axes: list[Axes]
    samples: int

    def picture(self, xlabel: str, ylabel: str, caption: str) -> Picture:
        self.figure.supxlabel(xlabel, fontsize=10)
        self.figure.supylabel(ylabel, fontsize=10)
        handles, labels = self.axes[0].get_legend_handles_labels()
        self.figure.legend(handles, labels, loc="outside upper center", ncols=5)
        return svg(self.figure, caption)


def _panels(run: Run, metric: str, draw: Callable[[Axes, str, np.ndarray], None]) -> _Panels | None:
    """Has `draw` draw the samples of each level, ns, as they were taken: one panel a load."""
    chosen = run.samples.filter(pl.col("metric") == metric)
    there = set(chosen["load"])
    loads = [load for load in run.loads if load in there]
    if not loads:
        return None
    figure, grid = pyplot.subplots(
        1,
        len(loads),
        figsize=(9, 4.2),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    for axes, load in zip(grid.flat, loads, strict=True):
        of = chosen.filter(pl.col("load") == load)
        for level in run.levels:
            values = of.filter(pl.col("level") == level)["value_ns"].to_numpy()
            if len(values):
                draw(axes, level, np.maximum(values, _LEAST_NS))
        if len(loads) > 1:
            axes.set_title(load, fontsize=9)
    return _Panels(figure, list(grid.flat), len(chosen))


def _in_nanoseconds(axis: Axis) -> None:
    axis.set_major_formatter(FuncFormatter(nanoseconds))
    axis.set_minor_formatter(NullFormatter())


def _ccdf(run: Run, metric: str) -> Picture | None:
    """The share of the samples above each value, and a mark at each mean."""

    def draw(axes: Axes, level: str, values: np.ndarray) -> None:
        axes.ecdf(values, complementary=True, **lined(level))
        mean = values.mean()
        colour, marker, _ = LOOKS[level]
        axes.plot(mean, (values > mean).mean(), color=colour, marker=marker, markersize=5)

    panels = _panels(run, metric, draw)
    if not panels:
        return None
    for axes in panels.axes:
        axes.set_xscale("log")
        axes.set_yscale("log")
        _in_nanoseconds(axes.xaxis)
    most = panels.samples / len(run.levels) / len(panels.axes)
    first = panels.axes[0]
    first.set_ylim(bottom=0.5 / max(most, 1), top=1.2)
    low, high = first.get_xlim()
    if high / low < 20:
        first.xaxis.set_major_locator(LogLocator(subs=(1, 1.5, 2, 3, 5), numticks=99))
    what = "late by more than" if kind(metric) is Kind.WAIT else "takes more than"
    return panels.picture(
        f"{metric}: {what}",
        "share of the samples",
        f"{run.study}: {metric}, the whole distribution (CCDF). The marks stand at the means.",
    )


#: Points of a level in one panel; of more samples each panel shows evenly chosen ones.
_MOST_POINTS = 2000


def _raw(run: Run, metric: str) -> Picture | None:
    """Each sample as it was taken, and each level's median as a line."""

    def draw(axes: Axes, level: str, values: np.ndarray) -> None:
        places = np.arange(len(values))[:: -(-len(values) // _MOST_POINTS)]
        # Thousands of points would make the page large: they are one picture, which cannot take the
        # page's colour of text.
        colour = LOOKS[level][0].replace(INK, "#777777")
        style = {"color": colour, "linestyle": "none", "marker": ".", "markersize": 1}
        axes.plot(places, values[places], alpha=0.5, rasterized=True, **style)
        axes.axhline(float(np.median(values)), linewidth=1.2, **lined(level))

    panels = _panels(run, metric, draw)
    if not panels:
        return None
    for axes in panels.axes:
        axes.set_yscale("log")
        _in_nanoseconds(axes.yaxis)
    caption = f"{run.study}: {metric}, each sample, and the medians as lines."
    return panels.picture("sample", metric, caption)


#: Colours and markers of the groups of metrics in Q-Q plots.
_GROUPS = {
    Kind.WAIT: ("#0072b2", "o"),
    Kind.READ: ("#009e73", "s"),
    Kind.CALL: ("#d55e00", "^"),
}


def _quantiles(run: Run) -> Picture | None:
    """Q-Q plots of the records against a normal distribution: one panel a level."""
    panels = {level: points for level in run.levels if (points := _normal_scores(run, level))}
    if not panels:
        return None
    # As wide as leaves the fewest places empty.
    columns = min(range(min(5, len(panels)), 2, -1), key=lambda n: -len(panels) % n, default=2)
    columns = min(columns, len(panels))
    lines = -(-len(panels) // columns)
    figure, grid = pyplot.subplots(
        lines,
        columns,
        figsize=(9, 1.2 + 2.2 * lines),
        layout="constrained",
        squeeze=False,
        sharex=True,
        sharey=True,
    )
    shown: dict[str, object] = {}
    for axes, (level, points) in zip(grid.flat, panels.items(), strict=False):
        _panel(axes, level, points)
        handles, labels = axes.get_legend_handles_labels()
        shown |= dict(zip(labels, handles, strict=True))
    for number, axes in enumerate(grid.flat):
        axes.set_visible(number < len(panels))
        # No panel stands below: this one has the labels of its column.
        axes.tick_params(labelbottom=number + columns >= len(panels))
    figure.legend(shown.values(), shown, loc="outside upper center", ncols=3, markerscale=2)
    figure.supxlabel("quantile of a normal distribution (sd)", fontsize=10)
    figure.supylabel("record, from its mean (sd)", fontsize=10)
    return svg(
        figure,
        f"{run.study}: Q-Q plots, all metrics of a level in one panel. Records of a normal "
        "distribution lie on the line; sd is the standard deviation of the metric's records at the "
        "level. Below the level stands the metric that is farthest from the line.",
    )


Points = dict[tuple[str, str], tuple[np.ndarray, np.ndarray]]


def _normal_scores(run: Run, level: str) -> Points:
    """For each metric and load: expected quantiles, and the records in order, both in sd."""
    found: Points = {}
    for pairs in rows_of(run).values():
        for metric, load in pairs:
            array = np.asarray(run.values(metric, load).get(level, []))
            # Records that hardly vary, as counts of a coarse tick, have no shape.
            if len(array) >= FEWEST and array.std() > 1e-9 * abs(array.mean()):
                found[metric, load] = stats.probplot(stats.zscore(array), fit=False)
    return found


def _panel(axes: Axes, level: str, points: Points) -> None:
    for (metric, _), (expected, ordered) in points.items():
        group = kind(metric)
        colour, marker = _GROUPS[group]
        style = {"color": colour, "marker": marker, "markersize": 2, "linestyle": "none"}
        axes.plot(expected, ordered, label=f"{group.value}s", **style)
    end = max(float(expected.max()) for expected, _ in points.values())
    axes.plot([-end, end], [-end, end], color=INK, linewidth=0.8)
    farthest = max(points, key=lambda name: float(np.abs(np.subtract(*points[name])).max()))
    axes.set_title(f"{level}\n", fontsize=9)
    axes.text(0.5, 1.02, titled(*farthest), transform=axes.transAxes, ha="center", fontsize=7)
