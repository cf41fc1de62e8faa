"""docs/json.md names the keys that verbs print with --json: no more, and no fewer."""

from __future__ import annotations

import json
import re

import pytest
from framework import build, lorentz, needs
from framework.build import REPO
from framework.experiments import Experiment
from framework.networks import Lab, pair
from framework.running import Inside

ROW = re.compile(r"^\| (`[^|]*`) \|")
#: Objects whose keys depend on the case, or that have a table of their own.
OPAQUE = {
    "skip",
    "to_come[]",
    "rounds",
    "switches",
    "positions",
    "links[]",
    "left_out[]",
    "held_by",
    "directions[].impairments",
    "refused[]",
}


def documented(heading: str) -> set[str]:
    """The keys in the table below a heading of the page."""
    section = (REPO / "docs/json.md").read_text().split(f"\n## {heading}\n")[1].split("\n## ")[0]
    cells = [ROW.match(line) for line in section.splitlines()]
    return {key for cell in cells if cell for key in re.findall(r"`([^`]+)`", cell.group(1))}


def keys(value: object, path: str = "") -> set[str]:
    """The paths of the keys in a JSON value, as the page writes them."""
    if path in OPAQUE:
        return {path}
    if isinstance(value, dict) and value:
        dot = f"{path}." if path else ""
        return set().union(*(keys(inner, f"{dot}{key}") for key, inner in value.items()))
    if isinstance(value, list):
        return set().union(*(keys(inner, f"{path}[]") for inner in value)) or {f"{path}[]"}
    return {path}


@pytest.fixture
def container():
    """A container of a program that sleeps."""
    with Inside(build.c("waits/sleep"), str(1000 * 10**9), "nanosleep", rate="1") as inside:
        inside.line(ev="ready")
        yield inside


def test_ps_and_time(container):
    assert keys(container.time()) == documented("Container") | documented("Rewritten call sites")
    assert keys(container.shown()) == documented("Container")


def test_why(container):
    assert keys(lorentz.json_of("why", container.name)) == documented("Why time leaps or not")


def test_the_error_of_a_clock(container):
    shown = lorentz.json_of("clock", "show", container.name)
    assert keys(shown) == documented("Error of a clock")


def test_a_dry_run():
    planned = json.loads(lorentz.ok("run", "--dry-run", "--json", "--rate", "2", "true"))
    assert keys(planned) == documented("Start of a clock")


def test_announced_changes(container):
    lorentz.ok("dilate", container.name, "--rate", "2", "--at", "2099-01-01")
    (change,) = container.time()["to_come"]
    assert keys(change) == documented("Announced change")


def test_skipping():
    # It waits for the outside: a program that only sleeps would have ended before it is shown.
    with Inside("cat", rate="1", stdin=True) as container:
        container.wait_until_shown()
        skip = lorentz.json_of("skip", container.name, "on")["skip"]
        assert keys(skip) == documented("Skipping")


@pytest.mark.parametrize(
    "words", [("dilate", "--rate", "2"), ("freeze",), ("unfreeze",), ("step", "--by", "1d")]
)
def test_changes(container, words):
    verb, *flags = words
    changed = lorentz.json_of(verb, container.name, *flags)
    assert keys(changed) == documented("Container") | documented("Change of a clock")


def test_an_adoption(container):
    container.kill_monitor()
    report = lorentz.json_of("adopt", container.name)
    assert keys(report) == documented("Container") | documented("Adoption")


def test_doctor():
    assert keys(lorentz.json_of("doctor")) == documented("Doctor")


def test_experiments():
    needs.root()
    with Experiment() as experiment:
        experiment.populate(1, "sleep", "1000")
        assert keys(experiment.status()) == documented("Experiment")


def test_checking_a_network(tmp_path):
    file = tmp_path / "lab.yaml"
    file.write_text("name: lab\ntopology: {nodes: {a: {}, b: {}}, links: []}\n")
    assert keys(lorentz.json_of("up", "--check", str(file))) == documented("Network: up")


def test_networks():
    needs.root()
    with Lab(pair()) as lab:
        assert keys(lab.status()) == documented("Network: inspect")
        assert keys(lab.link()) == documented("Link")
