"""Tools that change the time of Python tests, beside each other: what sees the changed time.

The table is in docs/python-testing.md, between two comments. The test compares each tool's column;
LORENTZ_WRITE_TABLE=1 writes the table anew."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from framework import suites
from framework.build import REPO

PAGE = REPO / "docs/python-testing.md"
PROGRAM = REPO / "tests/programs/python_testing/probe.py"
#: Real time after which a probe counts as hanging, s, from the line by which it is ready. Natively
#: each takes some milliseconds then.
HANGS_AFTER = 10
#: Time limit of a probe that cannot hang, s: it starts programs, PostgreSQL among them.
LIMIT = 80

TOOLS = ("lorentz", "freezegun", "time-machine", "libfaketime")
#: The module that each tool needs.
NEEDS = {"freezegun": "freezegun", "time-machine": "time_machine"}
#: Starts a program whose whole life libfaketime changes. It has no block.
FAKETIME = ("faketime", "2038-01-19 00:00:00")
#: The same for other probes: a time that stands, and a rate.
#: libfaketime names files of /dev/shm after process ids, fails where one is there, and leaves them
#: where it is killed. Here it has a /dev/shm of its own.
_NAMESPACES = ("--mount",) if os.geteuid() == 0 else ("--user", "--map-root-user", "--mount")
OWN_SHM = (
    *("unshare", *_NAMESPACES, "sh", "-c"),
    *('mount -t tmpfs -o mode=1777 none /dev/shm && exec "$@"', "sh"),
)
_STANDS = ("faketime", "-f", "2038-01-19 00:00:00")
FAKETIME_OF = {
    **dict.fromkeys(("monotonic-stands", "asyncio", "wait"), _STANDS),
    "rate": ("faketime", "-f", "+0 x1000"),
}

#: Rows of the table: probe -> words.
PROBES = {
    "python": "`datetime.now()`, `time.time()`",
    "c-extension": "C extensions: `time()` of libc",
    "raw-call": "raw system calls",
    "sqlite": "SQLite: `datetime('now')`",
    "thread": "other threads",
    "subprocess": "programs started meanwhile",
    "static": "static ones among them (busybox)",
    "file": "times of files written meanwhile",
    "postgres": "PostgreSQL started by the test: `now()`",
    "monotonic-goes-on": "`time.monotonic()` measures on, while the date is another",
    "monotonic-stands": "all clocks can stand, `time.monotonic()` too",
    "asyncio": "`asyncio.sleep` ends on a clock that stands",
    "wait": "`time.sleep(3600)` there ends at once, an hour later",
    "wait-follows": "a wait in progress ends when the clock is moved past its end",
    "rate": "time at another rate, waits included",
}


def postgres() -> str | None:
    """The folder of PostgreSQL's programs, if it is installed."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return str(found[-1].parent) if found else None


def cell(tool: str, probe: str) -> str | None:
    """yes, no or hangs; None where it cannot be tried here."""
    folder = postgres()
    if probe == "postgres" and folder is None:
        return None
    if (tool, probe) == ("libfaketime", "wait-follows"):
        # Its file of settings is read every ten seconds.
        return None
    launcher = (*OWN_SHM, *FAKETIME_OF.get(probe, FAKETIME)) if tool == "libfaketime" else ()
    command = [*launcher, sys.executable, PROGRAM, tool, probe]
    environment = suites.environment(POSTGRES=folder or "", TZ="UTC")
    # Without a buffer, so that the first line alone is read before the rest.
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "bufsize": 0}
    with subprocess.Popen(command, env=environment, start_new_session=True, **streams) as process:
        try:
            may_hang = process.stdout.readline() == b"may hang\n"
            out, err = process.communicate(timeout=HANGS_AFTER if may_hang else LIMIT)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            if may_hang:
                return "hangs"
            raise
    assert process.returncode == 0, f"{tool}, {probe}: {err.decode()}"
    return "yes" if json.loads(out.splitlines()[-1]) else "no"


def column(tool: str) -> dict[str, str | None]:
    """The cells of a tool, by probe."""
    with ThreadPoolExecutor(2) as pool:
        cells = pool.map(lambda probe: cell(tool, probe), PROBES)
        return dict(zip(PROBES, cells, strict=True))


def rendered(columns: dict[str, dict[str, str | None]]) -> str:
    """The table as Markdown."""
    lines = [f"| | {' | '.join(TOOLS)} |", "|---" * (len(TOOLS) + 1) + "|"]
    for probe, words in PROBES.items():
        cells = [columns[tool][probe] or "not tried" for tool in TOOLS]
        lines.append(f"| {words} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def shown() -> dict[str, dict[str, str]]:
    """The page's table: tool -> probe -> cell."""
    rows = re.findall(r"^\| (.+) \|$", part("sees"), re.MULTILINE)
    cells = {row.split(" | ")[0]: row.split(" | ")[1:] for row in rows}
    return {
        tool: {probe: cells[words][at] for probe, words in PROBES.items()}
        for at, tool in enumerate(TOOLS)
    }


def part(name: str) -> str:
    """The part of the page between two comments."""
    return (
        PAGE.read_text().partition(f"<!-- {name} -->\n")[2].partition(f"<!-- end of {name} -->")[0]
    )


def write(name: str, text: str) -> None:
    """Writes a part of the page anew."""
    old = PAGE.read_text()
    begin, _, rest = old.partition(f"<!-- {name} -->\n")
    end = rest.partition(f"<!-- end of {name} -->")[2]
    PAGE.write_text(f"{begin}<!-- {name} -->\n\n{text}\n<!-- end of {name} -->{end}")
