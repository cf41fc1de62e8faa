"""The platform as a factor: runs of one study on several machines, named by `lorentz study --as`.

*Impact of Modern Virtualization Methods on Timing Precision*, sections 2.1.2 and 3.1.4: does the
platform decide what a call costs, does the level, or do both together? An ANOVA on ranks has both
and their interaction in one model for each metric. Holm's method adjusts its p over all metrics.
"""

from __future__ import annotations

import polars as pl

from lorentz.report.compared import HARNESS
from lorentz.report.factors import analysed_by, observations, on_platforms
from lorentz.report.judge import ALPHA, FEWEST, adjusted
from lorentz.report.runs import Run

#: The factors of a metric, and their interaction as the tables name it.
FACTORS = ("platform", "level")
TOGETHER = "platform x level"


def records(runs: list[Run]) -> pl.DataFrame:
    """The records of all runs, with the column `platform`."""
    return pl.concat([run.records.with_columns(platform=pl.lit(run.machine)) for run in runs])


def medians(runs: list[Run]) -> pl.DataFrame:
    """Each metric at each level: the median on each platform, ns, a column each."""
    keys = ["metric", "load", "level"]
    of = (
        records(runs)
        .group_by(*keys, "platform", maintain_order=True)
        .agg(pl.col("value_ns").median())
    )
    return of.pivot("platform", index=keys, values="value_ns", maintain_order=True)


def effects(runs: list[Run]) -> pl.DataFrame:
    """Returns the effects of platform, level and both together on each metric, a row each."""
    frame = records(runs).filter(pl.col("metric") != HARNESS)
    rows = []
    for (metric, load), part in frame.group_by("metric", "load", maintain_order=True):
        # Levels that are there on each platform.
        every = part["platform"].n_unique()
        part = part.filter(pl.col("platform").n_unique().over("level") == every)
        if part.is_empty() or any(part[factor].n_unique() < 2 for factor in FACTORS):
            continue
        if part.group_by(*FACTORS).len()["len"].min() < FEWEST:
            continue
        of = analysed_by(part, FACTORS, ("value_ns",))
        rows += [{"metric": metric, "load": load, **row} for row in of.to_dicts()]
    for row, p in zip(rows, adjusted([row["p"] for row in rows]), strict=True):
        row["p_adjusted"] = p
        row["matters"] = bool(p < ALPHA)
    return pl.DataFrame(rows, infer_schema_length=None).drop("statistic", strict=False)


def of_timers(runs: list[Run]) -> pl.DataFrame:
    """The timing paper's analysis with the platform as a fourth factor."""
    frames = [observations(run).with_columns(platform=pl.lit(run.machine)) for run in runs]
    return on_platforms(pl.concat(frames))


def words(found: pl.DataFrame) -> list[str]:
    """One sentence a factor: in how many metrics it matters, and in which most."""
    if found.is_empty():
        return [f"Too little to judge: expected {FEWEST} records or more, and two levels on each."]
    lines = []
    for factor in (*FACTORS, TOGETHER):
        of = found.filter(pl.col("factor") == factor)
        matters = of.filter("matters").sort("np2", descending=True)
        line = f"{factor}: matters in {len(matters)} of {len(of)} metrics"
        if len(matters):
            first = matters.row(0, named=True)
            line += (
                f", most in {first['metric']} (partial eta squared of the ranks {first['np2']:.2f})"
            )
        lines.append(f"{line}.")
    return lines
