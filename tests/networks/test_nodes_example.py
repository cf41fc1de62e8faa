"""examples/nodes: TimeKeeper's lxcStarter, by `lorentz up`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from framework import lorentz, needs

PROGRAM = Path(__file__).parents[2] / "examples" / "nodes" / "nodes.py"


def nodes(name: str, folder: Path, *words: str, lines: str) -> subprocess.CompletedProcess:
    [binary] = lorentz.session.command()
    return subprocess.run(
        [sys.executable, PROGRAM, *words, "--name", name, "--output", folder],
        input=lines,
        capture_output=True,
        text=True,
        timeout=300,
        env={**lorentz.session.environment(), "LORENTZ": binary},
    )


@pytest.mark.parametrize("manner", [[], ["--rounds"]], ids=["running", "rounds"])
def test_commands_go_to_one_or_to_all(manner: list[str], tmp_path: Path):
    needs.root()
    needs.feature("taps")
    name = f"lt{os.getpid()}-nodes{len(manner)}"
    lines = "all hostname\n2 ping -c 1 10.0.0.3\n\n5 true\nnobody true\nexit\n"
    done = nodes(name, tmp_path, "3", "2", *manner, lines=lines)
    assert done.returncode == 0, done.stderr
    written = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert sorted(written) == [f"node-{number}.output" for number in (1, 2, 3)]
    assert written["node-1.output"] == "node-1\n"
    assert written["node-2.output"].startswith("node-2\n")
    assert "1 received" in written["node-2.output"]
    assert "'5 true': wanted is 1 to 3 or 'all', then a command" in done.stdout
    assert "'nobody true': wanted is" in done.stdout
    assert "no such network" in lorentz.call("inspect", name, timeout=60).stderr


def test_how_many_is_checked(tmp_path: Path):
    done = nodes("none", tmp_path, "0", "2", lines="")
    assert done.returncode == 2 and "COUNT '0': accepted is 1 to 999" in done.stderr
