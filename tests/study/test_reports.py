"""`lorentz report`: the page as a browser shows it, its tables, two studies compared."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import polars as pl
import pytest
from framework import needs, studies
from framework.studies import report

pytestmark = pytest.mark.timeout(300)

#: Writes into the title of the page how a browser shows the page.
LOOK = """<script>
addEventListener("load", () => {
  const figures = [...document.querySelectorAll("figure svg")].map(svg => {
    const box = svg.getBoundingClientRect();
    return [box.width, box.height, svg.querySelectorAll("path, use").length];
  });
  const wide = document.documentElement.scrollWidth - innerWidth;
  document.title = JSON.stringify({figures, wide, ink: getComputedStyle(document.body).color});
});
</script></body>"""


@pytest.fixture(scope="module")
def page(all_kinds: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    done = report(*all_kinds, "-o", folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == str(folder / "index.html")
    return folder / "index.html"


def seen(page: Path, folder: Path, *options: str, width: int = 1000) -> tuple[dict, str]:
    """Measures of the page in a browser, and the browser's complaints."""
    copy = folder / "seen.html"
    copy.write_text(page.read_text().replace("</body>", LOOK))
    done = subprocess.run(
        [
            *(needs.tool("chromium"), "--headless", "--no-sandbox", "--disable-gpu"),
            *(f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900"),
            *("--enable-logging=stderr", "--virtual-time-budget=3000", *options),
            *("--dump-dom", copy.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title, done.stderr
    complaints = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(title[1]), "\n".join(complaints)


def test_a_browser_shows_every_figure_and_complains_of_nothing(page: Path, tmp_path: Path):
    found, complaints = seen(page, tmp_path)
    assert complaints == ""
    # Ratios, Q-Q plots and power of clocks; CCDFs of cold reads and of the two functions of timers;
    # medians over loads. Others are there only if the few records of a level vary.
    made = {path.name for path in page.parent.glob("*-figure-*.svg")}
    assert {f"clocks-figure-{number}.svg" for number in (1, 2, 3)} <= made
    assert len(found["figures"]) == len(made) >= 3 + 1 + 2 + 1
    for width, height, paths in found["figures"]:
        assert width > 300 and height > 100 and paths > 10
    assert page.read_text().count("<figcaption>") == len(found["figures"])


def test_a_phone_shows_it_without_scrolling_sideways(page: Path, tmp_path: Path):
    found, complaints = seen(page, tmp_path, width=500)
    assert complaints == "" and found["wide"] <= 0


def test_it_stands_alone_and_has_a_dark_side(page: Path):
    text = page.read_text()
    links = re.findall(r'(?:href|src)="([^"#]*)"', text)
    # A picture of points is in the page itself.
    assert not [link for link in links if "//" in link and not link.startswith("data:image/png;")]
    # Each file that the page links to is beside it.
    files = {link for link in links if link.endswith(".csv")}
    assert files and all((page.parent / file).is_file() for file in files)
    assert "prefers-color-scheme: dark" in text and "currentColor" in text


def test_tables_are_csv_and_agree_with_the_data(page: Path, clocks: Path):
    table = pl.read_csv(page.parent / "clocks-descriptives.csv")
    raw = pl.read_parquet(clocks).group_by("metric", "level").agg(pl.col("mean_ns").mean())
    both = table.join(raw, on=["metric", "level"], suffix="_raw")
    assert len(both) == len(table) == len(raw)
    assert (both["mean_ns"] / both["mean_ns_raw"] - 1).abs().max() < 1e-9


def test_it_tells_what_could_have_been_seen(page: Path):
    power = pl.read_csv(page.parent / "clocks-power.csv")
    assert (power["visible_percent"] > 0).all()
    assert power["power_at_2_percent"].is_between(0, 1).all()
    assert "80 % of such studies find a difference of" in page.read_text()


def test_timers_are_judged_by_function_level_and_load(page: Path):
    factors = pl.read_csv(page.parent / "timers-factors.csv")
    names = ["function", "level", "load"]
    pairs = ["function x level", "function x load", "level x load"]
    assert set(factors["factor"]) == {*names, *pairs}
    cells = pl.read_csv(page.parent / "timers-cells.csv")
    # Two functions at two levels under three loads.
    assert len(cells) == 2 * 2 * 3
    assert cells.filter(pl.col("load") == "idle")["to_idle_p"].is_null().all()


def test_published_figures_stand_beside_our_own(page: Path, clocks: Path):
    beside = pl.read_csv(page.parent / "clocks-published.csv")
    metric = "vdso_clock_gettime_monotonic"
    row = beside.filter(pl.col("what") == metric, pl.col("level") == "namespace")
    # Table IV: 3.565 ns more than 56.39 ns.
    assert row["published_ratio"][0] == pytest.approx(1 + 3.565 / 56.39)
    raw = pl.read_parquet(clocks).filter(pl.col("metric") == metric)
    means = dict(raw.group_by("level").agg(pl.col("mean_ns").mean()).iter_rows())
    own = means["namespace"] / means["baseline"]
    assert row["own_ratio"][0] == pytest.approx(own)
    assert len(list(page.parent.glob("published-*.csv"))) == 11


def test_a_study_has_not_changed_since_itself(clocks: Path, tmp_path: Path):
    done = report(clocks, "-o", tmp_path, "--against", clocks, "--json")
    shown = json.loads(done.stdout)
    assert shown["results"] == str(tmp_path / "results.json")
    said = shown["summary"]["clocks"]
    assert (
        json.loads(Path(shown["results"]).read_text())["studies"]["clocks"]["changes"] == said[-1:]
    )
    assert any(line.startswith("Nothing has changed beyond noise") for line in said), said


def test_a_python_without_the_package_is_told_how_to_get_it(clocks: Path, tmp_path: Path):
    env = studies.path_with(tmp_path / "bin", other="echo no module named lorentz >&2; exit 1")
    env["LORENTZ_PYTHON"] = str(tmp_path / "bin" / "other")
    done = studies.lorentz.call("report", str(clocks), "-o", str(tmp_path / "r"), env=env)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "install the Python package as lorentz-time[report]" in done.stderr
