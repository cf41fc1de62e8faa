"""A clock option is added in one place: an invented row of the table reaches every interface.

The test builds a copy of the crates with one more row, which takes many minutes.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from framework.build import REPO

pytestmark = [pytest.mark.soak, pytest.mark.timeout(3600)]

ROW = """
            /// `--invented`: a clock option of a test.
            "invented" => invented: Option<Span> [str::parse::<Span>, text_of] {
                help: "Invented",
                value: OptionValue::Quantity("DUR"),
            } topology {
                invented: "Option<String>",
                "Invented, of the network",
                "Invented, of the node",
            }"""
FIRST = "        $make! {"
TABLE = "crates/control/src/option_table.rs"
#: The tests that go through the table, in the crates cli, runtime, network and embed.
TESTS = {
    "args::tests::each_option_of_the_table_is_a_flag",
    "annotations::tests::each_option_of_the_table_is_an_annotation_and_a_variable",
    "check::tests::clock_options_of_a_network_are_those_of_the_table",
    "clock_flags::tests::keywords_of_the_python_package_are_those_of_the_table",
}


def copy_of_the_repository(folder: Path) -> None:
    """Copies the files that git knows."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (REPO / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPO / name, folder / name)


def test_an_invented_option_reaches_every_interface(tmp_path):
    copy_of_the_repository(tmp_path)
    table = (tmp_path / TABLE).read_text()
    assert table.count(FIRST) == 1
    (tmp_path / TABLE).write_text(table.replace(FIRST, FIRST + ROW))
    # The crates of this repository without optimization; all others as scripts/test has built them:
    # for the whole workspace, since cargo chooses their features by the packages that it builds.
    ours = [path.parent.name for path in REPO.glob("crates/*/Cargo.toml")]
    fast = [f"--config=profile.release.package.lorentz-{name}.opt-level=0" for name in ours]
    done = subprocess.run(
        ["cargo", "test", "--release", "--offline", "--locked", "--no-fail-fast"]
        + ["--workspace", "--lib", "--bins", *fast, "--", "of_the_table"],
        cwd=tmp_path,
        env={
            **os.environ,
            "CARGO_TARGET_DIR": str(REPO / "target"),
            "LORENTZ_WRITE_KEYWORDS": "1",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert set(re.findall(r"^test (\S+) \.\.\. ok$", done.stdout, re.MULTILINE)) == TESTS
    keywords = (tmp_path / "python/lorentz/clock_options.py").read_text()
    assert keywords.count("    #: Invented\n    invented: Duration\n") == 2
