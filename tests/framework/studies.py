"""Studies and reports: making small ones, and reading their files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl

from framework import lorentz
from framework.lorentz import session

#: A study of few levels and short records.
SMALL = ("--quick", "--levels", "baseline,namespace,lorentz", "--records", "4", "--calls", "2000")
#: Metrics without the sleeps of 100 ms.
METRICS = "harness,vdso_clock_gettime_monotonic,clock_gettime_monotonic,timerfd_settime"
#: A report loads the statistics' libraries twice, on a machine that may be busy.
TIMEOUT = 240


def study(kind: str, output: Path, *options: str, **more: object) -> subprocess.CompletedProcess:
    """Runs `lorentz study`, good or bad."""
    return lorentz.call(
        "study", kind, "--output", str(output), *options, **{"timeout": TIMEOUT, **more}
    )


def made(kind: str, output: Path, *options: str) -> Path:
    """A study that must succeed."""
    done = study(kind, output, *options)
    assert done.returncode == 0, done.stderr
    return output


def report(*arguments: str | Path) -> subprocess.CompletedProcess:
    """Runs `lorentz report` by the Python of the tests, good or bad."""
    env = {**session.environment(), "LORENTZ_PYTHON": sys.executable}
    return lorentz.call("report", *map(str, arguments), timeout=TIMEOUT, env=env)


def metadata(path: Path) -> dict:
    """Returns the metadata of a study; texts of JSON are parsed."""
    found = pl.read_parquet_metadata(path)
    return {
        key: json.loads(value) if value[:1] in "{[" else value
        for key, value in found.items()
        if not key.startswith("ARROW")
    }


def rewritten(path: Path, to: Path, **changes: str) -> Path:
    """The same study with other metadata."""
    found = {**pl.read_parquet_metadata(path), **changes}
    pl.read_parquet(path).write_parquet(to, metadata=found)
    return to


def path_with(folder: Path, **programs: str) -> dict[str, str]:
    """An environment in which these programs are scripts of ours."""
    folder.mkdir()
    for name, script in programs.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {**session.environment(), "PATH": f"{folder}:{os.environ['PATH']}"}
