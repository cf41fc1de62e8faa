"""Comparison of two studies of the same kind: changes beyond noise.

Machines drift from one day to the next, and a level drifts with its baseline. Therefore the
compared value is the ratio to the baseline of the same round: Welch's t-test of its logarithm,
adjusted over all comparisons by Holm. The baseline itself is compared by its absolute value.
"""

from __future__ import annotations

import numpy as np
import polars as pl
from scipy import stats

from lorentz.report.judge import ALPHA, BASELINE, FEWEST, adjusted
from lorentz.report.runs import Run, WrongRunError

#: Changes smaller than this, percent, are not reported, even if certain.
SMALLEST = 1.0


def compare(new: Run, old: Run) -> pl.DataFrame:
    """Returns, for each level, metric and load of both studies, the change in percent, its
    interval, and p."""
    if new.study != old.study:
        raise WrongRunError(
            f"--against {old.sources[0]}: a study of {old.study}; expected one of {new.study}"
        )
    for size in ("calls", "sleeps", "millis", "samples"):
        if new.settings[size] != old.settings[size]:
            raise WrongRunError(
                f"--against {old.sources[0]}: {size} is {old.settings[size]}; "
                f"expected {new.settings[size]}, as in {new.sources[0]}"
            )
    rows = []
    for load in new.loads:
        for metric in new.metrics:
            for level in new.levels:
                sides = [_logarithms(run, metric, load, level) for run in (new, old)]
                if min(len(side) for side in sides) < FEWEST:
                    continue
                rows.append({"metric": metric, "load": load, "level": level, **_change(*sides)})
    for row, p in zip(rows, adjusted([row["p"] for row in rows]), strict=True):
        row["p_adjusted"] = p
        row["changed"] = bool(p < ALPHA and abs(row["percent"]) >= SMALLEST)
    return pl.DataFrame(rows, infer_schema_length=None)


def _logarithms(run: Run, metric: str, load: str, level: str) -> np.ndarray:
    chosen = run.records.filter(pl.col("metric") == metric, pl.col("load") == load)
    of = chosen.filter(pl.col("level") == level).select("round", "value_ns")
    if level == BASELINE:
        values = of["value_ns"].to_numpy()
        return np.log(values[values > 0])
    base = chosen.filter(pl.col("level") == BASELINE).select("round", base_ns="value_ns")
    both = of.join(base, on="round").filter(pl.col("base_ns") > 0, pl.col("value_ns") > 0)
    return np.log((both["value_ns"] / both["base_ns"]).to_numpy())


def _change(new: np.ndarray, old: np.ndarray) -> dict[str, float]:
    if np.array_equal(new, old):
        # The t-test gives no p if no value varies.
        return {"percent": 0.0, "ci_low_percent": 0.0, "ci_high_percent": 0.0, "p": 1.0}
    found = stats.ttest_ind(new, old, equal_var=False)
    interval = found.confidence_interval(1 - ALPHA)

    def percent(logarithm: float) -> float:
        return float(np.expm1(logarithm) * 100)

    return {
        "percent": percent(new.mean() - old.mean()),
        "ci_low_percent": percent(interval.low),
        "ci_high_percent": percent(interval.high),
        "p": float(found.pvalue),
    }
