"""The sensitivity of a study: the power of its tests, by statsmodels.

A level differs if two tests agree: the metric's over all levels, adjusted over all metrics, and
the level's own after it, adjusted over all pairs. The power here is the lesser of the two, both
adjusted by Bonferroni, for a shift of the mean of one level alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import polars as pl
from scipy import optimize
from statsmodels.stats.power import FTestAnovaPower, TTestIndPower

from lorentz.report.judge import ALPHA, BASELINE, BY_MEANS, FEWEST
from lorentz.report.runs import Run

#: A difference is visible if this share of such studies would find it.
ENOUGH = 0.8
#: Upper bound of visible differences, standard deviations, for three records or more.
MAX_EFFECT = 50.0
#: The shift whose power the report gives, percent.
SHIFT = 2.0


@dataclass(frozen=True)
class Design:
    """The inputs of the power beside shift and noise."""

    records: int
    levels: int
    metrics: int

    def power(self, effect: float) -> float:
        """The power to find one level that differs by `effect` standard deviations."""
        pairs = self.levels * (self.levels - 1) / 2
        after = TTestIndPower().power(effect, self.records, ALPHA / pairs / 2, alternative="larger")
        over_all = FTestAnovaPower().power(
            effect * self._share(), self.records * self.levels, ALPHA / self.metrics, self.levels
        )
        return float(min(after, over_all))

    def visible(self) -> float:
        """The difference, in standard deviations, whose power is `ENOUGH`."""
        return optimize.brentq(lambda effect: self.power(effect) - ENOUGH, 0.01, MAX_EFFECT)

    def _share(self) -> float:
        """Cohen's f of the levels' means where one of them is a standard deviation off."""
        return float(np.std([1.0] + [0.0] * (self.levels - 1)))


def sensitivity(run: Run) -> pl.DataFrame:
    """For each metric and level: the noise, the visible shift, the power at 2 percent."""
    rows = []
    for metric, load, groups in _compared(run):
        base = np.asarray(groups.pop(BASELINE))
        for level, values in groups.items():
            design = Design(min(len(base), len(values)), len(groups) + 1, len(run.metrics))
            # The noise of a difference of two means: their variances may differ.
            noise = np.sqrt((np.var(base, ddof=1) + np.var(values, ddof=1)) / 2) / base.mean() * 100
            rows.append(
                {
                    "metric": metric,
                    "load": load,
                    "level": level,
                    "records": design.records,
                    "noise_percent": float(noise),
                    "visible_percent": design.visible() * float(noise),
                    "power_at_2_percent": design.power(SHIFT / float(noise)),
                }
            )
    return pl.DataFrame(rows, infer_schema_length=None)


def _compared(run: Run) -> Iterable[tuple[str, str, dict[str, list[float]]]]:
    """The groups whose means are compared, by metric and load."""
    if run.study not in BY_MEANS:
        return
    for load in run.loads:
        for metric in run.metrics:
            groups = {
                level: values
                for level, values in run.values(metric, load).items()
                if len(values) >= FEWEST and np.ptp(values) > 0
            }
            if BASELINE in groups and len(groups) > 1:
                yield metric, load, groups
