"""The summary in words: which levels differ from the baseline, by how much, whether below 4 %."""

from __future__ import annotations

import polars as pl

from lorentz.report.judge import BASELINE, FEWEST, Judgement
from lorentz.report.power import ENOUGH, SHIFT
from lorentz.report.runs import Run

#: The paper's bound in percent: its worst case must stay below (sections VI and VIII).
BOUND = 4.0
#: Metric of the harness's own cost, which is no metric of a level.
HARNESS = "harness"


def percent(value: float) -> str:
    """Formats a change: `+3.4 %`, or as a multiple from 200 % on."""
    if value >= 200:
        return f"{1 + value / 100:,.1f} times"
    return f"{value:+.1f} %"


def summary(run: Run, found: Judgement, power: pl.DataFrame, effects: pl.DataFrame) -> list[str]:
    """Returns a sentence or two for each level."""
    left_out = [f"{run.study}: {level} was left out: {why}." for level, why in run.left_out.items()]
    if _against_baseline(run, found).is_empty():
        rounds = run.records["round"].n_unique()
        why = f"{rounds} records are too few to judge; expected {FEWEST} or more"
        if len(run.levels) < 2:
            why = f"there is no level beside {BASELINE}"
        return [f"{run.study}: {why}.", *left_out]
    lines = [_harness(run)] if HARNESS in run.metrics else []
    lines += _power(run, power) + _effects(run, effects)
    against = _against_baseline(run, found).filter(pl.col("metric") != HARNESS)
    for level in run.levels:
        if level != BASELINE:
            of = against.filter(pl.col("level") == level)
            lines += _of_level(run, level, of, _visible(power, level))
            lines += _by_ranks(run, found, level, of.filter("differs")["metric"].to_list())
    return lines + left_out


def _against_baseline(run: Run, found: Judgement) -> pl.DataFrame:
    """Returns the comparison with the baseline: by means or by medians, as the paper compares."""
    if run.study == "timers":
        if found.ranks.is_empty():
            return found.ranks
        return found.ranks.with_columns(percent=(pl.col("median_ratio") - 1) * 100)
    if found.pairs.is_empty():
        return found.pairs
    return found.pairs.filter(pl.col("against") == BASELINE)


def _harness(run: Run) -> str:
    cost = pl.Series(run.values(HARNESS, run.loads[0])[BASELINE]).median()
    return (
        f"{run.study}: the harness itself costs {cost:.1f} ns per call, which all figures contain."
    )


def _power(run: Run, power: pl.DataFrame) -> list[str]:
    """Describes the differences that the study could have found, metric by metric, at a median
    level."""
    if power.is_empty():
        return []
    of = pl.col("visible_percent", "power_at_2_percent").median()
    middle = power.filter(pl.col("metric") != HARNESS).group_by("metric").agg(of)
    middle = middle.sort("visible_percent")
    if middle.is_empty():
        return []
    first, last = middle.row(0, named=True), middle.row(-1, named=True)
    seen = middle.filter(pl.col("power_at_2_percent") >= ENOUGH)
    rounds = run.records["round"].n_unique()
    span = f"{first['visible_percent']:.1f} % ({first['metric']})"
    if len(middle) > 1:
        span += f" to {last['visible_percent']:.1f} % ({last['metric']})"
    return [
        f"{run.study}: by {rounds} records a difference is found in {ENOUGH * 100:.0f} % of such "
        f"studies where it is {span} of the baseline or more; one of {SHIFT:.0f} % in {len(seen)} "
        f"of {len(middle)} metrics."
    ]


def _visible(power: pl.DataFrame, level: str) -> float | None:
    """Returns the difference, percent, visible in half of a level's metrics."""
    if power.is_empty():
        return None
    of = power.filter(pl.col("level") == level, pl.col("metric") != HARNESS)
    return of["visible_percent"].median()


#: The measured quantity of each kind of the timing paper's functions.
KINDS = {"cost": "what a read of a clock costs", "miss": "how late a sleep ends"}


def _effects(run: Run, effects: pl.DataFrame) -> list[str]:
    """Describes the factors that decide the medians of the timing paper's functions."""
    lines = []
    for kind, title in KINDS.items() if len(effects) else ():
        of = effects.filter(pl.col("what") == kind, pl.col("statistic") == "median_ns")
        if of.is_empty():
            continue
        matters = of.filter("matters").sort("np2", descending=True)
        named = [f"{row['factor']} ({row['np2']:.2f})" for row in matters.iter_rows(named=True)]
        what = ", ".join(named) or "no factor that is found"
        rest = ", ".join(of.filter(~pl.col("matters"))["factor"]) or "none"
        lines.append(
            f"{run.study}: {title} is decided by {what}, by partial eta squared of the medians' "
            f"ranks; found without effect: {rest}."
        )
    return lines


def _of_level(run: Run, level: str, pairs: pl.DataFrame, visible: float | None) -> list[str]:
    study, rounds = run.study, run.records["round"].n_unique()
    differing = pairs.filter("differs").sort("percent", descending=True)
    if pairs.is_empty():
        return []
    if differing.is_empty():
        text = f"{study}: {level} is found to differ from {BASELINE} in none of {len(pairs)} "
        text += f"metrics, by {rounds} records of each."
        if visible is not None:
            where = "In half of them a" if len(pairs) > 1 else "A"
            text += f" {where} difference of {visible:.1f} % would have been found."
        return [text]
    named = [
        f"{row['metric']}{_under(row['load'])} {percent(row['percent'])}"
        for row in differing.iter_rows(named=True)
    ]
    text = f"{study}: {level} differs from {BASELINE} in {len(differing)} of {len(pairs)} metrics: "
    text += ", ".join(named) + ". "
    counts = (
        (len(differing.filter(pl.col("percent") >= BOUND)), "dearer"),
        (len(differing.filter(pl.col("percent") <= -BOUND)), "cheaper"),
    )
    told = [f"{count} {how} by {BOUND:.0f} % or more" for count, how in counts if count]
    return [text + (", ".join(told) or f"All are below {BOUND:.0f} %") + "."]


def _by_ranks(run: Run, found: Judgement, level: str, named: list[str]) -> list[str]:
    """Describes the differences that means of few records hide behind single long ones."""
    if run.study == "timers" or found.ranks.is_empty():
        return []
    of = found.ranks.filter(
        pl.col("level") == level, "differs", ~pl.col("metric").is_in([HARNESS, *named])
    )
    if of.is_empty():
        return []
    shown = [
        f"{row['metric']} {percent((row['median_ratio'] - 1) * 100)}"
        for row in of.iter_rows(named=True)
        if row["median_ratio"]
    ]
    return [
        f"{run.study}: {level} differs by ranks in {len(of)} more, medians: {', '.join(shown)}."
    ]


def _under(load: str) -> str:
    return "" if load == "idle" else f" ({load})"


def changes(frame: pl.DataFrame) -> list[str]:
    """Describes the result of a comparison with an older study."""
    if frame.is_empty():
        return ["Nothing could be compared: expected 3 records or more on both sides."]
    changed = frame.filter("changed").sort(pl.col("percent").abs(), descending=True)
    if changed.is_empty():
        return [f"Nothing has changed beyond noise in {len(frame)} comparisons."]
    return [
        f"{row['metric']}{_under(row['load'])} at {row['level']}: {percent(row['percent'])} "
        f"(95 % CI {percent(row['ci_low_percent'])} to {percent(row['ci_high_percent'])})"
        for row in changed.iter_rows(named=True)
    ]
