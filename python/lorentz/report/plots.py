"""The figures, as SVG inside the page; they take their colours from it."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass

import matplotlib

matplotlib.use("svg")

import numpy as np
import polars as pl
from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter
from scipy import stats

from lorentz.report.judge import BASELINE, FEWEST, Judgement
from lorentz.report.runs import Run
from lorentz.report.words import BOUND, HARNESS

#: Placeholder colour: the page replaces it by the colour of its text.
INK = "#010203"

#: Colour, marker and dashes of each level, the same in all figures. Most colours are Okabe and
#: Ito's, which colour-blind readers can tell apart; two are added.
LOOKS: dict[str, tuple[str, str, object]] = {
    "before": ("#56b4e9", "X", (0, (1, 1))),
    "baseline": (INK, "o", "-"),
    "control": ("#999999", "o", "--"),
    "namespace": ("#009e73", "s", "-."),
    "container": ("#cc79a7", "^", ":"),
    "lorentz": ("#d55e00", "D", "-"),
    "lorentz-container": ("#e69f00", "v", "--"),
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
    """A figure: its drawing and its caption."""

    svg: str
    caption: str


def nanoseconds(value: float, _: object = None) -> str:
    """Formats a length of time for an axis: `100 ns`, `2.5 ms`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(value) >= size:
            return f"{value / size:g} {unit}"
    return f"{value:g} ns"


def pictures(run: Run, found: Judgement) -> list[Picture]:
    """Draws all figures of a study."""
    drawn: list[Picture | None] = []
    with pyplot.rc_context(STYLE):
        drawn.append(_ratios(run, found))
        if run.study in ("cold", "timers"):
            drawn += [_ccdf(run, metric, load) for metric in run.metrics for load in run.loads]
        drawn.append(_quantiles(run))
    return [picture for picture in drawn if picture]


def marked(level: str, size: float) -> dict[str, object]:
    """Returns the style of a level drawn as points."""
    colour, marker, _ = LOOKS[level]
    style = {"color": colour, "label": level, "marker": marker, "markersize": size}
    return {**style, "linestyle": "none"}


def lined(level: str) -> dict[str, object]:
    """Returns the style of a level drawn as a line."""
    colour, _, dashes = LOOKS[level]
    return {"color": colour, "label": level, "linestyle": dashes}


def svg(figure: Figure, caption: str) -> Picture:
    buffer = io.StringIO()
    figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    text = buffer.getvalue()
    text = text[text.index("<svg") :]
    # The page decides the size; the figure's own is only a default.
    text = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", text, count=1)
    text = re.sub(r'(<svg[^>]*?) width="[^"]*"', r"\1", text, count=1)
    label = caption.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;")
    text = text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)
    return Picture(text.replace(INK, "currentColor"), caption)


def _ratios(run: Run, found: Judgement) -> Picture | None:
    """Draws each metric at each level, in percent of the baseline, with its interval."""
    if found.pairs.is_empty():
        return None
    rows = found.pairs.filter(pl.col("against") == BASELINE, pl.col("metric") != HARNESS)
    names = list(dict.fromkeys(rows.select("metric", "load").iter_rows()))
    levels = [level for level in run.levels if level != BASELINE]
    figure, axes = pyplot.subplots(
        figsize=(8.5, 1.4 + 0.16 * len(names) * max(len(levels), 2)), layout="constrained"
    )
    # A logarithmic axis cannot show zero: clip the interval here, in percent.
    least = 0.1
    for number, level in enumerate(levels):
        of = {
            (row["metric"], row["load"]): row
            for row in rows.iter_rows(named=True)
            if row["level"] == level
        }
        there = [(place, of[name]) for place, name in enumerate(names) if name in of]
        offset = (number - (len(levels) - 1) / 2) * 0.8 / max(len(levels), 1)
        middle = [max(1 + row["percent"] / 100, least) for _, row in there]
        low = [max(1 + row["ci_low_percent"] / 100, least) for _, row in there]
        high = [max(1 + row["ci_high_percent"] / 100, least) for _, row in there]
        axes.errorbar(
            middle,
            [place + offset for place, _ in there],
            xerr=[
                np.maximum(np.subtract(middle, low), 0),
                np.maximum(np.subtract(high, middle), 0),
            ],
            linewidth=1,
            **marked(level, 4),
        )
    axes.axvline(1, color=INK, linewidth=0.8)
    axes.axvline(1 + BOUND / 100, color=INK, linewidth=0.8, linestyle=":")
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.set_xlim(left=max(axes.get_xlim()[0], least))
    if axes.get_xlim()[1] / axes.get_xlim()[0] > 5:
        axes.xaxis.set_minor_formatter(NullFormatter())
    else:
        axes.xaxis.set_minor_formatter(FuncFormatter(lambda value, _: f"{value:.3g}"))
        axes.tick_params(axis="x", which="minor", labelsize=8, rotation=45)
    axes.set_yticks(range(len(names)), [titled(*name) for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_xlabel("mean time per call, ratio to the baseline (logarithmic; 1 = the baseline)")
    figure.legend(loc="outside upper center", ncols=4)
    return svg(
        figure,
        f"{run.study}: each level beside the baseline, with 95 % confidence intervals of the "
        f"difference. Dotted: {BOUND:.0f} % more than the baseline.",
    )


def titled(metric: str, load: str) -> str:
    return metric if load == "idle" else f"{metric}, {load}"


def _ccdf(run: Run, metric: str, load: str) -> Picture | None:
    """Draws the share of the samples above each value."""
    chosen = run.samples.filter(pl.col("metric") == metric, pl.col("load") == load)
    if chosen.is_empty():
        return None
    figure, axes = pyplot.subplots(figsize=(8, 4.2), layout="constrained")
    for level in run.levels:
        values = chosen.filter(pl.col("level") == level)["value_ns"].to_numpy()
        # A logarithmic axis has no place for a duration of zero.
        axes.ecdf(
            np.maximum(values, 1.0),
            complementary=True,
            **lined(level),
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(bottom=0.5 / max(len(chosen) / len(run.levels), 1), top=1.2)
    axes.xaxis.set_major_formatter(FuncFormatter(nanoseconds))
    axes.xaxis.set_minor_formatter(NullFormatter())
    what = "late by more than" if metric.startswith("miss") else "takes more than"
    axes.set_xlabel(f"{metric}: {what}")
    axes.set_ylabel("share of the samples")
    figure.legend(loc="outside right upper")
    return svg(figure, f"{run.study}: {titled(metric, load)}, the whole distribution (CCDF).")


def _quantiles(run: Run) -> Picture | None:
    """Draws Q-Q plots of the records against a normal distribution."""
    panels = [
        (metric, load)
        for load in run.loads
        for metric in run.metrics
        if metric != HARNESS and any(len(v) >= FEWEST for v in run.values(metric, load).values())
    ]
    if not panels:
        return None
    columns = min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure, grid = pyplot.subplots(
        lines, columns, figsize=(9, 0.9 + 2.4 * lines), layout="constrained", squeeze=False
    )
    for axes, (metric, load) in zip(grid.flat, panels, strict=False):
        _panel(axes, run, metric, load)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    handles, labels = grid.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=4, markerscale=2)
    figure.supxlabel("quantile of a normal distribution (sd)", fontsize=10)
    figure.supylabel("record, from its mean (sd)", fontsize=10)
    return svg(
        figure,
        f"{run.study}: Q-Q plots. Records that are normally distributed lie on the line; sd is "
        "the standard deviation of the level's records.",
    )


def _panel(axes: Axes, run: Run, metric: str, load: str) -> None:
    ends = 0.0
    for level, values in run.values(metric, load).items():
        array = np.asarray(values)
        # Records that hardly vary, as counts of a coarse tick, show no distribution.
        if len(array) < FEWEST or array.std() <= 1e-9 * abs(array.mean()):
            continue
        expected, ordered = stats.probplot(stats.zscore(array), fit=False)
        ends = max(ends, float(expected.max()))
        axes.plot(
            expected,
            ordered,
            **marked(level, 2),
        )
    axes.plot([-ends, ends], [-ends, ends], color=INK, linewidth=0.8)
    axes.set_title(titled(metric, load), fontsize=9)
