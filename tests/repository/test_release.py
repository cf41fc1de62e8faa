"""The workflow of a release calls scripts that are there, and takes all packages; the notes of a
release are its part of the changelog."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from framework.build import REPO

WORKFLOW = REPO / ".github/workflows/release.yml"
CHANGELOG = """\
# Changelog

## [Unreleased]

- Later.

## [1.2.0] - 2026-01-31

### Added

- A thing ([page](docs/page.md)).

## [1.1.0]

- Earlier.
"""


@pytest.fixture(scope="module")
def jobs() -> dict[str, dict]:
    return yaml.safe_load(WORKFLOW.read_text())["jobs"]


def commands(job: dict) -> list[str]:
    return [step["run"] for step in job["steps"] if "run" in step]


def test_the_workflow_calls_targets_and_scripts_that_are_there(jobs):
    targets = re.findall(r"^([a-z-]+):", (REPO / "Makefile").read_text(), re.MULTILINE)
    called = [command for job in jobs.values() for command in commands(job)]
    for command in called:
        assert all(name in targets for name in re.findall(r"^make (\S+)", command)), command
        scripts = re.findall(r"\bscripts/[\w-]+", command)
        assert all((REPO / script).exists() for script in scripts), command
    assert {"make lint", "make test", "make dist", "make dist-try"} <= {*called}


def test_the_workflow_takes_each_kind_of_package(jobs):
    """The kinds are those of SHA256SUMS."""
    function = re.search(r"^sums\(\) \{.*?^\}", (REPO / "scripts/dist").read_text(), re.M | re.S)[0]
    kinds = set(re.findall(r"-name '(\S+)'", function))
    uploads = [step for step in jobs["packages"]["steps"] if "upload" in step.get("uses", "")]
    (paths,) = [step["with"]["path"].split() for step in uploads]
    assert {Path(path).name for path in paths} == kinds | {"SHA256SUMS"}


def test_only_the_last_job_may_write(jobs):
    for name, job in jobs.items():
        writes = {right for right, level in job["permissions"].items() if level == "write"}
        assert (writes == set()) == (name != "publish")


@pytest.fixture
def notes(tmp_path):
    """Calls scripts/release-notes in a repository of version 1.2.0."""
    (tmp_path / "scripts").mkdir()
    for name in ("release-notes", "common.sh"):
        shutil.copy(REPO / "scripts" / name, tmp_path / "scripts")
    (tmp_path / "Cargo.toml").write_text('[workspace.package]\nversion = "1.2.0"\n')
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)

    def notes(tag: str) -> subprocess.CompletedProcess:
        command = [tmp_path / "scripts/release-notes", tag]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    return notes


def test_the_notes_are_the_part_of_the_release(notes):
    done = notes("v1.2.0")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "### Added\n\n- A thing ([page](docs/page.md))."


def test_a_tag_of_another_version_is_refused(notes):
    done = notes("v1.3.0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "Cargo.toml has version 1.2.0" in done.stderr


def test_a_release_that_the_changelog_does_not_know_is_refused(notes, tmp_path):
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG.replace("[1.2.0]", "[1.0.0]"))
    done = notes("v1.2.0")
    assert (done.returncode, done.stdout) == (1, "")
    assert "nothing below '## [1.2.0]'" in done.stderr
