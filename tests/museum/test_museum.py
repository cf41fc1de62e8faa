"""The museum of clock bugs: each bug shows inside, and not in the control.

The control is the mended version, or an ordinary date, or no step of the clock. The programs are
fetched at first use into build/museum; one that cannot be had skips, with its reason. Exhibits
whose facts say `soak` are too many for `make test`: `make museum` and `make soak` run them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest
from framework import lorentz, processes
from framework.build import REPO

sys.path.insert(0, str(REPO / "examples/museum/code"))

import museum
import packages

#: A script may take museum.LIMIT, and a download some minutes.
pytestmark = [pytest.mark.patient, pytest.mark.timeout(900)]

PAGE = REPO / "docs/museum.md"
EXHIBITS = museum.exhibits()


def parameters() -> list:
    """Each exhibit, with its mark."""
    return [
        pytest.param(one, id=one.name, marks=[pytest.mark.soak] if one.facts.get("soak") else [])
        for one in EXHIBITS
    ]


def run(exhibit: museum.Exhibit, arm: str) -> museum.Result:
    """Runs an arm; skips if its program cannot be had."""
    try:
        return exhibit.run(arm)
    except packages.CannotBeHadError as reason:
        pytest.skip(f"{exhibit.name}: {reason}")


@pytest.mark.parametrize("exhibit", parameters())
def test_bug_shows(exhibit):
    result = run(exhibit, "bug")
    assert result.verdict == "bug", result.output


@pytest.mark.parametrize("exhibit", parameters())
def test_control_is_well(exhibit):
    result = run(exhibit, "control")
    assert result.verdict == "well", result.output


@pytest.mark.parametrize("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)
def test_page_tells_of_it(exhibit):
    assert f"scripts/museum {exhibit.name}\n" in PAGE.read_text()


def test_table_of_the_page_is_that_of_the_facts():
    printed = subprocess.run(
        [REPO / "scripts/museum", "--table"], capture_output=True, text=True, check=True
    )
    assert printed.stdout in PAGE.read_text()


def test_an_exhibit_without_its_program_says_why(tmp_path):
    facts = {"program": "nothing", "needs": ["no-such-tool"], "bug": "a", "well": "b"}
    (tmp_path / "facts.json").write_text(json.dumps({**facts, "control": {}}))
    with pytest.raises(packages.CannotBeHadError, match="no-such-tool is not installed"):
        museum.Exhibit(tmp_path).run("bug")


@pytest.mark.parametrize(
    ("output", "verdict"), [("a", "bug"), ("b", "well"), ("a b", "neither"), ("", "neither")]
)
def test_verdict_needs_one_pattern_alone(tmp_path, output, verdict):
    (tmp_path / "facts.json").write_text(json.dumps({"bug": "a", "well": "b"}))
    assert museum.Exhibit(tmp_path).verdict(output) == verdict


def test_a_script_leaves_nothing(tmp_path):
    """Programs that an exhibit starts in the background end with it."""
    script = tmp_path / "run"
    script.write_text("#!/bin/sh\nlorentz run --name left -- sleep 1000 &\nsleep 1000 &\necho $!\n")
    script.chmod(0o755)
    pid = int(museum.execute(script, {"PATH": "/usr/bin:/bin"}))
    deadline = time.monotonic() + 5
    while not processes.has_ended(pid):
        assert time.monotonic() < deadline, f"process {pid} is left"
        time.sleep(0.02)
    assert not [one for one in lorentz.ps() if one["name"] == "left"]
