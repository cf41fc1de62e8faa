"""The page of a report, of simulated studies: sentences, the table, results.json, CSV, figures."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import polars as pl
import pytest
from framework import studies
from lorentz.report import compared, page, runs

pytestmark = pytest.mark.timeout(300)

SHIFTS = {"baseline": 0.0, "namespace": 0.03, "lorentz": 3.0, "podman": 0.0}
LEVELS = [level for level in SHIFTS if level != "baseline"]
WAITS = {"nanosleep", "clock_nanosleep", "miss_sleep", "miss_usleep"}
SVG = "{http://www.w3.org/2000/svg}"
#: A sentence of the page has at most so many words.
WORDS = 25


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """One simulated study of each kind."""
    folder = tmp_path_factory.mktemp("simulated")
    return [
        studies.simulated(folder / f"{kind}.parquet", SHIFTS, 8, seed, kind)
        for seed, kind in enumerate(studies.SIMULATED)
    ]


@pytest.fixture(scope="module")
def folder(files: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of them. An older report has left files there."""
    folder = tmp_path_factory.mktemp("report")
    (folder / "clocks-cells.csv").write_text("\n")
    (folder / "clocks-figure-99.svg").write_text("<svg/>")
    page.write(runs.read([str(file) for file in files]), folder)
    return folder


@dataclass
class Row:
    """A row of the table metric x level: the text of each level's cell."""

    group: str
    metric: str
    load: str
    #: Ratio and p by level; a level that comes twice has more than two.
    cells: dict[str, list[str]] = field(default_factory=dict)


class Overview(HTMLParser):
    """The rows of the tables metric x level, by study."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, list[Row]] = {}
        self._study = ""
        self._group: list[str] = []
        #: Where the text of the present element goes.
        self._texts: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        of = {name: value or "" for name, value in attrs}
        if tag == "table":
            study, end, _ = of.get("id", "").partition("-overview")
            self._study = study if end else ""
        elif self._study and of.get("class") == "group":
            self._texts = self._group = []
        elif self._study and "data-metric" in of:
            row = Row("".join(self._group).strip(), of["data-metric"], of["data-load"])
            self.rows.setdefault(self._study, []).append(row)
        elif self._study and "data-level" in of:
            self._texts = self.rows[self._study][-1].cells.setdefault(of["data-level"], [])

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "tr"):
            self._texts = None

    def handle_data(self, data: str) -> None:
        if self._texts is not None and data.strip():
            self._texts.append(data)


@pytest.fixture(scope="module")
def tables(folder: Path) -> dict[str, list[Row]]:
    parser = Overview()
    parser.feed((folder / "index.html").read_text())
    return parser.rows


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, dict]:
    """results.json, which must not have NaN: that is no JSON."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{name} in results.json")

    shown = json.loads((folder / "results.json").read_text(), parse_constant=refuse)
    assert shown["lorentz_report_format"] == "1"
    return shown["studies"]


def as_shown(ratio: str) -> tuple[float, float]:
    """The number that a cell shows, and how far the exact one may be from it."""
    if ratio.startswith("<"):
        return 0.0, float(ratio[1:])
    digits = len(ratio.partition(".")[2])
    return float(ratio.replace(",", "")), 0.5001 * 10**-digits


def test_no_csv_is_empty(folder: Path):
    files = list(folder.glob("*.csv"))
    assert {file.name for file in files} >= {"clocks-pairs.csv", "timers-cells.csv"}
    for file in files:
        assert len(pl.read_csv(file, infer_schema_length=None)) > 0, file.name


def test_files_of_an_older_report_do_not_stay(folder: Path):
    assert not (folder / "clocks-cells.csv").exists()
    assert not (folder / "clocks-figure-99.svg").exists()


def test_no_csv_is_empty_where_nothing_can_be_judged(tmp_path: Path):
    """Two records are too few for each of the tests."""
    for kind in studies.SIMULATED:
        file = studies.simulated(tmp_path / f"{kind}.parquet", SHIFTS, 2, 5, kind)
        folder = tmp_path / kind
        said = page.write(runs.read([str(file)]), folder)
        assert said[kind] == ["2 records are too few to judge; expected 3 or more."]
        for table in folder.glob("*.csv"):
            assert len(pl.read_csv(table, infer_schema_length=None)) > 0, table.name
        shown = json.loads((folder / "results.json").read_text())["studies"][kind]
        assert shown["summary"] == [] and shown["comparison"]
        assert {row["p_adjusted"] for row in shown["comparison"]} == {None}


@pytest.mark.parametrize("kind", studies.SIMULATED)
def test_the_table_has_each_metric_once_a_level(kind: str, tables: dict[str, list[Row]]):
    loads = ("idle", "cpu", "io") if kind == "timers" else ("idle",)
    metrics = [metric for metric in studies.SIMULATED[kind] if metric != "harness"]
    rows = tables[kind]
    expected = sorted((metric, load) for metric in metrics for load in loads)
    assert sorted((row.metric, row.load) for row in rows) == expected
    for row in rows:
        assert list(row.cells) == LEVELS
        assert {len(texts) for texts in row.cells.values()} == {2}, row


@pytest.mark.parametrize("kind", studies.SIMULATED)
def test_the_table_shows_the_numbers_of_results_json(
    kind: str, tables: dict[str, list[Row]], results: dict[str, dict]
):
    rows = {(row.metric, row.load): row for row in tables[kind]}
    comparison = results[kind]["comparison"]
    assert len(comparison) == len(rows) * len(LEVELS)
    for one in comparison:
        ratio, p = rows[one["metric"], one["load"]].cells[one["level"]]
        shown, tolerance = as_shown(ratio)
        assert abs(shown - one["ratio"]) <= tolerance, one
        shown, tolerance = as_shown(p)
        assert abs(shown - one["p_adjusted"]) <= tolerance, one


@pytest.mark.parametrize("kind", studies.SIMULATED)
def test_results_json_agrees_with_the_records_and_the_csv(
    kind: str, folder: Path, files: list[Path], results: dict[str, dict]
):
    found = results[kind]
    run = next(run for run in runs.read([str(file) for file in files]) if run.study == kind)
    assert found["statistic"] == ("median" if kind == "timers" else "mean")
    csv = pl.read_csv(folder / f"{kind}-comparison.csv", infer_schema_length=None).to_dicts()
    assert len(csv) == len(found["comparison"])
    for one, row in zip(found["comparison"], csv, strict=True):
        assert {name: pytest.approx(value) for name, value in row.items()} == one
        values = run.values(one["metric"], one["load"])
        base, own = (pl.Series(values[level]) for level in ("baseline", one["level"]))
        middles = [getattr(side, found["statistic"])() for side in (base, own)]
        assert [one["baseline_ns"], one["level_ns"]] == pytest.approx(middles)
        assert one["ratio"] == pytest.approx(middles[1] / middles[0])
        assert one["differs"] == (one["p_adjusted"] < 0.05)
        assert one["differs"] or one["level"] != "lorentz"


def test_waits_stand_apart_from_raw_calls(tables: dict[str, list[Row]]):
    for rows in tables.values():
        for row in rows:
            assert row.group.startswith("Waits") == (row.metric in WAITS), row
            assert row.group.startswith(("Waits", "Raw calls")), row


@pytest.mark.parametrize("kind", studies.SIMULATED)
def test_each_level_has_one_short_sentence(kind: str, results: dict[str, dict]):
    sentences = results[kind]["summary"]
    assert [sentence.partition(":")[0] for sentence in sentences] == LEVELS
    for sentence in sentences:
        assert len(sentence.split()) <= WORDS and sentence.count(". ") == 0, sentence
    own = sentences[LEVELS.index("lorentz")]
    rows = [row for row in results[kind]["comparison"] if row["level"] == "lorentz"]
    waits = sum(row["kind"] == "wait" for row in rows)
    for name, count in (("wait", waits), ("raw call", len(rows) - waits)):
        if count == 1:
            assert f"the {name} differs" in own
        elif count:
            assert f"{count} of {count} {name}s differ (" in own


def test_a_level_that_is_not_found_to_differ_says_what_it_would_show(results: dict[str, dict]):
    sentences = results["hot"]["summary"]
    same = sentences[LEVELS.index("podman")]
    assert same.startswith("podman: none of 2 raw calls differs; half of the metrics would show a ")


def texts(figure: Path) -> list[str]:
    """All texts of a figure."""
    found = ElementTree.fromstring(figure.read_text()).iter(f"{SVG}text")
    return ["".join(element.itertext()).strip() for element in found]


def figure(folder: Path, kind: str, caption: str) -> Path:
    """The figure of a study that has these words in its caption."""
    found = [
        path
        for path in folder.glob(f"{kind}-figure-*.svg")
        if caption in path.read_text().partition(">")[0]
    ]
    assert len(found) == 1, found
    return found[0]


@pytest.mark.parametrize("kind", studies.SIMULATED)
def test_q_q_plots_have_one_panel_a_level(kind: str, folder: Path):
    shown = texts(figure(folder, kind, "Q-Q plots"))
    assert [shown.count(level) for level in SHIFTS] == [1] * len(SHIFTS)


@pytest.mark.parametrize("metric", studies.SIMULATED["timers"])
def test_each_metric_of_timers_has_its_samples_and_its_distribution(metric: str, folder: Path):
    """A panel a load. A curve of the distribution has a mark at its level's mean."""
    for caption in (f"{metric}, each sample", f"{metric}, the whole distribution"):
        shown = texts(figure(folder, "timers", caption))
        assert [shown.count(load) for load in ("idle", "cpu", "io")] == [1, 1, 1]
    drawn = ElementTree.fromstring(figure(folder, "timers", caption).read_text())
    # Those of the axes' ticks are not cut at the edge.
    marks = [
        mark
        for group in drawn.iter(f"{SVG}g")
        if "clip-path" in group.attrib
        for mark in group.iter(f"{SVG}use")
    ]
    assert len(marks) == 3 * len(SHIFTS)


def test_metrics_are_drawn_by_groups_with_a_scale_of_their_own(folder: Path):
    shown = texts(figure(folder, "clocks", "beside the baseline"))
    groups = [group.title for group in compared.Kind]
    assert [shown.count(title) for title in groups] == [1] * len(groups)
