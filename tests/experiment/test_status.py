"""Status of an experiment: for people, for machines, once and repeatedly."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from framework import build, lorentz
from framework.experiments import Experiment, schedstat, until
from framework.running import Inside, Native

#: A line of Prometheus's text format 0.0.4, for labels and values that are written simply.
SAMPLE = re.compile(
    r"^([a-zA-Z_:][a-zA-Z0-9_:]*)"
    r"(?:\{((?:[a-zA-Z_][a-zA-Z0-9_]*=\"(?:[^\"\\]|\\[\\\"n])*\",?)*)\})? (\S+)(?: -?\d+)?$"
)
LABEL = re.compile(r"([a-zA-Z_][a-zA-Z0-9_]*)=\"((?:[^\"\\]|\\[\\\"n])*)\"")
KINDS = ("counter", "gauge", "histogram", "summary", "untyped")


def parse(page: str) -> dict[tuple[str, frozenset], float]:
    """Returns the samples of a page in Prometheus's text format; fails if the page is not in that
    format."""
    assert page.endswith("\n")
    kinds: dict[str, str] = {}
    helped: set[str] = set()
    samples: dict[tuple[str, frozenset], float] = {}
    for line in page.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ", 3)[2]
            assert name not in helped, f"HELP for {name} comes twice"
            helped.add(name)
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name not in kinds, f"TYPE of {name} comes twice"
            assert kind in KINDS
            assert not [sample for sample in samples if sample[0] == name], "TYPE after a sample"
            kinds[name] = kind
        elif line and not line.startswith("#"):
            found = SAMPLE.match(line)
            assert found, f"no sample: {line!r}"
            name, labels, value = found.groups()
            key = (name, frozenset(LABEL.findall(labels or "")))
            assert key not in samples, f"twice: {line}"
            assert name in kinds, f"no TYPE: {line}"
            if kinds[name] == "counter":
                assert name.endswith("_total")
                assert float(value) >= 0
            samples[key] = float(value)
    assert helped == set(kinds)
    return samples


def test_no_experiments_are_an_empty_table_and_an_empty_list():
    assert lorentz.json_of("experiment", "status") == []
    assert len(lorentz.ok("experiment", "status").splitlines()) == 1
    assert lorentz.ok("experiment", "status", "--prometheus") == ""


@pytest.fixture(scope="module")
def paused():
    """An experiment that has run for a while: two containers, one that computes."""
    with Experiment("--timeslice", "2ms") as experiment:
        experiment.busy = experiment.run(build.c("experiment/count"), "5000000", tdf="4")
        experiment.idle = experiment.run("sleep", "1000")
        experiment.synchronize()
        experiment.ran_before = ran(experiment.busy)
        experiment.start()
        experiment.advance(0.1)
        experiment.pause()
        yield experiment


def ran(container: Inside) -> int:
    """CPU time of a container's one process, by the kernel's count, ns."""
    (pid,) = container.shown()["pids"]
    return schedstat(Path(f"/proc/{pid}"))[0]


def test_json_is_consistent(paused):
    status = paused.status()
    assert status["name"] == paused.name
    assert status["phase"] == "paused"
    assert status["timeslice_ns"] == 2_000_000
    assert status["virtual_ns"] == status["rounds"] * 2_000_000
    assert status["leader"] == paused.busy.name
    assert status["slowdown"] == pytest.approx(status["real_ns"] / status["virtual_ns"])
    assert 0 < status["working_ns"] <= status["real_ns"]
    assert status["overhead_ratio"] == pytest.approx(
        status["working_ns"] / (status["real_ns"] - status["working_ns"])
    )
    assert Path(f"/proc/{status['pid']}").exists()
    busy, idle = (paused.member(each, status) for each in (paused.busy, paused.idle))
    assert busy["tdf"] == 4
    assert busy["cpu_got_ns"] > 0
    assert busy["slices"] >= busy["at_limit"] > 0
    assert busy["stopped"]
    assert busy["overrun_median_ns"] <= busy["overrun_p99_ns"]
    assert idle["cpu_wanted_ns"] < busy["cpu_wanted_ns"]
    assert idle["overrun_p99_ns"] is None or idle["at_limit"] > 0
    # The CPU time is the kernel's, to the microsecond, of the container's control group. It counts
    # from a moment between the container's begin and the end of `synchronize`.
    whole = ran(paused.busy)
    assert whole - paused.ran_before - 1_000 <= busy["cpu_got_ns"] <= whole + 1_000


def test_prometheus_reads_the_page_and_it_says_the_same(paused):
    status = paused.status()
    samples = parse(lorentz.ok("experiment", "status", paused.name, "--prometheus"))
    whole = {"experiment": paused.name}

    def sample(name: str, **labels: str) -> float:
        return samples[(f"lorentz_experiment_{name}", frozenset({**whole, **labels}.items()))]

    assert sample("rounds_total") == status["rounds"]
    assert sample("virtual_seconds_total") == pytest.approx(status["virtual_ns"] / 1e9)
    assert sample("real_seconds_total") == pytest.approx(status["real_ns"] / 1e9)
    for one in status["containers"]:
        labels = {"container": one["name"]}
        assert sample("tdf", **labels) == one["tdf"]
        assert sample("slices_total", **labels) == one["slices"]
        assert sample("slices_at_limit_total", **labels) == one["at_limit"]
        assert sample("cpu_got_seconds_total", **labels) == pytest.approx(one["cpu_got_ns"] / 1e9)
        assert sample("perceived_overshoot_seconds", **labels) == 0


def test_the_page_of_several_experiments_is_one_page(paused):
    """Prometheus accepts each HELP and TYPE once."""
    with Experiment() as other:
        other.run("sleep", "1000")
        samples = parse(lorentz.ok("experiment", "status", "--prometheus"))
        found = {dict(labels)["experiment"] for _, labels in samples}
        assert {paused.name, other.name} <= found


def test_a_table_for_people(paused):
    status = paused.status()
    page = lorentz.ok("experiment", "status", paused.name)
    words = dict(line.split(None, 1) for line in page.split("\n\n")[0].splitlines())
    assert words["experiment"] == paused.name
    assert words["phase"] == "paused"
    assert words["rounds"] == str(status["rounds"])
    assert words["leader"] == paused.busy.name
    assert words["timeslice"].startswith("2ms")
    head, *rows = page.split("\n\n")[1].splitlines()
    assert head.split()[:3] == ["CONTAINER", "TDF", "TIMELINE"]
    assert {row.split()[0] for row in rows} == {paused.busy.name, paused.idle.name}
    assert {row.split()[1] for row in rows} == {"4", "1"}
    # A column begins at the same place as its head.
    assert all(row[head.index("TDF") - 1] == " " != row[head.index("TDF")] for row in rows)


def test_all_experiments_in_a_table(paused):
    head, *rows = lorentz.ok("experiment", "status").splitlines()
    assert head.split()[:3] == ["NAME", "PHASE", "CONTAINERS"]
    (row,) = (row for row in rows if row.startswith(f"{paused.name} "))
    assert row.split()[1:3] == ["paused", "2"]


def test_containers_stand_in_the_order_of_adding():
    """A container that is added after a removal comes last, though it takes the free slot."""
    with Experiment() as experiment:
        first, second, third = (experiment.run("sleep", "1000") for _ in range(3))
        experiment.ok("remove", first.name)
        fourth = experiment.run("sleep", "1000")
        experiment.ok("add", first.name)
        shown = [one["name"] for one in experiment.status()["containers"]]
        assert shown == [one.name for one in (second, third, fourth, first)]


def test_watch_shows_it_again_and_again(paused):
    """Prints page after page until it is killed; no terminal codes go to a pipe."""
    line = [*lorentz.session.command(), "experiment", "status", paused.name, "--watch"]
    with Native(line, env=lorentz.session.environment()) as watch:
        until(lambda: watch.stdout.count("CONTAINER ") >= 2, "two pages")
        assert watch.process.poll() is None
        pages = watch.stdout
    assert "\x1b" not in pages
    assert pages.count(f"experiment{' ' * 6}") >= 2 or pages.count(paused.name) >= 2


def test_watch_ends_with_the_experiment():
    with Experiment() as experiment:
        line = [*lorentz.session.command(), "experiment", "status", experiment.name, "--watch"]
        with Native(line, env=lorentz.session.environment()) as watch:
            until(lambda: "CONTAINER" in watch.stdout, "a page")
            experiment.ok("rm")
            assert watch.finish(timeout=10) == 1
            assert len(watch.stderr.splitlines()) == 1


def test_a_reader_that_leaves_is_no_trouble(paused):
    """`status | head -1`."""
    line = [*lorentz.session.command(), "experiment", "status", paused.name]
    done = subprocess.run(
        ["bash", "-c", f"{' '.join(line)} | head -1"],
        env=lorentz.session.environment(),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.stdout.split() == ["experiment", paused.name]
    assert done.stderr == ""


def test_an_experiment_without_containers():
    with Experiment() as experiment:
        status = experiment.status()
        assert status["containers"] == []
        assert status["leader"] is None
        assert status["slowdown"] is None
        assert status["phase"] == "setting-up"
        page = lorentz.ok("experiment", "status", experiment.name)
        assert "CONTAINER" in page
        parse(lorentz.ok("experiment", "status", experiment.name, "--prometheus"))
        experiment.ok("stop")
        experiment.ok("rm")
        assert not experiment.place.exists()
