"""The storm for two minutes; for as long as one likes under `make soak` (LORENTZ_SOAK_MINUTES).

LORENTZ_STORM_SEED runs the rounds from one seed on again; a finding names the seed of its round.
"""

from __future__ import annotations

import os
import time

import pytest
from storm import Weather, storm

pytestmark = pytest.mark.long

MINUTES = float(os.environ.get("LORENTZ_SOAK_MINUTES", "60"))
WEATHERS = [
    Weather(native=True),
    Weather(rate="1"),
    Weather(rate="10"),
    Weather(rate="1/10"),
    Weather(rate="1", skip_idle=True),
]


def first_seed() -> int:
    """Returns the first seed: a new one each time, unless LORENTZ_STORM_SEED gives one."""
    return int(os.environ.get("LORENTZ_STORM_SEED") or time.time_ns() // 10**6 % 10**9)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("weather", WEATHERS, ids=str)
def test_a_storm(weather, tmp_path):
    assert storm(weather, first_seed(), 24, tmp_path) >= 2


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 600)
@pytest.mark.parametrize("weather", WEATHERS, ids=str)
def test_a_long_storm(weather, tmp_path):
    """An hour's storm has a fifth for each weather."""
    assert storm(weather, first_seed(), MINUTES * 60 / len(WEATHERS), tmp_path) >= 1
