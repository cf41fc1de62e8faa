"""The report: one self-contained page; also each table as CSV, each figure as SVG."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import jinja2
import polars as pl

from lorentz.report import curves, factors, plots, power, published, words
from lorentz.report.against import compare
from lorentz.report.judge import judge
from lorentz.report.runs import Run, WrongRunError

#: Titles of the tables in the page.
TITLES = {
    "descriptives": "Means, deviations, medians; Shapiro-Wilk",
    "tests": "Do the levels differ at all? Levene, then ANOVA or Welch's",
    "pairs": "Which levels differ, by how much? Tukey HSD or Games-Howell",
    "ranks": "By ranks: Kruskal-Wallis, then Dunn against the baseline",
    "power": "What could have been seen? Power of the tests",
    "factors": "Function, level, load: which matter? Kruskal-Wallis, and ANOVA on ranks",
    "cells": "Medians over level x load; Dunn against the baseline, and against idle",
    "published": "Beside the published figures, as ratios to the own baseline",
    "changes": "What has changed since the older study",
}


@dataclass(frozen=True)
class Table:
    """A table of the page, and the name of its CSV file."""

    title: str
    file: str
    head: list[str]
    rows: list[list[str]]


@dataclass(frozen=True)
class Chapter:
    """The page's content for one study."""

    study: str
    facts: dict[str, str]
    summary: list[str]
    changes: list[str] | None
    pictures: list[plots.Picture]
    tables: list[Table]
    data: str


def write(runs: list[Run], folder: Path, older: list[Run] | None = None) -> dict[str, list[str]]:
    """Writes the report into `folder`. Returns the summaries in words, by study."""
    olds = {run.study: run for run in older or []}
    for study, old in olds.items():
        if study not in {run.study for run in runs}:
            kinds = " or ".join(run.study for run in runs)
            raise WrongRunError(
                f"--against {old.sources[0]}: a study of {study}; expected one of {kinds}"
            )
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WrongRunError(f"--output {folder}: {error.strerror}; expected a folder") from error
    chapters = [_chapter(run, folder, olds.get(run.study)) for run in runs]
    for data in published.ALL:
        data.frame().write_csv(folder / f"published-{data.name}.csv")
    said = {chapter.study: chapter.summary + (chapter.changes or []) for chapter in chapters}
    text = "".join(f"{line}\n" for lines in said.values() for line in lines)
    (folder / "summary.txt").write_text(text)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lorentz.report", "."), autoescape=True, trim_blocks=True
    )
    page = environment.get_template("page.html").render(chapters=chapters, published=published.ALL)
    (folder / "index.html").write_text(page)
    return said


def _chapter(run: Run, folder: Path, old: Run | None) -> Chapter:
    found = judge(run)
    seen, (effects, cells) = power.told(run), _factors(run)
    frames = found.tables() | {"power": seen, "factors": effects, "cells": cells}
    frames |= {"published": published.beside(run)}
    changes = None
    if old:
        frames["changes"] = compare(run, old)
        changes = words.changes(frames["changes"])
    run.records.write_csv(folder / f"{run.study}-records.csv")
    pictures = plots.pictures(run, found) + curves.pictures(run, seen, cells)
    for number, picture in enumerate(pictures, 1):
        (folder / f"{run.study}-figure-{number}.svg").write_text(picture.svg)
    tables = [_table(run.study, name, frame, folder) for name, frame in frames.items()]
    return Chapter(
        study=run.study,
        facts=_facts(run),
        summary=words.summary(run, found, seen, effects),
        changes=changes,
        pictures=pictures,
        tables=[table for table in tables if table.rows],
        data=f"{run.study}-records.csv",
    )


def _factors(run: Run) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Returns the timing paper's analysis, for a study of its kind; else empty frames."""
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


def _table(study: str, name: str, frame: pl.DataFrame, folder: Path) -> Table:
    file = f"{study}-{name}.csv"
    frame.write_csv(folder / file)
    rows = [
        [_cell(column, value) for column, value in zip(frame.columns, row, strict=True)]
        for row in frame.iter_rows()
    ]
    return Table(TITLES[name], file, [column.replace("_", " ") for column in frame.columns], rows)


def _cell(column: str, value: object) -> str:
    """Formats a value for people; the CSV has all digits."""
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
