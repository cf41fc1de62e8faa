"""The part of a page of docs/ that a benchmark writes."""

from __future__ import annotations

from pathlib import Path

BEGIN, END = "<!-- measured: begin -->", "<!-- measured: end -->"


def write(page: Path, lines: list[str]) -> None:
    """Replaces what stands between the two marks of `page`."""
    text = page.read_text()
    before, after = text.split(BEGIN)[0], text.split(END)[1]
    page.write_text("\n".join([before + BEGIN, "", *lines, "", END]) + after)
