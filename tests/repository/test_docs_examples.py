"""scripts/docs-examples, and the pages whose commands it runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from framework import lorentz
from framework.build import REPO

HOW_TO = sorted(page.relative_to(REPO) for page in (REPO / "docs/how-to").glob("*.md"))
PAGES = [Path("README.md"), Path("docs/tutorial.md"), *HOW_TO]


def examples(page: Path, timeout: float) -> subprocess.CompletedProcess:
    """Runs the script on a page."""
    return subprocess.run(
        [sys.executable, REPO / "scripts/docs-examples", page],
        env={**os.environ, "LORENTZ_BUILT": str(lorentz.session.binary.parent)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@pytest.fixture
def page(tmp_path):
    """Writes a page and returns what the script says of it."""

    def of(text: str) -> subprocess.CompletedProcess:
        file = tmp_path / "page.md"
        file.write_text(text)
        return examples(file, timeout=60)

    return of


@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_shows_what_its_commands_do(page):
    done = examples(REPO / page, timeout=290)
    assert done.returncode == 0, done.stdout + done.stderr


def test_commands_share_a_shell(page):
    assert page("```console\n$ word=one\n$ echo $word\none\n```\n").returncode == 0


def test_other_output_is_an_error(page):
    done = page("text\n\n```console\n$ echo one\ntwo\n```\n")
    assert done.returncode == 1
    assert "page.md:4: echo one: the page shows other output" in done.stderr


def test_another_status_is_an_error(page):
    done = page("```console\n$ false\n```\n")
    assert done.returncode == 1
    assert "exit status 1, not 0" in done.stderr


def test_comments_change_what_is_expected(page):
    text = (
        "<!-- example: exit 3; digits vary -->\n```console\n$ sh -c 'echo a 17; exit 3'\na 4\n```\n"
        "<!-- example: file words -->\n```text\nfirst\nsecond\n```\n"
        "```console\n$ cat words words\nf...t\n...\nsecond\n```\n"
    )
    done = page(text)
    assert done.returncode == 0, done.stderr
    assert "2 commands as shown" in done.stdout


def test_a_duration_varies_in_its_units(page):
    text = (
        "<!-- example: digits vary -->\n```console\n$ echo 26335d56m53.7s 12.5us 40 0s\n{}\n```\n"
    )
    assert page(text.format("26335d5h21m16.81s 0ns 7 1.5ms")).returncode == 0
    assert page(text.format("26335d5h21m16.81s 0ns 7s 1.5ms")).returncode == 1


def test_a_skipped_block_is_named_with_its_reason(page):
    done = page("<!-- example: needs no-such-tool -->\n```console\n$ false\n```\n")
    assert done.returncode == 0
    assert "page.md:2: skipped: needs no-such-tool: not here" in done.stdout
