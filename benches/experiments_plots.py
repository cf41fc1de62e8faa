"""The plots of docs/experiments.md, as SVG.

Colours of Okabe and Ito's palette, which everybody can tell apart and which contrast with both
black and white. Text and axes are in a grey that does so too; there is no background.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.axes import Axes  # noqa: E402

Figures = dict[str, Any]

GREY = "#808080"
COLOURS = ("#2a8fd0", "#d55e00", "#009e73", "#cc79a7", "#b58900")
MARKS = ("o", "s", "^", "D", "v")
DASHES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
THEIRS = {"color": GREY, "linestyle": "--", "linewidth": 1.2}

matplotlib.rcParams.update(
    {
        "svg.fonttype": "none",
        "svg.hashsalt": "lorentz",
        "figure.figsize": (7, 4),
        "font.size": 11,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "savefig.transparent": True,
        **dict.fromkeys(
            ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY
        ),
        "grid.color": GREY,
    }
)


def length(nanos: float) -> str:
    """Formats a length of time."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if abs(nanos) >= size:
            return f"{nanos / size:.3g} {unit}"
    return f"{nanos:.3g} ns"


def _style(number: int) -> dict[str, Any]:
    return {"color": COLOURS[number % 5], "linestyle": DASHES[number % 5]}


def _marked(number: int) -> dict[str, Any]:
    return {"marker": MARKS[number % 5], **_style(number)}


def _cumulated(axes: Axes, curves: list[tuple[str, Figures]]) -> None:
    drawn = [(name, of) for name, of in curves if of["overruns"].get("count")]
    for number, (name, figures) in enumerate(drawn):
        micros = [max(nanos, 1) / 1e3 for nanos in figures["overruns"]["hundredths"]]
        axes.plot(micros, range(101), label=f"overrun, {name}", **_style(number))
    read = [of["perceived"]["worst"] for _, of in curves if of["perceived"]["worst"] is not None]
    if read:
        # All readings lie to the left of the greatest one.
        label = f"perceived error: all within {max(read)} ns"
        left = max(max(read), 1) / 1e3
        axes.plot([left, 1e4], [100, 100], color=COLOURS[0], linewidth=3, alpha=0.5, label=label)
    axes.set(
        xscale="log", xlabel="real time after the end of a round (us)", ylabel="share of rounds (%)"
    )


def _sizes(rows: list[Figures], timeslice: int) -> list[tuple[str, Figures]]:
    chosen = sorted(
        (row for row in rows if row["timeslice"] == timeslice), key=lambda row: row["containers"]
    )
    return [(f"{row['containers']} containers", row) for row in chosen]


def by_number(axes: Axes, samples: Figures, theirs: Figures) -> None:
    """Figure 5.1."""
    _cumulated(axes, _sizes(samples["accuracy"], 3_000_000))
    axes.plot(
        theirs["cdf"]["within"] / 1e3,
        theirs["cdf"]["share"] * 100,
        marker="*",
        markersize=14,
        color=GREY,
        linestyle="none",
        label="TimeKeeper: perceived error, 90 % below",
    )


def by_timeslice(axes: Axes, samples: Figures, _: Figures) -> None:
    """Figure 5.2."""
    rows = samples["two_factors"]
    _cumulated(axes, [(length(row["timeslice"]), row) for row in rows])


def scalability(axes: Axes, samples: Figures, theirs: Figures) -> None:
    """Figure 5.3."""
    rows = samples["fast_clocks"]
    _perceived_and_overrun(axes, rows, [1.0] * len(rows), "time (us)")
    axes.axhline(
        theirs["fast_clocks"]["almost_always_below"] / 1e3,
        label="TimeKeeper: perceived error, almost always below",
        **THEIRS,
    )


def product(axes: Axes, samples: Figures, _: Figures) -> None:
    """Figure 5.4."""
    rows = samples["same_product"]
    _perceived_and_overrun(
        axes, rows, [1 / row["tdf"] for row in rows], "time at the container's rate (us)"
    )


OVERRUNS = (("overrun_median", "median"), ("overrun_p99", "99 %"))


def _perceived_and_overrun(axes: Axes, rows: list[Figures], rates: list[float], label: str) -> None:
    sizes = [row["containers"] for row in rows]
    worst = [row["perceived"]["worst"] for row in rows]
    perceived = [math.nan if error is None else error / 1e3 for error in worst]
    axes.plot(sizes, perceived, label="perceived error, worst", **_marked(0))
    for number, (key, name) in enumerate(OVERRUNS, 1):
        values = [row[key] * rate / 1e3 for row, rate in zip(rows, rates, strict=True)]
        axes.plot(sizes, values, label=f"overrun, {name}", **_marked(number))
    axes.set_yscale("symlog", linthresh=1)
    axes.set(xlabel="containers", ylabel=label, ylim=(0, None))


def overhead_rows(samples: Figures, largest: Figures | None) -> list[Figures]:
    """Returns all experiments at a timeslice of 3 ms and TDF 1, the smallest first."""
    rows = list(samples.get("overhead", []))
    for name in ("thousand", "many"):
        if name in samples:
            rows.append(samples[name].get("best_effort", samples[name]))
    rows += [largest] if largest else []
    return sorted(rows, key=lambda row: row["containers"])


def ratio(axes: Axes, rows: list[Figures], theirs: Figures) -> None:
    """Figure 5.5."""
    all_active = [row for row in rows if row["active"] == row["containers"]]
    some = [row for row in rows if row["active"] != row["containers"]]
    for number, (name, those) in enumerate((("all active", all_active), ("1 % active", some))):
        values = [row["overhead_ratio"] for row in those]
        axes.plot([row["containers"] for row in those], values, label=name, **_marked(number))
    other = theirs["overhead"]
    axes.plot(
        other["containers"],
        other["ratio"],
        "*",
        markersize=14,
        color=GREY,
        label="TimeKeeper, 28 cores",
    )
    axes.axhline(1, label="goal", **THEIRS)
    axes.set(xscale="log", yscale="log", xlabel="containers", ylabel="overhead ratio (no unit)")


def synchronizing(axes: Axes, rows: list[Figures], _: Figures) -> None:
    """Figure 5.6."""
    sizes = [row["containers"] for row in rows]
    taken = [row["synchronizing"] / 1e6 for row in rows]
    axes.plot(sizes, taken, label="lorentz, one thread", **_marked(0))
    axes.set(
        xscale="log", yscale="log", xlabel="containers", ylabel="synchronizing, per round (ms)"
    )


def real_time(axes: Axes, samples: Figures, _: Figures) -> None:
    """Figure 5.7."""
    for number, row in enumerate(samples["real_time"]):
        bound = row["parts"]
        tried = sorted(row["tried"])
        axes.plot(
            [size / bound for size, _ in tried],
            [slowdown for _, slowdown in tried],
            label=f"TDF 1/{bound}",
            **_marked(number),
        )
    axes.axhline(1, label="real time is kept below", **THEIRS)
    axes.set(
        xscale="log",
        yscale="log",
        xlabel="containers, as a part of processors/TDF (no unit)",
        ylabel="slowdown (real s per virtual s)",
    )


def draw_all(folder: Path, samples: Figures, largest: Figures | None, theirs: Figures) -> None:
    """Writes each plot for which there are figures."""
    rows = overhead_rows(samples, largest)
    plots: dict[str, tuple[str, Callable[..., None], Any]] = {
        "cdf-containers": ("accuracy", by_number, samples),
        "cdf-timeslice": ("two_factors", by_timeslice, samples),
        "scalability": ("fast_clocks", scalability, samples),
        "product": ("same_product", product, samples),
        "overhead": ("overhead", ratio, rows),
        "synchronizing": ("overhead", synchronizing, rows),
        "real-time": ("real_time", real_time, samples),
    }
    folder.mkdir(exist_ok=True)
    for name, (part, draw, data) in plots.items():
        if part not in samples:
            continue
        figure, axes = pyplot.subplots(layout="constrained")
        draw(axes, data, theirs)
        axes.legend(fontsize=9)
        figure.savefig(folder / f"{name}.svg", metadata={"Date": None})
        pyplot.close(figure)
