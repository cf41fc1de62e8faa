"""The levels a program is measured at: natively and under each way of faking time."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LORENTZ = os.environ.get("LORENTZ", str(ROOT / "target/release/lorentz"))

NATIVE = "native"
TIME_NAMESPACE = "unshare -T"
LIBFAKETIME = "libfaketime"
LORENTZ_LEVEL = "lorentz"


@dataclass(frozen=True)
class Level:
    """A way to run a command; if this machine lacks it, the reason."""

    name: str
    prefix: tuple[str, ...]
    missing: str = ""

    def command(self, *arguments: str | Path) -> list[str]:
        """Returns the command line that runs `arguments` at this level."""
        return [*self.prefix, *map(str, arguments)]


def _checked(name: str, prefix: tuple[str, ...]) -> Level:
    if shutil.which(prefix[0]) is None:
        return Level(name, prefix, f"{Path(prefix[0]).name} is not there")
    try:
        run = subprocess.run(
            [*prefix, "true"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=20
        )
    except subprocess.TimeoutExpired:
        return Level(name, prefix, "`true` did not end in 20 s")
    if run.returncode != 0:
        words = (run.stderr.strip() or f"exit status {run.returncode}").splitlines()
        return Level(name, prefix, words[-1])
    return Level(name, prefix)


def at_rate_one() -> list[Level]:
    """Returns all levels, each with its cheapest virtual time: an offset, rate 1."""
    unshare = ("unshare", "-T", "--fork", "--kill-child", "--monotonic", "9999")
    if os.geteuid() != 0:
        unshare = (*unshare, "--user", "--map-root-user")
    return [
        Level(NATIVE, ()),
        _checked(TIME_NAMESPACE, (*unshare, "--boottime", "9999")),
        _checked(LIBFAKETIME, ("faketime", "-f", "+1d")),
        _checked(LORENTZ_LEVEL, (LORENTZ, "run", "--offset", "+1d", "--rate", "1", "--")),
    ]


def at_rate_two() -> list[Level]:
    """Returns the levels that can change the speed of time, at twice the real speed."""
    return [
        Level(NATIVE, ()),
        _checked(LIBFAKETIME, ("faketime", "-f", "+1d x2")),
        _checked(LORENTZ_LEVEL, (LORENTZ, "run", "--offset", "+1d", "--rate", "2", "--")),
    ]
