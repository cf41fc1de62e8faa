"""scripts/check-links: each link leads to a file and a heading, and the book has each page."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from framework.build import REPO

PAGE = """# The page

## `lorentz run`: what it *does*, and why

## Again

## Again

```console
# A comment, no heading
$ cat [x](nowhere.md)
```

<a id="own"></a>
"""


def check(folder: Path, links: str) -> list[str]:
    """Calls the script for a page with these links. Returns the broken ones."""
    (folder / "docs").mkdir()
    (folder / "docs/SUMMARY.md").write_text("- [Page](page.md)\n- [Links](links.md)\n")
    (folder / "docs/page.md").write_text(PAGE)
    (folder / "docs/links.md").write_text(f"# Links\n\n{links}\n")
    subprocess.run(["git", "init", "--quiet", folder], check=True)
    done = subprocess.run(
        [REPO / "scripts/check-links", folder], capture_output=True, text=True, check=False
    )
    assert done.returncode == (1 if done.stderr else 0)
    return done.stderr.splitlines()


@pytest.mark.parametrize(
    "target",
    [
        "page.md",
        "page.md#lorentz-run-what-it-does-and-why",
        "page.md#again",
        "page.md#again-1",
        "page.md#own",
        "#links",
        "https://example.org/#anything",
    ],
)
def test_a_link_that_leads_somewhere(tmp_path, target):
    assert check(tmp_path, f"[x]({target})") == []


@pytest.mark.parametrize(
    "target",
    [
        "nowhere.md",
        "page.md#nowhere",
        "page.md#again-2",
        "#the-page",
        "page.md#a-comment-no-heading",
    ],
)
def test_a_link_that_leads_nowhere(tmp_path, target):
    assert check(tmp_path, f"[x]({target})") == [f"docs/links.md: {target} is not there"]


def test_code_is_no_link(tmp_path):
    assert check(tmp_path, "`[x](nowhere.md)`") == []


def test_a_page_that_is_not_in_the_book(tmp_path):
    (tmp_path / "README.md").write_text("# Read me\n")
    (tmp_path / "docs/how-to").mkdir(parents=True)
    (tmp_path / "docs/how-to/new.md").write_text("# New\n")
    (tmp_path / "docs/SUMMARY.md").write_text("")
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    done = subprocess.run(
        [REPO / "scripts/check-links", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.stderr == "docs/how-to/new.md: not listed in docs/SUMMARY.md\n"


def test_this_repository():
    subprocess.run([REPO / "scripts/check-links"], check=True)
