"""Studies and reports: making small ones, and reading what they wrote."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
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
    """The metadata of a study, with values of JSON parsed."""
    found = pl.read_parquet_metadata(path)
    return {
        key: json.loads(value) if value[:1] in "{[" else value
        for key, value in found.items()
        if not key.startswith("ARROW")
    }


#: The environment of a simulated study.
FACTS = {"facts": {"kernel": "k", "processor": "p"}, "cpu": 0, "tsc_hertz": 10**9, "steal_s": 0.0}
#: Metrics of a simulated study, by kind.
SIMULATED = {
    "clocks": ("harness", "vdso_gettimeofday", "gettimeofday", "timer_create", "nanosleep"),
    "hot": ("hot_monotonic", "hot_boottime"),
    "cold": ("cold_monotonic",),
    "timers": ("cost_moment", "cost_clock_gettime", "miss_sleep", "miss_usleep"),
}


def simulated(
    path: Path,
    shifts: dict[str, float],
    rounds: int,
    seed: int,
    kind: str = "clocks",
    metrics: tuple[str, ...] = (),
) -> Path:
    """A study in which a level takes `1 + shift` times as long. All levels drift alike.

    A record of `cold` and `timers` has 10 samples, one of the other kinds has one.
    """
    random = np.random.default_rng(seed)
    metrics = metrics or SIMULATED[kind]
    loads = ["idle", "cpu", "io"] if kind == "timers" else ["idle"]
    samples = 10 if kind in ("cold", "timers") else 1
    settings = {"levels": list(shifts), "metrics": metrics, "loads": loads, "study": kind}
    settings |= {"calls": 1000, "sleeps": 1, "millis": 100, "samples": 50}
    rows = []
    for number in range(rounds):
        drift = 1 + 0.02 * np.sin(number / 10)
        for load in loads:
            for metric in metrics:
                asked = 500_000 if metric.startswith("miss") else 0
                for level, shift in shifts.items():
                    means = 200 * (1 + shift) * drift * random.normal(1, 0.01, samples)
                    key = (number, level, load, metric, float(number), 1000, asked, 1)
                    rows += [(*key, asked + mean) for mean in means]
    columns = ["round", "level", "load", "metric", "at_unix_s", "calls", "asked_ns"]
    frame = pl.DataFrame(rows, schema=[*columns, "elapsed_ticks", "mean_ns"], orient="row")
    about = {"lorentz_study_format": "1", "study": kind, "left_out": "{}"}
    about |= {"settings": json.dumps(settings), "environment": json.dumps(FACTS)}
    frame.write_parquet(path, metadata=about)
    return path


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
