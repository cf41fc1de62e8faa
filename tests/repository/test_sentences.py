"""scripts/sentences: no sentence of the prose opens with What or Who, unless it is a question."""

from __future__ import annotations

from pathlib import Path

import pytest
from framework import scripts
from framework.build import REPO

SCRIPT = REPO / "scripts/sentences"


@pytest.fixture(scope="module")
def script():
    """The script as a module."""
    return scripts.load("sentences")


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("a.rs", "\n/// What it does.\nfn f() {}\n", 2),
        ("a.rs", "    // A clock. Who reads it\n    // gets a time.\n", 1),
        ("a.c", "// A clock:\n// Whoever reads it.\n", 2),
        ("a.py", '"""What it does."""\n', 1),
        ("a.py", "#: What it does.\nX = 1\n", 1),
        ("a.md", "# Page\n\n## What it does\n", 3),
        ("a.md", "- One.\n- Whose clock\n  it is.\n", 2),
        ("a.md", "| a | What it does |\n", 1),
        ("a.rs", "// What is it?\n", None),
        ("a.rs", "// It says what it does, and\n// to whom.\n", None),
        ("a.rs", 'let text = "What it does.";\n', None),
        ("a.md", "What does it do? It reads.\n", None),
        ("a.md", "```\nWhat it prints\n```\n", None),
    ],
)
def test_such_a_sentence_is_found(script, name, text, line):
    found = [entry.split(": ")[0] for entry in script.found_in(Path(name), text)]
    assert found == ([] if line is None else [f"{name}:{line}"])
