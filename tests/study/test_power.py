"""The sensitivity that a report gives, checked by simulated studies."""

from __future__ import annotations

import numpy as np
import pytest
from lorentz.report import judge
from lorentz.report.power import ENOUGH, Design


def share_found(design: Design, effect: float, studies: int, seed: int) -> float:
    """How many of simulated studies find one level that is `effect` standard deviations off.

    The other metrics are without a difference: what is left to Holm is what Bonferroni takes.
    """
    random = np.random.default_rng(seed)
    names = [judge.BASELINE, *(f"level {number}" for number in range(1, design.levels))]
    found = 0
    for _ in range(studies):
        groups = {name: list(random.normal(100, 1, design.records)) for name in names}
        groups[names[-1]] = [value + effect for value in groups[names[-1]]]
        test = judge.omnibus(groups)
        if test["p"] >= judge.ALPHA / design.metrics:
            continue
        pairs = judge.post_hoc(groups, test["test"] == "ANOVA")
        one = next(
            pair for pair in pairs if (pair["level"], pair["against"]) == (names[-1], names[0])
        )
        found += one["p"] < judge.ALPHA
    return found / studies


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "design", [Design(20, 3, 16), Design(50, 5, 16)], ids=["few levels", "many levels"]
)
def test_what_is_said_to_be_visible_is_found_as_often_as_said(design: Design):
    """100 studies: three standard deviations are 0.12."""
    share = share_found(design, design.visible(), studies=100, seed=11)
    assert ENOUGH - 0.12 <= share <= ENOUGH + 0.12


def test_without_a_difference_next_to_nothing_is_found():
    assert Design(50, 9, 16).power(0.0) < judge.ALPHA / 16 + 1e-6


def test_power_grows_with_shift_and_records():
    shifts = [Design(50, 9, 16).power(effect) for effect in (0.2, 0.5, 1, 2)]
    assert shifts == sorted(shifts) and shifts[-1] > 0.99
    visible = [Design(records, 9, 16).visible() for records in (5, 20, 50, 200)]
    assert visible == sorted(visible, reverse=True)
