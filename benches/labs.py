"""Common parts of the network benchmarks: running commands, and writing figures into a page."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "networks.md"
LORENTZ = os.environ.get("LORENTZ", str(ROOT / "target/release/lorentz"))
#: Time limit of a command, s.
TIMEOUT = 300


def run(*words: object, timeout: float = TIMEOUT, **options: object) -> str:
    """Runs a command to its end. Returns its output. Ends the benchmark if the command fails."""
    command = [str(word) for word in words]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=timeout, check=False, **options
    )
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def rewrite(section: str, text: str) -> None:
    """Replaces the text between the comments of the page that name the section."""
    begin, end = f"<!-- {section} -->", f"<!-- /{section} -->"
    before, _, rest = PAGE.read_text().partition(begin)
    _, _, after = rest.partition(end)
    PAGE.write_text(f"{before}{begin}\n{text}\n{end}{after}")


@contextlib.contextmanager
def own_state() -> Iterator[None]:
    """Gives the block a state directory of the benchmark's own."""
    with tempfile.TemporaryDirectory(prefix="lorentz-bench-") as state:
        os.environ["LORENTZ_STATE_DIR"] = state
        yield


@contextlib.contextmanager
def network(name: str, text: str) -> Iterator[None]:
    """The network of this topology file is up in the block."""
    with tempfile.NamedTemporaryFile("w", prefix=f"{name}-", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        run(LORENTZ, "up", file.name)
        try:
            yield
        finally:
            run(LORENTZ, "down", name)


def put_back_when_ended() -> None:
    """Makes SIGTERM end the benchmark in good order: it removes its network."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
