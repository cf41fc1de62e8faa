"""The judge, on data whose truth is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from framework import studies
from lorentz.report import against, judge, runs
from scipy import stats

METRICS = ("clock_getres", "gettimeofday", "timer_create", "timerfd_create")


def simulated(folder: Path, name: str, shifts: dict[str, float], rounds: int, seed: int) -> Path:
    return studies.simulated(folder / name, shifts, rounds, seed, metrics=METRICS)


def found(path: Path) -> tuple[runs.Run, judge.Judgement]:
    run = runs.read([str(path)])[0]
    return run, judge.judge(run)


def test_nothing_is_found_where_nothing_is(tmp_path: Path):
    shifts = {"baseline": 0.0, "control": 0.0, "namespace": 0.0}
    _, judged = found(simulated(tmp_path, "x.parquet", shifts, 60, seed=4))
    assert not judged.pairs["differs"].any() and not judged.ranks["differs"].any()


def test_a_shift_of_two_percent_is_found_and_measured(tmp_path: Path):
    shifts = {"baseline": 0.0, "control": 0.0, "namespace": 0.02}
    _, judged = found(simulated(tmp_path, "x.parquet", shifts, 200, seed=5))
    base = judged.pairs.filter(pl.col("against") == "baseline")
    shifted = base.filter(pl.col("level") == "namespace")
    assert shifted["differs"].all()
    assert ((shifted["ci_low_percent"] < 2) & (shifted["ci_high_percent"] > 2)).all()
    assert not base.filter(pl.col("level") == "control")["differs"].any()


def test_false_positives_are_five_in_a_hundred():
    """400 studies without a difference: 20 expected, and 4 standard deviations about them."""
    random = np.random.default_rng(6)
    wrong = 0
    studies = 400
    for _ in range(studies):
        groups = {name: list(random.normal(100, 2, 30)) for name in ("baseline", "a", "b")}
        wrong += judge.omnibus(groups)["p"] < judge.ALPHA
    assert abs(wrong / studies - judge.ALPHA) < 4 * np.sqrt(0.05 * 0.95 / studies)


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_false_positives_over_two_thousand_studies():
    """Within one in a hundred of five, with equal deviations and unequal ones."""
    random = np.random.default_rng(7)
    for deviations in ((2, 2, 2), (2, 3, 5)):
        wrong = 0
        for _ in range(2000):
            groups = {
                name: list(random.normal(100, deviation, 200))
                for name, deviation in zip(("baseline", "a", "b"), deviations, strict=True)
            }
            wrong += judge.omnibus(groups)["p"] < judge.ALPHA
        assert 0.04 <= wrong / 2000 <= 0.06


def test_the_adjusted_p_decides_whether_a_level_differs(tmp_path: Path):
    """It is the greater of the metric's p, adjusted by Holm, and the p of the post hoc test."""
    shifts = {"baseline": 0.0, "control": 0.0, "namespace": 0.02}
    _, judged = found(simulated(tmp_path, "x.parquet", shifts, 60, seed=9))
    of_metric = judged.omnibus.select("metric", "load", of_metric="p_adjusted")
    pairs = judged.pairs.join(of_metric, on=["metric", "load"])
    greater = pairs.select(pl.max_horizontal("of_metric", "p")).to_series()
    assert pairs["p_adjusted"].to_list() == greater.to_list()
    for frame in (judged.pairs, judged.ranks):
        assert (frame["differs"] == (frame["p_adjusted"] < judge.ALPHA)).all()
        assert frame["differs"].any() and not frame["differs"].all()


@pytest.mark.parametrize("is_equal", [True, False])
def test_post_hoc_agrees_with_another_library(is_equal: bool):
    """pingouin's p and intervals, against scipy's."""
    random = np.random.default_rng(8)
    sizes = {"baseline": (100, 1), "a": (101, 1 if is_equal else 3), "b": (100.5, 1)}
    groups = {name: list(random.normal(*size, 25)) for name, size in sizes.items()}
    names = list(groups)
    other = stats.tukey_hsd(*groups.values(), equal_var=is_equal)
    interval = other.confidence_interval(0.95)
    rows = judge.post_hoc(groups, is_equal)
    assert len(rows) == 3
    for row in rows:
        i, j = names.index(row["level"]), names.index(row["against"])
        assert row["difference_ns"] == pytest.approx(other.statistic[i, j])
        assert row["p"] == pytest.approx(other.pvalue[i, j], abs=1e-3)
        assert row["ci_low_ns"] == pytest.approx(interval.low[i, j], abs=2e-2)
        assert row["ci_high_ns"] == pytest.approx(interval.high[i, j], abs=2e-2)


def test_a_worked_example():
    """R's PlantGrowth: aov gives F = 4.846, p = 0.01591; kruskal.test 7.9882, p = 0.01842;
    TukeyHSD 0.865 (0.174 to 1.556), p = 0.0120, of the two treatments."""
    groups = {
        "baseline": [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14],
        "trt1": [4.81, 4.17, 4.41, 3.59, 5.87, 3.83, 6.03, 4.89, 4.32, 4.69],
        "trt2": [6.31, 5.12, 5.54, 5.50, 5.37, 5.29, 4.92, 6.15, 5.80, 5.26],
    }
    test = judge.omnibus(groups)
    assert test["test"] == "ANOVA"
    assert test["F"] == pytest.approx(4.846, abs=1e-3)
    assert test["p"] == pytest.approx(0.01591, abs=1e-5)
    kruskal, _ = judge.ranks(groups)
    assert kruskal["H"] == pytest.approx(7.9882, abs=1e-4)
    assert kruskal["p"] == pytest.approx(0.01842, abs=1e-5)
    pair = next(
        row
        for row in judge.post_hoc(groups, True)
        if {row["level"], row["against"]} == {"trt1", "trt2"}
    )
    assert abs(pair["difference_ns"]) == pytest.approx(0.865)
    ends = sorted(abs(pair[end]) for end in ("ci_low_ns", "ci_high_ns"))
    assert ends == pytest.approx([0.174, 1.556], abs=2e-3)
    assert pair["p"] == pytest.approx(0.0120, abs=2e-4)


def test_a_worked_example_of_unequal_deviations():
    """R's InsectSprays: oneway.test gives F = 36.065 on 5 and 30.043 degrees of freedom."""
    groups = {
        "baseline": [10, 7, 20, 14, 14, 12, 10, 23, 17, 20, 14, 13],
        "b": [11, 17, 21, 11, 16, 14, 17, 17, 19, 21, 7, 13],
        "c": [0, 1, 7, 2, 3, 1, 2, 1, 3, 0, 1, 4],
        "d": [3, 5, 12, 6, 4, 3, 5, 5, 5, 5, 2, 4],
        "e": [3, 5, 3, 5, 3, 6, 1, 1, 3, 2, 6, 4],
        "f": [11, 9, 15, 22, 15, 16, 13, 10, 26, 26, 24, 13],
    }
    test = judge.omnibus({name: list(map(float, counts)) for name, counts in groups.items()})
    assert test["test"] == "Welch's ANOVA"
    assert test["levene_p"] < 0.05
    assert (test["F"], test["df2"]) == pytest.approx((36.065, 30.043), abs=1e-3)
    assert test["p"] == pytest.approx(7.999e-12, rel=1e-3)


def test_normality_is_that_of_shapiro_and_wilk(tmp_path: Path):
    """Records of a normal distribution pass at their level; those of two lumps do not."""
    _, judged = found(simulated(tmp_path, "x.parquet", {"baseline": 0.0, "lorentz": 0.0}, 60, 3))
    normal = judged.descriptives["shapiro_p"]
    assert (normal > 0.05).mean() > 0.8
    lumps = [1.0] * 20 + [2.0] * 20
    assert judge.describe(lumps)["shapiro_p"] < 1e-6
    # R's shapiro.test of the control group of PlantGrowth: W = 0.95682, p = 0.7475.
    control = [4.17, 5.58, 5.18, 6.11, 4.50, 4.61, 5.17, 4.53, 5.33, 5.14]
    assert judge.describe(control)["shapiro_p"] == pytest.approx(0.7475, abs=1e-4)


def test_two_studies_differ_where_a_level_became_slower(tmp_path: Path):
    same = {"baseline": 0.0, "namespace": 0.05}
    slower = {"baseline": 0.0, "namespace": 0.08}
    old, new, later = (
        runs.read([str(simulated(tmp_path, f"{seed}.parquet", shifts, 100, seed))])[0]
        for seed, shifts in ((1, same), (2, same), (3, slower))
    )
    assert not against.compare(new, old)["changed"].any()
    frame = against.compare(later, old)
    inside = frame.filter(pl.col("level") == "namespace")
    assert inside["changed"].all()
    assert (inside["percent"] - (1.08 / 1.05 - 1) * 100).abs().max() < 1
    assert not frame.filter(pl.col("level") == "baseline")["changed"].any()
