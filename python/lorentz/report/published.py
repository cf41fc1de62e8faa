"""The papers' tables beside a study's own figures, as ratios: times differ by machine."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import resources

import polars as pl

from lorentz.report.runs import Run

BASELINE = "baseline"


@dataclass(frozen=True)
class DataSet:
    """A published table, and where it stands."""

    name: str
    source: str

    def frame(self) -> pl.DataFrame:
        """Its figures."""
        file = resources.files("lorentz.report") / "published" / f"{self.name}.csv"
        return pl.read_csv(file.read_bytes(), infer_schema_length=None)


_COST = "Merino & Otero 2022, The Cost of Time Virtualization in Linux Containers"
_TIMING = "Kirova et al. 2019, Impact of Modern Virtualization Methods on Timing Precision"
_KEEPER = "Lamps 2015, TimeKeeper Documentation"
_PATCHES = "Vagin & Safonov 2019, kernel: Introduce Time Namespace, v6"
COST_4 = DataSet(
    "cost_table_4",
    f"{_COST}, table IV; sleeps: section VI A. Three of namespace against container are printed "
    "ten times too large for their intervals; a tenth of them is here",
)
COST_4_TESTS = DataSet(
    "cost_table_4_tests",
    f"{_COST}, table IV, as printed: what stands for F of most of Welch's tests is df2",
)
TIMING_1 = DataSet("timing_table_1", f"{_TIMING}, table 1")
TIMING_2 = DataSet("timing_table_2", f"{_TIMING}, table 2")
HOT = DataSet("patch_set_hot", f"{_PATCHES}, gettime_perf")
COLD = DataSet("patch_set_cold", f"{_PATCHES}, gettime_perf_cold")
KEEPER_4 = DataSet("timekeeper_table_5_4", f"{_KEEPER}, table 5.4")
KEEPER_5 = DataSet("timekeeper_table_5_5", f"{_KEEPER}, table 5.5")
ALL = (
    COST_4,
    COST_4_TESTS,
    TIMING_1,
    TIMING_2,
    HOT,
    COLD,
    DataSet("timekeeper_table_5_1", f"{_KEEPER}, table 5.1"),
    DataSet("timekeeper_table_5_2", f"{_KEEPER}, table 5.2"),
    DataSet("timekeeper_table_5_3", f"{_KEEPER}, table 5.3"),
    KEEPER_4,
    KEEPER_5,
)


def beside(run: Run) -> pl.DataFrame:
    """Each published ratio that the study has one of its own for."""
    find = {"clocks": _clocks, "hot": _hot, "cold": _cold, "timers": _timers}[run.study]
    columns = ["what", "level", "published_ratio", "own_ratio", "source"]
    return pl.DataFrame(find(run), schema=columns, orient="row")


Rows = list[tuple[str, str, float, float, str]]


def _ratio(run: Run, metric: str, level: str, to: str = BASELINE) -> float | None:
    groups = run.values(metric, run.loads[0])
    if level not in groups or to not in groups:
        return None
    means = (pl.Series(groups[name]).mean() for name in (level, to))
    inside, outside = means
    return inside / outside


def _clocks(run: Run) -> Rows:
    rows: Rows = []
    frame = COST_4.frame()
    bases = dict(frame.filter(pl.col("level") == BASELINE).select("metric", "mean_ns").iter_rows())
    others = frame.filter(pl.col("against") == BASELINE)
    for metric, level, difference in others.select("metric", "level", "difference_ns").iter_rows():
        own = _ratio(run, metric, level)
        if own is not None:
            rows.append((metric, level, 1 + difference / bases[metric], own, f"{_COST}, table IV"))
    for data, metric in ((KEEPER_4, "vdso_gettimeofday"), (KEEPER_5, "vdso_gettimeofday")):
        times = data.frame()
        outside = times.filter(pl.col("kernel") == "unmodified")["gettimeofday_ns"][0]
        at_one = times.filter(pl.col("kernel") == "modified", pl.col("tdf") == 1)
        own = _ratio(run, metric, "lorentz")
        if own is not None:
            ratio = at_one["gettimeofday_ns"][0] / outside
            rows.append(("gettimeofday in virtual time", "lorentz", ratio, own, data.source))
    return rows


#: The patch set's columns, by the levels that come nearest.
_COLUMNS = {"host": "baseline", "inside": "namespace"}


def _hot(run: Run) -> Rows:
    means = dict(HOT.frame().group_by("column").agg(pl.col("reads_in_3_s").mean()).iter_rows())
    rows: Rows = []
    for column, level in _COLUMNS.items():
        own = _ratio(run, "hot_monotonic", level, "before")
        if own is not None:
            what = f"reads in 3 s, {column} to before"
            rows.append((what, level, means[column] / means["before"], 1 / own, HOT.source))
    return rows


def _cold(run: Run) -> Rows:
    cycles = dict(COLD.frame().select("column", "cycles").iter_rows())
    rows: Rows = []
    for column, level in _COLUMNS.items():
        own = _ratio(run, "cold_monotonic", level, "before")
        if own is not None:
            what = f"cycles of a read, {column} to before"
            rows.append((what, level, cycles[column] / cycles["before"], own, COLD.source))
    return rows


_FUNCTIONS = (
    (TIMING_1, "System Call", "TSC", "cost_clock_gettime", "cost_moment"),
    (TIMING_2, "uSleep", "HPTSleep", "miss_usleep", "miss_sleep"),
)


def _timers(run: Run) -> Rows:
    """The system's own function to the precise one, medians on the bare host."""
    rows: Rows = []
    for data, system, precise, own_system, own_precise in _FUNCTIONS:
        host = data.frame().filter(pl.col("platform") == "HostOS")
        for load in run.loads:
            medians = dict(
                host.filter(pl.col("load") == load).select("function", "median_ns").iter_rows()
            )
            own = [run.values(name, load).get(BASELINE) for name in (own_system, own_precise)]
            if all(own):
                above, below = (pl.Series(values).median() for values in own)
                if below:
                    what = f"{own_system} to {own_precise}, {load}"
                    ratio = medians[system] / medians[precise]
                    rows.append((what, BASELINE, ratio, above / below, data.source))
    return rows
