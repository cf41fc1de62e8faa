"""Studies that several tests read."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import needs, studies


@pytest.fixture(scope="session")
def clocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study of clocks."""
    needs.root()
    folder = tmp_path_factory.mktemp("clocks")
    options = (*studies.SMALL, "--metrics", studies.METRICS)
    return studies.made("clocks", folder / "clocks.parquet", *options)


@pytest.fixture(scope="session")
def all_kinds(clocks: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One study of each kind."""
    folder = tmp_path_factory.mktemp("kinds")
    few = ("--quick", "--levels", "before,baseline,namespace,lorentz", "--records", "3")
    hot = studies.made("hot", folder / "hot.parquet", *few)
    cold = studies.made("cold", folder / "cold.parquet", *few)
    levels = ("--levels", "baseline,lorentz", "--records", "3")
    # Under the loads every sleep waits its turn: the reads alone.
    metrics = ("--metrics", "cost_moment,cost_clock_gettime")
    timers = studies.made("timers", folder / "timers.parquet", "--quick", *levels, *metrics)
    return [clocks, hot, cold, timers]
