"""Writes the report: a page that stands alone, results.json, tables as CSV, figures as SVG."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

import jinja2
import polars as pl

from lorentz.report import compared, curves, factors, platforms, plots, power, published, words
from lorentz.report.against import compare
from lorentz.report.judge import BASELINE, judge
from lorentz.report.runs import Run, WrongRunError

#: Titles of the tables in the page. The comparison stands at the top of a chapter, without a title.
TITLES = {
    "comparison": "",
    "descriptives": "Means, deviations, medians; Shapiro-Wilk",
    "tests": "Do the levels differ at all? Levene, then ANOVA or Welch's",
    "pairs": "Which levels differ, by how much? Tukey HSD or Games-Howell",
    "ranks": "By ranks: Kruskal-Wallis, then Dunn against the baseline",
    "power": "Which differences could the study find? Power of the tests",
    "factors": "Function, level, load: which matter? Kruskal-Wallis, and ANOVA on ranks",
    "cells": "Medians over level x load; Dunn against the baseline, and against idle",
    "published": "Beside the published figures, as ratios to the own baseline",
    "changes": "Changes since the older study",
    "platforms": "Platform and level: which matter? ANOVA on ranks",
    "medians": "Medians on each platform",
    "functions": "Function, level, load, platform: which matter? ANOVA on ranks",
}

#: One sentence on each study.
ABOUT = {
    "clocks": "The mean time of clock reads, sleeps and timer calls, as in Merino & Otero 2022.",
    "hot": "The mean time of clock reads with hot caches, as in the time namespace patch set.",
    "cold": "The time of a clock read after a cache flush, as in the time namespace patch set.",
    "timers": "The cost of a clock read and the lateness of a sleep under three loads, as in "
    "Kirova et al. 2019.",
}

#: Version of the form of results.json.
RESULTS_FORMAT = "1"


@dataclass(frozen=True)
class Table:
    """A table of the page, and the file that has it."""

    title: str
    file: str
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Cell:
    """One metric at one level: ratio to the baseline and adjusted p, as the page shows them."""

    level: str
    ratio: str
    p: str
    #: Classes of the style sheet.
    look: str


@dataclass(frozen=True)
class Line:
    """One metric under one load at all levels."""

    metric: str
    load: str
    title: str
    baseline: str
    cells: list[Cell]


@dataclass(frozen=True)
class Overview:
    """The table metric x level at the top of a chapter."""

    file: str
    statistic: str
    levels: list[str]
    groups: dict[str, list[Line]]


@dataclass(frozen=True)
class Chapter:
    """All about one study, on one platform."""

    name: str
    study: str
    about: str
    facts: dict[str, str]
    summary: words.Summary
    changes: list[str] | None
    overview: Overview | None
    pictures: list[plots.Picture]
    tables: list[Table]
    data: str
    results: dict[str, object]

    def said(self) -> list[str]:
        """All sentences of the chapter."""
        return self.summary.lines() + (self.changes or [])


def write(runs: list[Run], folder: Path, older: list[Run] | None = None) -> dict[str, list[str]]:
    """Writes the report into `folder` and returns its sentences by study."""
    olds = {run.name: run for run in older or []}
    for name, old in olds.items():
        if name not in {run.name for run in runs}:
            kinds = " or ".join(run.name for run in runs)
            raise WrongRunError(
                f"--against {old.sources[0]}: a study of {name}; expected one of {kinds}"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongRunError(f"--output {folder}: {error.strerror}; expected a folder") from error
    chapters = [_chapter(run, folder, olds.get(run.name)) for run in runs]
    for study in dict.fromkeys(run.study for run in runs):
        of = [run for run in runs if run.study == study]
        if len(of) > 1:
            chapters.append(_platforms(study, of, folder))
    for data in published.ALL:
        data.frame().write_csv(folder / f"published-{data.name}.csv")
    said = {chapter.name: chapter.said() for chapter in chapters}
    (folder / "summary.txt").write_text("".join(f"{line}\n" for line in named(said)))
    studies = {chapter.name: chapter.results for chapter in chapters}
    results = {"lorentz_report_format": RESULTS_FORMAT, "studies": studies}
    (folder / "results.json").write_text(json.dumps(results, indent=1, allow_nan=False) + "\n")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lorentz.report", "."), autoescape=True, trim_blocks=True
    )
    page = environment.get_template("page.html").render(chapters=chapters, published=published.ALL)
    (folder / "index.html").write_text(page)
    return said


def named(said: dict[str, list[str]]) -> list[str]:
    """Puts the name of its study before each sentence."""
    return [f"{study}: {line}" for study, lines in said.items() for line in lines]


def _chapter(run: Run, folder: Path, old: Run | None) -> Chapter:
    found = judge(run)
    seen, (effects, cells) = power.sensitivity(run), _factors(run)
    comparison = compared.compared(run, found)
    frames = {"comparison": comparison, **found.tables()}
    frames |= {"power": seen, "factors": effects, "cells": cells}
    frames |= {"published": published.beside(run)}
    changes = None
    if old:
        frames["changes"] = compare(run, old)
        changes = words.changes(frames["changes"])
    for name in TITLES:
        _write(folder / f"{run.name}-{name}.csv", frames.get(name, pl.DataFrame()))
    data = f"{run.name}-records.csv"
    _write(folder / data, run.records)
    pictures = plots.pictures(run, found) + curves.pictures(run, seen, cells)
    for left in folder.glob(f"{run.name}-figure-*.svg"):
        left.unlink()
    for number, picture in enumerate(pictures, 1):
        (folder / f"{run.name}-figure-{number}.svg").write_text(picture.svg)
    summary = words.summary(run, found, comparison, seen, effects)
    return Chapter(
        name=run.name,
        study=run.study,
        about=ABOUT[run.study],
        facts=_facts(run),
        summary=summary,
        changes=changes,
        overview=_overview(run, comparison),
        pictures=pictures,
        tables=[
            _table(run.name, name, frame)
            for name, frame in frames.items()
            if TITLES[name] and len(frame)
        ],
        data=data,
        results={
            "records": run.records["round"].n_unique(),
            "levels": run.levels,
            "left_out": run.left_out,
            "statistic": compared.statistic(run),
            "comparison": comparison.to_dicts(),
            "summary": summary.levels,
            "notes": summary.notes,
            "changes": changes,
        },
    )


def _platforms(study: str, runs: list[Run], folder: Path) -> Chapter:
    """The chapter on what a study's platforms have in it."""
    chapter = f"{study}-platforms"
    frames = {"platforms": platforms.effects(runs), "medians": platforms.medians(runs)}
    if study == "timers":
        frames["functions"] = platforms.of_timers(runs)
    for name, frame in frames.items():
        _write(folder / f"{chapter}-{name}.csv", frame)
    data = f"{chapter}-records.csv"
    _write(folder / data, platforms.records(runs))
    said = platforms.words(frames["platforms"])
    machines = {
        run.machine: ", ".join(
            f"{name} {value}" for name, value in run.environment["facts"].items()
        )
        for run in runs
    }
    return Chapter(
        name=chapter,
        study=study,
        about="The same study on several machines, each named by 'lorentz study --as'.",
        facts=machines,
        summary=words.Summary([], said),
        changes=None,
        overview=None,
        pictures=[],
        tables=[_table(chapter, name, frame) for name, frame in frames.items() if len(frame)],
        data=data,
        results={
            "platforms": list(machines),
            "effects": frames["platforms"].to_dicts(),
            "notes": said,
        },
    )


def _write(file: Path, frame: pl.DataFrame) -> None:
    """Writes a table that has rows. A table without rows has no file: an older one is removed."""
    if len(frame):
        frame.write_csv(file)
    else:
        file.unlink(missing_ok=True)


def _overview(run: Run, comparison: pl.DataFrame) -> Overview | None:
    if comparison.is_empty():
        return None
    levels = [level for level in run.levels if level != BASELINE]
    of = {(row["metric"], row["load"], row["level"]): row for row in comparison.to_dicts()}
    groups = {}
    for kind, pairs in compared.rows_of(run).items():
        lines = []
        for metric, load in pairs:
            rows = [of.get((metric, load, level)) for level in levels]
            base = next((row["baseline_ns"] for row in rows if row), None)
            cells = [_compared(level, row) for level, row in zip(levels, rows, strict=True)]
            shown = "-" if base is None else plots.nanoseconds(float(f"{base:.4g}"))
            lines.append(Line(metric, load, plots.titled(metric, load), shown, cells))
        groups[kind.title] = lines
    file = f"{run.name}-comparison.csv"
    return Overview(file, compared.statistic(run), levels, groups)


def _compared(level: str, row: dict | None) -> Cell:
    if row is None:
        return Cell(level, "-", "-", "")
    look = ""
    if row["differs"]:
        shift = ((row["ratio"] or 1) - 1) * 100
        look = "differs"
        look += " dearer" if shift >= words.BOUND else ""
        look += " cheaper" if shift <= -words.BOUND else ""
    return Cell(level, _ratio(row["ratio"]), _cell("p", row["p_adjusted"]), look)


def _ratio(value: float | None) -> str:
    """A ratio with the digits that a reader can use: `1.0004`, `1.102`, `15.2`."""
    if value is None:
        return "-"
    if abs(value - 1) < 0.01:
        return f"{value:.4f}"
    if value < 0.001:
        return "<0.001"
    return f"{value:.3f}" if value < 10 else f"{value:,.1f}"


def _factors(run: Run) -> tuple[pl.DataFrame, pl.DataFrame]:
    """The timing paper's analysis, of its own study."""
    return factors.analysed(run) if run.study == "timers" else (pl.DataFrame(), pl.DataFrame())


def _facts(run: Run) -> dict[str, str]:
    settings, environment = run.settings, run.environment
    rounds = run.records["round"].n_unique()
    amount = {
        "clocks": f"each the mean of {settings['calls']:,} calls "
        f"(sleeps of 100 ms: of {settings['sleeps']})",
        "hot": f"each of reads in a row for {settings['millis']:,} ms",
        "cold": f"each the median of {settings['samples']:,} reads",
        "timers": f"each the median of {settings['samples']:,} samples",
    }[run.study]
    begin, end = (run.samples["at_unix_s"].min(), run.samples["at_unix_s"].max())
    return {
        "records": f"{rounds} for each metric and level, {amount}",
        "files": ", ".join(Path(source).name for source in run.sources),
        "lasted": f"{end - begin:,.0f} s",
        "pinned to processor": str(environment["cpu"]),
        "stopwatch": f"time-stamp counter, {environment['tsc_hertz'] / 1e9:.3f} GHz",
        "stolen by the hypervisor meanwhile": f"{environment['steal_s']:.1f} s",
        **environment["facts"],
    }


def _table(chapter: str, name: str, frame: pl.DataFrame) -> Table:
    file = f"{chapter}-{name}.csv"
    rows = [
        [_cell(column, value) for column, value in zip(frame.columns, row, strict=True)]
        for row in frame.iter_rows()
    ]
    return Table(TITLES[name], file, [column.replace("_", " ") for column in frame.columns], rows)


def _cell(column: str, value: object) -> str:
    """A value for people; CSV has all its digits."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    if column == "p" or column.endswith(("_p", "p_adjusted")):
        return "<0.001" if value < 0.001 else f"{value:.3f}"
    if "ratio" in column:
        return f"{value:.3f}"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:,.2f}"
