"""Python programs and pytest suites of a test's own, each in a process of its own."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import textwrap
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

from framework import linked, needs
from framework.build import REPO

#: Real time after which a program counts as hanging, s.
LIMIT = 60

#: The plugin of the package where it lies; installed, it is found by its entry point.
PLUGIN = ("-p", "lorentz.pytest_plugin")


def environment(**more: str) -> dict[str, str]:
    """The environment of programs that use the Python package."""
    path = os.pathsep.join([str(REPO / "python"), os.environ.get("PYTHONPATH", "")])
    kept = {k: v for k, v in linked.environment().items() if not k.startswith("PYTEST_")}
    return {**kept, "PYTHONPATH": path.rstrip(os.pathsep), **more}


def module(name: str) -> None:
    """Skips unless a module is installed, which tests/requirements.txt lists."""
    if importlib.util.find_spec(name) is None:
        needs.missing(f"{name} is not installed (tests/requirements.txt lists the packages)")


def run(
    command: list, env: dict[str, str], timeout: float = LIMIT, **options: object
) -> subprocess.CompletedProcess:
    """Runs a command in a session of its own. After `timeout` real seconds it ends with all that it
    has started, which might keep the pipes open."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(
        command, env=env, start_new_session=True, **streams, **options
    ) as process:
        try:
            out, err = process.communicate(timeout=timeout)
        except BaseException:
            os.killpg(process.pid, signal.SIGKILL)
            raise
    return subprocess.CompletedProcess(command, process.returncode, out, err)


def python(
    text: str, *arguments: str, launcher: tuple[str, ...] = (), timeout: float = LIMIT, **env: str
) -> list:
    """Runs a program, which must succeed. Returns the lines that it prints, as JSON."""
    command = [*launcher, sys.executable, "-c", textwrap.dedent(text), *arguments]
    done = run(command, environment(**env), timeout)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def output(command: list, status: int = 0, **env: str) -> str:
    """Runs a command, which must exit with `status`. Returns both streams."""
    done = run(command, environment(**env))
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout + done.stderr


def pytest_output(*flags: str, **env: str) -> str:
    """Runs pytest without the plugin's flag. Returns what it prints."""
    return output([sys.executable, "-m", "pytest", *flags], **env)


@dataclass(frozen=True)
class Session:
    """A pytest session that has ended."""

    #: Exit status.
    status: int
    #: Both streams, one after the other.
    output: str
    #: The outcome of each test by its name: passed, failed, error or skipped.
    outcomes: dict[str, str]

    def passed(self) -> None:
        """Fails unless there were tests, and all have passed."""
        assert self.status == 0 and self.outcomes, self.output
        assert set(self.outcomes.values()) == {"passed"}, self.output


def suite(folder: Path, text: str, *flags: str, launcher: tuple[str, ...] = ()) -> Session:
    """Runs pytest on a file with these tests."""
    (folder / "test_it.py").write_text(textwrap.dedent(text))
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers -ra\n")
    report = folder / "report.xml"
    report.unlink(missing_ok=True)
    command = [*launcher, sys.executable, "-m", "pytest", *PLUGIN, f"--junitxml={report}", *flags]
    done = run(command, environment(), cwd=folder)
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase") if report.exists() else ():
        found = [kind for kind in ("failure", "error", "skipped") if case.find(kind) is not None]
        outcomes[case.get("name")] = (
            {"failure": "failed"}.get(*found, *found) if found else "passed"
        )
    return Session(done.returncode, done.stdout + done.stderr, outcomes)
