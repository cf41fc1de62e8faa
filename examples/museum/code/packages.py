"""Programs of the exhibits, by name and version from their registries, cached in build/museum.

A package is written `pypi NAME==VERSION`, `npm NAME@VERSION` or `deb NAME`. Nothing is installed
into the system: a Debian package is unpacked.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
CACHE = ROOT / "build/museum"
#: Real time after which a download counts as failed, s.
LIMIT = 300


class CannotBeHadError(Exception):
    """The reason why an exhibit's program is not here."""


def call(command: list[str | Path], **options: object) -> None:
    """Runs a registry's client."""
    try:
        subprocess.run(
            command,
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=LIMIT,
            text=True,
            **options,
        )
    except FileNotFoundError:
        raise CannotBeHadError(f"{command[0]} is not installed") from None
    except subprocess.TimeoutExpired:
        raise CannotBeHadError(f"{command[0]} did not end within {LIMIT} s") from None
    except subprocess.CalledProcessError as error:
        last = (error.stdout or "").strip().splitlines()[-1:] or [f"status {error.returncode}"]
        raise CannotBeHadError(f"{Path(command[0]).name}: {last[0]}") from None


def place(folder: Path, final: Path) -> None:
    """Moves a complete directory to its place, where another process may have put one."""
    final.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.rename(final)
    except OSError:
        if not final.is_dir():
            raise


def venv() -> Path:
    """The Python whose pip installs, and which the exhibits in Python use."""
    final = CACHE / "venv"
    if not (final / "bin/pip").exists():
        # A venv knows its own path, so it is made in its place.
        call([sys.executable, "-m", "venv", final])
    return final


def fetch_pypi(name: str, folder: Path) -> None:
    flags = ["--quiet", "--disable-pip-version-check", "--target", folder]
    call([venv() / "bin/python", "-m", "pip", "install", *flags, name])


def fetch_npm(name: str, folder: Path) -> None:
    flags = ["--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)]
    call(["npm", "install", *flags, name])


def fetch_deb(name: str, folder: Path) -> None:
    try:
        call(["apt-get", "-qq", "download", name], cwd=folder)
    except CannotBeHadError:
        # A fresh machine has no package lists.
        call(["apt-get", "-qq", "update"])
        call(["apt-get", "-qq", "download", name], cwd=folder)
    for archive in folder.glob("*.deb"):
        call(["dpkg-deb", "-x", archive, folder])
        archive.unlink()


FETCHERS = {"pypi": fetch_pypi, "npm": fetch_npm, "deb": fetch_deb}


def fetch(package: str) -> Path:
    """Returns the directory of a package; downloads it at first use."""
    registry, name = package.split(" ", 1)
    final = CACHE / registry / name
    if final.is_dir():
        return final
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE, ignore_cleanup_errors=True) as folder:
        made = Path(folder, "made")
        made.mkdir()
        # apt-get downloads as a user of its own.
        Path(folder).chmod(0o755)
        FETCHERS[registry](name, made)
        place(made, final)
    return final


def environment(wanted: list[str]) -> dict[str, str]:
    """The variables by which an exhibit's script finds these packages before all others."""
    python_path, node_path, libraries = [], [], []
    path = [str(venv() / "bin")]
    for package in wanted:
        folder = fetch(package)
        if package.startswith("pypi "):
            python_path.append(str(folder))
            path.insert(0, str(folder / "bin"))
        elif package.startswith("npm "):
            node_path.append(str(folder / "node_modules"))
            path[:0] = [str(each) for each in (folder / "node_modules").glob("node-linux-*/bin")]
        else:
            path[:0] = [str(folder / "usr" / each) for each in ("bin", "sbin")]
            libraries.append(str(folder / "usr/lib/x86_64-linux-gnu"))
    variables = {"PATH": os.pathsep.join([*path, os.environ.get("PATH", os.defpath)])}
    for name, folders in (
        ("PYTHONPATH", python_path),
        ("NODE_PATH", node_path),
        ("LD_LIBRARY_PATH", libraries),
    ):
        # Empty, it hides the caller's own.
        variables[name] = os.pathsep.join(folders)
    return variables


def forget() -> None:
    """Removes the cache."""
    shutil.rmtree(CACHE, ignore_errors=True)
