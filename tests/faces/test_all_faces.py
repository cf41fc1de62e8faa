"""Every face of time is virtual, refused, or named in docs/limits.md.

The test measures each virtual row at another date and rate, unless the row names another test that
does. It also measures each readable row of docs/limits.md, which must show the host's time; else
the page is no longer true. `test_face_tables.py` compares the rows with the kernel.
"""

from __future__ import annotations

import functools
import math
import sys
import time
from datetime import datetime, timezone

import pytest
from framework.all_faces import ALL, READ_AS, compared_files, names
from framework.build import PROGRAMS, REPO
from framework.faces import READ, Limit, Refused, SetOnce
from framework.running import Inside, Line

RATE = 10
NAP = 20
#: Time limit of the program, real seconds. It starts some hundred processes.
LIMIT = 240
pytestmark = pytest.mark.timeout(2 * LIMIT)
DAY = 86400
DATE = "2038-01-19"


@functools.cache
def measured() -> list[Line]:
    """The program's readings inside, at another date and rate."""
    command = [sys.executable, PROGRAMS / "faces" / "all_faces.py", str(NAP)]
    with Inside(*command, rate=str(RATE), at=DATE) as inside:
        inside.succeed(timeout=LIMIT)
        return inside.lines(ev="face")


@functools.cache
def limits() -> str:
    return " ".join((REPO / "docs" / "limits.md").read_text().split())


def readings(name: str) -> list[Line]:
    return [line for line in measured() if line["name"] == READ_AS.get(name, name)]


def shows(line: Line) -> str:
    """Returns the clock that a reading is from: `virtual`, `host`, or `neither` if it stands."""
    if line["tells"] == "date":
        inside = datetime.fromisoformat(DATE).replace(tzinfo=timezone.utc).timestamp()
        whose = {"virtual": abs(line["value"] - inside), "host": abs(line["value"] - time.time())}
        assert min(whose.values()) < DAY, line.data
        return min(whose, key=whose.get)
    if line["tells"] == "standing":
        assert line["passed"] == 0, line.data
        return "neither"
    if line["tells"] in ("ratio", "wait"):
        least = most = line["value"]
    else:
        least, most = line["passed"] / line["most"], line["passed"] / line["least"]
    # By the host's clock a wait would be RATE times as long: the nearer of the two counts. How late
    # waits end is for tests/waits.
    longest = math.sqrt(RATE) if line["tells"] == "wait" else 1.25
    # Some of the host's figures are in whole seconds; control groups include the launcher's CPU
    # time.
    virtual = most > 0.8 and least < longest
    host = most * RATE > 0.5 and least * RATE < 2.5
    assert virtual != host, line.data
    return "virtual" if virtual else "host"


@pytest.mark.parametrize("name", names(READ))
def test_a_virtual_face_shows_virtual_time(name):
    lines = readings(name)
    assert lines, f"{name}: nobody reads it"
    found = [line for line in lines if "error" not in line.data]
    if not found and name.endswith("_ALARM"):
        pytest.skip(f"{name}: {lines[0]['reason']} (a machine without a real-time clock)")
    assert found, lines[0].data
    assert [shows(line) for line in found] == ["virtual"] * len(found)


@pytest.mark.parametrize("name", names(Refused))
def test_a_refused_face_is_refused(name):
    assert [line["error"] for line in readings(name)] == [ALL[name].error]


@pytest.mark.parametrize("name", names(Limit))
def test_a_face_that_stays_real_stands_in_the_page_of_limits(name):
    words = ALL[name].words
    assert words in limits(), f"{name}: '{words}' does not stand in docs/limits.md"
    row = ALL[name]
    if not (row.judge or name in compared_files() or readings(name)):
        assert row.needs, f"{name}: no program reads it"
        pytest.skip(f"{name}: is not read; it needs {row.needs}")
    for line in readings(name):
        if "error" in line.data:
            pytest.skip(f"{name}: cannot be read here: {line['reason']}")
        assert shows(line) != "virtual", f"{name} is virtual: take it out of docs/limits.md"


@pytest.mark.parametrize("name", names(SetOnce))
def test_a_timeout_that_changes_do_not_reach_is_virtual_as_long_as_there_are_none(name):
    assert ALL[name].words in limits()
    assert [shows(line) for line in readings(name)] == ["virtual"]


def test_each_reading_has_a_row():
    rows = ALL.keys() | set(READ_AS.values())
    assert {line["name"] for line in measured()} <= rows
