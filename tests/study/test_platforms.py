"""`lorentz study --as`, and a report with the platform as a factor."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from framework.studies import made, metadata, report, rewritten, simulated, study

pytestmark = [pytest.mark.patient, pytest.mark.timeout(300)]
LEVELS = {"baseline": 0.0, "lorentz": 0.0}


def on(platform: str, path: Path, kind: str, seed: int, shifts: dict[str, float]) -> Path:
    """A simulated study of a machine of that name, with a kernel of its own."""
    plain = simulated(path.with_suffix(".plain"), shifts, 12, seed, kind)
    about = pl.read_parquet_metadata(plain)
    settings = {**json.loads(about["settings"]), "platform": platform}
    environment = json.loads(about["environment"])
    environment["facts"]["kernel"] = f"kernel of {platform}"
    changes = {"settings": json.dumps(settings), "environment": json.dumps(environment)}
    return rewritten(plain, path, **changes)


#: How a level and a machine differ, by study: in `clocks` and `timers` the guest is slower, in
#: `hot` one level alone is slower on the guest.
GUEST = {
    "clocks": dict.fromkeys(LEVELS, 0.5),
    "timers": dict.fromkeys(LEVELS, 0.5),
    "hot": {"baseline": 0.0, "lorentz": 0.4},
}


@pytest.fixture(scope="module")
def joined(tmp_path_factory) -> Path:
    """The folder of a report on two machines."""
    folder = tmp_path_factory.mktemp("platforms")
    runs = []
    for seed, (kind, shifts) in enumerate(GUEST.items()):
        runs.append(on("host", folder / f"{kind}-host", kind, 2 * seed, LEVELS))
        runs.append(on("guest", folder / f"{kind}-guest", kind, 2 * seed + 1, shifts))
    done = report(*runs, "-o", folder / "report")
    assert done.returncode == 0, done.stderr
    assert "clocks-platforms: platform: matters in 4 of 4 metrics" in done.stdout
    return folder / "report"


def effects(folder: Path, kind: str) -> dict[str, list[bool]]:
    """Whether each factor matters, for each metric."""
    results = json.loads((folder / "results.json").read_text())
    rows = results["studies"][f"{kind}-platforms"]["effects"]
    found: dict[str, list[bool]] = {}
    for row in rows:
        found.setdefault(row["factor"], []).append(row["matters"])
    return found


def test_only_the_platform_matters_where_only_machines_differ(joined):
    found = effects(joined, "clocks")
    assert all(found["platform"]) and not any(found["level"])
    assert not any(found["platform x level"])


def test_each_machine_keeps_its_own_chapter(joined):
    text = (joined / "index.html").read_text()
    for name in ("clocks-host", "clocks-guest", "clocks-platforms", "timers-guest"):
        assert f'id="{name}"' in text
    medians = pl.read_csv(joined / "clocks-platforms-medians.csv")
    assert medians.columns[-2:] == ["host", "guest"]


def test_a_level_that_costs_more_on_one_machine_is_an_interaction(joined):
    assert all(effects(joined, "hot")["platform x level"])


def test_the_timing_papers_analysis_has_the_platform_too(joined):
    table = pl.read_csv(joined / "timers-platforms-functions.csv")
    of = table.filter(pl.col("statistic") == "median_ns", pl.col("factor") == "platform")
    assert of["matters"].to_list() == [True, True]


def test_machines_without_a_name_are_not_joined(tmp_path):
    other = on("x", tmp_path / "a", "clocks", 1, LEVELS)
    settings = json.loads(pl.read_parquet_metadata(other)["settings"]) | {"platform": None}
    other = rewritten(other, tmp_path / "b", settings=json.dumps(settings))
    own = simulated(tmp_path / "c", LEVELS, 5, 3)
    done = report(own, other, "-o", tmp_path / "report")
    assert done.returncode == 2
    assert "expected studies of one machine, or of machines named by --as" in done.stderr


def test_a_study_keeps_the_name(tmp_path):
    options = ("--quick", "--levels", "baseline", "--metrics", "hot_monotonic", "--records", "1")
    path = made("hot", tmp_path / "run.parquet", *options, "--as", "rack-7")
    assert metadata(path)["settings"]["platform"] == "rack-7"
    done = study("hot", tmp_path / "other.parquet", "--as", "a b")
    assert done.returncode == 2 and "--as" in done.stderr and "letters, digits" in done.stderr
