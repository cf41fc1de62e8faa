"""The environment in which programs of packages are built: nothing of it depends on the directory
or the time, once the compilers have mapped their paths."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from framework.build import REPO

COMMIT_DATE = "1700000000"


@pytest.fixture
def repository(tmp_path) -> Path:
    """A repository of one commit that has the scripts' common parts."""
    root = tmp_path / "place"
    (root / "scripts").mkdir(parents=True)
    shutil.copy(REPO / "scripts/common.sh", root / "scripts")
    date = f"{COMMIT_DATE} +0000"
    env = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "HOME": str(tmp_path)}
    env |= {"PATH": "/usr/local/bin:/usr/bin:/bin"}
    identity = ("-c", "user.name=N", "-c", "user.email=n@example.org")
    for words in (["init", "--quiet"], ["add", "."], [*identity, "commit", "--quiet", "-m", "M"]):
        subprocess.run(["git", *words], cwd=root, env=env, check=True)
    return root


def environment(repository: Path, **given: str) -> dict[str, str]:
    """The variables that scripts/build --dist and scripts/dist set."""
    command = f"source '{repository}/scripts/common.sh'; dist_environment; env --null"
    env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/home/somebody", **given}
    done = subprocess.run(["bash", "-ec", command], env=env, capture_output=True, check=True)
    entries = done.stdout.decode().rstrip("\0").split("\0")
    return dict(entry.split("=", 1) for entry in entries)


def test_compilers_map_the_paths_of_the_machine(repository):
    variables = environment(repository)
    flags = variables["CARGO_ENCODED_RUSTFLAGS"].split("\x1f")
    assert flags == [
        "--remap-path-prefix=/home/somebody/.cargo=/usr/src/cargo",
        f"--remap-path-prefix={repository}=/usr/src/lorentz",
    ]
    mapped = f"-ffile-prefix-map={repository}=/usr/src/lorentz"
    assert variables["CCC_OVERRIDE_OPTIONS"] == f"#+{mapped}"
    elsewhere = environment(repository, CARGO_HOME="/opt/cargo")["CARGO_ENCODED_RUSTFLAGS"]
    assert elsewhere.startswith("--remap-path-prefix=/opt/cargo=/usr/src/cargo\x1f")


def test_the_date_is_that_of_the_commit(repository):
    assert environment(repository)["SOURCE_DATE_EPOCH"] == COMMIT_DATE
    assert environment(repository, SOURCE_DATE_EPOCH="5")["SOURCE_DATE_EPOCH"] == "5"


def test_programs_get_the_list_of_packages_where_the_tool_is_there(repository):
    assert "RUSTC_WRAPPER" not in environment(repository)
    tool = repository / "build/tools/bin/cargo-auditable"
    tool.parent.mkdir(parents=True)
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    assert environment(repository)["RUSTC_WRAPPER"] == str(tool)
