"""The tests of the papers, by the field's libraries.

*The Cost of Time Virtualization in Linux Containers*, section V: Shapiro-Wilk, Levene, one-way
ANOVA where variances are equal and Welch's where not, then Tukey's HSD or Games-Howell.
*Impact of Modern Virtualization Methods on Timing Precision*, section 2.3: median, MAD as half the
interquartile range, Kruskal-Wallis, then Dunn's test.

A study tests many metrics, and some would differ by chance. A level counts as different only if two
p are below 0.05: the metric's p, which Holm's method adjusts over all metrics, and the level's own
p of the post hoc test. `p_adjusted` of `pairs` and `ranks` is the greater of the two. The tables
keep the p of the papers too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
import pingouin
import polars as pl
import scikit_posthocs
from scipy import stats
from statsmodels.stats.libqsturng import qsturng
from statsmodels.stats.multitest import multipletests

from lorentz.report.runs import Run

ALPHA = 0.05
BASELINE = "baseline"
#: The studies whose paper compares means; all are compared by ranks too.
BY_MEANS = ("clocks", "hot", "cold")
#: Below so many records there is no judging.
FEWEST = 3

Groups = dict[str, list[float]]


@dataclass(frozen=True)
class Judgement:
    """Results of the tests of a study, a table a test: one row per metric and load, or per pair."""

    descriptives: pl.DataFrame
    omnibus: pl.DataFrame
    pairs: pl.DataFrame
    ranks: pl.DataFrame

    def tables(self) -> dict[str, pl.DataFrame]:
        """All of them by name."""
        return {
            "descriptives": self.descriptives,
            "tests": self.omnibus,
            "pairs": self.pairs,
            "ranks": self.ranks,
        }


def omnibus(groups: Groups) -> dict[str, object]:
    """Do the means of the groups differ? Levene's test chooses between ANOVA and Welch's."""
    long = _long(groups)
    levene = stats.levene(*groups.values(), center="mean").pvalue
    is_equal = bool(levene >= ALPHA)
    test = pingouin.anova if is_equal else pingouin.welch_anova
    found = test(data=long, dv="value", between="group").iloc[0]
    columns = {name.lower().replace("-", "_"): name for name in found.index}
    df1, df2 = ("ddof1", "ddof2")
    return {
        "levene_p": float(levene),
        "test": "ANOVA" if is_equal else "Welch's ANOVA",
        "df1": float(found[columns[df1]]),
        "df2": float(found[columns[df2]]),
        "F": float(found["F"]),
        "p": float(found[columns["p_unc"]]),
        "np2": float(found["np2"]),
    }


def post_hoc(groups: Groups, is_equal: bool) -> list[dict[str, object]]:
    """Which pairs differ: Tukey's HSD where variances are equal, Games-Howell where not.

    All against the baseline, and of the others each pair once. The interval is that of the
    studentized range, as the test itself.
    """
    test = pingouin.pairwise_tukey if is_equal else pingouin.pairwise_gameshowell
    records = sum(len(values) for values in groups.values())
    rows = []
    for pair in test(_long(groups), dv="value", between="group").to_dict("records"):
        level, other, sign = pair["A"], pair["B"], 1
        if level == BASELINE:
            level, other, sign = other, level, -1
        freedom = records - len(groups) if is_equal else pair["df"]
        half = qsturng(1 - ALPHA, len(groups), freedom) * pair["se"] / np.sqrt(2)
        rows.append(
            {
                "level": level,
                "against": other,
                "test": "Tukey HSD" if is_equal else "Games-Howell",
                "difference_ns": sign * pair["diff"],
                "ci_low_ns": sign * pair["diff"] - half,
                "ci_high_ns": sign * pair["diff"] + half,
                "p": pair["p_tukey"] if is_equal else pair["pval"],
                "hedges_g": sign * pair["hedges"],
            }
        )
    return rows


def ranks(groups: Groups) -> tuple[dict[str, float], pd.DataFrame]:
    """Kruskal-Wallis, and Dunn's p for each pair, adjusted by Holm."""
    found = stats.kruskal(*groups.values())
    dunn = scikit_posthocs.posthoc_dunn(
        _long(groups), val_col="value", group_col="group", p_adjust="holm"
    )
    return {"H": float(found.statistic), "p": float(found.pvalue)}, dunn


def adjusted(p_values: list[float]) -> list[float]:
    """The p of a family of tests by Holm."""
    return [float(p) for p in multipletests(p_values, method="holm")[1]] if p_values else []


def _long(groups: Groups) -> pd.DataFrame:
    pairs = [(name, value) for name, values in groups.items() for value in values]
    return pd.DataFrame(pairs, columns=["group", "value"])


def describe(values: list[float]) -> dict[str, float | int | None]:
    """Amount, mean, deviation, median, MAD, ends, and the p of Shapiro-Wilk's test of normality."""
    array = np.asarray(values)
    can_be_tested = len(array) >= FEWEST and np.ptp(array) > 0
    return {
        "n": len(array),
        "mean_ns": float(array.mean()),
        "sd_ns": float(array.std(ddof=1)) if len(array) > 1 else None,
        "median_ns": float(np.median(array)),
        "mad_ns": float(stats.iqr(array) / 2),
        "min_ns": float(array.min()),
        "max_ns": float(array.max()),
        "shapiro_p": float(stats.shapiro(array).pvalue) if can_be_tested else None,
    }


def judge(run: Run) -> Judgement:
    """All tests of a study."""
    described, tests, pairs, ranked = [], [], [], []
    for load in run.loads:
        for metric in run.metrics:
            key = {"metric": metric, "load": load}
            groups = run.values(metric, load)
            described += [
                {**key, "level": level, **describe(values)} for level, values in groups.items()
            ]
            groups = {name: values for name, values in groups.items() if len(values) >= FEWEST}
            if len(groups) < 2 or BASELINE not in groups:
                continue
            ranked += [{**key, **row} for row in _ranked(groups)]
            varied = {name: values for name, values in groups.items() if np.ptp(values) > 0}
            if run.study in BY_MEANS and len(varied) > 1 and BASELINE in varied:
                test = omnibus(varied)
                base = float(np.mean(varied[BASELINE]))
                after = post_hoc(varied, test["test"] == "ANOVA")
                tests.append({**key, **test})
                pairs += [{**key, **pair, "baseline_mean_ns": base} for pair in after]
    return _finished(described, tests, pairs, ranked)


def _ranked(groups: Groups) -> list[dict[str, object]]:
    if np.ptp(np.concatenate(list(groups.values()))) == 0:
        return []
    kruskal, dunn = ranks(groups)
    middle = float(np.median(groups[BASELINE]))
    return [
        {
            "level": level,
            "median_ratio": float(np.median(values)) / middle if middle else None,
            "kruskal_H": kruskal["H"],
            "kruskal_p": kruskal["p"],
            "dunn_p": float(dunn.loc[BASELINE, level]),
        }
        for level, values in groups.items()
        if level != BASELINE
    ]


def _greater(of_metric: float, of_level: float) -> float:
    """Returns the p that decides whether a level differs; not a number if either is not."""
    return float(np.maximum(of_metric, of_level))


def _finished(
    described: list[dict], tests: list[dict], pairs: list[dict], ranked: list[dict]
) -> Judgement:
    for test, p in zip(tests, adjusted([test["p"] for test in tests]), strict=True):
        test["p_adjusted"] = p
    family = {(test["metric"], test["load"]): test["p_adjusted"] for test in tests}
    for pair in pairs:
        base = pair.pop("baseline_mean_ns")
        against_base = pair["against"] == BASELINE
        for name, part in (("percent", "difference"), ("ci_low", "ci_low"), ("ci_high", "ci_high")):
            title = "percent" if name == "percent" else f"{name}_percent"
            pair[title] = pair[f"{part}_ns"] / base * 100 if against_base else None
        pair["p_adjusted"] = _greater(family[pair["metric"], pair["load"]], pair["p"])
        pair["differs"] = pair["p_adjusted"] < ALPHA
    keys = list(dict.fromkeys((row["metric"], row["load"]) for row in ranked))
    by_key = {(row["metric"], row["load"]): row["kruskal_p"] for row in ranked}
    for_ranks = dict(zip(keys, adjusted([by_key[key] for key in keys]), strict=True))
    for row in ranked:
        row["p_adjusted"] = _greater(for_ranks[row["metric"], row["load"]], row["dunn_p"])
        row["differs"] = row["p_adjusted"] < ALPHA
    frames = (pl.DataFrame(rows, infer_schema_length=None) for rows in (described, tests))
    more = (pl.DataFrame(rows, infer_schema_length=None) for rows in (pairs, ranked))
    return Judgement(*frames, *more)
