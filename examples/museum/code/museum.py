"""The museum of clock bugs: fetches the exhibits' programs, runs exhibits, judges what they print.

Each directory here with a `facts.json` is an exhibit:

    facts.json  program, packages, source, and two patterns: `bug` matches the output where the bug
                shows, `well` where it does not
    run         shows the bug by lorentz; a shell script of some lines
    faketime    the same by libfaketime, as far as it can

`run` is also the control: with the packages or the variables of `control` in facts.json.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import packages
from packages import ROOT, CannotBeHadError

HERE = Path(__file__).resolve().parent.parent
LORENTZ = Path(os.environ.get("LORENTZ", ROOT / "target/release/lorentz"))
#: Real time after which a script counts as hanging, s.
LIMIT = 120
TIMEOUT = subprocess.TimeoutExpired

#: The ways to run an exhibit.
ARMS = ("bug", "control", "faketime")


@dataclass(frozen=True)
class Result:
    """The output of an exhibit's script."""

    #: "bug", "well", or "neither".
    verdict: str
    output: str


@dataclass(frozen=True)
class Exhibit:
    """A directory with a bug in it."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @cached_property
    def facts(self) -> dict:
        return json.loads((self.folder / "facts.json").read_text())

    def check_needs(self) -> None:
        """Raises CannotBeHadError unless the machine has what the exhibit needs."""
        for tool in self.facts.get("needs", []):
            if tool == "root":
                if os.geteuid() != 0:
                    raise CannotBeHadError("it needs root")
            elif shutil.which(tool) is None:
                raise CannotBeHadError(f"{tool} is not installed")

    def run(self, arm: str) -> Result:
        """Runs one arm. Raises CannotBeHadError if its programs cannot be had."""
        self.check_needs()
        control = self.facts["control"] if arm == "control" else {}
        wanted = control.get("packages", self.facts.get("packages", []))
        environment = {**packages.environment(wanted), **control.get("variables", {})}
        if arm == "faketime":
            if shutil.which("faketime") is None:
                raise CannotBeHadError("faketime is not installed")
            environment["FAKETIME_NO_CACHE"] = "1"
        script = self.folder / ("faketime" if arm == "faketime" else "run")
        output = execute(script, environment)
        return Result(self.verdict(output), output)

    def verdict(self, output: str) -> str:
        """Tells by the two patterns what the output shows."""
        bug = re.search(self.facts["bug"], output, re.MULTILINE)
        well = re.search(self.facts["well"], output, re.MULTILINE)
        if bool(bug) == bool(well):
            return "neither"
        return "bug" if bug else "well"


def exhibits() -> list[Exhibit]:
    """All exhibits, in the order of their names."""
    return [Exhibit(path.parent) for path in sorted(HERE.glob("*/facts.json"))]


def execute(script: Path, environment: dict[str, str]) -> str:
    """Runs a script in an empty directory. Returns both streams. Ends what the script started."""
    with tempfile.TemporaryDirectory(prefix="museum-", ignore_cleanup_errors=True) as folder:
        state = Path(folder, "state")
        work = Path(folder, "work")
        work.mkdir()
        path = os.pathsep.join([str(LORENTZ.parent), environment.pop("PATH")])
        variables = {"PATH": path, "LORENTZ_STATE_DIR": str(state), "TZ": "UTC", "LC_ALL": "C"}
        # A file, not a pipe: programs that the script leaves behind would keep a pipe open.
        with Path(folder, "output").open("w+", errors="replace") as output:
            process = subprocess.Popen(
                [script],
                env={**os.environ, **variables, **environment},
                cwd=work,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            with ended(process, {**os.environ, **variables}), contextlib.suppress(TIMEOUT):
                process.wait(timeout=LIMIT)
            output.seek(0)
            return output.read()


@contextlib.contextmanager
def ended(process: subprocess.Popen, environment: dict[str, str]) -> Iterator[None]:
    """After the block, ends the script's containers and processes."""
    try:
        yield
    finally:
        listed = subprocess.run(
            [LORENTZ, "ps", "--json"], env=environment, capture_output=True, text=True
        )
        with contextlib.suppress(ValueError):
            for container in json.loads(listed.stdout):
                command = [LORENTZ, "rm", "--force", container["name"]]
                subprocess.run(command, env=environment, capture_output=True)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    sys.exit("scripts/museum runs the exhibits")
