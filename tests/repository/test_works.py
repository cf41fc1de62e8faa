"""docs/works.md and docs/promises.md: each test that a row names exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
#: `dir/file.py::name`, `crates/x/src/y.rs::name`, `benches/x.py::name`. `::name` is of the file
#: before, on promises.md also of a row before.
NAMED = re.compile(r"`([\w./-]+\.(?:py|rs))?::([\w:]+)(?:\[[^`]*\])?`")


def names(page: str) -> list[tuple[str, str]]:
    found = []
    file = ""
    for match in NAMED.finditer((ROOT / "docs" / page).read_text()):
        file = match[1] or file
        # promises.md explains its column with a.py::b.
        if file != "a.py":
            found.append((file, match[2].split("::")[-1]))
    return found


def text_of(file: str) -> str:
    for folder in (ROOT, ROOT / "tests"):
        if (folder / file).is_file():
            return (folder / file).read_text()
    return ""


@pytest.mark.parametrize("page", ["works.md", "promises.md"])
def test_each_named_test_is_there(page):
    named = names(page)
    assert len(named) > 50
    missing = [
        f"{file}::{name}"
        for file, name in named
        if not re.search(rf"\b(?:def|fn|class) {name}\b", text_of(file))
    ]
    assert missing == []
