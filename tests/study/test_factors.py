"""Function, level and load: against the paper's own findings, and data whose truth is known."""

from __future__ import annotations

import numpy as np
import polars as pl
import pytest
from lorentz.report import factors, published

CRITICAL = 0.05


def published_effects(data: published.DataSet) -> dict[tuple[str, str], float]:
    """Kruskal-Wallis' p by factor and statistic, of a table of the paper."""
    frame = data.frame().rename({"platform": "level"})
    rows = factors.effects(frame.with_columns(pl.col(factors.STATISTICS).cast(pl.Float64)))
    return {(row["factor"], row["statistic"]): row["kruskal_p"] for row in rows.to_dicts()}


def matters(found: dict[tuple[str, str], float], factor: str) -> set[str]:
    return {of for (name, of), p in found.items() if name == factor and p < CRITICAL}


def test_the_papers_table_of_sleeps_gives_its_findings():
    """Section 3.2.4, each sentence on factors and on two of them together."""
    found = published_effects(published.TIMING_2)
    every = set(factors.STATISTICS)
    assert matters(found, "function") == every - {"max_ns"}
    assert matters(found, "load") == {"max_ns"}
    assert matters(found, "function x level") == every - {"max_ns"}
    assert matters(found, "level x load") == {"max_ns"}
    assert matters(found, "function x load") == every


def test_the_papers_table_of_reads_gives_its_findings_but_for_two_names():
    """Section 3.1.4 says of the MAD what its table 1 shows of the maximum, and vice versa."""
    found = published_effects(published.TIMING_1)
    assert matters(found, "load") == {"max_ns"}
    assert matters(found, "level x load") == {"max_ns"}
    assert matters(found, "function x level") == set(factors.STATISTICS) - {"max_ns"}


def simulated(shifts: dict[tuple[str, str, str], float], seed: int) -> pl.DataFrame:
    """12 records of 100 ns in each cell, `1 + shift` times that in those that are named."""
    random = np.random.default_rng(seed)
    rows = []
    for function in ("f", "g"):
        for level in ("baseline", "other"):
            for load in ("idle", "cpu"):
                factor = 1 + shifts.get((function, level, load), 0)
                values = 100 * factor * random.normal(1, 0.01, (12, 4))
                rows += [(function, level, load, *value) for value in values]
    return pl.DataFrame(rows, schema=[*factors.FACTORS, *factors.STATISTICS], orient="row")


def found_in_medians(frame: pl.DataFrame) -> set[str]:
    rows = factors.effects(frame)
    return set(rows.filter(pl.col("statistic") == "median_ns", "matters")["factor"])


def test_only_the_factor_that_matters_is_found():
    loaded = {(f, level, "cpu"): 0.05 for f in ("f", "g") for level in ("baseline", "other")}
    assert found_in_medians(simulated(loaded, seed=1)) == {"load"}


def test_nothing_is_found_where_no_factor_matters():
    assert not factors.effects(simulated({}, seed=2))["matters"].any()


def test_two_factors_together_are_found():
    """The level is slower under the load and quicker without: alone neither makes a difference."""
    crossed = {}
    for function in ("f", "g"):
        crossed |= {(function, "other", "cpu"): 0.05, (function, "baseline", "idle"): 0.05}
    assert found_in_medians(simulated(crossed, seed=3)) == {"level x load"}


def test_cells_name_the_level_that_a_load_slows():
    cells = factors.cells(simulated({("f", "other", "cpu"): 0.5}, seed=4))
    rows = {(row["function"], row["level"], row["load"]): row for row in cells.to_dicts()}
    slow = rows["f", "other", "cpu"]
    assert slow["to_baseline_p"] < CRITICAL and slow["to_idle_p"] < CRITICAL
    assert slow["ratio_to_baseline"] == pytest.approx(1.5, abs=0.05)
    others = [row for key, row in rows.items() if key != ("f", "other", "cpu")]
    for row in others:
        assert row["to_baseline_p"] is None or row["to_baseline_p"] > CRITICAL
