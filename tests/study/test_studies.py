"""`lorentz study`: the content of its files, levels left out, and continuing after an
interruption."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path

import polars as pl
import pytest
from framework import docker, lorentz, needs, studies
from framework.studies import METRICS, SMALL, made, metadata, path_with, rewritten, study


@pytest.fixture(autouse=True)
def _root():
    needs.root()


def test_a_row_for_each_record_and_its_units_add_up(clocks: Path):
    rows = pl.read_parquet(clocks)
    levels, metrics = ["baseline", "namespace", "lorentz"], METRICS.split(",")
    counts = rows.group_by("level", "metric").len()
    assert len(counts) == len(levels) * len(metrics)
    assert counts["len"].unique().to_list() == [4]
    about = metadata(clocks)
    assert (about["lorentz_study_format"], about["study"]) == ("1", "clocks")
    assert about["settings"]["levels"] == levels
    hertz = about["environment"]["tsc_hertz"]
    off = rows["elapsed_ticks"] / hertz * 1e9 / rows["calls"] / rows["mean_ns"] - 1
    assert off.abs().max() < 1e-9
    for fact in ("kernel", "processor", "clock source", "mitigations", "governor"):
        assert about["environment"]["facts"][fact]


def test_levels_follow_one_another_within_a_round(clocks: Path):
    """So that a drift of the machine hits all alike."""
    rows = pl.read_parquet(clocks).sort("at_unix_s")
    for (_, _), part in rows.group_by("round", "metric"):
        begin, end = part["at_unix_s"].min(), part["at_unix_s"].max()
        between = rows.filter(pl.col("at_unix_s").is_between(begin, end))
        assert between["metric"].n_unique() == 1
    firsts = rows.group_by("round", "metric").first()["level"]
    assert firsts.n_unique() > 1


def test_a_system_call_costs_more_than_a_function_that_does_nothing(clocks: Path):
    means = pl.read_parquet(clocks).filter(pl.col("level") == "baseline")
    medians = dict(means.group_by("metric").agg(pl.col("mean_ns").median()).iter_rows())
    assert medians["harness"] < medians["clock_gettime_monotonic"]
    assert medians["harness"] < medians["vdso_clock_gettime_monotonic"]


def test_every_level_proves_itself_or_is_left_out_with_a_word(tmp_path: Path):
    path = tmp_path / "all.parquet"
    done = study("clocks", path, "--quick", "--records", "1", "--metrics", "clock_getres", "--json")
    assert done.returncode == 0, done.stderr
    shown = json.loads(done.stdout)
    there = set(pl.read_parquet(path)["level"])
    assert there | set(shown["left_out"]) == set(metadata(path)["settings"]["levels"])
    assert there >= {"baseline", "namespace", "container", "container-overlay", "lorentz"}
    assert all(shown["left_out"].values())
    assert not Path(f"{path}.part").exists()


def test_what_is_not_installed_is_left_out(tmp_path: Path):
    """And the rest runs."""
    env = path_with(tmp_path / "bin", podman="echo no podman here >&2; exit 125")
    options = ("--levels", "baseline,podman", "--records", "1", "--metrics", "clock_getres")
    done = study("clocks", tmp_path / "x.parquet", "--quick", *options, env=env)
    assert done.returncode == 0, done.stderr
    assert "left out: podman: no podman here" in done.stdout


def test_a_container_of_docker_is_a_level(tmp_path: Path, tmp_path_factory):
    """Nothing of it stays in docker's storage, also not from a study that was killed."""
    path = tmp_path / "x.parquet"
    levels = ("--levels", "baseline,docker", "--records", "2")
    # The daemon's sockets lie below: their paths have to be short.
    with docker.daemon(tmp_path_factory.mktemp("d")) as made:
        made.call("tag", docker.IMAGE, f"lorentz-study:{2**31 - 1}")
        host = {"DOCKER_HOST": f"unix://{made.socket}"}
        env = {**lorentz.session.environment(), **made.environment, **host}
        options = ("--quick", *levels, "--metrics", "clock_getres", "--json")
        done = study("clocks", path, *options, env=env)
        assert done.returncode == 0, done.stderr
        assert not json.loads(done.stdout)["left_out"]
        assert not made.call("ps", "--all", "--quiet").stdout
        assert not made.call("image", "ls", "--quiet", "lorentz-study").stdout
    assert set(pl.read_parquet(path)["level"]) == {"baseline", "docker"}


def test_without_time_namespaces_the_rest_runs(tmp_path: Path):
    """unshare(1) ends as where the kernel has none."""
    words = "unshare: unshare failed: Invalid argument"
    env = path_with(tmp_path / "bin", unshare=f"echo {words} >&2; exit 1")
    levels = ("--levels", "baseline,namespace,container,lorentz", "--records", "1")
    path = tmp_path / "x.parquet"
    options = ("--quick", *levels, "--metrics", "clock_getres", "--json")
    done = study("clocks", path, *options, env=env)
    assert done.returncode == 0, done.stderr
    left_out = json.loads(done.stdout)["left_out"]
    assert left_out == {"namespace": words, "container": words}
    assert set(pl.read_parquet(path)["level"]) == {"baseline", "lorentz"}
    # The report says so too.
    output = studies.report(path, "-o", tmp_path / "report")
    assert f"namespace was left out: {words}" in output.stdout, output.stderr


def test_a_level_without_effect_stops_the_study(tmp_path: Path):
    """A faketime that fakes nothing."""
    env = path_with(tmp_path / "bin", faketime='shift 2; exec "$@"')
    options = ("--levels", "baseline,libfaketime", "--records", "1")
    done = study("clocks", tmp_path / "x.parquet", "--quick", *options, env=env)
    assert done.returncode == 1
    assert "level libfaketime: it did not take effect: the wall clock is 0 s ahead" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "x.parquet").exists()


def test_an_interrupted_study_goes_on(tmp_path: Path):
    path = tmp_path / "x.parquet"
    options = ("--quick", "--levels", "baseline,control", "--records", "15")
    # The sleeps of each round have it run for seconds after its first records.
    metrics = f"{METRICS},nanosleep"
    words = ["study", "clocks", "-o", str(path), *options, "--metrics", metrics]
    begun = subprocess.Popen(
        [*lorentz.session.command(), *words], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )
    journal = Path(f"{path}.part") / "journal"
    deadline = time.monotonic() + 30
    while not (journal.exists() and len(journal.read_text().splitlines()) > 20):
        assert time.monotonic() < deadline and begun.poll() is None
        time.sleep(0.005)
    begun.send_signal(signal.SIGINT)
    _, words_of_end = begun.communicate(timeout=30)
    assert begun.returncode == 1 and b"interrupted" in words_of_end
    before = len(journal.read_text().splitlines()) - 1
    other = study("clocks", path, *options, "--metrics", "clock_getres")
    assert "another study was begun there" in lorentz.refusal(other, "--output")
    shown = json.loads(study("clocks", path, *options, "--metrics", metrics, "--json").stdout)
    assert shown["resumed"] == before
    assert shown["records"] == 15 * 2 * len(metrics.split(","))
    rows = pl.read_parquet(path)
    assert rows.group_by("round", "level", "metric").len()["len"].to_list() == [1] * len(rows)


def test_sleeps_are_as_long_as_asked(tmp_path: Path):
    path = made(
        "clocks",
        tmp_path / "x.parquet",
        *("--quick", "--levels", "baseline,lorentz", "--records", "1"),
        *("--metrics", "nanosleep,clock_nanosleep"),
    )
    rows = pl.read_parquet(path)
    assert rows["asked_ns"].to_list() == [100_000_000] * 4
    assert rows["mean_ns"].min() >= 100_000_000


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (("clocks", "--metrics", "clock_getrez"), "--metrics clock_getrez: no such metric"),
        (("hot", "--metrics", "clock_getres"), "--metrics clock_getres: not one of 'hot'"),
        (("clocks", "--levels", "vmware"), "--levels vmware: no such level"),
        (("clocks", "--levels", "lorentz"), "--levels lorentz: expected baseline among them"),
        (("clocks", "--records", "0"), "--records 0"),
        (("clocks", "--calls", "-1"), "--calls -1"),
        (("clocks", "--quick", "--full"), "--quick"),
        (("dance",), "dance: no such command; expected one of clocks, hot, cold, timers"),
        ((), "expected one of clocks, hot, cold, timers"),
    ],
)
def test_wrong_words_are_refused(words: tuple[str, ...], names: str, tmp_path: Path):
    output = ("-o", str(tmp_path / "x.parquet")) if words and words != ("dance",) else ()
    lorentz.refusal(lorentz.call("study", *words, *output), names)
    assert not list(tmp_path.iterdir())


def test_a_study_is_not_written_over(clocks: Path):
    before = clocks.read_bytes()
    lorentz.refusal(study("clocks", clocks, *SMALL), "it is there already; expected a new file")
    assert clocks.read_bytes() == before


@pytest.mark.timeout(300)
def test_what_is_no_study_is_not_judged(clocks: Path, tmp_path: Path):
    text = tmp_path / "text"
    text.write_text("no study")
    plain = tmp_path / "plain.parquet"
    pl.DataFrame({"a": [1]}).write_parquet(plain)
    older = rewritten(clocks, tmp_path / "older.parquet", lorentz_study_format="0")
    settings = json.dumps({**metadata(clocks)["settings"], "calls": 7})
    shorter = rewritten(clocks, tmp_path / "shorter.parquet", settings=settings)
    other = rewritten(clocks, tmp_path / "other.parquet", study="hot")
    for runs, names in (
        ([tmp_path / "none"], "none: there is no such file"),
        ([text], "text: not Parquet"),
        ([plain], "plain.parquet: it is no study"),
        ([older], "older.parquet: its format is 0; expected 1"),
        ([clocks, shorter], "shorter.parquet: calls is 7, in"),
        ([clocks, "--against", other], "--against"),
    ):
        done = studies.report(*runs, "-o", tmp_path / "report")
        lorentz.refusal(done, names)
