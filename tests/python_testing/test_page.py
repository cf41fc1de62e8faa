"""The page docs/python-testing.md: its table, and its examples as written."""

from __future__ import annotations

import os
import re
import sys

import pytest
from framework import needs, suites, time_tools


@pytest.mark.parametrize("tool", time_tools.TOOLS)
@pytest.mark.timeout(600)
def test_the_table_says_what_sees_the_time(tool):
    """LORENTZ_WRITE_TABLE=1 writes the table anew, with the first tool."""
    if os.environ.get("LORENTZ_WRITE_TABLE") and tool == time_tools.TOOLS[0]:
        columns = {each: time_tools.column(each) for each in time_tools.TOOLS}
        time_tools.write("sees", time_tools.rendered(columns))
    if tool == "libfaketime":
        needs.tool("faketime")
    elif tool in time_tools.NEEDS:
        suites.module(time_tools.NEEDS[tool])
    shown = time_tools.shown()[tool]
    found = {probe: cell for probe, cell in time_tools.column(tool).items() if cell is not None}
    assert found == {probe: shown[probe] for probe in found}


def blocks() -> list[str]:
    """The page's blocks of Python."""
    return re.findall(r"^```python\n(.*?)^```$", time_tools.PAGE.read_text(), re.DOTALL | re.M)


@pytest.mark.parametrize("number", range(4))
def test_an_example_runs_as_written(number, tmp_path):
    found = blocks()
    assert len(found) == 4, found
    if "async def test" in found[number]:
        suites.module("pytest_asyncio")
    if "def test_" in found[number]:
        suites.suite(tmp_path, found[number]).passed()
    else:
        (tmp_path / "program.py").write_text(found[number])
        suites.output([sys.executable, tmp_path / "program.py"])
