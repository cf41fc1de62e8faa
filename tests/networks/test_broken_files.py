"""Files of other emulators, broken in many ways: each is taken, or refused in one line with the
place of the mistake."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from framework import lorentz

SCENARIOS = Path(__file__).parent / "scenarios"

#: A file of each importer that has most of what it reads.
FILES = {
    "core": "campus.xml",
    "imn of CORE 4": "core4/asymmetric.imn",
    "imn of IMUNES": "imunes/router-auto-routes.imn",
    "containerlab": "edge.clab.yml",
    "kathara": "kathara/lab.conf",
}
#: Number of ways in which each file is broken, at the most.
MAX_TEXTS = 40


def broken(text: str) -> Iterator[str]:
    """The text with an end, a line, a character, a number or a word that is not as it should be."""
    lines = text.splitlines(keepends=True)
    for at, line in enumerate(lines):
        before, after = "".join(lines[:at]), "".join(lines[at + 1 :])
        yield before + line[: len(line) // 2]
        yield before + after
        yield before + line + line + after
        for pattern, new in ((r"\d+", "x!"), (r"\d+", "-1"), (r"[a-z]{3,}", ""), (r"\d", "9" * 30)):
            changed = re.sub(pattern, new, line, count=1)
            if changed != line:
                yield before + changed + after
    for at in (at for at, c in enumerate(text) if c in '{}[]<>":=/'):
        yield text[:at] + text[at + 1 :]
        yield text[:at] + text[at] + text[at:]


@pytest.mark.parametrize("format", FILES)
def test_a_broken_file_is_taken_or_refused_in_one_line(format, tmp_path):
    original = SCENARIOS / FILES[format]
    all_ways = list(dict.fromkeys(broken(original.read_text())))
    refused = 0
    file = tmp_path / original.name
    for text in all_ways[:: -(-len(all_ways) // MAX_TEXTS)]:
        file.write_text(text)
        done = lorentz.call("up", "--check", str(file))
        told = [line for line in done.stderr.splitlines() if "left out: " not in line]
        assert done.returncode in (0, 2), (text, done)
        if done.returncode == 0:
            assert not told, (text, told)
            continue
        refused += 1
        assert not done.stdout and len(told) == 1, (text, told)
        place = re.match(rf"lorentz: {re.escape(str(file))}:(\d+):(\d+): \S", told[0])
        assert place, (text, told)
        assert 1 <= int(place[1]) <= text.count("\n") + 2, (text, told)
    # Most of these are mistakes indeed.
    assert refused >= MAX_TEXTS // 8
