"""Each metric at each level beside the baseline: ratio and adjusted p.

A program waits for the end of a sleep and notices how long it lasts. It makes raw calls in
nanoseconds to microseconds, and no single one is noticed. Therefore waits stand apart.
"""

from __future__ import annotations

import math
from enum import Enum

import numpy as np
import polars as pl

from lorentz.report.judge import BASELINE, BY_MEANS, Judgement
from lorentz.report.runs import Run

#: The metric that is the cost of the harness itself. No level has it as a metric.
HARNESS = "harness"


class Kind(Enum):
    """Groups of metrics whose ratios are of the same order."""

    WAIT = "wait"
    READ = "clock read"
    CALL = "system call"

    @property
    def title(self) -> str:
        """The heading of the group."""
        return {
            Kind.WAIT: "Waits, which a program feels",
            Kind.READ: "Raw calls: clock reads without a system call",
            Kind.CALL: "Raw calls: system calls",
        }[self]

    @property
    def is_wait(self) -> bool:
        """Tells a wait from a raw call."""
        return self is Kind.WAIT


_WAITS = ("nanosleep", "clock_nanosleep", "miss_sleep", "miss_usleep")
_READS = ("vdso_", "hot_", "cold_", "cost_")


def kind(metric: str) -> Kind:
    """Returns the group of a metric."""
    if metric in _WAITS:
        return Kind.WAIT
    return Kind.READ if metric.startswith(_READS) else Kind.CALL


def rows_of(run: Run) -> dict[Kind, list[tuple[str, str]]]:
    """The metrics under their loads, by group, in the order of the study."""
    found: dict[Kind, list[tuple[str, str]]] = {}
    for group in Kind:
        metrics = [name for name in run.metrics if name != HARNESS and kind(name) is group]
        pairs = [(metric, load) for load in run.loads for metric in metrics]
        pairs = [pair for pair in pairs if BASELINE in run.values(*pair)]
        if pairs:
            found[group] = pairs
    return found


def statistic(run: Run) -> str:
    """The statistic of the records that the paper of this study compares."""
    return "mean" if run.study in BY_MEANS else "median"


#: Columns of a comparison, and their types.
SCHEMA = {
    "kind": pl.String,
    "metric": pl.String,
    "load": pl.String,
    "level": pl.String,
    "baseline_ns": pl.Float64,
    "level_ns": pl.Float64,
    "ratio": pl.Float64,
    "p_adjusted": pl.Float64,
    "differs": pl.Boolean,
}


def compared(run: Run, found: Judgement) -> pl.DataFrame:
    """One row per metric, load and level other than the baseline.

    `baseline_ns` and `level_ns` are means or medians of the records, by `statistic`. `ratio` is
    null if the baseline is not positive. `p_adjusted` and `differs` are null if no test was
    possible: the records are too few, or they do not vary.
    """
    middle = np.mean if run.study in BY_MEANS else np.median
    tests = _tests(run, found)
    rows = []
    for group, pairs in rows_of(run).items():
        for metric, load in pairs:
            values = {name: float(middle(of)) for name, of in run.values(metric, load).items()}
            base = values.pop(BASELINE)
            for level, own in values.items():
                p = tests.get((metric, load, level))
                ratio = own / base if base > 0 else None
                differs = None if p is None else p[1]
                row = (group.value, metric, load, level, base, own, ratio)
                rows.append((*row, None if p is None else p[0], differs))
    return pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _tests(run: Run, found: Judgement) -> dict[tuple[str, str, str], tuple[float, bool]]:
    """Adjusted p and verdict by metric, load and level: of means, or of ranks."""
    frame = found.pairs if run.study in BY_MEANS else found.ranks
    if frame.is_empty():
        return {}
    if "against" in frame.columns:
        frame = frame.filter(pl.col("against") == BASELINE)
    return {
        (metric, load, level): (p, differs)
        for metric, load, level, p, differs in frame.select(
            "metric", "load", "level", "p_adjusted", "differs"
        ).iter_rows()
        if not math.isnan(p)
    }
