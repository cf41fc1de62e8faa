"""Tables of docs/study.md: the findings of the papers and of a study, the cost of our levels."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

import polars as pl
from lorentz.report import factors, published
from lorentz.report.compared import HARNESS
from lorentz.report.judge import ALPHA, BASELINE, Judgement
from lorentz.report.runs import Run
from lorentz.report.words import percent

SLEEPS = ("nanosleep", "clock_nanosleep")
VDSO = (
    *("vdso_clock_gettime_monotonic", "vdso_clock_gettime_boottime"),
    "vdso_gettimeofday",
)
#: System calls that the seccomp filter does not trap.
NOT_TRAPPED = ("clock_getres", "timer_getoverrun")
CLAIMS = ["finding", "published", "here"]
OWN = (
    *("container-overlay", "lorentz", "lorentz-container", "docker", "podman", "runc"),
    "libfaketime",
)


@dataclass(frozen=True)
class Judged:
    """A study, and all that the tests say of it."""

    run: Run
    found: Judgement
    power: pl.DataFrame
    effects: pl.DataFrame
    cells: pl.DataFrame

    def of_level(self, level: str) -> pl.DataFrame:
        """Each metric at a level against the baseline; the harness is no metric."""
        found = self.found.ranks if self.run.study == "timers" else self.found.pairs
        if "against" in found.columns:
            found = found.filter(pl.col("against") == BASELINE)
        return found.filter(pl.col("level") == level, pl.col("metric") != HARNESS)


def table(head: list[str], rows: list[list[str]]) -> str:
    """Lines of a table."""
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def claims(found: dict[str, Judged]) -> str:
    """A line for each finding of a paper."""
    rows = [*_of_clocks(found["clocks"]), *_ratios(found), *_factors(found["timers"])]
    return table(CLAIMS, [*rows, _control(found)])


def claims_of_clocks(clocks: Judged) -> str:
    """A line for each finding of the cost paper."""
    return table(CLAIMS, _of_clocks(clocks))


def _of_clocks(clocks: Judged) -> list[list[str]]:
    rows = [_greatest(clocks, level) for level in ("namespace", "container")]
    return [*rows, _vdso(clocks), _sleeps(clocks)]


def beside_table_4(clocks: Judged) -> str:
    """How much more than the baseline each metric costs in the paper's levels, there and here."""
    head, columns = ["metric"], []
    for level in ("namespace", "container"):
        head += [f"{level}: published", "here", "95 % CI", "differs here"]
        columns.append((_published_percent(level), clocks.of_level(level)))
    rows = []
    for metric in (name for name in clocks.run.metrics if name != HARNESS):
        row = [f"`{metric}`"]
        for theirs, pairs in columns:
            row += [percent(theirs[metric]) if metric in theirs else "-"]
            here = pairs.filter(pl.col("metric") == metric).to_dicts()
            row += _judged(here[0]) if here else ["not judged", "-", "-"]
        rows.append(row)
    return table(head, rows)


def _judged(pair: dict) -> list[str]:
    interval = f"{pair['ci_low_percent']:+,.2f} to {pair['ci_high_percent']:+,.2f} %"
    return [f"{pair['percent']:+,.2f} %", interval, "yes" if pair["differs"] else "no"]


def _published_percent(level: str) -> dict[str, float]:
    frame = published.COST_4.frame()
    bases = dict(frame.filter(pl.col("level") == BASELINE).select("metric", "mean_ns").iter_rows())
    of = frame.filter(pl.col("level") == level, pl.col("against") == BASELINE)
    return {
        metric: difference / bases[metric] * 100
        for metric, difference in of.select("metric", "difference_ns").iter_rows()
    }


def _greatest(clocks: Judged, level: str) -> list[str]:
    theirs = _published_percent(level)
    most = max(theirs, key=lambda metric: theirs[metric])
    title = f"`{level}` costs less than 4 % in each metric"
    said = f"said to; table IV: at most {percent(theirs[most])} (`{most}`)"
    pairs = clocks.of_level(level)
    if pairs.is_empty():
        return [title, said, "not measured"]
    differing = pairs.filter("differs")
    row = (differing if len(differing) else pairs).sort("percent").row(-1, named=True)
    low, high = row["ci_low_percent"], row["ci_high_percent"]
    here = (
        f"differs in {len(differing)} of {len(pairs)}; at most {row['percent']:+,.1f} % "
        f"(`{row['metric']}`, 95 % CI {low:+,.1f} to {high:+,.1f} %)"
    )
    return [title, said, here + _greatest_median(clocks, level)]


def _greatest_median(clocks: Judged, level: str) -> str:
    """The same of medians, which single long records do not move."""
    ranks = clocks.found.ranks.filter(
        pl.col("level") == level, pl.col("metric") != HARNESS, pl.col("median_ratio").is_not_null()
    )
    if ranks.is_empty():
        return ""
    row = ranks.sort("median_ratio").row(-1, named=True)
    return f"; by medians at most {(row['median_ratio'] - 1) * 100:+,.1f} % (`{row['metric']}`)"


def _vdso(clocks: Judged) -> list[str]:
    """The median of what vDSO reads cost more in a namespace, and of what system calls do."""
    pairs = clocks.of_level("namespace")
    ours = dict(pairs.select("metric", "percent").iter_rows()) if len(pairs) else {}
    shown = []
    for of in (_published_percent("namespace"), ours):
        vdso = [value for metric, value in of.items() if metric in VDSO]
        calls = [value for metric, value in of.items() if metric not in (*VDSO, *SLEEPS)]
        two = vdso and calls
        shown.append(
            f"{percent(statistics.median(vdso))}; {percent(statistics.median(calls))}"
            if two
            else "not measured"
        )
    return ["`namespace`: reads by the vDSO cost most; system calls (medians)", *shown]


def _sleeps(clocks: Judged) -> list[str]:
    names = []
    for level in ("namespace", "container"):
        pairs = clocks.of_level(level)
        if len(pairs):
            sleeps = pairs.filter(pl.col("metric").is_in(SLEEPS), "differs")
            names += [f"`{metric}` in `{level}`" for metric in sleeps["metric"]]
    here = f"differ: {', '.join(names)}" if names else "none is found to differ"
    return ["sleeps of 100 ms do not differ in a namespace or container", "none", here]


def _ratios(found: dict[str, Judged]) -> list[list[str]]:
    """The patch set's figures, and those of the timing paper's functions."""
    return [
        [row["what"], f"{row['published_ratio']:.3g}", f"{row['own_ratio']:.3g}"]
        for kind in ("hot", "cold", "timers")
        for row in published.beside(found[kind].run).to_dicts()
    ]


def _factors(timers: Judged) -> list[list[str]]:
    """Factors that matter by Kruskal-Wallis, as in the paper."""
    rows = []
    for kind, data, title in (
        ("cost", published.TIMING_1, "what a read costs"),
        ("miss", published.TIMING_2, "how late a sleep ends"),
    ):
        frame = data.frame().rename({"platform": "level"})
        theirs = factors.effects(frame.with_columns(pl.col(factors.STATISTICS).cast(pl.Float64)))
        ours = timers.effects
        ours = ours.filter(pl.col("what") == kind) if len(ours) else ours
        for statistic, name in (("median_ns", "median"), ("max_ns", "maximum")):
            shown = [_named(effects, statistic) for effects in (theirs, ours)]
            rows.append([f"{title}: factors that decide the {name}", *shown])
    return rows


def _named(effects: pl.DataFrame, statistic: str) -> str:
    if effects.is_empty():
        return "not measured"
    of = effects.filter(
        pl.col("statistic") == statistic,
        pl.col("factor").is_in(factors.FACTORS),
        pl.col("kruskal_p") < ALPHA,
    )
    return ", ".join(of["factor"]) or "none is found"


def _control(found: dict[str, Judged]) -> list[str]:
    here = []
    for kind, one in found.items():
        of = one.of_level("control")
        if len(of):
            here.append(f"{kind}: {len(of.filter('differs'))} of {len(of)}")
    title = "the host against itself differs (metrics of `control`)"
    return [title, "-", "; ".join(here) or "not measured"]


def own_levels(clocks: Judged) -> str:
    """The time that a level adds to the baseline's medians, from the least metric to the most."""
    run = clocks.run
    calls = [name for name in run.metrics if name not in (*SLEEPS, HARNESS)]
    groups = {
        "reads by the vDSO": [name for name in calls if name in VDSO],
        "`clock_getres`, `timer_getoverrun`": [name for name in calls if name in NOT_TRAPPED],
        "other system calls": [name for name in calls if name not in (*VDSO, *NOT_TRAPPED)],
        "sleeps of 100 ms": [name for name in run.metrics if name in SLEEPS],
    }
    levels = [level for level in OWN if level in run.levels]
    rows = []
    for title, metrics in groups.items():
        cells = []
        for level in levels:
            added = sorted(
                _median(run, metric, level) - _median(run, metric, BASELINE) for metric in metrics
            )
            cells.append(f"{added[0]:+,.0f} to {added[-1]:+,.0f}" if added else "-")
        rows.append([title, *cells])
    return table(["ns more than the baseline", *levels], rows)


def _median(run: Run, metric: str, level: str) -> float:
    return statistics.median(run.values(metric, run.loads[0])[level])
