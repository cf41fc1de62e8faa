"""scripts/shared-words: each atomic read-modify-write and file lock has an entry in the design."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from framework.build import REPO

CODE = """
use std::sync::atomic::{AtomicU64, Ordering};

/// A comment about fetch_add(1) is none.
pub struct Shared { words: [AtomicU64; 2] }

impl Shared {
    pub fn count(&self) -> [u64; 2] {
        self.words[0].fetch_add(1, Ordering::Relaxed);
        [self.words[1].swap(
            0,
            Ordering::AcqRel,
        ), "x.fetch_add(1)".len() as u64]
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        [1, 2].swap(0, 1);
    }
}

pub fn claim(file: File) -> bool {
    Flock::lock(file, FlockArg::LockExclusive).is_ok()
}

#[cfg(test)]
mod tests {
    fn not_counted(word: &AtomicU64) {
        word.fetch_sub(1, Ordering::Relaxed);
    }
}
"""
HEAD = "# Design\n\n## Shared state\n\n| place | holder | safe |\n|---|---|---|\n"
COUNT = "| `one/src/lib.rs::Shared::count` x2 | nobody | yes |\n"
CLAIM = "| `one/src/lib.rs::claim` | a process | the kernel |\n"
TAIL = "\n## More\n\n| `one/src/lib.rs::elsewhere` | | |\n"


def tree(folder: Path, rows: str, code: str = CODE) -> Path:
    """A repository with one crate and one page."""
    (folder / "crates/one/src").mkdir(parents=True)
    (folder / "docs").mkdir()
    (folder / "crates/one/src/lib.rs").write_text(code)
    (folder / "docs/design.md").write_text(HEAD + rows + TAIL)
    return folder


def check(root: Path) -> tuple[int, str]:
    """Calls the script. Returns its status and its output."""
    command = [REPO / "scripts/shared-words", root]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr


def test_the_table_is_complete():
    assert check(REPO) == (0, "")


def test_a_table_that_covers_all_is_right(tmp_path):
    assert check(tree(tmp_path, COUNT + CLAIM)) == (0, "")


def test_a_file_of_the_models_needs_no_entry(tmp_path):
    code = f"//! Atomics of the models.\n\n#![cfg(loom)]\n{CODE}"
    assert check(tree(tmp_path, "", code)) == (0, "")


def test_a_place_without_an_entry_is_named(tmp_path):
    status, printed = check(tree(tmp_path, COUNT))
    line = CODE.splitlines().index("    Flock::lock(file, FlockArg::LockExclusive).is_ok()") + 1
    assert status == 1
    assert f"crates/one/src/lib.rs:{line}: claim: Flock::lock(file" in printed
    assert "has no entry" in printed


def test_one_more_in_a_function_is_noticed(tmp_path):
    status, printed = check(tree(tmp_path, COUNT.replace(" x2", "") + CLAIM))
    assert status == 1
    assert "has 1 of 2" in printed and ".swap(" in printed


@pytest.mark.parametrize(
    "row",
    ["| `one/src/lib.rs::gone` | | |\n", "| `gone/src/lib.rs::claim` | | |\n", CLAIM],
)
def test_an_entry_that_covers_nothing_is_named(tmp_path, row):
    status, printed = check(tree(tmp_path, COUNT + CLAIM + row))
    assert status == 1
    assert printed.startswith("docs/design.md:")
    assert len(printed.splitlines()) == 1
