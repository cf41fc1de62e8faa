"""The part of a page of docs/ that a benchmark writes."""

from __future__ import annotations

from pathlib import Path


def write(page: Path, lines: list[str], part: str = "measured") -> None:
    """Replaces what stands between the two marks of that part of `page`."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    text = page.read_text()
    before, after = text.split(begin)[0], text.split(end)[1]
    page.write_text("\n".join([before + begin, "", *lines, "", end]) + after)
