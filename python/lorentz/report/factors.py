"""Which factors decide what timers cost and how late sleeps end: function, level, load.

*Impact of Modern Virtualization Methods on Timing Precision*, sections 3.1.4 and 3.2.4: median,
MAD, minimum and maximum of each record are compared by Kruskal-Wallis over the values of each
factor and over those of two factors together, then by Dunn's test. Two factors together differ
also where only one of them matters; so an ANOVA on ranks, with all factors and each interaction of
two in one model, stands beside it and decides what is said.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
import polars as pl
import scikit_posthocs
from scipy import stats
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from lorentz.report.judge import ALPHA, BASELINE, FEWEST, adjusted
from lorentz.report.runs import Run

FACTORS = ("function", "level", "load")
STATISTICS = ("median_ns", "mad_ns", "min_ns", "max_ns")
IDLE = "idle"


def observations(run: Run) -> pl.DataFrame:
    """Median, MAD, minimum and maximum of each record's samples."""
    value = pl.col("value_ns")
    # In the order of the study, and not in that of its turns.
    order = {"metric": run.metrics, "level": run.levels, "load": run.loads}
    samples = run.samples.sort(
        [pl.col(name).cast(pl.Enum(names)) for name, names in order.items()], maintain_order=True
    )
    return samples.group_by("round", "load", "level", function="metric", maintain_order=True).agg(
        median_ns=value.median(),
        mad_ns=(value.quantile(0.75, "linear") - value.quantile(0.25, "linear")) / 2,
        min_ns=value.min(),
        max_ns=value.max(),
    )


def effects(frame: pl.DataFrame) -> pl.DataFrame:
    """Effects of each factor, and of each two together, on each statistic; one kind of function.

    The platform is a factor where the frame has a column for it.
    """
    factors = [factor for factor in (*FACTORS, "platform") if factor in frame.columns]
    factors = [factor for factor in factors if frame[factor].n_unique() > 1]
    if len(factors) < 2:
        return pl.DataFrame()
    found = analysed_by(frame, factors, STATISTICS)
    if found.is_empty():
        return found
    p_adjusted = adjusted(found["p"].to_list())
    return found.with_columns(
        p_adjusted=pl.Series(p_adjusted), matters=pl.Series(p_adjusted) < ALPHA
    )


def analysed_by(
    frame: pl.DataFrame, factors: Sequence[str], statistics: Sequence[str]
) -> pl.DataFrame:
    """Effects of the factors, and of each two together, on each of the columns `statistics`."""
    rows = []
    terms = [*((factor,) for factor in factors), *combinations(factors, 2)]
    for statistic in statistics:
        if frame[statistic].n_unique() == 1:
            continue
        table = _anova_on_ranks(frame, statistic, factors)
        within = table["sum_sq"]["Residual"]
        for term in terms:
            of = table.loc[":".join(f"C({factor})" for factor in term)]
            groups = [group[statistic].to_numpy() for _, group in frame.group_by(*term)]
            kruskal = stats.kruskal(*groups)
            rows.append(
                {
                    "statistic": statistic,
                    "factor": " x ".join(term),
                    "kruskal_H": float(kruskal.statistic),
                    "kruskal_p": float(kruskal.pvalue),
                    "F": float(of["F"]),
                    "p": float(of["PR(>F)"]),
                    "np2": float(of["sum_sq"] / (of["sum_sq"] + within)),
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


def _anova_on_ranks(frame: pl.DataFrame, statistic: str, factors: Sequence[str]) -> pd.DataFrame:
    data = pd.DataFrame({factor: frame[factor].to_list() for factor in factors})
    data["place"] = stats.rankdata(frame[statistic].to_numpy())
    terms = [f"C({factor})" for factor in factors]
    terms += [f"C({one}):C({other})" for one, other in combinations(factors, 2)]
    return anova_lm(ols(f"place ~ {' + '.join(terms)}", data).fit(), typ=2)


def cells(frame: pl.DataFrame) -> pl.DataFrame:
    """The medians of each function over level x load; p after Dunn, beside its neighbours.

    A cell is held against the baseline under the same load, and against the same level when idle;
    p is adjusted by Holm over all pairs of cells of a function.
    """
    rows = []
    for (function,), part in frame.group_by("function", maintain_order=True):
        groups = {
            key: group["median_ns"].to_list()
            for key, group in part.group_by("level", "load", maintain_order=True)
            if len(group) >= FEWEST
        }
        if len(groups) < 2 or np.ptp(np.concatenate(list(groups.values()))) == 0:
            continue
        dunn = scikit_posthocs.posthoc_dunn(list(groups.values()), p_adjust="holm").to_numpy()
        names = list(groups)
        for place, (level, load) in enumerate(names):
            row = {"function": function, "level": level, "load": load}
            row["median_ns"] = float(np.median(groups[level, load]))
            row["mad_ns"] = float(stats.iqr(groups[level, load]) / 2)
            for title, other in (("baseline", (BASELINE, load)), ("idle", (level, IDLE))):
                there = other in groups and other != (level, load)
                row[f"ratio_to_{title}"] = (
                    row["median_ns"] / base
                    if there and (base := float(np.median(groups[other])))
                    else None
                )
                row[f"to_{title}_p"] = float(dunn[place, names.index(other)]) if there else None
            rows.append(row)
    return pl.DataFrame(rows, infer_schema_length=None)


#: The functions that are compared with one another: tables 1 and 2 of the paper.
KINDS = {"cost": ("cost_clock_gettime", "cost_moment"), "miss": ("miss_usleep", "miss_sleep")}


def analysed(run: Run) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Effects and cells of a study of timers."""
    frame = observations(run)
    if frame["round"].n_unique() < FEWEST:
        return pl.DataFrame(), pl.DataFrame()
    return on_platforms(frame), cells(frame)


def on_platforms(frame: pl.DataFrame) -> pl.DataFrame:
    """Effects on both kinds of functions; `frame` is that of `observations`, of one run or more."""
    of_kinds = []
    for kind, functions in KINDS.items():
        found = effects(frame.filter(pl.col("function").is_in(functions)))
        if len(found):
            of_kinds.append(found.select(pl.lit(kind).alias("what"), pl.all()))
    return pl.concat(of_kinds) if of_kinds else pl.DataFrame()
