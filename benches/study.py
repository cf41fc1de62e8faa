#!/usr/bin/env python3
"""Measure by `lorentz study`, judge by `lorentz report`, write docs/study.md.

    benches/study.py [--quick | --full]

Files and report go to build/study/quick, build/study/usual or build/study/full. A run that was
interrupted goes on where it stopped; one that is complete moves to `older` in there, and the new
one is compared with it. With --quick docs/study.md stays as it is. Needs root, and a machine that
does nothing else meanwhile. LORENTZ=PATH measures another build than target/release/lorentz.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LORENTZ = os.environ.get("LORENTZ", str(ROOT / "target/release/lorentz"))
PYTHON = ROOT / ".venv/bin/python"
KINDS = ("clocks", "hot", "cold", "timers")
#: All of them, and the control: where the host differs from itself, nothing is believed.
LEVELS = (
    *("baseline", "control", "namespace", "container", "lorentz", "lorentz-container"),
    *("podman", "runc", "libfaketime"),
)
#: The patch set's benchmarks have a column of their own for the host by itself.
WITH_BEFORE = ("hot", "cold")


def arguments() -> argparse.Namespace:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    effort = parser.add_mutually_exclusive_group()
    effort.add_argument("--quick", action="store_true", help="some minutes; writes no page")
    effort.add_argument("--full", action="store_true", help="as published: many hours")
    return parser.parse_args()


def put_aside(folder: Path, files: list[Path]) -> list[Path]:
    """Moves a complete run away; where it is then."""
    older = folder / "older"
    if all(file.exists() for file in files):
        shutil.rmtree(older, ignore_errors=True)
        older.mkdir(parents=True)
        for file in files:
            file.rename(older / file.name)
    return [older / file.name for file in files if (older / file.name).exists()]


def measure(kind: str, file: Path, effort: list[str]) -> None:
    """Makes one study, where it is not there yet."""
    if file.exists():
        return
    print(f"study: {kind}", file=sys.stderr)
    levels = ["before"] * (kind in WITH_BEFORE) + list(LEVELS)
    words = ["study", kind, "--output", file, "--levels", ",".join(levels), *effort]
    subprocess.run([LORENTZ, *words], check=True)


def main() -> int:
    """From the studies to the page; 1 if one of them failed."""
    wanted = arguments()
    name = "quick" if wanted.quick else "full" if wanted.full else "usual"
    folder = ROOT / "build/study" / name
    folder.mkdir(parents=True, exist_ok=True)
    files = [folder / f"{kind}.parquet" for kind in KINDS]
    older = put_aside(folder, files)
    against = [word for file in older for word in ("--against", file)]
    try:
        for kind, file in zip(KINDS, files, strict=True):
            measure(kind, file, [f"--{name}"] if name != "usual" else [])
        subprocess.run(
            [LORENTZ, "report", *files, "--output", folder / "report", *against],
            env={**os.environ, "LORENTZ_PYTHON": str(PYTHON)},
            check=True,
        )
        if not wanted.quick:
            subprocess.run([PYTHON, ROOT / "benches/study_page.py", folder], check=True)
            print("study: the figures are in docs/study.md", file=sys.stderr)
    except subprocess.CalledProcessError as error:
        print(f"study: {Path(error.cmd[0]).name} failed ({error.returncode})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("study: interrupted; the same command goes on", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
