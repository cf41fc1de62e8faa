#!/usr/bin/env python3
"""Write docs/study.md and its plots from studies that have been made.

    .venv/bin/python benches/study_page.py FOLDER

FOLDER has clocks.parquet, hot.parquet, cold.parquet and timers.parquet, as benches/study.py leaves
them in build/study/usual. Where it is called `published` and has clocks.parquet alone, the page is
docs/study-as-published.md. The prose is in benches, in a file of the page's name with .in after it;
where that has a line `<!-- figures: NAME -->`, figures take its place.
"""

from __future__ import annotations

import argparse
import re
import statistics
import sys
from datetime import datetime, timezone
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "python"))

import polars as pl  # noqa: E402
import study_claims  # noqa: E402
from lorentz.report import (  # noqa: E402
    compared,
    curves,
    factors,
    judge,
    plots,
    power,
    runs,
    words,
)
from study_claims import Judged, table  # noqa: E402

PLOTS = ROOT / "docs/study"
KINDS = ("clocks", "hot", "cold", "timers")
MARK = """\
<!-- Written by `make study`, or by `benches/study_page.py` from studies that are there. Do not
     edit: the prose is in benches/{name}.in. -->

"""
#: The figures in the page, by study: a part of the caption, and the name of the file.
SHOWN = {
    "clocks": (("beside the baseline", "clocks"), ("how often a shift", "power")),
    "cold": (("cold_monotonic", "cold"),),
    "timers": (("over level and load", "timers"),),
}


def judged(run: runs.Run) -> Judged:
    """All that the tests say of a study."""
    nothing = (pl.DataFrame(), pl.DataFrame())
    effects, cells = factors.analysed(run) if run.study == "timers" else nothing
    return Judged(run, judge.judge(run), power.sensitivity(run), effects, cells)


def draw(one: Judged, prefix: str) -> None:
    """The plots that the page shows, black on white: an image takes no colours from a page."""
    pictures = plots.pictures(one.run, one.found)
    pictures += curves.pictures(one.run, one.power, one.cells)
    for part, name in SHOWN.get(one.run.study, ()):
        picture = next(picture for picture in pictures if part in picture.caption)
        white = '<svg style="background:#ffffff;color:#000000" '
        (PLOTS / f"{prefix}{name}.svg").write_text(picture.svg.replace("<svg ", white, 1))


def machine(found: dict[str, Judged]) -> str:
    """Where and when it was measured, and how much."""
    run = found["clocks"].run
    facts = run.environment["facts"]
    begin = min(one.run.samples["at_unix_s"].min() for one in found.values())
    day = datetime.fromtimestamp(begin, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    records = ", ".join(
        f"{kind} {one.run.records['round'].n_unique()}" for kind, one in found.items()
    )
    lines = [f"- Date: {day}", f"- Records of each metric and level: {records}"]
    lines += [
        f"- Calls in a record of `clocks`: {run.settings['calls']:,}; "
        f"sleeps {run.settings['sleeps']}"
    ]
    lines += [f"- {name[0].upper()}{name[1:]}: {value}" for name, value in facts.items()]
    stolen = sum(one.run.environment["steal_s"] for one in found.values())
    lines.append(f"- Stolen by the hypervisor meanwhile: {stolen:.1f} s")
    left_out = {
        f"`{level}`: {why}" for one in found.values() for level, why in one.run.left_out.items()
    }
    lines += [f"- Left out: {'; '.join(sorted(left_out)) or 'no level'}"]
    return "\n".join(lines)


def nanoseconds(value: float) -> str:
    """A median for a table."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def medians(found: dict[str, Judged], kinds: tuple[str, ...]) -> str:
    """A line for each metric and load, a column for each level."""
    there = {level for kind in kinds for level in found[kind].run.levels}
    levels = [level for level in plots.LOOKS if level in there]
    rows = []
    for run in (found[kind].run for kind in kinds):
        for load in run.loads:
            for metric in run.metrics:
                values = run.values(metric, load)
                cells = [
                    nanoseconds(statistics.median(values[level])) if level in values else "-"
                    for level in levels
                ]
                title = f"`{metric}`" + (f", {load}" if run.study == "timers" else "")
                rows.append([title, *cells])
    return table(["metric", *levels], rows)


def summary(found: dict[str, Judged]) -> str:
    """The sentences of the reports."""
    lines = []
    for kind, one in found.items():
        comparison = compared.compared(one.run, one.found)
        said = words.summary(one.run, one.found, comparison, one.power, one.effects)
        lines += [f"- {kind}: {line}" for line in said.lines()]
    return "\n".join(lines)


def differences(found: dict[str, Judged]) -> str:
    """A line for each metric and load, a column for each level: the difference, if there is one."""
    there = {level for one in found.values() for level in one.run.levels}
    levels = [level for level in plots.LOOKS if level in there - {judge.BASELINE}]
    rows = []
    for one in found.values():
        frame = compared.compared(one.run, one.found)
        of = {(row["metric"], row["load"], row["level"]): row for row in frame.to_dicts()}
        for pairs in compared.rows_of(one.run).values():
            for metric, load in pairs:
                cells = [_difference(of.get((metric, load, level))) for level in levels]
                title = f"`{metric}`" + (f", {load}" if one.run.study == "timers" else "")
                rows.append([title, *cells])
    return table(["metric", *levels], rows)


def _difference(row: dict | None) -> str:
    if row is None or row["differs"] is None or row["ratio"] is None:
        return "-"
    return words.percent((row["ratio"] - 1) * 100) if row["differs"] else "="


def figures(found: dict[str, Judged]) -> dict[str, str]:
    """The figures of the template, by name."""
    own = {
        "machine": machine(found),
        "medians": medians(found, tuple(kind for kind in found if kind != "timers")),
        "summary": summary(found),
        "differences": differences(found),
    }
    if len(found) == 1:
        clocks = found["clocks"]
        claims = study_claims.claims_of_clocks(clocks)
        return own | {"beside": study_claims.beside_table_4(clocks), "claims": claims}
    return own | {
        "timers": medians(found, ("timers",)),
        "claims": study_claims.claims(found),
        "own": study_claims.own_levels(found["clocks"]),
    }


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    folder = parser.parse_args().folder.resolve()
    published = folder.name == "published"
    name, prefix = ("study-as-published.md", "published-") if published else ("study.md", "")
    kinds = ("clocks",) if published else KINDS
    try:
        read = runs.read([str(folder / f"{kind}.parquet") for kind in kinds])
    except runs.WrongRunError as error:
        print(f"study_page.py: {error}", file=sys.stderr)
        return 2
    found = {run.study: judged(run) for run in read}
    made = figures(found)
    prose = (ROOT / f"benches/{name}.in").read_text()
    page = re.sub(r"<!-- figures: (\w+) -->", lambda mark: made[mark[1]], prose)
    PLOTS.mkdir(exist_ok=True)
    for one in found.values():
        draw(one, prefix)
    (ROOT / "docs" / name).write_text(MARK.format(name=name) + page)
    print(f"study: the figures are in docs/{name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
