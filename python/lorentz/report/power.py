"""What a study could have seen: the power of its tests, by statsmodels.

A level is said to differ where two tests agree: the metric's over all levels, adjusted over all
metrics, and its own after it, adjusted over all pairs. The power told here is the lesser of the
two, both adjusted by Bonferroni, where the mean of one level alone is shifted.
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

#: A difference counts as visible where so many of a hundred such studies would find it.
ENOUGH = 0.8
#: No study of three records or more needs a difference of so many standard deviations.
MOST = 50.0
#: The shift that the power is told for, percent.
SHIFT = 2.0


@dataclass(frozen=True)
class Design:
    """What decides the power, beside shift and noise."""

    records: int
    levels: int
    metrics: int

    def power(self, effect: float) -> float:
        """Of finding one level that differs by so many standard deviations."""
        pairs = self.levels * (self.levels - 1) / 2
        after = TTestIndPower().power(effect, self.records, ALPHA / pairs / 2, alternative="larger")
        over_all = FTestAnovaPower().power(
            effect * self._share(), self.records * self.levels, ALPHA / self.metrics, self.levels
        )
        return float(min(after, over_all))

    def visible(self) -> float:
        """The difference, in standard deviations, that is found often enough."""
        return optimize.brentq(lambda effect: self.power(effect) - ENOUGH, 0.01, MOST)

    def _share(self) -> float:
        """Cohen's f of the levels' means where one of them is a standard deviation off."""
        return float(np.std([1.0] + [0.0] * (self.levels - 1)))


def told(run: Run) -> pl.DataFrame:
    """For each metric and level: the noise, what shift was visible, the power at 2 percent."""
    rows = []
    for metric, load, groups in _compared(run):
        base = np.asarray(groups.pop(BASELINE))
        for level, values in groups.items():
            design = Design(min(len(base), len(values)), len(groups) + 1, len(run.metrics))
            # As of a difference of two means, whatever each one's own noise.
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
