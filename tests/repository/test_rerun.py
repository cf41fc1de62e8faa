"""scripts/test: it runs one failed test once more and names it FLAKY; two failures are a failure.

The script runs here with stand-ins for cargo and pytest.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from framework.build import REPO

CARGO = """#!/bin/sh
echo "test result: ok. 3 passed; 0 failed; 0 ignored"
"""
PYTEST = """#!/bin/sh
case "$*" in
    *last-failed*) echo "== 1 done, as told in 0.01s =="; exit "$AGAIN" ;;
    *live_change* | *"-m alone"* | *"-m patient"*) echo "== 5 passed in 0.01s =="; exit 0 ;;
esac
for test in $FAILING; do echo "FAILED tests/x.py::test_$test - AssertionError: no"; done
echo "== 7 passed in 0.01s =="
[ -z "$FAILING" ]
"""


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


@pytest.fixture
def script(tmp_path):
    """Calls the script where `failing` tests fail, and again with status `again`."""
    (tmp_path / "scripts").mkdir()
    for name in ("test", "common.sh"):
        shutil.copy(REPO / "scripts" / name, tmp_path / "scripts")
    executable(tmp_path / "scripts/failpoints", "#!/bin/sh\n")
    executable(tmp_path / "bin/cargo", CARGO)
    executable(tmp_path / ".venv/bin/python", PYTEST)

    def script(failing: str, again: int = 0) -> tuple[int, list[str]]:
        path = f"{tmp_path}/bin:{os.environ['PATH']}"
        env = {**os.environ, "PATH": path, "FAILING": failing, "AGAIN": str(again)}
        command = [tmp_path / "scripts/test"]
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
        return done.returncode, done.stdout.splitlines()

    return script


def test_nothing_fails(script):
    status, lines = script("")
    assert (status, lines[-1]) == (0, "all passed")
    assert not any("FLAKY" in line for line in lines)


def test_one_that_passes_the_second_time_is_named(script):
    status, lines = script("one")
    assert (status, lines[-1]) == (0, "all passed")
    assert "FLAKY tests/x.py::test_one" in lines


def test_one_that_fails_twice_is_a_failure(script):
    status, lines = script("one", again=1)
    assert (status, lines[-1]) == (1, "FAILED")
    assert "FAILED tests/x.py::test_one" in lines
    assert not any("FLAKY" in line for line in lines)


def test_two_are_not_run_again(script):
    status, lines = script("one two")
    assert (status, lines[-1]) == (1, "FAILED")
    assert not any("again" in line or "FLAKY" in line for line in lines)
