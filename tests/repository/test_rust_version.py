"""scripts/rust-version: one minimal version of Rust, and no package that needs a newer one."""

from __future__ import annotations

import re
import subprocess

import pytest
from framework import scripts
from framework.build import REPO

SCRIPT = REPO / "scripts/rust-version"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    return scripts.load("rust-version")


def package(name: str, rust_version: str | None, source: str | None = "registry") -> dict:
    return {
        "name": name,
        "version": "1.0.0",
        "rust_version": rust_version,
        "source": source,
        "manifest_path": f"{name}/Cargo.toml",
    }


def test_the_repository_agrees():
    done = subprocess.run([SCRIPT, "--check"], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")


def test_setup_reads_the_same_version(script):
    line = next(
        line for line in (REPO / "scripts/setup").read_text().splitlines() if "RUST_WANTED=" in line
    )
    printed = subprocess.run(
        ["bash", "-c", f"{line}; echo $RUST_WANTED"], cwd=REPO, capture_output=True, text=True
    )
    assert printed.stdout.strip() == script.workspace_version(REPO)
    assert re.fullmatch(r"\d+\.\d+", printed.stdout.strip())


@pytest.mark.parametrize(
    ("found", "count"),
    [
        (package("same", "1.89"), 0),
        (package("same", "1.89.0"), 0),
        (package("older", "1.9"), 0),
        (package("unknown", None), 0),
        (package("newer", "1.90"), 1),
        (package("newer", "1.89.1"), 1),
        (package("ours", "1.89", source=None), 0),
        (package("ours", "1.88", source=None), 1),
        (package("ours", None, source=None), 1),
    ],
)
def test_a_disagreement_is_named(script, tmp_path, found, count):
    lines = list(script.disagreements(tmp_path, "1.89", [found]))
    assert len(lines) == count
    assert all(found["name"] in line for line in lines)


def test_a_second_version_for_clippy_is_named(script, tmp_path):
    (tmp_path / "clippy.toml").write_text('msrv = "1.70"\n')
    (line,) = script.disagreements(tmp_path, "1.89", [])
    assert "clippy.toml" in line


def test_another_version_in_readme_is_named(script, tmp_path):
    readme = (REPO / "README.md").read_text()
    wanted = script.workspace_version(REPO)
    (tmp_path / "README.md").write_text(readme.replace(f"than {wanted}", "than 1.70"))
    (line,) = script.disagreements(tmp_path, wanted, [])
    assert "README.md: names Rust 1.70" in line
