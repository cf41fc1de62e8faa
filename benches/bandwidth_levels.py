"""Available bandwidth from inside each environment (the timing paper's figures 16, 17 and 19).

The sender runs on the host, with and without preloaded timers, in namespaces, in virtual time and
in a container of podman's, over the paths of bandwidth.py; the rest of a path stays where it is.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import bandwidth
import machine
import page_part
from levels import LORENTZ, ROOT

#: Estimates of each kind.
TRIALS = 5
PATHS = ((bandwidth.SCENARIOS[0], 100), (bandwidth.SCENARIOS[1], 500))
METHODS = ("yaz", "trains")
PRELOAD = ROOT / "target/release/liblorentz_timers_preload.so"
VIRTUAL = (LORENTZ, "run", "--offset", "+1d", "--rate", "1")
LIMITS = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1024:1024")
ALONE = ("--mount", "--pid", "--ipc", "--uts", "--cgroup", "--fork", "--kill-child")


@contextmanager
def root() -> Iterator[Path]:
    """A root file system that holds `lorentz` and its libraries."""
    with tempfile.TemporaryDirectory(prefix="lorentz-bench-") as name:
        folder = Path(name)
        for made in ("proc", "dev", "sys", "tmp", "etc", "run", "var/tmp"):
            (folder / made).mkdir(parents=True)
        text = subprocess.run(["ldd", LORENTZ], capture_output=True, text=True, check=True).stdout
        for file in [word for word in text.split() if word.startswith("/")]:
            to = folder / file.lstrip("/")
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)
        shutil.copy(LORENTZ, folder / "lorentz")
        yield folder


def environments(folder: Path) -> dict[str, tuple[str, ...]]:
    """Returns for each environment the words before the sender's own."""
    podman = ("podman", "--runtime", "runc", "run", "--rm", "--network", "host", *LIMITS)
    return {
        "host": (LORENTZ,),
        # The estimator as it is, its gettimeofday and usleep replaced by the precise timers.
        "host, preloaded": ("env", f"LD_PRELOAD={PRELOAD}", LORENTZ),
        "namespaces": ("unshare", *ALONE, "--mount-proc", "--", LORENTZ),
        "lorentz": (*VIRTUAL, "--", LORENTZ),
        "lorentz-container": (
            *VIRTUAL,
            "--network",
            "host",
            "--rootfs",
            str(folder),
            "--",
            "/lorentz",
        ),
        "podman": (*podman, "--rootfs", str(folder), "/lorentz"),
    }


def measure(quick: bool, folder: Path) -> list[list[str]]:
    """Returns a row for each path, method, pacing and environment."""
    rows = []
    ways = environments(folder)
    for scenario, cross in PATHS[:1] if quick else PATHS:
        found: dict[tuple[str, str, str], list] = {}
        with bandwidth.path(scenario, cross, seconds=3600) as inside:
            # One of each kind after another: disturbances of the host hit all kinds alike.
            for _ in range(2 if quick else TRIALS):
                for method in METHODS:
                    for timers in bandwidth.TIMERS:
                        for name, words in ways.items():
                            one = bandwidth.estimate(inside, scenario, method, timers, words)
                            found.setdefault((method, timers, name), []).append(one)
        for (method, timers, name), of in found.items():
            if not any(of):
                raise RuntimeError(f"{name}: no estimate in {len(of)} trials")
            one = bandwidth.row(scenario, cross, method, timers, of)
            median = bandwidth.shown(one["median"])
            error = one["median"] and 100 * (one["median"] / one["truth"] - 1)
            cells = [scenario.name, str(cross), str(one["truth"]), method, timers, name]
            cells += [f"{one['values']} of {one['trials']}", median, bandwidth.shown(error, "+.1f")]
            rows.append([*cells, bandwidth.shown(one["mad"]), ", ".join(one["bounds"])])
            print(" | ".join(rows[-1]), flush=True)
    return rows


def run(quick: bool, tsc_hertz: float) -> None:
    """Measures, and writes the figures into the page."""
    if os.geteuid() != 0:
        raise RuntimeError("network namespaces are made by root")
    about = machine.describe(tsc_hertz)
    with root() as folder:
        rows = measure(quick, folder)
    head = ["path", "cross", "truth", "method", "timers", "sender", "values", "median", "error, %"]
    head += ["MAD", "bounds"]
    lines = [f"- {name}: {value}" for name, value in about.items() if name != "Beside it"]
    lines += ["", *(f"| {' | '.join(row)} |" for row in (head, ["---"] * len(head), *rows))]
    if quick:
        print("\n".join(lines))
    else:
        page_part.write(bandwidth.PAGE, lines, "levels")
