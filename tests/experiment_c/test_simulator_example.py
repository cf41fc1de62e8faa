"""examples/simulator: a simulator that moves two containers and carries their messages, in C and in
Python."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from framework import build, lorentz, needs
from framework.linked import environment

FOLDER = build.REPO / "examples" / "simulator"
DELAY_MS = 20


def by_python(tdf: str) -> list[str]:
    options = ["--delay", str(DELAY_MS), "--requests", "5", "--tdf", tdf]
    return [sys.executable, str(FOLDER / "exchange.py"), *options]


def by_c() -> list[str]:
    program = build.linked("../../examples/simulator/exchange", "lorentz")
    return [str(program), str(DELAY_MS * 10**6), "5"]


@pytest.mark.parametrize("language", ["python-1", "python-3", "c"])
def test_a_message_takes_the_links_delay(language):
    needs.root()
    needs.feature("cgroup-freeze")
    command = by_c() if language == "c" else by_python(language.split("-")[1])
    env = {**environment(), "PYTHONPATH": str(build.REPO / "python")}
    done = subprocess.run(command, env=env, cwd=FOLDER, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("5 requests over a link of 20 ms")
    least, most = map(float, re.findall(r"([0-9.]+) ms at", done.stdout))
    # There and back, and what the program computes meanwhile in virtual time, which other load
    # makes longer. A step too many would be as long as the delay.
    assert 2 * DELAY_MS <= least <= most
    assert least < 3 * DELAY_MS
    assert lorentz.json_of("experiment", "status") == []
