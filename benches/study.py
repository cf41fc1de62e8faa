#!/usr/bin/env python3
"""Measure by `lorentz study`, judge by `lorentz report`, write docs/study.md.

    benches/study.py [--quick | --published | --full]

Files and report go to build/study, to a folder for each option and to `usual` without one. An
interrupted run continues where it stopped. A complete run moves to the subfolder `older`, and the
new one is compared with it. With --quick no page is written; --published writes
docs/study-as-published.md. Needs root, and a machine without other load. LORENTZ=PATH measures
another build than target/release/lorentz.
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
#: All levels, and the control: if the host differs from itself, the study is not credible.
LEVELS = (
    *("baseline", "control", "namespace", "container", "container-overlay"),
    *("lorentz", "lorentz-container", "docker", "podman", "runc", "libfaketime"),
)
#: The studies of the patch set's benchmarks, which have a column for the host alone.
WITH_BEFORE = ("hot", "cold")
#: The cost paper's own levels.
PUBLISHED = ("baseline", "namespace", "container")
#: Amount of measurement for each option, if not the usual.
EFFORTS = {
    "quick": "some minutes; writes no page",
    "published": "the cost paper's study alone, its levels and its records: 90 minutes",
    "full": "all studies and levels with the papers' records: many hours",
}


def arguments() -> argparse.Namespace:
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    effort = parser.add_mutually_exclusive_group()
    for name, text in EFFORTS.items():
        effort.add_argument(f"--{name}", dest="effort", action="store_const", const=name, help=text)
    parser.set_defaults(effort="usual")
    return parser.parse_args()


def put_aside(folder: Path, files: list[Path]) -> list[Path]:
    """Moves a complete run away. Returns its new place."""
    older = folder / "older"
    if all(file.exists() for file in files):
        shutil.rmtree(older, ignore_errors=True)
        older.mkdir(parents=True)
        for file in files:
            file.rename(older / file.name)
    return [older / file.name for file in files if (older / file.name).exists()]


def measure(kind: str, file: Path, effort: str) -> None:
    """Makes one study, if it does not exist yet."""
    if file.exists():
        return
    print(f"study: {kind}", file=sys.stderr)
    levels = PUBLISHED if effort == "published" else ("before",) * (kind in WITH_BEFORE) + LEVELS
    words = ["study", kind, "--output", file, "--levels", ",".join(levels)]
    of = {"usual": [], "quick": ["--quick"]}.get(effort, ["--full"])
    subprocess.run([LORENTZ, *words, *of], check=True)


def main() -> int:
    """Makes studies and page. Returns 1 if a study failed."""
    effort = arguments().effort
    folder = ROOT / "build/study" / effort
    folder.mkdir(parents=True, exist_ok=True)
    kinds = ("clocks",) if effort == "published" else KINDS
    files = [folder / f"{kind}.parquet" for kind in kinds]
    older = put_aside(folder, files)
    against = [word for file in older for word in ("--against", file)]
    try:
        for kind, file in zip(kinds, files, strict=True):
            measure(kind, file, effort)
        subprocess.run(
            [LORENTZ, "report", *files, "--output", folder / "report", *against],
            env={**os.environ, "LORENTZ_PYTHON": str(PYTHON)},
            check=True,
        )
        if effort != "quick":
            subprocess.run([PYTHON, ROOT / "benches/study_page.py", folder], check=True)
    except subprocess.CalledProcessError as error:
        print(f"study: {Path(error.cmd[0]).name} failed ({error.returncode})", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("study: interrupted; the same command goes on", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
