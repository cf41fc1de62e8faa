"""The summary in words: one sentence a level, then notes on the study itself."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from lorentz.report.compared import HARNESS, Kind
from lorentz.report.judge import BASELINE, BY_MEANS, FEWEST, Judgement
from lorentz.report.power import ENOUGH, SHIFT
from lorentz.report.runs import Run

#: The paper's bound, percent: its worst case is below it (sections VI and VIII).
BOUND = 4.0


@dataclass(frozen=True)
class Summary:
    """Sentences on one study."""

    #: One for each level but the baseline.
    levels: list[str]
    #: The harness, the sensitivity of the study, the factors, and levels that were left out.
    notes: list[str]

    def lines(self) -> list[str]:
        """All sentences, those of the levels first."""
        return self.levels + self.notes


def percent(value: float) -> str:
    """`+3.4 %`; from 200 % on, times: `3.4 times`."""
    if value >= 200:
        return f"{1 + value / 100:,.1f} times"
    return f"{value:+.1f} %" if abs(value) >= 0.095 else f"{value:+.2f} %"


def _size(value: float) -> str:
    """A difference without its sign: `3.4 %`, `0.03 %`."""
    return f"{value:.1f} %" if value >= 0.095 else f"{value:.2f} %"


def summary(
    run: Run, found: Judgement, comparison: pl.DataFrame, power: pl.DataFrame, effects: pl.DataFrame
) -> Summary:
    """Sums up a study; `comparison` is that of `compared`."""
    left_out = [f"{level} was left out: {why}." for level, why in run.left_out.items()]
    judged = comparison.filter(pl.col("p_adjusted").is_not_null())
    if judged.is_empty() and (too_few := _why_not_judged(run)):
        return Summary([], [too_few, *left_out])
    notes = _harness(run) + _power(run, power) + _effects(effects)
    levels = []
    for level in run.levels:
        of = judged.filter(pl.col("level") == level)
        if len(of):
            levels.append(_of_level(level, of, _visible(power, level)))
            notes += _by_ranks(run, found, level, of.filter("differs")["metric"].to_list())
    return Summary(levels, notes + left_out)


def _why_not_judged(run: Run) -> str | None:
    rounds = run.records["round"].n_unique()
    if len(run.levels) < 2:
        return f"There is no level beside {BASELINE}."
    if rounds < FEWEST:
        records = "1 record is" if rounds == 1 else f"{rounds} records are"
        return f"{records} too few to judge; expected {FEWEST} or more."
    return None


def _harness(run: Run) -> list[str]:
    if HARNESS not in run.metrics:
        return []
    cost = pl.Series(run.values(HARNESS, run.loads[0])[BASELINE]).median()
    return [f"The harness itself costs {cost:.1f} ns per call, which all figures contain."]


def _power(run: Run, power: pl.DataFrame) -> list[str]:
    """The difference that the study could have found, at the median level of each metric."""
    if power.is_empty():
        return []
    of = pl.col("visible_percent", "power_at_2_percent").median()
    middle = power.filter(pl.col("metric") != HARNESS).group_by("metric").agg(of)
    middle = middle.sort("visible_percent")
    if middle.is_empty():
        return []
    first, last = middle.row(0, named=True), middle.row(-1, named=True)
    seen = middle.filter(pl.col("power_at_2_percent") >= ENOUGH)
    least = f"{_size(first['visible_percent'])} in {first['metric']}"
    if len(middle) > 1:
        least = f"{_size(first['visible_percent'])} in the steadiest metric ({first['metric']}), "
        least += f"of {_size(last['visible_percent'])} in the noisiest ({last['metric']})"
    rounds, share = run.records["round"].n_unique(), f"{ENOUGH * 100:.0f} %"
    return [
        f"With {rounds} records, {share} of such studies find a difference of {least}. "
        f"They find one of {SHIFT:.0f} % in {len(seen)} of {len(middle)} metrics."
    ]


def _visible(power: pl.DataFrame, level: str) -> float | None:
    """The difference that would have been found in half of a level's metrics, percent."""
    if power.is_empty():
        return None
    of = power.filter(pl.col("level") == level, pl.col("metric") != HARNESS)
    return of["visible_percent"].median()


#: Subjects of the functions of the timing paper.
KINDS = {"cost": "The cost of a clock read", "miss": "The lateness of a sleep"}


def _effects(effects: pl.DataFrame) -> list[str]:
    """The factors that decide the medians of the timing paper's functions."""
    lines = []
    for kind, title in KINDS.items() if len(effects) else ():
        of = effects.filter(pl.col("what") == kind, pl.col("statistic") == "median_ns")
        if of.is_empty():
            continue
        matters = of.filter("matters").sort("np2", descending=True)
        named = [f"{row['factor']} ({row['np2']:.2f})" for row in matters.iter_rows(named=True)]
        depends = f"depends on {', '.join(named)}" if named else "depends on no factor"
        rest = ", ".join(of.filter(~pl.col("matters"))["factor"])
        without = f" No effect was found of {rest}." if rest and named else ""
        size = " In brackets: partial eta squared of the medians' ranks." if named else ""
        lines.append(f"{title} {depends}.{size}{without}")
    return lines


def _of_level(level: str, of: pl.DataFrame, visible: float | None) -> str:
    is_wait = pl.col("kind") == Kind.WAIT.value
    groups = (("wait", of.filter(is_wait)), ("raw call", of.filter(~is_wait)))
    text = ", ".join(_of_group(name, rows) for name, rows in groups if len(rows))
    if visible is not None and not of["differs"].any():
        where = "half of the metrics would show" if len(of) > 1 else "it would show"
        text += f"; {where} a difference of {_size(visible)}"
    return f"{level}: {text}."


def _of_group(name: str, rows: pl.DataFrame) -> str:
    """`2 of 13 raw calls differ (+2.2 % to +4.4 %; 1 by 4 % or more)`."""
    differing = rows.filter("differs", pl.col("ratio").is_not_null())
    found, every = len(rows.filter("differs")), len(rows)
    if not found:
        return f"none of {every} {name}s differs" if every > 1 else f"the {name} does not differ"
    text = f"{found} of {every} {name}s {'differs' if found == 1 else 'differ'}"
    if every == 1:
        text = f"the {name} differs"
    shifts = ((differing["ratio"] - 1) * 100).sort().to_list()
    if not shifts:
        return text
    ends = list(dict.fromkeys(percent(shift) for shift in (shifts[0], shifts[-1])))
    great = sum(abs(shift) >= BOUND for shift in shifts)
    more = f"; {great} by {BOUND:.0f} % or more" if 0 < great < len(shifts) else ""
    return f"{text} ({' to '.join(ends)}{more})"


def _by_ranks(run: Run, found: Judgement, level: str, named: list[str]) -> list[str]:
    """Differences of medians that the means hide, because single records are long."""
    if run.study not in BY_MEANS or found.ranks.is_empty():
        return []
    of = found.ranks.filter(
        pl.col("level") == level, "differs", ~pl.col("metric").is_in([HARNESS, *named])
    )
    shown = [
        f"{row['metric']} {percent((row['median_ratio'] - 1) * 100)}"
        for row in of.iter_rows(named=True)
        if row["median_ratio"]
    ]
    if not shown:
        return []
    return [f"By ranks, {level} differs in {len(shown)} more, medians: {', '.join(shown)}."]


def _under(load: str) -> str:
    return "" if load == "idle" else f" ({load})"


def changes(frame: pl.DataFrame) -> list[str]:
    """Changes since an older study, a line each, the greatest first."""
    if frame.is_empty():
        return [f"Nothing could be compared: expected {FEWEST} records or more on both sides."]
    changed = frame.filter("changed").sort(pl.col("percent").abs(), descending=True)
    if changed.is_empty():
        return [f"Nothing has changed beyond noise in {len(frame)} comparisons."]
    return [
        f"{row['metric']}{_under(row['load'])} at {row['level']}: {percent(row['percent'])} "
        f"(95 % CI {percent(row['ci_low_percent'])} to {percent(row['ci_high_percent'])})"
        for row in changed.iter_rows(named=True)
    ]
